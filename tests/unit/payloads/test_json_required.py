"""Fields that a JSON Schema requires: null is written if the schema allows it, and is an error otherwise."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafka_direct.payloads.column_encoder import (
    ColumnEncoder,
    InvalidRowError,
    SchemaMismatchError,
    check_encodable,
)
from pyspark_kafka_direct.payloads.decoded_values import MAX_SCHEMA_DEPTH
from pyspark_kafka_direct.payloads.json.encoder_settings import JsonEncoderSettings

NULLABLE = {"type": ["integer", "null"]}
INTEGER = {"type": "integer"}
INNER = pa.struct({"n": pa.int32()})
_NULL = {"type": "null"}


def an_object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required]}


def settings(schema: Any, references: Any = None) -> JsonEncoderSettings:
    others = tuple((name, json.dumps(other)) for name, other in (references or {}).items())
    return JsonEncoderSettings(source="schema id 7", text=json.dumps(schema), references=others)


def written(schema: Any, rows: list[Any], data_type: pa.DataType, column: str = "value", references: Any = None) -> Any:
    values = pa.array([None, *rows], data_type)
    return ColumnEncoder(column, settings(schema, references)).encode(values.slice(1)).to_pylist()


def test_a_null_is_written_if_its_field_is_required() -> None:
    schema = an_object("id", "zip", id=INTEGER, zip=NULLABLE, other=NULLABLE)
    data_type = pa.struct({"id": pa.int32(), "zip": pa.int32(), "other": pa.int32(), "more": pa.string()})
    rows = [{"id": 1, "zip": 2, "other": 3, "more": "x"}, {"id": 1}, None]
    assert written(schema, rows, data_type) == [
        b'{"id":1,"zip":2,"other":3,"more":"x"}',
        b'{"id":1,"zip":null}',
        None,
    ]
    all_null = pa.struct({"id": pa.int32(), "zip": pa.null()})
    assert written(schema, [{"id": 1}], all_null) == [b'{"id":1,"zip":null}']
    only_null = pa.struct({"zip": pa.int32()})
    assert written(an_object("zip", zip=NULLABLE), [{"zip": None}], only_null) == [b'{"zip":null}']


@pytest.mark.parametrize("column", ["key", "value"])
def test_a_null_is_an_error_if_its_schema_does_not_allow_it(column: str) -> None:
    schema = an_object("id", "o", id=INTEGER, o=an_object("n", n=INTEGER))
    data_type = pa.struct({"id": pa.int32(), "o": INNER})
    assert written(schema, [{"id": 1, "o": {"n": 1}}, None], data_type, column) == [b'{"id":1,"o":{"n":1}}', None]
    for row, path in (({"o": {"n": 1}}, "id"), ({"id": 1}, "o"), ({"id": 1, "o": {"n": None}}, "o.n")):
        with pytest.raises(InvalidRowError, match=rf"^{column}\.{path} is null, which the JSON schema") as caught:
            written(schema, [{"id": 1, "o": {"n": 1}}, None, row], data_type, column)
        assert caught.value.row == 2


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (INTEGER, False),
        (NULLABLE, True),
        ({}, True),
        (True, True),
        (False, False),
        ({"type": "null"}, True),
        ({"oneOf": [_NULL, INTEGER]}, True),
        ({"anyOf": [INTEGER, _NULL]}, True),
        ({"oneOf": [INTEGER, {"type": "string"}]}, False),
        ({"allOf": [NULLABLE, INTEGER]}, False),
        ({"allOf": [NULLABLE, {}]}, True),
        ({"enum": [1, None]}, True),
        ({"enum": [1]}, False),
        ({"type": ["integer", "null"], "enum": [1]}, False),
        ({"const": None}, True),
        ({"const": 1}, False),
        ({"$ref": "#/definitions/N", "definitions": {"N": NULLABLE}}, True),
        ({"$ref": "#/definitions/N", "definitions": {"N": INTEGER}}, False),
        ({"$ref": "#/definitions/a~1b%20c", "definitions": {"a/b c": INTEGER}}, False),
        ({"oneOf": [_NULL, {"$ref": "#/definitions/N"}], "definitions": {"N": INTEGER}}, True),
        ({"$ref": "#/definitions/missing"}, True),
        ({"$ref": "other.json"}, False),
        ({"$ref": "other.json#/definitions/N"}, True),
        ({"$ref": "unknown.json#/definitions/N"}, True),
        ({"$ref": "#anchor", "definitions": {"N": {"$anchor": "anchor", **NULLABLE}}}, True),
        ({"$ref": "#anchor", "definitions": {"N": {"$anchor": "anchor", **INTEGER}}}, False),
        ({"$ref": "#anchor", "definitions": {"N": {"$id": "#anchor", **INTEGER}}}, False),
        ({"$ref": "#missing", "definitions": {"N": INTEGER}}, True),
        ({"$ref": "other.json#anchor"}, False),
        ({"$ref": "http://host/n.json", "definitions": {"N": {"$id": "http://host/n.json", **INTEGER}}}, False),
        ({"$ref": "n.json#anchor", "definitions": {"N": {"$id": "http://host/n.json", "of": [INTEGER]}}}, True),
        ({"$ref": "n.json", "definitions": {"N": {"$id": "http://host/n.json", **INTEGER}}}, False),
        ({"$ref": "parent.json#/definitions/N", "definitions": {"N": INTEGER}}, False),
        ({"$ref": "#/definitions/A", "definitions": {"A": {"$ref": "#/definitions/A"}}}, True),
    ],
)
def test_schemas_that_allow_null(schema: Any, expected: bool) -> None:
    named = {"anchored": {"$anchor": "anchor", **INTEGER}}
    other = {"type": "integer", "definitions": {"N": {"$ref": "#/definitions/M"}, "M": NULLABLE, **named}}
    parent = an_object("f", f=schema) | {"$id": "http://host/parent.json"}
    if isinstance(schema, dict):
        parent["definitions"] = schema.get("definitions", {})
    arguments = parent, [{"f": None}], pa.struct({"f": pa.int32()})
    if expected:
        assert written(*arguments, references={"other.json": other}) == [b'{"f":null}']
    else:
        with pytest.raises(InvalidRowError, match=r"^value\.f is null, which the JSON schema does not allow$"):
            written(*arguments, references={"other.json": other})


@pytest.mark.parametrize(
    "schema",
    [
        an_object("n", n=NULLABLE),
        {"oneOf": [_NULL, an_object("n", n=NULLABLE)]},
        {"anyOf": [an_object("n", n=NULLABLE), _NULL]},
        {"allOf": [an_object(n=NULLABLE), {"required": ["n"]}]},
        {"$ref": "#/definitions/I"},
        {"oneOf": [_NULL, {"$ref": "#/definitions/I"}]},
        {"allOf": [{"$ref": "#/definitions/I"}]},
        {"$ref": "#/definitions/chain"},
        {"type": "object", "required": ["n"], "additionalProperties": NULLABLE},
    ],
)
def test_fields_of_nested_objects(schema: Any) -> None:
    definitions = {"I": an_object("n", n=NULLABLE), "chain": {"allOf": [{"$ref": "#/definitions/I"}]}}
    nested = an_object(o=schema, a={"type": "array", "items": schema}, m={"additionalProperties": schema})
    data_type = pa.struct({"o": INNER, "a": pa.list_(INNER), "m": pa.map_(pa.string(), INNER)})
    null = {"n": None}
    rows = [{"o": null, "a": [null, None, {"n": 1}], "m": [("x", null), ("y", None)]}]
    assert written({**nested, "definitions": definitions}, rows, data_type) == [
        b'{"o":{"n":null},"a":[{"n":null},null,{"n":1}],"m":{"x":{"n":null},"y":null}}'
    ]
    nested["properties"] = {
        name: {"allOf": [{"description": "x"}, each]} for name, each in nested["properties"].items()
    }
    assert written({**nested, "definitions": definitions}, rows, data_type) == [
        b'{"o":{"n":null},"a":[{"n":null},null,{"n":1}],"m":{"x":{"n":null},"y":null}}'
    ]
    assert written(True, rows, data_type) == [b'{"o":{},"a":[{},null,{"n":1}],"m":{"x":{},"y":null}}']


@pytest.mark.parametrize("name", ["o", "a", "m", "aa"])
def test_a_null_in_a_nested_object_has_its_row(name: str) -> None:
    inner = an_object("n", n=INTEGER)
    array = {"type": "array", "items": inner}
    schema = an_object(o=inner, a=array, m={"additionalProperties": inner}, aa={"items": array})
    data_type = pa.struct(
        {"o": INNER, "a": pa.list_(INNER), "m": pa.map_(pa.string(), INNER), "aa": pa.list_(pa.list_(INNER))}
    )
    good, bad = {"n": 1}, {"n": None}
    values: dict[str, tuple[Any, Any]] = {
        "o": (good, bad),
        "a": ([None, good], [good, bad]),
        "m": ([("x", None)], [("x", good), ("y", bad)]),
        "aa": ([[good], None, []], [[], [good, None, bad]]),
    }
    rows = [None, {}, {name: values[name][0]}, {name: None}, {name: values[name][0]}]
    assert len(written(schema, rows, data_type)) == 5
    with pytest.raises(InvalidRowError, match=rf"value\.{name}\.n is null, which the JSON schema") as caught:
        written(schema, [*rows, {name: values[name][1]}, *rows], data_type)
    assert caught.value.row == 5


def test_each_schema_of_a_field_may_forbid_its_null() -> None:
    for parts in (
        [an_object(n=NULLABLE), an_object("n", n=INTEGER)],
        [an_object("n", n=INTEGER), an_object(n=NULLABLE)],
    ):
        with pytest.raises(InvalidRowError, match=r"value\.n is null"):
            written({"allOf": parts}, [{"n": None}], INNER)
    both = {"allOf": [an_object(n=NULLABLE), an_object("n", n=NULLABLE)]}
    assert written(both, [{"n": None}], INNER) == [b'{"n":null}']


def test_a_struct_that_lacks_a_required_field() -> None:
    schema = an_object("id", "zip", id=INTEGER, o=an_object("n", "more", n=INTEGER))
    for data_type, message in (
        (pa.struct({"id": pa.int32()}), "value lacks the field zip, which the JSON Schema requires (schema id 7)"),
        (pa.struct({"id": pa.int32(), "zip": pa.int32(), "o": INNER}), "value.o lacks the field more, which the JSON"),
    ):
        with pytest.raises(SchemaMismatchError) as caught:
            check_encodable("value", settings(schema), data_type)
        assert str(caught.value).startswith(message)
    check_encodable("value", settings(schema), pa.string())
    check_encodable("value", settings(schema), pa.map_(pa.string(), pa.int32()))


@pytest.mark.parametrize("text", ["", "[", "1", "[]", "null", '{"required": 1, "properties": [], "allOf": {}}'])
def test_a_schema_that_is_not_valid_requires_nothing(text: str) -> None:
    encoder = ColumnEncoder("value", JsonEncoderSettings(text=text))
    assert encoder.encode(pa.array([{"n": None}], INNER)).to_pylist() == [b"{}"]


def test_references_that_multiply_are_read_once() -> None:
    definitions: dict[str, Any] = {
        f"A{level}": {"anyOf": [{"$ref": f"#/definitions/A{level + 1}"}] * 3} for level in range(60)
    }
    definitions["A60"] = INTEGER
    schema = {**an_object("n", n={"$ref": "#/definitions/A0"}), "definitions": definitions}
    with pytest.raises(InvalidRowError, match=r"value\.n is null"):
        written(schema, [{"n": None}], INNER)


def test_a_long_chain_of_references() -> None:
    chain = {f"d{n}": {"allOf": [{"$ref": f"#/definitions/d{n + 1}"}]} for n in range(5000)}
    schema = {**an_object("n", n={"$ref": "#/definitions/d0"}), "definitions": {**chain, "d5000": NULLABLE}}
    with pytest.raises(SchemaMismatchError, match="value: the JSON Schema refers from part to part too many times"):
        settings(schema).compile(INNER, "value")


def test_a_schema_that_refers_to_itself() -> None:
    schema = {**an_object("next", "n", next={"oneOf": [_NULL, {"$ref": "#"}]}, n=NULLABLE)}
    data_type = pa.struct({"next": pa.struct({"next": pa.null(), "n": pa.int32()}), "n": pa.int32()})
    row = {"next": {"next": None, "n": None}, "n": None}
    assert written(schema, [row], data_type) == [b'{"next":{"next":null,"n":null},"n":null}']
    deep: pa.DataType = pa.null()
    for _ in range(MAX_SCHEMA_DEPTH - 1):
        deep = pa.struct({"next": deep, "n": pa.int32()})
    assert written(schema, [{"n": 1}], deep) == [b'{"next":null,"n":1}']
