"""Avro schemas that are not records: the column has a simple type, a list, a map, or the members of a union."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.unit.payloads.avro_data import arrow_type, encode, malformed

from pyspark_kafka_direct.payloads.avro.avro_column import AvroColumn, AvroSettings, GivenSchema, NoFraming
from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError
from pyspark_kafka_direct.payloads.avro.schema import AvroSchema, parse_avro_schema
from pyspark_kafka_direct.payloads.avro.spark_types import spark_ddl
from pyspark_kafka_direct.payloads.avro.wanted_fields import check_wanted_type
from pyspark_kafka_direct.payloads.framing import ConfluentFraming

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}


def logical(base: str, name: str, **attributes: int) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **attributes}


def parse(schema: Any) -> AvroSchema:
    return parse_avro_schema(json.dumps(schema))


def decode(
    writer: Any, datums: list[bytes | None], reader: Any = None, data_type: pa.DataType | None = None
) -> DecodedValues:
    settings = AvroSettings(parse(writer if reader is None else reader), NoFraming(), GivenSchema(parse(writer)))
    data_type = data_type or arrow_type(settings.reader.root)
    values = pa.array(datums, pa.binary())
    decoded = AvroColumn(data_type, settings).decode(values)
    decoded.values.validate(full=True)
    assert decoded.values.type == data_type
    return decoded


@pytest.mark.parametrize(
    ("schema", "ddl", "values"),
    [
        ("string", "string", ["", "é"]),
        ("bytes", "binary", [b"", b"\xff"]),
        ("int", "int", [1, -(1 << 31)]),
        ("long", "bigint", [1, -(1 << 63)]),
        ("float", "float", [1.5]),
        ("double", "double", [0.1]),
        ("boolean", "boolean", [True, False]),
        ("null", "void", [None]),
        (ENUM, "string", ["A", "B"]),
        ({"type": "fixed", "name": "F", "size": 2}, "binary", [b"ab"]),
        (["null", "string"], "string", [None, "x"]),
        (["long", "null"], "bigint", [7, None]),
        (["int", "long"], "bigint", [7, 1 << 40]),
        ({"type": "array", "items": ["null", "int"]}, "array<int>", [[], [1, None]]),
        (logical("int", "date"), "date", [datetime.date(2013, 1, 1)]),
        (logical("bytes", "decimal", precision=5, scale=2), "decimal(5,2)", [Decimal("-1.25")]),
        (
            logical("long", "timestamp-millis"),
            "timestamp_ltz",
            [datetime.datetime(2013, 1, 1, 0, 0, 1, 5000, datetime.UTC)],
        ),
    ],
)
def test_values_are_those_of_the_schema(schema: Any, ddl: str, values: list[Any]) -> None:
    assert spark_ddl(parse(schema).root) == ddl
    decoded = decode(schema, [*(encode(schema, value) for value in values), None])
    assert decoded.malformed is None
    assert decoded.values.to_pylist() == [*values, None]


def test_maps_and_unions_have_the_types_of_fields() -> None:
    counts = {"type": "map", "values": "int"}
    assert spark_ddl(parse(counts).root) == "map<string,int>"
    assert decode(counts, [encode(counts, {"a": 1})]).values.to_pylist() == [[("a", 1)]]
    union = ["null", "string", POINT]
    assert spark_ddl(parse(union).root) == "struct<`member0`: string,`member1`: struct<`x`: int>>"
    datums: list[bytes | None] = [encode(union, value) for value in (None, "a", {"x": 1})]
    members: list[Any] = [None, {"member0": "a", "member1": None}, {"member0": None, "member1": {"x": 1}}]
    assert decode(union, datums).values.to_pylist() == members
    assert decode(POINT, [b"\2"], union).values.to_pylist() == members[2:]


@pytest.mark.parametrize(
    ("writer", "reader", "datum", "expected"),
    [
        ("int", "long", b"\2", 1),
        ("int", "double", b"\2", 1.0),
        ("string", "bytes", b"\2a", b"a"),
        ("int", ["null", "long"], b"\2", 1),
        (["null", "int"], "long", b"\2\2", 1),
        (ENUM, {**ENUM, "symbols": ["C", "A"], "default": "C"}, b"\2", "C"),
    ],
)
def test_other_schemas_are_resolved(writer: Any, reader: Any, datum: bytes, expected: Any) -> None:
    decoded = decode(writer, [datum], reader)
    assert malformed(decoded) == [None]
    assert decoded.values.to_pylist() == [expected]


def test_a_column_may_have_a_wider_type() -> None:
    check_wanted_type(parse("int").root, pa.int64())
    assert decode("int", [b"\2"], data_type=pa.int64()).values.to_pylist() == [1]
    with pytest.raises(AvroSchemaError, match=r"^the Avro schema is int, which cannot be read as string$"):
        check_wanted_type(parse("int").root, pa.string())
    with pytest.raises(AvroSchemaError, match=r"^field 'element' is int"):
        check_wanted_type(parse({"type": "array", "items": "int"}).root, pa.list_(pa.string()))


def test_a_malformed_value_is_null() -> None:
    decoded = decode("string", [b"\4ab", b"\4a", b"", b"\4abc", None])
    assert decoded.values.to_pylist() == ["ab", None, None, None, None]
    incomplete = "the datum is incomplete"
    reasons = [each and each[1] for each in malformed(decoded)]
    assert reasons == [None, incomplete, incomplete, "bytes after the end of the datum", None]
    unreadable = "the value has a type that the reader schema does not have"
    assert malformed(decode(POINT, [b"\2"], "int")) == [(0, unreadable)]
    assert malformed(decode(["null", "int"], [b"\0"], "int")) == [(1, unreadable)]


def test_values_of_several_writers() -> None:
    schemas = {1: parse("int"), 2: parse("long"), 3: parse("string")}

    class Writers:
        def writer_schema(self, schema_id: int | str) -> AvroSchema:
            return schemas[int(schema_id)]

    column = AvroColumn(pa.int64(), AvroSettings(schemas[2], ConfluentFraming(), Writers()))
    values = pa.array([b"\0\0\0\0\1\2", b"\0\0\0\0\2\4", b"\0\0\0\0\3\2a", b"\2", None], pa.binary())
    decoded = column.decode(values)
    assert decoded.values.to_pylist() == [1, 2, None, None, None]
    assert decoded.malformed is not None
    assert decoded.malformed.schema_ids is not None
    assert decoded.malformed.schema_ids.to_pylist()[2] == 3
    assert not column.shows_malformed
    assert column.with_original_bytes(decoded.values, values, None) is decoded.values
