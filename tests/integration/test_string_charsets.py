"""``keyCharset`` and ``valueCharset`` read and write what Spark's ``decode`` and ``encode`` do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct import ColumnError, MalformedPayloadError, error_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

TEXTS = "VALUES ('café', 'a'), ('', NULL), ('é', 'ÿ') AS t(key, value)"


@pytest.mark.parametrize(("key", "value"), [("ISO-8859-1", "UTF-16"), ("UTF-32", "UTF-16LE")])
def test_strings_are_those_of_spark(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, key: str, value: str
) -> None:
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    formats = {"keyFormat": "string", "valueFormat": "string", "keyCharset": key, "valueCharset": value}
    written, encoded = make_topic(1), make_topic(1)
    texts = spark.sql(f"SELECT * FROM {TEXTS}").coalesce(1)
    texts.write.format("kafka-direct").options(**servers, **formats, topic=written).mode("append").save()
    by_spark = texts.selectExpr(f"encode(key, '{key}') AS key", f"encode(value, '{value}') AS value")
    by_spark.write.format("kafka-direct").options(**servers, topic=encoded).mode("append").save()
    reader = spark.read.format("kafka-direct").options(**servers)
    columns = ("key", "value")
    raw = [reader.option("subscribe", topic).load().select(*columns).collect() for topic in (written, encoded)]
    assert raw[0] == raw[1]
    read = reader.options(**formats).option("subscribe", encoded).load().select(*columns).collect()
    assert read == texts.collect()


def test_strings_that_are_not_valid_fail_by_default(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    frame = spark.sql("SELECT 'é' AS value")
    writer = frame.write.format("kafka-direct").options(**servers, topic=topic).mode("append")
    with pytest.raises(Exception, match=r"value has a character that the charset does not have") as failed:
        writer.options(valueFormat="string", valueCharset="US-ASCII").save()
    assert isinstance(error_of(failed.value), ColumnError)
    writer.options(valueFormat="string", valueCharset="UTF-8").save()
    reader = spark.read.format("kafka-direct").options(**servers, subscribe=topic, valueFormat="string")
    reader = reader.option("valueCharset", "US-ASCII")
    with pytest.raises(Exception, match=r"The value cannot be decoded as US-ASCII: .*byte 0") as failed:
        reader.load().collect()
    assert isinstance(error_of(failed.value), MalformedPayloadError)
    assert [row.value for row in reader.option("mode", "PERMISSIVE").load().collect()] == [None]
