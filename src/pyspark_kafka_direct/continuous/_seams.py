"""What the parts of a continuous query know of each other: the task of its sink, and the driver of its delivery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pyspark_kafka_direct.continuous.sink import TaskInfo

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.continuous._log_state import LogState
    from pyspark_kafka_direct.continuous._task_channel import ControlAddress
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.fetch import FetchSettings


class EpochSink(Protocol):
    """A sink as the task sees it. Those of users have three of the methods (``continuous.sink``)."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows; send them at once where there is nothing to wait for."""

    def end_epoch(
        self, epoch: int, positions: Mapping[TopicPartition, int], anew: Mapping[TopicPartition, UUID] | None = None
    ) -> None:
        """Return when everything written before is where it shall be.

        Args:
            epoch: The number of the epoch that ends.
            positions: The next offset to read of each of the task's partitions.
            anew: The ids of topics that were found created anew, by the partitions whose positions are of these now.
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
        topic_ids: The ids of the topics that the first offsets are of, by partition, as far as they are known.
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
    topic_ids: Mapping[TopicPartition, UUID]
    fail_on_data_loss: bool
    max_record_batch_bytes: int
    function: Callable[[pa.RecordBatch], pa.RecordBatch | None] | None
    sink: EpochSinkFactory
    start_timeout: float
    mark_timeout: float


class Delivery(Protocol):
    """How a query's output is delivered, seen from the driver.

    At each start and each restart, in this order::

        delivery.prepare(query_id, partitions, tasks)
        state = logs.state()
        logs.settle(delivery.reached(state), at_ms, state)
        TaskPlan(sink=delivery.sink(), ...)
    """

    def prepare(self, query_id: str, partitions: Collection[TopicPartition], tasks: int) -> None:
        """Get ready for a run. When it returns, no task of an earlier run publishes anything any more.

        Args:
            query_id: Id of the query.
            partitions: What the run reads.
            tasks: How many tasks the run has.

        Raises:
            CheckpointTakenError: Another driver has taken the query over; final.
            DeliveryRefusedError: The output is another query's.
            OptionError: The output cannot be delivered in this way.
        """

    def reached(self, state: LogState) -> Mapping[TopicPartition, int] | None:
        """Return where the output has got to after the last epoch that the logs have as committed.

        Args:
            state: What the logs say, looked up after ``prepare``.

        Returns:
            What counts more than the logs, as ``_log_state.settle`` takes it; ``None``: the logs alone count.
        """

    @property
    def shares_numbers(self) -> bool:
        """Whether epochs may share a number, as nobody goes by it."""

    def sink(self) -> EpochSinkFactory:
        """Return what makes the sinks of the run that was prepared."""
