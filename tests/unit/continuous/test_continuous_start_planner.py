"""Where the runs of a continuous query start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.continuous.continuous_start_planner import ContinuousStartPlanner
from pyspark_kafka_direct.errors import DataLossError, TopicNotFoundError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.offset_specs import AT_LATEST, OffsetSpec
from pyspark_kafka_direct.options.positions import BeforeNow, LastOffsets
from pyspark_kafka_direct.options.subscription import SubscribeStrategy
from pyspark_kafka_direct.planning.loss_errors import DataLossCause

if TYPE_CHECKING:
    from tests.unit.planning.planner_cluster import NewCluster, PlannerCluster

    from pyspark_kafka_direct.options.offset_specs import StartingOffsetSpec

A0, A1, B0, C0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("c", 0)


def planner(
    brokers: PlannerCluster,
    start: StartingOffsetSpec | None = None,
    *,
    strict: bool = True,
    read_committed: bool = False,
) -> ContinuousStartPlanner:
    settings = brokers.settings(start, fail_on_data_loss=strict, read_committed=read_committed)
    return ContinuousStartPlanner(settings, brokers.reader(settings))


def test_a_new_query(cluster: NewCluster) -> None:
    brokers = cluster(9, 4, topic="a")
    brokers.delete_records(A0, 2)
    assert planner(brokers).initial_offsets() == {A0: 2, A1: 0}
    assert planner(brokers, AT_LATEST).initial_offsets() == {A0: 9, A1: 4}


def test_a_new_query_starts_at_times_before_now_or_at_the_last_offsets(cluster: NewCluster) -> None:
    brokers = cluster(9, 4, topic="a")
    start = OffsetSpec({A0: BeforeNow(2**60)}, others=LastOffsets(3))
    assert planner(brokers, start).initial_offsets() == {A0: 0, A1: 1}
    assert planner(brokers, OffsetSpec(others=BeforeNow(1000))).initial_offsets() == {A0: 9, A1: 4}


def test_missing_metadata_of_a_new_topic_is_retried(cluster: NewCluster) -> None:
    brokers = cluster()
    brokers.selection = SubscribeStrategy(("a",))
    began = brokers.now
    with pytest.raises(TopicNotFoundError):
        planner(brokers).initial_offsets()
    assert 2 < brokers.now - began < 3, "three responses"
    brokers.after(1.5, lambda: brokers.grow(A0, 3))
    assert planner(brokers).initial_offsets() == {A0: 0}


def test_a_query_resumes_at_the_end_of_the_last_epoch(cluster: NewCluster) -> None:
    brokers = cluster(9, 4, topic="a")
    began = brokers.now
    assert planner(brokers).resume_offsets({A0: 5, A1: 4}) == {A0: 5, A1: 4}
    assert brokers.now - began < 1
    assert planner(brokers).resume_offsets({A0: 5}) == {A0: 5, A1: 0}, "new partitions start at their log start"


@pytest.mark.parametrize(
    ("loss", "message", "lenient"),
    [
        ("missing", "do not exist any more", {A0: 5}),
        ("offset changed", "offset was changed from 5 to 3", {A0: 3, A1: 4}),
        ("added late", "the added partition b-0 starts from offset 2", {A0: 5, A1: 4, B0: 2}),
    ],
)
def test_data_loss_fails_or_warns(
    cluster: NewCluster, loss: str, message: str, lenient: dict[TopicPartition, int]
) -> None:
    brokers = cluster(9, topic="a")
    if loss != "missing":
        brokers.grow(A1, 4)
    if loss == "offset changed":
        brokers.truncate(A0, 3)
    if loss == "added late":
        brokers.grow(B0, 4, start=2)
    end_offsets = {A0: 5, A1: 4}
    with pytest.raises(DataLossError, match=message):
        planner(brokers).resume_offsets(end_offsets)
    brokers.warnings.clear()
    assert planner(brokers, strict=False).resume_offsets(end_offsets) == lenient
    assert [message in warning for warning in brokers.warnings] == [True]


def test_each_partition_that_was_added_late_is_reported(cluster: NewCluster) -> None:
    brokers = cluster(9, topic="a")
    for tp, start in ((B0, 2), (C0, 3)):
        brokers.grow(tp, 4, start=start)
    assert planner(brokers, strict=False).resume_offsets({A0: 5}) == {A0: 5, B0: 2, C0: 3}
    assert ["b-0 starts from" in text or "c-0 starts from" in text for text in brokers.warnings] == [True, True]
    assert brokers.losses == [(DataLossCause.AGED_OUT, {B0: 2}), (DataLossCause.AGED_OUT, {C0: 3})]


def test_a_topic_recreated_while_the_query_ran_is_data_loss(cluster: NewCluster) -> None:
    brokers = cluster(9, topic="a")
    lenient, strict = planner(brokers, strict=False), planner(brokers)
    for each in (lenient, strict):
        assert each.resume_offsets({A0: 5}) == {A0: 5}
        each.retain_topic_ids(each.current_topic_ids)
    brokers.recreate("a", 9)
    assert lenient.resume_offsets({A0: 7}) == {A0: 0}
    lenient.retain_topic_ids(lenient.current_topic_ids)
    assert lenient.resume_offsets({A0: 0}) == {A0: 0}, "reported once"
    assert len(brokers.warnings) == 1
    with pytest.raises(DataLossError, match="was deleted and recreated"):
        strict.resume_offsets({A0: 5})


def started(brokers: PlannerCluster) -> ContinuousStartPlanner:
    """Return the tolerant planner of a query that has started."""
    found = planner(brokers, strict=False)
    found.initial_offsets()
    found.retain_topic_ids(found.current_topic_ids)
    return found


def test_a_recreated_topic_is_reported_until_its_start_was_committed(cluster: NewCluster) -> None:
    """Otherwise, after a failure in between, the query would skip the first records of the new topic."""
    brokers = cluster(3, topic="a")
    lenient = started(brokers)
    brokers.recreate("a", 9, 9)
    for _ in range(2):
        assert lenient.resume_offsets({A0: 3}) == {A0: 0, A1: 0}
    assert lenient.current_topic_ids == dict.fromkeys((A0, A1), brokers.topic_id("a"))


def test_a_recreated_topic_that_tasks_have_detected_is_not_read_again(cluster: NewCluster) -> None:
    """Per partition: one task may have detected it, and the other one not yet."""
    brokers = cluster(3, 3, topic="a")
    lenient = started(brokers)
    brokers.recreate("a", 9, 9)
    lenient.retain_topic_ids({A0: brokers.topic_id("a")})
    assert lenient.resume_offsets({A0: 8, A1: 3}) == {A0: 8, A1: 0}
    lenient.retain_topic_ids(lenient.current_topic_ids)
    assert lenient.resume_offsets({A0: 8, A1: 2}) == {A0: 8, A1: 2}


def test_offsets_of_transactions_belong_to_the_topic_that_they_were_committed_for(cluster: NewCluster) -> None:
    """The topic may be recreated again between the metadata request for the transactions and that of the planner."""
    brokers = cluster(3, topic="a")
    brokers.grow(B0, 3)
    lenient = started(brokers)
    brokers.recreate("a", 9)
    lenient.replace_topic_ids({A0: brokers.topic_id("a")})
    assert lenient.resume_offsets({A0: 8, B0: 2}) == {A0: 8, B0: 2}
    for topic in ("a", "b"):
        brokers.recreate(topic, 9)
    assert lenient.resume_offsets({A0: 8, B0: 2}) == {A0: 0, B0: 0}
    lenient.replace_topic_ids({A0: None})
    assert lenient.resume_offsets({A0: 8, B0: 2}) == {A0: 8, B0: 0}


def test_one_broker_with_the_id_of_a_deleted_topic_is_no_recreated_topic(cluster: NewCluster) -> None:
    """Tasks have read the recreated topic already; only several brokers could confirm another id."""
    brokers = cluster(3, topic="a")
    brokers.grow(B0, 3)
    lenient = started(brokers)
    brokers.recreate_elsewhere(B0, 9)
    lenient.replace_topic_ids({B0: brokers.topic_id("b")})
    assert lenient.resume_offsets({A0: 3, B0: 8}) == {A0: 3, B0: 8}
    assert brokers.warnings == []


def test_a_loss_that_a_retry_does_not_confirm_is_ignored(cluster: NewCluster) -> None:
    brokers = cluster(3, topic="a")
    brokers.before("ListOffsets", lambda: None, lambda: None, lambda: brokers.grow(A0, 9))
    assert planner(brokers).resume_offsets({A0: 5}) == {A0: 5}


def test_an_offset_beyond_the_last_stable_offset_is_no_loss(cluster: NewCluster) -> None:
    brokers = cluster(3, topic="a")
    brokers.append(A0, 6, producer_id=7)
    assert planner(brokers, read_committed=True).resume_offsets({A0: 5}) == {A0: 5}


def test_an_outdated_topic_id_of_a_new_query_is_no_recreated_topic(cluster: NewCluster) -> None:
    """The first metadata comes from a broker that lags; requests for offsets refresh it."""
    brokers = cluster(9, topic="a")
    brokers.recreate_elsewhere(A0, 9)
    starts = planner(brokers)
    assert starts.initial_offsets() == {A0: 0}
    assert starts.current_topic_ids == {A0: brokers.topic_id("a")}


def test_a_log_that_is_truncated_twice_is_counted_twice(cluster: NewCluster) -> None:
    brokers = cluster(3, topic="a")
    starts = planner(brokers, strict=False)
    for _ in range(2):
        for _ in range(2):  # the first run fails before it commits
            assert starts.resume_offsets({A0: 5}) == {A0: 3}
        starts.retain_topic_ids({})
    assert brokers.losses == [(DataLossCause.BEYOND_END, {A0: 0})] * 2
