package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Our clients in one process, for its start costs more than what it does. Each line of standard input is a command (see {@code run}) and
 * its arguments, with tabs between; each gets its lines, then one line {@code END}, or {@code END} and what went wrong.
 */
public final class Client {
    private Client() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // 4.9.8's client prints warnings
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t");
            String end = "END";
            try {
                run(words[0], Arrays.copyOfRange(words, 1, words.length), out);
            } catch (Exception e) {
                e.printStackTrace();
                end = "END " + e.toString().replaceAll("\\s+", " ");
            }
            out.println(end);
            out.flush();
        }
        System.exit(0);
    }

    private static void run(String command, String[] args, PrintStream out) throws Exception {
        switch (command) {
            case "send":
                Send.run(args, out);
                break;
            case "read":
                ReadAll.run(args, out);
                break;
            case "ways":
                Ways.run(args, out);
                break;
            case "described":
                Ways.describe(args, out);
                break;
            case "query":
                Query.run(args, out);
                break;
            case "admin":
                Admin.run(args, out);
                break;
            case "newer":
                Newer.run(args, out);
                break;
            case "delayed":
                Special.delayed(args, out);
                break;
            case "transactions":
                Special.transactions(args, out);
                break;
            case "consume":
                Live.consume(args, out);
                break;
            case "consumed":
                Live.consumed(args, out);
                break;
            case "queues":
                Live.queues(args, out);
                break;
            case "held":
                Live.held(args, out);
                break;
            case "release":
                Live.release(args);
                break;
            case "leave":
                Live.leave(args);
                break;
            default:
                throw new IllegalArgumentException(command);
        }
    }
}
