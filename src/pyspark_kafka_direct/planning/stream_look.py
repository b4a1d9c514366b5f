"""Looking at the cluster for a stream: which partitions there are and where they end, now or when it was frozen.

No single answer is believed that contradicts what was known before: metadata may be old, and a new leader's high
watermark may lag (KIP-207).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafka_direct.offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.stream_view import Assigned, ClusterView, Memory


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at the cluster found.

    Attributes:
        latest: The assigned partitions and their ends.
        topic_ids: Their topics' ids, as far as they are known.
    """

    latest: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, UUID]


class Looks:
    """Looks at the cluster, and remembers what was frozen for Trigger.AvailableNow.

    Args:
        view: Asks the cluster.
        memory: The topics' ids when offsets were handed out.
        tries: How often the cluster is asked before it is believed that something is gone.
        read_committed: Whether the ends are last stable offsets.

    Attributes:
        frozen: The ends frozen at the start, if they were.
        known_latest: The ends found by the last look for a batch.
    """

    def __init__(self, view: ClusterView, memory: Memory, *, tries: int, read_committed: bool) -> None:
        self._view = view
        self._memory = memory
        self._tries = tries
        self._read_committed = read_committed
        self._frozen_ids: Mapping[str, UUID] = {}
        self.frozen: dict[TopicPartition, int] | None = None
        self.known_latest: Mapping[TopicPartition, int] | None = None

    def freeze(self) -> None:
        """Let only what there is at this moment be available from now on."""
        looked = self.now({})
        self.frozen, self._frozen_ids = dict(looked.latest), looked.topic_ids
        self.known_latest = self.frozen

    def freeze_too(self, assigned: Assigned) -> None:
        """Freeze partitions as well that the look of ``freeze`` missed: a later look knows more."""
        if self.frozen is None:
            return
        missed = assigned.partitions - self.frozen.keys()
        if missed:
            self.frozen.update(self._view.offsets(dict.fromkeys(missed, LATEST)))
            self._frozen_ids = {**assigned.topic_ids, **self._frozen_ids}

    def available(self, start: Mapping[TopicPartition, int]) -> Looked:
        """Return what there is to read: the frozen ends, or the latest."""
        if self.frozen is None:
            looked = self.now(start)
            self.known_latest = looked.latest
            return looked
        doubtful = {tp for tp, offset in start.items() if self.frozen.get(tp, -1) < offset}
        if doubtful:
            # Seen too early, told by a broker that is behind, or really gone or gone back: only more looks can tell.
            looked = self.now(start)
            self._frozen_ids = {**looked.topic_ids, **self._frozen_ids}
            for tp in doubtful & looked.latest.keys():
                self.frozen[tp] = min(looked.latest[tp], start[tp]) if tp in self.frozen else looked.latest[tp]
        return Looked(self.frozen, self._frozen_ids)

    def now(self, known: Mapping[TopicPartition, int]) -> Looked:
        """Return assigned partitions and their ends; ask again while they contradict ``known``.

        What is gone at the last try is gone.
        """
        before = self._memory.get(known)
        for attempt in range(1, self._tries + 1):
            assigned = self._view.assigned(strict=False)
            latest = dict(self._view.offsets(dict.fromkeys(assigned.partitions, LATEST)))
            doubtful = {tp for tp, offset in known.items() if latest.get(tp, -1) < offset}
            if doubtful and self._read_committed:
                # Beyond the last stable offset, but within the log: not committed yet, and not lost.
                behind = [tp for tp in doubtful if tp in latest]
                for tp, end in self._view.high_watermarks(behind).items() if behind else ():
                    if end >= known[tp]:
                        latest[tp] = known[tp]
                        doubtful.discard(tp)
            if not doubtful and not (before is not None and recreated(before.topic_ids, assigned.topic_ids)):
                break
            if attempt < self._tries:
                self._view.wait()
        return Looked(latest, assigned.topic_ids)

    def log_starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where the logs of partitions begin; ask again while some are missing."""
        for _ in range(1, self._tries):
            found = self._view.offsets(dict.fromkeys(partitions, EARLIEST))
            if found.keys() >= set(partitions):
                return found
            self._view.wait()
            self._view.assigned(strict=False)  # for what it makes the view know: offsets() trusts what it knows
        return self._view.offsets(dict.fromkeys(partitions, EARLIEST))


def recreated(before: Mapping[str, UUID], now: Mapping[str, UUID]) -> frozenset[str]:
    """Return the topics that have another id than before."""
    return frozenset(topic for topic, topic_id in before.items() if topic in now and now[topic] != topic_id)
