"""``commitGroupId`` and ``startingOffsets=committed``: what tools see, and where a query starts from it."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.structured._group_commits import GroupCommits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame
    from tests.conftest import MakeTopic
    from tests.integration.stream_queries import Stream

    from pyspark_kafka_direct.broker import EmbeddedKafka


def committed(kafka: EmbeddedKafka, group: str) -> dict[int, int]:
    deadline = time.monotonic() + 30
    while True:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        try:
            answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
            return {tp.partition: tp.offset for tp in answer.topic_partitions}
        except KafkaException:  # a broker's first group: its coordinator is just starting
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_every_finished_batch_is_committed_the_last_one_too(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, kafka: EmbeddedKafka
) -> None:
    topic = make_topic(2)
    group = f"query-{topic}"
    put(topic, range(10))
    query = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="4", commitGroupId=group)
    seen: list[dict[int, int]] = []

    def collect(batch: DataFrame, number: int) -> None:
        query._collect(batch, number)
        seen.append(committed(kafka, group))

    writer = query.load().writeStream.foreachBatch(collect).trigger(availableNow=True)
    running = writer.option("checkpointLocation", str(query.folder / "checkpoint")).start()
    assert running.awaitTermination(60)
    assert seen == [{}, {0: 2, 1: 2}, {0: 4, 1: 4}], "never before the sink is done"
    assert committed(kafka, group) == {0: 5, 1: 5}


def test_a_batch_that_fails_is_not_committed(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, kafka: EmbeddedKafka
) -> None:
    topic = make_topic()
    group = f"query-{topic}"
    put(topic, range(3))
    query = stream(subscribe=topic, startingOffsets="earliest", commitGroupId=group)
    query.run()
    put(topic, range(3, 5))

    def fail(batch: DataFrame, number: int) -> None:
        raise RuntimeError("the sink is down")

    writer = query.load().writeStream.foreachBatch(fail).trigger(availableNow=True)
    running = writer.option("checkpointLocation", str(query.folder / "checkpoint")).start()
    with pytest.raises(Exception, match="the sink is down"):
        running.awaitTermination(60)
    assert committed(kafka, group) == {0: 3}
    query.run()
    assert committed(kafka, group) == {0: 5}


def test_a_restarted_query_commits_where_it_starts(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, kafka: EmbeddedKafka
) -> None:
    topic = make_topic()
    put(topic, range(3))
    query = stream(subscribe=topic, startingOffsets="earliest")
    query.run()
    query.options["commitGroupId"] = f"query-{topic}"
    query.run()
    assert committed(kafka, f"query-{topic}") == {0: 3}


def test_a_query_starts_from_committed_offsets(stream: Callable[..., Stream], make_topic: MakeTopic, put: Any) -> None:
    topic = make_topic(2)
    group = f"query-{topic}"
    put(topic, range(4), partition=0)
    first = stream(assign=json.dumps({topic: [0]}), startingOffsets="earliest", commitGroupId=group)
    first.run()
    put(topic, range(4, 7), partition=0)
    put(topic, range(10, 12), partition=1)
    with pytest.raises(Exception, match=f"no committed offset for {topic}-1; set committedOffsetsFallback"):
        stream(subscribe=topic, startingOffsets="committed", commitGroupId=group).run()
    second = stream(
        subscribe=topic, startingOffsets="committed", kafka_group_id=group, committedOffsetsFallback="earliest"
    )
    second.run()
    assert second.values == sorted(map(str, [4, 5, 6, 10, 11]))


class SlowGroup:
    """A coordinator that answers when it is told to, and then says no."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.offsets: list[dict[TopicPartition, int]] = []

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets.append(dict(offsets))
        assert self.answer.wait(30)
        raise BrokerTimeoutError("too late")


def test_a_slow_coordinator_holds_nothing_up_and_its_errors_are_warnings() -> None:
    group, warnings, tp = SlowGroup(), list[str](), TopicPartition("t", 0)
    commits = GroupCommits(group, warnings.append)  # type: ignore[arg-type]
    began = time.monotonic()
    for offset in range(20):
        commits.offer({tp: offset})
        commits.settle()
    assert time.monotonic() - began < 5, "one moment of patience, not twenty"
    group.answer.set()
    deadline = time.monotonic() + 30
    while len(warnings) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert group.offsets == [{tp: 0}, {tp: 19}], "what came between is out of date"
    assert "not committed (commitGroupId): too late" in warnings[0]
    commits.offer({tp: 19})
    commits.settle()
    assert len(group.offsets) == 2
