"""The Avro schemas of a registry, and what a query does when a writer has new fields."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyspark_kafka_direct.errors import SchemaError, SchemaRegistryUnavailableError
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.options.registry_settings import RegistrySettings
from pyspark_kafka_direct.payloads.avro.registry_schemas import RegistrySchemas, new_fields, new_values
from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
from pyspark_kafka_direct.payloads.latest_schemas import fetch_id, fetch_version
from pyspark_kafka_direct.payloads.payload_format import payload_format
from pyspark_kafka_direct.payloads.writer_schemas import WriterSchemaError, most_frequent_first

if TYPE_CHECKING:
    from tests.fake_registry import FakeRegistry

    from pyspark_kafka_direct.options.registry_settings import EvolutionMode, FramingName


def record(record_name: str, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": record_name,
        "fields": [{"name": key, "type": kind} for key, kind in fields.items()],
    }


OLD = json.dumps(record("Order", id="long"))
NAMES = [f"a{number}" for number in range(6)]
HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
NEW = json.dumps(record("Order", id="long", name="string"))


def settings_of(registry: FakeRegistry, api_timeout_ms: int = 120_000) -> RegistrySettings:
    return RegistrySettings((registry.url,), api_timeout_ms=api_timeout_ms)


def test_schemas_of_writers(registry: FakeRegistry) -> None:
    others = {"Id": json.dumps(record("Id", value="long")), "Name": json.dumps(record("Name", value="string"))}
    for name, other in others.items():
        registry.add(name.lower(), other)
    references = [{"name": name, "subject": name.lower(), "version": 1} for name in others]
    text = json.dumps(record("Order", id="Id", name="Name"))
    schema_id = registry.add("t-value", text, references=references)
    schemas = pickle.loads(pickle.dumps(RegistrySchemas(settings_of(registry, 3_000))))
    expected = parse_avro_schema(text, list(others.values()))
    assert schemas.writer_schema(schema_id).root == expected.root
    assert schemas.writer_schema(str(registry.guid_of(schema_id))).root == expected.root
    registry.stop()
    assert schemas.writer_schema(schema_id).root == expected.root
    with pytest.raises(SchemaRegistryUnavailableError):  # it fails the task: the record may be valid
        schemas.writer_schema(schema_id + 1)


def test_schemas_that_values_cannot_be_decoded_with(registry: FakeRegistry) -> None:
    rules = {"domainRules": [{"name": "pii", "type": "ENCRYPT"}]}
    protobuf = registry.add("a", "message A {}", schemaType="PROTOBUF")
    encrypted = registry.add("b", OLD, ruleSet=rules)
    wrong = registry.add("c", "{")
    schemas = RegistrySchemas(settings_of(registry))
    for schema_id, reason in (
        (77, r'Schema id 77: the registry localhost:\d+ does not have it \(error 40403 "Schema not found"\)$'),
        (2**32 - 1, r"Schema id 4294967295: ids are integers from 0 to 2147483647$"),
        (protobuf, r"schema id \d is a schema of PROTOBUF, not of Avro$"),
        (encrypted, r"Schema id \d has rules that encrypt fields or values \('pii'\).*as binary, .*such rules$"),
        (wrong, r"schema id \d cannot be used: "),
    ):
        with pytest.raises(WriterSchemaError, match=reason):
            schemas.writer_schema(schema_id)


def test_the_schema_of_a_reader(registry: FakeRegistry) -> None:
    old_id = registry.add("orders-value", OLD)
    new_id = registry.add("orders-value", NEW)
    latest = fetch_version(settings_of(registry), "orders-value", SidePayload("value", "avro"))
    assert (latest.text, latest.source) == (NEW, f"version 2 of orders-value, schema id {new_id}")
    first = fetch_version(settings_of(registry), "orders-value", SidePayload("value", "avro", version="1"))
    assert (first.text, first.source) == (OLD, f"version 1 of orders-value, schema id {old_id}")
    found = fetch_id(settings_of(registry), old_id, "the plan", SidePayload("value", "avro"))
    assert (found.text, found.source) == (OLD, "the plan")
    registry.add("p-value", "message A {}", schemaType="PROTOBUF")
    with pytest.raises(SchemaError, match=r"version 1 of p-value, schema id \d is a schema of PROTOBUF, not of Avro"):
        fetch_version(settings_of(registry), "p-value", SidePayload("value", "avro"))


def test_a_writer_with_new_fields_fails_the_query_that_should_restart(registry: FakeRegistry) -> None:
    old_id = registry.add("orders-value", OLD)
    settings = settings_of(registry)
    source = f"version 1 of orders-value, schema id {old_id}"
    new_id = registry.add("orders-value", NEW)
    assert registry.add("returns-value", NEW) == new_id
    assert RegistrySchemas(settings).writer_schema(new_id).text == NEW
    schemas = RegistrySchemas(settings, parse_avro_schema(OLD), source)
    assert schemas.writer_schema(old_id).text == OLD
    with pytest.raises(SchemaError) as caught:
        schemas.writer_schema(new_id)
    assert caught.value.message == (
        f"The schema of the writer (schema id {new_id}, version 2 of orders-value, version 1 of returns-value) has "
        f"fields that the schema of the query (version 1 of orders-value, schema id {old_id}) lacks: name. To read "
        "them, start the query again with a new load(). To ignore them, set schemaEvolutionMode=none."
    )


def test_a_new_schema_of_many_records_is_requested_before_one_of_few() -> None:
    writers = pa.array([1, 2, 2, 0], pa.int32())
    assert [*most_frequent_first(writers, ["a", "b", "c"], {"a"})] == [2, 0, 1]
    assert [*most_frequent_first(writers, ["a", "b", "c"], {"a", "b", "c"})] == [0, 1, 2]


@pytest.mark.parametrize(("count", "shown"), [(5, "a0, a1, a2, a3, a4. To"), (6, "a0, a1, a2, a3, a4, .... To")])
def test_the_error_names_at_most_five_new_fields(registry: FakeRegistry, count: int, shown: str) -> None:
    registry.add("t-value", OLD)
    reader = parse_avro_schema(OLD)
    new_id = registry.add("t-value", json.dumps(record("Order", id="long", **dict.fromkeys(NAMES[:count], "int"))))
    with pytest.raises(SchemaError) as caught:
        RegistrySchemas(settings_of(registry), reader).writer_schema(new_id)
    assert f"lacks: {shown} read them" in caught.value.message


@pytest.mark.parametrize("framing", ["confluent", "header"])
@pytest.mark.parametrize("evolution", ["none", "restart"])
def test_a_column_of_values_with_ids(registry: FakeRegistry, framing: FramingName, evolution: EvolutionMode) -> None:
    old_id = registry.add("orders-value", OLD)
    settings = settings_of(registry)
    new_id = registry.add("orders-value", NEW)
    payload = SidePayload("value", "avro", OLD, framing=framing)
    payloads = PayloadSettings(value=payload, registry=settings, evolution=evolution)
    column = payload_format("avro").column(payload, payloads, pa.struct({"id": pa.int64()}), "UTC")
    assert column.needs_headers == (framing == "header")

    def decode(schema_id: int, datum: bytes) -> Any:
        prefix = b"\0" + schema_id.to_bytes(4, "big")
        if framing == "confluent":
            return column.decode(pa.array([prefix + datum])).values.to_pylist()
        headers = pa.array([[{"key": "__value_schema_id", "value": prefix}]], HEADERS)
        return column.decode(pa.array([datum]), headers).values.to_pylist()

    assert decode(old_id, b"\2") == [{"id": 1}]
    if evolution == "restart":
        with pytest.raises(SchemaError, match="lacks: name"):
            decode(new_id, b"\4\2x")
    else:
        assert decode(new_id, b"\4\2x") == [{"id": 2}]


@pytest.mark.parametrize(
    ("writer", "reader", "expected"),
    [
        (record("A", a="long"), record("A", a="long"), []),
        (record("A", a="long"), record("B", a="double", b="long"), []),
        (record("A", a="long", b="long"), record("A", a="long"), ["b"]),
        (record("A", a=record("B", c="long", d="long")), record("A", a=["null", record("B", c="long")]), ["a.d"]),
        (
            record("A", a={"type": "array", "items": record("B", c="long")}, b={"type": "map", "values": "long"}),
            record("A", a={"type": "array", "items": record("B", d="long")}, b={"type": "map", "values": "int"}),
            ["a.c"],
        ),
        (
            record("A", b={"type": "map", "values": record("B", c="long")}),
            record("A", b={"type": "map", "values": record("B", d="long")}),
            ["b.c"],
        ),
        ("long", record("A", a="long"), []),
    ],
)
def test_new_fields_of_writers(writer: Any, reader: Any, expected: list[str]) -> None:
    schemas = [parse_avro_schema(json.dumps(each)).root for each in (writer, reader)]
    assert list(new_fields(*schemas)) == expected


def enum(*symbols: str, name: str = "E", **others: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": [*symbols], **others}


def decimal(precision: int, scale: int, **others: Any) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale, **others}


def time(unit: str) -> dict[str, str]:
    return {"type": "long", "logicalType": f"timestamp-{unit}"}


@pytest.mark.parametrize(
    ("writer", "reader", "expected"),
    [
        (enum("A", "B"), enum("A", "B"), []),
        (enum("A"), enum("B", "A"), []),
        (enum("A", "B", "C"), enum("A", default="A"), ["f (symbol B)", "f (symbol C)"]),
        (["null", enum("A", "B")], ["null", enum("A")], ["f (symbol B)"]),
        ([enum("A", "B"), "int"], ["int", enum("A")], ["f (symbol B)"]),
        ({"type": "array", "items": enum("A", "B")}, {"type": "array", "items": enum("A")}, ["f (symbol B)"]),
        ({"type": "map", "values": enum("A", "B")}, {"type": "map", "values": enum("A")}, ["f (symbol B)"]),
        (record("B", c=enum("A", "B")), record("B", c=enum("A")), ["f.c (symbol B)"]),
        (record("B", c="long"), record("B", c="int"), ["f.c (long instead of int)"]),
        (enum("A"), enum("A", name="O"), ["f (E instead of O)"]),
        (enum("A"), enum("A", name="O", aliases=["E"]), []),
        ("long", "int", ["f (long instead of int)"]),
        ("int", "long", []),
        ("double", "float", ["f (double instead of float)"]),
        ("float", "double", []),
        ("long", "double", []),
        ("string", "bytes", []),
        ("string", "int", ["f (string instead of int)"]),
        (["null", "int"], "int", ["f (null)"]),
        ("int", ["null", "int"], []),
        ("null", "int", ["f (null)"]),
        (["int", "long"], "int", ["f (long instead of int)"]),
        (["int", "long"], ["int", "long"], []),
        (["int", "string"], ["string", "int"], []),
        (["int", "string", "boolean"], ["int", "string"], ["f (boolean)"]),
        (["int", "string", "null"], ["int", "string"], ["f (null)"]),
        (["null", record("B", c="int"), record("C", c="int")], ["null", "string", record("B", c="int")], []),
        (["null", record("B", c="int"), "long"], ["null", record("B", c="int")], ["f (long instead of B)"]),
        ("string", "null", ["f (string instead of null)"]),
        (decimal(12, 2), decimal(10, 2), ["f (decimal(12,2) instead of decimal(10,2))"]),
        (decimal(10, 2), decimal(12, 2), []),
        (decimal(10, 3), decimal(12, 2), ["f (decimal(10,3) instead of decimal(12,2))"]),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 8}, ["f (F instead of F)"]),
        (time("nanos"), time("micros"), ["f (long (timestamp-nanos) instead of long (timestamp-micros))"]),
        (time("nanos"), time("nanos"), []),
        (time("nanos"), "long", []),
        (time("millis"), time("micros"), []),
    ],
)
def test_new_values_of_writers(writer: Any, reader: Any, expected: list[str]) -> None:
    schemas = [parse_avro_schema(json.dumps(record("A", f=each))).root for each in (writer, reader)]
    assert list(new_values(*schemas)) == expected
    assert list(new_fields(*schemas)) == []


def test_records_that_contain_themselves_are_compared_once() -> None:
    def chain(*symbols: str, **others: str) -> Any:
        fields = {"next": ["null", "A"], "kind": enum(*symbols), **others}
        return parse_avro_schema(json.dumps(record("A", **fields))).root

    assert list(new_values(chain("A", "B"), chain("A"))) == ["kind (symbol B)"]
    assert list(new_fields(chain("A", b="int"), chain("A"))) == ["b"]


def test_a_new_symbol_fails_the_query_that_should_restart(registry: FakeRegistry) -> None:
    settings = settings_of(registry)
    registry.add("t-value", json.dumps(record("Order", kind=enum("A", default="A"))))
    reader = parse_avro_schema(json.dumps(record("Order", kind=enum("A", default="A"))))
    new_id = registry.add("t-value", json.dumps(record("Order", kind=enum("A", "B", default="A"))))
    assert RegistrySchemas(settings).writer_schema(new_id)
    with pytest.raises(SchemaError, match=r"has values that the schema .* lacks: kind \(symbol B\)\. To read them"):
        RegistrySchemas(settings, reader).writer_schema(new_id)


def test_an_alias_of_the_reader_is_no_new_field() -> None:
    reader = {"type": "record", "name": "A", "fields": [{"name": "new", "aliases": ["old"], "type": "long"}]}
    assert (
        list(
            new_fields(
                parse_avro_schema(json.dumps(record("A", old="long"))).root, parse_avro_schema(json.dumps(reader)).root
            )
        )
        == []
    )
