"""Structs that are written as Protobuf, and read by Confluent's deserializer and by this source."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, timestamp_pb2
from tests.integration.exactly_once import PARTITIONS, Pipe
from tests.integration.read_back import consume
from tests.integration.transactional_batches import committed
from tests.unit.payloads.protobuf_data import file_descriptor, message_class

from pyspark_kafka_direct import ColumnError, OptionError, SchemaNotFoundError, error_of, foreach_batch_writer
from pyspark_kafka_direct.functions import from_protobuf, to_protobuf

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic
    from tests.fake_registry import FakeRegistry

    from pyspark_kafka_direct.broker import EmbeddedKafka

SCHEMA = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Key { int64 id = 1; }
message Flight {
  message Leg { string dest = 1; }
  string origin = 1;
  optional double delay = 2;
  google.protobuf.Timestamp at = 3;
  repeated Leg legs = 4;
  map<string, int32> tags = 5;
  oneof payment { string card = 6; int32 miles = 7; }
}
"""
FLIGHT = message_class(SCHEMA, "shop.Flight")
VALUE = (
    "named_struct('delay', delay, 'origin', origin, 'at', timestamp_millis(5), 'legs', array(struct('MIA' AS dest)), "
    "'tags', map('a', 1)) AS value"
)
MESSAGE = b"\x0a\3EWR\x11\0\0\0\0\0\0\xf8\x3f\x1a\5\x10\xc0\x96\xb1\2\x22\5\x0a\3MIA\x2a\5\x0a\1a\x10\1"


class Target:
    """A topic that is written to, and its subjects."""

    def __init__(self, spark: SparkSession, servers: str, topic: str, registry: FakeRegistry) -> None:
        self.spark, self.servers, self.topic = spark, servers, topic
        self.options = {
            "kafka.bootstrap.servers": servers,
            "topic": topic,
            "valueFormat": "protobuf",
            "valueMessage": "shop.Flight",
        }
        self.registry = {"schema.registry.url": registry.url, "schema.registry.api.timeout.ms": "2000"}

    def frame(self, value: str = VALUE) -> DataFrame:
        rows = [("EWR", 1.5), ("JFK", None)]
        return self.spark.createDataFrame(rows, "origin string, delay double").coalesce(1).selectExpr("7L AS id", value)

    def write(self, frame: DataFrame, **options: str | None) -> None:
        given = {name: text for name, text in {**self.options, **options}.items() if text is not None}
        frame.write.format("kafka-direct").options(**given).mode("append").save()

    def values(self) -> list[bytes | None]:
        return [record.value for record in consume(self.servers, self.topic)]

    def read(self, **options: str) -> list[Any]:
        given = {**self.options, "subscribe": self.topic, **options}
        given.pop("topic")
        rows = self.spark.read.format("kafka-direct").options(**given).load().orderBy("offset").collect()
        return [row.value and row.value.asDict(recursive=True) for row in rows]


@pytest.fixture
def target(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, registry: FakeRegistry) -> Target:
    return Target(spark, kafka.bootstrap_servers, make_topic(1), registry)


@pytest.mark.smoke
def test_a_batch_with_the_schemas_of_subjects(target: Target, registry: FakeRegistry) -> None:
    value_id = registry.add(f"{target.topic}-value", SCHEMA, schemaType="PROTOBUF")
    registry.add(f"{target.topic}-key", SCHEMA, schemaType="PROTOBUF")
    frame = target.frame().selectExpr("struct(id) AS key", "IF(value.delay IS NULL, NULL, value) AS value")
    target.write(frame, keyFormat="protobuf", **target.registry)
    first, second = consume(target.servers, target.topic)
    frame_bytes = b"\0" + value_id.to_bytes(4, "big")
    assert first.value == frame_bytes + b"\2\2" + MESSAGE  # the second message of the schema
    assert first.key == frame_bytes + b"\0" + b"\x08\7"
    assert second.value is None
    deserializer = ProtobufDeserializer(FLIGHT, {"use.deprecated.format": False})
    flight: Any = deserializer(first.value, SerializationContext(target.topic, MessageField.VALUE))
    assert (flight.origin, flight.delay, flight.legs[0].dest, flight.tags["a"]) == ("EWR", 1.5, "MIA", 1)
    assert flight.at.ToMilliseconds() == 5
    assert target.read(**target.registry)[1] is None
    # What is read can be written again.
    options = {**target.options, **target.registry, "subscribe": target.topic}
    del options["topic"]
    again = target.spark.read.format("kafka-direct").options(**options).load().coalesce(1)
    target.write(again.select("value"), **target.registry)
    assert target.values() == [first.value, None] * 2


@pytest.mark.parametrize("is_text", [True, False])
def test_without_a_registry(target: Target, is_text: bool) -> None:
    schema = SCHEMA
    if not is_text:
        schema = base64.b64encode(descriptors()).decode()
    target.write(target.frame(), valueSchema=schema)
    assert target.values()[0] == MESSAGE
    read = target.read(valueSchema=schema)
    assert [(row["origin"], row["delay"], row["legs"], row["card"]) for row in read] == [
        ("EWR", 1.5, [{"dest": "MIA"}], None),
        ("JFK", None, [{"dest": "MIA"}], None),
    ]


def test_a_given_schema_is_looked_up_or_registered(target: Target, registry: FakeRegistry) -> None:
    with pytest.raises(Exception, match="SchemaNotFoundError") as raised:
        target.write(target.frame(), valueSchema=SCHEMA, valueSubjectNameStrategy="record", **target.registry)
    assert isinstance(error_of(raised.value), SchemaNotFoundError)
    assert "Subject 'shop.Flight'" in str(raised.value)
    options = {"valueSchema": SCHEMA, **target.registry}
    target.write(target.frame(), **options, **{"auto.register.schemas": "true"})
    posted = next(
        request for request in registry.requests if request.path == f"/subjects/{target.topic}-value/versions"
    )
    assert posted.content["schemaType"] == "PROTOBUF"
    target.write(target.frame(), **options)
    assert {value and value[:7] for value in target.values()} == {b"\0\0\0\0\1\2\2"}
    assert len(target.read(**target.registry)) == 4


def test_a_schema_with_references(target: Target, registry: FakeRegistry) -> None:
    registry.add("leg", 'syntax = "proto3"; package shop; message Leg { string dest = 1; }', schemaType="PROTOBUF")
    text = 'syntax = "proto3"; package shop; import "leg.proto"; message Flight { repeated Leg legs = 1; }'
    references = [{"name": "leg.proto", "subject": "leg", "version": 1}]
    registry.add("flights", text, schemaType="PROTOBUF", references=references)
    options = {"valueSubject": "flights", **target.registry}
    target.write(target.frame("struct(array(struct('MIA' AS dest)) AS legs) AS value"), **options)
    assert target.values()[0] == b"\0\0\0\0\2\0\x0a\5\x0a\3MIA"
    assert target.read(**options)[0] == {"legs": [{"dest": "MIA"}]}


@pytest.mark.parametrize(
    ("value", "options", "error", "message"),
    [
        ("origin AS value", {}, ColumnError, "value is string, but a struct is written as the message shop.Flight"),
        ("struct(1 AS origin) AS value", {}, ColumnError, "value.origin is int32, .* string of the Protobuf schema"),
        ("struct(1 AS other) AS value", {}, ColumnError, "the message shop.Flight has no field for value.other"),
        (VALUE, {"valueMessage": "Missing"}, OptionError, "valueMessage: the schema has no message type Missing"),
        (VALUE, {"valueSchema": "message"}, OptionError, "valueSchema: "),
        (VALUE, {"valueSchema": None}, OptionError, "valueFormat=protobuf needs the schema: set valueSchema to the t"),
        (VALUE, {"valueFraming": "header"}, OptionError, "valueFraming is confluent or none with valueFormat=protobuf"),
        (VALUE, {"keyFormat": "protobuf", "keySchema": SCHEMA}, ColumnError, "keyFormat=protobuf needs a column named"),
    ],
)
def test_what_is_rejected_before_a_task_starts(
    target: Target, value: str, options: dict[str, str | None], error: type, message: str
) -> None:
    with pytest.raises(Exception, match=message) as raised:
        target.write(target.frame(value), **{"valueSchema": SCHEMA, **options})
    assert isinstance(error_of(raised.value), error)
    assert "Task" not in str(raised.value)


def test_several_members_of_a_oneof(target: Target) -> None:
    with pytest.raises(Exception, match=r"value\.card and value\.miles both have values") as raised:
        target.write(target.frame("struct('x' AS card, 1 AS miles) AS value"), valueSchema=SCHEMA)
    assert isinstance(error_of(raised.value), ColumnError)


def descriptors() -> bytes:
    files = descriptor_pb2.FileDescriptorSet()
    files.file.add().ParseFromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    files.file.append(file_descriptor(SCHEMA))
    data: bytes = files.SerializeToString()
    return data


def test_to_protobuf_and_back(target: Target, tmp_path: Path) -> None:
    (tmp_path / "flights.desc").write_bytes(descriptors())
    frame = target.frame().select("value")
    by_path = frame.select(to_protobuf("value", "shop.Flight", str(tmp_path / "flights.desc")).alias("value"))
    by_bytes = frame.select(to_protobuf("value", "Flight", binaryDescriptorSet=descriptors()).alias("value"))
    values = [bytes(row.value) for row in by_path.union(by_bytes).collect()]
    assert values[0] == values[2] == MESSAGE
    decoded = by_path.select(from_protobuf("value", "shop.Flight", binaryDescriptorSet=descriptors()).alias("value"))
    first, second = decoded.select("value.*").collect()
    assert (first.origin, first.delay, first.tags, second.delay) == ("EWR", 1.5, {"a": 1}, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "to_protobuf: give one of descFilePath and binaryDescriptorSet"),
        ({"descFilePath": "/no/file"}, "to_protobuf: /no/file cannot be read: No such file"),
        ({"binaryDescriptorSet": b"x"}, "to_protobuf: it is not a set of descriptors"),
        ({"binaryDescriptorSet": b"", "options": {"mode": "FAILFAST"}}, "the option mode is not supported"),
    ],
)
def test_invalid_arguments_of_to_protobuf(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        to_protobuf("value", "shop.Flight", **arguments)


def test_to_protobuf_of_another_type(target: Target) -> None:
    frame = target.frame().select(to_protobuf("id", "shop.Flight", binaryDescriptorSet=descriptors()))
    with pytest.raises(Exception, match="to_protobuf: value is int64, but a struct is written as the message"):
        frame.collect()


NUMBER = 'syntax = "proto3"; message Number { int32 n = 1; }'
STRUCT = "struct(cast(value AS int) AS n) AS value"


def test_streams_exactly_once(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, registry: FakeRegistry, tmp_path: Path
) -> None:
    pipe = Pipe(spark, kafka.bootstrap_servers, make_topic(PARTITIONS), make_topic(PARTITIONS), tmp_path / "checkpoint")
    pipe.options = {"valueFormat": "protobuf", "schema.registry.url": registry.url}
    registry.add(f"{pipe.target}-value", NUMBER, schemaType="PROTOBUF")
    pipe.produce_numbers(1, 2)
    pipe.run(pipe.frame().selectExpr(STRUCT))
    pipe.produce_numbers(3)
    pipe.run_foreach(foreach_batch_writer(pipe.sink_options()), frame=pipe.frame().selectExpr(STRUCT))
    expected = sorted(b"\0\0\0\0\1\0\x08" + bytes([number]) for number in (1, 2, 3))
    assert sorted(committed(pipe.servers, pipe.target, PARTITIONS)) == expected
