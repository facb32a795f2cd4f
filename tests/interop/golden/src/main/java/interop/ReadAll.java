package interop;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Pulls every message of some topics, and prints one line for each: topic, queue id, queue offset, commit-log offset, CRC-32 of its
 * body, tags, keys, in UTF-8. Arguments: name server, topics.
 */
public final class ReadAll {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private ReadAll() {
    }

    public static void main(String[] args) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("InteropReader");
        consumer.setNamesrvAddr(args[0]);
        consumer.setClientIP("127.0.0.1");
        consumer.start();
        for (int i = 1; i < args.length; i++) {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(args[i])) {
                long next = consumer.minOffset(queue);
                long max = consumer.maxOffset(queue);
                while (next < max) {
                    PullResult pulled = consumer.pull(queue, "*", next, 32);
                    if (pulled.getPullStatus() == PullStatus.FOUND) {
                        pulled.getMsgFoundList().forEach(ReadAll::print);
                    }
                    if (pulled.getNextBeginOffset() <= next) {
                        throw new IllegalStateException("no progress on " + queue + " at " + next + ": " + pulled);
                    }
                    next = pulled.getNextBeginOffset();
                }
            }
        }
        OUT.flush();
        System.exit(0);
    }

    private static void print(MessageExt message) {
        CRC32 crc = new CRC32();
        crc.update(message.getBody());
        OUT.println(String.join("\t", message.getTopic(), Integer.toString(message.getQueueId()),
            Long.toString(message.getQueueOffset()), Long.toString(message.getCommitLogOffset()), Long.toString(crc.getValue()),
            String.valueOf(message.getTags()), String.valueOf(message.getKeys())));
    }
}
