"""Both JSON decoders on dates, timestamps, decimals, base64 and maps: on the same values they return the same."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_direct.records import IMPLEMENTATION, DecodedValues, JsonDecoder, create_json_decoder
from pyspark_kafka_direct.records.json_values import MAX_DECODED_BYTES, RANGE, SIZE, TYPE, JsonRequest
from pyspark_kafka_direct.records.python.json_decoder import create_json_decoder as create_python_decoder

FIELDS: Final = pa.schema(
    {
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
        "n": pa.timestamp("us"),
        "c": pa.decimal128(7, 2),
        "c38": pa.decimal128(38, 10),
        "c0": pa.decimal128(38, 0),
        "x": pa.binary(),
        "m": pa.map_(pa.string(), pa.int32()),
        "mo": pa.map_(pa.string(), pa.struct({"x": pa.int32(), "d": pa.date32()})),
        "am": pa.list_(pa.map_(pa.string(), pa.decimal128(3, 1))),
        "ad": pa.list_(pa.date32()),
    }
)
ZONES: Final = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "+05:30")

digits = st.text("0123456789", max_size=7)
separators = st.sampled_from(["-", "-", ":", " ", "T", ".", "", "GMT"])
offsets = st.sampled_from(
    [
        *["", "Z", "z", "UTC", " UTC", "GMT", "UT", "UTC+1", "GMT-01:30", "UT+0130", "+1", "+01", "+0130", "+01:30"],
        *["+1:30", "+01:3", "+1:3", "+1:30:15", "+013015", "-18:00", "+18:01", "-19", "+00:60", "EST", "HST", "UTCZ"],
        *["+", "+a", "+130", "+01301", "+01:30:1", "GMT GMT", "+01GMT:00", "\x7f+01:00", " +01:00 ", "Europe/Berlin"],
    ]
)
years = st.integers(1800, 2600) | st.integers(0, 999_999)
times = st.builds(
    lambda sign, year, rest, fraction, offset: f"{sign}{year:04}{rest}{fraction}{offset}",
    st.sampled_from(["", "", "", "-", "+"]),
    years,
    st.builds(
        "-{:02}-{:02}{}{:02}:{:02}:{}".format,
        st.integers(0, 13),
        st.integers(0, 32),
        st.sampled_from("T "),
        st.integers(0, 24),
        st.integers(0, 60),
        st.integers(0, 60),
    ),
    st.just("") | st.text("0123456789", max_size=9).map(".{}".format),
    offsets,
) | st.lists(st.tuples(digits, separators), max_size=7).map(lambda parts: "".join(map("".join, parts)))
some_times = (
    times
    | st.builds(lambda time, end: time[:end], times, st.integers(0, 20))
    | st.builds("{}{}{}".format, st.sampled_from([" ", "\t", "\x7f", "GMT"]), times, st.sampled_from(["", " ", "\n"]))
    | st.integers(-(1 << 33), 1 << 33).map(str)
    | st.integers(-800_000, -100_000).map(str)
)
numbers = st.builds(
    lambda sign, whole, point, fraction, exponent: f"{sign}{whole}{point}{fraction}{exponent}",
    st.sampled_from(["", "-", "+"]),
    st.text("0123459", max_size=42) | st.sampled_from(["0", "99999", "9" * 38, "9" * 28]),
    st.sampled_from(["", ".", ".", ",", "-"]),
    st.text("0456789", max_size=42) | st.sampled_from(["994999", "995", "005"]),
    st.just("")
    | st.integers(-50, 50).map("e{}".format)
    | st.sampled_from(
        ["E+2", "e", "e400", "e-400", "e2147483647", "e-2147483648", "e00000000000000002", "e99999999999"]
    ),
)
base64_texts = (
    st.binary(max_size=12).map(lambda data: data.hex())
    | st.text("AQUZaz09+/= \n-_é", max_size=12)
    | st.sampled_from(["QUJD", "QQ==", "QUI=", "QQ==QUJD", " QUJD  QUJD ", "QR==", "Q===", "===="])
)
texts = (some_times | numbers | base64_texts).map(json.dumps)
keys = st.sampled_from(FIELDS.names)
scalars = texts | numbers | st.sampled_from(["null", "true", "1", "-9223372036854775808", "9223372036854775808", "NaN"])


def containers(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    fields = st.builds('"{}":{}'.format, keys | st.sampled_from(["", "\\u0041", "'"]), values)
    objects = st.lists(fields, max_size=8).map(lambda fields: "{" + ", ".join(fields) + "}")
    return objects | st.lists(values, max_size=3).map(lambda values: "[" + " ,".join(values) + "]")


values = containers(st.recursive(scalars, containers, max_leaves=8)).map(str.encode)
damaged = st.builds(lambda value, end: value[:end], values, st.integers(0, 60))
single = st.builds('{{"{}":{}}}'.format, keys, scalars).map(str.encode)


def decoders(fields: pa.Schema = FIELDS, time_zone: str = "UTC") -> list[JsonDecoder]:
    python = create_python_decoder(JsonRequest(fields, "", time_zone))
    return [python] if IMPLEMENTATION != "native" else [python, create_json_decoder(fields, "", time_zone)]


def decode(decoder: JsonDecoder, values: list[bytes]) -> tuple[pa.Array, Any]:
    return comparable(decoder.decode(pa.array(values, pa.binary())))


def comparable(decoded: DecodedValues) -> tuple[pa.Array, Any]:
    """Return the values, and reasons and positions of malformed ones."""
    decoded.values.validate(full=True)
    if decoded.malformed is None:
        return decoded.values, None
    return decoded.values, [column.to_pylist() for column in decoded.malformed[:2]]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(single | values | damaged, max_size=10), st.sampled_from(ZONES))
def test_the_decoders_agree(values: list[bytes], time_zone: str) -> None:
    (first, malformed), *others = [decode(decoder, values) for decoder in decoders(time_zone=time_zone)]
    for other, other_malformed in others:
        assert other.equals(first), (other, first)
        assert other_malformed == malformed


@pytest.mark.parametrize("zone", ZONES)
def test_a_timestamp_is_read_in_its_time_zone(zone: str) -> None:
    """At the hours around changes of daylight saving time, and in all years of the table."""
    hours = [
        f"{year}-{day}T{hour:02}:30:00"
        for year in range(1801, 3000, 23)
        for day in ("03-28", "10-31", "11-07")
        for hour in range(5)
    ]
    rows = [b'{"t":"%s"}' % hour.encode() for hour in hours]
    first, *others = [decode(decoder, rows)[0] for decoder in decoders(time_zone=zone)]
    assert first.field("t").null_count == 0
    for other in others:
        assert other.equals(first)


@pytest.mark.parametrize("decoder", decoders(time_zone="Europe/Berlin"), ids=lambda decoder: type(decoder).__name__)
@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("d", '"2020-02-29"', 18_321),
        ("d", '"2020-1-1 x"', 18_262),
        ("d", '"18262"', 5_950_531),  # a year
        ("d", '"123"', 123),
        ("d", '"-12345678"', -12_345_437),  # days of the Julian calendar
        ("d", "18262", None),
        ("t", '"2020-07-01T12:00:00"', 1_593_597_600_000_000),
        ("t", '"2021-03-28T02:30:00"', 1_616_895_000_000_000),  # skipped: 03:30
        ("t", '"2021-10-31T02:30:00"', 1_635_640_200_000_000),  # the first of two
        ("t", '"2020-07-01T12:00:00-01:30"', 1_593_610_200_000_000),
        ("t", '"12:30:00"', None),
        ("t", '"2020-07-01T12:00:00 Europe/Berlin"', None),
        ("t", "-1", -1_000_000),
        ("n", '"2020-07-01 12:00:00.1234567"', 1_593_604_800_123_456),
        ("n", '"2020-07-01 12:00:00Z"', None),
        ("n", "1", None),
    ],
)
def test_a_date_or_time(decoder: JsonDecoder, field: str, value: str, expected: int | None) -> None:
    decoded, malformed = decode(decoder, [f'{{"{field}":{value}}}'.encode()])
    column = decoded.field(field)
    assert column.view(pa.int32() if field == "d" else pa.int64()).to_pylist() == [expected]
    assert malformed == (None if expected is not None else [[TYPE], [5]])


@pytest.mark.parametrize("decoder", decoders(), ids=lambda decoder: type(decoder).__name__)
@pytest.mark.parametrize(
    ("value", "expected", "reason"),
    [
        ("1.005", "1.01", None),
        ("-1.005", "-1.01", None),
        ("99999.994999", "99999.99", None),
        ("99999.995", None, RANGE),
        ('"1,000.5"', "1000.50", None),
        ("1e-400", "0.00", None),
        ("0e99999999999", None, RANGE),
        ("1e999999999", None, RANGE),
        ("NaN", None, TYPE),
        ('" 1"', None, TYPE),
        ('""', None, TYPE),
        ("{}", None, TYPE),
    ],
)
def test_a_decimal(decoder: JsonDecoder, value: str, expected: str | None, reason: str | None) -> None:
    decoded, malformed = decode(decoder, [f'{{"c":{value}}}'.encode()])
    assert decoded.field("c").to_pylist() == [None if expected is None else Decimal(expected)]
    assert malformed == (None if reason is None else [[reason], [5]])


@pytest.mark.parametrize("decoder", decoders(), ids=lambda decoder: type(decoder).__name__)
def test_a_map_keeps_repeated_keys(decoder: JsonDecoder) -> None:
    rows = [b'{"m":{"a":1,"b":null,"a":2}}', b'{"m":{}}', b'{"m":{"a":1,"b":"x"}}', b'{"m":{"a":1},"m":{"b":2}}', b"{}"]
    decoded, malformed = decode(decoder, rows)
    assert decoded.field("m").to_pylist() == [[("a", 1), ("b", None), ("a", 2)], [], None, [("b", 2)], None]
    assert malformed[0] == [None, None, TYPE, None, None]


WIDTH: Final = 4000
WIDE_FIELDS: Final = pa.schema(
    {"m": pa.map_(pa.string(), pa.struct([(f"f{number}", pa.float64()) for number in range(WIDTH)])), "b": pa.int8()}
)


@pytest.mark.parametrize("decoder", decoders(WIDE_FIELDS), ids=lambda decoder: type(decoder).__name__)
def test_the_memory_of_the_entries_of_a_map_is_bounded(decoder: JsonDecoder) -> None:
    most = MAX_DECODED_BYTES // (8 * (WIDTH + 3))  # an entry has a struct, a key and a struct of fields
    rows = [b'{"b":1,"m":{%s}}' % b",".join([b'"":{}'] * count) for count in (1, most + 1, 2)]
    decoded, malformed = decode(decoder, rows)
    assert malformed == [[None, SIZE, None], [None, len(rows[1]) - 7, None]]
    assert decoded.field("b").to_pylist() == [1, None, 1]
