"""The records of planned offset ranges, as a stream of Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from pyspark_kafka_direct.arrow.slice_reads import SliceLosses, SliceReads
from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.consumer.batch_query import plan_batch_query
from pyspark_kafka_direct.consumer.client_rack import with_client_rack
from pyspark_kafka_direct.offsets import with_topic_ids
from pyspark_kafka_direct.options.option_messages import warn_once
from pyspark_kafka_direct.records import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pyspark_kafka_direct.arrow.slice_reads import Order, SliceLoss
    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.options.settings import ReadSettings

_DEFAULT_THREADS: Final = 4


class ArrowSlice:
    """The records of a slice of topics, as Arrow batches.

    It has the methods of ``pyarrow.RecordBatchReader``, which return each record once. polars, DuckDB and pyarrow read
    it directly (``polars.from_arrow(slice)``). Each of them, and ``to_reader()``, reads the slice from its beginning,
    with the same offset ranges.
    """

    def __init__(
        self,
        schema: pa.Schema,
        ranges: tuple[OffsetRange, ...],
        losses: SliceLosses,
        new_read: Callable[[], Generator[pa.RecordBatch, None, None]],
    ) -> None:
        self._schema = schema
        self._ranges = ranges
        self._losses = losses
        self._new_read = new_read
        self._batches = new_read()

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return self._schema

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """The planned range of each partition, also if it is empty, by topic and partition, with topic ids.

        To read exactly the same, pass them to ``read_arrow``; to continue later, start at their ``until_offset``.
        """
        return self._ranges

    def read_next_batch(self) -> pa.RecordBatch:
        """Return the next batch.

        Raises:
            StopIteration: All records were read, or the slice was closed.
        """
        return next(self._batches)

    def read_all(self) -> pa.Table:
        """Return all records that were not read yet."""
        return pa.Table.from_batches(self._batches, self._schema)

    def read_pandas(self, **options: Any) -> Any:
        """Return all records that were not read yet as a ``pandas.DataFrame``.

        Args:
            options: Arguments of ``pyarrow.Table.to_pandas``.
        """
        return self.read_all().to_pandas(**options)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a ``pyarrow.RecordBatchReader`` of all records, for functions that accept nothing else."""
        return pa.RecordBatchReader.from_batches(self._schema, self._new_read())

    @property
    def losses(self) -> tuple[SliceLoss, ...]:
        """The lost offsets that were skipped so far (``failOnDataLoss=false``), complete once all records were read."""
        return self._losses.all()

    def close(self) -> None:
        """Stop the read and release its connections; other readers of the same slice continue."""
        self._batches.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Iterate over the batches that were not read yet."""
        return self._batches

    def __enter__(self) -> Self:
        """Return the slice, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the slice."""
        self.close()

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a capsule of the Arrow PyCapsule interface."""
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all records as a capsule of the Arrow PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


def open_slice(
    settings: ReadSettings,
    columns: tuple[str, ...],
    *,
    threads: int | None,  # None: up to four
    order: Order,
    limit: int | None,
    shows_progress: bool,
) -> ArrowSlice:
    """Plan a slice."""
    pool = POOL
    planned = plan_batch_query(settings, None, pool)
    for warning in planned.plan.warnings:
        warn_once(warning)
    tasks = sorted(planned.tasks(), key=lambda task: task.offsets)
    losses = SliceLosses(planned.plan.losses)
    reads = SliceReads(
        connection=settings.connection,
        fetch=with_client_rack(settings.fetch),
        tasks=tasks,
        columns=columns,
        decoded=None,
        threads=max(1, min(threads or _DEFAULT_THREADS, len(tasks))),
        order=order,
        limit=limit,
        shows_progress=shows_progress,
        losses=losses,
        pool=pool,
    )
    ranges = sorted(with_topic_ids(planned.plan.selected, planned.topic_ids))
    return ArrowSlice(arrow_schema(columns), tuple(ranges), losses, reads.batches)
