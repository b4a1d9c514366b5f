"""The read task of an offset range, which all APIs send to executors."""

from __future__ import annotations

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
    from pyspark_kafka_direct.consumer.range_request import RangeRequest
    from pyspark_kafka_direct.offsets import OffsetRange


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

        yield from read_range(*self.prepare(task, columns, **limits))
        end_task()
