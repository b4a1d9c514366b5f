"""Spark's Arrow batches as rows to be written."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafka_direct.runtime.write_rows import HEADERS, pieces, rows_to_write, stamped
from pyspark_kafka_direct.runtime.write_schema import WriteSchema

NOW = 1_700_000_000_000
STAMP = {"a": b"1", "b": b""}
US = pa.timestamp("us", "UTC")


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def times(*micros: int | None) -> list[int]:
    given = batch(value=pa.array([b"v"] * len(micros)), at=pa.array(micros, pa.int64()).cast(US))
    found: list[int] = rows_to_write(given, WriteSchema(0, timestamp=1), NOW).column("timestamp").to_pylist()
    return found


def test_only_what_is_written() -> None:
    rows = rows_to_write(batch(other=pa.array([1, 2]), text=pa.array(["x", None])), WriteSchema(1), NOW)
    assert rows.schema == pa.schema([("value", pa.binary()), ("timestamp", pa.int64())])
    assert rows.to_pydict() == {"value": [b"x", None], "timestamp": [NOW, NOW]}


def test_every_column() -> None:
    given = batch(
        topic=pa.array(["t", "u"]),
        partition=pa.array([None, 3], pa.int32()),
        key=pa.array(["k", None]),
        headers=pa.array([[{"key": "h", "value": b"x"}], None], HEADERS),
        value=pa.array([b"\xff", b""]),
        timestamp=pa.array([datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None], US),
    )
    schema = WriteSchema(value=4, key=2, topic=0, headers=3, partition=1, timestamp=5)
    assert rows_to_write(given, schema, NOW).to_pydict() == {
        "value": [b"\xff", b""],
        "key": [b"k", None],
        "topic": ["t", "u"],
        "partition": [None, 3],
        "headers": [[{"key": "h", "value": b"x"}], None],
        "timestamp": [1_767_225_600_000, NOW],
    }


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_texts_become_bytes(text: pa.DataType) -> None:
    given = batch(value=pa.array(["žluť", None, ""], pa.string()).cast(text))
    rows = rows_to_write(given.slice(1), WriteSchema(0, key=0), NOW)
    assert rows.schema.field("value").type == rows.schema.field("key").type == pa.binary()
    assert rows.column("value").to_pylist() == [None, b""]
    whole = rows_to_write(given, WriteSchema(0), NOW)
    assert whole.column("value").to_pylist() == ["žluť".encode(), None, b""]


def test_a_text_is_not_copied() -> None:
    value = pa.array(["abc", "def"])
    rows = rows_to_write(batch(value=value), WriteSchema(0), NOW)
    assert rows.column("value").buffers()[2].address == value.buffers()[2].address


def test_large_headers_types() -> None:
    large = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    given = batch(value=pa.array([b""]), headers=pa.array([[("h", b"x")]], large))
    rows = rows_to_write(given, WriteSchema(0, headers=1), NOW)
    assert rows.schema.field("headers").type == HEADERS
    assert rows.column("headers").to_pylist() == [[{"key": "h", "value": b"x"}]]


def test_times_are_cut_to_milliseconds_as_in_spark() -> None:
    assert times(1_999, 2_000, None, 0) == [1, 2, NOW, 0]
    assert times(-1_999, -2_000) == [-1, -2]


def test_a_double_counts_seconds() -> None:
    given = batch(value=pa.array([b""] * 5), at=pa.array([1.5, None, float("nan"), float("inf"), -0.25]))
    found = rows_to_write(given, WriteSchema(0, timestamp=1), NOW).column("timestamp").to_pylist()
    assert found == [1500, NOW, NOW, NOW, -250]


def test_a_double_beyond_all_times_stays_on_its_side_of_1970() -> None:
    """As of Java's cast. Milliseconds or microseconds, given for seconds, must not become a time before 1970."""
    given = batch(value=pa.array([b""] * 4), at=pa.array([1.7e12, 1.7e15, 1e308, -1e308]))
    found = rows_to_write(given, WriteSchema(0, timestamp=1), NOW).column("timestamp").to_pylist()
    latest = (2**63 - 1024) // 1000
    assert found == [1_700_000_000_000_000, latest, latest, -latest]


def listed(headers: pa.Array) -> list[list[tuple[str, bytes | None]] | None]:
    rows: list[Any] = headers.to_pylist()
    return [None if row is None else [(each["key"], each["value"]) for each in row] for row in rows]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", None])
def test_times_of_any_unit(unit: str, zone: str | None) -> None:
    at = pa.array([1_700_000_000, None], pa.timestamp("s", zone)).cast(pa.timestamp(unit, zone))
    rows = rows_to_write(batch(value=pa.array([b"v"] * 2), at=at), WriteSchema(0, timestamp=1), NOW + 1)
    assert rows.column("timestamp").to_pylist() == [1_700_000_000_000, NOW + 1]


def test_large_strings_and_lists_are_made_small() -> None:
    header = pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])
    headers = pa.array([[{"key": "h", "value": b"x"}]], pa.large_list(header))
    given = batch(value=pa.array(["v"], pa.large_string()), headers=headers, topic=pa.array(["t"], pa.large_string()))
    rows = rows_to_write(given, WriteSchema(0, headers=1, topic=2), NOW)
    assert [rows.column(name).type for name in ("value", "headers", "topic")] == [pa.binary(), HEADERS, pa.string()]
    assert rows.to_pylist()[0]["headers"] == [{"key": "h", "value": b"x"}]


def test_a_stamp_comes_behind_a_rows_own_headers() -> None:
    own = pa.array([[("x", b"y"), ("x", None)], None, [], [("z", b"")]], HEADERS)
    stamps = [("a", b"1"), ("b", b"")]
    wanted = [[("x", b"y"), ("x", None), *stamps], stamps, stamps, [("z", b""), *stamps]]
    assert listed(stamped(own, 4, STAMP)) == wanted
    assert listed(stamped(own.slice(2), 2, STAMP)) == wanted[2:]
    assert listed(stamped(None, 2, STAMP)) == [stamps, stamps]
    assert stamped(own, 4, STAMP).type == HEADERS


def test_a_stamp_is_put_on_rows() -> None:
    rows = rows_to_write(batch(value=pa.array([b"v"])), WriteSchema(0), NOW, STAMP)
    assert listed(rows.column("headers")) == [[("a", b"1"), ("b", b"")]]


def test_pieces_hold_some_mib_and_at_least_a_row() -> None:
    small = batch(value=pa.array([b"v"] * 10_000))
    assert [piece.num_rows for piece in pieces(small)] == [10_000]
    large = batch(value=pa.array([b"v" * 100_000] * 100))
    found = list(pieces(large))
    assert [piece.num_rows for piece in found] == [20, 20, 20, 20, 20]
    assert pa.Table.from_batches(found).combine_chunks() == pa.Table.from_batches([large]).combine_chunks()
    huge = batch(value=pa.array([b"v" * (5 << 20)] * 2))
    assert [piece.num_rows for piece in pieces(huge)] == [1, 1]
    assert list(pieces(small.slice(0, 0))) == []
    assert [piece.num_rows for piece in pieces(large.slice(50, 20))] == [20]
    assert list(pieces(large.slice(50, 0))) == []
