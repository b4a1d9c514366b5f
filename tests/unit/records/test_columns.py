"""Column types as in Spark, and any subset in any order."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from array import array

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
from tests.unit.records.decoding import request, run

from pyspark_kafka_direct.records import COLUMNS, arrow_schema
from pyspark_kafka_direct.records.columns import (
    binary_column,
    binary_values,
    header_column,
    integer_column,
    integer_values,
)

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


def test_batches_have_exactly_the_schema() -> None:
    for batch in run(DATA).batches:
        assert batch.schema.equals(to_arrow_schema(SPARK, timezone="UTC"), check_metadata=True)


def test_any_columns_in_any_order() -> None:
    all_columns = run(DATA)
    subsets = itertools.chain(
        itertools.permutations(COLUMNS, 1), itertools.permutations(COLUMNS, 2), [COLUMNS[::-1], COLUMNS[3:]]
    )
    for columns in subsets:
        outcome = run(DATA, request(columns=columns))
        assert [batch.schema.names for batch in outcome.batches] == [list(columns)]
        for name in columns:
            assert outcome.column(name) == all_columns.column(name)


def test_no_columns_still_count_rows() -> None:
    (batch,) = run(DATA, request(2, 9, columns=())).batches
    assert (batch.num_rows, batch.num_columns) == (7, 0)


def test_batches_survive_arrow_ipc() -> None:
    outcome = run(DATA, request(max_rows=3))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow_schema(COLUMNS)) as writer:
        for batch in outcome.batches:
            writer.write_batch(batch)
    table = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert table.to_pylist() == outcome.rows()


@pytest.mark.parametrize("bad", [["offsets"], ["key", "offsets"], ["key", "key"]])
def test_invalid_columns_are_rejected(bad: list[str]) -> None:
    with pytest.raises(ValueError, match="column"):
        arrow_schema(bad)


def test_importing_records_is_cheap() -> None:
    heavy = "('pyarrow', 'pyspark', 'kafka')"
    code = f"import sys, pyspark_kafka_direct.records; print([name for name in {heavy} if name in sys.modules])"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"


def test_arrow_arrays_are_made_of_python_values() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        values = [chance.choice((None, b"", chance.randbytes(chance.randrange(9)))) for _ in range(seed % 20)]
        column = binary_column(values)
        column.validate(full=True)
        assert column.equals(pa.array(values, pa.binary()))
        assert binary_values(column) == values
    for code, data_type in (("i", pa.int32()), ("q", pa.int64())):
        integers = integer_column(array(code, [-1, 2, 3]))
        integers.validate(full=True)
        assert integers.equals(pa.array([-1, 2, 3], data_type))
        assert [*integer_values(integers, code)] == [-1, 2, 3]
    rows: list[list[tuple[str, bytes | None]]] = [[("\xfc", b"x"), ("", None)], [], [("h", b"")], []]
    headers = header_column(rows)
    headers.validate(full=True)
    assert headers.to_pylist() == [[{"key": key, "value": value} for key, value in row] for row in rows]


def test_writing_records_imports_no_pandas() -> None:
    """Not even if it is installed: in tasks, commits and logs it would take time and memory for nothing."""
    code = """
import sys
from array import array
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.producer.compacted_partition import keyed_rows
from pyspark_kafka_direct.records import RecordEncoder
from pyspark_kafka_direct.records.columns import binary_column, header_column, integer_column
from pyspark_kafka_direct.payloads.write_rows import to_producer_rows
from pyspark_kafka_direct.payloads.write_schema import WriteSchema
import pyarrow as pa
columns = {
    "key": binary_column([b"k"]),
    "value": binary_column([None]),
    "timestamp": integer_column(array("q", [1_000])).view(pa.timestamp("us")),
    "headers": header_column([[("h", b"x")]]),
}
batch = pa.record_batch(columns)
schemas = WriteSchema(value=1), WriteSchema(key=0, value=1, headers=3)
for rows in (keyed_rows([(b"k", None)], 0, SYSTEM), *(to_producer_rows(batch, schema, 0) for schema in schemas)):
    encoder = RecordEncoder(topic="t", partitions=1, codec="zstd")
    assert len([*encoder.add(rows), *encoder.flush()]) == 1
print("pandas" in sys.modules)
"""
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert completed.stdout == "False\n", completed.stderr
