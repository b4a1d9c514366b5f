import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Apache Kafka's own consumer: reads partition 0 of each topic from its beginning to its end and prints one JSON array a
 * record: topic, offset, key, value, headers, timestamp. Byte strings are base64; null stays null.
 *
 * <p>Arguments: bootstrap servers, isolation level, topics.
 */
public final class Consume {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // what a library prints must not come between the answers
        ObjectMapper json = new ObjectMapper();
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("isolation.level", arguments[1]);
        List<TopicPartition> partitions = List.of(arguments).subList(2, arguments.length).stream()
                .map(topic -> new TopicPartition(topic, 0))
                .toList();
        var deserializer = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(properties, deserializer, deserializer)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            var ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    ArrayNode line = json.createArrayNode()
                            .add(record.topic())
                            .add(record.offset())
                            .add(record.key())
                            .add(record.value());
                    ArrayNode headers = line.addArray();
                    for (Header header : record.headers()) {
                        headers.addArray().add(header.key()).add(header.value());
                    }
                    line.add(record.timestamp());
                    answers.println(json.writeValueAsString(line));
                }
            }
        }
        answers.flush();
    }
}
