"""A column of Avro with several writer schemas, framings and schemas that cannot be fetched."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from tests.unit.payloads.avro_data import encode

from pyspark_kafka_direct.payloads.avro.avro_column import AvroColumn, AvroSettings, given_schema
from pyspark_kafka_direct.payloads.avro.schema import AvroSchema, parse_avro_schema
from pyspark_kafka_direct.payloads.avro.single_object import single_object
from pyspark_kafka_direct.payloads.framing import ConfluentFraming
from pyspark_kafka_direct.payloads.writer_schemas import WriterSchemaError

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues


def schema(**fields: str) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


SCHEMAS = {7: schema(a="int", b="string"), 9: schema(c="double", b="string", a="long"), 11: schema(b="string")}
TYPE = pa.struct({"a": pa.int64(), "b": pa.string()})


class Writers:
    """Schemas by id, without an id 5 or ids of 32 bits."""

    def __init__(self) -> None:
        self.requests: list[int | str] = []

    def writer_schema(self, schema_id: int | str) -> AvroSchema:
        self.requests.append(schema_id)
        if schema_id in (5, 2**31, 2**32 - 1):
            raise WriterSchemaError(f"there is no schema {schema_id}")
        return parse_avro_schema(json.dumps(SCHEMAS[int(schema_id)]))


def framed(schema_id: int, value: dict[str, Any]) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + encode(SCHEMAS[schema_id], value)


def errors(decoded: DecodedValues) -> list[tuple[Any, ...] | None]:
    if decoded.malformed is None:
        return [None] * len(decoded.values)
    reasons, positions, ids, _ = decoded.malformed
    assert ids is not None
    rows = zip(ids.to_pylist(), positions.to_pylist(), reasons.to_pylist(), strict=True)
    return [row if row[2] is not None else None for row in rows]


def test_datums_of_several_writers_are_in_one_batch() -> None:
    writers = Writers()
    reader = parse_avro_schema(json.dumps(schema(a="long", b="string")))
    column = AvroColumn(TYPE, AvroSettings(reader, ConfluentFraming(), writers))
    seven, nine = framed(7, {"a": 1, "b": "x"}), framed(9, {"a": 1 << 40, "b": "y", "c": 0.5})
    one = column.decode(pa.array([seven, seven]))
    assert one.malformed is None
    assert one.values.to_pylist() == [{"a": 1, "b": "x"}] * 2
    values = [seven, nine, None, b"\0\0\0\0\5", seven[:-1], b"{}", framed(11, {"b": "z"}), nine, b"\0\0"]
    decoded = column.decode(pa.array(values, pa.binary()))
    none = {"a": None, "b": None}
    rows = [{"a": 1, "b": "x"}, {"a": 1 << 40, "b": "y"}, None, none, none, none, none, {"a": 1 << 40, "b": "y"}, none]
    assert decoded.values.to_pylist() == rows
    assert errors(decoded) == [
        None,
        None,
        None,
        (5, 0, "there is no schema 5"),
        (7, 6, "the datum is incomplete"),
        (None, 0, "the value does not begin with the magic byte of a schema id (0 or 1)"),
        (11, 5, "the writer schema lacks a field that has no default"),
        None,
        (None, 2, "the value ends within its schema id"),
    ]
    assert writers.requests == [7, 9, 5, 11]


@pytest.mark.parametrize("order", [*itertools.permutations([7, 9, 5])])
def test_each_batch_has_a_schema_that_is_not_that_of_the_first_one(order: tuple[int, ...]) -> None:
    reader = parse_avro_schema(json.dumps(schema(a="long", b="string")))
    column = AvroColumn(TYPE, AvroSettings(reader, ConfluentFraming(), Writers()))
    values = {7: framed(7, {"a": 1, "b": "x"}), 9: framed(9, {"a": 1 << 40, "b": "y", "c": 0.5}), 5: b"\0\0\0\0\5"}
    rows = {7: {"a": 1, "b": "x"}, 9: {"a": 1 << 40, "b": "y"}, 5: {"a": None, "b": None}}
    for schema_id in order * 2:
        decoded = column.decode(pa.array([values[schema_id]] * 2))
        assert decoded.values.to_pylist() == [rows[schema_id]] * 2
        assert [error is None for error in errors(decoded)] == [schema_id != 5] * 2


def test_all_values_have_an_unknown_schema() -> None:
    reader = parse_avro_schema(json.dumps(schema(a="long", b="string")))
    column = AvroColumn(TYPE, AvroSettings(reader, ConfluentFraming(), Writers()))
    decoded = column.decode(pa.array([b"\0\0\0\0\5", b"\0\0\0\0\5x"]))
    assert errors(decoded) == [(5, 0, "there is no schema 5")] * 2


def test_values_without_framing() -> None:
    given = parse_avro_schema(json.dumps(SCHEMAS[7]))
    column = AvroColumn(pa.struct({"b": pa.string(), "x": pa.binary()}), given_schema(given), "x")
    values = pa.array([encode(SCHEMAS[7], {"a": 1, "b": "x"}), b""])
    decoded = column.decode(values)
    assert decoded.malformed is not None
    structs = column.with_original_bytes(decoded.values, values, decoded.malformed.reasons.is_valid())
    assert structs.to_pylist() == [{"b": "x", "x": None}, {"b": None, "x": b""}]
    assert decoded.malformed.schema_ids is None


def test_an_id_of_32_bits_makes_a_value_malformed() -> None:
    reader = parse_avro_schema(json.dumps(schema(a="long", b="string")))
    column = AvroColumn(TYPE, AvroSettings(reader, ConfluentFraming(), Writers()))
    values = [b"\0\xff\xff\xff\xff\2", framed(7, {"a": 1, "b": "x"}), b"\0\x80\0\0\0\2"]
    decoded = column.decode(pa.array(values, pa.binary()))
    assert decoded.values.to_pylist() == [{"a": None, "b": None}, {"a": 1, "b": "x"}, {"a": None, "b": None}]
    assert errors(decoded) == [
        (None, 0, "there is no schema 4294967295"),
        None,
        (None, 0, "there is no schema 2147483648"),
    ]


def test_the_schemas_of_most_records_are_requested_first() -> None:
    writers = Writers()
    reader = parse_avro_schema(json.dumps(schema(a="long", b="string")))
    column = AvroColumn(TYPE, AvroSettings(reader, ConfluentFraming(), writers))
    values = [b"\0\0\0\0\5", None, framed(9, {"a": 1, "b": "y", "c": 0.5}), *[framed(7, {"a": 1, "b": "x"})] * 3]
    decoded = column.decode(pa.array([*values, values[2]], pa.binary()))
    assert [row and row["a"] for row in decoded.values.to_pylist()] == [None, None, 1, 1, 1, 1, 1]
    assert errors(decoded)[0] == (5, 0, "there is no schema 5")
    assert writers.requests == [7, 9, 5]


def test_datums_in_single_object_encoding_name_the_fingerprint_of_their_schema() -> None:
    given: dict[str, Any] = schema(a="long", b="string", größe="int")  # names are written in UTF-8
    for name in ("c", "d"):  # a named type counts by its name if it is used again
        named = {"type": "enum", "name": "E", "symbols": ["X", "Y"]} if name == "c" else "E"
        given["fields"].append({"name": name, "type": ["null", named]})
    form = fastavro.schema.to_parsing_canonical_form(given)
    fingerprint = bytes.fromhex(fastavro.schema.fingerprint(form, "CRC-64-AVRO"))
    datum = encode(given, {"a": 5, "b": "x", "größe": 1, "c": "Y", "d": None})
    column = AvroColumn(TYPE, single_object(parse_avro_schema(json.dumps(given))))
    decoded = column.decode(
        pa.array([b"\xc3\x01" + fingerprint + datum, b"\xc3\x01" + fingerprint[::-1] + datum, b"\xc3\x02" + datum])
    )
    assert decoded.values.to_pylist()[0] == {"a": 5, "b": "x"}
    first, other, _ = errors(decoded)
    assert first is None
    assert other is not None
    assert "the schema of the query does not have the fingerprint" in other[2]
    assert decoded.malformed is not None
    assert decoded.malformed.reasons.is_valid().to_pylist() == [False, True, True]
