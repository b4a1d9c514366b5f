"""Topics and records that are deleted while a query runs or is stopped."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.stream_queries import DEADLINE
from tests.integration.topics import Admin

from pyspark_kafka_direct import DataLossError, error_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from tests.conftest import MakeTopic
    from tests.integration.stream_queries import Stream

    from pyspark_kafka_direct.broker import EmbeddedKafka


@pytest.fixture(scope="module")
def admin(kafka: EmbeddedKafka) -> Admin:
    return Admin(kafka.bootstrap_servers)


def test_a_pattern_continues_when_a_topic_is_deleted_and_another_created(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, admin: Admin
) -> None:
    first = make_topic(2, prefix="deleted-pattern")
    put(first, [1, 2])
    query = stream(subscribePattern=f"{first}.*", startingOffsets="earliest", failOnDataLoss="false")
    query.start()
    query.wait_for([1, 2])
    admin.delete(first)
    admin.create(f"{first}-second", 3)
    put(f"{first}-second", [3, 4, 5])
    query.wait_for([1, 2, 3, 4, 5])
    query.stop()


def test_no_empty_offset_is_written_when_the_only_topic_is_deleted(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, admin: Admin
) -> None:
    topic = make_topic(prefix="only")
    put(topic, [1])
    query = stream(subscribePattern=f"{topic}.*", startingOffsets="earliest", failOnDataLoss="false")
    query.start()
    query.wait_for([1])
    admin.delete(topic)
    running = query.query
    assert running is not None
    started_at = time.monotonic()
    query.wait(lambda: time.monotonic() > started_at + 5, "a few refreshes without topics")
    query.stop()
    offsets = [file.read_text() for file in (query.folder / "checkpoint" / "offsets").glob("[0-9]*")]
    assert offsets
    assert all(topic in text.splitlines()[-1] for text in offsets)  # SPARK-41375


def test_a_topic_recreated_with_fewer_records_while_the_query_was_stopped(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, admin: Admin
) -> None:
    topic = make_topic(prefix="recreated")
    put(topic, [1, 2])
    query = stream(subscribePattern=f"{topic}.*", startingOffsets="earliest")
    query.run()
    admin.recreate(topic, 1)
    put(topic, [3])
    with pytest.raises(Exception, match=r"DataLossError: data loss: .*offset was changed from 2 to 1"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    query.run()
    put(topic, [4])
    query.run()
    assert query.values == ["1", "2", "4"]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_recreated_while_the_query_runs_is_detected_by_its_id(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, admin: Admin, fail: str
) -> None:
    topic = make_topic(prefix="recreated-id")
    put(topic, [1, 2])
    query = stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss=fail)
    query.start()
    query.wait_for([1, 2])
    admin.recreate(topic, 1)
    put(topic, [3, 4, 5])
    if fail == "true":
        with pytest.raises(Exception, match=r"DataLossError: data loss") as caught:
            query.wait(lambda: False, "the loss")
        assert isinstance(error_of(caught.value), DataLossError)
        return
    query.wait_for([1, 2, 3, 4, 5])
    query.stop()


def test_a_short_poll_timeout_does_not_fail_a_tolerant_query(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, admin: Admin
) -> None:
    """Records and a topic are deleted after a batch was planned; brokers confirm that for longer than the timeout."""
    expired, recreated = make_topic(prefix="short-expired"), make_topic(prefix="short-recreated")
    put(expired, range(10))
    put(recreated, range(20, 30))
    query = stream(
        subscribe=f"{expired},{recreated}",
        startingOffsets=json.dumps({expired: {"0": 0}, recreated: {"0": 0}}),
        failOnDataLoss="false",
        kafkaConsumer_pollTimeoutMs="512",
        fetchOffset_numRetries="1",
        fetchOffset_retryIntervalMs="0",
        kafka_default_api_timeout_ms="3000",
        kafka_request_timeout_ms="3000",
        kafka_metadata_max_age_ms="1",
    )

    def collect(batch: DataFrame, number: int) -> None:
        if number == 0:
            admin.delete_records(expired, 5)
            admin.recreate(recreated, 1)
            put(recreated, range(30, 50))  # a longer log
        query._collect(batch, number)

    writer = query.load().writeStream.foreachBatch(collect)
    query.query = writer.option("checkpointLocation", str(query.folder / "checkpoint")).start()
    query.wait_for([*range(5, 10), *range(30, 50)])
    assert sorted(map(int, query.batches[0])) == [*range(5, 10)]
    put(expired, [10])
    query.wait_for([*range(5, 11), *range(30, 50)])
    query.stop()


def recreate_between_batches(query: Stream, change: Callable[[], None]) -> tuple[list[int], BaseException | None]:
    """Run with Trigger.AvailableNow; after the first batch ``change`` is called."""

    def collect(batch: DataFrame, number: int) -> None:
        query._collect(batch, number)
        if number == 0:
            change()

    writer = query.load().writeStream.foreachBatch(collect).trigger(availableNow=True)
    query.query = writer.option("checkpointLocation", str(query.folder / "checkpoint")).start()
    try:
        query.query.awaitTermination(DEADLINE)
    except Exception as error:
        return [len(batch) for batch in query.batches.values()], error
    return [len(batch) for batch in query.batches.values()], None


@pytest.mark.parametrize("fail", ["true", "false"])
def test_partitions_that_become_unavailable_with_available_now(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, admin: Admin, fail: str
) -> None:
    topic = make_topic(5, prefix="now-partitions")
    put(topic, range(15))
    query = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="5", failOnDataLoss=fail)
    _, error = recreate_between_batches(query, lambda: admin.recreate(topic, 3))
    message = str(error)
    assert "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW" in message
    assert f"topic-partitions for latest offset: {topic}-0, {topic}-1, {topic}-2, topic-partitions" in message
    assert f"topic-partitions for end offset: {topic}-0, {topic}-1, {topic}-2, {topic}-3, {topic}-4;" in message


@pytest.mark.parametrize("fail", ["true", "false"])
def test_offsets_that_become_unavailable_with_available_now(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, admin: Admin, fail: str
) -> None:
    topic = make_topic(1, prefix="now-offsets")
    put(topic, range(15))
    query = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="5", failOnDataLoss=fail)

    def change() -> None:
        admin.recreate(topic, 1)
        put(topic, range(9))

    _, error = recreate_between_batches(query, change)
    message = str(error)
    assert "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW" in message
    assert f'latest offset: {{"{topic}":{{"0":9}}}}, end offset: {{"{topic}":{{"0":10}}}}' in message


@pytest.mark.parametrize("fail", ["true", "false"])
def test_records_that_age_out_before_they_are_read(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, admin: Admin, fail: str
) -> None:
    topic = make_topic(prefix="aged")
    put(topic, range(4))
    query = stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss=fail)
    query.run()
    put(topic, range(4, 20))
    admin.delete_records(topic, 12)
    if fail == "true":
        with pytest.raises(Exception, match=r"data loss \(aged out\): offsets \[4, 12\)"):
            query.run()
        return
    assert query.run() == [8]
    assert query.values == sorted(map(str, [*range(4), *range(12, 20)])), "nothing twice, nothing else missing"


def test_a_failed_batch_is_planned_again_after_partitions_were_added(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, admin: Admin
) -> None:
    topic = make_topic(prefix="failed")
    put(topic, [1, 2])
    query = stream(subscribe=topic, startingOffsets="earliest")

    def fail(batch: DataFrame, number: int) -> None:
        raise RuntimeError("the sink is down")

    for attempt in range(2):
        writer = query.load().writeStream.foreachBatch(fail).trigger(availableNow=True)
        running = writer.option("checkpointLocation", str(query.folder / "checkpoint")).start()
        with pytest.raises(Exception, match="the sink is down"):  # SPARK-53560
            running.awaitTermination(DEADLINE)
        if attempt == 0:
            admin.grow(topic, 3)
            put(topic, [3], partition=2)
    query.run()
    assert query.values == ["1", "2", "3"]


def test_a_limit_does_not_count_expired_records(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, admin: Admin
) -> None:
    topic = make_topic(prefix="aged")
    put(topic, range(4))
    query = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="4", failOnDataLoss="false")
    assert query.run() == [4]
    put(topic, range(4, 60))
    admin.delete_records(topic, 50)
    assert query.run() == [4, 4, 2]
    assert query.values == sorted(map(str, [*range(4), *range(50, 60)]))
