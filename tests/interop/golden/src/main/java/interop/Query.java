package interop;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Asks a broker's index, and prints one line a question: topic, key, the commit-log offsets of the answer with commas between them,
 * in its order. Arguments: name server, how many messages at most, a file of questions: a line each, topic, tab and key, in UTF-8.
 */
public final class Query {
    private static final int NO_MESSAGE = 208; // of the client's ResponseCode, whose package is another from 5.0 on

    private Query() {
    }

    static void run(String[] args, PrintStream out) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(20_000);
        admin.setNamesrvAddr(args[0]);
        admin.setClientIP("127.0.0.1");
        admin.start();
        for (String line : Files.readAllLines(Path.of(args[2]), StandardCharsets.UTF_8)) {
            String[] asked = line.split("\t");
            List<String> offsets = new ArrayList<>();
            try {
                int max = Integer.parseInt(args[1]);
                for (MessageExt message : admin.queryMessage(asked[0], asked[1], max, 0, Long.MAX_VALUE).getMessageList()) {
                    offsets.add(Long.toString(message.getCommitLogOffset()));
                }
            } catch (MQClientException e) {
                if (e.getResponseCode() != NO_MESSAGE) { // the empty answer, which the client makes an exception
                    throw e;
                }
            }
            out.println(String.join("\t", asked[0], asked[1], String.join(",", offsets)));
        }
        admin.shutdown();
    }
}
