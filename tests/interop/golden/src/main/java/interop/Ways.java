package interop;

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends messages in every way that a producer has, and reads them again; each message as one line of what its producer or its
 * consumer knows of it: keys, tags, flag, CRC-32 of the body, a property. `ways` takes the name servers, a topic, how many of each
 * way; a line has at its front how the send ended, with the offset of the message in its queue. `described` takes the name
 * servers, a topic, and an expression of tags, all if there is none.
 */
public final class Ways {
    private Ways() {
    }

    static void run(String[] args, PrintStream out) throws Exception {
        String topic = args[1];
        int count = Integer.parseInt(args[2]);
        DefaultMQProducer producer = new DefaultMQProducer("InteropWays");
        producer.setNamesrvAddr(args[0]);
        producer.setClientIP("127.0.0.1");
        producer.setSendMsgTimeout(60_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        for (int i = 0; i < count; i++) {
            Message message = message(topic, "sync", i);
            out.println(producer.send(message).getSendStatus() + "\t" + line(message));
        }
        ConcurrentHashMap<Integer, String> ended = new ConcurrentHashMap<>();
        CountDownLatch left = new CountDownLatch(count);
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            messages.add(message(topic, "async", i));
            producer.send(messages.get(i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    ended.put(number, result.getSendStatus().toString());
                    left.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    ended.put(number, error.toString().replaceAll("\\s+", " "));
                    left.countDown();
                }
            });
        }
        left.await(2, TimeUnit.MINUTES);
        for (int i = 0; i < count; i++) {
            out.println(ended.get(i) + "\t" + line(messages.get(i)));
        }
        for (int i = 0; i < count; i++) {
            Message message = message(topic, "oneway", i);
            producer.sendOneway(message);
            out.println("SENT\t" + line(message));
        }
        MessageQueue queue = producer.fetchPublishMessageQueues(topic).get(0);
        for (int i = 0; i < count; i++) {
            Message message = message(topic, "ordered", i);
            out.println(producer.send(message, queue).getSendStatus() + "\t" + line(message));
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            batch.add(message(topic, "batch", i));
        }
        SendResult result = producer.send(batch);
        for (Message message : batch) {
            out.println(result.getSendStatus() + "\t" + line(message));
        }
        producer.shutdown();
    }

    static Message message(String topic, String way, int number) {
        Random random = new Random(number);
        byte[] body = new byte[1 + random.nextInt(number % 10 == 9 && !way.equals("batch") ? 20_000 : 2_000)];
        for (int i = 0; i < body.length; i++) {
            body[i] = (byte) ('a' + random.nextInt(3)); // beyond 4 KiB the client compresses it
        }
        Message message = new Message(topic, "Tag" + number % 3, way + "-" + number, number, body, true);
        message.putUserProperty("way", way + " \u00fc");
        return message;
    }

    static void describe(String[] args, PrintStream out) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("InteropDescriber");
        consumer.setNamesrvAddr(args[0]);
        consumer.setClientIP("127.0.0.1");
        consumer.start();
        String expression = args.length > 2 ? args[2] : "*";
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(args[1])) {
            long next = consumer.minOffset(queue);
            long max = consumer.maxOffset(queue);
            while (next < max) {
                PullResult pulled = consumer.pull(queue, expression, next, 32);
                if (pulled.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : pulled.getMsgFoundList()) {
                        out.println(line(message));
                    }
                }
                if (pulled.getNextBeginOffset() <= next) {
                    throw new IllegalStateException("no progress on " + queue + " at " + next + ": " + pulled);
                }
                next = pulled.getNextBeginOffset();
            }
        }
        consumer.shutdown();
    }

    static String line(Message message) {
        CRC32 crc = new CRC32();
        crc.update(message.getBody());
        return String.join("\t", message.getKeys(), message.getTags(), Integer.toString(message.getFlag()),
            Integer.toString(message.getBody().length), Long.toString(crc.getValue()), message.getUserProperty("way"));
    }
}
