"""Records, partitions and topics that are lost between two batches, for both values of failOnDataLoss."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from tests.positions import at_time
from tests.unit.planning.planner_cluster import NewCluster, planned

from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlanner
from pyspark_kafka_direct.errors import BrokerTimeoutError, DataLossError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.offset_specs import AT_LATEST, OffsetSpec
from pyspark_kafka_direct.options.subscription import AssignStrategy
from pyspark_kafka_direct.planning.loss_errors import DataLossCause
from pyspark_kafka_direct.spark.kafka_offset_reader import KafkaOffsetReader

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.offset_specs import StartingOffsetSpec

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
U0, V0, W0, X0 = (TopicPartition(name, 0) for name in "uvwx")
U1, V1 = TopicPartition("u", 1), TopicPartition("v", 1)

CONFIRMED = 5  # seconds that several brokers agree before something is lost


def test_a_deleted_topic(cluster: NewCluster) -> None:
    brokers = cluster(10)
    start = {T0: 4, U0: 4}
    with pytest.raises(DataLossError, match=r"u-0 do not exist any more.*PARTITIONS_DELETED.*failOnDataLoss=false"):
        brokers.planner().next_end_offsets(start)
    stream = brokers.planner(fail=False)
    end = stream.next_end_offsets(start)
    assert end == {T0: 10}
    assert planned(stream.plan(start, end)) == [("t-0", 4, 10)]
    assert "u-0 do not exist any more" in brokers.warnings[0]
    with pytest.raises(DataLossError, match="u-0 do not exist any more"):
        brokers.planner().plan(start, end)


@pytest.mark.parametrize("replayed", [False, True])
def test_an_existing_partition_that_is_not_selected_any_more(cluster: NewCluster, replayed: bool) -> None:
    """The subscription was changed between two runs: nothing is deleted."""
    brokers = cluster(10, 10)
    brokers.selection = AssignStrategy((T0,))

    def run_batch(fail: bool) -> list[tuple[str, int, int]]:
        stream, start = brokers.planner(fail=fail), {T0: 4, T1: 4}
        end = {T0: 10} if replayed else stream.next_end_offsets(start)
        assert end == {T0: 10}
        return planned(stream.plan(start, end))

    with pytest.raises(DataLossError, match=r"t-1 are not selected any more.*they exist.*Include them again") as caught:
        run_batch(True)
    assert (caught.value.topic, caught.value.partition) == ("t", 1)
    assert "do not exist" not in str(caught.value)
    assert run_batch(False) == [("t-0", 4, 10)]
    assert "read from their start" in brokers.warnings[0]


@pytest.mark.parametrize("lagging", [False, True])
def test_a_partition_that_is_selected_again_after_a_batch_without_it(cluster: NewCluster, lagging: bool) -> None:
    """An earlier run planned the batch while the partition was not selected; one broker may not have it yet."""
    brokers = cluster(10)
    if lagging:
        brokers.hide(T1, 10)
    else:
        brokers.grow(T1, 10)
    start, end = {T0: 4, T1: 4}, {T0: 10}
    with pytest.raises(DataLossError, match=r"t-1 are not part of this batch.*Now they exist and are selected"):
        brokers.planner().plan(start, end)
    stream = brokers.planner(fail=False)
    assert planned(stream.plan(start, end)) == [("t-0", 4, 10)]
    assert "do not exist" not in brokers.warnings[0]
    assert "next batch reads them from their start" in brokers.warnings[0]
    assert planned(stream.plan(end, stream.next_end_offsets(end))) == [("t-1", 0, 10)]


def test_one_partition_may_be_deleted_and_another_not_selected(cluster: NewCluster) -> None:
    brokers = cluster(10, 10)
    brokers.selection = AssignStrategy((T0,))
    assert brokers.planner(fail=False).next_end_offsets({T0: 4, T1: 4, T2: 4}) == {T0: 10}
    assert "t-2 do not exist any more" in brokers.warnings[0]
    assert "t-1 are not selected any more" in brokers.warnings[1]


def test_if_all_partitions_are_deleted_the_end_keeps_their_offsets(cluster: NewCluster) -> None:
    brokers = cluster(10)
    stream = brokers.planner(fail=False)
    start = stream.next_end_offsets(stream.initial_offsets())
    brokers.event("delete_topic", topic="t")
    for _ in range(2):
        assert stream.next_end_offsets(start) == start  # SPARK-41375
    assert brokers.losses == [(DataLossCause.DELETED, {T0: 0})], "counted once"
    brokers.grow(U0, 3)
    assert stream.next_end_offsets(start) == {U0: 3}


@pytest.mark.parametrize("topic_ids", [True, False])
def test_an_end_before_the_start_is_data_loss_after_retries(cluster: NewCluster, topic_ids: bool) -> None:
    brokers = cluster(1, topic_ids=topic_ids)
    began = brokers.now
    with pytest.raises(DataLossError, match=r"offset was changed from 2 to 1.*PARTITION_OFFSET_CHANGED") as caught:
        brokers.planner().next_end_offsets({T0: 2})
    assert "the checkpoint or stored offsets are of another cluster: then connect to that one" in str(caught.value)
    assert brokers.now - began > 2, "three responses"
    stream = brokers.planner(fail=False)
    end = stream.next_end_offsets({T0: 2})
    assert end == {T0: 1}
    assert planned(stream.plan({T0: 2}, end)) == []
    assert "changed from 2 to 1" in brokers.warnings[0]
    brokers.grow(T0, 5)
    assert planned(stream.plan(end, stream.next_end_offsets(end))) == [("t-0", 1, 5)]


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("read", [0, 5])
def test_a_partition_that_one_broker_lacks_is_not_lost(cluster: NewCluster, fail: bool, read: int) -> None:
    brokers = cluster(9)
    brokers.hide(U0, 9)
    assert brokers.planner(fail=fail).next_end_offsets({T0: 9, U0: read}) == {T0: 9, U0: 9}
    assert brokers.warnings == []


@pytest.mark.parametrize("fail", [True, False])
def test_an_end_that_lagged_is_no_loss(cluster: NewCluster, fail: bool) -> None:
    """Before Kafka 2.2, a new leader returned the end that it had as a follower."""
    brokers = cluster(1, 9)
    brokers.before("ListOffsets", *[lambda: None] * 2, lambda: brokers.grow(T0, 9))
    assert brokers.planner(fail=fail).next_end_offsets({T0: 2, T1: 9}) == {T0: 9, T1: 9}
    assert brokers.warnings == []


def test_a_recreated_topic_is_confirmed_once(cluster: NewCluster) -> None:
    """Each confirmation takes five seconds. A lower end of the new topic is no truncation, which is requested again."""
    brokers = cluster(9)
    stream = brokers.planner(fail=False)
    end = stream.next_end_offsets(stream.initial_offsets())
    brokers.recreate("t", 3)
    began = brokers.now
    assert stream.next_end_offsets(end) == {T0: 0}
    assert CONFIRMED < brokers.now - began < 2 * CONFIRMED


def test_a_topic_that_is_confirmed_as_missing_is_not_confirmed_again(cluster: NewCluster) -> None:
    """The other topic is only unknown to the broker that responded first."""
    brokers = cluster()
    brokers.hide(U0, 0)
    began = brokers.now
    assert brokers.planner(fail=False).next_end_offsets({T0: 9, U0: 0}) == {U0: 0}
    assert CONFIRMED < brokers.now - began < 2 * CONFIRMED


@pytest.mark.parametrize("fail", [True, False])
def test_several_brokers_are_asked_before_an_end_is_accepted_even_without_retries(
    cluster: NewCluster, fail: bool
) -> None:
    """With fetchOffset.numRetries=1, the end of a deposed leader was accepted."""
    brokers = cluster(9)
    brokers.grow(U0, 9)
    for tp in (T0, U0):
        brokers.depose_leader(tp, end=1)
    assert brokers.planner(fail=fail, max_attempts=1).next_end_offsets({T0: 5, U0: 5}) == {T0: 9, U0: 9}
    assert brokers.warnings == []


@pytest.mark.parametrize("deposed", ["t", "u"])
@pytest.mark.parametrize(("start", "lost"), [({T0: 3, T1: 3, U0: 3}, 1), ({T1: 3}, 4)], ids=["read", "added"])
def test_several_brokers_are_asked_before_a_log_start_is_accepted(
    cluster: NewCluster, deposed: str, start: dict[TopicPartition, int], lost: int
) -> None:
    """Retention of a leader that was deposed may have deleted records that the current leader still has."""
    brokers = cluster(10, 10)
    brokers.expire_and_depose("tu", deposed)
    stream = brokers.planner(fail=False)
    end = stream.next_end_offsets(start)
    assert planned(stream.plan(start, end)) == [("t-0", 4, 10), ("t-1", 3, 10), ("u-0", 4, 10)]
    assert brokers.losses == [(DataLossCause.AGED_OUT, {tp: lost}) for tp in (T0, U0)]


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("deposed", ["t", "u"])
def test_several_brokers_are_asked_before_a_new_query_starts_after_zero(
    cluster: NewCluster, fail: bool, deposed: str
) -> None:
    brokers = cluster(10, 10, 10)
    brokers.expire_and_depose("tu", deposed)
    assert brokers.planner(fail=fail).initial_offsets() == {T0: 4, T1: 0, T2: 0, U0: 4}
    assert brokers.planner(at_time(6), fail=fail).initial_offsets() == dict.fromkeys((T0, T1, T2, U0), 6)


@pytest.mark.parametrize("fail", [True, False])
def test_several_brokers_are_asked_before_an_added_partition_starts_after_zero(cluster: NewCluster, fail: bool) -> None:
    brokers = cluster(10, 10, 10)
    brokers.depose_leader(T1, start=5)
    stream, start = brokers.planner(fail=fail), {T0: 3}
    end = stream.next_end_offsets(start)
    assert planned(stream.plan(start, end)) == [("t-0", 3, 10), ("t-1", 0, 10), ("t-2", 0, 10)]
    assert brokers.losses == []


def test_a_starting_offset_beyond_the_end(cluster: NewCluster) -> None:
    brokers = cluster(5)
    stream = brokers.planner(OffsetSpec({T0: 9}))
    with pytest.raises(DataLossError, match="the requested start lies beyond the end"):
        stream.next_end_offsets(stream.initial_offsets())
    stream = brokers.planner(OffsetSpec({T0: 9}), fail=False)
    end = stream.next_end_offsets(stream.initial_offsets())
    assert planned(stream.plan(stream.initial_offsets(), end)) == []


def test_an_added_partition_that_does_not_start_at_zero(cluster: NewCluster) -> None:
    brokers = cluster(5, 8)
    brokers.delete_records(T1, 3)
    with pytest.raises(DataLossError, match="t-1 starts from offset 3 instead of 0"):
        brokers.planner().next_end_offsets({T0: 5})
    stream = brokers.planner(fail=False)
    end = stream.next_end_offsets({T0: 5})
    assert planned(stream.plan({T0: 5}, end)) == [("t-1", 3, 8)]
    assert "instead of 0" in brokers.warnings[0]
    with pytest.raises(DataLossError, match="instead of 0"):
        brokers.planner().plan({T0: 5}, end)


def test_the_partitions_of_a_new_query_may_start_anywhere(cluster: NewCluster) -> None:
    brokers = cluster(5)
    brokers.delete_records(T0, 3)
    stream = brokers.planner()
    start = stream.initial_offsets()
    assert planned(stream.plan(start, stream.next_end_offsets(start))) == [("t-0", 3, 5)]


@pytest.mark.parametrize("high_watermark", [6, 7])
def test_beyond_the_last_stable_offset_the_high_watermark_decides(cluster: NewCluster, high_watermark: int) -> None:
    brokers = cluster(4)
    brokers.grow(U0, 4)
    for tp in (T0, U0):
        brokers.append(tp, high_watermark - 4, producer_id=7)
    end = brokers.planner(fail=False, read_committed=True).next_end_offsets({T0: 7, U0: 7})
    lost = high_watermark < 7
    assert end == dict.fromkeys((T0, U0), 4 if lost else 7)
    assert sum("changed from 7 to 4" in warning for warning in brokers.warnings) == 2 * lost


@pytest.mark.parametrize("replayed", [True, False])
def test_an_added_partition_without_remaining_records_has_an_empty_range(cluster: NewCluster, replayed: bool) -> None:
    """Retention has passed the end of the batch: its remaining range is empty, and not reported as another loss."""
    brokers = cluster(5, 5)
    stream, start = brokers.planner(fail=False), {T0: 2}
    end = {T0: 5, T1: 5} if replayed else stream.next_end_offsets(start)
    brokers.grow(T1, 9, start=7)
    assert planned(stream.plan(start, end)) == [("t-0", 2, 5)]
    assert len(brokers.warnings) == 1
    assert "t-1 starts from offset 7 instead of 0" in brokers.warnings[0]


def test_an_added_partition_that_was_deleted(cluster: NewCluster) -> None:
    brokers = cluster(5)
    with pytest.raises(DataLossError, match=r"t-1 cannot be found.*INITIAL_OFFSET_NOT_FOUND"):
        brokers.planner().plan({T0: 2}, {T0: 5, T1: 5})
    assert planned(brokers.planner(fail=False).plan({T0: 2}, {T0: 5, T1: 5})) == [("t-0", 2, 5)]


@pytest.mark.parametrize("fail", [True, False])
def test_an_added_partition_missing_in_stale_metadata_is_not_lost(cluster: NewCluster, fail: bool) -> None:
    """The batch is planned again after a restart: partitions that it lacks are never read."""
    brokers = cluster(9)
    brokers.hide(T1, 9)
    assert planned(brokers.planner(fail=fail).plan({T0: 2}, {T0: 5, T1: 5})) == [("t-0", 2, 5), ("t-1", 0, 5)]
    assert brokers.warnings == []


def test_a_recreated_topic_is_detected_by_its_id(cluster: NewCluster) -> None:
    brokers = cluster(5, 5)
    stream = brokers.planner()
    start = stream.next_end_offsets(stream.initial_offsets())
    old = brokers.topic_id("t")
    brokers.recreate("t", 9, 9)
    new, began = brokers.topic_id("t"), brokers.now
    with pytest.raises(DataLossError, match=rf"deleted and recreated, its id was {old} and is {new} now") as caught:
        stream.next_end_offsets(start)
    assert caught.value.topic == "t"
    assert brokers.now - began > CONFIRMED, "the metadata may be stale"


@pytest.mark.parametrize("ends", [[9, 3], [5, 5], [5], [0, 0]])
@pytest.mark.parametrize("limit", [None, 1, 4])
def test_a_recreated_topic_is_read_from_its_start_if_loss_is_allowed(
    cluster: NewCluster, ends: list[int], limit: int | None
) -> None:
    brokers = cluster(5, 5)
    stream = brokers.planner(fail=False, max_offsets=limit)
    start = stream.initial_offsets()
    while (end := stream.next_end_offsets(start)) != start:
        start = end
    brokers.recreate("t", *ends)
    read = []
    for _ in range(30):
        end = stream.next_end_offsets(start)
        read += planned(stream.plan(start, end))
        start = end
    for partition, size in enumerate(ends):
        offsets = [offset for name, a, b in read if name == f"t-{partition}" for offset in range(a, b)]
        assert offsets == list(range(size))
    assert sum("deleted and recreated" in warning for warning in brokers.warnings) == 1


@pytest.mark.parametrize("size", [3, 5, 200])
def test_a_restart_within_the_batch_reads_a_recreated_topic_from_its_start(cluster: NewCluster, size: int) -> None:
    """The restarted planner does not have the old id: it starts at the end in the checkpoint."""
    brokers = cluster(5, 5)
    stream = brokers.planner(fail=False)
    start = stream.next_end_offsets(stream.initial_offsets())
    brokers.recreate("t", size, size)
    end = stream.next_end_offsets(start)
    restarted = brokers.planner(fail=False)  # killed before the batch was committed
    assert planned(restarted.plan(start, end)) == planned(stream.plan(start, end)) == []
    read = planned(restarted.plan(end, restarted.next_end_offsets(end)))
    assert read == [("t-0", 0, size), ("t-1", 0, size)]


def test_a_recreated_topic_without_read_records_needs_no_empty_batch(cluster: NewCluster) -> None:
    brokers = cluster(0)
    stream = brokers.planner(fail=False)
    start = stream.next_end_offsets(stream.initial_offsets())
    brokers.recreate("t", 7)
    assert planned(stream.plan(start, stream.next_end_offsets(start))) == [("t-0", 0, 7)]


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("run", ["new", "resumed", "replanned"])
def test_stale_metadata_about_a_topic_is_no_recreation(cluster: NewCluster, run: str, fail: bool) -> None:
    """The topic was recreated before the query, and the first metadata has its old id and leader."""
    brokers = cluster(5)
    brokers.recreate_elsewhere(T0, 7)
    stream = brokers.planner(fail=fail)
    start = stream.initial_offsets() if run == "new" else {T0: 4}
    end = {T0: 7} if run == "replanned" else stream.next_end_offsets(start)
    plan = stream.plan(start, end)
    assert (planned(plan), plan.topic_ids) == ([("t-0", start[T0], 7)], {"t": brokers.topic_id("t")})
    brokers.sleep(2)
    assert stream.next_end_offsets(end) == end
    assert brokers.losses == []


@pytest.mark.parametrize("start", [OffsetSpec({T0: 5}), AT_LATEST])
def test_a_topic_that_is_recreated_before_the_first_batch_is_data_loss(
    cluster: NewCluster, start: StartingOffsetSpec
) -> None:
    """Otherwise the query would skip the first records of the new topic."""
    brokers = cluster(10)
    stream = brokers.planner(start)
    first = stream.initial_offsets()
    if start == AT_LATEST:
        assert stream.next_end_offsets(first) == first, "the empty first batch"
    brokers.recreate("t", 30)
    with pytest.raises(DataLossError, match="deleted and recreated"):
        stream.next_end_offsets(first)


def test_topic_ids_that_other_metadata_contradicts_again_and_again_are_an_error(
    cluster: NewCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = cluster(10)
    brokers.grow(U0, 10)
    monkeypatch.setattr(KafkaOffsetReader, "known_topic_ids", lambda *_: {"u": brokers.topic_id("u"), "t": uuid4()})
    for call in (MicroBatchPlanner.initial_offsets, partial(MicroBatchPlanner.next_end_offsets, start={T0: 4})):
        began = brokers.now
        with pytest.raises(BrokerTimeoutError, match="t-0"):
            call(brokers.planner())
        assert brokers.now - began == pytest.approx(30, abs=1.5)


def test_brokers_that_contradict_each_other_are_asked_with_pauses(
    cluster: NewCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, the principal may not list a topic for a minute."""
    monkeypatch.setattr(KafkaOffsetReader, "confirm_missing", lambda *_: set())
    brokers = cluster(10)
    began = brokers.now
    with pytest.raises(BrokerTimeoutError, match="some brokers do not know all of t-0, u-0"):
        brokers.planner().next_end_offsets({T0: 4, U0: 4})
    assert brokers.now - began == pytest.approx(30, abs=1)


def test_ids_are_unknown_after_a_restart(cluster: NewCluster) -> None:
    brokers = cluster(9)
    brokers.recreate("t", 9)
    assert brokers.planner().next_end_offsets({T0: 5}) == {T0: 9}


def test_tasks_get_the_ids_as_of_planning(cluster: NewCluster) -> None:
    brokers = cluster(5)
    stream = brokers.planner()
    start = stream.initial_offsets()
    end = stream.next_end_offsets(start)
    before = brokers.topic_id("t")
    brokers.recreate("t", 5)
    assert stream.plan(start, end).topic_ids == {"t": before}


def test_an_end_before_the_start_in_a_replayed_batch(cluster: NewCluster) -> None:
    brokers = cluster(9)
    with pytest.raises(DataLossError, match="changed from 7 to 3"):
        brokers.planner().plan({T0: 7}, {T0: 3})
    assert planned(brokers.planner(fail=False).plan({T0: 7}, {T0: 3})) == []


MINIMUM = {"fail": False, "min_offsets": 50, "max_delay": 60.0}


@pytest.mark.parametrize("sizes", [[200], [5, 60, 200], [100, 200], [0, 200], [99, 101, 300]])
def test_a_minimum_does_not_lose_records_of_a_recreated_topic(cluster: NewCluster, sizes: list[int]) -> None:
    brokers = cluster(100)
    stream = brokers.planner(**MINIMUM)  # type: ignore[arg-type]
    start = stream.next_end_offsets(stream.initial_offsets())
    assert start == {T0: 100}
    brokers.recreate("t", 0)
    read: list[int] = []
    for size in [*sizes, sizes[-1]]:
        brokers.grow(T0, size)
        for _ in range(3):
            brokers.sleep(1)
            end = stream.next_end_offsets(start)
            read += [offset for _, a, b in planned(stream.plan(start, end)) for offset in range(a, b)]
            start = end
        brokers.sleep(60 * (size == sizes[-1]))
    assert read == list(range(sizes[-1]))


@pytest.mark.parametrize("remaining", [5, None])
def test_a_minimum_does_not_delay_the_report_of_a_loss(cluster: NewCluster, remaining: int | None) -> None:
    """Without ids only offsets show the loss; delayed by the minimum, they would be valid in the new log."""
    brokers = cluster(100, topic_ids=False)
    brokers.grow(U0, 100)
    stream = brokers.planner(**MINIMUM)  # type: ignore[arg-type]
    start = stream.next_end_offsets(stream.initial_offsets())
    if remaining is None:
        brokers.event("delete_topic", topic="t")
    else:
        brokers.truncate(T0, remaining)
    brokers.grow(U0, 110)
    end = stream.next_end_offsets(start)
    assert planned(stream.plan(start, end)) == [("u-0", 100, 110)], "ten are too few, but are not delayed"
    brokers.grow(T0, 120)
    brokers.sleep(1)
    assert planned(stream.plan(end, stream.next_end_offsets(end))) == [("t-0", remaining or 0, 120)]


def test_a_limit_does_not_count_deleted_records(cluster: NewCluster) -> None:
    """Otherwise batches without records would pass them, limit by limit."""
    brokers = cluster(1000, 10)
    brokers.delete_records(T0, 900)
    stream, start = brokers.planner(fail=False, max_offsets=55), {T0: 0, T1: 0}
    end = stream.next_end_offsets(start)
    assert end == {T0: 950, T1: 5}
    assert planned(stream.plan(start, end)) == [("t-0", 900, 950), ("t-1", 0, 5)]
    assert [warning for warning in brokers.warnings if "[0, 900) of t-0 were removed by retention" in warning]
    last = stream.next_end_offsets(end)
    assert planned(stream.plan(end, last)) == [("t-0", 950, 1000), ("t-1", 5, 10)]
    assert len(brokers.warnings) == 1, "the loss is reported once"


@pytest.mark.parametrize("limit", [None, 50])
def test_an_unlimited_batch_counts_expired_records_too(cluster: NewCluster, limit: int | None) -> None:
    """Its tasks would skip them, but the monitor reads only what planners count."""
    brokers, lost = cluster(1000, 700, 100), {T0: 900, T1: 600, U0: 20}
    brokers.grow(U0, 50)
    for tp, offset in lost.items():
        brokers.delete_records(tp, offset)
    stream, start = brokers.planner(fail=False, max_offsets=limit), dict.fromkeys((T0, T1, T2, U0), 0)
    end = stream.next_end_offsets(start, unlimited=limit is not None)
    assert planned(stream.plan(start, end)) == [
        ("t-0", 900, 1000),
        ("t-1", 600, 700),
        ("t-2", 0, 100),
        ("u-0", 20, 50),
    ]
    assert brokers.losses == [(DataLossCause.AGED_OUT, {tp: offset}) for tp, offset in lost.items()]


def test_a_loss_is_counted_with_the_batch_that_skips_it(cluster: NewCluster) -> None:
    """It was counted at each request for more records, as often as retention had moved the log start."""
    brokers = cluster(100)
    stream = brokers.planner(fail=False, min_offsets=1000)
    start = stream.next_end_offsets({T0: 0})
    assert start == {T0: 100}
    for log_start in (3, 5):
        brokers.grow(T1, 8, start=log_start)
        brokers.sleep(10)
        assert stream.next_end_offsets(start) == start
        assert brokers.losses == []
    brokers.grow(T1, 1100, start=7)
    brokers.sleep(10)
    end = stream.next_end_offsets(start)
    assert planned(stream.plan(start, end)) == [("t-1", 7, 1100)]
    assert brokers.losses == [(DataLossCause.AGED_OUT, {T1: 7})]


def test_each_loss_has_its_cause_and_the_offsets_that_are_known(cluster: NewCluster) -> None:
    brokers = cluster(100, 100, 100)
    for tp, end in ((U0, 8), (U1, 8), (V0, 8), (V1, 8), (W0, 100), (X0, 5)):
        brokers.grow(tp, end)
    brokers.delete_records(V0, 3)
    brokers.delete_records(V1, 4)
    stream = brokers.planner(fail=False)
    start = stream.next_end_offsets(dict.fromkeys((T0, T1, T2, U0, U1, W0, X0), 0))
    assert brokers.losses == [(DataLossCause.AGED_OUT, {V0: 3}), (DataLossCause.AGED_OUT, {V1: 4})]
    brokers.losses.clear()
    brokers.recreate("u", 4, 4)
    brokers.recreate("x", 4)
    brokers.event("delete_topic", topic="w")
    brokers.truncate(T0, 40)
    brokers.truncate(T2, 50)
    brokers.grow(T1, 150, start=120)
    stream.next_end_offsets(start)
    assert brokers.losses == [
        (DataLossCause.RECREATED, {U0: 0, U1: 0}),
        (DataLossCause.RECREATED, {X0: 0}),
        (DataLossCause.DELETED, {W0: 0}),
        (DataLossCause.BEYOND_END, {T0: 0}),
        (DataLossCause.BEYOND_END, {T2: 0}),
        (DataLossCause.AGED_OUT, {T1: 20}),
    ]


def test_a_new_partition_may_lose_records_between_two_requests(cluster: NewCluster) -> None:
    brokers = cluster(10, 100, 50)
    stream, start = brokers.planner(fail=False, max_offsets=1000), {T0: 0}
    for log_start in (7, 14, 21, 28):
        brokers.before("ListOffsets", partial(brokers.delete_records, T1, log_start))
    end = stream.next_end_offsets(start)
    assert end == {T0: 10, T1: 100, T2: 50}
    for tp, log_start in ((T1, 35), (T2, 20)):
        brokers.delete_records(tp, log_start)
    assert planned(stream.plan(start, end)) == [("t-0", 0, 10), ("t-1", 35, 100), ("t-2", 20, 50)]
    assert brokers.losses == [(DataLossCause.AGED_OUT, lost) for lost in ({T1: 21}, {T1: 7}, {T1: 35}, {T2: 20})]


def test_a_loss_in_a_replayed_batch_is_left_to_its_tasks(cluster: NewCluster) -> None:
    brokers = cluster(1000)
    brokers.delete_records(T0, 900)
    end = brokers.planner(fail=False, max_offsets=50).next_end_offsets({T0: 0})
    assert planned(brokers.planner(fail=False, max_offsets=50).plan({T0: 0}, end)) == [("t-0", 0, 950)]


def test_with_fail_on_data_loss_the_task_reports_deleted_records(cluster: NewCluster) -> None:
    brokers = cluster(1000)
    brokers.delete_records(T0, 900)
    stream = brokers.planner(max_offsets=50)
    end = stream.next_end_offsets({T0: 0})
    assert planned(stream.plan({T0: 0}, end)) == [("t-0", 0, 50)]


def test_all_unread_records_may_be_deleted(cluster: NewCluster) -> None:
    brokers = cluster(1000)
    stream, start = brokers.planner(fail=False, max_offsets=50), {T0: 10}
    stream.fix_end_offsets()  # Trigger.AvailableNow
    brokers.grow(T0, 1300, start=1200)
    end = stream.next_end_offsets(start)
    assert end == {T0: 1000}
    assert planned(stream.plan(start, end)) == []
    assert "[10, 1000) of t-0" in brokers.warnings[0]


def test_a_minimum_does_not_count_deleted_records(cluster: NewCluster) -> None:
    brokers = cluster(100)
    stream = brokers.planner(**MINIMUM)  # type: ignore[arg-type]
    start = stream.next_end_offsets(stream.initial_offsets())
    brokers.grow(T0, 300, start=290)
    assert stream.next_end_offsets(start) == start
    assert brokers.warnings == [], "they are reported with the batch that skips them"
    brokers.sleep(61)
    end = stream.next_end_offsets(start)
    assert planned(stream.plan(start, end)) == [("t-0", 290, 300)]
    assert len(brokers.warnings) == 1


def test_a_loss_that_occurs_again_is_counted_again(cluster: NewCluster) -> None:
    brokers = cluster(10, topic_ids=False)
    brokers.grow(U0, 5)
    stream = brokers.planner(fail=False)
    for _ in range(2):
        brokers.truncate(T0, 5)
        end = stream.next_end_offsets({T0: 10, U0: 5})
        assert end == {T0: 5, U0: 5}
        assert planned(stream.plan({T0: 10, U0: 5}, end)) == []
        brokers.grow(T0, 10)
        assert stream.next_end_offsets(end) == {T0: 10, U0: 5}
    for _ in range(2):
        brokers.event("delete_topic", topic="u")
        end = stream.next_end_offsets({T0: 10, U0: 5})
        assert planned(stream.plan({T0: 10, U0: 5}, end)) == []
        brokers.grow(U0, 5)
        assert stream.next_end_offsets(end) == {T0: 10, U0: 5}
    assert brokers.losses == [(DataLossCause.BEYOND_END, {T0: 0})] * 2 + [(DataLossCause.DELETED, {U0: 0})] * 2
