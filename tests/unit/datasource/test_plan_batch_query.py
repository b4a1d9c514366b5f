"""Batches planned on a simulated cluster."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from pyspark_kafka_direct.consumer.batch_query import plan_batch_query
from pyspark_kafka_direct.datasource import kafka_batch_reader
from pyspark_kafka_direct.datasource.kafka_batch_reader import FilterPushdownBatchReader, KafkaBatchReader
from pyspark_kafka_direct.datasource.read_schema import kafka_schema, read_schema
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.options.read_options import parse_batch_options
from pyspark_kafka_direct.spark.listener_files import SHARED_FOLDER_NAME
from pyspark_kafka_direct.spark.loss_counts import load_totals

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.planning.planner_cluster import NewCluster, PlannerCluster

    from pyspark_kafka_direct.consumer.range_task import RangeTask
    from pyspark_kafka_direct.planning.batch_planner import BatchPlan

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def plan(brokers: PlannerCluster, **options: str) -> BatchPlan:
    parsed = parse_batch_options({"kafka.bootstrap.servers": "broker-1:9092", **options})
    return plan_batch_query(parsed, pool=brokers.pool).plan


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Create a batch reader of a class."""

    def create(
        brokers: PlannerCluster, kind: type[KafkaBatchReader] = KafkaBatchReader, **options: str
    ) -> KafkaBatchReader:
        pool = brokers.pool
        monkeypatch.setattr(kafka_batch_reader, "plan_batch_query", partial(plan_batch_query, pool=pool))
        parsed = parse_batch_options({"kafka.bootstrap.servers": "broker-1:9092", **options})
        return kind(parsed, read_schema(kafka_schema(False)))

    return create


def tasks(reader: KafkaBatchReader) -> list[RangeTask]:
    return [cast("Any", partition).task for partition in reader.partitions()]


def ranges_option(*offsets: tuple[int, int], topic_id: UUID | None = None) -> str:
    stored = {} if topic_id is None else {"topicId": str(topic_id)}
    return json.dumps([{"topic": "t", "partition": 0, "fromOffset": a, "untilOffset": b, **stored} for a, b in offsets])


def test_a_batch_ends_at_the_end_of_its_isolation_level(cluster: NewCluster) -> None:
    brokers = cluster(40)
    brokers.delete_records(T0, 5)
    brokers.append(T0, 2, producer_id=7)
    level = "kafka.isolation.level"
    assert plan(brokers, subscribe="t", **{level: "read_committed"}).ranges == (OffsetRange("t", 0, 5, 40),)
    assert plan(brokers, subscribe="t", **{level: "read_uncommitted"}).ranges == (OffsetRange("t", 0, 5, 42),)


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
@pytest.mark.parametrize("selection", ["subscribe", "offsetranges"])
def test_a_deposed_leader_does_not_decide_where_the_log_ends(
    cluster: NewCluster, selection: str, fail_on_data_loss: str
) -> None:
    brokers = cluster(42)
    brokers.depose_leader(T0, end=30)
    selected = (
        {"offsetranges": ranges_option((35, 42))}
        if selection == "offsetranges"
        else {"subscribe": "t", "startingoffsets": '{"t":{"0":35}}'}
    )
    planned = plan(brokers, failondataloss=fail_on_data_loss, **selected)
    assert (planned.ranges, planned.warnings) == ((OffsetRange("t", 0, 35, 42),), ())


def test_a_deposed_leader_does_not_decide_where_the_log_begins(cluster: NewCluster) -> None:
    """Its retention deleted records that the current leader has: a batch from earliest was read without them."""
    brokers = cluster(42)
    brokers.delete_records(T0, 3)
    brokers.depose_leader(T0, start=5)
    planned = plan(brokers, subscribe="t")
    assert (planned.ranges, planned.warnings) == ((OffsetRange("t", 0, 3, 42),), ())


@pytest.mark.parametrize("deposed", ["t", "u"])
@pytest.mark.parametrize("selection", ["subscribe", "offsetranges"])
def test_a_deposed_leader_of_any_topic_does_not_decide_where_its_log_begins(
    cluster: NewCluster, selection: str, deposed: str
) -> None:
    brokers = cluster(10)
    brokers.expire_and_depose("tu", deposed)
    ranges = [{"topic": topic, "partition": 0, "fromOffset": 4, "untilOffset": 10} for topic in "tu"]
    selected = {"subscribe": "t,u"} if selection == "subscribe" else {selection: json.dumps(ranges)}
    planned = plan(brokers, **selected)
    assert (planned.ranges, planned.warnings) == (tuple(OffsetRange(topic, 0, 4, 10) for topic in "tu"), ())


def test_each_task_has_the_leader_and_the_topic_id_of_its_partition(cluster: NewCluster) -> None:
    brokers = cluster(10, 10)
    brokers.grow(U0, 5)
    brokers.elect(U0, 2)
    options = {"kafka.bootstrap.servers": "broker-1:9092", "subscribe": "t,u"}
    planned = plan_batch_query(parse_batch_options(options), pool=brokers.pool)
    expected = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 10), OffsetRange("u", 0, 0, 5)]
    found = planned.tasks()
    assert [task.offsets for task in found] == expected
    assert [task.topic_id for task in found] == [brokers.topic_id(name) for name in "ttu"]
    assert [task.leader and task.leader.node.id for task in found] == [1, 1, 2]
    assert all(task.from_earliest for task in found)


def test_a_task_has_the_topic_id_of_its_range(cluster: NewCluster, reader: Any) -> None:
    """If the topic was recreated, the task finds that its records are lost."""
    brokers = cluster(42)
    now, stored = brokers.topic_id("t"), UUID(int=99)
    for given, expected in ((None, now), (now, now), (stored, stored)):
        (task,) = tasks(reader(brokers, offsetranges=ranges_option((5, 10), topic_id=given)))
        assert (task.offsets, task.topic_id) == (OffsetRange("t", 0, 5, 10), expected)


@pytest.mark.parametrize("selection", ["subscribe", "offsetranges"])
def test_tasks_have_the_topic_id_of_the_metadata_that_offsets_came_with(
    cluster: NewCluster, reader: Any, selection: str
) -> None:
    """The first metadata has the id of a topic that was deleted and recreated before the query.

    With that id, the tasks reported that the records of the new topic are lost.
    """
    brokers = cluster(50)
    brokers.recreate_elsewhere(T0, 42)
    selected = {"subscribe": "t"} if selection == "subscribe" else {selection: ranges_option((0, 42))}
    (task,) = tasks(reader(brokers, **selected))
    assert (task.offsets, task.topic_id) == (OffsetRange("t", 0, 0, 42), brokers.topic_id("t"))


def test_records_that_a_batch_skips_are_logged_and_counted(
    cluster: NewCluster,
    reader: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    folder = tmp_path / SHARED_FOLDER_NAME
    folder.mkdir()
    brokers = cluster(42, 42, 42)
    for tp, start in ((T0, 5), (T1, 7)):
        brokers.delete_records(tp, start)
    options = {"startingoffsets": '{"t":{"0":2,"1":2,"2":50}}', "failondataloss": "false"}
    planned = tasks(reader(brokers, subscribe="t", **options))
    assert [task.offsets for task in planned] == [OffsetRange("t", 0, 5, 42), OffsetRange("t", 1, 7, 42)]
    for message, offsets in zip(caplog.messages, ("[2, 5)", "[2, 7)", "[42, 50)"), strict=True):
        assert offsets in message
    losses = [(loss.partition, loss.cause, loss.offsets) for loss in load_totals(folder).losses]
    assert losses == [(0, "aged_out", 3), (1, "aged_out", 5), (2, "beyond_end", 8)]
    caplog.clear()
    assert tasks(reader(brokers, subscribe="t", endingoffsets='{"t":{"0":3,"1":4,"2":0}}')) == []
    assert caplog.messages == [
        "t-0: the log starts at offset 5, after the requested end 3: nothing to read",
        "t-1: the log starts at offset 7, after the requested end 4: nothing to read",
    ]


def test_pushed_filters_narrow_the_plan(cluster: NewCluster, reader: Any, caplog: pytest.LogCaptureFixture) -> None:
    filters = pytest.importorskip("pyspark.sql.datasource")  # Spark 4.0 has none
    kafka_batch_reader._warn_of_one_plan_per_load.cache_clear()
    brokers = cluster(42)
    for _ in range(2):
        filtered = reader(brokers, FilterPushdownBatchReader, subscribe="t")
        remaining = [filters.EqualTo(("value",), b"x"), filters.IsNull(("key",))]
        pushed = [remaining[0], filters.GreaterThanOrEqual(("offset",), 10), remaining[1]]
        assert list(filtered.pushFilters(pushed)) == remaining
        (task,) = tasks(filtered)
        assert task.offsets == OffsetRange("t", 0, 10, 42)
    (warning,) = caplog.messages
    assert "Spark keeps one plan per load()" in warning
