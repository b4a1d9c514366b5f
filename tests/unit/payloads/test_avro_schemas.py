"""Avro schemas that are rejected, and limits of those that come from other hosts."""

from __future__ import annotations

import json
import pickle
import time
from typing import Any

import pytest

from pyspark_kafka_direct.payloads.avro.avro_types import (
    AvroSchemaError,
    FixedType,
    PrimitiveType,
    RecordType,
    UnionType,
)
from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema


def fields(*types: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "JSON"),
        ("[" * 100_000, "levels|JSON"),
        ("schemas/flight.avsc", "an Avro schema is JSON, not the path of a file"),
        ('"unknown"', "there is no such type: unknown"),
        ("5", "this is no type: 5"),
        ('["int", "int"]', "two branches of the type int"),
        ('["int", ["null"]]', "may not contain a union"),
        ('{"type":"array"}', "'items' is missing"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "a symbol twice"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "none of its symbols"),
        ('{"type":"enum","name":"E","symbols":["A","1"]}', "no symbol of an enum"),
        ('{"type":"fixed","name":"F","size":-1}', "the size of a fixed type"),
        ('{"type":"record","name":"1","fields":[]}', "no name of a type"),
        ('{"type":"record","name":"R","fields":[{"name":"a`b","type":"int"}]}', "no name of a field"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}', "same name"),
        ('{"type":"record","name":"int","fields":[]}', "a type of Avro has this name"),
        (json.dumps(fields({"type": "fixed", "name": "R", "size": 1})), "two types have the same name"),
        (json.dumps({"type": "fixed", "name": "F" * 1001, "size": 1}), "no name of a type"),
        ('{"type":"fixed","name":"F","aliases":["G",5],"size":1}', "aliases are a list of names"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"int","aliases":["b",5]}]}', "list of names"),
        (json.dumps({"type": "fixed", "name": "F", "namespace": "n" * 1001, "size": 1}), "no namespace"),
    ],
)
def test_no_schema(schema: str, message: str) -> None:
    with pytest.raises(AvroSchemaError, match=message):
        parse_avro_schema(schema)


def test_a_name_may_have_a_thousand_characters() -> None:
    name = "F" * 1000
    schema = parse_avro_schema(json.dumps({"type": "fixed", "name": name, "namespace": "n" * 1000, "size": 1}))
    assert schema.root == FixedType(f"{'n' * 1000}.{name}", (), 1, None)


def test_a_record_may_contain_itself() -> None:
    node = {"type": "record", "name": "org.Node", "fields": [{"name": "next", "type": ["null", "org.Node"]}]}
    schema = parse_avro_schema(json.dumps(fields(node, "org.Node")))
    assert isinstance(schema.root, RecordType)
    inner = schema.root.fields[0].type
    assert isinstance(inner, RecordType)
    assert inner.is_recursive
    assert not schema.root.is_recursive
    assert inner.fields[0].type == UnionType((PrimitiveType("null"), inner))
    assert repr(schema) == "AvroSchema(R)"
    assert len(repr(inner)) < 200


def test_comments_are_found_in_linear_time() -> None:
    for text in ("/* " * 330_000, "/*" * 490_000, '"\\"' * 330_000, "//" * 490_000, "/* */" * 190_000):
        started = time.process_time()
        with pytest.raises(AvroSchemaError, match="JSON"):
            parse_avro_schema(text)
        assert time.process_time() - started < 120


def test_depth_is_limited() -> None:
    schema: Any = "int"
    for _ in range(50):
        schema = {"type": "array", "items": schema}
    parse_avro_schema(json.dumps(schema))
    for _ in range(10):
        schema = {"type": "array", "items": schema}
    with pytest.raises(AvroSchemaError, match="levels"):
        parse_avro_schema(json.dumps(schema))


def test_types_that_multiply_are_limited() -> None:
    types: list[Any] = [{"type": "record", "name": "T0", "fields": [{"name": "x", "type": "int"}]}]
    for number in range(1, 50):
        inner = [{"name": side, "type": f"T{number - 1}"} for side in ("a", "b")]
        types.append({"type": "record", "name": f"T{number}", "fields": inner})
    with pytest.raises(AvroSchemaError, match="a named type counts as often as it is used"):
        parse_avro_schema(json.dumps(fields(*types)))


def test_each_schema_may_have_the_limit_of_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_kafka_direct.payloads.avro.schema.MAX_SCHEMA_TYPES", 10)
    references = [json.dumps({**fields(*["int"] * 8), "name": name}) for name in ("A", "B")]
    assert parse_avro_schema(json.dumps(fields(*["int"] * 9)), references).references == tuple(references)
    assert parse_avro_schema(json.dumps(fields("A")), references).root
    for types in (["int"] * 10, ["A", "B"]):
        with pytest.raises(AvroSchemaError, match="a named type counts as often as it is used"):
            parse_avro_schema(json.dumps(fields(*types)), references)


@pytest.mark.parametrize(("namespace", "name"), [("org", "org.P"), ("", "P")])
def test_a_type_may_be_used_before_its_definition(namespace: str, name: str) -> None:
    """Of a name without a namespace, the one in the namespace around it counts first."""
    point = {"type": "fixed", "name": "P", "namespace": namespace, "size": 2}
    schema = parse_avro_schema(json.dumps({**fields("P", point, "P"), "namespace": "org"}))
    assert isinstance(schema.root, RecordType)
    assert [field.type for field in schema.root.fields] == [FixedType(name, (), 2, None)] * 3


def test_a_name_without_a_namespace_is_that_of_the_namespace_around_it() -> None:
    other = {"type": "fixed", "name": "P", "size": 1}
    inner = {"type": "fixed", "name": "org.P", "size": 2}
    within = {**fields("P"), "namespace": "org"}
    for types in ((other, inner, within), (within, inner, other)):
        schema = parse_avro_schema(json.dumps(fields(*types) | {"name": "Outer"}))
        assert isinstance(schema.root, RecordType)
        (found,) = [each.type for each in schema.root.fields if isinstance(each.type, RecordType)]
        assert found.fields[0].type == FixedType("org.P", (), 2, None)


def test_size_is_limited() -> None:
    with pytest.raises(AvroSchemaError, match="1 MiB"):
        parse_avro_schema(json.dumps(fields("int")) + " " * (1 << 20))
    with pytest.raises(AvroSchemaError, match="1 MiB"):
        parse_avro_schema('"int"', ['"int"' + " " * (1 << 20)])


def test_a_schema_is_pickled_as_its_text() -> None:
    schema = parse_avro_schema(json.dumps(fields("int", {"type": "array", "items": "string"})))
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert len(pickle.dumps(schema)) < 400
