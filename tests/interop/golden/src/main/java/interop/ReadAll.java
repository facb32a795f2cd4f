package interop;

import java.io.PrintStream;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Pulls every message of some topics, and prints one line for each: topic, queue id, queue offset, commit-log offset, CRC-32 of its
 * body, tags, keys. Arguments: name server, topics.
 */
public final class ReadAll {
    private ReadAll() {
    }

    static void run(String[] args, PrintStream out) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("InteropReader");
        consumer.setNamesrvAddr(args[0]);
        consumer.setClientIP("127.0.0.1");
        consumer.start();
        for (int i = 1; i < args.length; i++) {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(args[i])) {
                long next = consumer.minOffset(queue);
                long max = consumer.maxOffset(queue);
                while (next < max) {
                    PullResult pulled = consumer.pull(queue, "*", next, 32);
                    if (pulled.getPullStatus() == PullStatus.FOUND) {
                        pulled.getMsgFoundList().forEach(message -> print(message, out));
                    }
                    if (pulled.getNextBeginOffset() <= next) {
                        throw new IllegalStateException("no progress on " + queue + " at " + next + ": " + pulled);
                    }
                    next = pulled.getNextBeginOffset();
                }
            }
        }
        consumer.shutdown();
    }

    private static void print(MessageExt message, PrintStream out) {
        CRC32 crc = new CRC32();
        crc.update(message.getBody());
        out.println(String.join("\t", message.getTopic(), Integer.toString(message.getQueueId()),
            Long.toString(message.getQueueOffset()), Long.toString(message.getCommitLogOffset()), Long.toString(crc.getValue()),
            String.valueOf(message.getTags()), String.valueOf(message.getKeys())));
    }
}
