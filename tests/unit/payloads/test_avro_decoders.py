"""Decoding of Avro against fastavro: the same values, and a malformed datum costs one row."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.payloads.avro_data import (
    decode,
    encode,
    encode_in_blocks,
    malformed,
    parse,
    read,
    reader_schemas,
    records,
    spark_value,
)

if TYPE_CHECKING:
    import random


@st.composite
def datums(draw: st.DrawFn, *, logical: bool = True) -> tuple[Any, list[Any]]:
    schema, values = draw(records(logical=logical))
    return schema, draw(st.lists(values, min_size=1, max_size=4))


@given(datums(), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_decoded_values_are_those_of_fastavro(drawn: tuple[Any, list[Any]], source: random.Random) -> None:
    schema, values = drawn
    encoded = [encode_in_blocks(schema, value, source) for value in values]
    decoded = decode(schema, [*encoded, None])
    assert decoded.malformed is None
    expected = [spark_value(parse(schema), read(datum, schema)) for datum in encoded]
    assert decoded.values.to_pylist() == [*expected, None]


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("value", [None, 5, "x", [None, 7]])
def test_null_has_any_position_in_a_union(at: int, value: Any) -> None:
    union: list[Any] = ["int", "string", {"type": "array", "items": ["long", "null"]}]
    union.insert(at, "null")
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": union}, {"name": "b", "type": "long"}]}
    decoded = decode(schema, [encode(schema, {"a": value, "b": 1})])
    assert malformed(decoded) == [None]
    assert decoded.values.to_pylist() == [{"a": spark_value(parse(union), value), "b": 1}]


@given(datums(), st.data())
@settings(max_examples=60)
def test_schemas_are_resolved_as_by_fastavro(drawn: tuple[Any, list[Any]], data: st.DataObject) -> None:
    schema, values = drawn
    reader = data.draw(reader_schemas(schema))
    encoded = [encode(schema, value) for value in values]
    decoded = decode(schema, [*encoded, None], reader)
    assert decoded.malformed is None
    expected = [spark_value(parse(reader), read(datum, schema, reader)) for datum in encoded]
    assert decoded.values.to_pylist() == [*expected, None]


@given(datums(), st.data())
@settings(max_examples=60)
def test_fields_that_are_not_wanted_are_skipped(drawn: tuple[Any, list[Any]], data: st.DataObject) -> None:
    schema, values = drawn
    encoded: list[bytes | None] = [encode(schema, value) for value in values]
    everything = decode(schema, encoded).values
    names = data.draw(st.lists(st.sampled_from([field.name for field in everything.type] or ["x"]), unique=True))
    fields = pa.schema([everything.type.field(name) for name in names if everything.type.get_field_index(name) >= 0])
    decoded = decode(schema, encoded, fields=fields)
    assert decoded.malformed is None
    expected = [{name: row[name] for name in fields.names} for row in everything.to_pylist()]
    assert decoded.values.to_pylist() == expected


@pytest.mark.slow
@given(datums(logical=False), st.data())
@settings(max_examples=100)
def test_damaged_datums_do_not_change_other_rows(drawn: tuple[Any, list[Any]], data: st.DataObject) -> None:
    schema, values = drawn
    encoded = [encode(schema, value) for value in values]
    damaged = []
    for datum in encoded:
        changed = bytearray(datum)
        for _ in range(data.draw(st.integers(0, 2))):
            if changed:
                changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
        changed += data.draw(st.binary(max_size=2))
        damaged.append(bytes(changed[: data.draw(st.integers(0, len(changed)))]))
    rows = [datum for pair in zip(encoded, damaged, strict=True) for datum in pair]
    decoded = decode(schema, [*rows])
    together, errors = decoded.values.to_pylist(), malformed(decoded)
    assert errors[::2] == [None] * len(encoded)
    assert together[::2] == decode(schema, [*encoded]).values.to_pylist()
    for row, datum in enumerate(damaged):
        alone = decode(schema, [datum])
        assert malformed(alone)[0] == errors[2 * row + 1]
        assert repr(alone.values.to_pylist()[0]) == repr(together[2 * row + 1])


def test_many_malformed_datums_with_lists_are_decoded_in_linear_time() -> None:
    numbers = {"name": "numbers", "type": {"type": "array", "items": "int"}}
    schema = {"type": "record", "name": "R", "fields": [numbers, {"name": "n", "type": "int"}]}
    start = time.process_time()
    assert None not in malformed(decode(schema, [b"\0"] * 300_000))
    assert time.process_time() - start < 120  # instead of more than 360
