"""Encoding of columns as JSON; see also tests/golden, and test_to_json."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.payloads.json.json_types import encode_json
from pyspark_kafka_direct.payloads.json.utc_offsets import utc_offsets

MICROS = 1_000_000
NEW_YORK = "America/New_York"


def struct_of(data_type: pa.DataType, *values: Any) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(values, data_type)], ["v"])


def texts(encoded: pa.BinaryArray) -> list[str | None]:
    return [None if value is None else value.decode() for value in encoded.to_pylist()]


def test_each_column_has_its_time_zone() -> None:
    columns = [pa.array([0], pa.timestamp("us", zone)) for zone in (NEW_YORK, "Asia/Tokyo")]
    encoded = texts(encode_json(pa.StructArray.from_arrays(columns, ["a", "b"])))
    assert encoded == ['{"a":"1969-12-31T19:00:00.000-05:00","b":"1970-01-01T09:00:00.000+09:00"}']


@pytest.mark.parametrize(
    ("data_type", "value", "text"),
    [
        (pa.bool_(), True, "true"),
        (pa.int8(), -128, "-128"),
        (pa.int64(), -(2**63), "-9223372036854775808"),
        (pa.int32(), 0, "0"),
        (pa.float64(), 1.0, "1.0"),
        (pa.float64(), -0.0, "-0.0"),
        (pa.float64(), 100.0, "100.0"),
        (pa.float64(), 1234567.0, "1234567.0"),
        (pa.float64(), 9999999.5, "9999999.5"),
        (pa.float64(), 1e7, "1.0E7"),
        (pa.float64(), 123456789.25, "1.2345678925E8"),
        (pa.float64(), 0.001, "0.001"),
        (pa.float64(), 0.00123, "0.00123"),
        (pa.float64(), 9.99e-4, "9.99E-4"),
        (pa.float64(), 5e-324, "4.9E-324"),
        (pa.float64(), 1.7976931348623157e308, "1.7976931348623157E308"),
        (pa.float64(), 2e23, "2.0E23"),
        # A decimal with 16 digits is as near or nearer, where numbers are denser, but is another number.
        (pa.float64(), 2.0**-24, "5.960464477539063E-8"),
        (pa.float64(), 2.0**-44, "5.684341886080802E-14"),
        (pa.float64(), float("nan"), '"NaN"'),
        (pa.float64(), float("-inf"), '"-Infinity"'),
        (pa.float32(), float("inf"), '"Infinity"'),
        (pa.float32(), 0.1, "0.1"),
        (pa.float32(), 16777216.0, "1.6777216E7"),
        (pa.float32(), 1.4e-45, "1.4E-45"),
        (pa.decimal128(10, 2), decimal.Decimal("-1.50"), "-1.50"),
        (pa.decimal128(38, 18), decimal.Decimal(0), "0E-18"),
        (pa.decimal128(38, 18), decimal.Decimal("0.000001"), "0.000001000000000000"),
        (pa.decimal128(10, 7), decimal.Decimal("0.0000001"), "1E-7"),
        (pa.decimal128(10, 8), decimal.Decimal("-0.00000123"), "-0.00000123"),
        (pa.decimal128(10, 9), decimal.Decimal("0.000000123"), "1.23E-7"),
        (pa.decimal128(38, 0), decimal.Decimal(10**37), "1" + "0" * 37),
        (pa.decimal128(5, -2), decimal.Decimal("1.2E+4"), "1.20E+4"),
        (pa.string(), "", '""'),
        (pa.string(), 'a"b\\c/\b\t\n\f\r\x1f\x00\x7fé中😀', '"a\\"b\\\\c/\\b\\t\\n\\f\\r\\u001F\\u0000\x7fé中😀"'),
        (pa.binary(), b"", '""'),
        (pa.binary(), b"\xff", '"/w=="'),
        (pa.binary(), b"\xfb\xef", '"++8="'),
        (pa.binary(), b"abc", '"YWJj"'),
        (pa.date32(), 0, '"1970-01-01"'),
        (pa.date32(), dt.date(2024, 2, 29), '"2024-02-29"'),
        (pa.date32(), -719_529, '"-0001-12-31"'),
        (pa.date32(), -719_528, '"0000-01-01"'),
        (pa.date32(), 2_932_896, '"9999-12-31"'),
        (pa.date32(), 2_932_897, '"+10000-01-01"'),
        (pa.date32(), -(2**31), '"-5877641-06-23"'),
        (pa.date32(), 2**31 - 1, '"+5881580-07-11"'),
        (pa.timestamp("us", "UTC"), 0, '"1970-01-01T00:00:00.000Z"'),
        (pa.timestamp("us", "UTC"), -1, '"1969-12-31T23:59:59.999Z"'),
        (pa.timestamp("us", "UTC"), 1_719_792_000_123_999, '"2024-07-01T00:00:00.123Z"'),
        (pa.timestamp("us", "UTC"), 2**63 - 1, '"+294247-01-10T04:00:54.775Z"'),
        (pa.timestamp("us", "UTC"), -(2**63), '"-290308-12-21T19:59:05.224Z"'),
        (pa.timestamp("us"), 1, '"1970-01-01T00:00:00.000"'),
        (pa.timestamp("us", "+05:30"), 0, '"1970-01-01T05:30:00.000+05:30"'),
        (pa.timestamp("us", "GMT-2"), 0, '"1969-12-31T22:00:00.000-02:00"'),
        (pa.timestamp("us", NEW_YORK), 1_719_792_000 * MICROS, '"2024-06-30T20:00:00.000-04:00"'),
        (pa.timestamp("us", NEW_YORK), -5_000_000_000 * MICROS, '"1811-07-23T10:10:38.000-04:56:02"'),
        # In the year 4000, daylight saving time is as in the year 2400.
        (pa.timestamp("us", NEW_YORK), 64_076_529_600 * MICROS, '"4000-07-03T08:00:00.000-04:00"'),
        (pa.timestamp("ms", "UTC"), 5, '"1970-01-01T00:00:00.005Z"'),
        (pa.list_(pa.int32()), [1, None, 3], "[1,null,3]"),
        (pa.list_(pa.string()), [], "[]"),
        (pa.large_list(pa.large_string()), ["a"], '["a"]'),
        (pa.list_(pa.null()), [None], "[null]"),
        (pa.map_(pa.string(), pa.int32()), [('a"', 1), ("", None)], '{"a\\"":1,"":null}'),
        (pa.map_(pa.int64(), pa.bool_()), [(-1, True)], '{"-1":true}'),
        (pa.map_(pa.bool_(), pa.int8()), [(False, 1)], '{"false":1}'),
        (pa.map_(pa.float64(), pa.int8()), [(1e10, 1), (float("nan"), 2)], '{"1.0E10":1,"NaN":2}'),
        (pa.map_(pa.decimal128(5, 2), pa.int8()), [(decimal.Decimal("1.50"), 1)], '{"1.50":1}'),
        (pa.map_(pa.date32(), pa.date32()), [(1, 1)], '{"1":"1970-01-02"}'),
        (pa.map_(pa.timestamp("us", "UTC"), pa.int8()), [(1, 1)], '{"1":1}'),
        (pa.struct({"a": pa.int32(), "b": pa.struct({"c": pa.int32()})}), {"a": None, "b": {}}, '{"b":{}}'),
    ],
)
def test_a_value(data_type: pa.DataType, value: Any, text: str) -> None:
    if (pa.types.is_timestamp(data_type) or pa.types.is_date32(data_type)) and isinstance(value, int):
        column = struct_of(pa.int64() if pa.types.is_timestamp(data_type) else pa.int32(), value, None)
        column = pa.StructArray.from_arrays([column.field(0).view(data_type)], ["v"])
    else:
        column = struct_of(data_type, value, None)
    assert texts(encode_json(column)) == [f'{{"v":{text}}}', "{}"]


def test_null_values_and_slices() -> None:
    data_type = pa.struct(
        {
            "a": pa.list_(pa.string()),
            "m": pa.map_(pa.string(), pa.list_(pa.int32())),
            "s": pa.struct({"b": pa.binary()}),
        }
    )
    rows = [
        {"a": ["x", "y"], "m": [("k", [1])], "s": {"b": b"1"}},
        None,
        {"a": None, "m": None, "s": None},
        {"a": ["z"], "m": [("l", None), ("m", [2, 3])], "s": {"b": None}},
        {"a": [], "m": [], "s": {"b": b""}},
    ]
    expected = [
        '{"a":["x","y"],"m":{"k":[1]},"s":{"b":"MQ=="}}',
        None,
        "{}",
        '{"a":["z"],"m":{"l":null,"m":[2,3]},"s":{}}',
        '{"a":[],"m":{},"s":{"b":""}}',
    ]
    column = pa.array(rows, data_type)
    assert texts(encode_json(column)) == expected
    for start in range(len(rows)):
        for length in range(len(rows) - start):
            assert texts(encode_json(column.slice(start, length))) == expected[start : start + length]
    for name, values in (("a", ['["x","y"]', None]), ("m", ['{"k":[1]}', None])):  # arrays and maps by themselves
        assert texts(encode_json(column.field(data_type.get_field_index(name)).slice(0, 2)))[0] == values[0]


def test_strings_need_not_be_utf8() -> None:
    column = pa.StructArray.from_arrays([pa.array([b"a\xffb", b'\xe2\x82"', "é".encode()]).view(pa.string())], ["v"])
    assert texts(encode_json(column)) == ['{"v":"a\ufffdb"}', '{"v":"\ufffd\\""}', '{"v":"é"}']


def test_strings_beside_lists_and_maps_of_nulls() -> None:
    item = pa.struct([("n", pa.null()), pa.field("s", pa.string(), nullable=False)])
    data_type = pa.struct(
        [("l", pa.list_(pa.null())), ("m", pa.map_(pa.string(), pa.list_(pa.null()))), ("i", pa.list_(item))]
    )
    rows = [
        {"l": [None, None], "m": [("a", [None])], "i": [{"s": "x"}]},
        None,
        {"l": [None], "m": [], "i": [{"s": "y"}, None]},
    ]
    encoded = [
        '{"l":[null,null],"m":{"a":[null]},"i":[{"s":"x"}]}',
        None,
        '{"l":[null],"m":{},"i":[{"s":"y"},null]}',
    ]
    column = pa.array(rows, data_type)
    for start in range(3):
        assert texts(encode_json(column.slice(start))) == encoded[start:]


def test_a_dictionary_is_written_as_its_values() -> None:
    names = pa.array(["JFK", None, "LGA", "JFK"]).dictionary_encode()
    column = pa.StructArray.from_arrays([names, pa.ListArray.from_arrays([0, 1, 1, 3, 4], names)], ["n", "l"])
    assert texts(encode_json(column)) == [
        '{"n":"JFK","l":["JFK"]}',
        '{"l":[]}',
        '{"n":"LGA","l":[null,"LGA"]}',
        '{"n":"JFK","l":["JFK"]}',
    ]
    fixed = pa.array([b"ab", None], pa.binary(2))
    assert texts(encode_json(pa.StructArray.from_arrays([fixed], ["b"]))) == ['{"b":"YWI="}', "{}"]


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_a_time_that_does_not_fit_is_rejected_and_not_wrapped(unit: str) -> None:
    with pytest.raises(ValueError, match="out of bounds"):
        encode_json(struct_of(pa.timestamp(unit), 2**62))


def test_nanoseconds_are_truncated() -> None:
    column = struct_of(pa.timestamp("ns", "UTC"), 1_500_000_999)
    assert texts(encode_json(column)) == ['{"v":"1970-01-01T00:00:01.500Z"}']


@pytest.mark.parametrize(
    ("data_type", "message"),
    [
        (pa.duration("us"), r"field 'v' has the type duration\[us\], which is not encoded as JSON"),
        (pa.list_(pa.struct({"x": pa.time64("us")})), r"field 'v.element.x' has the type time64"),
        (pa.uint8(), "uint8"),
        (pa.map_(pa.binary(), pa.int8()), "the keys of the map 'v' are binary, which has no JSON string"),
        (pa.map_(pa.struct({"x": pa.int8()}), pa.int8()), "keys of the map"),
        (pa.timestamp("us", "Mars/Olympus"), "the time zone 'Mars/Olympus' is unknown on this host"),
    ],
)
def test_another_type_is_rejected(data_type: pa.DataType, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_json(struct_of(data_type, None))


def test_a_type_that_is_too_deep_is_rejected() -> None:
    data_type = pa.int8()
    for _ in range(66):
        data_type = pa.list_(data_type)
    with pytest.raises(ValueError, match="has more than 60 levels"):
        encode_json(pa.array([None], data_type))


@pytest.mark.parametrize(
    ("name", "zone", "offset"),
    [("PST", "America/Los_Angeles", None), ("JST", "Asia/Tokyo", None), ("EST", "-05:00", -5), ("HST", "-10:00", -10)],
)
def test_a_zone_may_have_a_short_name_of_java(name: str, zone: str, offset: int | None) -> None:
    assert utc_offsets(name) == utc_offsets(zone)
    if offset is not None:
        assert utc_offsets(name) == ((0, offset * 3600),)


@given(
    st.sampled_from(
        [NEW_YORK, "Europe/Berlin", "Africa/Casablanca", "Asia/Kolkata", "Australia/Lord_Howe", "Asia/Gaza"]
    ),
    st.lists(st.integers(-5_000_000_000, 200_000_000_000), min_size=1),
)
def test_offsets_are_those_of_the_time_zone_database(zone: str, seconds: list[int]) -> None:
    times = pa.array([second * MICROS for second in seconds], pa.int64()).view(pa.timestamp("us", zone))
    local = [dt.datetime.fromtimestamp(second, ZoneInfo(zone)).isoformat(timespec="milliseconds") for second in seconds]
    expected = [f'{{"v":"{time.replace("+00:00", "Z")}"}}' for time in local]
    assert texts(encode_json(pa.StructArray.from_arrays([times], ["v"]))) == expected
