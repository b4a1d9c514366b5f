"""Decoding of JSON to dates, timestamps, decimals, bytes and maps; see also tests/golden."""

from __future__ import annotations

import datetime as dt
import json
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyspark_kafka_direct.payloads.decoded_values import MAX_DECODED_BYTES
from pyspark_kafka_direct.payloads.json.json_values import RANGE, SIZE, TYPE, JsonDecoder

if TYPE_CHECKING:
    import random

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
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND: Final = dt.timedelta(microseconds=1)

OFFSETS: Final = (
    *["", "Z", "z", "UTC", " UTC", "GMT", "UT", "UTC+1", "GMT-01:30", "UT+0130", "+1", "+01", "+0130", "+01:30"],
    *["+1:30", "+01:3", "+1:3", "+1:30:15", "+013015", "-18:00", "+18:01", "-19", "+00:60", "EST", "HST", "UTCZ"],
    *["+", "+a", "+130", "+01301", "+01:30:1", "GMT GMT", "+01GMT:00", "\x7f+01:00", " +01:00 ", "Europe/Berlin"],
)
SCALARS: Final = ("null", "true", "1", "-9223372036854775808", "9223372036854775808", "NaN")
EXPONENTS: Final = ("E+2", "e", "e400", "e-400", "e2147483647", "e-2147483648", "e00000000000000002", "e99999999999")
BASE64: Final = ("QUJD", "QQ==", "QUI=", "QQ==QUJD", " QUJD  QUJD ", "QR==", "Q===", "====")


class Values:
    """Random JSON, much of which is a value of one of the types."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def value(self) -> bytes:
        match self._source.randrange(4):
            case 0:
                name = self._source.choice(FIELDS.names)
                return f'{{"{name}":{self._source.choice([self._fitting(name), self._scalar()])}}}'.encode()
            case 1:
                names = self._source.sample(FIELDS.names, self._source.randint(1, 5))
                return ("{" + ",".join(f'"{name}":{self._fitting(name)}' for name in names) + "}").encode()
            case 2:
                return self._container(3).encode()
        value = self._container(3).encode()
        return value[: self._source.randrange(61)]

    def _container(self, depth: int) -> str:
        values = [
            self._scalar() if self._source.random() < 0.6 or not depth else self._container(depth - 1)
            for _ in range(self._source.choice([0, 1, 1, 2, 3, 8]))
        ]
        if self._source.random() < 0.3:
            return "[" + " ,".join(values) + "]"
        names = [*FIELDS.names, "", "\\u0041", "'"]
        return "{" + ", ".join(f'"{self._source.choice(names)}":{value}' for value in values) + "}"

    def _fitting(self, name: str) -> str:
        """Return a value that may have the type of the field."""
        match name:
            case "d" | "t" | "n":
                randint = self._source.randint
                day = f"{randint(1800, 2600)}-{randint(1, 12):02}-{randint(1, 28):02}"
                time = f"{day}T{randint(0, 24):02}:{randint(0, 60):02}:{randint(0, 59):02}.{self._text('0189', 7)}"
                return json.dumps(self._source.choice([time, time + self._source.choice(OFFSETS), self._some_time()]))
            case "c" | "c38" | "c0":
                number = f"{self._text('0459', 6)}.{self._text('0459', 5)}"
                return self._source.choice([number, json.dumps(number), self._number()])
            case "x":
                return json.dumps(self._base64())
            case "ad":
                return f"[{json.dumps(self._time())}]"
            case "m":
                return f'{{"a":{self._source.randint(-9, 9)},"a":1}}'
            case "mo":
                return f'{{"a":{{"x":1,"d":{json.dumps(self._time())}}}}}'
        return f'[{{"b":{self._source.randint(-99, 99)}}},null]'

    def _scalar(self) -> str:
        match self._source.randrange(5):
            case 0:
                return self._source.choice(SCALARS)
            case 1:
                return self._number()
        return json.dumps(self._source.choice([self._some_time, self._some_time, self._number, self._base64])())

    def _some_time(self) -> str:
        choice = self._source.choice
        match self._source.randrange(5):
            case 0:
                return self._time()[: self._source.randrange(21)]
            case 1:
                return choice([" ", "\t", "\x7f", "GMT"]) + self._time() + choice(["", " ", "\n"])
            case 2:
                return str(self._source.randint(-(1 << 33), 1 << 33))
            case 3:
                return str(self._source.randint(-800_000, -100_000))
        return self._time()

    def _time(self) -> str:
        choice, randint = self._source.choice, self._source.randint
        if self._source.random() < 0.3:
            separators = ["-", "-", ":", " ", "T", ".", "", "GMT"]
            parts = (self._text("0123456789", 7) + choice(separators) for _ in range(randint(0, 7)))
            return "".join(parts)
        year = choice([randint(1800, 2600), randint(0, 999_999)])
        day = f"{year:04}-{randint(0, 13):02}-{randint(0, 32):02}"
        time = f"{randint(0, 24):02}:{randint(0, 60):02}:{randint(0, 60)}"
        fraction = choice(["", "." + self._text("0123456789", 9)])
        return f"{choice(['', '', '', '-', '+'])}{day}{choice('T ')}{time}{fraction}{choice(OFFSETS)}"

    def _number(self) -> str:
        choice = self._source.choice
        whole = choice([self._text("0123459", 42), choice(["0", "99999", "9" * 38, "9" * 28])])
        fraction = choice([self._text("0456789", 42), choice(["994999", "995", "005"])])
        exponent = choice(["", f"e{self._source.randint(-50, 50)}", choice(EXPONENTS)])
        return f"{choice(['', '-', '+'])}{whole}{choice(['', '.', '.', ',', '-'])}{fraction}{exponent}"

    def _base64(self) -> str:
        size = self._source.randrange(13)
        return self._source.choice(
            [self._source.randbytes(size).hex(), self._text("AQUZaz09+/= \n-_é", 12), self._source.choice(BASE64)]
        )

    def _text(self, characters: str, max_size: int) -> str:
        return "".join(self._source.choices(characters, k=self._source.randint(0, max_size)))


def decode(values: list[bytes], fields: pa.Schema = FIELDS, time_zone: str = "UTC") -> tuple[pa.Array, Any]:
    """Return the values, and reasons and positions of malformed ones."""
    decoded = JsonDecoder(fields, "", time_zone).decode(pa.array(values, pa.binary()))
    decoded.values.validate(full=True)
    if decoded.malformed is None:
        return decoded.values, None
    return decoded.values, [column.to_pylist() for column in decoded.malformed[:2]]


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
    found, _ = decode(rows, time_zone=zone)
    fixed = dt.timezone(dt.timedelta(hours=5, minutes=30))
    local = [
        dt.datetime.fromisoformat(hour).replace(tzinfo=fixed if zone == "+05:30" else ZoneInfo(zone)) for hour in hours
    ]
    expected = [int((each - EPOCH) / MICROSECOND) for each in local]
    assert found.field("t").view(pa.int64()).to_pylist() == expected
    inner = pa.struct({"n": pa.int8(), "t": pa.timestamp("us", "UTC")})
    for data_type, value in ((inner, b'{"t":"%s"}'), (pa.map_(pa.string(), inner), b'{"k":{"t":"%s"}}')):
        nested = pa.schema({"first": pa.int8(), "o": data_type})
        found, _ = decode([b'{"o":%s}' % (value % hours[0].encode())], nested, time_zone=zone)
        (decoded,) = found.field("o").to_pylist()
        shown = dict(decoded)["k"] if pa.types.is_map(data_type) else decoded
        assert shown["t"] == local[0]


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
def test_a_date_or_time(field: str, value: str, expected: int | None) -> None:
    decoded, malformed = decode([f'{{"{field}":{value}}}'.encode()], time_zone="Europe/Berlin")
    column = decoded.field(field)
    assert column.view(pa.int32() if field == "d" else pa.int64()).to_pylist() == [expected]
    assert malformed == (None if expected is not None else [[TYPE], [5]])


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
def test_a_decimal(value: str, expected: str | None, reason: str | None) -> None:
    decoded, malformed = decode([f'{{"c":{value}}}'.encode()])
    assert decoded.field("c").to_pylist() == [None if expected is None else Decimal(expected)]
    assert malformed == (None if reason is None else [[reason], [5]])


@pytest.mark.parametrize("changed", "=-. ")
def test_each_character_of_base64_is_checked(changed: str) -> None:
    text = "AAECAwQFBgcI"  # the bytes from 0 to 8
    for at in range(len(text)):
        value = text[:at] + changed + text[at + 1 :]
        decoded, malformed = decode([f'{{"x":"{value}"}}'.encode()])
        if changed == "=" and at % 4 == 3:  # the end of a group
            assert decoded.field("x").to_pylist() == [bytes(number for number in range(9) if 4 * number != 3 * at - 1)]
        else:
            assert (decoded.field("x").to_pylist(), malformed) == ([None], [[TYPE], [5]]), value


@given(
    st.text("0123456789", min_size=1, max_size=45),
    st.text("0123456789", min_size=1, max_size=45),
    st.sampled_from(["", "-"]),
    st.integers(-45, 45),
    st.sampled_from(["c", "c38", "c0"]),
)
@example("1", "5" * 38, "", 0, "c38")  # the digits that are rounded are behind those that 128 bits can have
@example("9" * 38, "5", "-", 0, "c0")
@example("1" * 38, "5", "", 0, "c0")
@settings(deadline=None, max_examples=100)
def test_decimals_are_rounded_half_up(whole: str, fraction: str, sign: str, exponent: int, name: str) -> None:
    value = f"{sign}{whole}.{fraction}e{exponent}"
    data_type = FIELDS.field(name).type
    with localcontext(prec=200):
        expected = Decimal(value).quantize(Decimal(1).scaleb(-data_type.scale), ROUND_HALF_UP)
        fits = abs(expected.scaleb(data_type.scale)) < 10**data_type.precision
    decoded, malformed = decode([f'{{"{name}":"{value}"}}'.encode()])
    assert decoded.field(name).to_pylist() == [expected if fits else None]
    assert malformed == (None if fits else [[RANGE], [len(name) + 4]])


def test_a_map_keeps_repeated_keys() -> None:
    rows = [b'{"m":{"a":1,"b":null,"a":2}}', b'{"m":{}}', b'{"m":{"a":1,"b":"x"}}', b'{"m":{"a":1},"m":{"b":2}}', b"{}"]
    decoded, malformed = decode(rows)
    assert decoded.field("m").to_pylist() == [[("a", 1), ("b", None), ("a", 2)], [], None, [("b", 2)], None]
    assert malformed[0] == [None, None, TYPE, None, None]


WIDTH: Final = 4000
WIDE_FIELDS: Final = pa.schema(
    {"m": pa.map_(pa.string(), pa.struct([(f"f{number}", pa.float64()) for number in range(WIDTH)])), "b": pa.int8()}
)


def test_the_memory_of_the_entries_of_a_map_is_bounded() -> None:
    most = MAX_DECODED_BYTES // (8 * (WIDTH + 3))  # an entry has a struct, a key and a struct of fields
    rows = [b'{"b":1,"m":{%s}}' % b",".join([b'"":{}'] * count) for count in (1, most + 1, 2)]
    decoded, malformed = decode(rows, WIDE_FIELDS)
    assert malformed == [[None, SIZE, None], [None, len(rows[1]) - 7, None]]
    assert decoded.field("b").to_pylist() == [1, None, 1]
