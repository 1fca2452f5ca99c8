// SPDX-License-Identifier: MIT
import io.lettuce.core.ClientOptions;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.ArrayOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** The session with Lettuce: one connection for all, as it is meant. */
final class LettuceSession {
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    private record Command(String name) implements ProtocolKeyword {
        @Override
        public byte[] getBytes() {
            return name.getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public String toString() {
            return name;
        }
    }

    private record Shared(RedisClient client, StatefulRedisConnection<String, String> connection)
        implements Session.Client {
        private RedisFuture<List<Object>> send(String[] words) {
            CommandArgs<String, String> rest = new CommandArgs<>(StringCodec.UTF8);
            for (int i = 1; i < words.length; i++) {
                rest.add(words[i]);
            }
            return connection.async().dispatch(
                new Command(words[0]), new ArrayOutput<>(StringCodec.UTF8), rest);
        }

        private static List<Object> receive(RedisFuture<List<Object>> reply) {
            return LettuceFutures.awaitOrCancel(reply, PATIENCE.toMillis(), TimeUnit.MILLISECONDS);
        }

        /** What is no array comes as an array of one. */
        @Override
        public Object ask(String... words) {
            List<Object> reply = receive(send(words));
            return reply.size() == 1 ? reply.get(0) : reply;
        }

        @Override
        public List<Object> askAll(List<String[]> commands) {
            List<RedisFuture<List<Object>>> futures = new ArrayList<>();
            connection.setAutoFlushCommands(false);
            commands.forEach(words -> futures.add(send(words)));
            connection.flushCommands();
            connection.setAutoFlushCommands(true);
            List<Object> replies = new ArrayList<>();
            futures.forEach(future -> replies.add(receive(future)));
            return replies;
        }

        @Override
        public void subscribe(String channel) {
            try (StatefulRedisPubSubConnection<String, String> listener = client.connectPubSub()) {
                listener.sync().subscribe(channel);
            }
        }

        @Override
        public void close() {
            connection.close();
            client.shutdown(Duration.ZERO, Duration.ofSeconds(5));
        }
    }

    private LettuceSession() {}

    private static Session.Client connect(int port, String secret, int protocol) {
        RedisURI.Builder uri = RedisURI.builder().withHost("127.0.0.1").withPort(port)
            .withTimeout(PATIENCE);
        if (!secret.isEmpty()) {
            uri.withPassword(secret.toCharArray());
        }
        RedisClient client = RedisClient.create(uri.build());
        client.setOptions(ClientOptions.builder()
            .protocolVersion(protocol == 3 ? ProtocolVersion.RESP3 : ProtocolVersion.RESP2)
            .build());
        try {
            return new Shared(client, client.connect());
        } catch (RuntimeException fault) {
            client.shutdown(Duration.ZERO, Duration.ofSeconds(5));
            throw fault;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Session.run(LettuceSession::connect, arguments);
    }
}
