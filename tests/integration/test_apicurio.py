"""A real Apicurio registry with Confluent's serializers: values that they write and read, and schemas that change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError as ConfluentError
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.apicurio import Apicurio, app_folder, find_java
from tests.integration.read_back import Consumed, consume
from tests.integration.registry_formats import FORMATS, Format
from tests.integration.stream_queries import produce
from tests.integration.waiting import wait_until

from pyspark_kafka_direct import SchemaNotFoundError, SchemaRegistryError, error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

pytestmark = pytest.mark.soak

ERROR = "_error struct<side string, stage string, class string, message string, schema_id int>"
BACKWARD, NONE = ConfigCompatibilityLevel.BACKWARD, ConfigCompatibilityLevel.NONE


@pytest.fixture(scope="module")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    """Return the registry; a test that stops it starts it again."""
    java = find_java()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", "127.0.0.1")
        with Apicurio(java, app_folder(), tmp_path_factory.mktemp("apicurio")) as registry:
            yield registry


class Orders:
    """A topic of orders, its subject, and what Confluent's clients write and read there."""

    def __init__(self, spark: SparkSession, servers: str, topic: str, registry: Apicurio, payloads: Format) -> None:
        self.spark, self.servers, self.topic, self.format = spark, servers, topic, payloads
        self.subject = f"{topic}-value"
        self.client = SchemaRegistryClient({"url": registry.url})
        self._producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        self._serializers: dict[str, Callable[[dict[str, Any], SerializationContext], bytes]] = {}
        self.options = {
            "kafka.bootstrap.servers": servers,
            "valueFormat": payloads.name,
            "schema.registry.url": registry.url,
            "schema.registry.api.timeout.ms": "10000",
            **payloads.framing,
        }

    def serialize(self, schema: str, order: dict[str, Any], **settings: object) -> None:
        """Write an order with the serializer of its schema, which has these settings."""
        if schema not in self._serializers:
            self._serializers[schema] = self.format.serializer(self.client, schema, **settings)
        context = SerializationContext(self.topic, MessageField.VALUE, [])
        self.put(self._serializers[schema](order, context))

    def put(self, value: bytes, **record: Any) -> None:
        self._producer.produce(self.topic, value, partition=0, **record)
        assert self._producer.flush(300) == 0

    def set_compatibility(self, level: ConfigCompatibilityLevel) -> None:
        self.client.set_config(self.subject, ServerConfig(compatibility=level))

    def register(self, schema: str) -> int:
        return int(self.client.register_schema(self.subject, Schema(schema, self.format.name.upper())))

    def read(self, fields: str, **options: str) -> DataFrame:
        """Return a batch with these fields of orders, and errors."""
        given = {**self.options, "subscribe": self.topic, "mode": "PERMISSIVE", **options}
        schema = f"offset bigint, value struct<{fields}>, {ERROR}"
        return self.spark.read.format("kafka-direct").options(**given).schema(schema).load().orderBy("offset")

    def stream(self, fields: str, rows: list[Any], checkpoint: Path) -> StreamingQuery:
        """Start a query that adds these fields of orders, and errors, to rows."""
        options = {**self.options, "subscribe": self.topic, "startingOffsets": "earliest", "mode": "PERMISSIVE"}
        schema = f"offset bigint, value struct<{fields}, _corrupt_record binary>, {ERROR}"
        frame = self.spark.readStream.format("kafka-direct").options(**options).schema(schema).load()
        writer = frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        return writer.option("checkpointLocation", str(checkpoint)).start()

    def write(self, value: str, **options: str) -> None:
        """Write one value, which is an expression."""
        given = {**self.options, "topic": self.topic}
        given |= {name.replace("_", "."): option for name, option in options.items()}
        frame = self.spark.sql(f"SELECT {value} AS value")
        frame.write.format("kafka-direct").options(**given).mode("append").save()

    def records(self) -> list[Consumed]:
        return consume(self.servers, self.topic)

    def deserialized(self, schema: str = "") -> list[dict[str, Any]]:
        """Return the orders that Confluent's deserializer reads; a new client knows no schema."""
        client = SchemaRegistryClient({"url": self.options["schema.registry.url"]})
        schema = schema or self.format.third
        return [self.format.deserialize(client, self.topic, schema, record) for record in self.records()]


@pytest.fixture
def make_orders(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, apicurio: Apicurio
) -> Callable[[str], Orders]:
    def make(name: str) -> Orders:
        return Orders(spark, kafka.bootstrap_servers, make_topic(1), apicurio, FORMATS[name])

    return make


def fields_of(rows: list[Any]) -> list[tuple[Any, ...]]:
    """Return the offsets, ids and names of orders, and the schema ids of errors."""
    rows = sorted(rows, key=lambda row: row.offset)
    return [(row.offset, row.value.id, row.value.name, row._error and row._error.schema_id) for row in rows]


@pytest.mark.parametrize("name", FORMATS)
def test_a_stream_whose_writers_change_their_schema(
    make_orders: Callable[[str], Orders], apicurio: Apicurio, tmp_path: Path, name: str
) -> None:
    orders = make_orders(name)
    schemas = orders.format
    orders.serialize(schemas.first, {"id": 1, "name": "a"})
    orders.set_compatibility(BACKWARD)
    rows: list[Any] = []
    query = orders.stream("id bigint, name string", rows, tmp_path)

    def wait_for(count: int) -> None:
        def is_read() -> bool:
            failure = query.exception()
            if failure is not None:
                raise failure
            return len(rows) >= count

        wait_until(is_read, f"{count} rows of {name}")

    try:
        wait_for(1)
        orders.serialize(schemas.second, {"id": 2, "name": "b", "price": 1.5})
        with pytest.raises(ConfluentError, match=r"[Ii]ncompatible"):
            orders.serialize(schemas.incompatible, {"id": schemas.incompatible_id, "name": "no"})
        wait_for(2)
        orders.set_compatibility(NONE)
        orders.serialize(schemas.incompatible, {"id": schemas.incompatible_id, "name": "c"})
        incompatible_id = orders.client.get_latest_version(orders.subject).schema_id
        wait_for(3)
        apicurio.stop()
        orders.serialize(schemas.first, {"id": 4, "name": "d"})
        orders.serialize(schemas.second, {"id": 5, "name": "e", "price": 2.5})
        wait_for(5)
        apicurio.start()
        orders.serialize(schemas.third, {"id": 6, "name": "f", "price": 3.5, "note": "n"})
        wait_for(6)
    finally:
        apicurio.start()
        query.stop()
    good = [(0, 1, "a", None), (1, 2, "b", None), (3, 4, "d", None), (4, 5, "e", None), (5, 6, "f", None)]
    assert fields_of([row for row in rows if row._error is None]) == good
    (bad,) = (row for row in rows if row._error is not None)
    assert (bad.offset, bad.value.id, bad._error.schema_id) == (2, None, incompatible_id)
    assert bad.value._corrupt_record == orders.records()[2].value

    # The same query with a new load() reads the fields of the latest schema. Its last batch may run again.
    more: list[Any] = []
    query = orders.stream("id bigint, name string, price double, note string", more, tmp_path)
    try:
        orders.serialize(schemas.first, {"id": 7, "name": "g"})
        orders.serialize(schemas.third, {"id": 8, "name": "h", "price": 4.5})
        wait_until(lambda: {6, 7} <= {row.offset for row in more}, "two more rows")
    finally:
        query.stop()
    price = 9.5 if name == "avro" else None
    read = [tuple(row.value)[:4] for row in more if row.offset > 5]
    assert read == [(7, "g", price, None), (8, "h", 4.5, None)]
    batch = orders.read("id bigint, price double").collect()
    prices = [price, 1.5, None, price, 2.5, 3.5, price, 4.5]
    assert [(row.value.id, row.value.price) for row in batch] == [
        (None if offset == 2 else offset + 1, each) for offset, each in enumerate(prices)
    ]


@pytest.mark.parametrize("name", FORMATS)
def test_confluents_deserializers_read_what_the_sink_writes(make_orders: Callable[[str], Orders], name: str) -> None:
    orders = make_orders(name)
    schemas = orders.format
    first, second = "struct(1L AS id, 'a' AS name)", "struct(2L AS id, 'b' AS name, 1.5D AS price)"

    def rejected(value: str, **options: str) -> SchemaRegistryError:
        with pytest.raises(Exception, match=r"SchemaRegistryError|SchemaNotFoundError") as raised:
            orders.write(value, **options)
        error = error_of(raised.value)
        assert isinstance(error, SchemaRegistryError)
        return error

    for options in ({}, {"valueSchema": schemas.first}):
        error = rejected(first, **options)
        assert isinstance(error, SchemaNotFoundError)
        assert "error 40401" in str(error)

    # The schema of a serializer, which is a descriptor with Protobuf, is the latest one.
    orders.serialize(schemas.first, {"id": 1, "name": "a"})
    orders.write(first)
    orders.set_compatibility(BACKWARD)
    orders.write(second, valueSchema=schemas.second, auto_register_schemas="true")
    orders.write(second, valueSchema=schemas.second)
    orders.write(second)
    third = "struct(3L AS id, 'c' AS name, 2.5D AS price, 'n' AS note)"
    assert "error 40403" in str(rejected(third, valueSchema=schemas.third))
    incompatible = {"avro": "'x'", "protobuf": "3L", "json": "'x'"}[name]
    error = rejected(
        f"struct({incompatible} AS id, 'x' AS name)", valueSchema=schemas.incompatible, auto_register_schemas="true"
    )
    assert "HTTP 409" in str(error)
    assert "ncompatible" in str(error)
    orders.write(third, valueSchema=schemas.third, auto_register_schemas="true")
    orders.write(first, valueSchemaVersion="1")
    if name != "protobuf":
        orders.write(third, valueFraming="header")
        assert dict(orders.records()[-1].headers).keys() == {"__value_schema_id"}

    read = [{key: each for key, each in order.items() if each} for order in orders.deserialized()]
    rows = {1: {"id": 1, "name": "a"}, 2: {"id": 2, "name": "b", "price": 1.5}}
    rows[3] = {"id": 3, "name": "c", "price": 2.5, "note": "n"}
    assert read == [rows[number] for number in (1, 1, 2, 2, 2, 3, 1, *([] if name == "protobuf" else [3]))]
    fields = "id bigint, name string, price double, note string"
    framing = {} if name == "protobuf" else {"valueFraming": "header"}
    ours = [row.value.asDict() for row in orders.read(fields, **framing).collect()]
    prices = {} if name != "avro" else {"price": 9.5}
    assert [{key: each for key, each in order.items() if each is not None} for order in ours] == [
        {**prices, **order} for order in read
    ]

    orders.client.delete_version(orders.subject, 2)
    assert "error 40402" in str(rejected(second, valueSchemaVersion="2"))
    orders.client.delete_subject(orders.subject)
    assert "error 40401" in str(rejected(third))
    # Registries find schemas of deleted subjects by their ids.
    with_schema = {} if name == "json" else {"valueSchema": schemas.first}
    assert [row.value.name for row in orders.read("name string", **framing, **with_schema).collect()] == [
        order["name"] for order in read
    ]


@pytest.mark.parametrize("name", FORMATS)
def test_a_stream_writes_with_the_latest_schema(
    spark: SparkSession,
    make_orders: Callable[[str], Orders],
    make_topic: MakeTopic,
    apicurio: Apicurio,
    tmp_path: Path,
    name: str,
) -> None:
    orders = make_orders(name)
    source = make_topic(1)
    versions = [orders.register(orders.format.second)]
    numbers = spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", orders.servers)
    frame = numbers.option("subscribe", source).option("startingOffsets", "earliest").load()
    values = frame.selectExpr(
        "struct(CAST(CAST(value AS string) AS bigint) AS id, 'n' AS name, 0.5D AS price) AS value"
    )
    writer = values.writeStream.format("kafka-direct").options(**orders.options, topic=orders.topic)
    query = writer.option("checkpointLocation", str(tmp_path)).start()

    def write(number: int) -> None:
        produce(orders.servers, source, [number])
        wait_until(lambda: len(orders.records()) == number, f"the order {number}")

    try:
        write(1)
        versions.append(orders.register(orders.format.third))
        write(2)
        apicurio.stop()
        write(3)
    finally:
        apicurio.start()
        query.stop()
    ids = [int.from_bytes((record.value or b"")[1:5], "big") for record in orders.records()]
    assert ids == [versions[0], versions[1], versions[1]]
    read = orders.deserialized()
    assert [(each["id"], each["name"], each["price"]) for each in read] == [(n, "n", 0.5) for n in (1, 2, 3)]
    assert [each.get("note") or None for each in read] == [None] * 3


LINE = {
    "avro": '{"type": "record", "name": "Line", "namespace": "shop", "fields": [{"name": "sku", "type": "string"}]}',
    "protobuf": 'syntax = "proto3"; package shop; message Line { string sku = 1; }',
}
CART = {
    "avro": '{"type": "record", "name": "Cart", "namespace": "shop", "fields": [{"name": "line", "type": "Line"}]}',
    "protobuf": 'syntax = "proto3"; package shop; import "line.proto"; message Cart { Line line = 1; }',
}


@pytest.mark.parametrize("name", LINE)
def test_references(make_orders: Callable[[str], Orders], name: str) -> None:
    orders = make_orders(name)
    line, kind = f"{orders.topic}-line", name.upper()
    orders.client.register_schema(line, Schema(LINE[name], kind))
    reference = SchemaReference("shop.Line" if name == "avro" else "line.proto", line, 1)
    orders.client.register_schema(orders.subject, Schema(CART[name], kind, references=[reference]))
    orders.write("struct(struct('x' AS sku) AS line)")
    if name == "avro":
        assert orders.deserialized() == [{"line": {"sku": "x"}}]
    assert [row.value.line.sku for row in orders.read("line struct<sku string>").collect()] == ["x"]


@pytest.mark.parametrize("framing", ["confluent", "header"])
def test_ids_that_the_registry_does_not_have(make_orders: Callable[[str], Orders], framing: str) -> None:
    """It has no GUIDs at all, and no schema with this id: such records do not fail the query."""
    orders = make_orders("avro")
    orders.serialize(orders.format.first, {"id": 1, "name": "a"})
    orders.put(b"\0\0\0\x4d\x4d\2\2a")
    guid = b"\1" + uuid4().bytes
    if framing == "header":
        orders.put(b"\2\2a", headers=[("__value_schema_id", guid)])
    orders.put(guid + b"\2\2a")
    orders.serialize(orders.format.first, {"id": 2, "name": "b"})
    rows = orders.read("id bigint", valueFraming=framing).collect()
    assert [row.value.id for row in rows if row._error is None] == [1, 2]
    messages = [row._error.message for row in rows if row._error is not None]
    assert "does not have it (error 40403" in messages[0]
    assert all("does not find schemas by GUIDs" in message for message in messages[1:])
    assert len(messages) == len(rows) - 2 == (3 if framing == "header" else 2)


def test_options_of_confluents_serializers(make_orders: Callable[[str], Orders]) -> None:
    """Apicurio compares normalized schemas by default, and does not change the text of a schema."""
    for name in ("avro", "json"):
        orders = make_orders(name)
        spaced = json.dumps(json.loads(orders.format.first), indent=2)
        orders.serialize(spaced, {"id": 1, "name": "a"}, normalize_schemas=True)
        orders.serialize(
            orders.format.first, {"id": 2, "name": "b"}, auto_register_schemas=False, use_latest_version=True
        )
        assert fields_of(orders.read("id bigint, name string").collect()) == [(0, 1, "a", None), (1, 2, "b", None)]


def test_a_required_null_of_json(make_orders: Callable[[str], Orders]) -> None:
    """Confluent's deserializer compares values with the schema, and a field that is missing is not null."""
    orders = make_orders("json")
    orders.register(json.dumps({**json.loads(orders.format.third), "required": ["id", "note"]}))
    orders.write("struct(1L AS id, CAST(NULL AS string) AS name, CAST(NULL AS string) AS note)")
    assert orders.deserialized() == [{"id": 1, "note": None}]
