"""Helpers for tests of encoders: rows, an encoder, and decoding of their batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st
from tests.unit.records.decoding import request

from pyspark_kafka_direct.records import RecordDecoder, RecordEncoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_kafka_direct.records import EncodedBatch

HEADER = 61
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


@dataclass(frozen=True)
class Row:
    """A row to encode."""

    value: bytes | None = b"v"
    key: bytes | None = None
    headers: tuple[tuple[str | None, bytes | None], ...] | None = None
    partition: int | None = None
    timestamp: int = 1_700_000_000_000


def arrow(rows: Sequence[Row]) -> pa.RecordBatch:
    headers = [
        row.headers if row.headers is None else [{"key": key, "value": value} for key, value in row.headers]
        for row in rows
    ]
    return pa.record_batch(
        {
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
            "headers": pa.array(headers, HEADERS),
            "partition": pa.array([row.partition for row in rows], pa.int32()),
            "timestamp": pa.array([row.timestamp for row in rows], pa.int64()),
        }
    )


def make_encoder(**wanted: Any) -> RecordEncoder:
    defaults: dict[str, Any] = {"topic": "flights", "partitions": 1}
    return RecordEncoder(**defaults | wanted)


def encode(rows: Sequence[Row] | pa.RecordBatch, **wanted: Any) -> list[EncodedBatch]:
    """Encodes all rows at once."""
    encoder = make_encoder(**wanted)
    batches = [*encoder.add(rows if isinstance(rows, pa.RecordBatch) else arrow(rows)), *encoder.flush()]
    assert encoder.open_bytes == 0
    return batches


def decode(*batches: bytes | bytearray | memoryview) -> list[Row]:
    """Decodes batches."""
    rows = []
    for data in batches:
        decoder = RecordDecoder(
            **request(0, columns=("key", "value", "headers", "timestamp"), max_bytes=1 << 30, max_rows=1 << 20)
        )
        decoder.feed(data)
        while (read := decoder.read()) is not None:
            timestamps = (micros // 1000 for micros in read.column("timestamp").cast(pa.int64()).to_pylist())
            for row, timestamp in zip(read.drop_columns(["timestamp"]).to_pylist(), timestamps, strict=True):
                headers = row["headers"] and tuple((pair["key"], pair["value"]) for pair in row["headers"])
                rows.append(Row(row["value"], row["key"], headers, None, timestamp))
    return rows


def without_offsets(rows: Iterable[Row]) -> list[Row]:
    """The rows as they are decoded: without partition, and null for an empty list of headers."""
    return [Row(row.value, row.key, row.headers or None, None, row.timestamp) for row in rows]


TIMESTAMPS = st.integers(-(1 << 50), 1 << 50) | st.integers(1_700_000_000_000, 1_700_000_100_000)


def some_rows(partitions: int = 1, timestamps: st.SearchStrategy[int] = TIMESTAMPS) -> st.SearchStrategy[list[Row]]:
    """Random rows."""
    data = st.none() | st.binary(max_size=80)
    name = st.text(max_size=5)
    return st.lists(
        st.builds(
            Row,
            data,
            data,
            st.none() | st.lists(st.tuples(name, data), max_size=4).map(tuple),
            st.none() | st.integers(0, partitions - 1),
            timestamps,
        ),
        max_size=40,
    )
