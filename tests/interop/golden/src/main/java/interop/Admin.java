package interop;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs a command of mqadmin, and prints what it prints. Arguments: name servers, the command, its options. It reports an error as a
 * stack trace, which comes among the lines.
 */
public final class Admin {
    private Admin() {
    }

    static void run(String[] args, PrintStream out) throws Exception {
        List<String> words = new ArrayList<>(Arrays.asList(args).subList(1, args.length));
        words.addAll(List.of("-n", args[0]));
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream before = System.out;
        PrintStream errors = System.err;
        PrintStream caught = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(caught);
        System.setErr(caught);
        try {
            MQAdminStartup.main0(words.toArray(new String[0]), null);
        } finally {
            System.setOut(before);
            System.setErr(errors);
        }
        for (String line : printed.toString(StandardCharsets.UTF_8).split("\n")) {
            if (!line.startsWith("END")) {
                out.println(line);
            }
        }
    }
}
