import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.util.KafkaBasedLog;
import org.apache.kafka.connect.util.TopicAdmin;

/**
 * Kafka Connect's own KafkaBasedLog, driven by tests: one JSON object a line on standard input, one on standard
 * output for each. It ends with its input. Byte strings are base64; null stays null.
 *
 * <pre>
 * {"do":"start","log":"a","topic":"t","servers":"...","isolation":"read_committed","create":3|null}
 *                                                                    -> {"partitions":3}; creates the topic as Connect does
 * {"do":"send","log":"a","records":[[key,value]]}                    -> {"sent":[[partition,offset,timestamp]]}
 * {"do":"readToEnd","log":"a"}                                       -> {}, when it is read
 * {"do":"requestRead","log":"a"}                                     -> {}, at once; requests a read to the end
 * {"do":"readDone","log":"a"}                                        -> {"done":true|false} of the last request
 * {"do":"seen","log":"a"}                                            -> {"records":[[partition,offset,timestamp,key,value]]}
 * {"do":"onlyCompacts","log":"a"}                                    -> {"accepted":true} for a compacted topic
 * {"do":"stop","log":"a"}                                            -> {}
 * </pre>
 *
 * A failed command returns {"error":"..."}.
 */
public final class Log {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long DEADLINE_S = 120;
    private static final Map<String, Log> LOGS = new HashMap<>();

    private final String topic;
    private final TopicAdmin admin;
    private final KafkaBasedLog<byte[], byte[]> log;
    private final List<ConsumerRecord<byte[], byte[]>> seen = new ArrayList<>();
    private Throwable failure;
    private Future<Void> requestedRead;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // output of libraries must not mix with the answers
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode order = JSON.readTree(line);
                String name = order.get("log").textValue();
                if (order.get("do").textValue().equals("start")) {
                    LOGS.put(name, new Log(order));
                    answer.put("partitions", LOGS.get(name).log.partitionCount());
                } else {
                    LOGS.get(name).obey(order, answer);
                }
            } catch (Exception problem) {
                answer.put("error", problem.toString());
            }
            answers.println(JSON.writeValueAsString(answer));
        }
        for (Log each : LOGS.values()) {
            each.stop();
        }
    }

    private Log(JsonNode order) {
        topic = order.get("topic").textValue();
        Map<String, Object> servers = Map.of("bootstrap.servers", order.get("servers").textValue());
        Map<String, Object> producer = new HashMap<>(servers);
        producer.put("key.serializer", ByteArraySerializer.class.getName());
        producer.put("value.serializer", ByteArraySerializer.class.getName());
        Map<String, Object> consumer = new HashMap<>(servers);
        consumer.put("key.deserializer", ByteArrayDeserializer.class.getName());
        consumer.put("value.deserializer", ByteArrayDeserializer.class.getName());
        consumer.put("isolation.level", order.get("isolation").textValue());
        admin = new TopicAdmin(new HashMap<>(servers));
        int partitions = order.get("create").asInt(0);
        log = new KafkaBasedLog<>(
                topic, producer, consumer, () -> admin, this::consume, Time.SYSTEM, initializer -> create(partitions));
        log.start();
    }

    private void create(int partitions) {
        if (partitions > 0) {
            admin.createTopics(TopicAdmin.defineTopic(topic)
                    .compacted()
                    .partitions(partitions)
                    .replicationFactor((short) 1)
                    .build());
        }
    }

    private synchronized void consume(Throwable error, ConsumerRecord<byte[], byte[]> record) {
        if (error != null) {
            failure = error;
        } else {
            seen.add(record);
        }
    }

    private void obey(JsonNode order, ObjectNode answer) throws Exception {
        switch (order.get("do").textValue()) {
            case "send" -> send(order.get("records"), answer.putArray("sent"));
            case "readToEnd" -> log.readToEnd().get(DEADLINE_S, TimeUnit.SECONDS);
            case "requestRead" -> requestedRead = log.readToEnd();
            case "readDone" -> answer.put("done", requestedRead.isDone());
            case "seen" -> listSeen(answer.putArray("records"));
            case "onlyCompacts" -> answer.put("accepted", admin.verifyTopicCleanupPolicyOnlyCompact(topic, "log", "a test"));
            case "stop" -> stop();
            default -> throw new IllegalArgumentException("unknown order " + order.get("do"));
        }
    }

    private void send(JsonNode records, ArrayNode sentRecords) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : records) {
            sent.add(log.sendWithReceipt(record.get(0).binaryValue(), record.get(1).binaryValue()));
        }
        log.flush();
        for (Future<RecordMetadata> each : sent) {
            RecordMetadata metadata = each.get(DEADLINE_S, TimeUnit.SECONDS);
            sentRecords.addArray().add(metadata.partition()).add(metadata.offset()).add(metadata.timestamp());
        }
    }

    private synchronized void listSeen(ArrayNode records) throws Exception {
        if (failure != null) {
            throw new IllegalStateException(failure);
        }
        for (ConsumerRecord<byte[], byte[]> each : seen) {
            records.addArray()
                    .add(each.partition())
                    .add(each.offset())
                    .add(each.timestamp())
                    .add(each.key())
                    .add(each.value());
        }
    }

    private void stop() {
        log.stop();
        admin.close();
    }
}
