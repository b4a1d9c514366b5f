"""Trigger.AvailableNow: fixed end offsets, and the checks against them."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.settings import read_settings
from tests.unit.planning.fake_offset_reader import FakeClock, FakeOffsetReader, cluster

from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlan, MicroBatchPlanner
from pyspark_kafka_direct.errors import DataLossError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.options.offset_specs import (
    Earliest,
    GlobalTimestamp,
    Latest,
    OffsetSpec,
    SpecificOffsets,
)
from pyspark_kafka_direct.options.settings import ReadLimits
from pyspark_kafka_direct.planning.offset_reader import AssignedPartitions

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)

MISMATCHED = "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED"
GREATER_THAN_PREFETCHED = "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED"
LOST = "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW"
GREATER_THAN_LATEST = "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW"


def planner(
    reader: FakeOffsetReader, *, start: OffsetSpec | None = None, fail: bool = True, **limits: int
) -> MicroBatchPlanner:
    options = read_settings(start or Earliest(), ReadLimits(**limits), fail_on_data_loss=fail)
    return MicroBatchPlanner(options, reader, FakeClock())


def planned(plan: MicroBatchPlan) -> list[tuple[int, int, int]]:
    return [(r.partition, r.from_offset, r.until_offset) for r in plan.ranges]


def run(stream: MicroBatchPlanner, start: dict[TopicPartition, int] | None = None) -> list[list[tuple[int, int, int]]]:
    """All batches until the query ends, that is until a batch is empty."""
    position = stream.initial_offsets() if start is None else start
    batches: list[list[tuple[int, int, int]]] = []
    while True:
        end = stream.next_end_offsets(position)
        if end == position and not (start is None and not batches):
            return batches
        batches.append(planned(stream.plan(position, end)))
        position = end


def test_fifteen_records_five_per_trigger_are_three_batches() -> None:
    stream = planner(cluster(15), max_offsets=5)
    stream.fix_end_offsets()
    assert run(stream) == [[(0, 0, 5)], [(0, 5, 10)], [(0, 10, 15)]]


def test_records_that_arrive_later_are_left_for_the_next_run() -> None:
    reader = cluster(10)
    stream = planner(reader)
    stream.fix_end_offsets()
    assert stream.initial_offsets() == {T0: 0}
    reader.logs |= {T0: (0, 14), T1: (0, 3)}
    assert run(stream) == [[(0, 0, 10)]]
    restarted = planner(reader)
    restarted.fix_end_offsets()
    assert run(restarted, {T0: 10}) == [[(0, 10, 14), (1, 0, 3)]]


def test_a_start_that_can_change_takes_one_empty_batch_and_never_lies_after_the_fixed_ends() -> None:
    reader = cluster(10)
    for spec in (Latest(), GlobalTimestamp(99, "latest")):
        stream = planner(reader, start=spec)
        stream.fix_end_offsets()
        reader.logs[T0] = (0, reader.logs[T0][1] + 4)
        assert run(stream) == [[]]
    stream = planner(reader, start=GlobalTimestamp(3))
    stream.fix_end_offsets()
    assert run(stream) == [[], [(0, 3, 18)]]


def test_an_explicit_offset_beyond_the_fixed_end_is_not_moved_before_it() -> None:
    """Moving it would be wrong and silent: the user requested a record that does not exist."""
    stream = planner(cluster(10), start=SpecificOffsets({T0: 12}))
    stream.fix_end_offsets()
    assert stream.initial_offsets() == {T0: 12}
    with pytest.raises(DataLossError, match="offset was changed from 12 to 10"):
        stream.next_end_offsets(stream.initial_offsets())


@pytest.mark.parametrize(
    "spec", [GlobalTimestamp(12), SpecificOffsets({}, {"t": LATEST}), SpecificOffsets({T0: EARLIEST})]
)
def test_a_resolved_start_is_moved_before_the_fixed_end(spec: OffsetSpec) -> None:
    reader = cluster(10)
    stream = planner(reader, start=spec)
    stream.fix_end_offsets()
    reader.logs[T0] = (11, 14)
    assert stream.initial_offsets() == {T0: 10}


def test_a_minimum_does_not_delay_the_last_records() -> None:
    stream = planner(cluster(12), max_offsets=5, min_offsets=5)
    stream.fix_end_offsets()
    assert run(stream) == [[(0, 0, 5)], [(0, 5, 10)], [(0, 10, 12)]]


def test_ends_fixed_too_early_are_corrected() -> None:
    reader = cluster(8)
    stream = planner(reader)
    stream.fix_end_offsets()
    reader.logs[T0] = (0, 12)  # the leader lagged: the query had read up to 10 before
    assert run(stream, {T0: 10}) == []


class Stale(FakeOffsetReader):
    """The first response contains partition 0 only, as from a broker with stale metadata."""

    def assigned(self, *, strict: bool) -> AssignedPartitions:
        assigned_now = super().assigned(strict=strict)
        return assigned_now if self.refreshes > 1 else AssignedPartitions(frozenset({T0}), assigned_now.topic_ids)


@pytest.mark.parametrize("read", [7, 0])
@pytest.mark.parametrize("fail", [True, False])
def test_a_partition_that_the_first_response_lacks_is_not_lost(fail: bool, read: int) -> None:
    """What the query had read is not lost, and the next run must not read it again."""
    reader = Stale({T0: (0, 10), T1: (0, 10)}, {"t": UUID(int=1)})
    stream = planner(reader, fail=fail)
    stream.fix_end_offsets()
    assert run(stream, {T0: 5, T1: read}) == [[(0, 5, 10), (1, read, 10)]]
    assert (reader.waits, reader.warnings) == (0, [])


@pytest.mark.parametrize(("spec", "expected"), [(Latest(), [[]]), (Earliest(), [[(0, 0, 10), (1, 0, 10)]])])
def test_a_new_query_starts_in_a_partition_that_the_first_response_lacks(
    spec: OffsetSpec, expected: list[list[tuple[int, int, int]]]
) -> None:
    """The next run would treat it as an added partition and read it from its log start."""
    reader = Stale({T0: (0, 10), T1: (0, 10)}, {"t": UUID(int=1)})
    stream = planner(reader, start=spec)
    stream.fix_end_offsets()
    assert stream.initial_offsets().keys() == {T0, T1}
    reader.logs[T1] = (0, 14)
    assert run(stream) == expected


@pytest.mark.parametrize("start", [None, {T0: 5, U0: 5}])
def test_tasks_get_the_id_of_a_topic_that_the_first_response_lacks(start: dict[TopicPartition, int] | None) -> None:
    ids = {"t": UUID(int=1), "u": UUID(int=2)}

    class StaleTopics(Stale):
        def assigned(self, *, strict: bool) -> AssignedPartitions:
            assigned_now = super().assigned(strict=strict)
            return AssignedPartitions(
                assigned_now.partitions, {tp.topic: ids[tp.topic] for tp in assigned_now.partitions}
            )

    stream = planner(StaleTopics({T0: (0, 10), U0: (0, 10)}))
    stream.fix_end_offsets()
    first_start = start or stream.initial_offsets()
    end = stream.next_end_offsets(first_start)
    assert end == {T0: 10, U0: 10}
    assert stream.plan(first_start, end).topic_ids == ids


def test_a_partition_that_every_response_lacks_is_lost() -> None:
    reader = cluster(10)
    stream = planner(reader)
    stream.fix_end_offsets()
    with pytest.raises(DataLossError, match=r"t-1 do not exist any more"):
        stream.next_end_offsets({T0: 5, T1: 7})
    assert reader.confirmations == 1
    stream = planner(reader, fail=False)
    stream.fix_end_offsets()
    assert run(stream, {T0: 5, T1: 7}) == [[(0, 5, 10)]]


@pytest.mark.parametrize("fail", [True, False])
def test_partitions_deleted_during_the_query_fail_it(fail: bool) -> None:
    reader = cluster(5, 5)
    stream = planner(reader, fail=fail, max_offsets=2)
    stream.fix_end_offsets()
    start = stream.initial_offsets()
    end = stream.next_end_offsets(start)
    del reader.logs[T1]
    with pytest.raises(DataLossError, match=rf"latest offset: t-0, .*end offset: t-0, t-1; .*{LOST}"):
        stream.plan(start, end)
    assert reader.confirmations == 1


@pytest.mark.parametrize("fail", [True, False])
def test_offsets_lost_during_the_query_fail_it(fail: bool) -> None:
    reader = cluster(15)
    stream = planner(reader, fail=fail)
    stream.fix_end_offsets()
    start = stream.initial_offsets()
    end = stream.next_end_offsets(start)
    reader.recreate("t", 1, [10])
    with pytest.raises(
        DataLossError,
        match=rf'latest offset: {{"t":{{"0":10}}}}, end offset: {{"t":{{"0":15}}}}; .*{GREATER_THAN_LATEST}',
    ):
        stream.plan(start, end)


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_recreated_with_a_longer_log_fails_the_query(fail: bool) -> None:
    """Its offsets would look like those of the old topic, and the next run, without the old id, would skip records."""
    reader = cluster(15)
    stream = planner(reader, fail=fail, max_offsets=5)
    stream.fix_end_offsets()
    start = stream.initial_offsets()
    end = stream.next_end_offsets(start)
    assert planned(stream.plan(start, end)) == [(0, 0, 5)]
    reader.recreate("t", 2, [30])
    with pytest.raises(DataLossError, match=r"deleted and recreated while .*Trigger.AvailableNow was running: t;"):
        stream.plan(end, stream.next_end_offsets(end))
    assert reader.confirmations == 1, "the metadata may be stale"


@pytest.mark.parametrize("fail", [True, False])
def test_ends_that_do_not_match_the_fixed_ones_fail_the_query(fail: bool) -> None:
    reader = cluster(5)
    stream = planner(reader, fail=fail)
    early = stream.next_end_offsets(stream.initial_offsets())
    reader.logs[T1] = (0, 5)
    stream.fix_end_offsets()
    with pytest.raises(DataLossError, match=MISMATCHED):
        stream.plan(stream.initial_offsets(), early)
    reader.logs = {T0: (0, 3)}
    stream.fix_end_offsets()
    with pytest.raises(DataLossError, match=GREATER_THAN_PREFETCHED):
        stream.plan(stream.initial_offsets(), early)


def test_a_batch_of_an_earlier_run_is_not_checked() -> None:
    reader = cluster(5)
    first = planner(reader)
    first.fix_end_offsets()
    start = first.initial_offsets()
    end = first.next_end_offsets(start)
    reader.logs |= {T1: (0, 4)}
    restarted = planner(reader)  # the batch failed in its job, partitions were added (SPARK-53560)
    restarted.fix_end_offsets()
    assert planned(restarted.plan(restarted.initial_offsets(), end)) == [(0, 0, 5)]
    assert run(restarted, end) == [[(1, 0, 4)]]


def test_without_topics_the_query_ends_immediately() -> None:
    stream = planner(FakeOffsetReader({}))
    stream.fix_end_offsets()
    assert run(stream, {}) == []
