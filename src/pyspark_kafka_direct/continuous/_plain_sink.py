"""Sinks of users, as the task sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.continuous._seams import EpochSink, EpochSinkFactory
    from pyspark_kafka_direct.continuous.sink import Sink, SinkFactory, TaskInfo
    from pyspark_kafka_direct.offsets import TopicPartition

_METHODS: Final = ("write", "flush", "close")


def plain_sink(sink: Sink | SinkFactory) -> EpochSinkFactory:
    """Return what makes the sinks of a query from what its user gave.

    Args:
        sink: An object with the three methods, of which each task gets a copy, or what makes one for a task.

    Raises:
        OptionError: It is neither.
    """
    if isinstance(sink, type) or (callable(sink) and not _is_sink(sink)):
        return _MadeSink(sink)
    if _is_sink(sink):
        return _CopiedSink(sink)  # type: ignore[arg-type]
    raise OptionError(
        f"{_called(sink)} is no sink: it needs the methods write(batch), flush(epoch) and close(), or must be a "
        "function that is given a TaskInfo and returns such an object"
    )


def batch_function(function: Callable[[pa.RecordBatch, int], None]) -> EpochSinkFactory:
    """Return what makes the sinks of a query whose output is given to a function.

    Args:
        function: Is called in the task with each batch and the number of its epoch. The batch counts as written when
            it has returned.
    """
    return _FunctionSinkFactory(function)


@dataclass(frozen=True, slots=True)
class _MadeSink:
    factory: SinkFactory

    def __call__(self, task: TaskInfo) -> EpochSink:
        made = self.factory(task)
        if not _is_sink(made):
            raise OptionError(
                f"The query's sink factory returned {_called(made)}, which is no sink: it needs the methods "
                "write(batch), flush(epoch) and close()"
            )
        return PlainSink(made)


@dataclass(frozen=True, slots=True)
class _CopiedSink:
    sink: Sink

    def __call__(self, task: TaskInfo) -> EpochSink:
        return PlainSink(self.sink)


@dataclass(frozen=True, slots=True)
class _FunctionSinkFactory:
    function: Callable[[pa.RecordBatch, int], None]

    def __call__(self, task: TaskInfo) -> EpochSink:
        return PlainSink(_FunctionSink(self.function, task.epoch))


class PlainSink:
    """A sink with three methods.

    Args:
        sink: The sink.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, batch: pa.RecordBatch) -> None:
        """Give rows to the sink."""
        self._sink.write(batch)

    def end_epoch(
        self, epoch: int, positions: Mapping[TopicPartition, int], anew: Mapping[TopicPartition, UUID] | None = None
    ) -> None:
        """Flush the sink."""
        self._sink.flush(epoch)

    def descriptors(self) -> Collection[int]:
        """Return nothing: the sink waits for itself."""
        return ()

    def turn(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()


class _FunctionSink:
    """Calls a function with each batch.

    Args:
        function: The function.
        epoch: The number of the first epoch.
    """

    def __init__(self, function: Callable[[pa.RecordBatch, int], None], epoch: int) -> None:
        self._function = function
        self._epoch = epoch

    def write(self, batch: pa.RecordBatch) -> None:
        self._function(batch, self._epoch)

    def flush(self, epoch: int) -> None:
        self._epoch = epoch + 1

    def close(self) -> None:
        pass


def _is_sink(thing: Any) -> bool:
    return all(callable(getattr(thing, name, None)) for name in _METHODS)


def _called(thing: object) -> str:
    return f"a {type(thing).__module__}.{type(thing).__qualname__}"
