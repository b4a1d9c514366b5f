"""What the parts of a continuous query know of each other: the task of its sink, and the driver of its delivery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pyspark_kafka_direct.continuous.sink import TaskInfo

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pyarrow as pa

    from pyspark_kafka_direct.continuous._task_channel import ControlAddress
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.fetch import FetchSettings


class EpochSink(Protocol):
    """A sink as the task sees it. Those of users have three of the methods (``continuous.sink``)."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows; send them at once where there is nothing to wait for."""

    def end_epoch(self, epoch: int, positions: Mapping[TopicPartition, int]) -> None:
        """Return when everything written before is where it shall be.

        Args:
            epoch: The number of the epoch that ends.
            positions: The next offset to read of each of the task's partitions.
        """

    def descriptors(self) -> Collection[int]:
        """Return what to wait for beside the records: when one is readable, ``turn`` has something to do."""

    def turn(self) -> None:
        """Do what can be done without waiting."""

    def close(self) -> None:
        """Give everything back; waits for nothing."""


EpochSinkFactory: TypeAlias = Callable[[TaskInfo], EpochSink]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """What all tasks of a run have in common. It travels to the executors by cloudpickle.

    Attributes:
        address: Where the driver is.
        query_id: Id of the query.
        connection: How to reach the cluster that is read.
        fetch: How to fetch.
        columns: The columns to read, see ``records.COLUMNS``.
        fail_on_data_loss: Whether the query fails where records are gone.
        max_record_batch_bytes: Most bytes that a record batch may decompress to.
        function: What is made of each batch; ``None`` for the batch itself.
        sink: Makes the task's sink.
        start_timeout: Seconds until all tasks have started.
        mark_timeout: Seconds without a mark after which the task takes the driver for dead.
    """

    address: ControlAddress
    query_id: str
    connection: ConnectionSettings
    fetch: FetchSettings
    columns: tuple[str, ...]
    fail_on_data_loss: bool
    max_record_batch_bytes: int
    function: Callable[[pa.RecordBatch], pa.RecordBatch | None] | None
    sink: EpochSinkFactory
    start_timeout: float
    mark_timeout: float


class Delivery(Protocol):
    """How a query's output is delivered, seen from the driver."""

    def prepare(
        self, query_id: str, partitions: Collection[TopicPartition], tasks: int
    ) -> Mapping[TopicPartition, int] | None:
        """Get ready for a run; called before the logs are settled, at each start and each restart.

        Args:
            query_id: Id of the query.
            partitions: What the run reads.
            tasks: How many tasks the run has.

        Returns:
            Where the output has got to, which counts more than the logs; ``None`` where it knows nothing better.
        """

    def sink(self) -> EpochSinkFactory:
        """Return what makes the sinks of the run that was prepared."""
