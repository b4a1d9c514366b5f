"""Reads the planned offset ranges of a slice, in an order of the caller, up to a limit."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from pyspark_kafka_direct.arrow.parallel_reads import ParallelReads, RangeRead
from pyspark_kafka_direct.arrow.progress import Progress
from pyspark_kafka_direct.consumer.fetcher import read_range
from pyspark_kafka_direct.consumer.range_task import ReadCounts
from pyspark_kafka_direct.errors import KafkaDirectError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.consumer.range_task import RangeTask
    from pyspark_kafka_direct.options.settings import ConnectionSettings, FetchSettings
    from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns
    from pyspark_kafka_direct.planning.loss_errors import DataLossCause, SkippedLoss

Order = Literal["partition", "timestamp"]

_log = logging.getLogger("pyspark_kafka_direct.arrow")

# All partitions are read at the same time in the order of timestamps, so they share these limits.
_MERGED_FETCH_BYTES: Final = 128 << 20
_MERGED_BATCH_BYTES: Final = 64 << 20
_MERGED_BATCH_ROWS: Final = 256 << 10
_MIN_FETCH_BYTES: Final = 64 << 10
_MIN_BATCH_BYTES: Final = 64 << 10
_MIN_BATCH_ROWS: Final = 256
_MAX_BATCH_BYTES: Final = 4 << 20
_MAX_BATCH_ROWS: Final = 32_768


class SliceLoss(NamedTuple):
    """Lost offsets of a partition that were skipped (``failOnDataLoss=false``).

    Attributes:
        topic: The topic.
        partition: The partition number.
        cause: ``aged_out``, ``deleted``, ``recreated``, ``beyond_end``, ``truncated`` or ``unproven_gap``.
        offsets: The number of offsets; 0 if it is unknown, or if other records replaced those that were read.
    """

    topic: str
    partition: int
    cause: str
    offsets: int


class SliceLosses:
    """The losses of a slice, whose records several readers may read."""

    def __init__(self, planned: Sequence[SkippedLoss]) -> None:
        for loss in planned:
            _log.warning("%s", loss.message)
        self._planned = [(tp, loss.cause, count) for loss in planned for tp, count in loss.offsets.items()]
        self._read: dict[int, tuple[RangeTask, Mapping[DataLossCause, int]]] = {}  # by the index of the range

    def found(self, index: int, task: RangeTask, skipped: Mapping[DataLossCause, int]) -> None:
        """Note what the read of a range skipped; another read of the same range replaces it."""
        self._read[index] = task, skipped

    def all(self) -> tuple[SliceLoss, ...]:
        """Return all losses by partition."""
        read = [
            (task.offsets.topic_partition, *loss)
            for task, skipped in list(self._read.values())  # copied, because threads may add to it
            for loss in skipped.items()
        ]
        found = [SliceLoss(*tp, cause.name.lower(), offsets) for tp, cause, offsets in (*self._planned, *read)]
        return tuple(sorted(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceReads:
    """All that the readers of a slice have in common."""

    connection: ConnectionSettings
    fetch: FetchSettings
    tasks: Sequence[RangeTask]  # by topic, partition, offset
    schema: pa.Schema  # of the columns of the caller
    read_columns: tuple[str, ...]  # those, and perhaps others behind them that the order needs
    decoded: DecodedColumns | None  # of all of them; None: keys and values are bytes
    threads: int
    order: Order
    limit: int | None
    shows_progress: bool
    losses: SliceLosses
    pool: ConnectionPool

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the records, or one batch without rows if there are none, so that its reader knows the columns."""
        if self.limit == 0 or not self.tasks:
            yield self._empty_batch()
            return
        counts = [task.offsets.count() for task in self.tasks]
        planned = sum(counts) if self.limit is None else min(sum(counts), self.limit)
        progress = Progress(planned, self.pool.system, enabled=self.shows_progress)
        by_timestamp = self.order == "timestamp"
        reads = ParallelReads(
            [
                RangeRead(self._range(index, task), before, count)
                for index, (task, before, count) in enumerate(
                    zip(self.tasks, accumulate(counts, initial=0), counts, strict=False)
                )
            ],
            self.threads,
            self.pool.system,
            open_ranges=len(counts) if by_timestamp else self.threads,
            limit=None if by_timestamp else self.limit,
        )
        partitions = groupby(enumerate(self.tasks), key=lambda entry: entry[1].offsets.topic_partition)
        sources = [_PartitionSource(reads, list(ranges), progress).next_batch for _, ranges in partitions]
        is_empty = True
        try:
            for batch in self._limited(self._ordered(sources)):
                is_empty = False
                yield batch
            if is_empty:  # of compaction, aborted transactions or dropped records
                yield self._empty_batch()
        finally:
            reads.close()
            progress.close()

    def _empty_batch(self) -> pa.RecordBatch:
        import pyarrow as pa

        return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in self.schema.types], schema=self.schema)

    def _ordered(self, sources: Sequence[Callable[[], pa.RecordBatch | None]]) -> Iterator[pa.RecordBatch]:
        if self.order == "partition":
            for source in sources:
                while (batch := source()) is not None:
                    yield batch
            return
        from pyspark_kafka_direct.arrow.timestamp_order import merge_by_timestamp

        for batch in merge_by_timestamp(sources):
            yield batch.select(self.schema.names) if len(self.read_columns) > len(self.schema) else batch

    def _limited(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left = self.limit
        for batch in batches:
            if left is None:
                yield batch
                continue
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return

    def _range(self, index: int, task: RangeTask) -> Generator[pa.RecordBatch, None, None]:
        """Yield the batches of a range; an error names its partition."""
        topic, partition = tp = task.offsets.topic_partition
        counts = ReadCounts()
        decoder = None if self.decoded is None else self.decoded.decoder()
        columns = self.read_columns if decoder is None else decoder.record_columns
        try:
            # Closed here, because the traceback of an error in the decoder may refer to it for long.
            with closing(self._records(task, columns, counts)) as records:
                yield from records if decoder is None else decoder.decode(records, tp)
            if decoder is not None:
                decoder.take_malformed()  # logs them
                decoder.take_schema_errors()
        except KafkaDirectError as error:
            if error.topic is None:  # as of a connection
                error.topic, error.partition = topic, partition
            raise
        finally:
            self.losses.found(index, task, counts.skipped)

    def _records(
        self, task: RangeTask, columns: tuple[str, ...], counts: ReadCounts
    ) -> Generator[pa.RecordBatch, None, None]:
        fetch, rows, size = self.fetch, _MAX_BATCH_ROWS, _MAX_BATCH_BYTES
        if self.order == "timestamp":
            share = max(_MIN_FETCH_BYTES, _MERGED_FETCH_BYTES // len(self.tasks))
            fetch = replace(fetch, max_partition_fetch_bytes=min(fetch.max_partition_fetch_bytes, share))
            rows = min(rows, max(_MIN_BATCH_ROWS, _MERGED_BATCH_ROWS // len(self.tasks)))
            size = min(size, max(_MIN_BATCH_BYTES, _MERGED_BATCH_BYTES // len(self.tasks)))
        if self.limit is not None:
            rows = min(rows, self.limit)
        return read_range(
            self.connection,
            fetch,
            task,
            columns,
            counts,
            max_rows=rows,
            max_bytes=size,
            limit=self.limit,
            pool=self.pool,
        )


class _PartitionSource:
    """The batches of a partition, which may have several ranges."""

    def __init__(self, reads: ParallelReads, ranges: list[tuple[int, RangeTask]], progress: Progress) -> None:
        self._reads = reads
        self._ranges = deque((index, task.offsets.count()) for index, task in ranges)
        self._rows = 0  # of the first range
        self._progress = progress

    def next_batch(self) -> pa.RecordBatch | None:
        while self._ranges:
            index, offsets = self._ranges[0]
            batch = self._reads.next_batch(index)
            if batch is not None:
                self._rows += batch.num_rows
                self._progress.add(batch.num_rows)
                return batch
            self._progress.add(offsets - self._rows)  # those without a record
            self._ranges.popleft()
            self._rows = 0
        return None
