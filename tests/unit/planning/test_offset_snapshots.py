"""What planners learn of a cluster, while a broker lags behind, a leader was deposed, and topics change meanwhile."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.examples import seeds
from tests.unit.planning.planner_cluster import PlannerCluster

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.offset_reader import OffsetHistory, OffsetMetadata, SnapshotReader

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping
    from uuid import UUID

T0, T1, U0, NEW = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0), TopicPartition("v", 0)
PARTITIONS = (T0, T1, U0)


class ChangingCluster(PlannerCluster):
    """Two brokers and two topics, of which one partition may have a deposed leader, or be unknown to one broker."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(10, 10)
        self.rng = rng
        self.grow(U0, 10)
        self.ids = {topic: self.topic_id(topic) for topic in "tu"}
        self.fault_kind = rng.choice([None, "deposed start", "deposed end", "lagging broker"])

    @property
    def has_deposed_leader(self) -> bool:
        return self.fault_kind in ("deposed start", "deposed end")

    def begin_fault(self) -> None:
        if self.fault_kind == "lagging broker":
            self.hide(NEW, 5)
            self.ids[NEW.topic] = self.topic_id(NEW.topic)
        elif self.fault_kind is not None:
            is_start = self.fault_kind == "deposed start"
            for tp in self.rng.sample(PARTITIONS, self.rng.randint(1, 3)):
                self.depose_leader(tp, start=8 if is_start else 0, end=None if is_start else self.rng.randint(0, 9))

    def change_any(self) -> None:
        """Change a topic: at the leaders that the controller has elected."""
        tp = self.rng.choice(PARTITIONS)
        if self.cluster.partition(tp) is None:
            return
        kinds: list[Callable[[], object]] = [
            partial(self.append_each, tp, 3),
            partial(self.delete_records, tp, self.rng.randint(0, 6)),
        ]
        if self.fault_kind is None:
            kinds += [
                partial(self.truncate, tp, 4),
                partial(self.event, "delete_topic", topic=tp.topic),
                partial(self.recreate, tp.topic, *[self.rng.randint(0, 12)] * (2 if tp.topic == "t" else 1)),
            ]
        self.rng.choice(kinds)()

    def bounds(self) -> Mapping[TopicPartition, tuple[UUID, int, int, int]]:
        """Return the topic id, start, last stable offset and end of each log."""
        return {
            TopicPartition(*each.name): (
                self.topic_id(each.name[0]),
                log.start,
                log.last_stable_offset,
                log.high_watermark,
            )
            for each in self.cluster.all_partitions()
            if (log := each.leader_log) is not None
        }


def check_snapshots(rng: random.Random) -> None:
    with ChangingCluster(rng) as brokers:
        history = OffsetHistory()
        read_committed = rng.random() < 0.5
        if rng.random() < 0.5:
            brokers.append(rng.choice(PARTITIONS), rng.randint(1, 3), producer_id=7)  # and leave the transaction open
        brokers.begin_fault()
        known = {tp: rng.randint(0, end) for tp, (*_, end) in sorted(brokers.bounds().items())}
        history.put(known, OffsetMetadata(brokers.ids))
        for _ in range(rng.randrange(3)):
            brokers.change_any()
        if rng.random() < 0.5:
            brokers.before(rng.choice(["ListOffsets", "Metadata"]), brokers.change_any)
        snapshots = SnapshotReader(
            brokers.reader(brokers.settings(read_committed=read_committed)),
            history,
            max_attempts=rng.randint(1, 3),
            read_committed=read_committed,
        )
        before = brokers.bounds()
        latest, topic_ids = (found := snapshots.fetch_latest(known)).latest, found.topic_ids
        after = brokers.bounds()
        for tp, (topic_id, _, _, end) in after.items():
            if tp not in before or before[tp][0] != topic_id:
                continue
            assert tp in latest
            assert topic_ids[tp.topic] == topic_id
            _, _, stable_before, end_before = before[tp]
            if not brokers.has_deposed_leader and end >= end_before:
                assert (stable_before if read_committed else end_before) <= latest[tp] <= end
            if topic_id == brokers.ids.get(tp.topic):
                assert latest[tp] >= min(known[tp], end_before, end)
        assert latest.keys() <= before.keys() | after.keys()

        before = brokers.bounds()
        if rng.random() < 0.5:
            brokers.before("ListOffsets", brokers.change_any)
        starts = snapshots.fetch_log_starts(known)
        after = brokers.bounds()
        for tp, (topic_id, start, *_) in after.items():
            if tp in known and tp in before and before[tp][0] == topic_id:
                assert starts[tp] <= start, "what a deposed leader has deleted is not lost"
                assert brokers.has_deposed_leader or starts[tp] >= before[tp][1]
        assert starts.keys() <= before.keys() | after.keys()


def test_snapshots_have_all_that_exists_and_no_earlier_log() -> None:
    seeds(25)(check_snapshots)()


def test_ends_that_are_fixed_move_only_to_what_was_read_beyond_them() -> None:
    """A query with Trigger.AvailableNow has fixed its ends by a leader that was deposed, and resumes behind one."""
    with PlannerCluster(10, 10) as brokers:
        brokers.depose_leader(T0, end=4)
        reader = brokers.reader()
        snapshots = SnapshotReader(reader, OffsetHistory(), max_attempts=3, read_committed=False)
        snapshots.fix_end_offsets()
        brokers.append_each(T1, 5)
        for start, expected in (
            ({T0: 2, T1: 10}, {T0: 4, T1: 10}),
            ({T0: 4, T1: 7}, {T0: 4, T1: 10}),
            ({T0: 7, T1: 7}, {T0: 7, T1: 10}),
            ({T0: 7, T1: 12}, {T0: 7, T1: 12}),
        ):
            assert snapshots.available_offsets(start).latest == expected
            assert snapshots.fixed_end_offsets == expected


def test_a_topic_that_is_recreated_keeps_the_id_with_which_its_ends_were_fixed() -> None:
    with PlannerCluster(10, 10) as brokers:
        reader, first_id = brokers.reader(), brokers.topic_id("t")
        snapshots = SnapshotReader(reader, OffsetHistory(), max_attempts=3, read_committed=False)
        snapshots.fix_end_offsets()
        brokers.recreate("t", 3, 3)
        brokers.grow(NEW, 5)
        snapshots.fix_added_end_offsets(reader.assigned(strict=False))
        found = snapshots.available_offsets({T0: 1, T1: 1, NEW: 0})
        assert found.latest == {T0: 10, T1: 10, NEW: 5}
        assert found.topic_ids == {"t": first_id, "v": brokers.topic_id("v")}
