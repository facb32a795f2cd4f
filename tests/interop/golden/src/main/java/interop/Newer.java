package interop;

import java.io.PrintStream;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Asks what clients before 5.3.2 do not have, so all of it is called by its name. Arguments: name server, the question, its own:
 *
 * <pre>
 * bounds    topic, broker name, queue id, times in ms    a line each: the lower bound, tab, the upper bound
 * progress  the broker's address, group, topics          a line each: topic, tab, the sum of the offsets of its queues
 * </pre>
 */
public final class Newer {
    private Newer() {
    }

    static void run(String[] args, PrintStream out) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(20_000);
        admin.setNamesrvAddr(args[0]);
        admin.setClientIP("127.0.0.1");
        admin.start();
        try {
            String[] words = Arrays.copyOfRange(args, 2, args.length);
            if (args[1].equals("bounds")) {
                bounds(admin, words, out);
            } else {
                progress(admin, words, out);
            }
        } finally {
            admin.shutdown();
        }
    }

    private static void bounds(DefaultMQAdminExt admin, String[] words, PrintStream out) throws Exception {
        MessageQueue queue = new MessageQueue(words[0], words[1], Integer.parseInt(words[2]));
        for (String time : Arrays.copyOfRange(words, 3, words.length)) {
            Object[] found = new Object[2];
            String[] names = {"searchLowerBoundaryOffset", "searchUpperBoundaryOffset"};
            for (int i = 0; i < names.length; i++) {
                found[i] = DefaultMQAdminExt.class.getMethod(names[i], MessageQueue.class, long.class)
                    .invoke(admin, queue, Long.parseLong(time));
            }
            out.println(found[0] + "\t" + found[1]);
        }
    }

    private static void progress(DefaultMQAdminExt admin, String[] words, PrintStream out) throws Exception {
        Object inner = DefaultMQAdminExt.class.getMethod("getDefaultMQAdminExtImpl").invoke(admin);
        Object instance = inner.getClass().getMethod("getMqClientInstance").invoke(inner);
        Object api = instance.getClass().getMethod("getMQClientAPIImpl").invoke(instance);
        Object stats = MQClientAPIImpl.class
            .getMethod("getConsumeStats", String.class, String.class, java.util.List.class, long.class)
            .invoke(api, words[0], words[1], Arrays.asList(words).subList(2, words.length), 20_000L);
        Map<?, ?> table = (Map<?, ?>) stats.getClass().getMethod("getOffsetTable").invoke(stats);
        Map<String, Long> sums = new TreeMap<>();
        for (Map.Entry<?, ?> entry : table.entrySet()) {
            Object offset = entry.getValue().getClass().getMethod("getConsumerOffset").invoke(entry.getValue());
            sums.merge(((MessageQueue) entry.getKey()).getTopic(), (Long) offset, Long::sum);
        }
        sums.forEach((topic, sum) -> out.println(topic + "\t" + sum));
    }
}
