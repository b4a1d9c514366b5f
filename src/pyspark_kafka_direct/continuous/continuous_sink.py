"""The sink of a continuous query: an object with three methods, which users can implement.

Each task has its own sink. The sink receives the output of the query's function, in offset order within each
partition, and is flushed at the end of each epoch::

    class Counter:
        def write(self, batch: pa.RecordBatch) -> None: ...
        def flush(self, positions: Mapping[TopicPartition, int]) -> None: ...
        def close(self) -> None: ...

    query = continuous_query(spark).read(...).to(lambda task: Counter()).start(...)

Offsets are committed when all tasks have flushed. After a failure, everything written after the last committed epoch
is written again. A sink that must not repeat records stores the positions of ``flush`` with its output, and returns
them in one more method::

        def stored_positions(self) -> Mapping[TopicPartition, int]: ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.continuous.control_messages import StartTask
    from pyspark_kafka_direct.offsets import TopicPartition

_SINK_METHODS: Final = ("write", "flush", "close")


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """The task that uses a sink.

    Attributes:
        query_id: The id of the query, which is stored in its checkpoint.
        run_id: The id of the run, which changes with each restart.
        task: The number of the task within the run.
        partitions: The partitions that the task reads.
    """

    query_id: str
    run_id: str
    task: int
    partitions: tuple[TopicPartition, ...]


class Sink(Protocol):
    """Receives the output of one task. All methods are called in the task's thread.

    A sink may also have a method ``stored_positions``, without arguments. It is called once, before the first
    ``write``, and returns the next offset to read of partitions, as the sink has stored them with its output. They take
    precedence over the offsets of the checkpoint.
    """

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows. They need not be durable when this returns.

        Args:
            batch: At least one row.
        """

    def flush(self, positions: Mapping[TopicPartition, int]) -> None:
        """Return when all rows written before are durable.

        Args:
            positions: The next offset to read of each partition of the task. Everything before was written.
        """

    def close(self) -> None:
        """Release all resources. Called once; after an error, without a flush before."""


SinkFactory: TypeAlias = Callable[[TaskInfo], Sink]
"""Creates the sink of a task, in the task's process. Sent to the executors by cloudpickle."""


class SinkWriter(ABC):
    """The interface of a task to its sink: a user's ``Sink``, or a writer to Kafka. Flink: ``SinkWriter``."""

    def stored_positions(self) -> Mapping[TopicPartition, int]:
        """Return the next offsets to read that are stored with the output; empty if the driver has them."""
        return {}

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows, and send them at once if possible."""

    @abstractmethod
    def end_epoch(
        self,
        epoch: int,
        positions: Mapping[TopicPartition, int],
        recreated_topic_ids: Mapping[TopicPartition, UUID] | None = None,
    ) -> None:
        """Return when all rows written before are durable; ``positions`` are the next offsets to read."""

    def descriptors(self) -> Collection[int]:
        """Return the descriptors that, when readable, require a call of ``run_once``."""
        return ()

    def run_once(self) -> None:  # noqa: B027 (most sinks have nothing to send)
        """Continue sending without blocking."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources without blocking."""


class SinkWriterFactory(Protocol):
    """Makes the writer of a task, in its process; pickled to the executors."""

    def __call__(self, task: TaskInfo, start: StartTask, pool: ConnectionPool | None = None, /) -> SinkWriter:
        """Return the writer; ``pool`` has its connections, by default that of the process."""


def custom_writer_factory(sink: Sink | SinkFactory) -> SinkWriterFactory:
    """Return the writer factory for a user's sink or sink factory."""
    if isinstance(sink, type) or (callable(sink) and not _is_sink(sink)):  # the class of a sink is a factory
        return _CustomWriterFactory(sink)
    if _is_sink(sink):
        return _CustomWriterFactory(copied_sink=sink)  # type: ignore[arg-type]
    raise OptionError(
        f"{_type_name(sink)} is not a sink: it needs the methods write(batch), flush(positions) and close(), or must "
        "be a function that takes a TaskInfo and returns such an object"
    )


def function_writer_factory(function: Callable[[pa.RecordBatch], None]) -> SinkWriterFactory:
    """Return the writer factory for ``foreach_batch``."""
    return _CustomWriterFactory(copied_sink=_FunctionSink(function))


class _CustomSinkWriter(SinkWriter):
    """Adapts a user's ``Sink``."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def stored_positions(self) -> Mapping[TopicPartition, int]:
        stored_positions = getattr(self._sink, "stored_positions", None)
        return {} if stored_positions is None else stored_positions()

    def write(self, batch: pa.RecordBatch) -> None:
        self._sink.write(batch)

    def end_epoch(
        self,
        epoch: int,
        positions: Mapping[TopicPartition, int],
        recreated_topic_ids: Mapping[TopicPartition, UUID] | None = None,
    ) -> None:
        self._sink.flush(positions)

    def close(self) -> None:
        self._sink.close()


@dataclass(frozen=True, slots=True)
class _CustomWriterFactory:
    """Makes writers to a user's sinks; has either a factory or a sink."""

    factory: SinkFactory | None = None
    copied_sink: Sink | None = None  # pickled with this object, so each task has a copy of it

    def __call__(self, task: TaskInfo, *_: object) -> SinkWriter:
        sink = self.copied_sink if self.factory is None else self.factory(task)
        if sink is None or not _is_sink(sink):  # a factory can return anything
            raise OptionError(
                f"The query's sink factory returned {_type_name(sink)}, which is not a sink: it needs the methods "
                "write(batch), flush(positions) and close()"
            )
        return _CustomSinkWriter(sink)


@dataclass(frozen=True, slots=True)
class _FunctionSink:
    write: Callable[[pa.RecordBatch], None]

    def flush(self, positions: Mapping[TopicPartition, int]) -> None:
        pass

    def close(self) -> None:
        pass


def _is_sink(value: Any) -> bool:
    return all(callable(getattr(value, name, None)) for name in _SINK_METHODS)


def _type_name(value: object) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}"
