package golden;

import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Reads two topics as two groups, so that offsets, retries and one dead-letter topic come to be. Argument: name server.
 *
 * <p>GoldenReaders asks for some messages again (property "retry": once, or always, which ends in the dead-letter topic).
 */
public final class Consume {
    private static final long DEADLINE_MS = 100_000;
    private static final long IDLE_MS = 4_000;

    public static void main(String[] args) throws Exception {
        AtomicInteger owed = new AtomicInteger();
        AtomicInteger consumed = new AtomicInteger();
        DefaultMQPushConsumer readers = consumer("GoldenReaders", args[0], (messages, context) -> {
            MessageExt message = messages.get(0);
            consumed.incrementAndGet();
            String retry = message.getProperty("retry");
            if (retry == null) {
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            if (message.getReconsumeTimes() == 0) {
                owed.incrementAndGet();
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            owed.decrementAndGet();
            return retry.equals("once") ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        readers.subscribe("GoldenOrders", "*");
        DefaultMQPushConsumer tagged = consumer("GoldenTagged", args[0], (messages, context) -> {
            consumed.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        tagged.subscribe("GoldenEvents", "TagA || 标签");
        readers.start();
        tagged.start();
        awaitQuiet(consumed, owed);
        readers.shutdown();
        tagged.shutdown();
        System.out.println("consumed " + consumed.get() + ", still owed " + owed.get());
        System.exit(owed.get() == 0 ? 0 : 1);
    }

    private static DefaultMQPushConsumer consumer(String group, String namesrv, MessageListenerConcurrently listener) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(1);
        consumer.registerMessageListener(listener);
        return consumer;
    }

    private static void awaitQuiet(AtomicInteger consumed, AtomicInteger owed) throws InterruptedException {
        long end = System.currentTimeMillis() + DEADLINE_MS;
        int last = -1;
        while (System.currentTimeMillis() < end) {
            Thread.sleep(IDLE_MS);
            if (consumed.get() == last && last > 0 && owed.get() == 0) {
                return;
            }
            last = consumed.get();
        }
    }
}
