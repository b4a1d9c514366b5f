"""``commitAsync`` and ``commitSync`` of the direct stream: the end offsets of finished batches, for a consumer group.

As in Spark (``DirectKafkaInputDStream.commitAsync``, ``commitAll``), the highest queued offset of each partition is
sent when the next batch is planned. Unlike in Spark, a stop sends the queued offsets, each call has its own callback,
and a separate thread waits for the group coordinator, so planning does not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.spark.offset_committer import AsyncOffsetCommitter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.offsets import TopicPartition

    # Called with all offsets of the commit request, and the error, if any.
    OffsetCommitCallback: TypeAlias = Callable[[Mapping[TopicPartition, int], Exception | None], None]

_log = logging.getLogger("pyspark_kafka_direct.direct")


class CommitQueue:
    """The offsets to commit for the group of one stream; thread-safe."""

    # The queue is not checkpointed. If the driver fails, the next driver's first commit includes the queued offsets.

    def __init__(self, group: ConsumerGroup | None, system: System = SYSTEM) -> None:
        self._group = group
        self._system = system
        self._committer = AsyncOffsetCommitter(_highest_offsets, self._commit, _notify_callbacks, system)

    def add(self, ranges: Iterable[OffsetRange], callback: OffsetCommitCallback | None = None) -> None:
        """Queue the end offsets of these ranges until the next ``send``."""
        self._require_group("commitAsync")
        if callback is not None and not callable(callback):
            raise OptionError(f"the callback of commitAsync must be a function of (offsets, error), got {callback!r}")
        self._committer.add(_CommitCall(_end_offsets(ranges, "commitAsync"), callback))

    def deadline(self, seconds: float) -> Deadline:
        """Return a deadline; tests replace the clock."""
        return Deadline.after(seconds, system=self._system)

    def send(self, deadline: Deadline | None = None) -> None:
        """Start to commit the queued offsets; by default each attempt has ``default.api.timeout.ms``."""
        self._committer.send(deadline)

    def wait(self, deadline: Deadline) -> bool:
        """Wait for commits in flight and their callbacks; returns whether they completed in time."""
        completed = self._committer.wait(deadline.remaining())
        if not completed:
            _log.warning("the offsets of the last batches were not committed before the timeout of the stop")
        return completed

    def flush(self, timeout: float) -> bool:
        """Commit the queued offsets, and wait at most this many seconds."""
        deadline = self.deadline(timeout)
        self.send(deadline)
        return self.wait(deadline)

    def commit_sync(self, ranges: Iterable[OffsetRange]) -> None:
        """Commit the end offsets of these ranges together with the queued ones, and wait for the response."""
        self._require_group("commitSync")
        self._committer.commit_sync(_CommitCall(_end_offsets(ranges, "commitSync"), callback=None))

    def _commit(self, offsets: Mapping[TopicPartition, int], deadline: Deadline | None) -> None:
        assert self._group is not None
        self._group.commit(offsets, deadline=deadline)

    def _require_group(self, method: str) -> None:
        if self._group is None:
            raise OptionError(
                f"{method} requires a consumer group: set group.id in the kafkaParams of the consumer strategy"
            )


@dataclass(frozen=True, slots=True)
class _CommitCall:
    """One call of commitAsync or commitSync."""

    offsets: dict[TopicPartition, int]
    callback: OffsetCommitCallback | None


def _highest_offsets(calls: Sequence[_CommitCall]) -> dict[TopicPartition, int]:
    """Return the highest offset of each partition of all calls that are sent together."""
    offsets: dict[TopicPartition, int] = {}
    for call in calls:
        for partition, end in call.offsets.items():
            offsets[partition] = max(end, offsets.get(partition, end))
    return offsets


def _end_offsets(ranges: Iterable[OffsetRange], method: str) -> dict[TopicPartition, int]:
    """Return the highest end offset of each partition; ``method`` is for the error message."""
    range_list = list(ranges) if isinstance(ranges, Iterable) else [ranges]  # checked below
    for offset_range in range_list:
        if not isinstance(offset_range, OffsetRange):
            raise OptionError(
                f"{method} takes offset ranges, as returned by rdd.offsetRanges(), got {type(offset_range).__name__}"
            )
    end_offsets: dict[TopicPartition, int] = {}
    for offset_range in range_list:
        partition = offset_range.topic_partition
        end_offsets[partition] = max(offset_range.until_offset, end_offsets.get(partition, 0))
    return end_offsets


def _notify_callbacks(
    calls: Sequence[_CommitCall], offsets: Mapping[TopicPartition, int], error: Exception | None
) -> None:
    if error is not None and any(call.callback is None for call in calls):  # a callback gets the error instead
        _log.warning("offsets were not committed; the next commit includes them: %s", error)
    for call in calls:
        if call.callback is None:
            continue
        try:
            call.callback(dict(offsets), error)
        except BaseException:  # sys.exit() in a callback would end the thread, and no later commit would be sent
            _log.warning("a callback of commitAsync raised an exception", exc_info=True)
