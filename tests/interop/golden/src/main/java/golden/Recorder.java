package golden;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Writes what RocketMQ itself says of its store. Arguments: name server, broker address, broker
 * name, output folder, the topics of which keys are asked for, with commas.
 *
 * <p>Every queue of every topic is pulled; what no queue gives is asked for by its commit-log offset (viewMessage). Nothing here
 * reads the store's files.
 */
public final class Recorder {
    private static final int QUIET_MS = 16_000; // longer than the 10 s of a slave's synchronisation, and of delay level 3
    private static final int DEADLINE_MS = 150_000;
    private static final int QUERY_MAX = 64;
    private static final int NO_MESSAGE = 208; // of the client's ResponseCode, whose package is another from 5.0 on
    /** Asked besides the first and the last key of each topic; "Aa" and "BB" have one Java hash code. */
    private static final String[][] QUERIES = {
        {"GoldenEvents", "Aa"}, {"GoldenEvents", "BB"}, {"GoldenEvents", "customer-7"}, {"GoldenOrders", "customer-1"},
        {"GoldenOrders", "Größe"}, {"GoldenEvents", "订单-1"}, {"Golden-Wide_8", "订单-1"}, {"GoldenOrders", "transaction-0"},
        {"GoldenOrders", "transaction-2"}, {"GoldenEvents", "no such key"}, {"Unusual", "Aa"}, {"Unusual", "BB"},
        {"Unusual", "Wvavusl"}, {"Unusual", "flag-4"}, {"Unusual", "flag-8"}, {"Unusual", "flag-12"}, {"Unusual", "ключ"},
    };

    private final String broker;
    private final String brokerName;
    private final List<String> topics;
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(20_000);
    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("GoldenRecorder");
    private final TreeMap<Long, Map<String, Object>> messages = new TreeMap<>();
    private final List<Map<String, Object>> queues = new ArrayList<>();

    private Recorder(String namesrv, String broker, String brokerName, List<String> topics) throws MQClientException {
        this.broker = broker;
        this.brokerName = brokerName;
        this.topics = topics;
        admin.setNamesrvAddr(namesrv);
        admin.setClientIP("127.0.0.1");
        admin.setInstanceName("golden-admin");
        admin.start();
        consumer.setNamesrvAddr(namesrv);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName("golden-recorder");
        consumer.start();
    }

    public static void main(String[] args) throws Exception {
        Recorder recorder = new Recorder(args[0], args[1], args[2], List.of(args[4].split(",")));
        Path out = Path.of(args[3]);
        long logEnd = recorder.awaitQuiet();
        for (TopicConfig topic : new TreeMap<>(recorder.admin.getAllTopicConfig(recorder.broker, 10_000).getTopicConfigTable()).values()) {
            for (int q = 0; q < Math.max(topic.getReadQueueNums(), topic.getWriteQueueNums()); q++) {
                recorder.queue(new MessageQueue(topic.getTopicName(), recorder.brokerName, q));
            }
        }
        recorder.fillGaps(logEnd);
        recorder.queuesOfViewed();
        List<Object> queries = recorder.queries();
        if (recorder.logEnd() != logEnd) {
            throw new IllegalStateException("the log grew while it was recorded: " + logEnd + " to " + recorder.logEnd());
        }
        Map<String, Object> summary = new TreeMap<>();
        summary.put("commit_log_max_offset", logEnd);
        summary.put("runtime", recorder.admin.fetchBrokerRuntimeStats(recorder.broker).getTable().get("brokerVersionDesc"));
        summary.put("queues", recorder.queues);
        summary.put("index_queries", queries);
        write(out.resolve("summary.json"), List.of(summary));
        write(out.resolve("messages.jsonl"), new ArrayList<>(recorder.messages.values()));
        System.exit(0);
    }

    private static void write(Path file, List<?> rows) throws IOException {
        StringBuilder text = new StringBuilder();
        for (Object row : rows) {
            text.append(JSON.toJSONString(row, SerializerFeature.MapSortField, SerializerFeature.WriteMapNullValue,
                SerializerFeature.DisableCircularReferenceDetect));
            text.append('\n');
        }
        Files.write(file, text.toString().getBytes(StandardCharsets.UTF_8));
    }

    private long logEnd() throws Exception {
        return Long.parseLong(admin.fetchBrokerRuntimeStats(broker).getTable().get("commitLogMaxOffset"));
    }

    private long awaitQuiet() throws Exception {
        long end = System.currentTimeMillis() + DEADLINE_MS;
        while (System.currentTimeMillis() < end) {
            long before = logEnd();
            Thread.sleep(QUIET_MS);
            if (logEnd() == before) {
                return before;
            }
        }
        throw new IllegalStateException("the log still grows after " + DEADLINE_MS + " ms");
    }

    private void queue(MessageQueue mq) throws Exception {
        long min = admin.minOffset(mq);
        long max = admin.maxOffset(mq);
        if (max == 0) {
            return;
        }
        boolean readable = true;
        try {
            for (long next = min; next < max; ) {
                PullResult pulled = consumer.pull(mq, "*", next, 32);
                if (pulled.getPullStatus() == PullStatus.FOUND) {
                    pulled.getMsgFoundList().forEach(message -> keep(message, "pull"));
                }
                if (pulled.getNextBeginOffset() <= next) {
                    throw new IllegalStateException("no progress on " + mq + " at " + next + ": " + pulled);
                }
                next = pulled.getNextBeginOffset();
            }
        } catch (MQBrokerException e) {
            readable = false; // a dead-letter topic may be written only; fillGaps takes its messages by offset
        }
        queues.add(row(mq, min, max, readable));
    }

    private static Map<String, Object> row(MessageQueue mq, long min, long max, boolean pullable) {
        Map<String, Object> row = new TreeMap<>();
        row.put("topic", mq.getTopic());
        row.put("queue_id", mq.getQueueId());
        row.put("min_queue_offset", min);
        row.put("max_queue_offset", max);
        row.put("pullable", pullable);
        return row;
    }

    /** Adds the queues whose topic has no configuration, such as the half-message topics of a young broker. */
    private void queuesOfViewed() throws MQClientException {
        TreeSet<MessageQueue> unlisted = new TreeSet<>();
        for (Map<String, Object> message : messages.values()) {
            if (message.get("via").equals("view")) {
                unlisted.add(new MessageQueue((String) message.get("topic"), brokerName, (Integer) message.get("queue_id")));
            }
        }
        for (MessageQueue mq : unlisted) {
            boolean listed = queues.stream().anyMatch(q -> q.get("topic").equals(mq.getTopic()) && q.get("queue_id").equals(mq.getQueueId()));
            if (!listed) {
                queues.add(row(mq, admin.minOffset(mq), admin.maxOffset(mq), false));
            }
        }
    }

    private void keep(MessageExt message, String via) {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        properties.remove(MessageConst.PROPERTY_MIN_OFFSET); // the client adds these two to what it has pulled
        properties.remove(MessageConst.PROPERTY_MAX_OFFSET);
        Map<String, Object> row = new TreeMap<>();
        row.put("commit_log_offset", message.getCommitLogOffset());
        row.put("store_size", message.getStoreSize());
        row.put("topic", message.getTopic());
        row.put("queue_id", message.getQueueId());
        row.put("queue_offset", message.getQueueOffset());
        row.put("keys", message.getKeys());
        row.put("tags", message.getTags());
        row.put("body_crc", message.getBodyCRC());
        row.put("sys_flag", message.getSysFlag());
        row.put("flag", message.getFlag());
        row.put("born_timestamp_ms", message.getBornTimestamp());
        row.put("store_timestamp_ms", message.getStoreTimestamp());
        row.put("born_host", address(message.getBornHost()));
        row.put("store_host", address(message.getStoreHost()));
        row.put("reconsume_times", message.getReconsumeTimes());
        row.put("prepared_transaction_offset", message.getPreparedTransactionOffset());
        row.put("body_size", message.getBody().length);
        row.put("body_sha256", sha256(message.getBody()));
        row.put("properties", properties);
        row.put("via", via);
        if (messages.put(message.getCommitLogOffset(), row) != null) {
            throw new IllegalStateException("two queues gave the message at " + message.getCommitLogOffset());
        }
    }

    /** Walks from message to message; where none is known, asks for one by offset; where there is none, goes to the next file. */
    private void fillGaps(long logEnd) throws Exception {
        long fileSize = Long.parseLong(admin.getBrokerConfig(broker).getProperty("mappedFileSizeCommitLog"));
        long offset = 0;
        while (offset < logEnd) {
            Map<String, Object> row = messages.get(offset);
            if (row == null) {
                MessageExt message = view(offset);
                if (message == null) {
                    offset += fileSize - offset % fileSize;
                    continue;
                }
                keep(message, "view");
                row = messages.get(offset);
            }
            offset += (Integer) row.get("store_size");
        }
    }

    private MessageExt view(long offset) throws InterruptedException {
        String[] host = broker.split("[.:]");
        StringBuilder id = new StringBuilder();
        for (int i = 0; i < 4; i++) {
            id.append(String.format("%02X", Integer.parseInt(host[i])));
        }
        id.append(String.format("%08X%016X", Integer.parseInt(host[4]), offset));
        try {
            MessageExt message = admin.viewMessage("", id.toString());
            return message != null && message.getCommitLogOffset() == offset && message.getTopic() != null ? message : null;
        } catch (Exception e) {
            if (e instanceof InterruptedException) {
                throw (InterruptedException) e;
            }
            return null; // a BLANK is no message: the broker refuses or the client cannot decode it
        }
    }

    private List<Object> queries() throws Exception {
        List<String[]> asked = new ArrayList<>();
        for (String[] query : QUERIES) {
            if (topics.contains(query[0])) {
                asked.add(query);
            }
        }
        for (String topic : topics) {
            List<String> keys = new ArrayList<>();
            for (Map<String, Object> message : messages.values()) {
                if (message.get("topic").equals(topic) && message.get("keys") != null) {
                    keys.add(((String) message.get("keys")).split(MessageConst.KEY_SEPARATOR)[0]);
                }
            }
            asked.add(new String[] {topic, keys.get(0)});
            asked.add(new String[] {topic, keys.get(keys.size() - 1)});
        }
        List<Object> answers = new ArrayList<>();
        for (String[] query : asked) {
            Map<String, Object> answer = new TreeMap<>();
            answer.put("topic", query[0]);
            answer.put("key", query[1]);
            answer.put("max_num", QUERY_MAX);
            answer.put("commit_log_offsets", found(query[0], query[1]));
            answers.add(answer);
        }
        return answers;
    }

    private List<Long> found(String topic, String key) throws MQClientException, InterruptedException {
        List<Long> offsets = new ArrayList<>();
        try {
            for (MessageExt message : admin.queryMessage(topic, key, QUERY_MAX, 0, Long.MAX_VALUE).getMessageList()) {
                offsets.add(message.getCommitLogOffset());
            }
        } catch (MQClientException e) {
            if (e.getResponseCode() != NO_MESSAGE) { // the empty answer, which the client makes an exception
                throw e;
            }
        }
        return offsets;
    }

    private static String address(java.net.SocketAddress host) {
        java.net.InetSocketAddress inet = (java.net.InetSocketAddress) host;
        return inet.getAddress().getHostAddress() + ":" + inet.getPort();
    }

    private static String sha256(byte[] body) {
        try {
            StringBuilder hex = new StringBuilder();
            for (byte b : MessageDigest.getInstance("SHA-256").digest(body)) {
                hex.append(String.format("%02x", b));
            }
            return hex.toString();
        } catch (java.security.NoSuchAlgorithmException e) {
            throw new AssertionError(e);
        }
    }
}
