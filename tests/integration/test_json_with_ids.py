"""JSON that Confluent's serializer for JSON Schema writes, in batches, streams and RDDs, and other values beside it."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.fake_registry import FakeRegistry

from pyspark_kafka_direct import MalformedPayloadError, OptionError, error_of
from pyspark_kafka_direct.direct import KafkaUtils, OffsetRange
from pyspark_kafka_direct.functions import infer_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

SCHEMA = json.dumps({"title": "Payment", "type": "object", "properties": {"id": {"type": "integer"}}})
ERROR = "struct<side string, stage string, class string, message string, schema_id int>"


@pytest.fixture(scope="module")
def payments(kafka: EmbeddedKafka, make_topic: MakeTopic) -> str:
    """Return a topic with a value with an id, one with an id in a header, a bare one, null, and malformed JSON."""
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    with pytest.MonkeyPatch.context() as patch, FakeRegistry() as registry:
        patch.setenv("no_proxy", "localhost")
        client = SchemaRegistryClient({"url": registry.url})
        for number, settings in ((1, None), (2, {"schema.id.serializer": header_schema_id_serializer})):
            headers: list[tuple[str, bytes]] = []
            serializer = JSONSerializer(SCHEMA, client, conf=settings)
            value = serializer({"id": number}, SerializationContext(topic, MessageField.VALUE, headers))
            producer.produce(topic, value, headers=headers, partition=0)
    for other in (b'{"id": 3}', None, b"\0\0\0\0\1{"):
        producer.produce(topic, other, partition=0)
    assert producer.flush(300) == 0
    return topic


def options(kafka: EmbeddedKafka, topic: str, **more: str) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    return {**given, "valueFormat": "json", "valueFraming": "header", **more}


def test_other_values_are_malformed(spark: SparkSession, kafka: EmbeddedKafka, payments: str) -> None:
    schema = f"offset bigint, value struct<id bigint, _corrupt_record binary>, _error {ERROR}"
    reader = spark.read.format("kafka-direct").schema(schema)
    rows = reader.options(**options(kafka, payments)).load().orderBy("offset").collect()
    assert [row.value and row.value.id for row in rows] == [1, 2, None, None, None]
    assert [row.value and row.value._corrupt_record for row in rows[2:]] == [b'{"id": 3}', None, b"\0\0\0\0\1{"]
    assert [row._error and row._error.schema_id for row in rows] == [None, None, None, None, 1]
    assert "magic byte of a schema id" in rows[2]._error.message
    assert rows[4]._error.message == "the JSON is incomplete, at byte 6"
    without_headers = reader.options(**options(kafka, payments, valueFraming="confluent")).load()
    read = [row.value and row.value.id for row in without_headers.orderBy("offset").collect()]
    assert read == [1, None, None, None, None]
    assert infer_schema(spark, options(kafka, payments)).simpleString() == "struct<id:bigint>"


def test_modes_and_variants(spark: SparkSession, kafka: EmbeddedKafka, payments: str) -> None:
    reader = spark.read.format("kafka-direct")
    dropped = reader.schema("value variant").options(**options(kafka, payments, mode="DROPMALFORMED")).load()
    texts = [row.text for row in dropped.selectExpr("to_json(value) AS text").collect()]
    assert sorted(map(str, texts)) == ["None", '{"id":1}', '{"id":2}']
    with pytest.raises(Exception, match="does not begin with the magic byte of a schema id") as caught:
        reader.schema("value variant").options(**options(kafka, payments, mode="FAILFAST")).load().collect()
    error = error_of(caught.value)
    assert isinstance(error, MalformedPayloadError)
    assert error.offset == 2
    text = reader.schema("value struct<id int, _corrupt_record string>").options(
        **options(kafka, payments, mode="PERMISSIVE")
    )
    with pytest.raises(Exception, match="is binary, because a schema id is no text") as rejected:
        text.load().collect()
    assert isinstance(error_of(rejected.value), OptionError)


def test_a_stream_and_an_rdd(spark: SparkSession, kafka: EmbeddedKafka, payments: str) -> None:
    stream = spark.readStream.format("kafka-direct").options(**options(kafka, payments, valueSchema="id int"))
    writer = stream.load().select("value.id").writeStream.format("memory").queryName("json_with_ids")
    assert writer.trigger(availableNow=True).start().awaitTermination(600)
    assert sorted(row.id or 0 for row in spark.table("json_with_ids").collect()) == [0, 0, 0, 1, 2]
    rdd = KafkaUtils.createRDD(
        spark.sparkContext, {"bootstrap.servers": kafka.bootstrap_servers}, [OffsetRange(payments, 0, 0, 5)]
    )
    batches = rdd.arrow(["value"], valueFormat="json", valueSchema="id int", options={"valueFraming": "header"})
    read: list[Any] = [row["value"] for batch in batches.collect() for row in batch.to_pylist()]
    assert [value and value["id"] for value in read] == [1, 2, None, None, None]


CUSTOMER = {
    "definitions": {"amount": {"oneOf": [{"type": "null"}, {"type": "number"}]}},
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "zip": {"type": ["string", "null"]},
        "since": {"type": "string", "format": "date"},
        "limits": {"type": "array", "items": {"$ref": "#/definitions/amount"}},
        "address": {"$ref": "address.json"},
    },
}
ADDRESS = {"type": "object", "properties": {"city": {"type": "string"}}}
FIELDS = "struct<id:bigint,zip:string,since:date,limits:array<double>,address:struct<city:string>>"


def test_the_fields_are_those_of_the_registry(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of keys and values of two topics, in a batch, a stream and an RDD."""
    monkeypatch.setenv("no_proxy", "localhost")
    topics = sorted([make_topic(1), make_topic(1)])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    value = {"id": 1, "zip": None, "since": "2026-11-29", "limits": [1, None, 2.5], "address": {"city": "Ulm"}}
    with FakeRegistry() as registry:
        registry.add("address", json.dumps(ADDRESS), schemaType="JSON")
        references = [{"name": "address.json", "subject": "address", "version": 1}]
        schema_id = registry.add("customers", json.dumps(CUSTOMER), schemaType="JSON", references=references)
        registry.add(f"{topics[0]}-key", SCHEMA, schemaType="JSON")
        for topic in topics:
            framed = b"\0" + schema_id.to_bytes(4) + json.dumps(value).encode()
            producer.produce(topic, framed, json.dumps({"id": 7}).encode(), partition=0)
        assert producer.flush(300) == 0
        formats = {"keyFormat": "json", "valueFormat": "json"}
        access = {
            "schema.registry.url": registry.url,
            "valueSubject": "customers",
            "keySubject": f"{topics[0]}-key",
            "keyFraming": "none",
        }
        given = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": ",".join(topics),
            "startingOffsets": "earliest",
            **formats,
            **access,
        }
        frame = spark.read.format("kafka-direct").options(**given).load()
        assert frame.schema["key"].dataType.simpleString() == "struct<id:bigint>"
        assert frame.schema["value"].dataType.simpleString() == FIELDS
        assert frame.schema["value"].metadata["comment"] == f"version 1 of customers, schema id {schema_id}"
        fields = ("topic", "key.id AS key", "value.*")
        expected = [(topic, 7, 1, None, datetime.date(2026, 11, 29), [1.0, None, 2.5], ("Ulm",)) for topic in topics]
        assert [tuple(row) for row in frame.selectExpr(*fields).orderBy("topic").collect()] == expected
        stream = spark.readStream.format("kafka-direct").options(**given).load().selectExpr(*fields)
        writer = stream.writeStream.format("memory").queryName("fields_of_a_registry")
        assert writer.trigger(availableNow=True).start().awaitTermination(600)
        read = spark.table("fields_of_a_registry").orderBy("topic").collect()
        assert [tuple(row) for row in read] == expected
        rdd = KafkaUtils.createRDD(
            spark.sparkContext,
            {"bootstrap.servers": kafka.bootstrap_servers},
            [OffsetRange(topic, 0, 0, 1) for topic in topics],
        )
        (batch, _) = rdd.arrow(["value"], **formats, options=access).collect()
        assert batch.to_pylist()[0]["value"]["address"] == {"city": "Ulm"}
        requests = len(registry.requests)
        selected = (
            spark.read.format("kafka-direct").schema("value struct<id int>").options(**given, valueFraming="confluent")
        )
        assert [row.value.id for row in selected.load().collect()] == [1, 1]
        assert len(registry.requests) == requests, "the schema of the query says what is read"
