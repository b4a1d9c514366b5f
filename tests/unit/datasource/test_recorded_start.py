"""The first batch of a streaming query keeps its start, also with other options after a restart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.datasource.stream_runs import LEGACY, StreamRun, at

from pyspark_kafka_direct.datasource.micro_batch_stream import KafkaMicroBatchStream
from pyspark_kafka_direct.datasource.micro_batch_stream_base import to_spark_offset
from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError
from pyspark_kafka_direct.offsets import TopicPartition, record_first_start, recorded_first_start

if TYPE_CHECKING:
    from tests.unit.planning.planner_cluster import NewCluster

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

OTHER_STARTS = [
    {"startingoffsets": '{"t":{"0":50}}'},
    {"startingoffsets": '{"t":{"0":100}}'},
    {"startingoffsets": '{"t":{"0":-1}}'},
    {"startingoffsets": '{"t":{"0":50,"7":0}}'},
    {"startingoffsets": "latest"},
    {"startingoffsets": "committed"},
    {"startingtimestamp": "60"},
    {"startingtimestamp": "5000"},
    {"startingoffsetsbytimestamp": '{"t":{"0":60}}'},
]


@LEGACY
@pytest.mark.parametrize("other_start", OTHER_STARTS)
def test_an_unfinished_first_batch_keeps_its_start_under_other_options(
    cluster: NewCluster, legacy: bool, other_start: dict[str, str]
) -> None:
    brokers = cluster(100)
    brokers.commit({T0: 70})
    end = StreamRun(brokers, legacy=legacy).first_end()
    brokers.grow(T0, 130)
    restarted = StreamRun(brokers, legacy=legacy, **other_start)
    assert restarted.replay_first_batch(end) == [("t-0", 0, 100)]
    following = restarted.latest(end)
    assert following == at(130), "the start is in the first batch's end only"
    assert restarted.ranges(end, following) == [("t-0", 100, 130)]


@LEGACY
def test_a_first_batch_from_an_offset_keeps_it(cluster: NewCluster, legacy: bool) -> None:
    brokers = cluster(100)
    end = StreamRun(brokers, '{"t":{"0":50}}', legacy=legacy).first_end()
    brokers.grow(T0, 130)
    for other_start in (*OTHER_STARTS, {"startingoffsets": "earliest"}):
        restarted = StreamRun(brokers, legacy=legacy, **other_start)
        assert restarted.replay_first_batch(end) == [("t-0", 50, 100)], other_start


@LEGACY
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_an_empty_first_batch_keeps_its_start(cluster: NewCluster, legacy: bool, start: str) -> None:
    brokers = cluster(0)
    end = StreamRun(brokers, start, legacy=legacy).first_end()
    assert end == {**at(0), "(start)": {}}
    brokers.grow(T0, 100)
    for other_start in OTHER_STARTS:
        restarted = StreamRun(brokers, legacy=legacy, **other_start)
        assert restarted.replay_first_batch(end) == []
        assert restarted.ranges(end, restarted.latest(end)) == [("t-0", 0, 100)], other_start


@LEGACY
def test_an_end_without_a_start_keeps_the_rule_of_other_sources(cluster: NewCluster, legacy: bool) -> None:
    brokers, end = cluster(130), at(100)
    assert StreamRun(brokers, legacy=legacy).replay_first_batch(end) == [("t-0", 0, 100)]
    by_time = StreamRun(brokers, legacy=legacy, startingtimestamp="60")
    assert by_time.replay_first_batch(end) == [("t-0", 60, 100)]
    with pytest.raises(OptionError, match="Its start is not known"):
        StreamRun(brokers, "latest", legacy=legacy).replay_first_batch(end)


@LEGACY
def test_an_idle_query_after_its_first_batch_returns_the_end_unchanged(cluster: NewCluster, legacy: bool) -> None:
    """Spark compares offsets as strings: any difference would start a batch. A stateful query may run one without."""
    brokers = cluster(100)
    run = StreamRun(brokers, legacy=legacy)
    end = run.first_end()
    assert run.ranges(run.initial(), end) == [("t-0", 0, 100)]
    assert json.dumps(run.latest(end)) == json.dumps(end)
    restarted = StreamRun(brokers, '{"t":{"0":50}}', legacy=legacy)
    assert restarted.ranges(end, end) == [], "a later batch without records, planned again"
    assert json.dumps(restarted.latest(end)) == json.dumps(end)


def test_the_recorded_start_is_split_and_limited_like_any_other(cluster: NewCluster) -> None:
    brokers = cluster(100)
    end = StreamRun(brokers, maxoffsetspertrigger="60").first_end()
    assert end["t"] == {"0": 60}
    changed = StreamRun(brokers, "latest", maxoffsetspertrigger="5", minpartitions="2")
    assert changed.replay_first_batch(end) == [("t-0", 0, 30), ("t-0", 30, 60)]


def test_available_now_reads_the_first_batch_of_an_earlier_run(cluster: NewCluster) -> None:
    brokers = cluster(100)
    end = StreamRun(brokers).first_end()
    brokers.grow(T0, 130)
    restarted = StreamRun(brokers, '{"t":{"0":120}}')
    assert isinstance(restarted.reader, KafkaMicroBatchStream)
    restarted.reader.prepareForTriggerAvailableNow()
    assert restarted.replay_first_batch(end) == [("t-0", 0, 100)]
    assert restarted.ranges(end, restarted.latest(end)) == [("t-0", 100, 130)]


def test_partitions_and_topics_that_changed_since(cluster: NewCluster, caplog: pytest.LogCaptureFixture) -> None:
    brokers = cluster(100)
    brokers.grow(U0, 10)
    both: dict[str, Any] = {"subscribe": "t,u"}
    end = StreamRun(brokers, **both).first_end()
    brokers.grow(T1, 5)
    restarted = StreamRun(brokers, "latest", **both)
    assert restarted.replay_first_batch(end) == [("t-0", 0, 100), ("u-0", 0, 10)], "without the added partition"
    assert restarted.ranges(end, restarted.latest(end)) == [("t-1", 0, 5)]
    assert "data loss" not in caplog.text


@pytest.mark.parametrize(
    ("start", "first_offset"),
    [("earliest", 8), ('{"t":"earliest"}', 8), ('{"t":{"0":-2,"1":-2}}', 8), ('{"t":{"0":8,"1":8}}', 3), ("latest", 3)],
)
def test_retention_is_no_loss_while_the_query_starts_at_earliest(
    cluster: NewCluster, caplog: pytest.LogCaptureFixture, start: str, first_offset: int
) -> None:
    """With another start the tasks find the loss."""
    brokers = cluster(100, 100)
    partitions = (T0, TopicPartition("t", 1))
    for tp in partitions:
        brokers.delete_records(tp, 3)
    end = StreamRun(brokers).first_end()
    for tp in partitions:
        brokers.delete_records(tp, 8)
    read = StreamRun(brokers, start).replay_first_batch(end)
    assert read == [("t-0", first_offset, 100), ("t-1", first_offset, 100)]
    for tp in partitions:
        skipped = f"offsets [3, 8) of {tp} were removed by retention since the first batch was planned"
        assert (skipped in caplog.text) == (first_offset == 8)


def test_a_damaged_start_is_rejected(cluster: NewCluster) -> None:
    with pytest.raises(InvalidOffsetsError, match="offsets must look like"):
        StreamRun(cluster(100)).replay_first_batch({**at(100), "(start){": {}})


def test_the_start_of_many_partitions_fits_into_the_keys_of_sparks_json_reader() -> None:
    largest = (1 << 31) - 1
    start = {TopicPartition(f"{number:t>249}", largest): 1 << 61 for number in range(3000)}
    end: dict[str, Any] = record_first_start(dict.fromkeys(start, 1 << 62), start)
    assert max(map(len, end)) < 50_000
    assert recorded_first_start(json.loads(json.dumps(end))) == start
    assert {name: end[name] for name in to_spark_offset(start)} == to_spark_offset(dict.fromkeys(start, 1 << 62))


@pytest.mark.parametrize("other_start", ["earliest", '{"t":{"0":3}}', "latest"])
def test_a_first_batch_of_a_topic_that_was_created_after_the_start_was_resolved(
    cluster: NewCluster, other_start: str
) -> None:
    """A pattern may match no topic at first."""
    brokers = cluster()
    first = StreamRun(brokers, subscribepattern="t.*")
    start = first.initial()
    assert start == {}
    brokers.grow(T0, 5)
    end = first.latest(start)
    assert first.ranges(start, end) == [("t-0", 0, 5)]
    assert StreamRun(brokers, other_start).replay_first_batch(end) == [("t-0", 0, 5)]
