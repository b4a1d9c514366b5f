"""The check of DDL in options: typos name the option, the field and the type."""

from __future__ import annotations

import re

import pytest

from pyspark_kafka_direct.datasource.read_schema import kafka_schema
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.payloads.ddl import checked_type
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
