package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A steady producer and a push consumer. Arguments: name server, topic, group, sends a second, most sends at once after a delay, bytes
 * of a body behind its number.
 *
 * <p>It prints {@code BEGUN number} before a send, and behind it {@code SENT number begun ended status broker queue offset}, without
 * the last three if it failed. It prints {@code GOT time number broker queue offset} for each message that the consumer gets. Times
 * are those of {@code System.nanoTime}. Of standard input, the line {@code pause} lets the consumer pull nothing, {@code resume} lets it
 * pull again, and {@code stop} ends the sends, not the answers; the end of the input ends the process.
 */
public final class Steady {
    private static final int PULL_THRESHOLD = 1000; // RocketMQ's own, messages that are not consumed, of a queue
    private static final int THREADS = 64; // more than there are queues: each may wait with what it has
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private static volatile boolean sends = true;
    private static volatile CountDownLatch paused = new CountDownLatch(0);

    private Steady() {
    }

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // 4.9.8's client prints warnings
        DefaultMQPushConsumer consumer = consumer(args[0], args[1], args[2]);
        DefaultMQProducer producer = new DefaultMQProducer(args[2] + "-producer");
        producer.setNamesrvAddr(args[0]);
        producer.setClientIP("127.0.0.1");
        producer.start();
        int rate = Integer.parseInt(args[3]);
        int catchUp = Integer.parseInt(args[4]);
        String padding = "x".repeat(Integer.parseInt(args[5]));
        Thread sender = new Thread(() -> send(producer, args[1], rate, catchUp, padding), "sender");
        sender.setDaemon(true);
        sender.start();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            switch (line) {
                case "pause":
                    paused = new CountDownLatch(1);
                    consumer.setPullThresholdForQueue(0); // what is in the listener is more than that
                    break;
                case "resume":
                    consumer.setPullThresholdForQueue(PULL_THRESHOLD);
                    paused.countDown();
                    break;
                case "stop":
                    sends = false;
                    sender.join();
                    print("STOPPED");
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        Runtime.getRuntime().halt(0); // a shutdown asks brokers, which may be gone
    }

    private static synchronized void print(String line) {
        OUT.println(line);
        OUT.flush();
    }

    private static void send(DefaultMQProducer producer, String topic, int rate, int catchUp, String padding) {
        long began = System.nanoTime();
        long due = 0;
        for (int number = 0; sends;) {
            long wanted = (System.nanoTime() - began) * rate / 1_000_000_000L;
            due = Math.max(due, wanted - catchUp);
            for (; sends && due < wanted; due++) {
                sendOne(producer, number, new Message(topic, (number + " " + padding).getBytes(StandardCharsets.UTF_8)));
                number++;
            }
            try {
                Thread.sleep(5);
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private static void sendOne(DefaultMQProducer producer, int number, Message message) {
        long begun = System.nanoTime();
        AtomicInteger ends = new AtomicInteger(); // a producer may tell twice that a send failed
        print("BEGUN " + number);
        try {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    if (ends.getAndIncrement() == 0) {
                        print("SENT " + number + " " + begun + " " + System.nanoTime() + " " + result.getSendStatus() + " "
                            + result.getMessageQueue().getBrokerName() + " " + result.getMessageQueue().getQueueId() + " "
                            + result.getQueueOffset());
                    }
                }

                @Override
                public void onException(Throwable e) {
                    if (ends.getAndIncrement() == 0) {
                        failed(number, begun, e);
                    }
                }
            });
        } catch (Exception e) {
            if (ends.getAndIncrement() == 0) {
                failed(number, begun, e);
            }
        }
    }

    private static void failed(int number, long begun, Throwable e) {
        print("SENT " + number + " " + begun + " " + System.nanoTime() + " " + e.getClass().getSimpleName());
    }

    private static DefaultMQPushConsumer consumer(String nameServer, String topic, String group) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setClientIP("127.0.0.1");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullThresholdForQueue(PULL_THRESHOLD);
        consumer.setConsumeMessageBatchMaxSize(1024); // all that one pull brings
        consumer.setConsumeThreadMin(THREADS);
        consumer.setConsumeThreadMax(THREADS);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            String queue = context.getMessageQueue().getBrokerName() + " " + context.getMessageQueue().getQueueId() + " ";
            long now = System.nanoTime();
            for (MessageExt each : messages) {
                String body = new String(each.getBody(), StandardCharsets.UTF_8);
                print("GOT " + now + " " + body.substring(0, body.indexOf(' ')) + " " + queue + each.getQueueOffset());
            }
            try {
                paused.await();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }
}
