import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.instrument.Instrumentation;
import java.net.URI;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerExtensionsValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/**
 * A broker's validator of the tokens of Amazon MSK and of Google Cloud, written from the descriptions of AWS and Google.
 *
 * <p>Options of the login module: {@code region}, {@code key_ID="SECRET"} for each access key, and
 * {@code google} and {@code azure} with the access tokens that are accepted. The principal is the access key or the account. It is an agent of the JVM, because
 * the jar of an agent is on the class path.
 */
public final class CloudTokenHandler implements AuthenticateCallbackHandler {
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'");
    private static final Duration CLOCK_SKEW = Duration.ofMinutes(5);

    private Map<String, ?> options;

    public static void premain(String arguments, Instrumentation instrumentation) {}

    private record Token(String value, String principalName, long lifetimeMs) implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public Long startTimeMs() {
            return null;
        }
    }

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        options = entries.get(0).getOptions();
    }

    @Override
    public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
        for (Callback callback : callbacks) {
            if (callback instanceof OAuthBearerValidatorCallback validator) {
                try {
                    String value = validator.tokenValue();
                    if (value.equals(options.get("azure"))) {
                        validator.token(new Token(value, "azure", System.currentTimeMillis() + 3_600_000));
                    } else {
                        validator.token(value.contains(".") ? google(value) : amazon(value));
                    }
                } catch (Exception error) {
                    System.err.println("CloudTokenHandler: " + error);
                    validator.error("Access denied", null, null);
                }
            } else if (callback instanceof OAuthBearerExtensionsValidatorCallback) {
                continue;
            } else {
                throw new UnsupportedCallbackException(callback);
            }
        }
    }

    private Token amazon(String value) throws GeneralSecurityException {
        String region = (String) options.get("region");
        String host = "kafka." + region + ".amazonaws.com";
        URI url = URI.create(decode(value));
        Map<String, String> fields = new TreeMap<>();
        for (String pair : url.getRawQuery().split("&")) {
            String[] parts = pair.split("=", 2);
            require(fields.put(unquote(parts[0]), unquote(parts[1])) == null, "a field twice");
        }
        String signature = fields.remove("X-Amz-Signature");
        require(fields.remove("User-Agent") != null, "no user agent");
        require(url.getScheme().equals("https") && url.getHost().equals(host) && url.getPath().equals("/"), "host");
        require(fields.get("Action").equals("kafka-cluster:Connect"), "action");
        require(fields.get("X-Amz-Algorithm").equals("AWS4-HMAC-SHA256"), "algorithm");
        require(fields.get("X-Amz-SignedHeaders").equals("host"), "headers");
        String date = fields.get("X-Amz-Date");
        Instant signedAt = LocalDateTime.parse(date, TIME).toInstant(ZoneOffset.UTC);
        int seconds = Integer.parseInt(fields.get("X-Amz-Expires"));
        require(seconds <= 900, "lifetime");
        Instant end = signedAt.plusSeconds(seconds);
        Instant now = Instant.now();
        require(signedAt.minus(CLOCK_SKEW).isBefore(now) && now.isBefore(end), "clock");
        String scope = date.substring(0, 8) + "/" + region + "/kafka-cluster/aws4_request";
        String credential = fields.get("X-Amz-Credential");
        String key = credential.substring(0, credential.indexOf('/'));
        require(credential.equals(key + "/" + scope), "scope");
        String query = fields.entrySet().stream()
            .map(field -> quote(field.getKey()) + "=" + quote(field.getValue()))
            .collect(Collectors.joining("&"));
        String request = String.join("\n", "GET", "/", query, "host:" + host, "", "host", hash(""));
        String text = String.join("\n", "AWS4-HMAC-SHA256", date, scope, hash(request));
        byte[] signingKey = bytes("AWS4" + options.get("key_" + key));
        for (String part : scope.split("/")) {
            signingKey = hmac(signingKey, part);
        }
        require(HexFormat.of().formatHex(hmac(signingKey, text)).equals(signature), "signature");
        return new Token(value, key, end.toEpochMilli());
    }

    private Token google(String value) throws Exception {
        String[] parts = value.split("\\.");
        require(parts.length == 3, "three parts");
        JsonNode header = new ObjectMapper().readTree(decode(parts[0]));
        JsonNode claims = new ObjectMapper().readTree(decode(parts[1]));
        require(header.get("typ").asText().equals("JWT"), "type");
        require(header.get("alg").asText().equals("GOOG_OAUTH2_TOKEN"), "algorithm");
        require(decode(parts[2]).equals(options.get("google")), "access token");
        require(claims.get("iat").asLong() <= Instant.now().getEpochSecond() + 60, "iat");
        long end = claims.get("exp").asLong();
        require(end > Instant.now().getEpochSecond(), "exp");
        return new Token(value, claims.get("sub").asText(), end * 1000);
    }

    private static void require(boolean condition, String name) {
        if (!condition) {
            throw new IllegalArgumentException(name);
        }
    }

    private static String decode(String value) {
        require(!value.contains("="), "padding");
        return new String(Base64.getUrlDecoder().decode(value), StandardCharsets.UTF_8);
    }

    private static String unquote(String text) {
        return URLDecoder.decode(text, StandardCharsets.UTF_8);
    }

    private static String quote(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20").replace("*", "%2A").replace("%7E", "~");
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String hash(String text) throws GeneralSecurityException {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes(text)));
    }

    private static byte[] hmac(byte[] key, String text) throws GeneralSecurityException {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        return mac.doFinal(bytes(text));
    }

    @Override
    public void close() {}
}
