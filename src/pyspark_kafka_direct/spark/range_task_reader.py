"""Reads an offset range in a task, for all APIs."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.spark.worker_lifecycle import begin_task, end_task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from pyspark_kafka_direct.consumer.range_task import RangeTask, ReadCounts
    from pyspark_kafka_direct.options.settings import ConnectionSettings, FetchSettings
    from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns
    from pyspark_kafka_direct.spark.loss_channel import LossChannel

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RangeTaskReader:
    """The reader that the tasks of a query have in common.

    Tasks import only this class, not the modules for planning, which are two thirds of the imports. Each query that
    ends early (``show``, ``limit``) costs Spark a Python worker.
    """

    connection: ConnectionSettings
    fetch: FetchSettings
    loss_channel: LossChannel | None = None  # None: without enable(spark)

    def read(self, task: RangeTask, columns: tuple[str, ...], **limits: Any) -> Iterator[pa.RecordBatch]:
        """Yield the Arrow batches of a task, then clean up the worker; ``limits`` go to ``read_range``."""
        from pyspark_kafka_direct.consumer.client_rack import with_client_rack
        from pyspark_kafka_direct.consumer.fetcher import read_range
        from pyspark_kafka_direct.consumer.range_task import ReadCounts

        begin_task()
        counts = ReadCounts()
        yield from read_range(self.connection, with_client_rack(self.fetch), task, columns, counts, **limits)
        self._report_skipped(task, counts)
        end_task()

    def read_decoded(self, task: RangeTask, decoded: DecodedColumns) -> Iterator[pa.RecordBatch]:
        """Yield the Arrow batches of a task with decoded keys and values."""
        decoder = decoded.decoder()
        yield from decoder.decode(self.read(task, decoder.record_columns), task.offsets.topic_partition)
        records, schema_errors = decoder.take_malformed().total(), decoder.take_schema_errors().total()
        if records or schema_errors:
            self._report(task, malformed={decoded.settings.mode: (records, schema_errors)})

    def count(self, task: RangeTask, limit: int | None) -> int:
        """Return the number of records of a task; stop after the fetch with which it reaches a limit."""
        from pyspark_kafka_direct.consumer.client_rack import with_client_rack
        from pyspark_kafka_direct.consumer.range_counter import count_range
        from pyspark_kafka_direct.consumer.range_task import ReadCounts

        begin_task()
        counts = ReadCounts()
        count = count_range(self.connection, with_client_rack(self.fetch), task, limit=limit, counts=counts)
        self._report_skipped(task, counts)
        return count

    def _report_skipped(self, task: RangeTask, counts: ReadCounts) -> None:
        """Report what was skipped to the driver. A task that fails reports nothing, because Spark runs it again."""
        self._report(task, {cause.name.lower(): offsets for cause, offsets in counts.skipped.items()})

    def _report(
        self,
        task: RangeTask,
        skipped: Mapping[str, int] = _NOTHING,  # offsets by the cause
        malformed: Mapping[str, tuple[int, int]] = _NOTHING,  # records and schema errors by the mode
    ) -> None:
        if self.loss_channel is None or not (skipped or malformed):
            return
        from pyspark_kafka_direct.spark.loss_channel import REPORTER
        from pyspark_kafka_direct.spark.loss_counts import LossTotal, MalformedTotal, ReportedTotals

        tp = task.offsets.topic_partition
        totals = ReportedTotals(
            losses=tuple(LossTotal(*tp, cause, losses=1, offsets=offsets) for cause, offsets in skipped.items()),
            malformed=tuple(
                MalformedTotal(*tp, mode, records=records, schema_errors=schema_errors)
                for mode, (records, schema_errors) in malformed.items()
            ),
        )
        REPORTER.report(self.loss_channel, totals)
