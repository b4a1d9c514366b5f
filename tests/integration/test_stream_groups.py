"""``commitGroupId`` and ``startingOffsets=committed``: what tools see, and where a query starts from it."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration import groups
from tests.integration.topics import Admin

from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.structured._group_commits import GroupCommits
from pyspark_kafka_direct.structured.source import KafkaDirectSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame
    from tests.conftest import MakeTopic
    from tests.integration.stream_queries import Stream

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.structured.stream import KafkaStreamReader


def committed(kafka: EmbeddedKafka, group: str) -> dict[int, int]:
    return groups.committed(kafka.bootstrap_servers, group, group.removeprefix("query-"))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
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


@pytest.mark.parametrize("recreated", [True, False])
def test_a_query_that_goes_on_is_told_when_its_group_has_forgotten_the_topic(
    recreated: bool, make_topic: MakeTopic, put: Any, kafka: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    group = f"query-{topic}"
    put(topic, range(3))

    def reader() -> KafkaStreamReader:
        given = {"subscribe": topic, "startingOffsets": "earliest", "commitGroupId": group}
        source = KafkaDirectSource({**given, "kafka.bootstrap.servers": kafka.bootstrap_servers})
        return source.streamReader(source.schema())  # type: ignore[return-value]

    def plan(stream: KafkaStreamReader, start: dict[str, Any]) -> dict[str, Any]:
        return stream.latestOffset(start, stream.getDefaultReadLimit())

    first = reader()
    end = plan(first, first.initialOffset())
    assert plan(first, end) == end == {topic: {"0": 3}}
    wait_until(lambda: committed(kafka, group) == {0: 3})
    assert caplog.text == "", "a new query has nothing to miss"
    if recreated:
        Admin(kafka.bootstrap_servers).recreate(topic, 1)
        wait_until(lambda: committed(kafka, group) == {})
        put(topic, range(5))
    end = plan(reader(), end)
    assert end == {topic: {"0": 5 if recreated else 3}}
    told = f"this query has read {topic} before, but the group '{group}' (commitGroupId) has no offsets of it"
    wait_until(lambda: committed(kafka, group) == {0: 3})
    assert (told in caplog.text) == recreated


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
