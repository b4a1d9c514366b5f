import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache Kafka's own producer, told by tests what to do: one JSON object a line on standard input, one on standard
 * output for each. It ends with its input. Byte strings are base64; null stays null.
 *
 * <pre>
 * {"do":"open","producer":"p","config":{"bootstrap.servers":"...","compression.type":"zstd"}}   -> {}
 * {"do":"send","producer":"p","topic":"t","records":[{"partition":0,"key":..,"value":..,
 *   "timestamp":123,"headers":[["name",..]]}]}                                    -> {"written":[[offset,timestamp]]}
 * {"do":"begin"|"commit"|"abort"|"close","producer":"p"}                                        -> {}
 * </pre>
 *
 * What fails answers {"error":"..."}.
 */
public final class Produce {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, KafkaProducer<byte[], byte[]>> PRODUCERS = new HashMap<>();

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // what a library prints must not come between the answers
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                obey(JSON.readTree(line), answer);
            } catch (Exception failure) {
                answer.put("error", failure.toString());
            }
            answers.println(JSON.writeValueAsString(answer));
        }
    }

    private static void obey(JsonNode order, ObjectNode answer) throws Exception {
        String name = order.get("producer").textValue();
        switch (order.get("do").textValue()) {
            case "open" -> open(name, order.get("config"));
            case "send" -> send(PRODUCERS.get(name), order, answer.putArray("written"));
            case "begin" -> PRODUCERS.get(name).beginTransaction();
            case "commit" -> PRODUCERS.get(name).commitTransaction();
            case "abort" -> PRODUCERS.get(name).abortTransaction();
            case "close" -> PRODUCERS.remove(name).close();
            default -> throw new IllegalArgumentException("unknown order " + order.get("do"));
        }
    }

    private static void open(String name, JsonNode config) {
        Properties properties = new Properties();
        config.properties().forEach(entry -> properties.put(entry.getKey(), entry.getValue().textValue()));
        var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        PRODUCERS.put(name, producer);
        if (config.has("transactional.id")) {
            producer.initTransactions();
        }
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, JsonNode order, ArrayNode written)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : order.get("records")) {
            sent.add(producer.send(new ProducerRecord<>(
                    order.get("topic").textValue(),
                    record.get("partition").intValue(),
                    record.get("timestamp").isNull() ? null : record.get("timestamp").longValue(),
                    record.get("key").binaryValue(),
                    record.get("value").binaryValue(),
                    headers(record.get("headers")))));
        }
        producer.flush();
        for (Future<RecordMetadata> each : sent) {
            RecordMetadata metadata = each.get();
            written.addArray().add(metadata.offset()).add(metadata.timestamp());
        }
    }

    private static List<Header> headers(JsonNode pairs) throws IOException {
        List<Header> headers = new ArrayList<>();
        for (JsonNode pair : pairs) {
            headers.add(new RecordHeader(pair.get(0).textValue(), pair.get(1).binaryValue()));
        }
        return headers;
    }
}
