"""Spark's Arrow columns as ``writing`` takes them: bytes, milliseconds, and no more columns than are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark_kafka_direct.runtime.write_schema import WriteSchema

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

_BINARY: Final = pa.binary()
_STRING: Final = pa.string()

_PIECE_BYTES: Final = 2 << 20

_LATEST: Final = float(2**63 - 1024)
"""The last time in microseconds that is a double. As in Java, a later one is taken for it, and not for one long ago."""


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces of some MiB, without a copy.

    Spark counts rows and not bytes, so a batch of long values is large, and all of a piece is encoded at once.
    """
    if batch.get_total_buffer_size() <= _PIECE_BYTES:  # quickly told; what a slice does not show is counted, too
        yield from (batch,) if batch.num_rows else ()
        return
    rows = max(1, batch.num_rows * _PIECE_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def rows_to_write(
    batch: pa.RecordBatch, schema: WriteSchema, now_ms: int, stamp: Mapping[str, bytes] | None = None
) -> pa.RecordBatch:
    """Return ``value`` and ``timestamp``, and of ``key``, ``topic``, ``headers`` and ``partition`` what there is.

    Args:
        batch: Rows of the frame.
        schema: Where its columns are.
        now_ms: The time for rows without one, in milliseconds since 1970.
        stamp: Headers that every record gets behind its own.
    """
    columns = {"value": _as(_BINARY, batch.column(schema.value))}
    if schema.key is not None:
        columns["key"] = _as(_BINARY, batch.column(schema.key))
    if schema.topic is not None:
        columns["topic"] = _as(_STRING, batch.column(schema.topic))
    if schema.partition is not None:
        columns["partition"] = batch.column(schema.partition)
    headers = None if schema.headers is None else _as(HEADERS, batch.column(schema.headers))
    if stamp:
        headers = stamped(headers, batch.num_rows, stamp)
    if headers is not None:
        columns["headers"] = headers
    if schema.timestamp is None:
        columns["timestamp"] = pa.repeat(pa.scalar(now_ms, pa.int64()), batch.num_rows)
    else:
        columns["timestamp"] = pc.fill_null(_milliseconds(batch.column(schema.timestamp)), now_ms)
    return pa.RecordBatch.from_pydict(columns)


def stamp_of(query_id: str | None, batch_id: int | None, partition: int, attempt: int) -> dict[str, bytes]:
    """Return the headers of the option ``stampBatch``; of a query and a batch only where there are such."""
    known = {
        "spark.query.id": query_id,
        "spark.batch.id": batch_id,
        "spark.partition.id": partition,
        "spark.attempt": attempt,
    }
    return {name: str(value).encode() for name, value in known.items() if value is not None}


def stamped(headers: pa.ListArray | None, rows: int, stamp: Mapping[str, bytes]) -> pa.ListArray:
    """Return headers with the same ones added to each row.

    Args:
        headers: The rows' own headers; null where a row has none.
        rows: How many rows there are.
        stamp: What is added, in this order.
    """
    numbers = pa.array(range(rows), pa.int64())
    kind = HEADERS.value_type
    added = [pa.repeat(pa.scalar({"key": key, "value": value}, kind), rows) for key, value in stamp.items()]
    items, of_rows = list(added), [numbers] * len(added)
    lengths = pa.repeat(pa.scalar(len(added), pa.int64()), rows)
    if headers is not None:
        items.insert(0, headers.flatten())
        of_rows.insert(0, pc.list_parent_indices(headers).cast(pa.int64()))
        lengths = pc.add(lengths, pc.fill_null(pc.list_value_length(headers), 0).cast(pa.int64()))
    # A stable sort by row: a row's own headers stay in front, and all in their order.
    order = pc.sort_indices(pa.concat_arrays(of_rows))
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, pa.concat_arrays(items).take(order))


def _as(kind: pa.DataType, column: pa.Array) -> pa.Array:
    """Cast what is of another type; a cast that does nothing takes longer than all else of a small batch."""
    return column if column.type == kind else column.cast(kind)


def _milliseconds(times: pa.Array) -> pa.Array:
    """Return times as Spark's sink writes them: what is less than a millisecond is cut off."""
    if pa.types.is_floating(times.type):
        # Spark's cast of a double; what is no number is no time.
        micros = pc.multiply(pc.if_else(pc.is_finite(times), times, None), 1e6)
        micros = pc.max_element_wise(pc.min_element_wise(micros, _LATEST, skip_nulls=False), -_LATEST, skip_nulls=False)
        return pc.divide(pc.cast(micros, pa.int64(), safe=False), 1000)
    if times.type.unit != "us":  # Spark's timestamps are microseconds
        times = times.cast(pa.timestamp("us", times.type.tz), safe=False)
    return pc.divide(times.view(pa.int64()), 1000)
