"""The check of DDL in options: typos name the option, the field and the type."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from pyspark_kafka_direct.datasource.read_schema import kafka_schema
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.payloads.ddl import arrow_type, checked_type
from pyspark_kafka_direct.payloads.json.json_values import is_variant
from pyspark_kafka_direct.payloads.spark.payload_schema import typed_schema

VALID = [
    "a int",
    "a: int, b string NOT NULL COMMENT 'x, > y' , c decimal(10, 2)",
    '`a b` struct<c: array<map<string, int>>, d int COMMENT "it\\"s">, `e``f` struct<>',
    "struct<a int>",
    "variant",
    "a variant, b timestamp_ntz, c interval day to second, d varchar(5), e string collate UTF8_LCASE",
    "a DOUBLE, b Long, c time(3), d dec, \u00e4 void, e string collate system.builtin.UTF8_LCASE not null",
    "interval interval, timestamp timestamp, struct struct<array: array<int>>, 1st int",
]


@pytest.mark.parametrize("ddl", VALID)
def test_valid_ddl(ddl: str) -> None:
    expected = ddl if ddl.startswith(("struct<", "variant")) else f"struct<{ddl}>"
    assert checked_type(ddl, "valueSchema") == expected


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("a int -- the last one", "struct<a int  >"),
        ("struct<a: int> -- note", "struct<a: int>  "),
        ("/* a */ struct<a: int>", "  struct<a: int>"),
        ("a int, -- first\nb int /* of /* a */ b */, c string comment '-- /* no */'",
         "struct<a int,  \nb int  , c string comment '-- /* no */'>"),
    ],
)  # fmt: skip
def test_comments_are_removed_because_other_columns_follow(ddl: str, expected: str) -> None:
    assert checked_type(ddl, "valueSchema") == expected


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("carrier strng", r"field carrier has the unknown type 'strng'; did you mean 'string'\?$"),
        ("carrier string dep_delay double", "there is no comma before 'dep_delay'$"),
        ("a int NOT NULL b int", "there is no comma before 'b'$"),
        ("a int COMMENT 'c' b int", "there is no comma before 'b'$"),
        ("a int, b struct<c: array<doubel>>", "field b.c has the unknown type 'doubel'; did you mean 'double'"),
        ("a int, b", "field b has no type before the end$"),
        ("a int,", "expected the name of a field, not the end$"),
        ("a int,, b int", "expected the name of a field, not ','$"),
        ("a, b int", "field a has no type before ','$"),
        ("a struct<b int", "field a: expected '>', not the end$"),
        ("a array<int", "field a: expected '>', not the end$"),
        ("a map<int>", "field a: expected ',', not '>'$"),
        ("a array", "field a: array needs the types of its elements, such as array<string>$"),
        ("a map", "field a: map needs the types of its elements, such as map<string, int>$"),
        ("a int>", "unexpected '>'$"),
        ("a int)", r"unexpected '\)'$"),
        ("dep-delay double", "the name dep-... has to be in backquotes$"),
        ("a.b int", r"the name a[.]... has to be in backquotes$"),
        ("a varchar", r"varchar needs a length, such as varchar\(20\)$"),
        ("a decimal(39, 2)", r"field a: the type decimal\(39, 2\) is not valid$"),
        ("a decimal(2, 3)", r"the type decimal\(2, 3\) is not valid$"),
        ("a decimal(2", "it ends within a type$"),
        ("a 'int'", "field a has no type before \"'int'\"$"),
        ('{"type": "object"}', "expected the name of a field, not '{'$"),
    ],
)
@pytest.mark.parametrize("payload_format", ["json", "decoders:make"])
@pytest.mark.parametrize("side", ["key", "value"])
def test_typos_name_the_option(ddl: str, problem: str, payload_format: str, side: str) -> None:
    """Before any planning, and not as a position in the DDL of all columns, which the user did not write."""
    payload = SidePayload(side, payload_format, ddl)  # type: ignore[arg-type]
    with pytest.raises(OptionError) as caught:
        typed_schema(kafka_schema(include_headers=False), PayloadSettings().with_side(payload))
    assert caught.value.message.startswith(f"{side}Schema must be DDL such as 'id bigint, name string', got {ddl!r}: ")
    assert re.search(problem, caught.value.message)


def test_a_type_that_no_column_has() -> None:
    with pytest.raises(OptionError, match=r"valueSchema must be DDL .*, got 'strng': no type 'strng'; did you mean 's"):
        checked_type("strng", "valueSchema")


def test_a_struct_may_be_empty() -> None:
    assert checked_type("", "valueSchema") == "struct<>"


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("a boolean, b TINYINT, c byte", {"a": pa.bool_(), "b": pa.int8(), "c": pa.int8()}),
        ("a smallint, b short, c int, d integer", {"a": pa.int16(), "b": pa.int16(), "c": pa.int32(), "d": pa.int32()}),
        ("a bigint, b long, c real", {"a": pa.int64(), "b": pa.int64(), "c": pa.float32()}),
        ("a float, b double, c binary", {"a": pa.float32(), "b": pa.float64(), "c": pa.binary()}),
        ("a string collate system.builtin.UTF8_LCASE", {"a": pa.string()}),
        ("a decimal, b dec(5), c numeric(38, 4)",
         {"a": pa.decimal128(10, 0), "b": pa.decimal128(5, 0), "c": pa.decimal128(38, 4)}),
        ("a date, b time, c time(3), d void",
         {"a": pa.date32(), "b": pa.time64("ns"), "c": pa.time64("ns"), "d": pa.null()}),
        ("a timestamp, b timestamp_ltz, c timestamp with local time zone",
         dict.fromkeys("abc", pa.timestamp("us", "UTC"))),
        ("a timestamp_ntz, b timestamp without time zone", dict.fromkeys("ab", pa.timestamp("us"))),
        ("a time without time zone, b time(3) without time zone", dict.fromkeys("ab", pa.time64("ns"))),
        ("a interval day to second, b interval hour", dict.fromkeys("ab", pa.duration("us"))),
        ("`a b` int, `c``d` int, 1st int", dict.fromkeys(("a b", "c`d", "1st"), pa.int32())),
        ("a array<int>", {"a": pa.list_(pa.field("element", pa.int32()))}),
        ("a map<string, array<date>>",
         {"a": pa.map_(pa.string(), pa.field("value", pa.list_(pa.field("element", pa.date32()))))}),
        ("a: struct<b: struct<>, c: int>", {"a": pa.struct({"b": pa.struct([]), "c": pa.int32()})}),
    ],
)  # fmt: skip
def test_the_arrow_types(ddl: str, expected: dict[str, pa.DataType]) -> None:
    for spelling in (ddl, f"struct<{ddl}>", f"{ddl} -- note"):
        assert arrow_type(spelling, "valueSchema") == pa.struct(expected)


def test_arrow_types_may_not_be_null() -> None:
    found = arrow_type("a int NOT NULL COMMENT 'x' 'y', b struct<c: int not null, d: int> not null", "valueSchema")
    assert found == pa.struct(
        [
            pa.field("a", pa.int32(), nullable=False),
            pa.field("b", pa.struct([pa.field("c", pa.int32(), nullable=False), ("d", pa.int32())]), nullable=False),
        ]
    )


def test_arrow_types_that_are_no_structs() -> None:
    assert is_variant(arrow_type("variant", "valueSchema"))
    assert is_variant(arrow_type("a variant", "valueSchema").field("a").type)
    assert arrow_type("decimal(5,2)", "valueSchema") == pa.decimal128(5, 2)
    assert arrow_type("array<string>", "valueSchema").value_type == pa.string()


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("a int, b interval year to month", "field b cannot be interval year to month$"),
        ("a struct<b: array<interval>>", "field a.b cannot be interval$"),
        ("a map<void, int>", "field a: keys of a map cannot be void$"),
        ("a interval year, b varchar(5), c struct<d: char(2)>", "field a cannot be interval year$"),
        ("a string, b varchar(5)", "field b cannot be varchar$"),
        ("a geometry(4326)", "field a cannot be geometry$"),
        ("a map<int, struct<b: geography(any)>>", "field a.b cannot be geography$"),
        # Spark rejects the others, too, with its own errors.
        ("a int(3)", r"field a: the type int\(3\) is not valid$"),
        ("a int()", r"field a: the type int\(\) is not valid$"),
        ("a time(7)", r"field a: the type time\(7\) is not valid$"),
        ("a decimal(0)", r"field a: the type decimal\(0\) is not valid$"),
        ("a array<int not null>", "field a: unexpected not null behind int$"),
        ("a int year", "field a: unexpected year behind int$"),
        ("a int comment 'x' not null", "field a: unexpected comment ' not null behind int$"),
        ("a void not null", "field a cannot be void not null$"),
        ("\u00e4 int", "the name \u00e4 has to be in backquotes$"),
        ("10 int", "the name 10 has to be in backquotes$"),
        ("a struct", "field a cannot be struct$"),
    ],
)
def test_what_has_no_arrow_type_names_its_field(ddl: str, problem: str) -> None:
    with pytest.raises(OptionError, match=rf"^keySchema must be DDL such as .*: {problem}"):
        arrow_type(ddl, "keySchema")
    checked_type(ddl, "keySchema")  # Spark may have the type, or reports the problem itself


def test_too_many_levels() -> None:
    with pytest.raises(OptionError, match=r"its types have too many levels$"):
        checked_type("a struct<" * 2000, "valueSchema")
