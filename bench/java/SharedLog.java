import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.util.KafkaBasedLog;
import org.apache.kafka.connect.util.TopicAdmin;

/**
 * Kafka Connect's own KafkaBasedLog, driven by the benchmark: one command a line on standard input, one answer a line
 * on standard output.
 *
 * <pre>
 * load SERVERS TOPIC                      -> the number of keys that are in a map after start()
 * write SERVERS TOPIC RECORDS BYTES       -> the number of records that were acknowledged
 * </pre>
 *
 * A failed command returns the error.
 */
public final class SharedLog {
    private static final int DIFFERENT = 10_000;
    private static final long DEADLINE_S = 300;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // output of libraries must not mix with the answers
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            try {
                answers.println(
                        words[0].equals("load")
                                ? load(words[1], words[2])
                                : write(words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4])));
            } catch (Exception problem) {
                answers.println(problem);
            }
        }
    }

    private static long load(String servers, String topic) {
        Map<Bytes, byte[]> found = new HashMap<>();
        TopicAdmin admin = new TopicAdmin(new HashMap<>(Map.of("bootstrap.servers", servers)));
        KafkaBasedLog<byte[], byte[]> log = open(servers, topic, admin, found);
        log.start();
        long keys = found.size();
        log.stop();
        admin.close();
        return keys;
    }

    private static long write(String servers, String topic, int records, int bytes) throws Exception {
        TopicAdmin admin = new TopicAdmin(new HashMap<>(Map.of("bootstrap.servers", servers)));
        KafkaBasedLog<byte[], byte[]> log = open(servers, topic, admin, new HashMap<>());
        log.start();
        byte[][] values = new byte[DIFFERENT][bytes];
        Random random = new Random(0);
        for (byte[] value : values) {
            random.nextBytes(value);
        }
        AtomicLong acknowledged = new AtomicLong();
        CountDownLatch left = new CountDownLatch(records);
        for (int number = 0; number < records; number++) {
            byte[] key = String.format("key-%08d", number).getBytes(StandardCharsets.UTF_8);
            log.send(key, values[number % DIFFERENT], (metadata, error) -> {
                if (error == null) {
                    acknowledged.incrementAndGet();
                }
                left.countDown();
            });
        }
        left.await(DEADLINE_S, TimeUnit.SECONDS);
        log.stop();
        admin.close();
        return acknowledged.get();
    }

    private static KafkaBasedLog<byte[], byte[]> open(
            String servers, String topic, TopicAdmin admin, Map<Bytes, byte[]> found) {
        Map<String, Object> producer = new HashMap<>(Map.of("bootstrap.servers", servers));
        producer.put("key.serializer", ByteArraySerializer.class.getName());
        producer.put("value.serializer", ByteArraySerializer.class.getName());
        Map<String, Object> consumer = new HashMap<>(Map.of("bootstrap.servers", servers));
        consumer.put("key.deserializer", ByteArrayDeserializer.class.getName());
        consumer.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return new KafkaBasedLog<>(
                topic,
                producer,
                consumer,
                () -> admin,
                (error, record) -> apply(found, error, record),
                Time.SYSTEM,
                ignored -> {});
    }

    private static void apply(Map<Bytes, byte[]> found, Throwable error, ConsumerRecord<byte[], byte[]> record) {
        if (error != null) {
            throw new IllegalStateException(error);
        }
        if (record.value() == null) {
            found.remove(new Bytes(record.key()));
        } else {
            found.put(new Bytes(record.key()), record.value());
        }
    }
}
