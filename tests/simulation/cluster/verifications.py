"""Verifications of transactions that leaders have started, after Kafka's VerificationStateEntry (KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import LocalPartition
    from tests.simulation.cluster.cluster import SimulatedCluster, TopicAndIndex


class Verification:
    """The proof that a producer's partition was verified since its last transaction, and its lowest sequence number."""

    __slots__ = ("epoch", "leader_epoch", "lowest_sequence")

    def __init__(self, leader_epoch: int, epoch: int, lowest_sequence: int) -> None:
        self.leader_epoch = leader_epoch
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence


class Verifications:
    """The verifications of all leaders, which are in their memory only."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int, int], Verification] = {}  # by partition and producer id

    @classmethod
    def of(cls, cluster: SimulatedCluster) -> Verifications:
        found: Verifications = cluster.state("verifications", cls)
        return found

    def find(self, partition: TopicAndIndex, producer_id: int, local: LocalPartition) -> Verification | None:
        """Return the verification at a leader; None if it was elected since."""
        entry = self._entries.get((*partition, producer_id))
        return entry if entry is not None and entry.leader_epoch == local.image.epoch else None

    def start(
        self,
        partition: TopicAndIndex,
        producer: tuple[int, int],
        sequence: int,
        local: LocalPartition,
        *,
        bumps_epoch: bool,
    ) -> Verification:
        """Return the verification, with the lowest sequence number of requests that had to be verified.

        With ``transaction.version`` 2, each transaction has its own epoch, so its first sequence number is 0.
        """
        producer_id, epoch = producer
        first = 0 if bumps_epoch else sequence
        entry = self.find(partition, producer_id, local)
        if entry is None:
            entry = self._entries[*partition, producer_id] = Verification(local.image.epoch, epoch, first)
        elif epoch > entry.epoch:
            entry.epoch = epoch
            entry.lowest_sequence = first
        elif epoch == entry.epoch and sequence < entry.lowest_sequence:
            entry.lowest_sequence = sequence
        return entry

    def clear(self, partition: TopicAndIndex, producer_id: int) -> None:
        """End the verification, because a transactional batch or a marker was appended."""
        self._entries.pop((*partition, producer_id), None)
