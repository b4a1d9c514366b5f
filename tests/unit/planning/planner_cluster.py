"""A simulated cluster whose topics a planner reads: its logs grow, shrink, disappear and come back."""

from __future__ import annotations

import dataclasses
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from tests.settings import read_settings
from tests.simulation.cluster.groups import CommittedOffset, GroupCoordinator
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlan, MicroBatchPlanner
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import ReadLimits
from pyspark_kafka_direct.options.subscription import parse_subscribe_pattern
from pyspark_kafka_direct.spark.kafka_offset_reader import KafkaOffsetReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark_kafka_direct.options.offset_specs import StartingOffsetSpec
    from pyspark_kafka_direct.options.settings import ReadSettings
    from pyspark_kafka_direct.options.subscription import SubscriptionStrategy
    from pyspark_kafka_direct.planning.loss_errors import DataLossCause

GROUP = "g"

_LIMITS = frozenset(field.name for field in dataclasses.fields(ReadLimits))
_LOG = logging.getLogger("pyspark_kafka_direct.tests")


class PlannerCluster(UnitCluster):
    """Two brokers with one topic, whose partitions have the given ends; timestamps of records equal their offsets.

    Attributes:
        selection: What the next planners select.
        warnings: What planners have logged.
        losses: What planners have counted.
    """

    def __init__(self, *ends: int, topic: str = "t", **cluster: Any) -> None:
        super().__init__({topic: len(ends)} if ends else {}, brokers=2, **cluster)
        self.selection: SubscriptionStrategy = parse_subscribe_pattern(".*")
        self.warnings: list[str] = []
        self.losses: list[tuple[DataLossCause, dict[TopicPartition, int]]] = []
        for partition, end in enumerate(ends):
            self.grow(TopicPartition(topic, partition), end)

    def settings(self, start: StartingOffsetSpec | None = None, **options: Any) -> ReadSettings:
        """Return settings with the options of ``tests.settings.read_settings``, or fields of ``ReadLimits``."""
        limits = ReadLimits(**{name: options.pop(name) for name in _LIMITS & options.keys()})
        found = read_settings(start, limits, **options)
        source = dataclasses.replace(found.source, selection=self.selection, start_group_id=GROUP)
        return dataclasses.replace(found, connection=self.environment.settings(), source=source)

    def reader(self, settings: ReadSettings | None = None) -> KafkaOffsetReader:
        return _RecordingReader(settings or self.settings(), self)

    def planner(
        self, start: StartingOffsetSpec | None = None, *, fail: bool = True, backpressure: Any = None, **options: Any
    ) -> MicroBatchPlanner:
        """Return the planner of a query that begins or is restarted."""
        settings = self.settings(start, fail_on_data_loss=fail, **options)
        reader = self.reader(settings)
        return MicroBatchPlanner(settings, reader, reader.clock, backpressure_limit=backpressure)

    def grow(self, tp: TopicPartition, end: int, *, start: int = 0) -> None:
        """Append records up to this end, and delete those before the start; create what does not exist."""
        if tp.topic not in self.cluster.topics:
            self.cluster.create_topic(tp.topic, tp.partition + 1)
        self.cluster.expand_topic(tp.topic, tp.partition + 1)
        target = self.partition(tp)
        if target.leader != 1 and self.cluster.is_connected(1):
            self.elect(tp, 1)
        for offset in range(self.log(tp).end, end):  # one batch for each, so that logs can be truncated anywhere
            self.cluster.append(tp, [b"%d" % offset], timestamp=offset)
        if start:
            self.delete_records(tp, start)

    def recreate(self, topic: str, *ends: int) -> None:
        """Delete and recreate a topic with these ends."""
        self.event("recreate_topic", topic=topic, partitions=len(ends))
        for partition, end in enumerate(ends):
            self.grow(TopicPartition(topic, partition), end)

    def recreate_elsewhere(self, tp: TopicPartition, end: int) -> None:
        """Recreate a topic at broker 2; broker 1, which clients ask first, has the old topic for two more seconds."""
        self.elect(tp, 2)
        self.event("stick_image", broker=0, seconds=3)
        self.event("recreate_topic", topic=tp.topic)
        while self.partition(tp).epoch < 3:  # requests with the old epoch are rejected
            self.elect(tp, 2)
        self.sleep(1)  # until broker 1 is no in-sync replica
        self.append_each(tp, end)

    def depose_leader(self, tp: TopicPartition, *, start: int = 0, end: int | None = None) -> None:
        """Let broker 1 lead a partition in its own view only, with another log; clients ask it first."""
        self.event("isolate_broker", broker=0, seconds=1000)
        self.sleep(1)
        deposed = self.partition(tp).replicas[1]
        deposed.advance_start(start)
        if end is not None:
            deposed.truncate_to(end)

    def expire_and_depose(self, topics: Iterable[str], deposed: str) -> None:
        """Let the first partitions of topics have offsets 4 to 9; for a deposed leader of one, they start at 8."""
        for topic in topics:
            self.grow(TopicPartition(topic, 0), 10)
            self.elect(TopicPartition(topic, 0), 1 if topic == deposed else 2)
        self.depose_leader(TopicPartition(deposed, 0), start=8)
        for topic in topics:
            self.delete_records(TopicPartition(topic, 0), 4)

    def hide(self, tp: TopicPartition, end: int, *, start: int = 0) -> None:
        """Create a partition that broker 1 lacks until the cluster is healed; clients ask it first."""
        self.event("stick_image", broker=0, seconds=1000)
        self.cluster.create_topic(tp.topic, tp.partition + 1)
        self.cluster.expand_topic(tp.topic, tp.partition + 1)
        self.elect(tp, 2)
        self.sleep(1)  # until broker 1 is no in-sync replica
        self.append_each(tp, end)
        self.delete_records(tp, start)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for the group that the planners start from."""
        group = GroupCoordinator.of(self.cluster)
        group.set_members(GROUP, False)  # creates the group
        for tp, offset in offsets.items():
            group.commit(GROUP, tp, CommittedOffset(offset, -1, "", self.topic_id(tp.topic), 0))


class _RecordingReader(KafkaOffsetReader):
    def __init__(self, settings: ReadSettings, cluster: PlannerCluster) -> None:
        super().__init__(settings, _LOG, cluster.pool)
        self._recorded = cluster

    def warn(self, message: str) -> None:
        self._recorded.warnings.append(message)

    def count_loss(self, cause: DataLossCause, offsets: Mapping[TopicPartition, int]) -> None:
        self._recorded.losses.append((cause, dict(offsets)))


class NewCluster(Protocol):
    """Creates a cluster for a test."""

    def __call__(self, *ends: int, topic: str = "t", **cluster: Any) -> PlannerCluster: ...


@pytest.fixture
def cluster() -> Iterator[NewCluster]:
    with ExitStack() as stack:
        yield lambda *ends, **options: stack.enter_context(PlannerCluster(*ends, **options))


def planned(plan: MicroBatchPlan) -> list[tuple[str, int, int]]:
    """Return the ranges of a plan."""
    return [(str(each.topic_partition), each.from_offset, each.until_offset) for each in plan.ranges]
