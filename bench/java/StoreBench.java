import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;

import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * RocketMQ's own store, driven as bench/ drives ours. For each round it prints one line
 * {@code per_second=N dispatched_per_second=M}: messages divided by the time to the last result, and by the time until queues and
 * index have all of them.
 *
 * <p>Arguments: store directory, then one of: {@code put SIZE COUNT ROUNDS}; {@code batch SIZE COUNT ROUNDS MESSAGES};
 * {@code sync SIZE COUNT ROUNDS WAITERS}; {@code recover}. The last one loads a store that was left by a kill, and prints
 * {@code seconds=N max_offset=M}. The next round begins when a line arrives on standard input, so that two programs can take turns.
 */
public final class StoreBench {
    private static final SocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);
    private static final String TOPIC = "Bench";
    private static final int QUEUES = 4;
    private static final int MADE = 1024; // messages, put again and again
    private static final int WARM_UP = 1 << 19; // messages

    private StoreBench() {
    }

    public static void main(String[] args) {
        try {
            run(args);
            Runtime.getRuntime().halt(0);
        } catch (Throwable e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1); // otherwise the store's threads would keep the process alive
        }
    }

    private static void run(String[] args) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(args[0]);
        config.setStorePathCommitLog(Path.of(args[0], "commitlog").toString());
        config.setFlushDiskType(args[1].equals("sync") ? FlushDiskType.SYNC_FLUSH : FlushDiskType.ASYNC_FLUSH);
        config.setDiskMaxUsedSpaceRatio(95);
        config.setHaListenPort(0);
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("bench", false),
            (topic, queueId, offset, tags, time, filter, properties) -> { }, new BrokerConfig());
        long begin = System.nanoTime();
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        if (args[1].equals("recover")) {
            System.out.printf("seconds=%.4f max_offset=%d%n", (System.nanoTime() - begin) / 1e9, store.getMaxPhyOffset());
            System.out.flush();
            return;
        }
        store.start();
        int size = Integer.parseInt(args[2]);
        int count = Integer.parseInt(args[3]);
        int rounds = Integer.parseInt(args[4]);
        // The threads are reused in all rounds: the store has a buffer of 4 MiB for each.
        ExecutorService threads = Executors.newFixedThreadPool(args[1].equals("sync") ? Integer.parseInt(args[5]) : 1);
        MessageExtBrokerInner[] made = new MessageExtBrokerInner[MADE]; // made before the measurement
        for (int i = 0; i < MADE; i++) {
            made[i] = message(new byte[size], i);
        }
        // The warm-up lets Java compile its code. Without it the first rounds are three times as slow.
        if (args[1].equals("put")) {
            puts(store, made, WARM_UP);
        } else if (args[1].equals("batch")) {
            batches(store, size, WARM_UP, Integer.parseInt(args[5]));
        }
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
        for (int round = 0; round < rounds; round++) {
            if (System.in.read() < 0) {
                break;
            }
            long started = System.nanoTime();
            switch (args[1]) {
                case "put":
                    puts(store, made, count);
                    break;
                case "batch":
                    batches(store, size, count, Integer.parseInt(args[5]));
                    break;
                case "sync":
                    syncs(store, threads, size, count, Integer.parseInt(args[5]));
                    break;
                default:
                    throw new IllegalArgumentException(args[1]);
            }
            long ended = System.nanoTime();
            while (store.dispatchBehindBytes() > 0) {
                Thread.sleep(0, 100_000);
            }
            System.out.printf("per_second=%.0f dispatched_per_second=%.0f%n", count / ((ended - started) / 1e9),
                count / ((System.nanoTime() - started) / 1e9));
            System.out.flush();
        }
    }

    private static MessageExtBrokerInner message(byte[] body, int number) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(TOPIC);
        message.setBody(body);
        message.setQueueId(number % QUEUES);
        message.setTags("TagA");
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, "TagA"));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    private static void need(PutMessageResult result) {
        if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            throw new IllegalStateException("a put ended with " + result.getPutMessageStatus());
        }
    }

    private static void puts(DefaultMessageStore store, MessageExtBrokerInner[] made, int count) {
        for (int i = 0; i < count; i++) {
            need(store.putMessage(made[i % MADE]));
        }
    }

    private static void batches(DefaultMessageStore store, int size, int count, int messages) {
        List<Message> list = new ArrayList<>();
        for (int i = 0; i < messages; i++) {
            Message message = new Message(TOPIC, "TagA", new byte[size]);
            message.getProperties().remove(MessageConst.PROPERTY_WAIT_STORE_MSG_OK);
            list.add(message);
        }
        for (int done = 0; done < count; done += messages) {
            MessageExtBatch batch = new MessageExtBatch();
            batch.setTopic(TOPIC);
            batch.setQueueId(done / messages % QUEUES);
            batch.setBornTimestamp(System.currentTimeMillis());
            batch.setBornHost(HOST);
            batch.setStoreHost(HOST);
            batch.setBody(MessageDecoder.encodeMessages(list));
            need(store.putMessages(batch));
        }
    }

    private static void syncs(DefaultMessageStore store, ExecutorService threads, int size, int count, int waiters) throws Exception {
        byte[] body = new byte[size];
        AtomicInteger next = new AtomicInteger();
        List<Future<?>> running = new ArrayList<>();
        for (int i = 0; i < waiters; i++) {
            running.add(threads.submit(() -> {
                for (int number = next.getAndIncrement(); number < count; number = next.getAndIncrement()) {
                    need(store.putMessage(message(body, number)));
                }
            }));
        }
        for (Future<?> one : running) {
            one.get();
        }
    }
}
