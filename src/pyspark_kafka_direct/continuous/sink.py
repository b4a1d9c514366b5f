"""What a continuous query writes to: three methods that anybody can write.

A sink lives in one task. It is given what the query's function has made of the records, in the order of their offsets
within each partition, and is flushed at the end of each epoch::

    class Counter:
        def write(self, batch: pa.RecordBatch) -> None: ...
        def flush(self, epoch: int) -> None: ...
        def close(self) -> None: ...

    query = continuous_query(spark).read(...).to(lambda task: Counter()).start(...)

Offsets are committed when all tasks have flushed. What was written after the last committed epoch is written again
after a failure, and with the same epoch number only by chance: a sink that must not repeat keeps offsets itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_direct.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """Which task a sink is made for.

    Attributes:
        query_id: Id of the query, the same for as long as its checkpoint lives.
        run_id: Id of the run, another one after each restart.
        task: Number of the task within the run.
        partitions: What it reads.
        epoch: The number of the first epoch of the run.
    """

    query_id: str
    run_id: str
    task: int
    partitions: tuple[TopicPartition, ...]
    epoch: int = 0


class Sink(Protocol):
    """Takes the output of one task. All methods are called by one thread, the task's."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows; they need not be anywhere yet when it returns.

        Args:
            batch: At least one row.
        """

    def flush(self, epoch: int) -> None:
        """Return when everything written before is where it shall be.

        Args:
            epoch: The number of the epoch that ends here.
        """

    def close(self) -> None:
        """Give back what the sink holds. Called once, also after an error, and then without a flush before."""


SinkFactory: TypeAlias = Callable[[TaskInfo], Sink]
"""Makes the sink of a task, in its process; it travels there by cloudpickle."""
