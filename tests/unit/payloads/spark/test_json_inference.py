"""The fields that are inferred from JSON. An integration test compares them with those of ``spark.read.json``."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.payloads.json.json_values import JsonDecoder
from pyspark_kafka_direct.payloads.spark.arrow_types import arrow_schema_in_utc
from pyspark_kafka_direct.payloads.spark.json_inference import MAX_DEPTH, infer_fields


def inferred(*values: bytes, case_sensitive: bool = False) -> str:
    return infer_fields(values, case_sensitive=case_sensitive).simpleString()


@pytest.mark.parametrize(
    ("values", "fields"),
    [
        ([b'{"b": true, "a": "x", "c": 1, "d": 1.0}'], "a:string,b:boolean,c:bigint,d:double"),
        ([b'{"a": 1}', b'{"a": null}', b'{"b": "x"}'], "a:bigint,b:string"),
        ([b'{"a": 1}', b'{"a": 2.5}'], "a:double"),
        ([b'{"a": 1}', b'{"a": true}'], "a:string"),
        ([b'{"a": ""}', b'{"a": 1}'], "a:bigint"),
        ([b'{"a": ""}'], "a:string"),
        ([b'{"a": 9223372036854775807, "b": -9223372036854775808}'], "a:bigint,b:bigint"),
        ([b'{"a": 9223372036854775808}', b'{"a": 1}'], "a:string"),
        ([b'{"a": 9223372036854775808}', b'{"a": 1.5}'], "a:double"),
        ([b'{"a": 1%s}' % (b"0" * 38)], "a:double"),
        ([b'{"a": -1%s, "b": -1%s}' % (b"0" * 38, b"0" * 37)], "a:double,b:string"),
        ([b'{"a": [%s]}' % b",".join([b"[1]"] * 2000)], "a:array<array<bigint>>"),
        ([b'{"a": {"b": 1}}', b'{"a": {"c": [1, 2.5, null]}}'], "a:struct<b:bigint,c:array<double>>"),
        ([b'{"a": {"b": 1}}', b'{"a": [1]}'], "a:string"),
        ([b'{"a": []}', b'{"b": [{}], "c": {}, "": 1}'], "a:array<string>"),
        ([b'{"a": [[], ["x"]]}'], "a:array<array<string>>"),
        ([b'{"a": 1, "a": 2.5}'], "a:double"),
        ([b'{"a": 2.5, "a": 1}', b'{"b": {"c": 1}, "b": {"d": true}}'], "a:double,b:struct<c:bigint,d:boolean>"),
        ([b"{'a': NaN, 'b\\u0061': -INF}"], "a:double,ba:double"),
    ],
)
def test_types_are_merged(values: list[bytes], fields: str) -> None:
    assert inferred(*values) == f"struct<{fields}>"


def test_what_is_not_a_json_object_is_ignored() -> None:
    values = (b"", b" ", b"[1]", b"1", b'{"b": 1', b'{"b": 1} x', b'{"b": 01}', b'{"b": \xff}')
    assert inferred(*values) == "struct<>"
    assert inferred(*values, b'{"a": 1}') == "struct<a:bigint>"


def test_the_first_of_names_that_differ_only_in_case_remains() -> None:
    values = (b'{"Id": 1, "id": "x"}', b'{"ID": true, "o": {"n": 1, "N": 1}}')
    assert inferred(*values) == "struct<Id:bigint,o:struct<n:bigint>>"
    assert inferred(*values, case_sensitive=True) == (
        "struct<ID:boolean,Id:bigint,id:string,o:struct<N:bigint,n:bigint>>"
    )


@pytest.mark.parametrize(("opening", "closing"), [(b'{"a":', b"}"), (b"[", b"]")])
def test_deeply_nested_values_have_a_type_that_can_be_decoded(opening: bytes, closing: bytes) -> None:
    value = b'{"a":' + opening * 900 + b"1" + closing * 900 + b"}"
    fields = arrow_schema_in_utc(infer_fields([value], case_sensitive=False))
    assert "string" in str(fields)
    import pyarrow as pa

    assert JsonDecoder(fields).decode(pa.array([value])).malformed is None


@pytest.mark.parametrize("inner", [b"[]", b"{}"])
def test_the_nesting_is_bounded_behind_other_values(inner: bytes) -> None:
    siblings = b",".join([inner] * 10)
    for levels in (MAX_DEPTH - 1, MAX_DEPTH):
        value = b'{"a": [%s], "b": 1, "c": %s}' % (siblings, b"[" * levels + b"]" * levels)
        assert ("b:bigint" in inferred(value)) is (levels < MAX_DEPTH), "one level is that of the object"
