"""The read task of an offset range, which all APIs send to executors."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.config.client_settings import DEFAULT_MAX_RECORD_BATCH_BYTES
from pyspark_kafka_direct.spark.worker_lifecycle import begin_task, end_task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.client.cluster_client import PartitionLeader
    from pyspark_kafka_direct.config.client_settings import ConnectionSettings, FetchSettings
    from pyspark_kafka_direct.consumer.range_request import RangeRequest, ReadCounts
    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.spark.loss_channel import LossChannel

_log = logging.getLogger("pyspark_kafka_direct.spark")


@dataclass(frozen=True, slots=True)
class RangeTask:
    """The offset range of one task; it is sent to the executor, so it contains no secrets."""

    offsets: OffsetRange
    topic_id: UUID | None = None  # at planning; another one means that the topic was recreated
    leader: PartitionLeader | None = None  # at planning; saves the task a metadata request
    from_earliest: bool = False  # the range starts at the log start because the user requested EARLIEST


@dataclass(frozen=True, slots=True)
class RangeTaskReader:
    """The options of a query that its tasks need.

    Tasks import only this class, not the modules for planning, which are two thirds of the imports. Each query that
    ends early (``show``, ``limit``) costs Spark a Python worker.
    """

    settings: ConnectionSettings
    fetch: FetchSettings
    poll_timeout: float  # seconds without progress after which a task fails
    rack_environment_variable: str | None = None
    fail_on_data_loss: bool = True
    max_batch_bytes: int = DEFAULT_MAX_RECORD_BATCH_BYTES  # decompressed
    loss_channel: LossChannel | None = None  # None: without enable(spark)

    def prepare(
        self, task: RangeTask, columns: tuple[str, ...], **limits: Any
    ) -> tuple[ConnectionSettings, FetchSettings, RangeRequest]:
        """Prepare the worker for a task, and return the input of ``read_range``; ``limits`` go to ``RangeRequest``."""
        from pyspark_kafka_direct.consumer.range_request import RangeRequest, with_client_rack

        begin_task()
        request = RangeRequest(
            task.offsets,
            columns,
            task.topic_id,
            task.leader,
            from_earliest=task.from_earliest,
            fail_on_data_loss=self.fail_on_data_loss,
            poll_timeout=self.poll_timeout,
            max_batch_bytes=self.max_batch_bytes,
            **limits,
        )
        return self.settings, with_client_rack(self.fetch, self.rack_environment_variable), request

    def read(self, task: RangeTask, columns: tuple[str, ...], **limits: Any) -> Iterator[pa.RecordBatch]:
        """Yield the Arrow batches of a task, then clean up the worker."""
        from pyspark_kafka_direct.consumer.range_reader import read_range
        from pyspark_kafka_direct.consumer.range_request import ReadCounts

        counts = ReadCounts()
        yield from read_range(*self.prepare(task, columns, **limits), counts)
        self._report_skipped(task, counts)
        end_task()

    def count(self, task: RangeTask, limit: int | None) -> int:
        """Return the number of records of a task, up to a limit."""
        from pyspark_kafka_direct.consumer.range_counter import count_range
        from pyspark_kafka_direct.consumer.range_request import ReadCounts

        counts = ReadCounts()
        count = count_range(*self.prepare(task, ()), limit=limit, counts=counts)
        self._report_skipped(task, counts)
        return count

    def _report_skipped(self, task: RangeTask, counts: ReadCounts) -> None:
        """Report what was skipped to the driver. A task that fails reports nothing, because Spark runs it again."""
        if self.loss_channel is None or not counts.skipped:
            return
        from pyspark_kafka_direct.client.system import SYSTEM
        from pyspark_kafka_direct.spark.loss_counts import LossTotal

        tp = task.offsets.topic_partition
        totals = [LossTotal(*tp, cause.name.lower(), 1, offsets) for cause, offsets in counts.skipped.items()]
        if not self.loss_channel.report(totals, SYSTEM):
            _log.warning(
                "%s: the driver did not confirm what was skipped, so its metrics do not count it. It listens on UDP "
                "port %d of %s",
                tp,
                self.loss_channel.port,
                self.loss_channel.host,
            )
