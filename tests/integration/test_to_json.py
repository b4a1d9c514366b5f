"""The JSON encoders against Spark's ``to_json`` on the same rows."""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql.functions import col, to_json
from pyspark.sql.pandas.types import to_arrow_type
from tests.integration.sessions import setting

from pyspark_kafka_direct.payloads.json.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

INT32: Final = st.integers(-(2**31), 2**31 - 1)
TEXT: Final = st.text(st.characters(codec="utf-8")) | st.sampled_from(["", '"\\/\b\f\n\r\t\x00\x1f\x7f', "é中😀\u2028"])
DOUBLES: Final = st.floats() | st.sampled_from([0.001, 9.99e-4, 1e7, 9999999.0, 5e-324, 100.0, -0.0, 123456.789])
MICROS: Final = st.integers(-(10**17), 10**17) | st.integers(-(2 * 10**15), 4 * 10**15)
OPTIONAL_INT: Final = st.none() | INT32

# Type in Spark, and the values; times as numbers, because Python's datetime has a smaller range.
FIELDS: Final[dict[str, tuple[str, st.SearchStrategy[Any]]]] = {
    "b": ("boolean", st.booleans()),
    "y": ("tinyint", st.integers(-128, 127)),
    "h": ("smallint", st.integers(-(2**15), 2**15 - 1)),
    "i": ("int", INT32),
    "l": ("bigint", st.integers(-(2**63), 2**63 - 1)),
    "f": ("float", st.floats(width=32)),
    "d": ("double", DOUBLES),
    "n": ("decimal(38,18)", st.decimals(-(10**20) + 1, 10**20 - 1, places=18)),
    "n2": ("decimal(9,9)", st.decimals("-0.9", "0.9", places=9)),
    "n0": ("decimal(20,0)", st.decimals(-(10**20) + 1, 10**20 - 1, places=0)),
    'a field "é"': ("string", TEXT),
    "x": ("binary", st.binary().map(bytearray)),
    "days": ("int", INT32),
    "micros": ("bigint", MICROS),
    "o": ("struct<x: int, t: string>", st.tuples(OPTIONAL_INT, st.none() | TEXT)),
    "a": ("array<double>", st.lists(st.none() | DOUBLES, max_size=3)),
    "aa": (
        "array<array<struct<x: int>>>",
        st.lists(st.lists(st.none() | st.tuples(OPTIONAL_INT), max_size=2), max_size=2),
    ),
    "m": ("map<string,string>", st.dictionaries(TEXT, st.none() | TEXT, max_size=3)),
    "ml": ("map<bigint,boolean>", st.dictionaries(INT32, st.none() | st.booleans(), max_size=2)),
    "md": ("map<double,int>", st.dictionaries(st.floats(allow_nan=False), OPTIONAL_INT, max_size=2)),
    "mn": ("map<decimal(12,3),int>", st.dictionaries(st.decimals(-(10**8), 10**8, places=3), OPTIONAL_INT, max_size=2)),
    "mb": ("map<boolean,int>", st.dictionaries(st.booleans(), OPTIONAL_INT)),
}
TIMES: Final = {
    "dt": "date_from_unix_date(days)",
    "ts": "timestamp_micros(micros)",
    "nt": "timestamp_ntz '1970-01-01' + make_dt_interval(0, 0, 0, micros / 1000000D)",
    "mt": "if(micros IS NULL, NULL, map(timestamp_micros(micros), date_from_unix_date(days)))",
    "mdt": "if(days IS NULL, NULL, map(date_from_unix_date(days), 1))",
}
ROWS: Final = st.lists(st.tuples(*(st.none() | values for _, values in FIELDS.values())), min_size=30, max_size=60)
TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^",:{}\[\]]+|.', re.DOTALL)


@pytest.fixture(params=["UTC", "America/New_York", "+05:30", "PST"])
def zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    with setting(spark, "spark.sql.session.timeZone", request.param):
        yield str(request.param)


# Without shrinking: each example is a Spark job.
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(ROWS)
def test_the_encoder_writes_what_spark_writes(spark: SparkSession, zone: str, rows: list[tuple[Any, ...]]) -> None:
    schema = ", ".join(f"`{name}` {kind}" for name, (kind, _) in FIELDS.items())
    frame = spark.createDataFrame([*rows, tuple([None] * len(FIELDS))], schema).selectExpr(
        "struct(*, " + ", ".join(f"{expression} AS {name}" for name, expression in TIMES.items()) + ") AS value"
    )
    both = frame.select("value", to_json(col("value")).alias("json")).toArrow().combine_chunks()
    column: Any = both.column("value")
    values: pa.Array = column.combine_chunks()
    # The sink receives the time zone of the session in the type, and toArrow() may use UTC.
    values = values.cast(to_arrow_type(frame.schema["value"].dataType, timezone=zone))
    expected = both.column("json").to_pylist()
    encoded = [value.decode() for value in encode_json(values).to_pylist()]
    for ours, sparks in zip(encoded, expected, strict=True):
        assert_same(ours, sparks)


def assert_same(ours: str, sparks: str) -> None:
    """Compare texts. Before Java 19, Spark writes some floating-point numbers with more digits than they need."""
    if ours == sparks:
        return
    tokens = list(zip(TOKENS.findall(ours), TOKENS.findall(sparks), strict=True))
    for index, pair in enumerate(tokens):
        if pair[0] != pair[1]:
            numbers = [float(token.strip('"')) for token in pair]
            if tokens[max(index - 2, 0)][0] == '"f"':
                numbers = [ctypes.c_float(number).value for number in numbers]
            assert numbers[0] == numbers[1], (ours, sparks)
            assert len(pair[0]) <= len(pair[1]), (ours, sparks)
