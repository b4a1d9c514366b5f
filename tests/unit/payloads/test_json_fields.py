"""The fields of JSON Schemas: types, alternatives, references, and schemas that Spark has no type for."""

from __future__ import annotations

import json
import random
import time
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

from pyspark_kafka_direct.payloads.ddl import checked_type
from pyspark_kafka_direct.payloads.json.json_fields import JsonSchemaError, json_schema_ddl

INTEGER, STRING, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def ddl(schema: Any, **references: Any) -> str:
    others = [(name.replace("_", "."), json.dumps(other)) for name, other in references.items()]
    found = json_schema_ddl(json.dumps(schema), others, "do x")
    assert checked_type(found, "valueSchema") == found
    return found


def type_of(schema: Any, **definitions: Any) -> str:
    found = ddl({**an_object(f=schema), "definitions": definitions})
    return found.removeprefix("struct<`f`: ").removesuffix(">")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (INTEGER, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "boolean"),
        (STRING, "string"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "date-time"}, "timestamp_ltz"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "string", "format": "time"}, "string"),
        ({"format": "date"}, "date"),
        ({"title": "x", "format": "date"}, "date"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"type": "string", "connect.type": "bytes"}, "binary"),
        ({"type": "integer", "connect.type": "int32"}, "int"),
        ({"type": "integer", "connect.type": "int8"}, "tinyint"),
        ({"type": "integer", "format": "int64"}, "bigint"),
        ({"type": "integer", "minimum": 0, "maximum": 2**64 - 1}, "decimal(20,0)"),
        ({"allOf": [INTEGER, {"maximum": 2**64 - 1}]}, "decimal(20,0)"),
        ({"type": "integer", "maximum": 2**63 - 1}, "bigint"),
        ({"type": "integer", "maximum": 2**63}, "decimal(20,0)"),
        ({"type": "integer", "maximum": 2**64}, "bigint"),
        ({"type": "number", "connect.type": "float32"}, "float"),
        # Null
        ({"type": ["integer", "null"]}, "bigint"),
        ({"type": ["null", "string"], "format": "date"}, "date"),
        ({"oneOf": [NULL, INTEGER]}, "bigint"),
        ({"anyOf": [{"enum": [None]}, an_object(n=INTEGER)]}, "struct<`n`: bigint>"),
        (NULL, "string"),
        # Alternatives
        ({"type": ["integer", "number"]}, "double"),
        ({"type": ["integer", "string", "null"]}, "string"),
        ({"oneOf": [INTEGER, {"type": "number"}, NULL]}, "double"),
        ({"oneOf": [{"type": "integer", "connect.type": "int8"}, INTEGER]}, "bigint"),
        ({"oneOf": [INTEGER, {"type": "number", "format": "float"}]}, "double"),
        ({"oneOf": [STRING, {"type": "string", "format": "date"}]}, "string"),
        ({"oneOf": [STRING, an_object(n=INTEGER)]}, "string"),
        (
            {"oneOf": [an_object(a=INTEGER, b=STRING), an_object(a={"type": "number"}, c=STRING)]},
            "struct<`a`: double,`b`: string,`c`: string>",
        ),
        (
            {"oneOf": [an_object(a=STRING, b={"type": "number"}), an_object(a=STRING, b=INTEGER)]},
            "struct<`a`: string,`b`: double>",
        ),
        (
            {**an_object(a=INTEGER), "anyOf": [{"properties": {"b": STRING}}, {"required": ["a"]}]},
            "struct<`a`: bigint,`b`: string>",
        ),
        ({"oneOf": [{"type": "array", "items": INTEGER}, {"type": "array", "items": STRING}]}, "array<string>"),
        ({"oneOf": [INTEGER, {}]}, "string"),
        ({"allOf": [an_object(a=INTEGER), an_object(b=STRING)]}, "struct<`a`: bigint,`b`: string>"),
        ({"allOf": [INTEGER, {"maximum": 5}]}, "bigint"),
        ({"allOf": [{"type": "number"}, INTEGER]}, "bigint"),
        ({"allOf": [{"type": ["integer", "string"]}, {"type": ["number", "null"]}]}, "bigint"),
        ({"allOf": [STRING, INTEGER]}, "string"),
        ({"allOf": [{"type": "integer", "format": "x"}, {"connect.type": "int32"}]}, "int"),
        ({"allOf": [{"type": "number", "format": "x"}, {"connect.type": "float32"}]}, "float"),
        ({"allOf": [{"type": "string", "format": "x"}, {"format": "date"}]}, "date"),
        ({"allOf": [STRING, {"contentEncoding": "base64"}]}, "binary"),
        ({"allOf": [{"type": "object"}, {"patternProperties": {"^a": INTEGER}}]}, "map<string,bigint>"),
        ({"allOf": [{"description": "x"}, {"enum": [1]}]}, "bigint"),
        # Arrays
        ({"type": "array", "items": INTEGER}, "array<bigint>"),
        ({"type": "array"}, "array<string>"),
        ({"allOf": [{"type": "array"}, {"items": INTEGER}]}, "array<bigint>"),
        ({"type": "array", "items": True}, "array<string>"),
        ({"items": {"type": "array", "items": an_object(n=INTEGER)}}, "array<array<struct<`n`: bigint>>>"),
        ({"type": "array", "items": [INTEGER, {"type": "number"}]}, "array<double>"),
        ({"type": "array", "prefixItems": [INTEGER], "items": STRING}, "array<string>"),
        # Maps
        ({"type": "object", "additionalProperties": INTEGER}, "map<string,bigint>"),
        ({"type": "object", "additionalProperties": {"type": ["string", "null"]}}, "map<string,string>"),
        ({"type": "object", "patternProperties": {"^a": INTEGER, "^b": {"type": "number"}}}, "map<string,double>"),
        ({"patternProperties": []}, "string"),
        # What a schema does not say
        ({"type": "object"}, "string"),
        ({}, "string"),
        (True, "string"),
        (5, "string"),
        ({"type": 5}, "string"),
        ({"type": "decimal"}, "string"),
        ({"enum": ["a", "b"]}, "string"),
        ({"enum": [1, None]}, "bigint"),
        ({"const": 1.5}, "double"),
        ({"enum": [1, "a"]}, "string"),
        ({"const": True}, "boolean"),
    ],
)
def test_types(schema: Any, expected: str) -> None:
    assert type_of(schema) == expected


def test_references() -> None:
    item = {"$ref": "#/definitions/item"}
    assert type_of(item, item=an_object(n=INTEGER)) == "struct<`n`: bigint>"
    assert ddl({**an_object(a=item, b={"items": item}), "definitions": {"item": INTEGER}}) == (
        "struct<`a`: bigint,`b`: array<bigint>>"
    ), "twice is no recursion"
    assert ddl({"$ref": "#/$defs/row", "$defs": {"row": an_object(n=INTEGER)}}) == "struct<`n`: bigint>"
    other = {"definitions": {"price": {"type": "number"}, "row": an_object(p={"$ref": "#/definitions/price"})}}
    assert ddl(an_object(o={"$ref": "other.json#/definitions/row"}), first_json=INTEGER, other_json=other) == (
        "struct<`o`: struct<`p`: double>>"
    )
    for name in ("~", "/", "~1", "~0", "~01/~", "a b", "%", "%25", "é", "0"):  # as JSON Pointers and URLs escape them
        escaped = quote(name.replace("~", "~0").replace("/", "~1"))
        assert ddl({**an_object(a={"$ref": f"#/$defs/{escaped}"}), "$defs": {name: INTEGER}}) == "struct<`a`: bigint>"
    anchored = {**an_object(a={"$ref": "#here"}), "$defs": {"x": {"$anchor": "here", **INTEGER}}}
    assert ddl(anchored) == "struct<`a`: bigint>"
    anchored["$defs"] = {"x": {"$anchor": "other", "$dynamicAnchor": "here", **INTEGER}}
    assert ddl(anchored) == "struct<`a`: bigint>"
    base = {"$ref": "#/definitions/base"}
    variants = [{"allOf": [base, {"properties": {name: STRING}}]} for name in "ab"]
    inherited = {"allOf": [base], "oneOf": variants, "definitions": {"base": an_object(id=INTEGER)}}
    assert ddl(inherited) == "struct<`id`: bigint,`a`: string,`b`: string>"


def test_references_to_ids_and_places_in_lists() -> None:
    address = "http://x/order.json"
    fragment = "#/definitions/n"
    # Draft 4 writes ids with an empty fragment. An id or a reference may be relative to the id of the document.
    for keyword, own in (("$id", address), ("id", f"{address}#")):
        for reference in (address + fragment, f"order.json{fragment}", "item.json", "http://x/item.json", "#/list/1"):
            fields = an_object(f={"$ref": reference})
            definitions = {"n": INTEGER, "i": {keyword: "item.json", **INTEGER}}
            schema = {keyword: own, **fields, "definitions": definitions, "list": [STRING, INTEGER]}
            assert ddl(schema) == "struct<`f`: bigint>", (keyword, reference)
    other = {"$id": "http://x/other.json", **INTEGER}
    assert ddl(an_object(f={"$ref": "http://x/other.json"}), first=STRING, o=other) == "struct<`f`: bigint>"
    both = {"i": {"$id": "new.json", "id": "old.json", **INTEGER}}
    for reference in ("new.json", "old.json"):
        assert ddl({**an_object(f={"$ref": reference}), "definitions": both}) == "struct<`f`: bigint>"
    assert ddl({"$id": "http://x/y/", **an_object(f={"$ref": "o.json"})}, **{"http://x/y/o.json": INTEGER}) == (
        "struct<`f`: bigint>"
    )
    for reference in ("http://[a", "#/list/2", "#/list/01234567890", "#/list/n", "#/list/0/a"):
        with pytest.raises(JsonSchemaError, match=r"^field 'f': the schema lacks"):
            ddl({"$id": address, **an_object(f={"$ref": reference}), "list": [STRING, INTEGER]})


def test_names_are_quoted_and_properties_that_are_forbidden_are_left_out() -> None:
    assert ddl(an_object(**{"a b": INTEGER, "c`d": STRING, "no": False})) == "struct<`a b`: bigint,`c``d`: string>"
    assert ddl({"allOf": [an_object(a=INTEGER, no=INTEGER), an_object(no=False)]}) == "struct<`a`: bigint>"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (an_object(a={"$ref": "#"}), "^field 'a': the schema contains itself, for which Spark has no type; do x$"),
        (
            {
                **an_object(a={"$ref": "#/definitions/n"}),
                "definitions": {"n": an_object(b={"$ref": "#/definitions/n"})},
            },
            r"^field 'a\.b': the schema contains itself",
        ),
        (
            {**an_object(a={"items": {"$ref": "#/definitions/n"}}), "definitions": {"n": an_object(b={"$ref": "#"})}},
            r"^field 'a\.element\.b': the schema contains itself",
        ),
        (
            {**an_object(a={"$ref": "#/definitions/m"}), "definitions": {"m": {"additionalProperties": {"$ref": "#"}}}},
            r"^field 'a\.value': the schema contains itself",
        ),
        (an_object(a={"$ref": "#/definitions/x"}), "^field 'a': the schema lacks '#/definitions/x', to which it refer"),
        (an_object(a={"$ref": "x.json"}), "^field 'a': the schema lacks 'x.json'"),
        (an_object(**{"": INTEGER}), "^the JSON Schema: a property has an empty name; do x"),
        ({"type": "array", "items": INTEGER}, "^the JSON Schema is not that of an object with properties; do x$"),
        (True, "^the JSON Schema is not that of an object with properties"),
        ({"type": "object"}, "is not that of an object with properties"),
        ({"type": "object", "additionalProperties": INTEGER}, "is not that of an object with properties"),
    ],
)
def test_schemas_that_are_no_type(schema: Any, message: str) -> None:
    with pytest.raises(JsonSchemaError, match=message):
        ddl(schema)


def test_alternatives_that_lead_to_themselves_end() -> None:
    looping = {**an_object(a=INTEGER), "oneOf": [{"$ref": "#"}, {"properties": {"b": STRING}}]}
    assert ddl(looping) == "struct<`a`: bigint,`b`: string>"
    assert type_of({"$ref": "#/definitions/a"}, a={"$ref": "#/definitions/a"}) == "string"


def test_large_schemas_are_rejected() -> None:
    deep: dict[str, Any] = INTEGER
    for _ in range(70):
        deep = an_object(a=deep)
    with pytest.raises(JsonSchemaError, match="more than 60 levels"):
        ddl(deep)
    # Each definition contains the next one twice: 2^30 fields.
    definitions = {
        f"d{n}": an_object(a={"$ref": f"#/definitions/d{n + 1}"}, b={"$ref": f"#/definitions/d{n + 1}"})
        for n in range(30)
    }
    with pytest.raises(JsonSchemaError, match="would have more than 20000 types"):
        type_of({"$ref": "#/definitions/d0"}, d30=INTEGER, **definitions)
    choices = {
        f"d{n}": {"oneOf": [{"$ref": f"#/definitions/d{n + 1}"}, {"$ref": f"#/definitions/d{n + 1}"}]}
        for n in range(30)
    }
    with pytest.raises(JsonSchemaError, match="would have more than 20000 types"):
        type_of({"$ref": "#/definitions/d0"}, d30=INTEGER, **choices)
    scattered = {"type": "object", "allOf": [{"properties": {f"p{number}": {}}} for number in range(5000)]}
    with pytest.raises(JsonSchemaError, match=r"^the JSON Schema: its 5000 properties are in too many schemas; do x$"):
        ddl(scattered)
    with pytest.raises(JsonSchemaError):
        json_schema_ddl("[" * 100_000, (), "do x")
    chain = {f"d{n}": {"oneOf": [{"$ref": f"#/definitions/d{n + 1}"}, INTEGER]} for n in range(5000)}
    with pytest.raises(JsonSchemaError, match="has too many levels of alternatives; do x"):
        type_of({"$ref": "#/definitions/d0"}, d5000=INTEGER, **chain)
    with pytest.raises(JsonSchemaError) as caught:
        ddl({"items": {}, **an_object(**{"a" * 10_000: {"$ref": "#" + "/x" * 10_000}})})
    assert len(str(caught.value)) < 1500


def test_a_long_reference_of_many_fields_is_resolved_once() -> None:
    fields = {f"f{number}": {"$ref": "#/definitions/n"} for number in range(1000)}
    definitions = {"n": {"$ref": "#/definitions/" + "%41" * 100_000}, "A" * 100_000: INTEGER}
    started = time.process_time()
    assert ddl({**an_object(**fields), "definitions": definitions}).count("bigint") == 1000
    assert time.process_time() - started < 10, "each time takes 80 ms"


def random_schema(generator: random.Random, depth: int = 0) -> Any:
    keywords: dict[str, Any] = {}
    values: list[Any] = [
        None,
        True,
        5,
        "string",
        "object",
        ["integer", "null"],
        [{}],
        {},
        "#",
        "#/properties/a",
        INTEGER,
    ]
    for _ in range(generator.randint(0, 3)):
        name = generator.choice(
            ["type", "properties", "items", "oneOf", "anyOf", "allOf", "$ref", "enum", "format", "additionalProperties"]
        )
        value = generator.choice(values)
        if depth < 3 and generator.random() < 0.7:
            inner = [random_schema(generator, depth + 1) for _ in range(2)]
            value = {"properties": dict(zip("ab", inner, strict=True)), "items": inner[0]}.get(name, inner)
        keywords[name] = value
    return keywords


def test_any_json_is_a_type_or_an_error() -> None:
    generator, types = random.Random(1), 0
    for _ in range(1000):
        try:
            found = ddl({**random_schema(generator), "properties": {"a": random_schema(generator), "b": {}}})
        except JsonSchemaError:
            continue
        types += 1
        assert found.startswith("struct<")
    assert types > 200


def test_the_types_are_decoded() -> None:
    from pyspark_kafka_direct.payloads.json.json_values import JsonDecoder

    fields = pa.schema(
        {"any": pa.string(), "at": pa.timestamp("us", "UTC"), "day": pa.date32(), "big": pa.decimal128(20, 0)}
    )
    value = (
        b'{"any": {"a": [1, "x"]}, "at": "2026-11-29T18:52:00.5Z", "day": "2026-11-29", "big": 18446744073709551615}'
    )
    decoded = JsonDecoder(fields).decode(pa.array([value, b'{"any": 5}']))
    assert decoded.malformed is None
    first, second = decoded.values.to_pylist()
    assert (first["any"], second["any"]) == ('{"a": [1, "x"]}', "5")
    assert first["at"].isoformat() == "2026-11-29T18:52:00.500000+00:00"
    assert (str(first["day"]), int(first["big"])) == ("2026-11-29", 2**64 - 1)
