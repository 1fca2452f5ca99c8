// SPDX-License-Identifier: MIT
import com.google.gson.Gson;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * What is asked of a server through any client, over RESP2 and RESP3; prints what was answered as one
 * line of JSON each. Between the two halves the server is restarted: "restart" asks for that, and a
 * byte on the standard input says that it is done.
 */
final class Session {
    /** A client library. Replies are texts, numbers, and lists of them; maps are flat lists. */
    interface Client extends AutoCloseable {
        Object ask(String... words);

        List<Object> askAll(List<String[]> commands);

        void subscribe(String channel);

        @Override
        void close();
    }

    interface Library {
        /** An empty secret means none. */
        Client connect(int port, String secret, int protocol);
    }

    private static final String HOUR = "3600";
    private static final int PIPELINE = 1000;
    private static final long PATIENCE_MS = 20_000;

    private Session() {}

    private static String faultOf(Runnable ask) {
        try {
            ask.run();
            return "";
        } catch (RuntimeException fault) {
            Throwable cause = fault;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            return String.valueOf(cause.getMessage());
        }
    }

    private static Map<Object, Object> fields(Object reply) {
        Map<Object, Object> fields = new HashMap<>();
        List<?> flat = (List<?>) reply;
        for (int i = 0; i + 1 < flat.size(); i += 2) {
            fields.put(flat.get(i), flat.get(i + 1));
        }
        return fields;
    }

    private static long pipeline(Client client, String key) {
        List<String[]> commands = new ArrayList<>();
        for (int i = 0; i < PIPELINE; i++) {
            commands.add(new String[] {"CL.THROTTLE", key, "599", "1", HOUR});
        }
        return client.askAll(commands).stream()
            .filter(reply -> Long.valueOf(0).equals(((List<?>) reply).get(0)))
            .count();
    }

    private static Map<String, Object> firstHalf(Client client, String key) {
        Map<String, Object> told = new HashMap<>();
        List<Object> throttled = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            throttled.add(client.ask("CL.THROTTLE", key, "2", "1", HOUR));
        }
        told.put("throttled", throttled);
        told.put("taken", fields(client.ask("STINT.TAKE", "QUOTA", "gcra 5/1h", key, "COST", "2")));
        told.put("pipelined", pipeline(client, key + ":pipe"));
        told.put("nonsense", faultOf(() -> client.ask("STINT.TAKE", "QUOTA", "nonsense", key)));
        told.put("get", faultOf(() -> client.ask("GET", key)));
        told.put("subscribe", faultOf(() -> client.subscribe(key)));
        told.put("after", client.ask("PING").equals("PONG") ? "" : "no PONG");
        return told;
    }

    /** The connection is dead: a client may learn of it by an error. */
    private static Object secondHalf(Client client, String key) {
        long ends = System.currentTimeMillis() + PATIENCE_MS;
        while (true) {
            try {
                return client.ask("CL.THROTTLE", key, "2", "1", HOUR);
            } catch (RuntimeException fault) {
                if (System.currentTimeMillis() > ends) {
                    throw fault;
                }
            }
        }
    }

    static void run(Library library, String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        String secret = arguments[1];
        List<String> refused = new ArrayList<>();
        for (String given : List.of("", "wrong" + secret)) {
            refused.add(faultOf(() -> {
                try (Client stranger = library.connect(port, given, 3)) {
                    stranger.ask("PING");
                }
            }));
        }
        List<Client> clients = new ArrayList<>();
        List<Map<String, Object>> told = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            clients.add(library.connect(port, secret, i + 2));
            told.add(firstHalf(clients.get(i), "key" + i));
            told.get(i).put("protocol", i + 2);
            told.get(i).put("refused", refused);
        }
        System.out.println("\"restart\"");
        if (System.in.read() < 0) {
            throw new IllegalStateException("nobody says that the server was restarted");
        }
        for (int i = 0; i < 2; i++) {
            told.get(i).put("restarted", secondHalf(clients.get(i), "key" + i));
            System.out.println(new Gson().toJson(told.get(i)));
            clients.get(i).close();
        }
    }
}
