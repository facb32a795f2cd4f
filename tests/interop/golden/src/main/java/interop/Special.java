package interop;

import java.io.PrintStream;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Messages that a broker holds back. {@code delayed} takes the name servers, a topic, how many, a delay level; {@code transactions} the name
 * servers, a name under which the producer stays to be asked, a topic, how many. Each prints lines as Ways does. Of the
 * transactions' numbers, those that leave 0, divided by 4, are committed and 1 rolled back at once; 2 are committed and 3 rolled back
 * when the broker asks.
 */
public final class Special {
    private Special() {
    }

    static void delayed(String[] args, PrintStream out) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("InteropDelayed");
        producer.setNamesrvAddr(args[0]);
        producer.setClientIP("127.0.0.1");
        producer.setSendMsgTimeout(60_000);
        producer.start();
        for (int i = 0; i < Integer.parseInt(args[2]); i++) {
            Message message = Ways.message(args[1], "delayed", i);
            message.setDelayTimeLevel(Integer.parseInt(args[3]));
            out.println(producer.send(message).getSendStatus() + "\t" + Ways.line(message));
        }
        producer.shutdown();
    }

    static void transactions(String[] args, PrintStream out) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("InteropTransactions");
        producer.setNamesrvAddr(args[0]);
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName(args[1]);
        producer.setSendMsgTimeout(60_000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                int left = message.getFlag() % 4;
                return left == 0 ? LocalTransactionState.COMMIT_MESSAGE
                    : left == 1 ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return message.getFlag() % 4 == 2 ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        producer.start();
        Live.keep(args[1], producer::shutdown);
        for (int i = 0; i < Integer.parseInt(args[3]); i++) {
            Message message = Ways.message(args[2], "transaction", i);
            SendResult result = producer.sendMessageInTransaction(message, null);
            out.println(result.getSendStatus() + "\t" + Ways.line(message));
        }
    }
}
