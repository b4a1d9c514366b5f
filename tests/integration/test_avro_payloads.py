"""``valueFormat=avro`` with a given schema: batches, streams, a malformed record in each mode, and all types."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from confluent_kafka import Producer

from pyspark_kafka_direct import MalformedPayloadError, error_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

pytestmark = pytest.mark.smoke

ERROR = "struct<side string, stage string, class string, message string, schema_id int>"
FIELDS: dict[str, Any] = {
    "origin": "string",
    "delay": ["null", "double"],
    "number": "long",
    "day": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "timestamp-millis"},
    "local": {"type": "long", "logicalType": "local-timestamp-micros"},
    "fare": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
    "carrier": {"type": "enum", "name": "Carrier", "symbols": ["UA", "AA"]},
    "tags": {"type": "map", "values": "int"},
    "legs": {
        "type": "array",
        "items": {"type": "record", "name": "Leg", "fields": [{"name": "dest", "type": ["null", "string"]}]},
    },
    "seat": ["null", "string", "int"],
    "nothing": "null",
}
SCHEMA = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()],
}
FLIGHT = {
    "origin": "JFK",
    "delay": 2.5,
    "number": 1 << 40,
    "day": datetime.date(2013, 1, 1),
    "time": datetime.datetime(2013, 1, 1, 12, 0, 0, 5000, datetime.UTC),
    "local": datetime.datetime(2013, 1, 1, 7, 0, 0, 5),
    "fare": Decimal("-123.45"),
    "carrier": "AA",
    "tags": {"a": 1},
    "legs": [{"dest": "MIA"}, {"dest": None}],
    "seat": 12,
    "nothing": None,
}


def encode(value: dict[str, Any]) -> bytes:
    output = io.BytesIO()
    fastavro.schemaless_writer(output, fastavro.parse_schema(SCHEMA), value)
    return output.getvalue()


VALUES = [encode(FLIGHT), encode({**FLIGHT, "origin": "LGA", "delay": None}), encode(FLIGHT)[:-1], None, b"\0"]


@pytest.fixture(scope="module")
def flights(kafka: EmbeddedKafka, make_topic: MakeTopic) -> str:
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in VALUES:
        producer.produce(topic, value, b"\x06abc", partition=0)
    assert producer.flush(300) == 0
    return topic


@pytest.fixture(scope="module")
def read(spark: SparkSession, kafka: EmbeddedKafka, flights: str) -> Callable[..., DataFrame]:
    def read(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        options = {"valueFormat": "avro", "valueSchema": json.dumps(SCHEMA), "subscribe": flights, **options}
        reader = reader.options(**options)
        return reader.schema(schema).load() if schema else reader.load()

    return read


def test_all_fields_have_the_types_of_the_schema(read: Callable[..., DataFrame]) -> None:
    frame = read(mode="PERMISSIVE")
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<origin:string,delay:double,number:bigint,day:date,time:timestamp,local:timestamp_ntz,"
        "fare:decimal(8,2),carrier:string,tags:map<string,int>,legs:array<struct<dest:string>>,"
        "seat:struct<member0:string,member1:int>,nothing:void>"
    )
    rows = [row.value and row.value.asDict(recursive=True) for row in frame.orderBy("offset").collect()]
    seconds = frame.orderBy("offset").selectExpr("unix_millis(value.time) AS millis").first()
    assert seconds is not None
    assert seconds.millis == 1357041600005
    for row in rows:
        if row:
            row.pop("time")
    expected = {**FLIGHT, "seat": {"member0": None, "member1": 12}}
    del expected["time"]
    none = dict.fromkeys(expected)
    assert rows == [expected, {**expected, "origin": "LGA", "delay": None}, none, None, none]


def test_wanted_fields_and_errors(read: Callable[..., DataFrame]) -> None:
    schema = f"offset bigint, value struct<delay double, number double, _corrupt_record binary>, _error {ERROR}"
    frame = read(schema, mode="PERMISSIVE")
    rows = frame.orderBy("offset").collect()
    assert [row.value and (row.value.delay, row.value.number) for row in rows] == [
        (2.5, float(1 << 40)),
        (None, float(1 << 40)),
        (None, None),
        None,
        (None, None),
    ]
    assert [row.value and row.value._corrupt_record for row in rows] == [None, None, VALUES[2], None, VALUES[4]]
    assert [row._error and row._error.stage for row in rows] == [None, None, "parse", None, "parse"]


def test_malformed_records_can_be_dropped(read: Callable[..., DataFrame]) -> None:
    frame = read("offset bigint, value struct<delay double>", mode="DROPMALFORMED")
    assert sorted(row.offset for row in frame.collect()) == [0, 1, 3]


def test_a_malformed_record_fails_the_query_by_default(read: Callable[..., DataFrame], flights: str) -> None:
    with pytest.raises(Exception, match="The value cannot be decoded as Avro: the datum is incomplete") as caught:
        read("value struct<delay double>").collect()
    error = error_of(caught.value)
    assert isinstance(error, MalformedPayloadError)
    assert f"[topic {flights}, partition 0, offset 2]" in str(error)


def test_keys_in_a_stream(spark: SparkSession, kafka: EmbeddedKafka, flights: str) -> None:
    schema = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "string"}]}
    reader = spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    reader = reader.option("subscribe", flights).option("startingOffsets", "earliest")
    frame = reader.options(keyFormat="avro", keySchema=json.dumps(schema)).load().select("key.id")
    query = frame.writeStream.format("memory").queryName("avro_keys").trigger(availableNow=True).start()
    assert query.awaitTermination(600)
    assert [row.id for row in spark.table("avro_keys").collect()] == ["abc"] * 5


def test_keys_that_are_no_records(spark: SparkSession, kafka: EmbeddedKafka, flights: str) -> None:
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": flights, "keyFormat": "avro"}
    batch = spark.read.format("kafka-direct").options(**options, keySchema='["null", "string"]', mode="PERMISSIVE")
    wrong = batch.schema(f"key string, _error {ERROR}").load()
    assert {row._error.stage for row in wrong.collect()} == {"parse"}  # 6 is not a branch of the union
    given = spark.read.format("kafka-direct").options(**options, keySchema='"string"')
    frame = given.load()
    assert frame.schema["key"].dataType.simpleString() == "string"
    assert [row.key for row in frame.select("key").collect()] == ["abc"] * 5
    assert [bytes(row.k) for row in given.schema("key binary").load().toDF("k").collect()] == [b"abc"] * 5
    with pytest.raises(Exception, match="the Avro schema is string, which cannot be read as int64"):
        given.schema("key bigint").load().collect()
    stream = spark.readStream.format("kafka-direct").options(**options, keySchema='"string"')
    query = (stream.option("startingOffsets", "earliest").load().select("key").writeStream.format("memory")).queryName(
        "avro_strings"
    )
    assert query.trigger(availableNow=True).start().awaitTermination(600)
    assert [row.key for row in spark.table("avro_strings").collect()] == ["abc"] * 5


@pytest.mark.parametrize(("mode", "rows"), [("PERMISSIVE", [None] * 5), ("DROPMALFORMED", [])])
def test_malformed_keys_that_are_no_records(
    spark: SparkSession, kafka: EmbeddedKafka, flights: str, mode: str, rows: list[None]
) -> None:
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": flights, "keyFormat": "avro"}
    reader = spark.read.format("kafka-direct").options(**options, keySchema='"long"')
    assert [row.key for row in reader.option("mode", mode).load().select("key").collect()] == rows
    with pytest.raises(Exception, match="The key cannot be decoded as Avro: bytes after the end of the datum"):
        reader.option("mode", "FAILFAST").load().select("key").collect()
