"""``commitGroupId`` and ``startingOffsets=committed``: offsets for tools, and starts from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration import groups
from tests.integration.stream_queries import DEADLINE
from tests.integration.topics import Admin
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.stream_queries import Stream

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.datasource.micro_batch_stream import KafkaMicroBatchStream


@pytest.fixture(scope="module")
def spark(make_spark: Callable[..., SparkSession]) -> SparkSession:
    """A separate session: that of other modules may have the listener of ``enable(spark)``, which would commit."""
    return make_spark().newSession()


def committed(kafka: EmbeddedKafka, group: str) -> dict[int, int]:
    return groups.committed(kafka.bootstrap_servers, group, group.removeprefix("query-"))


def run_until_committed(query: Stream, kafka: EmbeddedKafka, group: str, offsets: dict[int, int]) -> None:
    """Run to the end; again if the last commit took longer than half a second on a busy machine."""

    def committed_by_a_run() -> bool:
        query.run()
        return committed(kafka, group) == offsets

    wait_until(committed_by_a_run, seconds=DEADLINE)


STAGES = [{}, {0: 2, 1: 2}, {0: 4, 1: 4}, {0: 5, 1: 5}]


def test_every_finished_batch_is_committed_including_the_last_one(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, kafka: EmbeddedKafka
) -> None:
    for _ in range(5):
        seen = commits_of_three_batches(stream, make_topic, put, kafka)
        assert all(found in STAGES[: number + 1] for number, found in enumerate(seen)), "never before the sink is done"
        if seen == STAGES:
            break
        # A batch waits half a second for the previous commit, which may be too short on a busy machine.
    assert seen == STAGES


def commits_of_three_batches(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, kafka: EmbeddedKafka
) -> list[dict[int, int]]:
    """The committed offsets during each batch of a query, and after it."""
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
    assert running.awaitTermination(DEADLINE)
    return [*seen, committed(kafka, group)]


@pytest.mark.smoke
def test_a_batch_that_fails_is_not_committed(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, kafka: EmbeddedKafka
) -> None:
    topic = make_topic()
    group = f"query-{topic}"
    put(topic, range(3))
    query = stream(subscribe=topic, startingOffsets="earliest", commitGroupId=group)
    run_until_committed(query, kafka, group, {0: 3})
    put(topic, range(3, 5))

    def fail(batch: DataFrame, number: int) -> None:
        raise RuntimeError("the sink is down")

    writer = query.load().writeStream.foreachBatch(fail).trigger(availableNow=True)
    running = writer.option("checkpointLocation", str(query.folder / "checkpoint")).start()
    with pytest.raises(Exception, match="the sink is down"):
        running.awaitTermination(DEADLINE)
    assert committed(kafka, group) == {0: 3}
    run_until_committed(query, kafka, group, {0: 5})


def test_a_restarted_query_commits_where_it_starts(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, kafka: EmbeddedKafka
) -> None:
    topic = make_topic()
    put(topic, range(3))
    query = stream(subscribe=topic, startingOffsets="earliest")
    query.run()
    query.options["commitGroupId"] = f"query-{topic}"
    run_until_committed(query, kafka, f"query-{topic}", {0: 3})


@pytest.mark.smoke
def test_a_query_starts_from_committed_offsets(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, kafka: EmbeddedKafka
) -> None:
    topic = make_topic(2)
    group = f"query-{topic}"
    put(topic, range(4), partition=0)
    first = stream(assign=json.dumps({topic: [0]}), startingOffsets="earliest", commitGroupId=group)
    run_until_committed(first, kafka, group, {0: 4})
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
def test_a_resumed_query_is_warned_if_its_group_has_no_offsets_of_the_topic(
    recreated: bool, make_topic: MakeTopic, put: Any, kafka: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    group = f"query-{topic}"
    put(topic, range(3))

    def reader() -> KafkaMicroBatchStream:
        given = {"subscribe": topic, "startingOffsets": "earliest", "commitGroupId": group}
        source = KafkaSourceProvider({**given, "kafka.bootstrap.servers": kafka.bootstrap_servers})
        return source.streamReader(source.schema())  # type: ignore[return-value]

    def plan(stream: KafkaMicroBatchStream, start: dict[str, Any]) -> dict[str, Any]:
        return stream.latestOffset(start, stream.getDefaultReadLimit())

    first = reader()
    end = plan(first, first.initialOffset())
    assert plan(first, end) == end
    assert end[topic] == {"0": 3}
    warning = f"this query has read {topic} before, but the group '{group}' (commitGroupId) has no offsets of it"
    wait_until(lambda: committed(kafka, group) == {0: 3}, seconds=DEADLINE)
    assert warning not in caplog.text, "a new query cannot miss offsets"
    if recreated:
        Admin(kafka.bootstrap_servers).recreate(topic, 1)
        wait_until(lambda: committed(kafka, group) == {}, seconds=DEADLINE)
        put(topic, range(5))
    end = plan(reader(), end)
    assert end[topic] == {"0": 5 if recreated else 3}
    wait_until(lambda: committed(kafka, group) == {0: 3}, seconds=DEADLINE)
    assert (warning in caplog.text) == recreated


def test_asynchronous_progress_tracking_repeats_records_that_the_checkpoint_lacks(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, kafka: EmbeddedKafka
) -> None:
    """Spark then writes its logs rarely, and a batch that is planned again has other records."""
    topic = make_topic(prefix="async")
    group = f"query-{topic}"
    put(topic, [1])
    query = stream(subscribe=topic, startingOffsets="earliest", commitGroupId=group)

    def start() -> None:
        writer = (
            query.load()
            .writeStream.foreachBatch(query._collect)
            .option("checkpointLocation", str(query.folder / "checkpoint"))
        )
        # Only noop, console, memory and Spark's own Kafka sink support it; the last setting is one of Spark's tests.
        query.query = writer.options(
            asyncProgressTrackingEnabled="true",
            asyncProgressTrackingCheckpointIntervalMs="3600000",
            _asyncProgressTrackingOverrideSinkSupportCheck="true",
        ).start()

    start()
    for number in (1, 2, 3):
        if number > 1:
            put(topic, [number])
        query.wait_for(range(1, number + 1))
    wait_until(lambda: committed(kafka, group) == {0: 3}, seconds=DEADLINE)
    query.wait(lambda: query.committed == 0, "the only batch that the logs have")
    query.stop()
    assert query.batches == {0: ["1"], 1: ["2"], 2: ["3"]}
    put(topic, [4])
    start()
    query.wait(lambda: query.batches[1] != ["2"], "batch 1 once more")
    assert query.batches[1] == ["2", "3", "4"], "nothing is missing"
    wait_until(lambda: committed(kafka, group) == {0: 4}, seconds=DEADLINE)
    query.stop()

    sink = query.load().select("value").writeStream.format("kafka-direct").option("topic", topic)
    sink = sink.option("kafka.bootstrap.servers", kafka.bootstrap_servers).option(
        "asyncProgressTrackingEnabled", "true"
    )
    with pytest.raises(Exception, match="does not support async progress tracking"):
        sink.option("checkpointLocation", str(query.folder / "rejected")).start()
