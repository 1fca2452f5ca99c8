// SPDX-License-Identifier: MIT
import io.github.bucket4j.Bucket;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ConcurrentHashMap;

/** The protocol of bench/peers/README.md for local buckets of bucket4j, one for each key in a map. */
public final class Peer {
    private final String row;
    private final String sequencePath;
    private final int nKeys;
    private final int nThreads;
    private final int operations;
    private final long limit;
    private final Duration period;
    private final BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));

    private ConcurrentHashMap<String, Bucket> buckets;
    private Bucket one;
    private String[] keys;
    private int[] sequence;

    private Peer(String[] args) {
        row = args[1];
        nKeys = Integer.parseInt(args[2]);
        sequencePath = args[3];
        nThreads = Integer.parseInt(args[4]);
        operations = Integer.parseInt(args[5]);
        limit = Long.parseLong(args[6]);
        period = Duration.ofMillis(Long.parseLong(args[7]));
    }

    private Bucket newBucket(String key) {
        return Bucket.builder()
            .addLimit(bandwidth -> bandwidth.capacity(limit).refillGreedy(limit, period))
            .build();
    }

    private boolean take(String key) {
        Bucket bucket = buckets.get(key);
        if (bucket == null) {
            bucket = buckets.computeIfAbsent(key, this::newBucket);
        }
        return bucket.tryConsume(1);
    }

    private static String keyText(int index) {
        return String.format("user:%011d", index);
    }

    private static double cpu() {
        var system = (com.sun.management.OperatingSystemMXBean)
            ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }

    private static void say(String format, Object... values) {
        System.out.println(String.format(Locale.ROOT, format, values));
        System.out.flush();
    }

    private interface Run {
        long of(int thread);
    }

    private void turn(Run run) throws InterruptedException {
        var granted = new long[nThreads];
        var threads = new ArrayList<Thread>();
        double cpu = cpu();
        long wall = System.nanoTime();
        for (int i = 1; i < nThreads; i++) {
            int number = i;
            threads.add(new Thread(() -> granted[number] = run.of(number)));
            threads.get(i - 1).start();
        }
        granted[0] = run.of(0);
        for (Thread thread : threads) {
            thread.join();
        }
        double used = cpu() - cpu;
        double seconds = (System.nanoTime() - wall) / 1e9;
        long sum = 0;
        for (long n : granted) {
            sum += n;
        }
        say("{\"operations\": %d, \"granted\": %d, \"cpu_s\": %.9f, \"wall_s\": %.9f}", operations,
            sum, used, seconds);
    }

    private long takeShare(int at) {
        long granted = 0;
        int mask = sequence.length - 1;
        for (int i = at; i < at + operations / nThreads; i++) {
            granted += take(keys[sequence[i & mask]]) ? 1 : 0;
        }
        return granted;
    }

    private long takeOne() {
        long granted = 0;
        for (int i = 0; i < operations / nThreads; i++) {
            granted += one.tryConsume(1) ? 1 : 0;
        }
        return granted;
    }

    private void keyed() throws IOException, InterruptedException {
        buckets = new ConcurrentHashMap<>();
        keys = new String[nKeys];
        for (int i = 0; i < nKeys; i++) {
            keys[i] = keyText(i);
            take(keys[i]);
        }
        var indices = ByteBuffer.wrap(Files.readAllBytes(Path.of(sequencePath)))
            .order(ByteOrder.LITTLE_ENDIAN).asIntBuffer();
        sequence = new int[indices.remaining()];
        indices.get(sequence);
        System.gc();
        say("{\"ready\": true}");
        for (int turns = 0; lines.readLine() != null; turns++) {
            int from = turns * (operations / nThreads);
            turn(thread -> takeShare(from + thread * (sequence.length / nThreads)));
        }
    }

    private static long heap() {
        System.gc();
        return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
    }

    private void memory() throws IOException {
        List<Object> kept = new ArrayList<>();
        say("{\"ready\": true}");
        while (lines.readLine() != null) {
            long before = heap();
            buckets = new ConcurrentHashMap<>();
            for (int i = 0; i < nKeys; i++) {
                take(keyText(i));
            }
            kept.add(buckets);
            say("{\"keys\": %d, \"heap_bytes\": %d}", nKeys, heap() - before);
        }
    }

    private void ask() throws IOException {
        buckets = new ConcurrentHashMap<>();
        say("{\"ready\": true}");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            long granted = 0;
            for (int i = Integer.parseInt(words[2]); i > 0; i--) {
                granted += take(words[1]) ? 1 : 0;
            }
            say("{\"granted\": %d}", granted);
        }
    }

    public static void main(String[] args) throws IOException, InterruptedException {
        var peer = new Peer(args);
        switch (peer.row) {
            case "keyed" -> peer.keyed();
            case "memory" -> peer.memory();
            case "ask" -> peer.ask();
            default -> {
                peer.one = peer.newBucket("one");
                say("{\"ready\": true}");
                while (peer.lines.readLine() != null) {
                    peer.turn(thread -> peer.takeOne());
                }
            }
        }
    }
}
