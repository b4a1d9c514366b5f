package sparksuites;

import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.sources.DataSourceRegister;

/**
 * Lets format("kafka") mean the Python data source of that name (python/pyspark_kafka_shim).
 *
 * Spark rejects the name before it asks for Python data sources, unless a Java class is registered for it. The capital
 * letters keep spark.sql.sources.useV1SourceList from matching, because a Python data source has no V1 form.
 */
public class KafkaDirectProvider extends PythonDataSourceV2 implements DataSourceRegister {
  @Override public String shortName() { return "KAFKA"; }

  /** Spark passes the name of the Java class, but looks for a Python data source of this name. */
  @Override public void setShortName(String name) { super.setShortName("kafka"); }

  /** Some tests name the connector's class instead of the format. */
  public static class ByClassName extends KafkaDirectProvider {
    @Override public String shortName() { return "org.apache.spark.sql.kafka010.KafkaSourceProvider"; }
  }
}
