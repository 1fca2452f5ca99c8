// SPDX-License-Identifier: MIT
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.util.KeyValue;

/** The session with jedis. */
final class JedisSession {
    private record Pooled(RedisClient redis) implements Session.Client {
        private static ProtocolCommand command(String[] words) {
            return () -> words[0].getBytes(StandardCharsets.UTF_8);
        }

        private static String[] rest(String[] words) {
            return List.of(words).subList(1, words.length).toArray(new String[0]);
        }

        private static Object plain(Object reply) {
            if (reply instanceof byte[] bytes) {
                return new String(bytes, StandardCharsets.UTF_8);
            }
            if (!(reply instanceof List<?> parts)) {
                return reply;
            }
            List<Object> flat = new ArrayList<>();
            for (Object part : parts) {
                if (part instanceof KeyValue<?, ?> pair) {
                    flat.add(plain(pair.getKey()));
                    flat.add(plain(pair.getValue()));
                } else {
                    flat.add(plain(part));
                }
            }
            return flat;
        }

        @Override
        public Object ask(String... words) {
            return plain(redis.sendCommand(command(words), rest(words)));
        }

        @Override
        public List<Object> askAll(List<String[]> commands) {
            List<Response<Object>> responses = new ArrayList<>();
            try (Pipeline pipeline = redis.pipelined()) {
                for (String[] words : commands) {
                    responses.add(pipeline.sendCommand(command(words), rest(words)));
                }
            }
            List<Object> replies = new ArrayList<>();
            responses.forEach(response -> replies.add(plain(response.get())));
            return replies;
        }

        @Override
        public void subscribe(String channel) {
            redis.subscribe(new JedisPubSub() {}, channel);
        }

        @Override
        public void close() {
            redis.close();
        }
    }

    private JedisSession() {}

    private static Session.Client connect(int port, String secret, int protocol) {
        return new Pooled(RedisClient.builder()
            .hostAndPort(new HostAndPort("127.0.0.1", port))
            .clientConfig(DefaultJedisClientConfig.builder()
                .protocol(protocol == 3 ? RedisProtocol.RESP3 : RedisProtocol.RESP2)
                .password(secret.isEmpty() ? null : secret)
                .build())
            .build());
    }

    public static void main(String[] arguments) throws Exception {
        Session.run(JedisSession::connect, arguments);
    }
}
