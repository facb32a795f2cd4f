import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.LongStream;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own producers and consumers, one of each for every broker, in one process. It reads commands, one per line, and answers
 * each with a line. All loads last for MS milliseconds; messages have 1 KiB.
 *
 * <p>{@code use NAME NAMESRV}: make the clients of the broker that is called NAME from now on, and its topics; {@code ready=1}.
 * {@code threads NAME MS K}: K threads send, each waits for its answer; {@code per_second=N p50_us=N}.
 * {@code batches NAME MS K}: the same with batches of 32 messages; {@code per_second=N} in messages.
 * {@code window NAME MS K}: one thread sends asynchronously, at most K messages wait for an answer; {@code per_second=N}.
 * {@code fill NAME BYTES}: send that much to the topic that {@code pull} reads; {@code messages=N}.
 * {@code pull NAME MS}: one thread for each queue reads that topic, again and again; {@code per_second=N} in bytes of bodies.
 * {@code poll NAME MS}: one thread sends a message now and then, another holds a pull; {@code p50_us=N p99_us=N} from before the
 * send until the consumer has the message.
 */
public final class BrokerBench {
    private static final int SIZE = 1024; // bytes of a body
    private static final int BATCH = 32;
    private static final int QUEUES = 4;
    private static final int TIMEOUT_MS = 30_000;
    private static final String SENT = "Bench";
    private static final String KEPT = "Backlog";
    private static final String POLLED = "Polled";

    private final DefaultMQProducer producer;
    private final DefaultMQPullConsumer consumer;
    private final ExecutorService threads;

    private BrokerBench(String name, String nameServer, ExecutorService threads) throws Exception {
        this.threads = threads;
        producer = new DefaultMQProducer("bench-producers");
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(name + "-producer");
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setDefaultTopicQueueNums(QUEUES);
        producer.start();
        consumer = new DefaultMQPullConsumer("bench-consumers");
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(name + "-consumer");
        consumer.start();
        for (String topic : new String[] {SENT, KEPT, POLLED}) { // a topic is made by its first message
            need(producer.send(message(topic)));
        }
    }

    public static void main(String[] args) {
        try {
            run();
            Runtime.getRuntime().halt(0);
        } catch (Throwable e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1); // the clients' threads would keep the process alive
        }
    }

    private static void run() throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool();
        Map<String, BrokerBench> sides = new HashMap<>();
        answer("ready=1");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("use")) {
                sides.put(words[1], new BrokerBench(words[1], words[2], threads));
                answer("ready=1");
                continue;
            }
            BrokerBench side = sides.get(words[1]);
            long amount = Long.parseLong(words[2]);
            int waiters = words.length > 3 ? Integer.parseInt(words[3]) : 0;
            switch (words[0]) {
                case "threads":
                    side.byThreads(amount, waiters, () -> need(side.producer.send(message(SENT))), 1);
                    break;
                case "batches":
                    side.byThreads(amount, waiters, () -> need(side.producer.send(batch(SENT))), BATCH);
                    break;
                case "window":
                    side.window(amount, waiters);
                    break;
                case "fill":
                    side.fill(amount);
                    break;
                case "pull":
                    side.pull(amount);
                    break;
                case "poll":
                    side.poll(amount);
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
    }

    private static void answer(String format, Object... values) {
        System.out.printf(format + "%n", values);
        System.out.flush();
    }

    private static Message message(String topic) {
        return new Message(topic, "TagA", new byte[SIZE]);
    }

    private static List<Message> batch(String topic) {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < BATCH; i++) {
            messages.add(message(topic));
        }
        return messages;
    }

    private static Void need(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("a send ended with " + result.getSendStatus());
        }
        return null;
    }

    // --- Sending -----------------------------------------------------------------------------------------------------

    private void byThreads(long ms, int waiters, Callable<Void> send, int messages) throws Exception {
        List<Future<long[]>> running = new ArrayList<>();
        long began = System.nanoTime();
        long end = began + ms * 1_000_000;
        for (int i = 0; i < waiters; i++) {
            running.add(threads.submit(() -> {
                LongStream.Builder took = LongStream.builder();
                for (long now = System.nanoTime(); now < end; ) {
                    send.call();
                    long then = System.nanoTime();
                    took.add(then - now);
                    now = then;
                }
                return took.build().toArray();
            }));
        }
        LongStream all = LongStream.empty();
        for (Future<long[]> one : running) {
            all = LongStream.concat(all, Arrays.stream(one.get()));
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        long[] took = all.sorted().toArray();
        answer("per_second=%.0f p50_us=%.1f", took.length * messages / seconds, took[took.length / 2] / 1e3);
    }

    private void window(long ms, int waiting) throws Exception {
        Semaphore room = new Semaphore(waiting);
        AtomicLong bad = new AtomicLong();
        SendCallback ended = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    bad.incrementAndGet();
                }
                room.release();
            }

            @Override
            public void onException(Throwable e) {
                bad.incrementAndGet();
                room.release();
            }
        };
        long began = System.nanoTime();
        long end = began + ms * 1_000_000;
        long count = 0;
        for (; System.nanoTime() < end; count++) {
            room.acquire();
            producer.send(message(SENT), ended);
        }
        room.acquire(waiting);
        double seconds = (System.nanoTime() - began) / 1e9;
        if (bad.get() > 0) {
            throw new IllegalStateException(bad.get() + " of " + count + " sends failed");
        }
        answer("per_second=%.0f", count / seconds);
    }

    // --- Pulling -----------------------------------------------------------------------------------------------------

    private void fill(long bytes) throws Exception {
        long count = bytes / SIZE / BATCH;
        for (long i = 0; i < count; i++) {
            need(producer.send(batch(KEPT)));
        }
        answer("messages=%d", count * BATCH);
    }

    private void pull(long ms) throws Exception {
        List<Future<Long>> running = new ArrayList<>();
        long began = System.nanoTime();
        long end = began + ms * 1_000_000;
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(KEPT)) {
            running.add(threads.submit(() -> pull(queue, end)));
        }
        long bytes = 0;
        for (Future<Long> one : running) {
            bytes += one.get();
        }
        answer("per_second=%.0f", bytes / ((System.nanoTime() - began) / 1e9));
    }

    private long pull(MessageQueue queue, long end) throws Exception {
        long bytes = 0;
        for (long offset = 0; System.nanoTime() < end; ) {
            PullResult found = consumer.pull(queue, "*", offset, BATCH);
            offset = found.getPullStatus() == PullStatus.FOUND ? found.getNextBeginOffset() : 0; // at its end, once more
            if (found.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : found.getMsgFoundList()) {
                    bytes += message.getBody().length;
                }
            }
        }
        return bytes;
    }

    private void poll(long ms) throws Exception {
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(POLLED).iterator().next();
        long first = consumer.maxOffset(queue);
        Random random = new Random(1);
        long end = System.nanoTime() + ms * 1_000_000;
        Future<long[]> held = threads.submit(() -> receive(queue, first, end));
        while (System.nanoTime() < end) {
            Thread.sleep(2 + random.nextInt(5)); // more than a delivery takes, and in step with nothing
            byte[] body = new byte[SIZE];
            ByteBuffer.wrap(body).putLong(System.nanoTime());
            need(producer.send(new Message(POLLED, "TagA", body), queue));
        }
        need(producer.send(message(POLLED), queue)); // its time is 0: the last
        long[] took = held.get();
        Arrays.sort(took);
        answer("p50_us=%.1f p99_us=%.1f", took[took.length / 2] / 1e3, took[took.length * 99 / 100] / 1e3);
    }

    /** Returns: how long each message took, until one comes without a time. */
    private long[] receive(MessageQueue queue, long first, long end) throws Exception {
        LongStream.Builder took = LongStream.builder();
        for (long offset = first; ; ) {
            PullResult found = consumer.pullBlockIfNotFound(queue, "*", offset, BATCH);
            long now = System.nanoTime();
            offset = found.getNextBeginOffset();
            if (found.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : found.getMsgFoundList()) {
                    long sent = ByteBuffer.wrap(message.getBody()).getLong();
                    if (sent == 0) {
                        return took.build().toArray();
                    }
                    took.add(now - sent);
                }
            } else if (now > end + TIMEOUT_MS * 1_000_000L) {
                throw new IllegalStateException("the last message has not come");
            }
        }
    }
}
