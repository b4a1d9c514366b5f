"""One record of a log as an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyspark_kafka_direct.offsets import TopicPartition

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

COLUMNS: Final = ("key", "value", "offset", "timestamp", "headers")
"""The columns that ``records_of`` wants, in this order."""


class LogRecord(NamedTuple):
    """A record of a log.

    Attributes:
        key: Its key; ``None`` if it has none.
        value: Its value; ``None`` marks that the key is deleted (a tombstone).
        partition: Number of its partition.
        offset: Its offset in the partition.
        timestamp: Milliseconds since 1970-01-01 UTC; -1 if it has none.
        headers: Pairs of name and value, in their order; a name may occur more than once.
        topic: The topic.
    """

    key: bytes | None
    value: bytes | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    topic: str


def records_of(partition: TopicPartition, rows: pa.RecordBatch) -> Iterator[LogRecord]:
    """Yield the records of an Arrow batch, which has the columns ``COLUMNS``, in this order."""
    import pyarrow as pa

    topic, number = partition
    keys, values, offsets, times, headers = rows.columns
    micros = times.view(pa.int64()).to_pylist()
    of_rows = _no_headers(rows) if headers.null_count == rows.num_rows else map(_pairs, headers.to_pylist())
    for key, value, offset, time, pairs in zip(
        keys.to_pylist(), values.to_pylist(), offsets.to_pylist(), micros, of_rows, strict=True
    ):
        yield LogRecord(key, value, number, offset, time // 1000, pairs, topic)


def _no_headers(rows: pa.RecordBatch) -> list[Headers]:
    return [()] * rows.num_rows


def _pairs(headers: list[dict[str, Any]] | None) -> Headers:
    return tuple((header["key"], header["value"]) for header in headers) if headers else ()
