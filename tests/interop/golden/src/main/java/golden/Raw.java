package golden;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Requests with any header fields, through RocketMQ's own remoting client: RocketMQ still encodes every byte. */
final class Raw {
    private static final int TIMEOUT_MS = 30_000;

    private final NettyRemotingClient client;

    Raw() {
        client = new NettyRemotingClient(new NettyClientConfig());
        client.start();
    }

    RemotingCommand ask(String address, int code, Map<String, String> fields, byte[] body) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        fields.forEach(request::addExtField);
        request.setBody(body);
        RemotingCommand answer = client.invokeSync(address, request, TIMEOUT_MS);
        System.out.println(code + " " + fields + " -> " + answer.getCode() + " " + answer.getRemark() + " " + answer.getExtFields());
        return answer;
    }

    /** UPDATE_BROKER_CONFIG: settings while the broker runs. */
    void configure(String address, String settings) throws Exception {
        must(ask(address, 25, Map.of(), settings.getBytes(StandardCharsets.UTF_8)));
    }

    static RemotingCommand must(RemotingCommand answer) {
        if (answer.getCode() != 0) {
            throw new IllegalStateException("refused: " + answer);
        }
        return answer;
    }

    void shutdown() {
        client.shutdown();
    }
}
