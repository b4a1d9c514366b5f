"""Committed offsets of groups without members, after Kafka's GroupCoordinator and OffsetMetadataManager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.simulation.cluster.coordinators import GROUP, Coordinators, coordinator_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from tests.simulation.cluster.broker import SimulatedBroker
    from tests.simulation.cluster.cluster import SimulatedCluster, TopicAndIndex
    from tests.simulation.cluster.coordinators import Kind

_UNKNOWN_MEMBER_ID = 25
_GROUP_ID_NOT_FOUND = 69
_UNSTABLE_OFFSET_COMMIT = 88

_ABSENT: Final = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}


class CommittedOffset(NamedTuple):
    """An offset of a partition, and when it was written."""

    offset: int
    leader_epoch: int
    metadata: str
    topic_id: UUID
    number: int  # ascends with the log of the group coordinator


class Group:
    """A group's offsets; pending ones belong to open transactions."""

    __slots__ = ("completing", "has_members", "offsets", "pending")

    def __init__(self) -> None:
        self.offsets: dict[TopicAndIndex, CommittedOffset] = {}
        self.pending: dict[int, dict[TopicAndIndex, CommittedOffset]] = {}  # by producer id
        self.completing: list[dict[TopicAndIndex, CommittedOffset]] = []  # of transactions whose marker is written
        self.has_members = False

    def is_pending(self, partition: TopicAndIndex) -> bool:
        return any(partition in offsets for offsets in (*self.pending.values(), *self.completing))


class GroupCoordinator:
    """The groups of a cluster. As with transactions, one object has the replicated state of all brokers."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._groups: dict[str, Group] = {}
        self._number = 0
        # Epoch of a producer id in a partition of the offsets topic, and whether it has an open transaction there.
        self._producers: dict[tuple[int, int], tuple[int, bool]] = {}
        # What former coordinators that are isolated return: by partition and broker.
        self._outdated: dict[tuple[int, int], dict[str, Group]] = {}
        Coordinators.of(cluster).before_move.append(self._keep_outdated)

    @classmethod
    def of(cls, cluster: SimulatedCluster) -> GroupCoordinator:
        found: GroupCoordinator = cluster.state("group coordinator", lambda: cls(cluster))
        return found

    # For scenarios.

    def committed(self, group_id: str) -> Mapping[TopicAndIndex, CommittedOffset]:
        """Return the committed offsets of a group."""
        group = self._groups.get(group_id)
        return {} if group is None else group.offsets

    @property
    def group_ids(self) -> list[str]:
        """The ids of all groups."""
        return list(self._groups)

    def delete_group(self, group_id: str) -> bool:
        """Delete a group with its offsets, as an administrator does; return whether it existed."""
        return self._groups.pop(group_id, None) is not None

    def expire_offsets(self, group_id: str, topic: str | None = None) -> None:
        """Delete the offsets of a topic or all that are not pending in a transaction (offsets.retention.minutes)."""
        group = self._groups.get(group_id)
        if group is None:
            return
        group.offsets = {
            each: offset
            for each, offset in group.offsets.items()
            if group.is_pending(each) or topic not in (None, each[0])
        }
        if not (group.offsets or group.pending or group.completing or group.has_members):
            del self._groups[group_id]

    def set_members(self, group_id: str, has_members: bool) -> None:
        """Let members of other clients join or leave a group; meanwhile commits without a generation are rejected."""
        self._groups.setdefault(group_id, Group()).has_members = has_members

    def remove_members(self) -> None:
        for group in self._groups.values():
            group.has_members = False

    # Requests.

    def validate(self, group_id: str, generation: int, member_id: str, instance_id: str | None) -> int:
        """Return an error code, or 0 for a commit without group management; creates the group."""
        group = self._groups.get(group_id)
        if group is None:
            if generation >= 0:
                return _GROUP_ID_NOT_FOUND
            group = self._groups[group_id] = Group()
        if generation < 0 and not group.has_members:
            return 0
        return _UNKNOWN_MEMBER_ID

    def commit(self, group_id: str, partition: TopicAndIndex, offset: CommittedOffset) -> None:
        self._groups[group_id].offsets[partition] = offset
        self._cluster.world.trace("offset committed", group_id, *partition, offset.offset)

    def commit_in_transaction(
        self, group_id: str, producer: tuple[int, int], offsets: Mapping[TopicAndIndex, CommittedOffset]
    ) -> None:
        """Store offsets that become visible when the transaction is committed."""
        if offsets:
            self._groups[group_id].pending.setdefault(producer[0], {}).update(offsets)
            self._producers[coordinator_partition(group_id), producer[0]] = (producer[1], True)

    def has_open_transaction(self, group_id: str, producer: tuple[int, int]) -> bool:
        """Return whether the producer wrote offsets into the group's partition with this epoch."""
        return self._producers.get((coordinator_partition(group_id), producer[0])) == (producer[1], True)

    def is_fenced(self, group_id: str, producer: tuple[int, int]) -> bool:
        epoch, _ = self._producers.get((coordinator_partition(group_id), producer[0]), (-1, False))
        return producer[1] < epoch

    def complete(self, partition: int, producer: tuple[int, int], commit: bool) -> None:
        """Apply a transaction marker in a partition of the offsets topic."""
        self._producers[partition, producer[0]] = (producer[1], False)
        delay = self._cluster.settings.offsets_delay
        for group_id, group in self._groups.items():
            if producer[0] in group.pending and coordinator_partition(group_id) == partition:
                offsets = group.pending.pop(producer[0])
                group.completing.append(offsets)
                if delay:
                    self._cluster.world.after(delay, self._complete_offsets, group_id, group, offsets, commit)
                else:
                    self._complete_offsets(group_id, group, offsets, commit)
        self._cluster.notify()

    def _complete_offsets(
        self, group_id: str, group: Group, offsets: dict[TopicAndIndex, CommittedOffset], commit: bool
    ) -> None:
        """Let the offsets of an ended transaction be visible, or drop them."""
        group.completing.remove(offsets)
        if not commit or self._groups.get(group_id) is not group:  # it was deleted
            return
        for partition, offset in offsets.items():
            stored = group.offsets.get(partition)
            # A commit outside the transaction that came later remains.
            if stored is None or stored.number < offset.number:
                self.commit(group_id, partition, offset)

    def fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicAndIndex] | None,
        *,
        require_stable: bool,
        outdated_at: int | None = None,
    ) -> dict[TopicAndIndex, dict[str, Any]]:
        """Return the committed offsets of partitions, or of all that have one.

        ``outdated_at`` is a former coordinator, which returns what was committed when it became isolated.
        """
        groups = self._groups
        if outdated_at is not None:
            groups = self._outdated[coordinator_partition(group_id), outdated_at]
        group = groups.get(group_id) or Group()
        found: dict[TopicAndIndex, dict[str, Any]] = {}
        for partition in group.offsets if partitions is None else partitions:
            offset = group.offsets.get(partition)
            if require_stable and group.is_pending(partition):
                found[partition] = {"error_code": _UNSTABLE_OFFSET_COMMIT, **_ABSENT}
            elif offset is None:
                found[partition] = {"error_code": 0, **_ABSENT}
            else:
                found[partition] = {
                    "error_code": 0,
                    "committed_offset": offset.offset,
                    "committed_leader_epoch": offset.leader_epoch,
                    "metadata": offset.metadata,
                }
        return found

    def is_outdated_coordinator(self, group_id: str, broker: SimulatedBroker) -> bool:
        """Return whether an isolated broker still acts as the coordinator of a group."""
        is_isolated = broker.isolated_until > self._cluster.world.now
        return is_isolated and (coordinator_partition(group_id), broker.id) in self._outdated

    def remove_deleted_topics(self, group_id: str, broker: SimulatedBroker) -> None:
        """Delete offsets of topics that, in the coordinator's image, are deleted or recreated."""
        group = self._groups.get(group_id)
        if group is None:
            return
        for partition in list(group.offsets):
            topic_id = group.offsets[partition].topic_id
            image, topic = broker.image.topics.get(partition[0]), self._cluster.topics.get(partition[0])
            is_in_image = image is not None and image.topic.topic_id == topic_id
            if not is_in_image and (topic is None or topic.topic_id != topic_id):
                del group.offsets[partition]

    def new_offset(self, broker: SimulatedBroker, topic: str, requested: Any) -> CommittedOffset:
        """Return an offset as it is written to the log."""
        self._number += 1
        return CommittedOffset(
            requested.committed_offset,
            requested.committed_leader_epoch,
            requested.committed_metadata or "",
            broker.image.topics[topic].topic.topic_id,
            self._number,
        )

    def _keep_outdated(self, kind: Kind, partition: int, former: int) -> None:
        if kind != GROUP or self._cluster.brokers[former].isolated_until <= self._cluster.world.now:
            return
        kept = self._outdated[partition, former] = {}
        for group_id, group in self._groups.items():
            if coordinator_partition(group_id) == partition:
                copy = kept[group_id] = Group()
                copy.offsets = dict(group.offsets)
                copy.completing = list(group.completing)
                copy.pending = {producer_id: dict(offsets) for producer_id, offsets in group.pending.items()}
