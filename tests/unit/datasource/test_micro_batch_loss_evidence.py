"""Evidence of data loss in micro-batches: outdated topic ids, deposed leaders, and losses that occur again."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from tests.settings import read_settings
from tests.unit.planning.fake_offset_reader import FakeClock, FakeOffsetReader, cluster, without_ids

from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlan, MicroBatchPlanner
from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.offset_specs import Earliest, GlobalTimestamp, OffsetSpec
from pyspark_kafka_direct.planning.loss_errors import DataLossCause

if TYPE_CHECKING:
    from collections.abc import Collection

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)


def planner(reader: FakeOffsetReader, *, fail: bool, start: OffsetSpec | None = None) -> MicroBatchPlanner:
    return MicroBatchPlanner(read_settings(start or Earliest(), fail_on_data_loss=fail), reader, FakeClock())


def planned(plan: MicroBatchPlan) -> list[tuple[str, int, int, int]]:
    return [(r.topic, r.partition, r.from_offset, r.until_offset) for r in plan.ranges]


def outdated_metadata(reader: FakeOffsetReader) -> None:
    """The topic was recreated; the next metadata has the old id, and requests for offsets refresh it."""
    current = reader.ids["t"]
    reader.ids["t"] = UUID(int=99)

    def refresh(changed: FakeOffsetReader) -> None:
        changed.ids["t"] = current

    reader.on_offsets = refresh


@pytest.mark.parametrize("fail", [True, False])
def test_an_outdated_topic_id_of_a_new_query_is_no_recreated_topic(fail: bool) -> None:
    reader = cluster(10)
    outdated_metadata(reader)
    stream = planner(reader, fail=fail)
    start = stream.initial_offsets()
    plan = stream.plan(start, stream.next_end_offsets(start))
    assert (planned(plan), plan.topic_ids) == ([("t", 0, 0, 10)], {"t": UUID(int=1)})
    assert (reader.losses, reader.confirmations) == ([], 0)


@pytest.mark.parametrize("fail", [True, False])
def test_an_outdated_topic_id_of_a_batch_is_no_recreated_topic(fail: bool) -> None:
    """The offsets came from the leaders of the current topic, after another metadata refresh."""
    reader = cluster(10)
    stream = planner(reader, fail=fail)
    outdated_metadata(reader)
    end = stream.next_end_offsets({T0: 4})
    plan = stream.plan({T0: 4}, end)
    assert (planned(plan), plan.topic_ids) == ([("t", 0, 4, 10)], {"t": UUID(int=1)})
    reader.logs[T0] = (0, 12)
    assert stream.next_end_offsets(end) == {T0: 12}
    assert (reader.losses, reader.confirmations) == ([], 0)


def test_a_replanned_batch_has_the_topic_ids_that_offsets_came_with() -> None:
    reader = cluster(10, 8)
    outdated_metadata(reader)
    assert planner(reader, fail=True).plan({T0: 4}, {T0: 10, T1: 8}).topic_ids == {"t": UUID(int=1)}


def test_a_topic_id_that_changes_with_each_response_is_an_error() -> None:
    def change(reader: FakeOffsetReader) -> None:
        reader.ids["t"] = UUID(int=reader.ids["t"].int + 1)

    reader = cluster(10)
    reader.on_offsets = change
    with pytest.raises(BrokerTimeoutError, match="t"):
        planner(reader, fail=True).next_end_offsets({T0: 4})


@pytest.mark.parametrize("fail", [True, False])
def test_several_brokers_are_asked_before_a_new_query_starts_after_zero(fail: bool) -> None:
    """Retention of a leader that was deposed may have deleted records that the current leader still has."""

    class DeposedLeader(FakeOffsetReader):
        def raise_epoch_floors(self, topics: Collection[str]) -> None:
            super().raise_epoch_floors(topics)
            self.logs[T0] = (4, 10)

    for start, first in ((Earliest(), 4), (GlobalTimestamp(6), 6)):
        reader = DeposedLeader({T0: (8, 10), T1: (0, 10)}, {"t": UUID(int=1)})
        assert planner(reader, fail=fail, start=start).initial_offsets()[T0] == first
        assert reader.floor_requests == [{"t"}]
    reader = DeposedLeader({T0: (0, 10)}, {"t": UUID(int=1)})
    planner(reader, fail=fail).initial_offsets()
    assert reader.floor_requests == [], "no record was deleted"


def test_a_log_that_is_truncated_twice_is_counted_twice() -> None:
    reader = cluster(10)
    stream = planner(reader, fail=False)
    for _ in range(2):
        reader.logs[T0] = (0, 5)
        end = stream.next_end_offsets({T0: 10})
        assert end == {T0: 5}
        assert planned(stream.plan({T0: 10}, end)) == []
        reader.logs[T0] = (0, 10)
        assert stream.next_end_offsets(end) == {T0: 10}
    assert reader.losses == [(DataLossCause.BEYOND_END, {T0: 0})] * 2


def test_a_topic_that_is_deleted_twice_is_counted_twice() -> None:
    reader = without_ids(cluster(10))
    reader.logs[U0] = (0, 5)
    stream = planner(reader, fail=False)
    for _ in range(2):
        del reader.logs[U0]
        end = stream.next_end_offsets({T0: 10, U0: 5})
        assert planned(stream.plan({T0: 10, U0: 5}, end)) == []
        reader.logs[U0] = (0, 5)
        assert stream.next_end_offsets(end) == {T0: 10, U0: 5}
    assert reader.losses == [(DataLossCause.DELETED, {U0: 0})] * 2


def test_a_loss_that_is_found_in_each_poll_is_counted_once() -> None:
    """An empty end would drop the position of the only topic, so the batch never begins."""
    reader = cluster(10)
    stream = planner(reader, fail=False)
    reader.logs.clear()
    for _ in range(3):
        assert stream.next_end_offsets({T0: 10}, unlimited=True) == {T0: 10}
    assert reader.losses == [(DataLossCause.DELETED, {T0: 0})]
