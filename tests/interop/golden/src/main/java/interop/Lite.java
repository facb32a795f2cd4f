package interop;

import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** A lite pull consumer that polls until it is closed. Releases before 4.6 have none, so only Live loads this class, by its name. */
final class Lite {
    private Lite() {
    }

    static Runnable start(String[] args, Live live) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(args[3]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(args[1]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[4], args[5]);
        consumer.start();
        AtomicBoolean closed = new AtomicBoolean(); // no interrupt: a poll swallows it
        Thread poller = new Thread(() -> {
            while (!closed.get()) {
                consumer.poll(200).forEach(live::note);
            }
        });
        poller.setDaemon(true);
        poller.start();
        return () -> {
            closed.set(true);
            try {
                poller.join(60_000);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            consumer.commitSync(); // the messages that were polled last are committed by the next poll, which never came
            consumer.shutdown();
        };
    }
}
