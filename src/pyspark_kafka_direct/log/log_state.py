"""The state of reading a log, as a value that its thread replaces, and what follows from it for records and reads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.planning.data_loss import is_other_topic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition


class Reading(NamedTuple):
    """An identity of the records that were read of a partition; it changes when they are read again."""

    generation: int  # of the log
    rereads: int


class SuspectedTruncation(NamedTuple):
    """Evidence that the log was truncated: a record was written where another one had been read."""

    partition: TopicPartition
    offset: int
    reading: Reading  # of the partition; a later one has resolved it
    since: float  # monotonic


@dataclass(frozen=True, slots=True)
class LogState:
    """The log that was read so far. It is replaced as a whole, so that no other thread sees parts of two states."""

    generation: int = 0  # grows when all partitions are read again from their beginnings
    rereads: Mapping[TopicPartition, int] = field(default_factory=dict)  # how often one partition was read again alone
    topic_id: UUID | None = None
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)  # next offsets to deliver
    last_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)  # of the last delivered batches
    end_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)  # of the last response
    confirmed_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)  # of leaders that have what was read
    is_reloading: bool = False  # a table is loaded again; until that is complete, no read completes
    current_as_of: float | None = None  # wall time; each record that was acknowledged before was delivered

    def has_delivered(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Return whether the callbacks have all records before these offsets."""
        return not self.is_reloading and all_reached(offsets, self.positions)

    def may_lack(self, partition: TopicPartition, topic_id: UUID | None, leader_epoch: int) -> bool:
        """Return whether a record of this topic id and leader epoch may not be in the log that was read."""
        last_epoch = self.last_epochs.get(partition, -1)  # epochs never decrease within a log
        return is_other_topic(self.topic_id, topic_id) or 0 <= last_epoch < leader_epoch

    def is_confirmed(self, partition: TopicPartition, topic_id: UUID | None, leader_epoch: int) -> bool:
        """Return whether a leader of this epoch, or of a later one, has the records that were read of this topic."""
        confirmed_epoch = self.confirmed_epochs.get(partition, -1)  # no leader can confirm what is unknown
        return is_other_topic(self.topic_id, topic_id) or not 0 <= confirmed_epoch < leader_epoch

    def suspected_truncation(self, partition: TopicPartition, offset: int, now: float) -> SuspectedTruncation | None:
        """Return what a record shows that was sent in this state, and written at an offset."""
        if 0 <= offset < self.positions.get(partition, 0):
            return SuspectedTruncation(partition, offset, self.reading(partition), now)
        return None

    def reading(self, partition: TopicPartition) -> Reading:
        """Return what was read of a partition."""
        return Reading(self.generation, self.rereads.get(partition, 0))

    def with_positions(self, positions: Mapping[TopicPartition, int]) -> LogState:
        """Return the state with other positions of some partitions."""
        return replace(self, positions={**self.positions, **positions})

    def at_ends(self, requested_at: float) -> LogState:
        """Return the state when the ends are reached that were requested at this wall time."""
        return replace(self, is_reloading=False, current_as_of=requested_at)

    def with_reread(self, partition: TopicPartition, offset: int) -> LogState:
        """Return the state from which one partition is read again from an offset, because its records were replaced."""
        return replace(
            self.with_positions({partition: offset}),
            rereads={**self.rereads, partition: self.rereads.get(partition, 0) + 1},
            end_offsets={tp: end for tp, end in self.end_offsets.items() if tp != partition},
            current_as_of=None,
        )

    def of_next_generation(self, *, reloads: bool = False) -> LogState:
        """Return the state from which all partitions are read again from their beginnings."""
        return replace(
            self,
            generation=self.generation + 1,
            positions={},
            end_offsets={},
            is_reloading=self.is_reloading or reloads,
            current_as_of=None,
        )


def all_reached(offsets: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]) -> bool:
    return all(positions.get(partition, 0) >= offset for partition, offset in offsets.items())
