package org.apache.spark.sql.kafka010;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.read.streaming.SparkDataStream;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import scala.Function1;

/** In place of the tests' class, which looks for the Kafka source of a running query, and knows only those of the JVM connector. */
public final class KafkaSourceTest$AddKafkaData$$anonfun$1
    extends scala.runtime.AbstractPartialFunction<LogicalPlan, SparkDataStream> implements Serializable {
  public KafkaSourceTest$AddKafkaData$$anonfun$1(KafkaSourceTest.AddKafkaData outer) {}

  @Override public boolean isDefinedAt(LogicalPlan plan) {
    return plan instanceof StreamingDataSourceV2ScanRelation relation
        && relation.stream().getClass().getName().contains("Python");
  }

  @SuppressWarnings("unchecked")
  @Override public <A extends LogicalPlan, B> B applyOrElse(A plan, Function1<A, B> otherwise) {
    return isDefinedAt(plan) ? (B) ((StreamingDataSourceV2ScanRelation) plan).stream() : otherwise.apply(plan);
  }
}
