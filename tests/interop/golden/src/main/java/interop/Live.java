package interop;

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Consumers and producers that stay until they are told to leave. Each has a name, which is its instance name, so that a process
 * can hold several of one group.
 *
 * <p>{@code consume} takes the name servers, a name, a kind (push, failing, waiting, broadcast, ordered, lite), a group, a topic, an
 * expression of tags, and maxReconsumeTimes. {@code consumed} prints a line for each message so far: its place in the order of all
 * consumers of the process, reconsumeTimes, queue id, queue offset, the milliseconds since it was sent, and what Ways prints of it.
 * {@code queues} prints the ids of the queues of the topic that a push consumer has. A waiting consumer consumes no message, of those
 * that are in its listener neither, before {@code release}; {@code held} prints how many a push consumer has pulled and not consumed.
 * {@code leave} closes one, or all if no name is given.
 */
public final class Live {
    private static final Map<String, Live> LIVES = new ConcurrentHashMap<>();
    private static final AtomicInteger PLACES = new AtomicInteger();

    private final Collection<String> lines = new ConcurrentLinkedQueue<>();
    private Runnable close;
    private Supplier<Collection<MessageQueue>> queues = List::of;
    private Supplier<Long> held = () -> 0L;
    private final CountDownLatch released = new CountDownLatch(1);

    private Live() {
    }

    static void consume(String[] args, PrintStream out) throws Exception {
        Live live = new Live();
        String kind = args[2];
        live.close = kind.equals("lite") ? live.lite(args) : live.push(args, kind);
        LIVES.put(args[1], live);
    }

    /** Keeps what can be closed under a name. */
    static void keep(String name, Runnable close) {
        Live live = new Live();
        live.close = close;
        LIVES.put(name, live);
    }

    static void consumed(String[] args, PrintStream out) {
        LIVES.get(args[1]).lines.forEach(out::println);
    }

    static void queues(String[] args, PrintStream out) {
        TreeSet<Integer> ids = new TreeSet<>();
        for (MessageQueue queue : LIVES.get(args[1]).queues.get()) {
            if (!queue.getTopic().startsWith("%RETRY%")) {
                ids.add(queue.getQueueId());
            }
        }
        ids.forEach(out::println);
    }

    static void held(String[] args, PrintStream out) {
        out.println(LIVES.get(args[1]).held.get());
    }

    static void release(String[] args) {
        LIVES.get(args[1]).released.countDown();
    }

    static void leave(String[] args) {
        for (String name : args.length > 1 ? List.of(args[1]) : new ArrayList<>(LIVES.keySet())) {
            LIVES.remove(name).close.run();
        }
    }

    void note(MessageExt message) {
        lines.add(String.join("\t", Integer.toString(PLACES.incrementAndGet()), Integer.toString(message.getReconsumeTimes()),
            Integer.toString(message.getQueueId()), Long.toString(message.getQueueOffset()),
            Long.toString(System.currentTimeMillis() - message.getBornTimestamp()), Ways.line(message)));
    }

    private Runnable push(String[] args, String kind) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[3]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(args[1]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setMaxReconsumeTimes(Integer.parseInt(args[6]));
        consumer.subscribe(args[4], args[5]);
        if (kind.equals("broadcast")) { // the package of MessageModel is another one in 5.x
            consumer.setMessageModel(consumer.getMessageModel().valueOf("BROADCASTING"));
        }
        if (kind.equals("ordered")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(this::note);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(this::note);
                if (kind.equals("waiting")) {
                    await();
                }
                context.setDelayLevelWhenNextConsume(1); // again after a second
                return kind.equals("failing") && messages.stream().anyMatch(Live::fails)
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        queues = () -> consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet();
        held = () -> consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().values().stream()
            .mapToLong(each -> each.getMsgCount().get()).sum();
        return consumer::shutdown;
    }

    private void await() {
        try {
            released.await();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** A failing consumer never takes a message whose number ends with 9, and takes one that ends with 4 the third time. */
    private static boolean fails(MessageExt message) {
        int digit = message.getFlag() % 10;
        return digit == 9 || digit == 4 && message.getReconsumeTimes() < 2;
    }

    /** A lite pull consumer, which 4.5.2 does not have: so it is named at run time only. */
    private Runnable lite(String[] args) throws Exception {
        return (Runnable) Class.forName("interop.Lite").getDeclaredMethod("start", String[].class, Live.class).invoke(null, args, this);
    }
}
