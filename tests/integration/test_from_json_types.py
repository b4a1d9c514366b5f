"""Dates, timestamps, decimals, base64 and maps: the JSON decoders against Spark's ``from_json`` on the same values."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql.functions import col, from_json
from pyspark.sql.types import StructType
from tests.integration.sessions import setting
from tests.unit.payloads.test_ddl import VALID

from pyspark_kafka_direct import functions
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.payloads.ddl import arrow_type, as_type, checked_type, is_no_row_type
from pyspark_kafka_direct.payloads.json.json_values import JsonDecoder, is_variant
from pyspark_kafka_direct.payloads.spark.arrow_types import arrow_schema_in_utc
from pyspark_kafka_direct.payloads.spark.payload_schema import decoded_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ZONE: Final = "America/New_York"
FIELDS: Final = pa.schema(
    {
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
        "n": pa.timestamp("us"),
        "c": pa.decimal128(7, 2),
        "c38": pa.decimal128(38, 10),
        "x": pa.binary(),
        "m": pa.map_(pa.string(), pa.int32()),
        "mo": pa.map_(pa.string(), pa.struct({"x": pa.int32(), "d": pa.date32()})),
        "am": pa.list_(pa.map_(pa.string(), pa.decimal128(3, 1))),
        "i": pa.int32(),
        "_corrupt_record": pa.string(),
    }
)
SCHEMA: Final = (
    "d date, t timestamp_ltz, n timestamp_ntz, c decimal(7,2), c38 decimal(38,10), x binary, m map<string,int>, "
    "mo map<string,struct<x int, d date>>, am array<map<string,decimal(3,1)>>, i int, _corrupt_record string"
)

TIMES: Final = (
    *["", " ", "2020", "2020-01", "2020-1-1", "+2020-01-01", "-2020-01-01", "99999-01-01", "999999-12-31", "12345678"],
    *["9999999-01-01", "7996326", "-8314953", "123", "-1", "2147483648", "-2147483648", " 123", "1_0", "2020-01-01 x"],
    *[
        "294247-01-10T04:00:54.775807Z",
        "294247-01-10T04:00:54.775808Z",
        "-290308-12-21T19:59:05.224191Z",
        "2020-01-01T",
    ],
    *["2019-02-29", "2020-02-29", "1900-02-29", "0000-01-01", "-0004-02-29", "2020-13-01", "2020-00-01", "2020-01-00"],
    *["2020-01-01T24:00:00", "2020-01-01T23:60:00", "2020-01-01T23:59:60", "2020-01-01T12", "2020-01-01T12:30"],
    *["2020-01-01T12:30:", "2020-01-01T12:30:15.", "2020-01-01T12:30:15.1234567Z", "2020-01-01 12:30:15 ", "GMT"],
    *[
        "2021-03-14 02:30:00",
        "2021-11-07 01:30:00",
        "1883-11-18 12:03:00",
        "2300-07-01 00:00:00",
        "2900-07-01 00:00:00",
    ],
    *["2020-01-01GMT", "GMT2020-01-01", "2020-01-01T12:30GMT", "2020-01-01T12:30:00GMTGMTZ", "\t2020-01-01\x7f"],
)
OFFSETS: Final = (
    *[
        "",
        "Z",
        "z",
        "UTC",
        " GMT",
        "UT",
        "UTC+1",
        "GMT-01:30",
        "UT+0130",
        "UTC+01:30:15",
        "+1",
        "+01",
        "+0130",
        "+01:30",
    ],
    *["+1:30", "+01:3", "+013015", "+01:30:15", "-18:00", "+18:01", "-19", "+00:60", "EST", "MST", "HST", " +01:00"],
    *["+01:00 x", "GMTZ", "UTC0", "+", "+a", "+1:3", "+130", "+01:30:1", "GMT GMT", "+01GMT:00", "\x7f+01:00", "é"],
)
NUMBERS: Final = (
    *["1.5", "1.005", "-1.005", "1.004999", "99999.994", "99999.995", "1e2", "1e400", "0e400", "0e99999999999", "-0"],
    *["-0.001", "1e-400", "12345678901234567890123456789.12345678905", "9999999999999999999999999999.99999999995"],
    *["1E+3", "0.0e-2147483647", "9" * 38, "0." + "9" * 60, "NaN", "true", "01", "[1]"],
)
NUMBER_TEXTS: Final = (
    *["1.5", "1,000.5", " 1.5", ".5", "5.", ".", "+1", "+-1", "1e2", "1e", "NaN", "1_0", ",", "", "0x1", "1.5.5", "-"],
    *["1e0000000000000000002", "1e2147483648", "0e2147483647", "0e-2147483648", "1e00000000002147483648"],
)
BASE64: Final = (
    *["QUJD", "", "QUI=", "QUI", "QQ==", "QU JD", " QUJD  QUJD ", "QUJD\nQUJD", "QU\nJD", "QQ==QUJD", "Q-_D", "Q+/D"],
    *["é", "QR==", "====", "Q===", "QUJDQ%"],
)
OBJECTS: Final = (
    *['{"m":{"a":1,"a":2,"b":3}}', '{"m":{"a":1,"b":"x"},"i":1}', '{"m":{"a":null}}', '{"m":{}}', '{"m":[],"i":1}'],
    *['{"m":{"a":1},"m":{"b":2}}', '{"m":{"a":"x"},"m":{"b":2}}', '{"m":{"a":1},"m":{"b":"x"}}', '{"m":null,"i":1}'],
    *['{"m":{"":1,"\\ud83d":2,"\\u0061":3}}', "{'m':{'a':1}}", '{"m":{"a":1,}}', '{"m":{"a" 1}}', '{"m":{a:1}}'],
    *['{"mo":{"a":{"x":1},"b":{"x":"q","d":"2020-01-01"},"c":null},"i":1}', '{"mo":{"a":3},"i":1}', '{"mo":{"a":'],
    *['{"am":[{"a":1.25},{},{"a":"9","b":null}],"i":1}', '{"am":[{"a":1},{"a":100}],"i":1}', '{"am":[{}, 1],"i":1}'],
    *['{"t":1,"i":1}', '{"t":9223372036854775807}', '{"t":9223372036854775808}', '{"t":1.0}', '{"n":1}', '{"d":1}'],
    *['{"d":true,"i":1}', '{"x":1,"i":1}', "{'x':'QUJD'}", "{'x':'QUJ','i':1}", '{"x":"\\u0051UJD"}', '{"x":"Q\\/JD"}'],
)
DIFFERENCES: Final = {
    '{"t": "12:30:00"}',  # from_json reads today's date
    '{"t": "T12:30:00"}',
    '{"t": "2020-01-01T12:30:00 Europe/Berlin"}',
    '{"t": "2020-01-01T12:30:00PST"}',
    '{"c": "\\u0663"}',  # a digit of another script
    '{"d": "\\u0663"}',
    '{"x":"A","i":1}',  # from_json continues in the wrong place
    '{"x":"QQ=","i":1}',
    '{"x":"QUJD\nQUJD","i":1}',
    '{"x":"QUJ\\x","i":1}',
}


def random_times(count: int) -> Iterator[str]:
    numbers = random.Random(3)
    for _ in range(count):
        time = f"{numbers.choice([*['' for _ in range(8)], '-', '+'])}{numbers.randrange(1800, 2600)}"
        for separator, least, end in (
            ("-", 1, 13),
            ("-", 1, 31),
            (numbers.choice("T "), 0, 25),
            (":", 0, 61),
            (":", 0, 61),
        ):
            time += f"{separator}{numbers.randrange(least, end):0{numbers.choice([1, 2, 2, 2])}}"
        time += numbers.choice(["", "", f".{numbers.randrange(10**8)}"])
        yield (time + numbers.choice(OFFSETS))[: numbers.choice([60, 60, 60, numbers.randrange(25)])]


def values() -> list[str]:
    times = [*TIMES, *(f"2020-07-01T12:30:15{offset}" for offset in OFFSETS), *random_times(300)]
    rows = [json.dumps({field: time}) for time in times for field in ("d", "t", "n")]
    rows += [f'{{"{field}":{number},"i":1}}' for number in NUMBERS for field in ("c", "c38")]
    rows += [json.dumps({field: text, "i": 1}) for text in NUMBER_TEXTS for field in ("c", "c38")]
    rows += [json.dumps({"x": text, "i": 1}) for text in BASE64]
    return list(dict.fromkeys((*rows, *OBJECTS, *DIFFERENCES)))


def rows_of(structs: pa.Array) -> list[tuple[Any, ...]]:
    """Return the fields of each value; times as numbers, because Python's datetime has a smaller range."""
    columns = [_plain(column) for column in structs.flatten()]
    return list(zip(*columns, strict=True))


def _plain(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.view(pa.int32())
    return list(column.to_pylist())


@pytest.fixture
def _zone(spark: SparkSession) -> Iterator[None]:
    with setting(spark, "spark.sql.session.timeZone", ZONE):
        yield


@pytest.mark.usefixtures("_zone")
def test_the_decoder_reads_what_spark_reads(spark: SparkSession) -> None:
    texts = values()
    frame = spark.createDataFrame(list(enumerate(texts)), "number int, value string").coalesce(1)
    read = frame.select("number", from_json(col("value"), SCHEMA), functions.from_json("value", SCHEMA))
    table = read.toArrow().combine_chunks()
    assert table["number"].to_pylist() == list(range(len(texts)))
    spark_rows, function_rows = rows_of(table[1].chunk(0)), rows_of(table[2].chunk(0))
    decoded = JsonDecoder(FIELDS, "_corrupt_record", ZONE).decode(pa.array([text.encode() for text in texts]))
    for rows in (function_rows, rows_of(decoded.values)):
        differing = {
            text: (expected, row)
            for text, expected, row in zip(texts, spark_rows, rows, strict=True)
            if expected != row
        }
        assert {text: found for text, found in differing.items() if text not in DIFFERENCES} == {}
        assert DIFFERENCES - differing.keys() == set()


WORDS: Final = (
    *["a", "int", "string", ",", ":", "<", ">", "struct", "array", "(", "10", "decimal", "-", ".", "varchar"],
    *["time", "timestamp", "without time zone", "interval", "day", "to", "second", "year", "comment 'x'", "not null"],
)
SCALARS: Final = (
    *["boolean", "tinyint", "smallint", "int", "bigint", "float", "real", "double", "date", "time(3)", "timestamp_ltz"],
    *["timestamp", "timestamp_ntz", "string", "string collate UNICODE_CI", "char(3)", "varchar(7)", "binary"],
    *["variant", "decimal", "decimal(7)", "numeric(38, 9)", "interval", "interval day", "interval year", "void"],
)
NAMES: Final = ("a", "B", "`b c`", "`d``e`", "1st", "struct", "timestamp", "\u00e4")


def nested_types(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    field = st.builds(
        "{}{} {}{}{}".format,
        st.sampled_from(NAMES),
        st.sampled_from(["", ":"]),
        inner,
        st.sampled_from(["", " not null"]),
        st.sampled_from(["", " comment 'it''s'"]),
    )
    return st.one_of(
        st.builds("array<{}>".format, inner),
        st.builds("map<{}, {}>".format, inner, inner),
        st.lists(field, max_size=3).map(lambda found: f"STRUCT< {', '.join(found)}>"),
    )


def type_of_spark(ddl: str) -> pa.DataType | None:
    """Return the Arrow type of the type that Spark parses; None if there is none."""
    try:
        columns = cast("StructType", StructType.fromDDL(f"v {ddl if is_no_row_type(ddl) else as_type(ddl)}"))
        return arrow_schema_in_utc(columns).field(0).type
    except (PySparkException, ValueError):  # ValueError: a void that may not be null
        return None


def without_comments(data_type: pa.DataType) -> list[tuple[str, pa.DataType, bool, bool]]:
    """Return all fields in a type, which says whether they are VARIANTs."""
    found = []
    for field in (data_type.field(index) for index in range(data_type.num_fields)):
        found += [(field.name, field.type, field.nullable, is_variant(field.type)), *without_comments(field.type)]
    return found


def check_arrow_type(ddl: str) -> bool:
    """Compare the Arrow type with that of Spark's type, and return whether there is one."""
    try:
        found = arrow_type(ddl, "valueSchema")
    except OptionError:
        found = None
    expected = type_of_spark(ddl)
    assert found == expected, ddl
    if found is not None:
        assert without_comments(found) == without_comments(expected), ddl
    return found is not None


def test_the_check_of_ddl_rejects_nothing_that_spark_accepts(spark: SparkSession) -> None:
    generator, rejected = random.Random(4), 0
    for _ in range(400):
        tokens = re.findall(r"`[^`]*`|'[^']*'|\w+|\s+|.", generator.choice(VALID))
        for _ in range(generator.randint(0, 2)):
            tokens[generator.randrange(len(tokens))] = generator.choice(["", f" {generator.choice(WORDS)} "])
        ddl = "".join(tokens)
        check_arrow_type(ddl)
        try:
            checked_type(ddl, "valueSchema")
        except OptionError:
            rejected += 1
            assert type_of_spark(ddl) is None, ddl
    assert rejected > 100


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ddl=st.recursive(st.sampled_from(SCALARS), nested_types, max_leaves=8))
@example("map<void, int>")
@example("a time without time zone")
def test_arrow_types_are_those_of_spark(spark: SparkSession, ddl: str) -> None:
    check_arrow_type(ddl)
    check_arrow_type(f"a {ddl}, b int")


def test_a_timestamp_has_the_type_that_the_session_gives_it(spark: SparkSession) -> None:
    payloads = PayloadSettings(SidePayload("key"), SidePayload("value", "json", schema="t timestamp"))
    for timestamp_type, time_zone in (("TIMESTAMP_NTZ", None), ("TIMESTAMP_LTZ", "UTC")):
        with setting(spark, "spark.sql.timestampType", timestamp_type):
            found = decoded_columns(["value"], payloads)
        assert found is not None
        assert found.schema.field("value").type == pa.struct({"t": pa.timestamp("us", time_zone)})


def test_the_schema_of_from_json_is_named(spark: SparkSession) -> None:
    with pytest.raises(
        OptionError, match=r"^from_json: the schema must be DDL .* field b has the unknown type 'strng'"
    ):
        functions.from_json("value", "a int, b strng")
    with pytest.raises(OptionError, match=r"^from_json: the schema must be DDL .*got '10 int': .*SYNTAX_ERROR"):
        functions.from_json("value", "10 int")
