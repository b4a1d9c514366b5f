import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.security.oauthbearer.JwtRetriever;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule;

/**
 * Kafka's retrievers of OAUTHBEARER tokens, driven by tests: one JSON object a line on standard input, one on standard
 * output for each. It ends with its input.
 *
 * <pre>
 * {"config":{"sasl.oauthbearer...":"..."},"jaas":{"clientId":"..."}}    -> {"token":"..."}
 * </pre>
 *
 * All URLs and files of the configuration are allowed. A failed command returns {"error":"..."}.
 */
public class Retrieve {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // for logs
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Map<String, String> answer = new HashMap<>();
            try {
                answer.put("token", retrieve(JSON.readTree(line)));
            } catch (Exception error) {
                answer.put("error", error.toString());
            }
            output.println(JSON.writeValueAsString(answer));
        }
    }

    private static String retrieve(JsonNode order) throws Exception {
        Map<String, String> given = strings(order.get("config"));
        String values = String.join(",", given.values());
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", values);
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", values);
        ConfigDef definitions = new ConfigDef();
        SaslConfigs.addClientSaslSupport(definitions);
        Map<String, Object> config = definitions.parse(given);
        AppConfigurationEntry module = new AppConfigurationEntry(
            OAuthBearerLoginModule.class.getName(),
            AppConfigurationEntry.LoginModuleControlFlag.REQUIRED,
            strings(order.get("jaas")));
        Class<?> type = (Class<?>) config.get(SaslConfigs.SASL_OAUTHBEARER_JWT_RETRIEVER_CLASS);
        try (JwtRetriever retriever = (JwtRetriever) type.getDeclaredConstructor().newInstance()) {
            retriever.configure(config, OAuthBearerLoginModule.OAUTHBEARER_MECHANISM, List.of(module));
            return retriever.retrieve();
        }
    }

    private static Map<String, String> strings(JsonNode object) {
        Map<String, String> result = new HashMap<>();
        object.properties().forEach(entry -> result.put(entry.getKey(), entry.getValue().asText()));
        return result;
    }
}
