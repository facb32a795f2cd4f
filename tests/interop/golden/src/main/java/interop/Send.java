package interop;

import java.io.PrintStream;
import java.util.EnumMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends messages and prints how their sends ended, as lines {@code STATUS count}. Arguments: name server, topic, count, largest
 * body in bytes, seed, threads. A send that fails counts as FAILED, and is not tried again.
 */
public final class Send {
    private Send() {
    }

    static void run(String[] args, PrintStream out) throws Exception {
        String topic = args[1];
        int count = Integer.parseInt(args[2]);
        int largest = Integer.parseInt(args[3]);
        long seed = Long.parseLong(args[4]);
        int producers = Integer.parseInt(args[5]);
        DefaultMQProducer producer = new DefaultMQProducer("InteropProducer");
        producer.setNamesrvAddr(args[0]);
        producer.setClientIP("127.0.0.1");
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(60_000);
        producer.start();
        connect(producer, topic);
        Map<SendStatus, Integer> statuses = new EnumMap<>(SendStatus.class);
        int[] failed = new int[1];
        ExecutorService threads = Executors.newFixedThreadPool(producers);
        for (int i = 0; i < count; i++) {
            int number = i;
            threads.execute(() -> {
                Random random = new Random(seed * 1_000_003 + number);
                byte[] body = new byte[1 + random.nextInt(largest)];
                random.nextBytes(body);
                Message message = new Message(topic, "Tag" + number % 3, "key-" + number, body);
                try {
                    SendStatus status = producer.send(message).getSendStatus();
                    synchronized (statuses) {
                        statuses.merge(status, 1, Integer::sum);
                    }
                } catch (Exception e) {
                    synchronized (statuses) {
                        failed[0]++;
                    }
                    System.err.println(number + ": " + e);
                }
            });
        }
        threads.shutdown();
        threads.awaitTermination(10, TimeUnit.MINUTES);
        producer.shutdown();
        statuses.forEach((status, n) -> out.println(status + " " + n));
        if (failed[0] > 0) {
            out.println("FAILED " + failed[0]);
        }
    }

    /**
     * Connects to each broker before the threads send. NettyRemotingClient.createChannel closes, before 4.6, a connection that
     * another thread has made in the meantime, and what that thread has sent fails.
     */
    private static void connect(DefaultMQProducer producer, String topic) {
        Set<String> brokers = new HashSet<>();
        for (String known : new String[] {topic, "TBW102"}) { // the broker makes a new topic with the queues of TBW102
            try {
                for (MessageQueue queue : producer.fetchPublishMessageQueues(known)) {
                    if (brokers.add(queue.getBrokerName())) {
                        producer.maxOffset(queue);
                    }
                }
            } catch (MQClientException e) {
                System.err.println(known + ": " + e);
            }
        }
    }
}
