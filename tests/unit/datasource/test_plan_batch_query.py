"""The requests of a batch plan."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest
from tests.unit.client.fake_broker import TOPIC, FakeBroker

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.datasource import kafka_batch_reader
from pyspark_kafka_direct.datasource.kafka_batch_reader import (
    FilterPushdownBatchReader,
    KafkaBatchReader,
    plan_batch_query,
)
from pyspark_kafka_direct.datasource.read_schema import kafka_schema, read_schema
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.options.read_options import parse_batch_options
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.spark.listener_files import SHARED_FOLDER_NAME
from pyspark_kafka_direct.spark.loss_counts import load_totals

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.start, broker.stable = 5, 40
        yield broker
    POOL.clear()


def test_a_batch_ends_at_the_end_of_its_isolation_level(broker: FakeBroker) -> None:
    options = parse_batch_options({"kafka.bootstrap.servers": "broker:9092", "subscribe": TOPIC})
    options = replace(options, connection=broker.settings)
    committed = plan_batch_query(replace(options, fetch=FetchSettings(isolation_level="read_committed")), None)
    uncommitted = plan_batch_query(replace(options, fetch=FetchSettings()), None)
    assert committed.plan.ranges == (OffsetRange(TOPIC, 0, 5, 40),)
    assert uncommitted.plan.ranges == (OffsetRange(TOPIC, 0, 5, 42),)
    assert broker.connections == 1


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
@pytest.mark.parametrize("selection", ["subscribe", "offsetranges"])
def test_a_deposed_leader_does_not_decide_where_the_log_ends(
    broker: FakeBroker, selection: str, fail_on_data_loss: str
) -> None:
    with FakeBroker() as leader:
        leader.epoch, leader.start = broker.epoch + 1, broker.start
        broker.leaders, leader.leaders = [(1, broker), (2, leader)], [(2, leader), (1, broker)]
        broker.offsets = lambda _: (0, 30)
        ranges = json.dumps([{"topic": TOPIC, "partition": 0, "fromOffset": 35, "untilOffset": 42}])
        options = {
            "kafka.bootstrap.servers": "broker:9092",
            "failondataloss": fail_on_data_loss,
            **(
                {"offsetranges": ranges}
                if selection == "offsetranges"
                else {"subscribe": TOPIC, "startingoffsets": f'{{"{TOPIC}":{{"0":35}}}}'}
            ),
        }
        planned = plan_batch_query(replace(parse_batch_options(options), connection=broker.settings), None)
        assert (planned.plan.ranges, planned.plan.warnings) == ((OffsetRange(TOPIC, 0, 35, 42),), ())


def test_a_deposed_leader_does_not_decide_where_the_log_begins(broker: FakeBroker) -> None:
    """Its retention deleted records that the current leader has: a batch from earliest was read without them."""
    with FakeBroker() as leader:
        leader.epoch, leader.start = broker.epoch + 1, 3
        broker.leaders, leader.leaders = [(1, broker), (2, leader)], [(2, leader), (1, broker)]
        options = parse_batch_options({"kafka.bootstrap.servers": "broker:9092", "subscribe": TOPIC})
        planned = plan_batch_query(replace(options, connection=broker.settings), None)
        assert (planned.plan.ranges, planned.plan.warnings) == ((OffsetRange(TOPIC, 0, 3, 42),), ())


def test_a_task_has_the_topic_id_of_its_range(broker: FakeBroker) -> None:
    """If the topic was recreated, the task finds that its records are lost."""
    stored_id = UUID(int=99)
    ranges = [
        {"topic": TOPIC, "partition": 0, "fromOffset": first, "untilOffset": first + 5, **topic_id}
        for first, topic_id in ((5, {}), (10, {"topicId": str(broker.topic_id)}), (15, {"topicId": str(stored_id)}))
    ]
    options = parse_batch_options({"kafka.bootstrap.servers": "broker:9092", "offsetranges": json.dumps(ranges)})
    reader = KafkaBatchReader(replace(options, connection=broker.settings), read_schema(kafka_schema(False)))
    tasks = [cast("Any", partition).task for partition in reader.partitions()]
    assert [(task.offsets.from_offset, task.topic_id) for task in tasks] == [
        (5, broker.topic_id),
        (10, broker.topic_id),
        (15, stored_id),
    ]


@pytest.mark.parametrize("selection", ["subscribe", "offsetranges"])
def test_tasks_have_the_topic_id_of_the_metadata_that_offsets_came_with(broker: FakeBroker, selection: str) -> None:
    """The first metadata has the id of a topic that was deleted and recreated before the query.

    With that id, the tasks reported that the records of the new topic are lost.
    """
    new_id = UUID(int=99)

    def offsets(_: int) -> tuple[int, int]:
        if broker.topic_id == new_id:
            return 0, 42
        broker.topic_id = new_id  # the leader of the deleted topic was moved
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1

    broker.offsets = offsets
    ranges = json.dumps([{"topic": TOPIC, "partition": 0, "fromOffset": 5, "untilOffset": 42}])
    options = parse_batch_options(
        {
            "kafka.bootstrap.servers": "broker:9092",
            **({"offsetranges": ranges} if selection == "offsetranges" else {"subscribe": TOPIC}),
        }
    )
    reader = KafkaBatchReader(replace(options, connection=broker.settings), read_schema(kafka_schema(False)))
    (task,) = [cast("Any", partition).task for partition in reader.partitions()]
    assert task.offsets == OffsetRange(TOPIC, 0, 5, 42)
    assert task.topic_id == new_id


def test_records_that_a_batch_skips_are_logged_and_counted(
    broker: FakeBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    folder = tmp_path / SHARED_FOLDER_NAME
    folder.mkdir()
    options = parse_batch_options(
        {
            "kafka.bootstrap.servers": "broker:9092",
            "subscribe": TOPIC,
            "startingoffsets": f'{{"{TOPIC}":{{"0":2}}}}',
            "failondataloss": "false",
        }
    )
    reader = KafkaBatchReader(replace(options, connection=broker.settings), read_schema(kafka_schema(False)))
    (task,) = [cast("Any", partition).task for partition in reader.partitions()]
    assert task.offsets == OffsetRange(TOPIC, 0, 5, 42)
    (message,) = caplog.messages
    assert "[2, 5)" in message
    assert [(loss.cause, loss.offsets) for loss in load_totals(folder).losses] == [("aged_out", 3)]


def test_pushed_filters_narrow_the_plan(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    filters = pytest.importorskip("pyspark.sql.datasource")  # Spark 4.0 has none
    kafka_batch_reader._warn_of_one_plan_per_load.cache_clear()
    options = parse_batch_options({"kafka.bootstrap.servers": "broker:9092", "subscribe": TOPIC})
    for _ in range(2):
        reader = FilterPushdownBatchReader(
            replace(options, connection=broker.settings), read_schema(kafka_schema(False))
        )
        remaining = [filters.EqualTo(("value",), b"x"), filters.IsNull(("key",))]
        pushed = [remaining[0], filters.GreaterThanOrEqual(("offset",), 10), remaining[1]]
        assert list(reader.pushFilters(pushed)) == remaining
        (task,) = [cast("Any", partition).task for partition in reader.partitions()]
        assert task.offsets == OffsetRange(TOPIC, 0, 10, 42)
    (warning,) = caplog.messages
    assert "Spark keeps one plan per load()" in warning
