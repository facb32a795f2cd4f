import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * RocketMQ's producer and push consumer, for the demo. Arguments: name server, topic, messages to send, messages to await, seconds
 * to wait for them. Prints a line for each message that is sent, and for each that is consumed: {@code sent} or {@code consumed},
 * its number, its body in base64, its tags and its keys, with tabs between.
 */
public final class DemoClients {
    private DemoClients() {
    }

    public static void main(String[] args) throws Exception {
        int toSend = Integer.parseInt(args[2]);
        CountDownLatch awaited = new CountDownLatch(Integer.parseInt(args[3]));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("demo-java");
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> {
                print("consumed", message);
                awaited.countDown();
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("demo-java");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        Random random = new Random(1);
        for (int i = 0; i < toSend; i++) {
            byte[] body = new byte[1 + random.nextInt(1000)];
            random.nextBytes(body);
            Message message = new Message(args[1], "java", "key-" + i, body);
            message.putUserProperty("number", "java-" + i);
            if (producer.send(message).getSendStatus() == SendStatus.SEND_OK) {
                print("sent", message);
            }
        }
        awaited.await(Long.parseLong(args[4]), TimeUnit.SECONDS);
        producer.shutdown();
        consumer.shutdown();
        System.exit(0);
    }

    private static synchronized void print(String what, Message message) {
        String body = Base64.getEncoder().encodeToString(message.getBody());
        String line = String.join("\t", what, String.valueOf(message.getUserProperty("number")), body,
            String.valueOf(message.getTags()), String.valueOf(message.getKeys()));
        byte[] bytes = (line + "\n").getBytes(StandardCharsets.UTF_8);
        System.out.write(bytes, 0, bytes.length);
        System.out.flush();
    }
}
