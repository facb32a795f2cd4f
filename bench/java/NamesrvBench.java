import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.common.DataVersion;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.protocol.RequestCode;
import org.apache.rocketmq.common.protocol.body.RegisterBrokerBody;
import org.apache.rocketmq.common.protocol.header.namesrv.GetRouteInfoRequestHeader;
import org.apache.rocketmq.common.protocol.header.namesrv.RegisterBrokerRequestHeader;
import org.apache.rocketmq.common.protocol.header.namesrv.UnRegisterBrokerRequestHeader;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * RocketMQ's remoting client as brokers and clients of a name server. It reads commands, one per line, and answers each with a line.
 *
 * <p>{@code register NAMESRV BROKER TOPICS}: the broker leaves, then registers that many topics of its own; {@code ms=N}, of the
 * registration alone. Its body is made before.
 * {@code lookups NAMESRV MS K TOPICS BROKER...}: K threads ask for the routes of these brokers' topics, one after the other, for MS
 * milliseconds; {@code per_second=N}. The answers are not parsed.
 */
public final class NamesrvBench {
    private static final int TIMEOUT_MS = 30_000;

    private NamesrvBench() {
    }

    public static void main(String[] args) {
        try {
            run();
            Runtime.getRuntime().halt(0);
        } catch (Throwable e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1); // the client's threads would keep the process alive
        }
    }

    private static void run() throws Exception {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION)); // as brokers do
        ExecutorService threads = Executors.newCachedThreadPool();
        NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());
        client.start();
        answer("ready=1");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "register":
                    answer("ms=%.3f", register(client, words[1], words[2], Integer.parseInt(words[3])));
                    break;
                case "lookups":
                    List<String> topics = new ArrayList<>();
                    for (int i = 0; i < Integer.parseInt(words[4]); i++) {
                        for (int broker = 5; broker < words.length; broker++) {
                            topics.add(topic(words[broker], i));
                        }
                    }
                    lookups(client, threads, words[1], Long.parseLong(words[2]), Integer.parseInt(words[3]), topics);
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
    }

    private static void answer(String format, Object... values) {
        System.out.printf(format + "%n", values);
        System.out.flush();
    }

    private static String topic(String broker, int number) {
        return "Topic-of-" + broker + "-" + number;
    }

    private static RemotingCommand need(RemotingCommand answer) {
        if (answer.getCode() != 0) {
            throw new IllegalStateException("an answer of " + answer.getCode() + ": " + answer.getRemark());
        }
        return answer;
    }

    private static double register(NettyRemotingClient client, String nameServer, String broker, int count) throws Exception {
        UnRegisterBrokerRequestHeader leaving = new UnRegisterBrokerRequestHeader();
        leaving.setBrokerName(broker);
        leaving.setBrokerAddr(address(broker));
        leaving.setClusterName("BenchCluster");
        leaving.setBrokerId(0L);
        RemotingCommand leave = RemotingCommand.createRequestCommand(RequestCode.UNREGISTER_BROKER, leaving);
        need(client.invokeSync(nameServer, leave, TIMEOUT_MS));
        ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        for (int i = 0; i < count; i++) {
            topics.put(topic(broker, i), new TopicConfig(topic(broker, i), 8, 8, 6));
        }
        RegisterBrokerBody registered = new RegisterBrokerBody();
        registered.getTopicConfigSerializeWrapper().setTopicConfigTable(topics);
        registered.getTopicConfigSerializeWrapper().setDataVersion(new DataVersion());
        byte[] body = registered.encode(false);
        RegisterBrokerRequestHeader header = new RegisterBrokerRequestHeader();
        header.setBrokerName(broker);
        header.setBrokerAddr(address(broker));
        header.setClusterName("BenchCluster");
        header.setHaServerAddr(address(broker));
        header.setBrokerId(0L);
        header.setCompressed(false);
        header.setBodyCrc32(UtilAll.crc32(body));
        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.REGISTER_BROKER, header);
        request.setBody(body);
        long began = System.nanoTime();
        need(client.invokeSync(nameServer, request, TIMEOUT_MS));
        return (System.nanoTime() - began) / 1e6;
    }

    private static String address(String broker) {
        return broker + ".example:10911";
    }

    private static void lookups(NettyRemotingClient client, ExecutorService threads, String nameServer, long ms, int waiters,
        List<String> topics) throws Exception {
        List<Future<Long>> running = new ArrayList<>();
        long began = System.nanoTime();
        long end = began + ms * 1_000_000;
        for (int i = 0; i < waiters; i++) {
            int first = topics.size() / waiters * i;
            running.add(threads.submit(() -> {
                long count = 0;
                for (; System.nanoTime() < end; count++) {
                    GetRouteInfoRequestHeader header = new GetRouteInfoRequestHeader();
                    header.setTopic(topics.get((int) ((first + count) % topics.size())));
                    RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, header);
                    need(client.invokeSync(nameServer, request, TIMEOUT_MS));
                }
                return count;
            }));
        }
        long count = 0;
        for (Future<Long> one : running) {
            count += one.get();
        }
        answer("per_second=%.0f", count / ((System.nanoTime() - began) / 1e9));
    }
}
