package golden;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Sends the golden messages. Arguments: name server, broker address, broker name, seed. */
public final class Produce {
    private static final int SINGLES = 2000;
    private static final int BATCHES = 14;
    private static final int KIB = 1024;
    /** 1 s, 5 s and 10 s are delivered while the store is made; 30 min and 2 h stay in SCHEDULE_TOPIC_XXXX. */
    private static final int[] DELAY_LEVELS = {1, 2, 3, 16, 18};
    private static final String[] TAGS = {"TagA", "TagB", "paid", "zzzzzzzzzz", "标签", null};

    private final String brokerName;
    private final Text text;
    private final Random random;

    private Produce(String brokerName, long seed) {
        this.brokerName = brokerName;
        this.text = new Text(seed);
        this.random = text.random();
    }

    public static void main(String[] args) throws Exception {
        createTopics(args[0], args[1]);
        Produce produce = new Produce(args[2], Long.parseLong(args[3]));
        DefaultMQProducer compressing = producer("GoldenProducer", args[0], 4 * KIB);
        DefaultMQProducer plain = producer("GoldenPlainProducer", args[0], Integer.MAX_VALUE);
        produce.singles(compressing, plain);
        produce.keyTwins(compressing);
        produce.batches(compressing);
        produce.oneways(compressing);
        produce.transactions(args[0]);
        compressing.shutdown();
        plain.shutdown();
        System.exit(0);
    }

    private static void createTopics(String namesrv, String broker) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(namesrv);
        admin.setClientIP("127.0.0.1");
        admin.setInstanceName("golden-topics");
        admin.start();
        admin.createAndUpdateTopicConfig(broker, new TopicConfig("GoldenOrders", 4, 4, 6));
        admin.createAndUpdateTopicConfig(broker, new TopicConfig("GoldenEvents", 1, 1, 6));
        admin.createAndUpdateTopicConfig(broker, new TopicConfig("Golden-Wide_8", 8, 8, 6));
        admin.shutdown();
    }

    private static DefaultMQProducer producer(String group, String namesrv, int compressAbove) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName(group);
        producer.setCompressMsgBodyOverHowmuch(compressAbove);
        producer.start();
        return producer;
    }

    private void singles(DefaultMQProducer compressing, DefaultMQProducer plain) throws Exception {
        for (int i = 0; i < SINGLES; i++) {
            boolean large = i % 20 == 7;
            boolean uncompressed = i % 40 == 7;
            Message message = new Message(topic(), text.body(large ? largeSize(i) : smallSize()));
            decorate(message, i);
            if (i % 33 == 5) {
                message.setDelayTimeLevel(DELAY_LEVELS[i / 33 % DELAY_LEVELS.length]);
            }
            check((uncompressed ? plain : compressing).send(message, queue(message.getTopic())));
        }
    }

    private String topic() {
        int dice = random.nextInt(100);
        return dice < 40 ? "GoldenOrders" : dice < 80 ? "GoldenEvents" : "Golden-Wide_8";
    }

    private MessageQueue queue(String topic) {
        int queues = topic.equals("GoldenOrders") ? 4 : topic.equals("GoldenEvents") ? 1 : 8;
        return new MessageQueue(topic, brokerName, random.nextInt(queues));
    }

    /** Half the sizes are spread evenly up to 4 KiB, half by magnitude, so that 1 and 2 bytes occur too. */
    private int smallSize() {
        return random.nextBoolean() ? 1 + random.nextInt(4 * KIB) : 1 << random.nextInt(12);
    }

    private int largeSize(int i) {
        return i == 7 || i == 27 ? 200 * KIB : 4 * KIB + 1 + random.nextInt(i % 100 == 7 ? 196 * KIB : 60 * KIB);
    }

    private void decorate(Message message, int i) {
        String tag = TAGS[random.nextInt(TAGS.length)];
        if (tag != null) {
            message.setTags(tag);
        }
        switch (i % 4) {
            case 0:
                message.setKeys("order-" + i);
                break;
            case 1:
                message.setKeys(Arrays.asList("order-" + i, "customer-" + i % 50, "Größe", "订单-" + i % 10));
                break;
            case 2:
                message.setKeys("customer-" + i % 50);
                break;
            default:
                break;
        }
        if (i % 3 != 0) {
            message.putUserProperty("seq", Integer.toString(i));
            message.putUserProperty("名字", "значение 🚀 " + i % 7);
        }
        if (i % 500 == 8) {
            message.putUserProperty("long", new String(text.body(12 * KIB), StandardCharsets.UTF_8));
        }
        if (i % 9 == 0) {
            message.setWaitStoreMsgOK(false);
        }
        message.setFlag(i % 5 == 0 ? random.nextInt() : 0);
        if (message.getTopic().equals("GoldenOrders") && i % 60 == 3) {
            message.putUserProperty("retry", i % 120 == 3 ? "once" : "always");
        }
    }

    /** Keys with one Java hash code ("Aa" and "BB"), so that an index chain holds entries of both. */
    private void keyTwins(DefaultMQProducer producer) throws Exception {
        for (int i = 0; i < 6; i++) {
            Message message = new Message("GoldenEvents", "twins", i % 2 == 0 ? "Aa" : "BB", text.body(40 + i));
            check(producer.send(message, queue(message.getTopic())));
        }
    }

    private void batches(DefaultMQProducer producer) throws Exception {
        for (int b = 0; b < BATCHES; b++) {
            String topic = topic();
            List<Message> batch = new ArrayList<>();
            for (int n = 2 + b; n > 0; n--) {
                Message message = new Message(topic, text.body(1 + random.nextInt(600)));
                message.setTags("batched");
                message.setKeys("batch-" + b);
                message.putUserProperty("kind", "batch");
                batch.add(message);
            }
            check(producer.send(batch, queue(topic)));
        }
    }

    private void oneways(DefaultMQProducer producer) throws Exception {
        for (int i = 0; i < 10; i++) {
            Message message = new Message("Golden-Wide_8", text.body(200));
            message.putUserProperty("kind", "oneway");
            producer.sendOneway(message, queue(message.getTopic()));
        }
        Thread.sleep(1000); // a oneway request has no answer to wait for
    }

    private void transactions(String namesrv) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("GoldenTransactions");
        producer.setNamesrvAddr(namesrv);
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName("GoldenTransactions");
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object commit) {
                return (Boolean) commit ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        producer.start();
        for (int i = 0; i < 9; i++) {
            Message message = new Message("GoldenOrders", "TagA", "transaction-" + i, text.body(100 + i));
            message.putUserProperty("kind", "transaction");
            check(producer.sendMessageInTransaction(message, i % 3 != 2));
        }
        Thread.sleep(1000); // END_TRANSACTION is oneway
        producer.shutdown();
    }

    private static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("a send was not stored as asked: " + result);
        }
    }
}
