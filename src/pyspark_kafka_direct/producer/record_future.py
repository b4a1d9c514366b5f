"""The position of a written record, and the future of it."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures._base import FINISHED, PENDING
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from pyspark_kafka_direct.client.system import Condition, System


class RecordMetadata(NamedTuple):
    """The position of a written record.

    Attributes:
        topic: The topic.
        partition: The partition.
        offset: The offset; -1 if the broker returned none, as with ``acks=0``.
        timestamp: Milliseconds since 1970: the log append time if the topic uses it, else the record's own.
        topic_id: The topic's id according to the metadata when the record was written; ``None`` if it is unknown. It is
            that of the deleted topic if the topic was recreated just before.
        leader_epoch: The partition's leader epoch when the record was sent; it was written in this or a later one. -1
            if it is unknown.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    topic_id: UUID | None = None
    leader_epoch: int = -1


# The class's own __new__ is a Python function, which takes twice as long.
_new_metadata: Callable[[tuple[Any, ...]], RecordMetadata] = partial(tuple.__new__, RecordMetadata)


class WrittenBatch:
    """The common part of the metadata of a batch's records."""

    __slots__ = ("_leader_epoch", "_partition", "_topic", "_topic_id")

    def __init__(self, topic: str, partition: int | None, topic_id: UUID | None, leader_epoch: int) -> None:
        self._topic = topic
        self._partition = partition
        self._topic_id = topic_id
        self._leader_epoch = leader_epoch

    def metadata(self, offset: int, timestamp: int) -> RecordMetadata:
        return _new_metadata((self._topic, self._partition, offset, timestamp, self._topic_id, self._leader_epoch))


class FutureGroup:
    """The state that the futures of a producer share."""

    __slots__ = ("condition", "in_callback", "system")

    def __init__(self, system: System, in_callback: Callable[[], bool]) -> None:
        self.system = system
        self.condition = system.condition()
        self.in_callback = in_callback  # whether the calling thread must not wait


class RecordFuture(Future[RecordMetadata]):
    """A future that cannot be cancelled, and cannot be waited for by the thread that completes it.

    A condition, lists and metadata of its own would cost more than all the rest of a send. So all futures of a producer
    share a condition, which is not acquired to read the outcome, and the others are made when they are needed.
    """

    _state: str = PENDING
    _exception: BaseException | None = None
    is_observed = False  # whether it has lists of callbacks and of waiting threads

    def __init__(self, group: FutureGroup) -> None:
        self._group = group

    def __getattr__(self, name: str) -> list[Any]:
        # The base class calls this when it first uses one of its two lists.
        if name not in ("_waiters", "_done_callbacks"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with self._condition:  # which the base class holds when it changes them
            if not self.is_observed:  # another thread may have made them meanwhile
                self._waiters, self._done_callbacks = [], []  # type: ignore[var-annotated]
                self.is_observed = True
        return self.__dict__[name]  # type: ignore[no-any-return]

    @property
    def _condition(self) -> Condition:  # type: ignore[override]
        return self._group.condition

    @property
    def _result(self) -> RecordMetadata | None:  # type: ignore[override]
        return self._batch.metadata(self._offset, self._timestamp) if self._exception is None else None

    def acknowledge(self, batch: WrittenBatch, offset: int, timestamp: int) -> None:
        """Set the metadata; the caller holds the condition, and calls ``call_callbacks`` later."""
        self._batch, self._offset, self._timestamp = batch, offset, timestamp
        self._state = FINISHED  # last, because it is read without the condition
        if self.is_observed:
            for each in self._waiters:
                each.add_result(self)

    def _invoke_callbacks(self) -> None:
        """Do nothing: the base class calls it in ``set_exception``."""

    def call_callbacks(self) -> None:
        super()._invoke_callbacks()  # type: ignore[misc]

    def done(self) -> bool:
        return self._state is FINISHED

    def cancel(self) -> bool:
        return False

    def result(self, timeout: float | None = None) -> RecordMetadata:
        if self._state is not FINISHED:
            self._wait(timeout)
        if self._exception is not None or self._state is not FINISHED:
            return super().result(0)  # raises the exception, or TimeoutError
        return self._batch.metadata(self._offset, self._timestamp)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self._state is not FINISHED:
            self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        if self._group.in_callback():
            raise RuntimeError(
                "A callback of a record cannot wait for another record of the same producer: it would wait for itself."
            )
        self._group.system.wait_for_future(self, timeout)
