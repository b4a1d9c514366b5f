"""Avro and Protobuf behind the id of a schema that the query has, without a registry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from pyspark_kafka_direct import MalformedPayloadError, OptionError, error_of
from pyspark_kafka_direct.direct import KafkaUtils, OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

AVRO = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]})
PROTOBUF = 'syntax = "proto3"; message R { int32 n = 1; }'
ID_7, ID_8 = b"\0\0\0\0\7", b"\0\0\0\0\x08"
AVRO_VALUES = [ID_7 + b"\x0a", ID_8 + b"\x0c", None, b"\x0e", ID_7 + b"\x10"]
PROTOBUF_VALUES = [ID_7 + b"\0\x08\5", ID_8 + b"\0\x08\6", None, b"\x08\7", ID_7 + b"\0\x08\x08"]
SCHEMAS = {"avro": AVRO, "protobuf": PROTOBUF}
ERROR = "struct<side string, stage string, class string, message string, schema_id int>"


@pytest.fixture(scope="module")
def topics(kafka: EmbeddedKafka, make_topic: MakeTopic) -> dict[str, str]:
    """Return a topic of each format, with the ids 7 and 8, null, and a value without an id."""
    topics = {payload_format: make_topic(1) for payload_format in SCHEMAS}
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for payload_format, values in (("avro", AVRO_VALUES), ("protobuf", PROTOBUF_VALUES)):
        for value in values:
            producer.produce(topics[payload_format], value, partition=0)
    assert producer.flush(300) == 0
    return topics


def options(kafka: EmbeddedKafka, topic: str, payload_format: str, **more: str) -> dict[str, str]:
    base = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    return {**base, "valueFormat": payload_format, "valueSchema": SCHEMAS[payload_format], **more}


@pytest.mark.parametrize("payload_format", SCHEMAS)
def test_a_batch(spark: SparkSession, kafka: EmbeddedKafka, topics: dict[str, str], payload_format: str) -> None:
    given = options(kafka, topics[payload_format], payload_format, valueSchemaId="7", mode="PERMISSIVE")
    reader = spark.read.format("kafka-direct").schema(f"offset bigint, value struct<n int>, _error {ERROR}")
    rows = reader.options(**given).load().orderBy("offset").collect()
    assert [row.value and row.value.n for row in rows] == [5, None, None, None, 8]
    assert [row._error and row._error.schema_id for row in rows] == [None, 8, None, None, None]
    assert "schema id of the value is 8, and that of the query is 7" in rows[1]._error.message
    assert "magic byte of a schema id" in rows[3]._error.message
    with pytest.raises(Exception, match="and that of the query is 7") as caught:
        reader.schema("value struct<n int>").options(**{**given, "mode": "FAILFAST"}).load().collect()
    error = error_of(caught.value)
    assert isinstance(error, MalformedPayloadError)
    assert error.offset == 1


def test_streams(spark: SparkSession, kafka: EmbeddedKafka, topics: dict[str, str]) -> None:
    """With each of the two schemas, a union in one query."""
    given = {"valueSchemaId": "7", "mode": "DROPMALFORMED"}
    avro, protobuf = (
        spark.readStream.format("kafka-direct").options(**options(kafka, topic, name, **given)).load()
        for name, topic in topics.items()
    )
    query = avro.union(protobuf).selectExpr("topic", "value.n").writeStream.format("memory").queryName("schema_ids")
    assert query.trigger(availableNow=True).start().awaitTermination(600)
    read = sorted((row.topic, row.n or 0) for row in spark.table("schema_ids").collect())
    assert read == sorted((topic, number) for topic in topics.values() for number in (0, 5, 8))


@pytest.mark.parametrize("payload_format", SCHEMAS)
def test_an_rdd(spark: SparkSession, kafka: EmbeddedKafka, topics: dict[str, str], payload_format: str) -> None:
    rdd = KafkaUtils.createRDD(
        spark.sparkContext,
        {"bootstrap.servers": kafka.bootstrap_servers},
        [OffsetRange(topics[payload_format], 0, 0, len(AVRO_VALUES))],
    )
    given = {"valueFormat": payload_format, "valueSchema": SCHEMAS[payload_format], "mode": "PERMISSIVE"}
    batches = rdd.arrow(["value"], **given, options={"valueSchemaId": "7", "valueFraming": "confluent"}).collect()
    values: list[Any] = [row["value"] for batch in batches for row in batch.to_pylist()]
    assert [value and value["n"] for value in values] == [5, None, None, None, 8]
    for framing in ("confluent", "header"):
        with pytest.raises(OptionError, match="valueFraming"):
            rdd.arrow(["value"], **given, options={"valueFraming": framing})


@pytest.mark.parametrize("payload_format", [*SCHEMAS, "string", "binary"])
def test_a_framing_alone_is_rejected(spark: SparkSession, kafka: EmbeddedKafka, payload_format: str) -> None:
    """Otherwise, the id would be decoded as data."""
    given = {"valueFormat": payload_format, "valueFraming": "confluent", "subscribe": "t"}
    if payload_format in SCHEMAS:
        given["valueSchema"] = SCHEMAS[payload_format]
    for reader in (spark.read, spark.readStream):
        configured = reader.format("kafka-direct").options(
            **{"kafka.bootstrap.servers": kafka.bootstrap_servers, **given}
        )
        with pytest.raises(Exception, match="valueFraming=confluent needs"):
            configured.load()
