"""Avro values whose schemas are in a registry: one that fails, schemas that change, and topics with other values."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.fake_registry import FakeRegistry, Reply
from tests.integration.waiting import wait_until

from pyspark_kafka_direct import MalformedPayloadError, OptionError, SchemaError, SchemaRegistryError, error_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka


def order(**fields: Any) -> str:
    """Return the schema of a record with fields that are null by default."""
    described = [{"name": name, "type": ["null", kind], "default": None} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": described})


V1 = order(id="long")
V2 = order(id="long", name="string")


class Orders:
    """A topic that Confluent's serializers write to."""

    def __init__(self, servers: str, topic: str, registry: FakeRegistry) -> None:
        self.topic = topic
        self._servers = servers
        self._producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        self._registry = SchemaRegistryClient({"url": registry.url})
        self.options = {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "valueFormat": "avro",
            "schema.registry.url": registry.url,
            "schema.registry.api.timeout.ms": "2000",
        }

    def write(self, schema: str, *orders: dict[str, Any], in_headers: bool = False) -> None:
        settings = {"schema.id.serializer": header_schema_id_serializer} if in_headers else None
        serializer = AvroSerializer(self._registry, schema, conf=settings)
        for values in orders:
            headers: list[tuple[str, bytes]] = []
            value = serializer(values, SerializationContext(self.topic, MessageField.VALUE, headers))
            self.write_bytes(value, headers)

    def write_bytes(self, value: bytes | None, headers: list[tuple[str, bytes]] | None = None) -> None:
        self._producer.produce(self.topic, value, headers=headers, partition=0)
        assert self._producer.flush(300) == 0


@pytest.fixture
def orders(kafka: EmbeddedKafka, make_topic: MakeTopic, registry: FakeRegistry) -> Orders:
    return Orders(kafka.bootstrap_servers, make_topic(1), registry)


@pytest.fixture
def read(spark: SparkSession, orders: Orders) -> Callable[..., DataFrame]:
    def read(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("kafka-direct").options(**{**orders.options, **options})
        return reader.schema(schema).load() if schema else reader.load()

    return read


def values(frame: DataFrame) -> list[Any]:
    rows = [row.value for row in frame.orderBy("offset").select("value").collect()]
    return [row and tuple(row) for row in rows]


def test_values_of_several_schemas_have_the_fields_of_the_latest_one(
    orders: Orders, read: Callable[..., DataFrame], registry: FakeRegistry
) -> None:
    orders.write(V1, {"id": 1}, {"id": 2})
    orders.write(V2, {"id": 3, "name": "c"})
    orders.write(V1, {"id": 4})
    frame = read()
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,name:string>"
    assert frame.schema["value"].metadata["comment"] == f"version 2 of {orders.topic}-value, schema id 2"
    assert values(frame) == [(1, None), (2, None), (3, "c"), (4, None)]
    assert values(read("offset bigint, value struct<name string>")) == [(None,), (None,), ("c",), (None,)]
    assert values(read(valueSchemaVersion="1")) == [(1,), (2,), (3,), (4,)]
    assert values(read(valueSchema=V1)) == [(1,), (2,), (3,), (4,)]
    assert values(read(valueSubject=f"{orders.topic}-value", valueSubjectNameStrategy="record"))[2] == (3, "c")


def test_the_latest_version_is_resolved_once_for_a_query(
    orders: Orders, read: Callable[..., DataFrame], registry: FakeRegistry
) -> None:
    orders.write(V1, {"id": 1})
    frame = read()
    orders.write(V2, {"id": 2, "name": "b"})
    assert values(frame) == [(1,), (2,)]
    assert values(read()) == [(1, None), (2, "b")]


def test_references(orders: Orders, read: Callable[..., DataFrame], registry: FakeRegistry) -> None:
    registry.add(
        "name", json.dumps({"type": "record", "name": "Name", "fields": [{"name": "first", "type": "string"}]})
    )
    text = json.dumps({"type": "record", "name": "Person", "fields": [{"name": "name", "type": "Name"}]})
    references = [{"name": "Name", "subject": "name", "version": 1}]
    schema_id = registry.add(f"{orders.topic}-value", text, references=references)
    orders.write_bytes(struct.pack(">bI", 0, schema_id) + b"\6Ada")
    assert read().selectExpr("value.name.first").collect()[0][0] == "Ada"


def test_a_topic_with_other_values(orders: Orders, read: Callable[..., DataFrame]) -> None:
    """It has values that are framed, framed in headers, bare, null, truncated, and of a schema that does not exist."""
    orders.write(V1, {"id": 1})
    orders.write(V1, {"id": 2}, in_headers=True)
    orders.write_bytes(b"bare")
    orders.write_bytes(None)
    orders.write_bytes(struct.pack(">bI", 0, 77) + b"\2\2")
    orders.write_bytes(struct.pack(">bI", 0, 1) + b"\2")
    orders.write_bytes(b"\0\0")
    orders.write(V1, {"id": 3})

    error = "struct<side string, stage string, class string, message string, schema_id int>"
    schema = f"offset bigint, value struct<id bigint, _corrupt_record binary>, _error {error}"
    rows = read(schema, mode="PERMISSIVE", valueFraming="header").orderBy("offset").collect()
    assert [row.value and row.value.id for row in rows] == [1, 2, None, None, None, None, None, 3]
    assert [row._error and row._error.schema_id for row in rows] == [None, None, None, None, 77, 1, None, None]
    messages = [row._error and row._error.message for row in rows]
    assert [message is None for message in messages] == [True, True, False, True, False, False, False, True]
    assert "magic byte of a schema id" in messages[2]
    assert "does not have it (error 40403" in messages[4]
    assert "the value ends within its schema id, at byte 2" in messages[6]
    assert rows[2].value._corrupt_record == b"bare"
    dropped = read("offset bigint, value struct<id bigint>", mode="DROPMALFORMED", valueFraming="header")
    assert values(dropped) == [(1,), (2,), None, (3,)]
    with pytest.raises(Exception, match="magic byte") as caught:  # FAILFAST is the default
        values(read(valueFraming="header"))
    found = error_of(caught.value)
    assert isinstance(found, MalformedPayloadError)
    assert (found.topic, found.offset) == (orders.topic, 2)


def test_a_registry_outage(orders: Orders, read: Callable[..., DataFrame], registry: FakeRegistry) -> None:
    orders.write(V1, {"id": 1})
    frame = read(mode="PERMISSIVE")
    registry.fault = lambda _: Reply(500, {"error_code": 50001, "message": "down"})
    read(mode="PERMISSIVE").explain()  # the plan needs the schema of the query, which this application has found before
    with pytest.raises(Exception, match=r"no schema registry of schema.registry.url is available") as caught:
        values(frame)  # not nulls: the records are valid
    assert isinstance(error_of(caught.value), SchemaRegistryError)
    registry.fault = None
    assert values(frame) == [(1,)]


def test_a_stream_whose_schema_changes(
    spark: SparkSession, orders: Orders, registry: FakeRegistry, tmp_path: Path
) -> None:
    orders.write(V1, {"id": 1})

    def run(**options: str) -> list[Any]:
        """Read what is new until the checkpoint, and return all rows so far."""
        frame = spark.readStream.format("kafka-direct").options(**{**orders.options, **options}).load()
        query = (
            frame.selectExpr("offset", "to_json(value) AS value")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(600)
        rows = spark.read.parquet(str(tmp_path / "rows")).orderBy("offset").collect()
        return [json.loads(row.value) for row in rows]

    earliest = {"startingOffsets": "earliest"}
    assert run(**earliest) == [{"id": 1}]

    orders.write(V2, {"id": 2, "name": "b"})
    with pytest.raises(Exception, match=r"version 2 of .*lacks: name") as caught:
        run(valueSchemaVersion="1", schemaEvolutionMode="restart")
    assert "version 1 of" in str(caught.value)
    assert run(schemaEvolutionMode="restart") == [{"id": 1}, {"id": 2, "name": "b"}]
    orders.write(order(id="long", name="string", price="double"), {"id": 3, "name": "c", "price": 1.5})
    assert run(valueSchemaVersion="2", schemaEvolutionMode="none")[2] == {"id": 3, "name": "c"}


def test_a_writer_with_new_fields_while_a_query_runs(spark: SparkSession, orders: Orders, tmp_path: Path) -> None:
    orders.write(V1, {"id": 1})
    options = {**orders.options, "startingOffsets": "earliest"}
    names: list[str] = []
    queries: dict[str, Any] = {}
    for mode in ("none", "restart"):
        frame = spark.readStream.format("kafka-direct").options(**options, schemaEvolutionMode=mode).load()
        name = f"evolution_{mode}_{orders.topic.replace('-', '_')}"
        writer = frame.select("value.*").writeStream.format("memory").queryName(name)
        queries[mode] = writer.option("checkpointLocation", str(tmp_path / mode)).start()
        queries[mode].processAllAvailable()
        names.append(name)
    orders.write(V2, {"id": 2, "name": "b"})
    wait_until(lambda: spark.table(names[0]).count() == 2, "the second record")
    assert sorted(row.id for row in spark.table(names[0]).collect()) == [1, 2]
    queries["none"].stop()
    with pytest.raises(Exception, match=r"version 2 of .*lacks: name"):
        queries["restart"].awaitTermination(600)
    assert isinstance(error_of(queries["restart"].exception()), SchemaError)


def test_executors_request_each_schema_once(
    orders: Orders, read: Callable[..., DataFrame], registry: FakeRegistry
) -> None:
    orders.write(V1, *({"id": number} for number in range(50)))
    orders.write(V2, {"id": 50, "name": "x"})
    frame = read(minPartitions="4")
    before = len(registry.requests)
    assert len(values(frame)) == 51
    paths = [path for path in registry.paths[before:] if path.startswith("GET /schemas/ids/1")]
    assert 1 <= len(paths) <= 4  # one for each worker process


def test_errors_before_a_query_starts(read: Callable[..., DataFrame], orders: Orders) -> None:
    for options, message in (
        ({}, "Subject .*-value', version latest: the registry localhost:.* does not have it"),
        ({"valueSubjectNameStrategy": "record"}, "set valueSubject, or valueSchema to an Avro schema"),
        ({"subscribe": f"{orders.topic},other"}, "the subject does not follow from the topics"),
    ):
        with pytest.raises(Exception, match=message) as caught:
            read(**options)
        assert isinstance(error_of(caught.value), OptionError | SchemaRegistryError)
