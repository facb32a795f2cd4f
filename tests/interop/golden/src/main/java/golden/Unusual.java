package golden;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Makes a broker write the records, and give the answers, that are rare. The first argument says which part of the run it is:
 *
 * <p>hosts: one message of each kind of born host; the broker's own address is IPv6 then. fill: all kinds of records, before there
 * is a slave. ask: pulls of every outcome. slave: requests to the slave. The others: name server, broker, the same broker by IPv6,
 * slave, broker name, seed.
 */
public final class Unusual {
    private static final String TOPIC = "Unusual";
    private static final String EMPTY = "UnusualEmpty";
    private static final String WRITE_ONLY = "UnusualWriteOnly";
    private static final String GROUP = "UnusualReaders";
    /** "Unusual#" and this has the Java hash code -2^31, whose absolute value is negative. */
    private static final String MIN_HASH_KEY = "Wvavusl";
    /** 1 s and 5 s are delivered while the store is made; 40 is beyond the last. */
    private static final int[] DELAY_LEVELS = {1, 2, 14, 15, 16, 17, 18, 40};
    private static final int SUSPEND = 2;
    private static final int SUBSCRIPTION = 4;

    private final String namesrv;
    private final String broker;
    private final String brokerV6;
    private final String slave;
    private final String brokerName;
    private final Text text;
    private final Raw raw = new Raw();

    private Unusual(String[] args) {
        namesrv = args[1];
        broker = args[2];
        brokerV6 = args[3];
        slave = args[4];
        brokerName = args[5];
        text = new Text(Long.parseLong(args[6]));
    }

    public static void main(String[] args) throws Exception {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        try {
            new Unusual(args).go(args[0]);
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1); // the threads of the clients would go on
        }
        System.exit(0);
    }

    private void go(String part) throws Exception {
        switch (part) {
            case "hosts":
                hosts();
                break;
            case "fill":
                fill();
                break;
            case "ask":
                ask();
                break;
            case "slave":
                askSlave();
                break;
            default:
                throw new IllegalArgumentException(part);
        }
    }

    // --- Records ---------------------------------------------------------------------------------------------------------

    private void hosts() throws Exception {
        for (String address : List.of(broker, brokerV6)) {
            for (int i = 0; i < 3; i++) {
                String properties = MessageDecoder.messageProperties2String(Map.of("KEYS", "host-" + i, "TAGS", "TagA"));
                Raw.must(send(address, TOPIC, 0, properties, text.body(60 + i)));
            }
            RemotingCommand batch = ask310(address, 320, TOPIC, 0, null, batchOf(2, true));
            Raw.must(batch);
        }
    }

    private void fill() throws Exception {
        createTopics();
        for (String type : List.of("ZLIB", "LZ4", "ZSTD")) {
            System.setProperty("rocketmq.message.compressType", type);
            DefaultMQProducer producer = producer("Unusual" + type, 100);
            for (int size : new int[] {101, 3000, 9000}) {
                Message message = new Message(TOPIC, "TagB", type + "-" + size, text.body(size));
                message.putUserProperty("kind", type);
                producer.send(message, new MessageQueue(TOPIC, brokerName, 0));
            }
            producer.shutdown();
        }
        DefaultMQProducer producer = producer("UnusualPlain", Integer.MAX_VALUE);
        delays(producer);
        batches(producer);
        transactions();
        keysAndTags(producer);
        propertyTexts();
        flags();
        large(producer, 14);
        longTopics();
        Raw.must(send(brokerV6, TOPIC, 0, MessageDecoder.messageProperties2String(Map.of("KEYS", "v6")), text.body(70)));
        producer.shutdown();
    }

    private void createTopics() throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(60_000);
        admin.setNamesrvAddr(namesrv);
        admin.setClientIP("127.0.0.1");
        admin.setInstanceName("unusual-topics");
        admin.start();
        admin.createAndUpdateTopicConfig(broker, new TopicConfig(TOPIC, 2, 2, 6));
        admin.createAndUpdateTopicConfig(broker, new TopicConfig(EMPTY, 1, 1, 6));
        admin.createAndUpdateTopicConfig(broker, new TopicConfig(WRITE_ONLY, 1, 1, 2));
        admin.shutdown();
    }

    private DefaultMQProducer producer(String group, int compressAbove) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName(group);
        producer.setCompressMsgBodyOverHowmuch(compressAbove);
        producer.setSendMsgTimeout(30_000);
        producer.setMqClientApiTimeout(30_000);
        producer.start();
        return producer;
    }

    private void delays(DefaultMQProducer producer) throws Exception {
        for (int level : DELAY_LEVELS) {
            Message message = new Message(TOPIC, "TagD", "delay-" + level, text.body(80));
            message.setDelayTimeLevel(level);
            producer.send(message, new MessageQueue(TOPIC, brokerName, 0));
        }
    }

    private void batches(DefaultMQProducer producer) throws Exception {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            Message message = new Message(TOPIC, "batched", "batch-" + i, text.body(30 + i));
            message.putUserProperty("kind", "batch");
            batch.add(message);
        }
        producer.send(batch, new MessageQueue(TOPIC, brokerName, 0));
        Raw.must(ask310(broker, 320, TOPIC, 0, null, batchOf(3, false)));
        Raw.must(ask310(broker, 320, TOPIC, 0, null, batchOf(3, true)));
    }

    /** A batch as a client encodes it; its messages without properties, or with one. */
    private byte[] batchOf(int count, boolean withProperties) {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message message = new Message(TOPIC, text.body(20 + i));
            message.setWaitStoreMsgOK(false);
            message.getProperties().clear();
            if (withProperties) {
                message.putUserProperty("kind", "batch");
            }
            messages.add(message);
        }
        return MessageDecoder.encodeMessages(messages);
    }

    private void transactions() throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("UnusualTransactions");
        producer.setNamesrvAddr(namesrv);
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName("UnusualTransactions");
        producer.setSendMsgTimeout(30_000);
        producer.setMqClientApiTimeout(30_000);
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
        for (int i = 0; i < 4; i++) {
            Message message = new Message(TOPIC, "TagT", "transaction-" + i, text.body(40));
            producer.sendMessageInTransaction(message, i % 2 == 0);
        }
        Thread.sleep(1500); // END_TRANSACTION is oneway
        producer.shutdown();
    }

    private void keysAndTags(DefaultMQProducer producer) throws Exception {
        String[][] kinds = {
            {null, null}, {"", ""}, {"refund", "a"}, {"标签", "ключ 订单 \uD83D\uDE80"}, {"two words", "x  y"}, {"TagA", MIN_HASH_KEY},
            {"TagA", "Aa"}, {"TagA", "BB"},
        };
        for (String[] kind : kinds) {
            Message message = new Message(TOPIC, text.body(25));
            if (kind[0] != null) {
                message.setTags(kind[0]);
            }
            if (kind[1] != null) {
                message.setKeys(kind[1]);
            }
            producer.send(message, new MessageQueue(TOPIC, brokerName, 1));
        }
    }

    /** The properties of a request as text: the broker takes them apart, and writes them anew. */
    private void propertyTexts() throws Exception {
        String[] texts = {
            "", "a\u0001b", "a\u0001b\u0002", "a\u0001\u0002c\u0001d", "a\u0001b\u0002\u0002c\u0001d\u0002", "half\u0002a\u0001b", "a\u0001b\u0002a\u0001c",
            "KEYS\u0001k\u0002WAIT\u0001false\u0002名\u0001\uD83D\uDE80 значение",
        };
        for (String properties : texts) {
            Raw.must(send(broker, TOPIC, 0, properties, text.body(33)));
        }
    }

    /** Bits 2 and 3 of sysFlag, as they were before 4.3: prepared, committed, rolled back; and the same without keys. */
    private void flags() throws Exception {
        for (int sysFlag : new int[] {4, 8, 12}) {
            for (String properties : List.of("KEYS\u0001flag-" + sysFlag, "a\u0001b")) {
                Raw.must(send(broker, TOPIC, sysFlag, properties, text.body(44)));
            }
        }
    }

    /** A producer is refused a topic of more than 127 bytes, and so is %DLQ%; in 5.3.3 the %RETRY% of a long-named group is not. */
    private void longTopics() throws Exception {
        String group = "g".repeat(125);
        send(broker, "%RETRY%" + group, 0, "KEYS\u0001refused", text.body(50));
        RemotingCommand sent = Raw.must(send(broker, "%RETRY%" + group.substring(5), 0, "KEYS\u0001just", text.body(50)));
        String messageId = sent.getExtFields().get("msgId");
        String offset = Long.toString(Long.parseLong(messageId.substring(messageId.length() - 16), 16));
        giveBack(group, offset, -1); // to %DLQ%
        if (MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION).startsWith("V5")) { // 4.x would try to deliver it for ever
            giveBack(group, offset, 1); // in a second to %RETRY%; 5.4.0 makes no group of such a name
        }
    }

    private RemotingCommand giveBack(String group, String offset, int delayLevel) throws Exception {
        Map<String, String> fields = new HashMap<>();
        fields.put("offset", offset);
        fields.put("group", group);
        fields.put("delayLevel", Integer.toString(delayLevel));
        fields.put("originMsgId", "0");
        fields.put("originTopic", TOPIC);
        fields.put("unitMode", "false");
        fields.put("maxReconsumeTimes", "16");
        return raw.ask(broker, 36, fields, null);
    }

    /** So much that files of 64 KiB end. */
    private void large(DefaultMQProducer producer, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            byte[] body = text.body(i % 3 == 0 ? 18_000 : 9_000 + 100 * i);
            producer.send(new Message(TOPIC, "large", "large-" + i, body), new MessageQueue(TOPIC, brokerName, i % 2));
        }
    }

    private RemotingCommand send(String address, String topic, int sysFlag, String properties, byte[] body) throws Exception {
        return ask310(address, 310, topic, sysFlag, properties, body);
    }

    private RemotingCommand ask310(String address, int code, String topic, int sysFlag, String properties, byte[] body) throws Exception {
        Map<String, String> fields = new HashMap<>();
        fields.put("a", "UnusualRaw");
        fields.put("b", topic);
        fields.put("c", "TBW102");
        fields.put("d", "1");
        fields.put("e", "0");
        fields.put("f", Integer.toString(sysFlag));
        fields.put("g", Long.toString(System.currentTimeMillis()));
        fields.put("h", "7");
        fields.put("j", "0");
        fields.put("k", "false");
        fields.put("m", Boolean.toString(code == 320));
        if (properties != null) {
            fields.put("i", properties);
        }
        return raw.ask(address, code, fields, body);
    }

    // --- Answers ---------------------------------------------------------------------------------------------------------

    private void ask() throws Exception {
        long max = offset(broker, 30, TOPIC, 0);
        pull(broker, TOPIC, 0, 0, SUBSCRIPTION, "*", "TAG", GROUP, 0);
        pull(broker, TOPIC, 0, max, SUBSCRIPTION, "*", "TAG", GROUP, 0);
        pull(broker, TOPIC, 0, max + 100, SUBSCRIPTION, "*", "TAG", GROUP, 0);
        pull(broker, TOPIC, 0, -5, SUBSCRIPTION, "*", "TAG", GROUP, 0);
        pull(broker, EMPTY, 0, 0, SUBSCRIPTION, "*", "TAG", GROUP, 0);
        pull(broker, EMPTY, 0, 5, SUBSCRIPTION, "*", "TAG", GROUP, 0);
        pull(broker, TOPIC, 0, 0, SUBSCRIPTION, "no such tag", "TAG", GROUP, 0);
        pull(broker, TOPIC, 0, 0, SUBSCRIPTION, "TagA || refund", "TAG", GROUP, 0);
        pull(broker, TOPIC, 1, 0, SUBSCRIPTION, "refund", "TAG", GROUP, 0);
        pull(broker, TOPIC, 99, 0, SUBSCRIPTION, "*", "TAG", GROUP, 0);
        pull(broker, "NoSuchTopic", 0, 0, SUBSCRIPTION, "*", "TAG", GROUP, 0);
        pull(broker, WRITE_ONLY, 0, 0, SUBSCRIPTION, "*", "TAG", GROUP, 0);
        pull(broker, TOPIC, 0, 0, SUBSCRIPTION, "*", "TAG", "no group!", 0);
        pull(broker, TOPIC, 0, 0, 0, "*", "TAG", "UnusualNobody", 0);
        pull(broker, TOPIC, 0, 0, SUBSCRIPTION, "", "SQL92", GROUP, 0);
        pull(broker, TOPIC, 0, 0, SUBSCRIPTION, "a > 1", "SQL92", GROUP, 0);
        pull(broker, EMPTY, 0, 0, SUBSCRIPTION | SUSPEND, "*", "TAG", GROUP, 2000);
        CompletableFuture<RemotingCommand> held = CompletableFuture.supplyAsync(() -> {
            try {
                return pull(broker, TOPIC, 0, max, SUBSCRIPTION | SUSPEND, "*", "TAG", GROUP, 20_000);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
        Thread.sleep(2000);
        Raw.must(send(broker, TOPIC, 0, "KEYS\u0001released", text.body(20)));
        held.get();
        raw.configure(broker, "slaveReadEnable=true\naccessMessageInMemoryMaxRatio=0\n");
        pull(broker, TOPIC, 0, 0, SUBSCRIPTION, "*", "TAG", GROUP, 0);
        pull(broker, TOPIC, 0, max + 1, SUBSCRIPTION, "*", "TAG", GROUP, 0);
        raw.configure(broker, "accessMessageInMemoryMaxRatio=40\n");
        pull(broker, TOPIC, 0, 0, SUBSCRIPTION, "*", "TAG", GROUP, 0);
        raw.configure(broker, "slaveReadEnable=false\n");
    }

    private void askSlave() throws Exception {
        DefaultMQProducer producer = producer("UnusualLate", Integer.MAX_VALUE);
        large(producer, 8);
        producer.shutdown();
        long last = 0;
        for (int i = 0; i < 120 && last < offset(broker, 30, TOPIC, 1); i++) {
            Thread.sleep(500);
            last = offset(slave, 30, TOPIC, 1);
        }
        send(slave, TOPIC, 0, "KEYS\u0001refused", text.body(20));
        long min = offset(slave, 31, TOPIC, 1);
        pull(slave, TOPIC, 1, min, SUBSCRIPTION, "*", "TAG", GROUP, 0);
        raw.configure(slave, "slaveReadEnable=true\n");
        pull(slave, TOPIC, 1, min, SUBSCRIPTION, "*", "TAG", GROUP, 0);
        pull(slave, TOPIC, 1, 0, SUBSCRIPTION, "*", "TAG", GROUP, 0);
        raw.configure(slave, "offsetCheckInSlave=true\n");
        pull(slave, TOPIC, 1, 0, SUBSCRIPTION, "*", "TAG", GROUP, 0);
        raw.configure(slave, "offsetCheckInSlave=false\nslaveReadEnable=false\n");
    }

    private long offset(String address, int code, String topic, int queueId) throws Exception {
        RemotingCommand answer = raw.ask(address, code, Map.of("topic", topic, "queueId", Integer.toString(queueId)), null);
        return Long.parseLong(Raw.must(answer).getExtFields().get("offset"));
    }

    private RemotingCommand pull(
        String address, String topic, int queueId, long offset, int sysFlag, String subscription, String type, String group, int suspendMs)
        throws Exception {
        Map<String, String> fields = new HashMap<>();
        fields.put("consumerGroup", group);
        fields.put("topic", topic);
        fields.put("queueId", Integer.toString(queueId));
        fields.put("queueOffset", Long.toString(offset));
        fields.put("maxMsgNums", "8");
        fields.put("sysFlag", Integer.toString(sysFlag));
        fields.put("commitOffset", "0");
        fields.put("suspendTimeoutMillis", Integer.toString(suspendMs));
        fields.put("subscription", subscription);
        fields.put("subVersion", "0");
        fields.put("expressionType", type);
        return raw.ask(address, 11, fields, null);
    }
}
