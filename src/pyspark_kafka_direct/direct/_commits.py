"""``commitAsync`` and ``commitSync`` of the direct stream: offsets of finished batches, committed for a consumer group.

As in Spark (``DirectKafkaInputDStream.commitAsync``, ``commitAll``) offsets are queued, and sent when the next batch is
planned, the highest of each partition. Unlike Spark's: a stop sends what is left, every call keeps its own callback,
and planning does not wait for the coordinator, because a thread of its own does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.runtime.committer import Committer
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.system import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.runtime.committer import OffsetCommitter
    from pyspark_kafka_direct.wire.system import System

    Callback: TypeAlias = Callable[[Mapping[TopicPartition, int], Exception | None], None]
    """Called with the offsets that were sent together, and what went wrong, if anything."""

_log = logging.getLogger("pyspark_kafka_direct.direct")


class CommitQueue:
    """What is to be committed for the group of one stream; for several threads.

    Of this process only: what waits in it when the driver dies is not committed by the next one, whose first commit
    covers it.

    Args:
        group: The group of the stream's parameters; ``None`` where they have no ``group.id``.
        system: Where its coordinator is; has the clock and the threads.
    """

    def __init__(self, group: OffsetCommitter | None, system: System = SYSTEM) -> None:
        self._group = group
        self._system = system
        self._committer = Committer(_highest, self._commit, _tell, system)

    def add(self, ranges: Iterable[OffsetRange], callback: Callback | None = None) -> None:
        """Queue the ends of these ranges until the next ``send``.

        Args:
            ranges: What has been processed.
            callback: Called once with the outcome, from another thread.

        Raises:
            OptionError: The stream has no group, these are no offset ranges, or the callback cannot be called.
        """
        self._require_group("commitAsync")
        if callback is not None and not callable(callback):
            raise OptionError(f"the callback of commitAsync must be a function of (offsets, error), got {callback!r}")
        self._committer.add(_Call(_ends(ranges, "commitAsync"), callback))

    def deadline(self, seconds: float) -> Deadline:
        """Return the end of a wait of so many seconds that begins now."""
        return Deadline.after(seconds, system=self._system)

    def send(self, deadline: Deadline | None = None) -> None:
        """Begin to commit what is queued; returns at once.

        Args:
            deadline: Until when to try, that and what follows; ``None``: ``default.api.timeout.ms`` for each try.
        """
        self._committer.send(deadline)

    def wait(self, deadline: Deadline) -> bool:
        """Wait until all that is under way is sent and told; returns whether that came in time."""
        done = self._committer.wait(deadline.remaining())
        if not done:
            _log.warning("the offsets of the last batches were not committed in the time that a stop has for it")
        return done

    def flush(self, timeout: float) -> bool:
        """Commit what is queued, and wait for it so many seconds at most."""
        deadline = self.deadline(timeout)
        self.send(deadline)
        return self.wait(deadline)

    def commit_sync(self, ranges: Iterable[OffsetRange]) -> None:
        """Commit the ends of these ranges now, together with what is queued, and wait for the answer.

        Raises:
            OptionError: The stream has no group, or these are no offset ranges.
            AuthorizationError: The principal may not read the group, or a topic.
            BrokerError: The coordinator could not be asked within ``default.api.timeout.ms``, or the group has members.
        """
        self._require_group("commitSync")
        self._committer.commit_now(_Call(_ends(ranges, "commitSync"), None))

    def _commit(self, offsets: Mapping[TopicPartition, int], deadline: Deadline | None) -> None:
        assert self._group is not None
        self._group.commit(offsets, deadline=deadline)

    def _require_group(self, method: str) -> None:
        if self._group is None:
            raise OptionError(
                f"{method} needs a consumer group to commit for: give group.id in the consumer strategy's parameters"
            )


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of commitAsync or commitSync."""

    ends: dict[TopicPartition, int]
    callback: Callback | None


def _highest(calls: Sequence[_Call]) -> dict[TopicPartition, int]:
    """Return the furthest end of each partition, of all calls that are sent together."""
    offsets: dict[TopicPartition, int] = {}
    for call in calls:
        for partition, end in call.ends.items():
            offsets[partition] = max(end, offsets.get(partition, end))
    return offsets


def _ends(ranges: Iterable[OffsetRange], method: str) -> dict[TopicPartition, int]:
    given = list(ranges) if isinstance(ranges, Iterable) else [ranges]
    for each in given:
        if not isinstance(each, OffsetRange):
            raise OptionError(
                f"{method} takes offset ranges, as rdd.offsetRanges() gives them, got {type(each).__name__}"
            )
    ends: dict[TopicPartition, int] = {}
    for each in given:
        ends[each.topic_partition] = max(each.until_offset, ends.get(each.topic_partition, 0))
    return ends


def _tell(calls: Sequence[_Call], offsets: Mapping[TopicPartition, int], error: Exception | None) -> None:
    if error is not None and any(call.callback is None for call in calls):
        _log.warning("offsets were not committed; a later commit covers them: %s", error)
    for call in calls:
        if call.callback is None:
            continue
        try:
            call.callback(dict(offsets), error)
        except BaseException:  # sys.exit() there would end the thread, and no later commit would be sent
            _log.warning("a callback of commitAsync failed", exc_info=True)
