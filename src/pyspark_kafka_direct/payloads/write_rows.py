"""Conversion of Arrow columns to the rows that producers take: bytes and milliseconds."""

from __future__ import annotations

from array import array
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.errors import ColumnError, KafkaDirectError
from pyspark_kafka_direct.payloads.payload_encoders import NO_ENCODERS
from pyspark_kafka_direct.records.columns import integer_column

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from pyspark_kafka_direct.payloads.payload_encoders import PayloadEncoders
    from pyspark_kafka_direct.payloads.write_schema import WriteSchema

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

_BINARY: Final = pa.binary()
_STRING: Final = pa.string()

_SPLIT_BYTES: Final = 2 << 20

_MAX_MICROSECONDS: Final = float(2**63 - 1024)
"""The latest microseconds that a double can represent. As in Java, later times saturate instead of overflowing."""


def split_rows(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into slices of some MiB without copies."""
    # Spark limits the rows of a batch and not its bytes, and the producer encodes a whole slice at once.
    if batch.get_total_buffer_size() <= _SPLIT_BYTES:  # cheaper than nbytes; includes bytes outside of a slice
        if batch.num_rows:
            yield batch
        return
    rows = max(1, batch.num_rows * _SPLIT_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        part = batch.slice(start, rows)
        if rows > 1 and part.nbytes > 2 * _SPLIT_BYTES:  # large rows are next to each other
            yield from split_rows(part)
        else:
            yield part


def to_producer_rows(
    batch: pa.RecordBatch,
    schema: WriteSchema,
    now_ms: int,
    stamp: Mapping[str, bytes] | None = None,
    encoders: PayloadEncoders = NO_ENCODERS,
) -> pa.RecordBatch:
    """Return ``value``, ``timestamp``, and those of ``key``, ``topic``, ``headers`` and ``partition`` that exist.

    ``now_ms`` is the timestamp of rows without one; ``stamp`` has additional headers.
    """

    def topic_of(row: int) -> str | None:
        return None if schema.topic is None else batch.column(schema.topic)[row].as_py()

    columns = {"value": _converted("value", _encoder("value", encoders, topic_of), batch.column(schema.value))}
    if schema.key is not None:
        columns["key"] = _converted("key", _encoder("key", encoders, topic_of), batch.column(schema.key))
    if schema.topic is not None:
        columns["topic"] = _converted("topic", partial(_cast, _STRING), batch.column(schema.topic))
    if schema.partition is not None:
        columns["partition"] = batch.column(schema.partition)
    headers = _headers(batch, schema, stamp or {}, encoders)
    if headers is not None:
        columns["headers"] = headers
    columns["timestamp"] = _timestamps(batch, schema, now_ms)
    return pa.RecordBatch.from_pydict(columns)


def stamp_headers(query_id: str | None, batch_id: int | None, partition: int, attempt: int) -> dict[str, bytes]:
    """Return the headers of the option ``stampBatch``; a batch query has no query id and batch id."""
    header_values = {
        "spark.query.id": query_id,
        "spark.batch.id": batch_id,
        "spark.partition.id": partition,
        "spark.attempt": attempt,
    }
    return {name: str(value).encode() for name, value in header_values.items() if value is not None}


def append_headers(headers: pa.ListArray | None, rows: int, added: Mapping[str, bytes]) -> pa.ListArray:
    """Append the same headers to each row."""
    row_indexes = pa.array(range(rows), pa.int64())
    header_type = HEADERS.value_type
    items = [pa.repeat(pa.scalar({"key": key, "value": value}, header_type), rows) for key, value in added.items()]
    rows_of_items = [row_indexes] * len(added)
    lengths = pa.repeat(pa.scalar(len(added), pa.int64()), rows)  # of the lists of headers, by row
    if headers is not None:
        items.insert(0, headers.flatten())
        parents = pc.list_parent_indices(headers)
        if headers.null_count:  # which may have entries in Arrow that a user's function returns
            parents = parents.filter(headers.is_valid().take(parents))
        rows_of_items.insert(0, parents.cast(pa.int64()))
        lengths = pc.add(lengths, pc.fill_null(pc.list_value_length(headers), 0).cast(pa.int64()))
    # The sort by row is stable, so the row's own headers come first.
    order = pc.sort_indices(pa.concat_arrays(rows_of_items))
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, pa.concat_arrays(items).take(order))


def _headers(
    batch: pa.RecordBatch, schema: WriteSchema, stamp: Mapping[str, bytes], encoders: PayloadEncoders
) -> pa.ListArray | None:
    """Return the headers of the column, of ``stamp``, and with ids of schemas, or None if there are none."""
    headers = None
    if schema.headers is not None:
        headers = _converted("headers", partial(_cast, HEADERS), batch.column(schema.headers))
        headers = _without_headers(headers, _replaced_headers(batch, schema, encoders))
    added = {**stamp, **encoders.headers}
    return append_headers(headers, batch.num_rows, added) if added else headers


def _timestamps(batch: pa.RecordBatch, schema: WriteSchema, now_ms: int) -> pa.Array:
    """Return the milliseconds of the column, or of the write for rows without a timestamp."""
    if schema.timestamp is None:
        return integer_column(array("q", [now_ms]) * batch.num_rows)
    times = _converted("timestamp", _milliseconds, batch.column(schema.timestamp))
    earliest = pc.min(times).as_py()
    if earliest is not None and earliest < 0:
        raise ColumnError(
            f"Invalid timestamp: {earliest}. Timestamp should always be non-negative or null: the column timestamp "
            "has a time before 1970. Filter out such rows, or drop the column for the time of the write."
        )
    return pc.fill_null(times, now_ms) if times.null_count else times


def _replaced_headers(batch: pa.RecordBatch, schema: WriteSchema, encoders: PayloadEncoders) -> Collection[str]:
    """Return the names of headers with ids of schemas that rows were read with, but are not written with."""
    indexes = {"key": schema.key, "value": schema.value}
    nested = {
        side for side, index in indexes.items() if index is not None and pa.types.is_nested(batch.column(index).type)
    }
    sides = nested | encoders.columns  # without an encoder, nested types are written as JSON
    if not sides:
        return ()
    from pyspark_kafka_direct.payloads.framing import HEADER_NAMES

    return [HEADER_NAMES[side] for side in sides]


def _without_headers(headers: pa.ListArray, names: Collection[str]) -> pa.ListArray:
    """Remove the headers with these names from each row."""
    if not names:
        return headers
    entries = headers.flatten()
    is_removed = pc.is_in(entries.field("key"), value_set=pa.array(sorted(names), _STRING))
    if not pc.any(is_removed).as_py():
        return headers
    is_kept = pc.invert(is_removed)
    zero = pa.array([0], pa.int32())
    # How many of the first entries are kept: of none, one, two, ...
    kept = pa.concat_arrays([zero, pc.cumulative_sum(is_kept.cast(pa.int32()))])
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(headers), 0))  # of each row in the entries
    offsets = pa.concat_arrays([zero, kept.take(ends)])
    return pa.ListArray.from_arrays(offsets, entries.filter(is_kept))


def _converted(name: str, convert: Callable[[pa.Array], pa.Array], column: pa.Array) -> pa.Array:
    """Convert a column, or raise a ColumnError: after a retry, Arrow and the encoders would fail again."""
    try:
        return convert(column)
    except KafkaDirectError:  # some of these are a ValueError, too
        raise
    except (ValueError, NotImplementedError) as error:  # also Arrow's errors
        reason = str(error).rstrip(".")
        raise ColumnError(
            f"{name} attribute: {column.type} cannot be written: {reason}. Cast the column, or convert it to a string "
            "or to bytes, before it is written"
        ) from error


def _encoder(
    side: str, encoders: PayloadEncoders, topic_of: Callable[[int], str | None]
) -> Callable[[pa.Array], pa.Array]:
    """Return what converts keys or values to bytes."""
    return partial(encoders.encode, side, topic_of=topic_of) if side in encoders.columns else _payload


def _payload(column: pa.Array) -> pa.Array:
    """Return a key or value as bytes; structs, arrays and maps as JSON."""
    if not pa.types.is_nested(column.type):
        return _cast(_BINARY, column)
    from pyspark_kafka_direct.payloads.json.json_types import encode_json

    return encode_json(column)


def _cast(target_type: pa.DataType, column: pa.Array) -> pa.Array:
    """Cast a column unless it has the type; a cast without effect would take longer than all other work of a batch."""
    return column if column.type == target_type else column.cast(target_type)


def _milliseconds(times: pa.Array) -> pa.Array:
    """Truncate times to milliseconds as Spark's sink does."""
    if pa.types.is_floating(times.type):
        # Seconds, like Spark's cast of a double: NaN and infinity become null.
        micros = pc.multiply(pc.if_else(pc.is_finite(times), times, None), 1e6)
        micros = pc.max_element_wise(
            pc.min_element_wise(micros, _MAX_MICROSECONDS, skip_nulls=False), -_MAX_MICROSECONDS, skip_nulls=False
        )
        return pc.divide(pc.cast(micros, pa.int64(), safe=False), 1000)
    if times.type.unit != "us":  # Spark's timestamps are microseconds
        micros = pa.timestamp("us", times.type.tz)
        times = times.cast(options=pc.CastOptions(micros, allow_time_truncate=True))
    return pc.divide(times.view(pa.int64()), 1000)
