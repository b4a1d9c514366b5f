"""What the planner of a stream asks of a cluster, and what it remembers of the answers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.limits import Sample


@dataclass(frozen=True, slots=True)
class Assigned:
    """What the selection means in the cluster now.

    Attributes:
        partitions: The assigned topic-partitions that exist.
        topic_ids: Their topics' ids, where the brokers have them (Kafka 2.8).
    """

    partitions: frozenset[TopicPartition]
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)


class ClusterView(Protocol):
    """What the planner asks of the cluster. Every call may raise ``BrokerError``, after retries of its own."""

    def assigned(self, *, strict: bool) -> Assigned:
        """Return the assigned partitions.

        Args:
            strict: Raise for a named topic or partition that does not exist, instead of leaving it out.

        Raises:
            TopicNotFoundError: See ``strict``.
        """

    def not_selected(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Return those of these partitions that exist, but that the selection leaves out."""

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Ask the leaders: -2, -1 or a timestamp in ms per partition; a partition that is gone is left out."""

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return ends that count open transactions too, whatever the isolation level; what is gone is left out."""

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return what the query's consumer group has committed; partitions without such an offset are left out."""

    def samples(self, begins: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Sample]:
        """Look at a few records from these offsets on; partitions that cannot be sampled are left out."""

    def wait(self) -> None:
        """Pause before looking again, because the answers are doubted; another broker gives the next ones."""

    def warn(self, message: str) -> None:
        """Tell the user a message, each message once."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was known when an offset was handed out.

    Attributes:
        topic_ids: The topics' ids at that time.
        made: Whether this planner made it as an end; else it came from a checkpoint or is the initial offset.
        recreated: Topics that are another incarnation than at the batch's start.
        log_starts: Where logs began by then, of partitions that had lost the records at the batch's start.
    """

    topic_ids: Mapping[str, UUID]
    made: bool = False
    recreated: frozenset[str] = frozenset()
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)


class Memory:
    """Remembers the last few offsets: a batch's start is the end of the one before."""

    _KEPT = 16

    def __init__(self) -> None:
        self._seen: OrderedDict[frozenset[tuple[TopicPartition, int]], Seen] = OrderedDict()

    def get(self, offsets: Mapping[TopicPartition, int]) -> Seen | None:
        """Return what was known of an offset, if it is remembered."""
        return self._seen.get(frozenset(offsets.items()))

    def put(self, offsets: Mapping[TopicPartition, int], seen: Seen) -> None:
        """Remember an offset; the oldest is forgotten."""
        key = frozenset(offsets.items())
        self._seen[key] = seen
        self._seen.move_to_end(key)
        while len(self._seen) > self._KEPT:
            self._seen.popitem(last=False)
