"""Structs that are written as Avro by every kind of write, and read by Confluent's deserializers and by this source."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, dual_schema_id_deserializer
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.fake_registry import FakeRegistry, Reply, Request
from tests.integration.exactly_once import PARTITIONS, Pipe
from tests.integration.read_back import Consumed, consume
from tests.integration.transactional_batches import committed
from tests.integration.waiting import wait_until

from pyspark_kafka_direct import ColumnError, OptionError, SchemaNotFoundError, error_of, foreach_batch_writer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

FLIGHT = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "namespace": "shop",
        "fields": [
            {"name": "origin", "type": "string"},
            {"name": "delay", "type": ["null", "double"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "source", "type": "string", "default": "spark"},
        ],
    }
)
VALUE = "named_struct('delay', delay, 'origin', origin, 'at', timestamp_millis(5)) AS value"


class Target:
    """A topic that is written to, and its subjects."""

    def __init__(self, spark: SparkSession, servers: str, topic: str, registry: FakeRegistry) -> None:
        self.spark, self.servers, self.topic, self.registry = spark, servers, topic, registry
        self.options = {
            "kafka.bootstrap.servers": servers,
            "topic": topic,
            "valueFormat": "avro",
            "schema.registry.url": registry.url,
            "schema.registry.api.timeout.ms": "2000",
        }

    def frame(self, *rows: tuple[str | None, float | None]) -> DataFrame:
        return self.spark.createDataFrame([*rows], "origin string, delay double").repartition(1)

    def write(self, frame: DataFrame, **options: str | None) -> None:
        given = {name: text for name, text in {**self.options, **options}.items() if text is not None}
        frame.write.format("kafka-direct").options(**given).mode("append").save()

    def records(self) -> list[Consumed]:
        return consume(self.servers, self.topic)

    def deserialized(self, record: Consumed, field: Any = MessageField.VALUE) -> Any:
        client = SchemaRegistryClient({"url": self.registry.url})
        deserializer = AvroDeserializer(client, conf={"schema.id.deserializer": dual_schema_id_deserializer})
        data = record.value if field is MessageField.VALUE else record.key
        return deserializer(data, SerializationContext(self.topic, field, record.headers))

    def read(self, **options: str) -> list[Any]:
        given = {**self.options, "subscribe": self.topic, **options}
        given.pop("topic")
        rows = self.spark.read.format("kafka-direct").options(**given).load().orderBy("offset").collect()
        return [row.value and row.value.asDict() for row in rows]


@pytest.fixture
def target(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, registry: FakeRegistry) -> Target:
    return Target(spark, kafka.bootstrap_servers, make_topic(1), registry)


@pytest.mark.smoke
def test_a_batch_with_the_schemas_of_subjects(target: Target, registry: FakeRegistry) -> None:
    registry.add("other", '"string"')
    value_id = registry.add(f"{target.topic}-value", FLIGHT)
    key_id = registry.add(f"{target.topic}-key", '"long"')
    frame = target.frame(("EWR", 1.5), ("JFK", None)).selectExpr("7L AS key", VALUE)
    tombstone = target.spark.sql("SELECT 8L AS key, NULL AS value").selectExpr(
        "key", "cast(value AS struct<delay double, origin string, at timestamp>) AS value"
    )
    target.write(frame.union(tombstone).repartition(1), keyFormat="avro")
    first, second, third = target.records()
    assert first.value == b"\0" + value_id.to_bytes(4, "big") + b"\6EWR\2\0\0\0\0\0\0\xf8\x3f\n\nspark"
    assert first.key == b"\0" + key_id.to_bytes(4, "big") + b"\16"
    assert third.value is None
    assert [target.deserialized(record)["delay"] for record in (first, second)] == [1.5, None]
    assert target.deserialized(first, MessageField.KEY) == 7
    assert [row and row["source"] for row in target.read()] == ["spark", "spark", None]
    options = {**target.options, "subscribe": target.topic, "keyFormat": "avro"}
    del options["topic"]
    keys = target.spark.read.format("kafka-direct").options(**options).load().select("key")
    assert keys.schema["key"].dataType.simpleString() == "bigint"
    assert keys.schema["key"].metadata["comment"] == f"version 1 of {target.topic}-key, schema id {key_id}"
    assert sorted(row.key for row in keys.collect()) == [7, 7, 8]
    assert registry.paths.count(f"GET /subjects/{target.topic}-value/versions/latest") <= 4  # tasks request nothing


def test_ids_in_headers(target: Target, registry: FakeRegistry) -> None:
    schema_id = registry.add(f"{target.topic}-value", FLIGHT)
    target.write(target.frame(("EWR", 1.5)).selectExpr(VALUE), valueFraming="header")
    (record,) = target.records()
    assert record.value is not None
    assert record.value.startswith(b"\6EWR")
    assert record.headers == [("__value_schema_id", b"\1" + registry.guid_of(schema_id).bytes)]
    assert target.deserialized(record)["origin"] == "EWR"
    assert target.read(valueFraming="header")[0]["origin"] == "EWR"


@pytest.mark.parametrize("framing", ["confluent", "header"])
def test_a_copy_has_no_header_with_the_id_of_the_original(
    target: Target, registry: FakeRegistry, make_topic: MakeTopic, framing: str
) -> None:
    copy = Target(target.spark, target.servers, make_topic(1), registry)
    registry.add(f"{target.topic}-value", FLIGHT)
    copied_id = registry.add(f"{copy.topic}-value", FLIGHT.replace('"spark"', '"copy"'))
    with_header = "array(named_struct('key', 'h', 'value', cast('1' AS binary))) AS headers"
    target.write(target.frame(("EWR", 1.5)).selectExpr(VALUE, with_header), valueFraming="header")
    options = {**target.options, "subscribe": target.topic, "valueFraming": "header", "includeHeaders": "true"}
    del options["topic"]
    copy.write(
        target.spark.read.format("kafka-direct").options(**options).load().select("value", "headers"),
        valueFraming=framing,
    )
    (record,) = copy.records()
    assert record.headers[0] == ("h", b"1")
    ids = [("__value_schema_id", b"\1" + registry.guid_of(copied_id).bytes)] if framing == "header" else []
    assert record.headers[1:] == ids
    assert copy.deserialized(record)["origin"] == "EWR"


@pytest.mark.parametrize("framing", ["none", "single-object"])
def test_without_a_registry(target: Target, framing: str) -> None:
    options = {"valueSchema": FLIGHT, "valueFraming": framing}
    no_registry = dict.fromkeys(("schema.registry.url", "schema.registry.api.timeout.ms"))
    target.write(target.frame(("EWR", 1.5)).selectExpr(VALUE), **options, **no_registry)
    (record,) = target.records()
    assert record.value is not None
    assert record.value.startswith(b"\xc3\1" if framing == "single-object" else b"\6EWR")
    for name in no_registry:
        del target.options[name]
    assert target.read(**options)[0]["origin"] == "EWR"


def test_the_schema_of_the_column_is_registered_if_wanted(target: Target, registry: FakeRegistry) -> None:
    frame = target.frame(("EWR", None)).selectExpr("struct(origin, delay, cast(1 AS decimal(5,2)) AS price) AS value")
    target.write(frame, **{"auto.register.schemas": "true"})
    registered = json.loads(registry.respond(Request("GET", "/schemas/ids/1", {}, None)).content["schema"])
    assert registered["name"] == "topLevelRecord"
    assert registered["fields"][:2] == [
        {"name": "origin", "type": ["null", "string"], "default": None},
        {"name": "delay", "type": ["null", "double"], "default": None},
    ]
    # Now it is in the subject, so it is found without being registered.
    target.write(frame, **{"use.latest.version": "false"})
    assert target.read() == [{"origin": "EWR", "delay": None, "price": 1}] * 2


def test_a_given_schema_has_to_be_in_the_subject(target: Target, registry: FakeRegistry) -> None:
    frame = target.frame(("EWR", 1.5)).selectExpr(VALUE)
    with pytest.raises(Exception, match="SchemaNotFoundError") as raised:
        target.write(frame, valueSchema=FLIGHT, valueSubjectNameStrategy="record")
    assert isinstance(error_of(raised.value), SchemaNotFoundError)
    assert "Subject 'shop.Flight'" in str(raised.value)
    registry.add("shop.Flight", FLIGHT)
    target.write(frame, valueSchema=FLIGHT, valueSubjectNameStrategy="record")
    assert target.read(valueSubject="shop.Flight")[0]["delay"] == 1.5


@pytest.mark.parametrize(
    ("value", "options", "error", "message"),
    [
        ("origin AS value", {}, ColumnError, "value is string, which is not written as shop.Flight"),
        ("struct(origin) AS value", {}, ColumnError, "the struct lacks value.at, which has no default"),
        ("struct(1 AS origin) AS value", {}, ColumnError, "value.origin is int32, .*version 1 of .*, schema id 1"),
        (VALUE, {"valueSubject": "missing"}, SchemaNotFoundError, "Subject 'missing', version latest: .*auto.register"),
        (VALUE, {"keyFormat": "avro"}, ColumnError, "keyFormat=avro needs a column named key"),
        (VALUE, {"topic": None}, ColumnError, "topic option required"),
        (VALUE, {"valueFraming": "single"}, OptionError, "valueFraming"),
        (VALUE, {"valueFormat": "avro", "schema.registry.url": None}, OptionError, "schema.registry.api.timeout.ms"),
    ],
)
def test_what_is_rejected_before_a_task_starts(
    target: Target, registry: FakeRegistry, value: str, options: dict[str, str | None], error: type, message: str
) -> None:
    registry.add(f"{target.topic}-value", FLIGHT)
    with pytest.raises(Exception, match=message) as raised:
        target.write(target.frame(("EWR", 1.5)).selectExpr(value), **options)
    assert isinstance(error_of(raised.value), error)
    assert "Task" not in str(raised.value)


def test_a_null_that_the_schema_does_not_allow(target: Target, registry: FakeRegistry) -> None:
    registry.add(f"{target.topic}-value", FLIGHT)
    with pytest.raises(Exception, match=f"A row for topic {target.topic} cannot be .*: value.origin is null") as raised:
        target.write(target.frame((None, 1.5)).selectExpr(VALUE))
    assert isinstance(error_of(raised.value), ColumnError)


def test_a_registry_that_is_down_at_the_start(target: Target, registry: FakeRegistry) -> None:
    registry.stop()
    with pytest.raises(Exception, match=r"SchemaRegistryUnavailableError: Subject .*no schema registry .* is"):
        target.write(target.frame(("EWR", 1.5)).selectExpr(VALUE))
    assert target.records() == []


NUMBER = json.dumps({"type": "record", "name": "Number", "fields": [{"name": "n", "type": "int"}]})
STRUCT = "struct(cast(value AS int) AS n) AS value"


@pytest.fixture
def pipe(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, registry: FakeRegistry, tmp_path: Path
) -> Pipe:
    pipe = Pipe(spark, kafka.bootstrap_servers, make_topic(PARTITIONS), make_topic(PARTITIONS), tmp_path / "checkpoint")
    pipe.options = {
        "valueFormat": "avro",
        "schema.registry.url": registry.url,
        "schema.registry.api.timeout.ms": "20000",
    }
    registry.add(f"{pipe.target}-value", NUMBER)
    return pipe


def framed(*numbers: int) -> list[bytes]:
    return sorted(b"\0\0\0\0\1" + bytes([2 * number]) for number in numbers)


def test_streams_exactly_once(pipe: Pipe, registry: FakeRegistry) -> None:
    pipe.produce_numbers(1, 2)
    pipe.run(pipe.frame().selectExpr(STRUCT))
    pipe.produce_numbers(3)
    pipe.run_foreach(foreach_batch_writer(pipe.sink_options()), frame=pipe.frame().selectExpr(STRUCT))
    assert sorted(committed(pipe.servers, pipe.target, PARTITIONS)) == framed(1, 2, 3)
    # Each batch sends one request: the processes that commit need no schema.
    batches = [file for file in (pipe.checkpoint / "commits").iterdir() if file.name.isdigit()]
    assert len([path for path in registry.paths if path.endswith("latest")]) == len(batches)


def test_a_stream_at_least_once_while_the_registry_is_down(pipe: Pipe, registry: FakeRegistry) -> None:
    """The first micro-batch finds the schema; the second one uses it."""
    found = []

    def fault(request: Request) -> Reply | None:
        found.append(request.path)
        return Reply(503) if len(found) > 1 else None

    registry.fault = fault
    options = {"kafka.bootstrap.servers": pipe.servers, "topic": pipe.target, **pipe.options}
    options["schema.registry.api.timeout.ms"] = "2000"
    writer = pipe.frame().selectExpr(STRUCT).writeStream.format("kafka-direct").options(**options)
    query = writer.option("checkpointLocation", str(pipe.checkpoint)).start()
    try:
        for number in (1, 2):
            pipe.produce_numbers(number)
            expected = framed(*range(1, number + 1))
            wait_until(lambda: sorted(committed(pipe.servers, pipe.target, PARTITIONS)) == expected)  # noqa: B023
    finally:
        query.stop()
    assert len(found) > 1
