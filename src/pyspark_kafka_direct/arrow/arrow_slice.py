"""The records of planned offset ranges, as a stream of Arrow batches."""

from __future__ import annotations

import logging
import os
from inspect import GEN_CLOSED, getgeneratorstate
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

import pyarrow as pa

from pyspark_kafka_direct.arrow.slice_reads import SliceLosses, SliceReads
from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.consumer.batch_query import plan_batch_query
from pyspark_kafka_direct.consumer.client_rack import with_client_rack
from pyspark_kafka_direct.offsets import with_topic_ids
from pyspark_kafka_direct.options.payload_settings import ERROR_COLUMN
from pyspark_kafka_direct.records import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.arrow.slice_reads import Order, SliceLoss
    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.options.payload_settings import PayloadSettings
    from pyspark_kafka_direct.options.settings import ReadSettings
    from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns

_log = logging.getLogger("pyspark_kafka_direct.arrow")

_MAX_DEFAULT_THREADS: Final = 4
_TIMESTAMP: Final = "timestamp"


# `polars.from_arrow` returns a frame for pyarrow's own classes, and a series for others. This base is the one of all
# classes of pyarrow; its objects can be referred to weakly, and it has nothing else. The class of readers is no base:
# pyarrow creates its C++ object in functions only, and does not check that it exists.
class ArrowSlice(pa.lib._Weakrefable):  # type: ignore[misc]
    """The records of a slice of topics, as Arrow batches.

    It has the methods of ``pyarrow.RecordBatchReader``. polars, DuckDB and pyarrow read it directly
    (``polars.from_arrow(slice)``), as often as you like: each of them, ``to_reader()``, and any read after the end,
    reads the same offset ranges from their beginning. A slice without records has one batch without rows.
    """

    def __init__(self, ranges: tuple[OffsetRange, ...], losses: SliceLosses, reads: SliceReads) -> None:
        self._ranges = ranges
        self._losses = losses
        self._reads = reads
        self._batches = reads.batches()
        self._is_closed = False

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return self._reads.schema

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """The planned range of each partition, also if it is empty, by topic and partition, with topic ids.

        To read exactly the same, pass them to ``read_arrow``; to continue later, start at their ``until_offset``.
        """
        return self._ranges

    def read_next_batch(self) -> pa.RecordBatch:
        """Return the next batch.

        Raises:
            StopIteration: All records were read.
            RuntimeError: The slice was closed.
        """
        self._check_open()
        return next(self._batches)

    def read_all(self) -> pa.Table:
        """Return the records that were not read yet, or all of them if none are left."""
        return pa.Table.from_batches(iter(self), self.schema)

    def read_pandas(self, **options: Any) -> Any:
        """Return the result of ``read_all`` as a ``pandas.DataFrame``.

        Args:
            options: Arguments of ``pyarrow.Table.to_pandas``.
        """
        return self.read_all().to_pandas(**options)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a ``pyarrow.RecordBatchReader`` of all records, for functions that accept nothing else."""
        self._check_open()
        return pa.RecordBatchReader.from_batches(self.schema, self._reads.batches())

    @property
    def losses(self) -> tuple[SliceLoss, ...]:
        """The lost offsets that were skipped so far (``failOnDataLoss=false``), complete once all records were read."""
        return self._losses.all()

    def close(self) -> None:
        """Stop the read and release its connections; other readers of the same slice continue."""
        self._is_closed = True
        self._batches.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Iterate over the batches that were not read yet, or over all of them if none are left."""
        self._check_open()
        if getgeneratorstate(self._batches) == GEN_CLOSED:
            self._batches = self._reads.batches()
        return self._batches

    def __next__(self) -> pa.RecordBatch:
        """Return the next batch."""
        return self.read_next_batch()

    def __enter__(self) -> Self:
        """Return the slice, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the slice."""
        self.close()

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a capsule of the Arrow PyCapsule interface."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all records as a capsule of the Arrow PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> NoReturn:
        """Reject copies and pickling, as connections and threads belong to one process."""
        raise TypeError("A slice cannot be pickled or copied; pass its ranges to read_arrow in the other process.")

    def _check_open(self) -> None:
        if self._is_closed:  # otherwise, it would seem to have no records
            raise RuntimeError(
                "The slice is closed; read it before the end of the with block, or call read_arrow again."
            )


def open_slice(
    settings: ReadSettings,
    columns: tuple[str, ...],
    *,
    threads: int | None,  # None: see `_default_threads`
    order: Order,
    limit: int | None,
    shows_progress: bool,
) -> ArrowSlice:
    """Plan a slice."""
    needs_timestamp = order == "timestamp" and _TIMESTAMP not in columns
    read_columns = (*columns, _TIMESTAMP) if needs_timestamp else columns
    decoded = _decoded_columns(read_columns, settings.payloads)
    read_schema = arrow_schema(read_columns) if decoded is None else decoded.schema
    pool = POOL
    planned = plan_batch_query(settings, pool=pool)
    for warning in planned.plan.warnings:
        _log.warning("%s", warning)
    tasks = sorted(planned.tasks(), key=lambda task: task.offsets)
    losses = SliceLosses(planned.plan.losses)
    reads = SliceReads(
        connection=settings.connection,
        fetch=with_client_rack(settings.fetch),
        tasks=tasks,
        schema=pa.schema([read_schema.field(index) for index in range(len(columns))]),
        read_columns=read_columns,
        decoded=decoded,
        threads=max(1, min(threads or _default_threads(), len(tasks))),
        order=order,
        limit=limit,
        shows_progress=shows_progress,
        losses=losses,
        pool=pool,
    )
    ranges = sorted(with_topic_ids(planned.plan.selected, planned.topic_ids))
    return ArrowSlice(tuple(ranges), losses, reads)


def _decoded_columns(columns: tuple[str, ...], payloads: PayloadSettings) -> DecodedColumns | None:
    """Return how keys and values are decoded, with the schemas of a registry; None if they remain bytes."""
    if not payloads.decodes and ERROR_COLUMN not in columns:
        return None  # the imports below are slow
    from pyspark_kafka_direct.payloads.arrow_columns import decoded_columns
    from pyspark_kafka_direct.payloads.reader_schemas import with_reader_schemas

    return decoded_columns(columns, with_reader_schemas(payloads))


def _default_threads() -> int:
    """Return half of the processors: one thread fetches while it decodes, and more would compete with the broker."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(processors // 2, _MAX_DEFAULT_THREADS))
