"""Decoding all values of a batch for functions, although decoders may decode the first ones only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.unit.payloads.avro_data import encode

from pyspark_kafka_direct.errors import ColumnError, MalformedPayloadError, RecordTooLargeError
from pyspark_kafka_direct.payloads import whole_column
from pyspark_kafka_direct.payloads.avro.avro_column import AvroColumn, given_schema
from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
from pyspark_kafka_direct.payloads.whole_column import decode_all

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "v", "type": "string"}]}


class FirstValues:
    """Decodes at most two values in a call, and records how many it was given."""

    def __init__(self) -> None:
        self._column = AvroColumn(pa.struct({"v": pa.string()}), given_schema(parse_avro_schema(json.dumps(SCHEMA))))
        self.calls: list[int] = []

    def decode(self, values: pa.BinaryArray) -> DecodedValues:
        self.calls.append(len(values))
        return self._column.decode(values[:2])


def datums(*values: str) -> pa.Array:
    return pa.array([encode(SCHEMA, {"v": value}) for value in values], pa.binary())


@pytest.mark.parametrize(("count", "calls"), [(0, [0]), (1, [1]), (2, [2]), (5, [5, 3, 1])])
def test_all_values_are_decoded(count: int, calls: list[int]) -> None:
    decoder, values = FirstValues(), [str(number) for number in range(count)]
    decoded = decode_all(decoder, datums(*values), "Avro", failing=True)
    assert decoded.to_pylist() == [{"v": value} for value in values]
    assert decoder.calls == calls


@pytest.mark.parametrize("failing", [False, True])
def test_a_malformed_value_has_null_fields_or_is_an_error(failing: bool) -> None:
    values = pa.concat_arrays([datums("a", "b", "c"), pa.array([b"\4x"]), datums("d")])
    if not failing:
        decoded = decode_all(FirstValues(), values, "Avro", failing=False)
        assert decoded.to_pylist() == [*({"v": each} for each in "abc"), {"v": None}, {"v": "d"}]
        return
    with pytest.raises(MalformedPayloadError, match=r"cannot be decoded as Avro: .*mode=PERMISSIVE"):
        decode_all(FirstValues(), values, "Avro", failing=True)


def test_advice_is_about_the_values_that_were_decoded() -> None:
    malformed = pa.array([b"\4x"] * 5)
    for values in (malformed, pa.concat_arrays([datums("a", "b"), malformed, datums("c")])):
        with pytest.raises(MalformedPayloadError, match="None of 2 values can be decoded"):
            decode_all(FirstValues(), values, "Avro", failing=True)


@pytest.mark.parametrize("values", [pa.array([{"v": "a"}]), pa.array([1])])
def test_a_column_without_bytes_is_an_error(values: pa.Array) -> None:
    with pytest.raises(ColumnError, match=r"is (struct<v: string>|int64), .*not decoded as Avro: .*valueFormat"):
        decode_all(FirstValues(), values, "Avro", failing=False)


def test_values_that_are_too_large_together_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_column, "_MAX_BATCH_BYTES", 1000)
    values = datums("a" * 600, "b" * 600, "c")
    with pytest.raises(RecordTooLargeError, match="3 values need more than 1 GiB when they are decoded as Avro"):
        decode_all(FirstValues(), values, "Avro", failing=False)
    assert len(decode_all(FirstValues(), values[:2], "Avro", failing=False)) == 2, "one array cannot be smaller"
