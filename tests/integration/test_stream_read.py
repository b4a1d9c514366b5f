"""``spark.readStream.format("kafka-direct")``: starts, restarts, triggers and limits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.groups import committed, groups_named_after
from tests.integration.topics import Admin

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTopic
    from tests.integration.stream_queries import Stream

    from pyspark_kafka_direct.broker import EmbeddedKafka


def subscription(strategy: str, topic: str) -> dict[str, str]:
    return {
        "assign": {"assign": f'{{"{topic}":[0,1,2,3,4]}}'},
        "subscribe": {"subscribe": topic},
        "subscribePattern": {"subscribePattern": f"{topic[:-1]}.*"},
    }[strategy]


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("strategy", "fail"), [("assign", "true"), ("subscribe", "true"), ("subscribePattern", "false")]
)
def test_from_latest_offsets(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, kafka: EmbeddedKafka, strategy: str, fail: str
) -> None:
    topic = make_topic(5, prefix=f"latest-{strategy}-{fail}")
    put(topic, ["old"] * 5)
    query = stream(**subscription(strategy, topic), startingOffsets="latest", failOnDataLoss=fail)
    query.start()
    query.wait(lambda: query.committed >= 0, "the empty batch that makes the start durable")
    put(topic, [1, 2, 3])
    query.wait_for([1, 2, 3])
    query.stop()
    put(topic, [4, 5])
    query.start()
    query.wait_for([1, 2, 3, 4, 5])
    if strategy != "assign":
        Admin(kafka.bootstrap_servers).grow(topic, 7)
        put(topic, [6, 7], partition=6)
        query.wait_for(range(1, 8))
    query.stop()


@pytest.mark.parametrize("strategy", ["assign", "subscribe", "subscribePattern"])
def test_from_earliest_offsets_with_partitions_added_while_stopped(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, kafka: EmbeddedKafka, strategy: str
) -> None:
    topic = make_topic(5, prefix=f"earliest-{strategy}")
    put(topic, range(10))
    query = stream(**subscription(strategy, topic), startingOffsets="earliest")
    assert query.run() == [10]
    assert query.run() == []
    put(topic, range(10, 15))
    if strategy != "assign":
        Admin(kafka.bootstrap_servers).grow(topic, 10)
        put(topic, range(15, 20), partition=9)
    assert query.run() == [5 if strategy == "assign" else 10]
    query.undo_commit()
    assert query.run() == [], "the same batch again, with the same records"
    assert query.values == sorted(map(str, range(15 if strategy == "assign" else 20)))


def test_from_specific_offsets(stream: Callable[..., Stream], make_topic: MakeTopic, put: Any) -> None:
    topic = make_topic(5)
    for partition, values in enumerate([[-20, -21], [-10], [0, 1, 2], [10, 11, 12], [20, 21, 22]]):
        put(topic, values, partition=partition)
    query = stream(subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":-2,"1":-1,"2":0,"3":1,"4":2}}}}')
    assert query.run() == [0, 8], "the start has a part that moves, so the first batch is empty"
    assert query.values == sorted(map(str, [-20, -21, 0, 1, 2, 11, 12, 22]))
    put(topic, [30, 31], partition=1)
    assert query.run() == [2]


@pytest.mark.parametrize("form", ["each", "all"])
def test_from_timestamps(stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, form: str) -> None:
    topic = make_topic(2)
    for partition in (0, 1):
        for second in range(5):
            put(topic, [f"{partition}-{second}"], partition=partition, timestamp=1_700_000_000_000 + second * 1000)
    each = f'{{"{topic}":{{"0":1700000002000,"1":1700000004000}}}}'
    options = {"startingOffsetsByTimestamp": each} if form == "each" else {"startingTimestamp": "1700000003000"}
    query = stream(subscribe=topic, **options)
    query.run()
    expected = ["0-2", "0-3", "0-4", "1-4"] if form == "each" else ["0-3", "0-4", "1-3", "1-4"]
    assert query.values == expected
    put(topic, ["later"])
    query.run()
    assert query.values == [*expected, "later"]


def test_a_start_before_now_stays_where_it_was(stream: Callable[..., Stream], make_topic: MakeTopic, put: Any) -> None:
    flights, delays = make_topic(2), make_topic()
    now = int(time.time() * 1000)
    for topic, partition, minutes in ((flights, 0, 90), (flights, 0, 10), (flights, 1, 90), (delays, 0, 90)):
        put(topic, [f"{minutes} minutes"], partition=partition, timestamp=now - 60_000 * minutes)
    query = stream(subscribe=f"{flights},{delays}", startingOffsets=f'{{"{delays}":"last 5","*":"-1h"}}')
    query.run()
    assert query.values == ["10 minutes", "90 minutes"]
    put(flights, ["old, but later"], partition=1, timestamp=now - 60_000 * 200)
    query.run()
    assert query.values == ["10 minutes", "90 minutes", "old, but later"]


@pytest.mark.parametrize("strategy", ["error", "latest"])
def test_no_record_for_a_timestamp(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, strategy: str
) -> None:
    topic = make_topic(2)
    put(topic, ["new"], partition=0, timestamp=1_700_000_009_000)
    put(topic, ["old"], partition=1, timestamp=1_600_000_000_000)
    query = stream(subscribe=topic, startingTimestamp="1700000000000", startingOffsetsByTimestampStrategy=strategy)
    if strategy == "error":
        with pytest.raises(Exception, match="no record has timestamp 1700000000000"):
            query.run()
        return
    query.run()
    assert query.values == ["new"]
    put(topic, ["newer"], partition=1, timestamp=1_600_000_000_000)
    query.run()
    assert query.values == ["new", "newer"]


def test_available_now_makes_three_batches_of_five(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(3)
    for partition in range(3):
        put(topic, range(partition * 5, partition * 5 + 5), partition=partition)
    query = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="5")
    sizes = query.run()
    assert (sum(sizes), len(sizes)) == (15, 5), "each of three equal partitions has a share of 5/3, rounded down"
    one = make_topic(1)
    put(one, range(15))
    assert stream(subscribe=one, startingOffsets="earliest", maxOffsetsPerTrigger="5").run() == [5, 5, 5]


def test_the_limit_is_proportional_across_a_restart_and_ignored_by_once(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(3)
    put(topic, range(100, 201), partition=0)
    put(topic, range(10, 21), partition=1)
    put(topic, [1], partition=2)
    query = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    query.start(processingTime="1 second")  # so that records remain when it is stopped
    query.wait(lambda: query.committed >= 1, "two batches")
    query.stop()
    assert query.batches[0] == sorted(map(str, [*range(100, 108), 10, 1]))
    assert query.batches[1] == sorted(map(str, [*range(108, 117), 11]))
    done = query.committed
    query.start(processingTime="1 second")
    query.wait(lambda: query.committed >= done + 1, "one more")
    query.stop()
    assert [len(query.batches[number]) for number in range(1, query.committed + 1)] == [10] * query.committed
    if query.planned > query.committed:
        query.run(once=True)  # a batch was planned when the query was stopped: it runs again, and no other
    left = 113 - 10 * (query.committed + 1)
    assert query.run(once=True) == [left]


def test_no_group_is_registered(
    stream: Callable[..., Stream], kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    """groupIdPrefix and kafka.group.id have no effect, and no group of the query's run is created as in Spark."""
    topic = make_topic()
    put(topic, range(3))
    options = {"groupIdPrefix": f"prefix-{topic}", "kafka_group_id": f"group-{topic}", "kafka_client_id": topic}
    assert sum(stream(subscribe=topic, startingOffsets="earliest", **options).run()) == 3
    assert committed(kafka.bootstrap_servers, f"group-{topic}", topic) == {}
    assert groups_named_after(kafka.bootstrap_servers, topic) == []


def test_the_largest_limit_does_not_overflow(stream: Callable[..., Stream], make_topic: MakeTopic, put: Any) -> None:
    topic = make_topic()
    put(topic, range(10))
    query = stream(subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":5}}}}', maxOffsetsPerTrigger=str((1 << 63) - 1))
    assert query.run() == [5]


@pytest.mark.smoke
def test_process_all_available_returns_after_acknowledged_records(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any
) -> None:
    """An answer "nothing new" must not be older than the call. Spark asks two sources, one after the other."""
    topics = [make_topic(), make_topic(2)]
    query = stream(startingOffsets="earliest")
    latest = query.load(subscribePattern=f"{topics[1]}.*", startingOffsets="latest")
    running = query.start(query.load(subscribe=topics[0]).union(latest))
    for sent in range(6):
        running.processAllAvailable()
        assert len(query.values) == sent
        put(topics[sent // 2 % 2], [sent])
        if sent % 2:
            time.sleep(0.05)  # more than one idle answer, some of them after the record
        running.processAllAvailable()
        assert query.values == [str(value) for value in range(sent + 1)]
    query.stop()


def test_a_minimum_waits_and_its_delay_ends_the_wait(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic()
    put(topic, range(3))
    query = stream(subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger="15")
    query.start()
    query.wait_for(range(3))
    put(topic, range(3, 9))
    assert stream(subscribe=topic, startingOffsets="earliest").run() == [9], "time enough to read them"
    assert query.values == ["0", "1", "2"], "six are too few"
    put(topic, range(9, 18))
    query.wait_for(range(18))
    query.stop()
    assert [len(query.batches[number]) for number in sorted(query.batches)] == [3, 15], "no sooner than there were 15"
    query.options["maxTriggerDelay"] = "3s"
    query.start()
    put(topic, range(18, 20))
    query.wait_for(range(20))
    put(topic, range(20, 22))
    query.wait(lambda: len(query.values) == 22, "two more, after the delay")
    query.stop()


def test_once_with_a_start_that_can_change_is_rejected(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic()
    with pytest.raises(Exception, match=r"whose start can change .* cannot start with a single batch"):
        stream(subscribe=topic).run(once=True)
    beside = stream(subscribe=topic)
    rate = beside.spark.readStream.format("rate").load().selectExpr("CAST(CAST(value AS STRING) AS BINARY) AS value")
    with pytest.raises(Exception, match=r"AvailableNow if another source of the query does not support that trigger"):
        beside.run(beside.load().select("value").union(rate), availableNow=True)
    put(topic, range(4))
    assert stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="1").run(once=True) == [4]


def test_starting_and_stopping_on_a_topic_without_records(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(2)
    query = stream(subscribe=topic)
    for _ in range(2):
        running = query.start()
        query.wait(lambda: query.committed >= 0, "the first batch")
        # The second time this is reported before the query has started, and Spark may fail if stopped while it starts.
        query.wait(lambda: running.status["message"] == "Waiting for data to arrive", "idleness")  # noqa: B023
        query.stop()
    put(topic, [1])
    assert query.run() == [1]


@pytest.mark.parametrize("start", ["latest", "timestamp", "earliest"])
def test_a_driver_that_died_in_its_first_batch(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, start: str
) -> None:
    topic = make_topic()
    put(topic, ["old"], timestamp=1_700_000_000_000)
    options = {"startingTimestamp": "1700000001000", "startingOffsetsByTimestampStrategy": "latest"}
    query = stream(subscribe=topic, **(options if start == "timestamp" else {"startingOffsets": start}))
    first = query.run(once=True) if start == "earliest" else query.run()
    assert first == ([1] if start == "earliest" else [0])
    query.undo_commit()
    put(topic, ["while it was dead"])
    query.run()
    assert query.values == (["old"] if start == "earliest" else []) + ["while it was dead"]


def test_bad_options_are_rejected(stream: Callable[..., Stream]) -> None:
    for options, message in [
        ({"subscribe": "t", "endingOffsets": "latest"}, "endingOffsets cannot be used here: a stream has no end"),
        ({"subscribe": "t", "endingOffsetsByTimestamp": "{}"}, "endingOffsetsByTimestamp cannot be used here"),
        ({}, "exactly one of the options"),
        ({"subscribe": "t", "assign": "{}"}, "exactly one of the options"),
        ({"assign": ""}, "assign must be"),
        ({"subscribe": ""}, "subscribe must be"),
        ({"subscribePattern": ""}, "the pattern is empty"),
        ({"subscribe": "t", "minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"}, "must be less than or equal"),
        ({"subscribe": "t", "minPartitions": "0"}, "minPartitions must be"),
        ({"subscribe": "t", "kafka_auto_offset_reset": "none"}, r"auto\.offset\.reset"),
        ({"subscribe": "t", "kafka_value_deserializer": "x"}, r"value\.deserializer"),
    ]:
        with pytest.raises(Exception, match=message):
            stream(**options).run()
