"""``valueFormat=protobuf`` with a given schema: batches, streams, and a malformed record in each mode."""

from __future__ import annotations

import base64
import datetime
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, timestamp_pb2
from tests.fake_registry import FakeRegistry
from tests.unit.payloads.protobuf_data import file_descriptor, message_class

from pyspark_kafka_direct import MalformedPayloadError, error_of
from pyspark_kafka_direct.direct import KafkaUtils, OffsetRange
from pyspark_kafka_direct.functions import from_protobuf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

pytestmark = pytest.mark.smoke

ERROR = "struct<side string, stage string, class string, message string, schema_id int>"
SCHEMA = """
syntax = "proto3";
package flights;
import "google/protobuf/timestamp.proto";
message Other { int32 id = 1; }
message Flight {
  enum Carrier { NONE = 0; UA = 1; }
  message Leg { string dest = 1; }
  string origin = 1;
  optional double delay = 2;
  uint64 number = 3;
  Carrier carrier = 4;
  repeated Leg legs = 5;
  map<string, int32> tags = 6;
  google.protobuf.Timestamp time = 7;
}
"""
NAME = "flights.Flight"
FLIGHT = message_class(SCHEMA, NAME)


def encode(**fields: Any) -> bytes:
    flight = FLIGHT(origin="JFK", number=1 << 63, carrier=1, legs=[{"dest": "MIA"}, {}], tags={"a": 1}, **fields)
    flight.time.FromMilliseconds(1357041600005)
    data: bytes = flight.SerializeToString()
    return data


VALUES = [encode(delay=2.5), encode(), encode()[:-1], None, b"\x0a"]


def descriptors() -> bytes:
    files = descriptor_pb2.FileDescriptorSet()
    files.file.add().ParseFromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    files.file.append(file_descriptor(SCHEMA))
    data: bytes = files.SerializeToString()
    return data


@pytest.fixture(scope="module")
def flights(kafka: EmbeddedKafka, make_topic: MakeTopic) -> str:
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in VALUES:
        producer.produce(topic, value, b"\x08\x07", partition=0)
    assert producer.flush(300) == 0
    return topic


@pytest.fixture(scope="module")
def read(spark: SparkSession, kafka: EmbeddedKafka, flights: str) -> Callable[..., DataFrame]:
    def read(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        options = {
            "valueFormat": "protobuf",
            "valueSchema": SCHEMA,
            "valueMessage": NAME,
            "subscribe": flights,
        } | options
        reader = reader.options(**options)
        return reader.schema(schema).load() if schema else reader.load()

    return read


def test_all_fields_have_the_types_of_the_schema(read: Callable[..., DataFrame]) -> None:
    frame = read(mode="PERMISSIVE", keyFormat="protobuf", keySchema=SCHEMA)
    assert frame.schema["key"].dataType.simpleString() == "struct<id:int>"
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<origin:string,delay:double,number:bigint,carrier:string,legs:array<struct<dest:string>>,"
        "tags:map<string,int>,time:timestamp>"
    )
    ordered = frame.orderBy("offset")
    rows = [row.value and row.value.asDict(recursive=True) for row in ordered.collect()]
    times = [row.millis for row in ordered.selectExpr("unix_millis(value.time) AS millis").collect()]
    assert times == [1357041600005, 1357041600005, None, None, None]
    for row in rows:
        if row:
            row.pop("time")
    expected = {"origin": "JFK", "delay": 2.5, "number": -(1 << 63), "carrier": "UA", "tags": {"a": 1}}
    expected["legs"] = [{"dest": "MIA"}, {"dest": None}]
    none = dict.fromkeys(expected)
    assert rows == [expected, {**expected, "delay": None}, none, None, none]
    assert {row.key.id for row in frame.collect()} == {7}


def test_wanted_fields_and_errors(read: Callable[..., DataFrame]) -> None:
    fields = "struct<delay double, number decimal(20,0), carrier int, _corrupt_record binary>"
    encoded = base64.b64encode(descriptors()).decode()
    frame = read(f"offset bigint, value {fields}, _error {ERROR}", mode="PERMISSIVE", valueSchema=encoded)
    rows = frame.orderBy("offset").collect()
    assert [row.value and row.value[:3] for row in rows] == [
        (2.5, 1 << 63, 1),
        (None, 1 << 63, 1),
        (None, None, None),
        None,
        (None, None, None),
    ]
    assert [row.value and row.value._corrupt_record for row in rows] == [None, None, VALUES[2], None, VALUES[4]]
    assert [row._error and row._error.stage for row in rows] == [None, None, "parse", None, "parse"]
    assert rows[4]._error.message == "the message is incomplete, at byte 0"


def test_malformed_records_can_be_dropped(read: Callable[..., DataFrame]) -> None:
    frame = read("offset bigint, value struct<delay double>", mode="DROPMALFORMED")
    assert sorted(row.offset for row in frame.collect()) == [0, 1, 3]


def test_a_malformed_record_fails_the_query_by_default(read: Callable[..., DataFrame], flights: str) -> None:
    with pytest.raises(Exception, match="The value cannot be decoded as Protobuf: the message is incompl") as caught:
        read("value struct<delay double>").collect()
    error = error_of(caught.value)
    assert isinstance(error, MalformedPayloadError)
    assert (error.topic, error.partition, error.offset) == (flights, 0, 2)


def test_a_stream(spark: SparkSession, kafka: EmbeddedKafka, flights: str, tmp_path: Any) -> None:
    options = {"valueFormat": "protobuf", "valueSchema": SCHEMA, "valueMessage": NAME, "subscribe": flights}
    reader = spark.readStream.format("kafka-direct").options(**options, startingOffsets="earliest", mode="PERMISSIVE")
    frame = reader.option("kafka.bootstrap.servers", kafka.bootstrap_servers).load().selectExpr("value.origin")
    writer = frame.writeStream.format("memory").queryName("protobuf_flights").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    assert query.awaitTermination(600)
    assert [row.origin for row in spark.table("protobuf_flights").collect()].count("JFK") == 2


def test_a_schema_registry(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "localhost")
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    context = SerializationContext(topic, MessageField.VALUE)
    with FakeRegistry() as registry:
        serializer = ProtobufSerializer(FLIGHT, SchemaRegistryClient({"url": registry.url}))
        for value in (serializer(FLIGHT.FromString(VALUES[0] or b""), context), VALUES[0]):
            producer.produce(topic, value, partition=0)
        assert producer.flush(300) == 0
        # As Confluent's registry does, return the text instead of the descriptor that its client registered.
        schema_id = registry.add(f"{topic}-value", SCHEMA, schemaType="PROTOBUF")
        options = {"valueFormat": "protobuf", "valueMessage": NAME, "subscribe": topic, "mode": "PERMISSIVE"}
        reader = spark.read.format("kafka-direct").options(**options, **{"schema.registry.url": registry.url})
        frame = reader.option("kafka.bootstrap.servers", kafka.bootstrap_servers).load()
        assert f"schema id {schema_id}" in frame.schema["value"].metadata["comment"]
        rows = frame.orderBy("offset").selectExpr("value.origin", "value.delay").collect()
    assert [(row.origin, row.delay) for row in rows] == [("JFK", 2.5), (None, None)]


def test_descriptors_are_enough_for_ids_whose_text_cannot_be_parsed(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In two topics, in keys and values, in a batch and in a stream."""
    monkeypatch.setenv("no_proxy", "localhost")
    topics = [make_topic(1), make_topic(1)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    with FakeRegistry() as registry:
        for topic in topics:
            registry.add(f"{topic}-key", SCHEMA.replace("proto3", "proto9"), schemaType="PROTOBUF")
            schema_id = registry.add(f"{topic}-value", SCHEMA.replace("proto3", "proto9"), schemaType="PROTOBUF")
            framed = b"\0" + schema_id.to_bytes(4) + b"\2\2" + (VALUES[0] or b"")  # the second message
            producer.produce(topic, framed, framed, partition=0)
        assert producer.flush(300) == 0
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": ",".join(topics),
            "startingOffsets": "earliest",
            "schema.registry.url": registry.url,
            **{f"{side}Format": "protobuf" for side in ("key", "value")},
            **{f"{side}Message": NAME for side in ("key", "value")},
        }
        with pytest.raises(Exception, match=r"to read it nevertheless, set keySchema or valueSchema to the set of"):
            spark.read.format("kafka-direct").options(**options, keySubject=f"{topics[0]}-key").load()
        encoded = base64.b64encode(descriptors()).decode()
        given = {**options, "keySchema": encoded, "valueSchema": encoded}
        fields = ("topic", "key.origin AS key", "value.origin AS value")
        expected = [(topic, "JFK", "JFK") for topic in sorted(topics)]
        rows = spark.read.format("kafka-direct").options(**given).load().selectExpr(*fields).orderBy("topic").collect()
        assert [tuple(row) for row in rows] == expected
        stream = spark.readStream.format("kafka-direct").options(**given).load().selectExpr(*fields)
        writer = stream.writeStream.format("memory").queryName("unparsable").trigger(availableNow=True)
        assert writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(600)
        assert [tuple(row) for row in spark.table("unparsable").orderBy("topic").collect()] == expected


EMPTY = """
syntax = "proto3";
message Inner { int32 number = 1; }
message Empty {
  enum Color { RED = 0; }
  int32 number = 1; string text = 2; bool flag = 3; Color color = 4; bytes data = 5; double real = 6; Inner inner = 7;
  optional int32 maybe = 8; repeated int32 several = 9; oneof choice { int32 one = 10; Inner other = 11; }
}
"""
PROTOBUF_EMPTY = {"Format": "protobuf", "Schema": EMPTY, "Message": "Empty"}
ZERO = {"number": 0, "text": "", "flag": False, "color": "RED", "data": b"", "real": 0.0}
NONE = dict.fromkeys(ZERO)


def test_defaults(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path) -> None:
    """The option does what it does for Spark's function, in keys and values, batches and streams, and an RDD."""
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    data = message_class(EMPTY, "Empty")(inner={}).SerializeToString()
    producer.produce(topic, data, data, partition=0)
    assert producer.flush(300) == 0
    payloads = {f"{side}{name}": value for side in ("key", "value") for name, value in PROTOBUF_EMPTY.items()}
    options = {**payloads, "kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic}
    others: dict[str, Any] = {"maybe": None, "several": [], "one": None, "other": None}
    frame = spark.createDataFrame([(data,)], "data binary")
    for given, expected in (("false", {**NONE, "inner": {"number": None}}), ("true", {**ZERO, "inner": {"number": 0}})):
        reader = spark.read.format("kafka-direct").options(**options).option("emit.default.values", given)
        (row,) = reader.load().collect()
        assert row.key.asDict(recursive=True) == row.value.asDict(recursive=True) == {**expected, **others}
        function = from_protobuf(
            "data",
            "Empty",
            binaryDescriptorSet=descriptor_pb2.FileDescriptorSet(file=[file_descriptor(EMPTY)]).SerializeToString(),
            options={"emit.default.values": given},
        )
        assert frame.select(function.alias("value")).first().value == row.value  # type: ignore[union-attr]
        stream = spark.readStream.format("kafka-direct").options(**options).option("startingOffsets", "earliest")
        writer = stream.option("emit.default.values", given).load().writeStream.format("memory")
        query = writer.queryName(f"defaults_{given}").trigger(availableNow=True)
        assert query.option("checkpointLocation", str(tmp_path / given)).start().awaitTermination(600)
        assert spark.table(f"defaults_{given}").first().value == row.value  # type: ignore[union-attr]
        rdd = KafkaUtils.createRDD(
            spark.sparkContext, {"bootstrap.servers": kafka.bootstrap_servers}, [OffsetRange(topic, 0, 0, 1)]
        )
        (batch,) = rdd.arrow(["value"], **payloads, options={"emit.default.values": given}).collect()
        assert batch.to_pylist() == [{"value": row.value.asDict(recursive=True)}]


def test_from_protobuf(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(VALUES[0],), (VALUES[2],), (None,)], "value binary")
    options = {"mode": "PERMISSIVE", "upcast.unsigned.ints": "true"}
    flight = from_protobuf("value", NAME, binaryDescriptorSet=descriptors(), options=options)
    rows = frame.select(flight.alias("flight")).select("flight.number", "flight.time", "flight.legs").collect()
    assert [row.number for row in rows] == [1 << 63, None, None]
    assert rows[0].time.astimezone(datetime.UTC).year == 2013
    assert [leg.dest for leg in rows[0].legs] == ["MIA", None]
