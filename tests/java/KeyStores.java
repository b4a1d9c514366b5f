import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.Key;
import java.security.KeyStore;
import java.security.UnrecoverableKeyException;
import java.security.cert.Certificate;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.X509ExtendedKeyManager;

/**
 * Java's own reading of key stores in JKS format, for comparison, and <code>keytool</code>. It ends with its input.
 *
 * <pre>
 * a line:  "keytool" and its arguments in base64
 * its answer:  "done"; the program ends if keytool fails
 *
 * a line:  the file, the store's password, the password of its keys; each in base64, or "-" if there is none
 * its answer, tab separated:
 *   "error" and the name of the exception
 *   or each entry as alias:key:certificate,certificate, sorted, with "" as the key of a trusted certificate,
 *   and "wrong" as a key that the password does not open; then "chosen", and the alias that SunX509 chooses for a
 *   client if the server accepts EC and then all others; it is "" if it has no key
 * </pre>
 */
public class KeyStores {
    private static final String[] KEY_TYPES = {"EC", "RSA", "DSA"};

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.US_ASCII);
        System.setOut(System.err); // for what keytool prints
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ");
            if (parts[0].equals("keytool")) {
                out.println(keytool(parts));
                continue;
            }
            out.println(describe(Base64.getDecoder().decode(parts[0]), password(parts[1]), password(parts[2])));
        }
    }

    /** Run the class that the program <code>keytool</code> starts; the JVM starts once for all calls. */
    private static String keytool(String[] parts) throws Exception {
        String[] arguments = new String[parts.length - 1];
        for (int i = 0; i < arguments.length; i++) {
            arguments[i] = new String(Base64.getDecoder().decode(parts[i + 1]), StandardCharsets.UTF_8);
        }
        // It prints why it fails, and ends the JVM or throws an exception.
        Class.forName("sun.security.tools.keytool.Main").getMethod("main", String[].class).invoke(null, (Object) arguments);
        return "done";
    }

    private static String describe(byte[] file, char[] storePassword, char[] keyPassword) {
        try {
            KeyStore store = KeyStore.getInstance("JKS");
            store.load(new ByteArrayInputStream(file), storePassword);
            List<String> entries = new ArrayList<>();
            boolean opens = true;
            for (String alias : Collections.list(store.aliases())) {
                String key = "";
                List<String> certificates = new ArrayList<>();
                if (store.isKeyEntry(alias)) {
                    try {
                        Key found = store.getKey(alias, keyPassword);
                        key = base64(found.getEncoded());
                    } catch (UnrecoverableKeyException error) {
                        key = "wrong";
                        opens = false;
                    }
                    Certificate[] chain = store.getCertificateChain(alias);
                    for (Certificate each : chain == null ? new Certificate[0] : chain) {
                        certificates.add(base64(each.getEncoded()));
                    }
                } else {
                    certificates.add(base64(store.getCertificate(alias).getEncoded()));
                }
                entries.add(base64(alias.getBytes(StandardCharsets.UTF_8)) + ":" + key + ":" + String.join(",", certificates));
            }
            Collections.sort(entries);
            entries.add("chosen");
            entries.add(opens && keyPassword != null ? base64(chosen(store, keyPassword).getBytes(StandardCharsets.UTF_8)) : "");
            return String.join("\t", entries);
        } catch (Exception | OutOfMemoryError error) {
            return "error\t" + error.getClass().getSimpleName();
        }
    }

    private static String chosen(KeyStore store, char[] keyPassword) throws Exception {
        KeyManagerFactory factory = KeyManagerFactory.getInstance("SunX509");
        factory.init(store, keyPassword);
        X509ExtendedKeyManager manager = (X509ExtendedKeyManager) factory.getKeyManagers()[0];
        String alias = manager.chooseEngineClientAlias(KEY_TYPES, null, null);
        return alias == null ? "" : alias;
    }

    private static char[] password(String encoded) {
        return encoded.equals("-")
            ? null
            : new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8).toCharArray();
    }

    private static String base64(byte[] data) {
        return Base64.getEncoder().encodeToString(data);
    }
}
