package sparksuites;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileWriter;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import net.bytebuddy.agent.ByteBuddyAgent;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.matcher.ElementMatchers;
import org.scalatest.Reporter;
import org.scalatest.events.Event;
import org.scalatest.events.TestCanceled;
import org.scalatest.events.TestFailed;
import org.scalatest.events.TestIgnored;
import org.scalatest.events.TestSucceeded;

/** Appends the result of each test, and each exception that a test intercepts, as a line of JSON to a file. */
public final class Recorder implements Reporter {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** ScalaTest creates the reporter before it loads a suite, so each call of `intercept` is seen. */
  public Recorder() {
    new AgentBuilder.Default()
        .disableClassFormatChanges()
        .with(AgentBuilder.RedefinitionStrategy.RETRANSFORMATION)
        .ignore(ElementMatchers.none())
        .type(ElementMatchers.named("org.scalatest.Assertions"))
        .transform((builder, type, loader, module, domain) ->
            builder.visit(Advice.to(Intercept.class).on(ElementMatchers.named("intercept"))))
        .installOn(ByteBuddyAgent.install());
  }

  /** Added to the end of ScalaTest's `intercept`, which returns the expected exception or fails because of another one. */
  public static final class Intercept {
    @Advice.OnMethodExit(onThrowable = Throwable.class)
    public static void exit(@Advice.Return Object expected, @Advice.Thrown Throwable failure) {
      Recorder.intercepted(expected != null ? (Throwable) expected : failure.getCause());
    }
  }

  /** Public because the code of Intercept is copied into a class of ScalaTest. */
  public static void intercepted(Throwable thrown) {
    if (thrown != null) append(Map.of("time", System.currentTimeMillis(), "intercepted", chain(thrown)));
  }

  @Override public void apply(Event event) {
    if (event instanceof TestSucceeded passed) {
      test(event, passed.testName(), "passed", passed.duration(), null);
    } else if (event instanceof TestFailed failed) {
      test(event, failed.testName(), "failed", failed.duration(), failed.throwable().getOrElse(() -> null));
    } else if (event instanceof TestCanceled canceled) {
      test(event, canceled.testName(), "canceled", canceled.duration(), canceled.throwable().getOrElse(() -> null));
    } else if (event instanceof TestIgnored ignored) {
      test(event, ignored.testName(), "ignored", scala.Option.empty(), null);
    }
  }

  private static void test(Event event, String name, String outcome, scala.Option<Object> duration, Throwable thrown) {
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("time", event.timeStamp());
    line.put("test", name);
    line.put("outcome", outcome);
    line.put("milliseconds", duration.getOrElse(() -> 0L));
    line.put("error", thrown == null ? List.of() : chain(thrown));
    append(line);
  }

  /** The exception and its causes, each as its class and message. */
  private static List<List<String>> chain(Throwable thrown) {
    List<List<String>> all = new ArrayList<>();
    for (Throwable each = thrown; each != null && all.size() < 10; each = each.getCause()) {
      all.add(List.of(each.getClass().getName(), String.valueOf(each.getMessage())));
    }
    return all;
  }

  private static synchronized void append(Map<String, Object> line) {
    try (FileWriter file = new FileWriter(System.getProperty("suites.recording"), true)) {
      file.write(JSON.writeValueAsString(line) + "\n");
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }
}
