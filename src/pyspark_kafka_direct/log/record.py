"""One record of a log as an object."""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pyspark_kafka_direct.records.values import binary_values, integers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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


# The class's own __new__ is a Python function, which takes twice as long.
_record: Callable[[Iterable[Any]], LogRecord] = partial(tuple.__new__, LogRecord)


def records_of(partition: TopicPartition, rows: pa.RecordBatch) -> Iterator[LogRecord]:
    """Return the records of an Arrow batch, which has the columns ``COLUMNS``, in this order."""
    topic, number = partition
    keys, values, offsets, times, headers = rows.columns
    millis = [micros // 1000 for micros in integers(times, "q")]
    pairs = repeat(()) if headers.null_count == rows.num_rows else map(_pairs, headers.to_pylist())
    fields = zip(
        binary_values(keys),
        binary_values(values),
        repeat(number),
        integers(offsets, "q"),
        millis,
        pairs,
        repeat(topic),
    )
    return map(_record, fields)


def _pairs(headers: list[dict[str, Any]] | None) -> Headers:
    return tuple((header["key"], header["value"]) for header in headers) if headers else ()
