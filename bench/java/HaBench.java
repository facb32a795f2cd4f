import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * One end of RocketMQ's own replication, driven as bench/ drives ours: it reads commands, one per line, and answers each with a line.
 *
 * <p>Arguments: {@code master STORE ROLE PORT}, or {@code slave PORT}. A master answers {@code port=N} when it serves. Its commands:
 * {@code slaves N}: wait until N slaves are connected and the first of them has the whole log; the answer is {@code slaves=N}.
 * {@code threads COUNT K}: COUNT puts by K threads, each of which waits for its own put; {@code per_second=N}.
 * {@code pipelined COUNT K}: COUNT puts by one thread, at most K of them waiting; {@code per_second=N}.
 * {@code one COUNT}: COUNT puts, one at a time; {@code p50_us=N}. The commands of a slave:
 * {@code catch_up STORE END}: open that store and follow until its log reaches END; {@code per_second=N} in bytes. The time is counted
 * from the first bytes on, because until then the slave has waited a second or more until its first report was due.
 * {@code stay STORE}: follow until killed; {@code ready=1}.
 *
 * <p>Neither end dispatches, as with ours, because only the replication is measured.
 */
public final class HaBench {
    private static final SocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);
    private static final int MADE = 1024; // messages, put again and again
    private static final int SIZE = 1024; // bytes of a body
    private static final int REPORT_MS = 200; // longest time between two reports of a slave, and until its first; 5 s by default

    private HaBench() {
    }

    public static void main(String[] args) {
        try {
            if (args[0].equals("master")) {
                master(args[1], BrokerRole.valueOf(args[2]), Integer.parseInt(args[3]));
            } else {
                slave(args[1]);
            }
            Runtime.getRuntime().halt(0);
        } catch (Throwable e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1); // otherwise the store's threads would keep the process alive
        }
    }

    /** A store that dispatches nothing. */
    private static final class Undispatched extends DefaultMessageStore {
        Undispatched(MessageStoreConfig config) throws Exception {
            super(config, new BrokerStatsManager("bench", false), (topic, queueId, offset, tags, time, filter, properties) -> { },
                new BrokerConfig());
        }

        @Override
        public void doDispatch(DispatchRequest request) {
        }

        @Override
        public long dispatchBehindBytes() {
            return 0;
        }

        /** master: the address of a slave's master. It is set before the start, because otherwise the slave first waits 5 s. */
        void open(String master) throws Exception {
            if (!load()) {
                throw new IllegalStateException("the store does not load");
            }
            if (master != null) {
                updateHaMasterAddress(master);
            }
            start();
            Field field = DefaultMessageStore.class.getDeclaredField("reputMessageService");
            field.setAccessible(true);
            Object service = field.get(this);
            Method behind = service.getClass().getMethod("setReputFromOffset", long.class);
            behind.setAccessible(true);
            behind.invoke(service, Long.MAX_VALUE);
        }
    }

    private static Undispatched store(String dir, BrokerRole role, int haPort, String master) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(dir);
        config.setStorePathCommitLog(Path.of(dir, "commitlog").toString());
        config.setDiskMaxUsedSpaceRatio(95);
        config.setBrokerRole(role);
        config.setHaListenPort(haPort);
        if (role == BrokerRole.SLAVE) {
            config.setHaSendHeartbeatInterval(REPORT_MS);
        }
        Undispatched store = new Undispatched(config);
        store.open(master);
        return store;
    }

    private static void answer(String format, Object... values) {
        System.out.printf(format + "%n", values);
        System.out.flush();
    }

    private static BufferedReader lines() {
        return new BufferedReader(new InputStreamReader(System.in));
    }

    // --- Slave -------------------------------------------------------------------------------------------------------

    private static void slave(String port) throws Exception {
        BufferedReader lines = lines();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            Undispatched store = store(words[1], BrokerRole.SLAVE, 0, "127.0.0.1:" + port);
            long start = store.getMaxPhyOffset();
            if (words[0].equals("stay")) {
                answer("ready=1");
                continue;
            }
            long end = Long.parseLong(words[2]);
            long first = start;
            if (first >= end) {
                throw new IllegalStateException("the log had reached END before the first check");
            }
            while (first == start) {
                Thread.sleep(0, 100_000);
                first = store.getMaxPhyOffset();
            }
            long began = System.nanoTime();
            while (store.getMaxPhyOffset() < end) {
                Thread.sleep(0, 100_000);
            }
            long took = System.nanoTime() - began;
            answer("per_second=%.0f", (end - first) / (took / 1e9));
            store.shutdown();
        }
    }

    // --- Master ------------------------------------------------------------------------------------------------------

    private static void master(String dir, BrokerRole role, int port) throws Exception {
        Undispatched store = store(dir, role, port, null);
        answer("port=%d", port);
        MessageExtBrokerInner[] made = new MessageExtBrokerInner[MADE];
        for (int i = 0; i < MADE; i++) {
            made[i] = message(i);
        }
        ExecutorService threads = Executors.newCachedThreadPool(); // reused: the store has a buffer of 4 MiB for each thread
        BufferedReader lines = lines();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            int count = Integer.parseInt(words[1]);
            switch (words[0]) {
                case "slaves":
                    while (store.getHaService().getConnectionCount().get() < count
                        || store.getHaService().getPush2SlaveMaxOffset().get() < store.getMaxPhyOffset()) {
                        Thread.sleep(1);
                    }
                    answer("slaves=%d", count);
                    break;
                case "threads":
                    answer("per_second=%.0f", byThreads(store, threads, made, count, Integer.parseInt(words[2])));
                    break;
                case "pipelined":
                    answer("per_second=%.0f", pipelined(store, made, count, Integer.parseInt(words[2])));
                    break;
                case "one":
                    answer("p50_us=%.1f", one(store, made, count));
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
    }

    private static MessageExtBrokerInner message(int number) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic("Bench");
        message.setBody(new byte[SIZE]);
        message.setQueueId(number % 4);
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

    private static double byThreads(DefaultMessageStore store, ExecutorService threads, MessageExtBrokerInner[] made, int count,
        int waiters) throws Exception {
        AtomicInteger next = new AtomicInteger();
        List<Future<?>> running = new ArrayList<>();
        long began = System.nanoTime();
        for (int i = 0; i < waiters; i++) {
            int first = i * (MADE / waiters);
            running.add(threads.submit(() -> { // threads do not share messages
                for (int done = 0; next.getAndIncrement() < count; done++) {
                    need(store.putMessage(made[first + done % (MADE / waiters)]));
                }
            }));
        }
        for (Future<?> one : running) {
            one.get();
        }
        return count / ((System.nanoTime() - began) / 1e9);
    }

    private static double pipelined(DefaultMessageStore store, MessageExtBrokerInner[] made, int count, int inFlight)
        throws Exception {
        Semaphore room = new Semaphore(inFlight);
        AtomicLong bad = new AtomicLong();
        long began = System.nanoTime();
        for (int i = 0; i < count; i++) {
            room.acquire();
            store.asyncPutMessage(made[i % MADE]).thenAccept(result -> {
                if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
                    bad.incrementAndGet();
                }
                room.release();
            });
        }
        room.acquire(inFlight);
        long took = System.nanoTime() - began;
        if (bad.get() > 0) {
            throw new IllegalStateException(bad.get() + " puts were not PUT_OK");
        }
        return count / (took / 1e9);
    }

    private static double one(DefaultMessageStore store, MessageExtBrokerInner[] made, int count) {
        long[] took = new long[count];
        for (int i = 0; i < count; i++) {
            long began = System.nanoTime();
            need(store.putMessage(made[i % MADE]));
            took[i] = System.nanoTime() - began;
        }
        Arrays.sort(took);
        return took[count / 2] / 1e3;
    }
}
