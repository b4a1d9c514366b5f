"""Producers whose schemas have fields that Spark has no type for, while streams run."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import Row
from tests.unit.payloads.avro_data import encode

from pyspark_kafka_direct import OptionError, error_of
from pyspark_kafka_direct.functions import from_avro

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic
    from tests.fake_registry import FakeRegistry

    from pyspark_kafka_direct.broker import EmbeddedKafka

# As Kafka Connect writes a NUMERIC column without a precision
DECIMAL = {
    "type": "bytes",
    "scale": 2,
    "precision": 64,
    "connect.version": 1,
    "connect.parameters": {"scale": "2", "connect.decimal.precision": "64"},
    "connect.name": "org.apache.kafka.connect.data.Decimal",
    "logicalType": "decimal",
}


def table(*fields: tuple[str, Any], name: str = "Value") -> dict[str, Any]:
    members = [{"name": field, "type": ["null", kind], "default": None} for field, kind in fields]
    return {"type": "record", "name": name, "namespace": None, "fields": members}


KEY = table(("id", "long"), name="Key")
OLD = table(("id", "long"))
NEW = table(("id", "long"), ("amount", DECIMAL), ("all", {"type": "array", "items": DECIMAL}), ("parent", "Value"))
NEW_KEY = table(("id", "long"), ("number", DECIMAL), name="Key")


class Topics:
    """Topics of one schema each for keys and values, in the subjects of the first topic."""

    def __init__(self, kafka: EmbeddedKafka, registry: FakeRegistry, *names: str) -> None:
        self.names = names
        self._registry = registry
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        self.options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": ",".join(names),
            "startingOffsets": "earliest",
            "keyFormat": "avro",
            "valueFormat": "avro",
            "keySubject": f"{names[0]}-key",
            "valueSubject": f"{names[0]}-value",
            "schema.registry.url": registry.url,
        }

    def write(self, key_schema: Any, schema: Any, **values: Any) -> None:
        """Write a record to each topic."""
        for name in self.names:
            key = self._framed("key", key_schema, {"id": values["id"], "number": Decimal(7)})
            self._producer.produce(name, self._framed("value", schema, values), key)
        assert self._producer.flush(300) == 0

    def _framed(self, side: str, schema: Any, values: dict[str, Any]) -> bytes:
        schema_id = self._registry.add(f"{self.names[0]}-{side}", json.dumps(schema))
        fields = {field["name"] for field in schema["fields"]}
        datum = encode(schema, {name: value for name, value in values.items() if name in fields})
        return b"\0" + struct.pack(">I", schema_id) + datum


@pytest.fixture
def topics(kafka: EmbeddedKafka, make_topic: MakeTopic, registry: FakeRegistry) -> Topics:
    return Topics(kafka, registry, make_topic(1), make_topic(1))


def test_a_producer_adds_columns_while_streams_run(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.write(KEY, OLD, id=1)
    selected = "topic string, key struct<id bigint>, value struct<id bigint>"
    names: list[str] = []
    queries: list[Any] = []
    for schema in (None, selected):
        reader = spark.readStream.format("kafka-direct").options(**topics.options)
        frame = (reader.schema(schema) if schema else reader).load()
        name = f"columns_{len(names)}_{topics.names[0].replace('-', '_')}"
        writer = frame.selectExpr("topic", "key.id AS key", "value.id").writeStream.format("memory").queryName(name)
        queries.append(writer.option("checkpointLocation", str(tmp_path / name)).start())
        names.append(name)
    for query in queries:
        query.processAllAvailable()
    amount = Decimal("9" * 60 + ".99")
    topics.write(NEW_KEY, NEW, id=2, amount=amount, all=[amount], parent={"id": 1, "parent": {"id": 0}})
    topics.write(KEY, OLD, id=3)
    for name, query in zip(names, queries, strict=True):
        query.processAllAvailable()
        query.stop()
        rows = spark.table(name).orderBy("topic", "key").collect()
        assert rows == [Row(topic=topic, key=key, id=key) for topic in sorted(topics.names) for key in (1, 2, 3)]


def test_wanted_fields_that_spark_has_no_type_for(spark: SparkSession, topics: Topics) -> None:
    for amount in (Decimal("12.34"), Decimal("9" * 60 + ".99")):
        topics.write(NEW_KEY, NEW, id=1, amount=amount, all=[amount], parent={"id": 5, "parent": {"id": 6}})

    def read(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("kafka-direct").options(**topics.options).options(**options)
        return reader.schema(schema).load() if schema else reader.load()

    with pytest.raises(
        Exception,
        match=r"version 1 of .*-key, schema id 1: field 'number': Spark's decimals have at .*decimal\(38,2\)",
    ) as error:
        read()
    assert isinstance(error_of(error.value), OptionError)
    with pytest.raises(Exception, match=r"field 'parent': the record Value contains itself.*\.schema\(\)"):
        read(keySchema=json.dumps(KEY), valueSchema=json.dumps(table(("parent", "Value"))))
    schema = (
        "offset bigint, value struct<amount decimal(38,2), all array<binary>, parent struct<parent struct<id bigint>>>"
    )
    rows = read(schema, mode="PERMISSIVE").orderBy("offset").collect()
    value = Row(amount=Decimal("12.34"), all=[(1234).to_bytes(2)], parent=Row(parent=Row(id=6)))
    assert [row.value for row in rows] == [value] * 2 + [Row(amount=None, all=None, parent=None)] * 2
    numbers = read("offset bigint, key struct<number binary>").collect()
    assert [row.key for row in numbers] == [Row(number=(700).to_bytes(2))] * 4

    # The sink writes with the latest schema: null for the columns that the frame lacks.
    written = spark.createDataFrame([(Row(id=9),)], "value struct<id bigint>")
    sink = {
        name: value
        for name, value in topics.options.items()
        if name in ("kafka.bootstrap.servers", "valueFormat", "valueSubject", "schema.registry.url")
    }
    written.write.format("kafka-direct").options(**sink, topic=topics.names[1]).mode("append").save()
    (row,) = read("topic string, offset bigint, value struct<id bigint, amount binary>").where("value.id = 9").collect()
    assert row.value.amount is None


def test_functions(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(bytearray(encode(NEW, {"id": 1, "amount": Decimal("1.50")})),)], "data binary")
    with pytest.raises(
        OptionError, match=r"^from_avro: field 'amount': .* set avroSchema to the schema without the field"
    ):
        from_avro("data", json.dumps(NEW))
    for avro_type, expected in ((None, None), ({**DECIMAL, "precision": 38}, Decimal("1.50")), ("bytes", b"\0\x96")):
        reader = table(("id", "long"), *([("amount", avro_type)] if avro_type else []))
        (row,) = frame.select(
            from_avro("data", json.dumps(NEW), {"avroSchema": json.dumps(reader)}).alias("v")
        ).collect()
        assert row.v.asDict() == {"id": 1} | ({"amount": expected} if avro_type else {})
