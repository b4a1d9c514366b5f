"""JSON behind the header of a schema registry, as Confluent's serializers of JSON Schema write it."""

from __future__ import annotations

import functools
import uuid
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql import Row

from pyspark_kafka_direct.functions import infer_schema
from pyspark_kafka_direct.payloads.framing import NO_HEADER_ID, NO_ID, NO_MAGIC, ConfluentFraming, schema_id_prefix
from pyspark_kafka_direct.payloads.json import json_column
from pyspark_kafka_direct.payloads.json.json_column import JsonColumn
from pyspark_kafka_direct.payloads.json.json_values import JsonDecoder, variant_type

GUID = uuid.UUID("12345678-1234-5678-1234-567812345678")
ID, OTHER, BY_GUID = schema_id_prefix(7), schema_id_prefix(9), schema_id_prefix(GUID)
NUMBER = pa.struct({"n": pa.int32()})
HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))


def errors(malformed: Any) -> list[tuple[Any, ...] | None]:
    rows = zip(*(column.to_pylist() for column in malformed[:3]), strict=True)
    return [row if row[0] is not None else None for row in rows]


def test_ids_and_guids_are_in_front_of_the_json() -> None:
    column = JsonColumn(NUMBER, "_corrupt_record", "UTC", ConfluentFraming())
    one = column.decode(pa.array([ID + b'{"n": 1}', ID + b'{"n": 2}']))
    assert one.values.to_pylist() == [{"n": 1}, {"n": 2}]
    assert one.malformed is None
    values = [ID + b'{"n": 1}', OTHER + b'{"n": 2}', BY_GUID + b'{"n": 3}', None, ID]
    decoded = column.decode(pa.array(values, pa.binary()))
    assert decoded.values.to_pylist() == [{"n": 1}, {"n": 2}, {"n": 3}, None, None]
    assert decoded.malformed is None


def test_malformed_values_have_the_id_of_their_schema_and_a_position_in_the_value() -> None:
    column = JsonColumn(NUMBER, "_corrupt_record", "UTC", ConfluentFraming())
    values = [b'{"n": 1}', ID + b'{"n": 1', b"\0\0", BY_GUID + b"[", b"", ID + b'{"n": 2}', OTHER + b'{"n": "x"}']
    decoded = column.decode(pa.array(values, pa.binary()))
    assert decoded.values.to_pylist() == [{"n": None}] * 5 + [{"n": 2}, {"n": None}]
    found = errors(decoded.malformed)
    assert found[0] == (NO_MAGIC, 0, None)
    assert found[1] == ("the JSON is incomplete", 12, 7)
    assert found[2] == (NO_ID, 2, None)
    assert found[3] is not None
    assert found[3][1:] == (17, None)
    assert found[4:6] == [(NO_MAGIC, 0, None), None]
    assert found[6] is not None
    assert found[6][1:] == (11, 9)


def test_ids_in_headers() -> None:
    column = JsonColumn(NUMBER, "_corrupt_record", "UTC", ConfluentFraming("__value_schema_id"))
    assert column.needs_headers
    with_id = [{"key": "__value_schema_id", "value": ID}]
    headers = pa.array([with_id, [], with_id, [{"key": "__value_schema_id", "value": b"x"}]], HEADERS)
    values = [b'{"n": 1}', OTHER + b'{"n": 2}', b"{", b'{"n": 4}']
    decoded = column.decode(pa.array(values), headers)
    assert decoded.values.to_pylist() == [{"n": 1}, {"n": 2}, {"n": None}, {"n": None}]
    assert errors(decoded.malformed) == [None, None, ("the JSON is incomplete", 1, 7), (NO_HEADER_ID, 0, None)]


def test_variants() -> None:
    column = JsonColumn(variant_type(), "", "UTC", ConfluentFraming())
    bare = JsonColumn(variant_type(), "", "UTC")
    decoded = column.decode(pa.array([ID + b"[1]", b"[1]", ID + b"", None], pa.binary()))
    expected = bare.decode(pa.array([b"[1]"])).values.to_pylist()
    assert decoded.values.to_pylist() == [*expected, None, None, None]
    assert [error and error[1] for error in errors(decoded.malformed)] == [None, 0, 5, None]


@pytest.mark.parametrize("framing", ["confluent", "header", None])
def test_fields_are_inferred_behind_ids(framing: str | None) -> None:
    spark = mock.MagicMock()
    reader = spark.read.format.return_value.schema.return_value
    reader.option.return_value = reader
    headers = [Row(key="__key_schema_id", value=bytearray(ID))]
    rows = [(ID + b'{"n": 1}', None), (b'{"h": 1}', headers), (None, None), (b'{"plain": 1}', []), (b"", None)]
    reader.load.return_value.limit.return_value.collect.return_value = rows
    options = {"subscribe": "t"} if framing is None else {"subscribe": "t", "KEYFRAMING": framing}
    names = infer_schema(spark, options, column="key").names
    assert names == {"confluent": ["n"], "header": ["h", "n"], None: ["h", "plain"]}[framing]
    columns = spark.read.format.return_value.schema.call_args.args[0]
    assert columns.startswith("key binary, headers" if framing == "header" else "key binary")
    given = [call.args for call in reader.option.call_args_list]
    assert given == [("subscribe", "t"), *([("includeHeaders", "true")] if framing == "header" else [])]


@pytest.mark.parametrize("max_bytes", [1, 200])
def test_a_batch_that_is_decoded_in_parts(max_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    column = JsonColumn(NUMBER, "_corrupt_record", "UTC", ConfluentFraming())
    values = [
        ID + b'{"n": 1}',
        b"x",
        OTHER + b"{",
        None,
        BY_GUID + b'{"n": 2}',
        OTHER + b'{"n": "x"}',
        b"\0",
        ID + b"[",
    ]
    array = pa.array(values * 5, pa.binary())
    whole = column.decode(array)
    monkeypatch.setattr(json_column, "JsonDecoder", functools.partial(JsonDecoder, max_bytes=max_bytes))
    column = JsonColumn(NUMBER, "_corrupt_record", "UTC", ConfluentFraming())
    start, read = 0, []
    found: list[tuple[Any, ...] | None] = []
    while start < len(array):
        decoded = column.decode(array.slice(start))
        rows = len(decoded.values)
        assert rows < len(array)
        read += decoded.values.to_pylist()
        if decoded.malformed is not None:
            assert {len(each) for each in decoded.malformed[:3] if each is not None} == {rows}
        found += [None] * rows if decoded.malformed is None else errors(decoded.malformed)
        start += rows
    assert read == whole.values.to_pylist()
    assert found == errors(whole.malformed)
