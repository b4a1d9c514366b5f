"""Spark's ``from_avro`` and this package's on the same datums. Spark's jar for Avro is downloaded once."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from tests.integration.from_avro_cases import DIFFERENCES, EVOLUTIONS, REJECTED, TYPES, Case
from tests.unit.payloads.avro_data import encode, records

from pyspark_kafka_direct import OptionError
from pyspark_kafka_direct.functions import from_avro

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "avro.md"
_CASES_PER_QUERY = 12


@pytest.mark.parametrize("cases", [TYPES, EVOLUTIONS], ids=["types", "evolutions"])
def test_datums_are_decoded_as_by_spark(session: SparkSession, cases: Mapping[str, Case]) -> None:
    for first in range(0, len(cases), _CASES_PER_QUERY):
        names = list(cases)[first : first + _CASES_PER_QUERY]
        types, values = decode_with_both(session, {name: cases[name] for name in names}, "PERMISSIVE")
        for name in names:
            assert types[name][1] == types[name][0], name
            for datum, spark, ours in values[name]:
                assert comparable(ours) == comparable(spark), f"{name}: {datum!r}"


def test_differences_from_spark_are_documented(session: SparkSession) -> None:
    documented = DOCUMENTATION.read_text(encoding="utf-8").partition("## Differences from")[2]
    rows = set(re.findall(r"^\| ([^|]+?) \|", documented, re.MULTILINE))
    assert {*DIFFERENCES, *REJECTED} - rows == set()
    types, values = decode_with_both(session, DIFFERENCES, "PERMISSIVE")
    same = [
        f"{name}: {datum!r}"
        for name in DIFFERENCES
        for datum, spark, ours in values[name]
        if comparable(spark) == comparable(ours) and types[name][0] == types[name][1]
    ]
    assert same == []


def test_the_first_malformed_datum_fails_both(session: SparkSession) -> None:
    case = Case(TYPES["enum"].writer, [b"\0", b"\2"])
    _, values = decode_with_both(session, {"valid": case}, "FAILFAST")
    assert [ours for _, _, ours in values["valid"]] == [{"b": "A"}, {"b": "B"}]
    from pyspark.sql.avro.functions import from_avro as spark_from_avro

    frame = session.createDataFrame([(bytearray(b"\4"),)], "data binary")
    for function in (spark_from_avro, from_avro):
        with pytest.raises(Exception, match=r"(?i)malformed|cannot be decoded"):
            frame.select(function("data", json.dumps(case.writer), {"mode": "FAILFAST"})).collect()


@pytest.mark.parametrize("name", REJECTED)
def test_schemas_that_one_of_both_rejects(session: SparkSession, name: str) -> None:
    from pyspark.sql.avro.functions import from_avro as spark_from_avro

    writer, reader = (json.dumps(schema) for schema in REJECTED[name])
    options = {"mode": "PERMISSIVE"} | ({} if reader == "null" else {"avroSchema": reader})
    frame = session.createDataFrame([(bytearray(b"\2"),)], "data binary")
    if name == "a default that does not have its type":
        assert frame.select(from_avro("data", writer, options)).collect()[0][0].asDict() == {"b": None}
        with pytest.raises(Exception, match="Invalid default"):
            frame.select(spark_from_avro("data", writer, options)).collect()
    else:
        frame.select(spark_from_avro("data", writer, options)).collect()
        with pytest.raises(OptionError):
            from_avro("data", writer, options)


@st.composite
def datums(draw: st.DrawFn) -> tuple[Any, list[bytes]]:
    """Draw datums of a schema, of which some are damaged."""
    schema, values = draw(records())
    encoded = [encode(schema, value) for value in draw(st.lists(values, min_size=2, max_size=6))]
    for datum in encoded[1::2]:
        changed = bytearray(datum)
        for _ in range(draw(st.integers(0, 2))):
            if changed:
                changed[draw(st.integers(0, len(changed) - 1))] = draw(st.integers(0, 255))
        encoded.append(bytes(changed[: draw(st.integers(0, len(changed)))]))
    return schema, encoded


@given(st.lists(datums().filter(lambda drawn: drawn[0]["fields"]), min_size=8, max_size=8))
@settings(
    max_examples=2,
    phases=[Phase.generate],  # each example is a job of several seconds
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_random_datums_are_decoded_as_by_spark(session: SparkSession, drawn: list[tuple[Any, list[bytes]]]) -> None:
    """A datum that is malformed here may be valid for Spark, as one with bytes after it."""
    cases = {str(index): Case(schema, encoded) for index, (schema, encoded) in enumerate(drawn)}
    types, values = decode_with_both(session, cases, "PERMISSIVE")
    for name, case in cases.items():
        assert types[name][1] == types[name][0]
        for datum, spark, ours in values[name]:
            if any(value is not None for value in ours.values()):
                assert comparable(ours) == comparable(spark), (case.writer, datum)


def decode_with_both(
    session: SparkSession, cases: Mapping[str, Case], mode: str
) -> tuple[dict[str, tuple[str, str]], dict[str, list[tuple[bytes | None, Any, Any]]]]:
    """Return for each case the types of Spark and of this package, and for each datum the values of both."""
    from pyspark.sql.avro.functions import from_avro as spark_from_avro

    names = list(cases)
    frame = _frame(session, [cases[name] for name in names])
    columns = []
    for index, name in enumerate(names):
        writer, _, reader = cases[name]
        options = {"mode": mode} | ({} if reader is None else {"avroSchema": json.dumps(reader)})
        for prefix, function in (("spark", spark_from_avro), ("ours", from_avro)):
            columns.append(function(f"data{index}", json.dumps(writer), options).alias(f"{prefix}{index}"))
    read = frame.select("row", *columns)
    kinds = {field.name: field.dataType.simpleString() for field in read.schema}
    types = {name: (kinds[f"spark{index}"], kinds[f"ours{index}"]) for index, name in enumerate(names)}
    rows = sorted(read.collect(), key=lambda row: int(row.row))
    values = {
        name: [
            (datum, *(map(_without_rows, (row[f"spark{index}"], row[f"ours{index}"]))))
            for datum, row in zip(cases[name].datums, rows, strict=False)
        ]
        for index, name in enumerate(names)
    }
    return types, values


def comparable(value: Any) -> str:
    """Return a string in which the entries of maps are sorted, and NaN is equal to itself."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {comparable(value[key])}' for key in sorted(value))}}}"
    return f"[{', '.join(map(comparable, value))}]" if isinstance(value, list) else repr(value)


def _without_rows(value: Any) -> Any:
    return value.asDict(True) if isinstance(value, Row) else value


def _frame(session: SparkSession, cases: list[Case]) -> DataFrame:
    """Return a frame with a column of datums for each case."""
    rows = [
        (row, *(bytearray(datum) if datum is not None else None for datum in datums))
        for row, datums in enumerate(itertools.zip_longest(*(case.datums for case in cases)))
    ]
    columns = ", ".join(f"data{index} binary" for index in range(len(cases)))
    return session.createDataFrame(rows, f"row int, {columns}").coalesce(1)
