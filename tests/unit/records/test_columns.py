"""Column types as in Spark, and any subset in any order."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from tests.unit.records.batches import Batch, Rec
from tests.unit.records.decoding import both, request, run

from pyspark_kafka_direct.records import COLUMNS, arrow_schema

SPARK = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField(
            "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
        ),
        StructField("leaderEpoch", IntegerType()),
    ]
)

DATA = b"".join(
    Batch(
        tuple(Rec(b"v%d" % n, None if n % 2 else b"k", headers=((b"h", b"x"),) if n % 3 else ()) for n in range(5)),
        base,
    ).encode()
    for base in (0, 5)
)


def test_the_schema_is_sparks() -> None:
    expected = to_arrow_schema(SPARK, timezone="UTC")
    assert arrow_schema(COLUMNS).equals(expected, check_metadata=True)
    for name in COLUMNS:
        ours, theirs = arrow_schema([name]).field(name), expected.field(name)
        assert (ours, ours.nullable) == (theirs, theirs.nullable)
    ours, theirs = (schema.field("headers").type for schema in (arrow_schema(COLUMNS), expected))
    assert str(ours) == str(theirs)
    assert [field.nullable for field in ours.value_type] == [field.nullable for field in theirs.value_type]


@both
def test_batches_have_exactly_the_schema(implementation: str) -> None:
    for batch in run(implementation, DATA).batches:
        assert batch.schema.equals(to_arrow_schema(SPARK, timezone="UTC"), check_metadata=True)


@both
def test_any_columns_in_any_order(implementation: str) -> None:
    all_columns = run(implementation, DATA)
    subsets = itertools.chain(
        itertools.permutations(COLUMNS, 1), itertools.permutations(COLUMNS, 2), [COLUMNS[::-1], COLUMNS[3:]]
    )
    for columns in subsets:
        outcome = run(implementation, DATA, request(columns=columns))
        assert [batch.schema.names for batch in outcome.batches] == [list(columns)]
        for name in columns:
            assert outcome.column(name) == all_columns.column(name)


@both
def test_no_columns_still_count_rows(implementation: str) -> None:
    (batch,) = run(implementation, DATA, request(2, 9, columns=())).batches
    assert (batch.num_rows, batch.num_columns) == (7, 0)


@both
def test_batches_survive_arrow_ipc(implementation: str) -> None:
    outcome = run(implementation, DATA, request(max_rows=3))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow_schema(COLUMNS)) as writer:
        for batch in outcome.batches:
            writer.write_batch(batch)
    table = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert table.to_pylist() == outcome.rows()


@pytest.mark.parametrize("bad", [["offsets"], ["key", "key"]])
def test_invalid_columns_are_rejected(bad: list[str]) -> None:
    with pytest.raises(ValueError, match="column"):
        arrow_schema(bad)


def test_importing_records_is_cheap() -> None:
    heavy = "('pyarrow', 'pyspark', 'kafka')"
    code = f"import sys, pyspark_kafka_direct.records; print([name for name in {heavy} if name in sys.modules])"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"
