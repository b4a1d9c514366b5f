"""Where continuous queries start and resume: the cases of Spark's ``KafkaSourceSuiteBase``."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.integration.continuous.continuous_queries import LONG_LEASE, STOP_TIMEOUT, await_failure
from tests.integration.topics import Admin

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conftest import MakeTopic
    from tests.integration.continuous.continuous_queries import Queries
    from tests.integration.workbench import Workbench

STRATEGIES = ("assign", "subscribe", "subscribePattern")

# Any two values are together in one of these cases; make soak-short runs the others.
PAIRS = {
    ("assign", "latest", True),
    ("assign", "earliest", False),
    ("subscribe", "latest", False),
    ("subscribe", "earliest", True),
    ("subscribePattern", "latest", True),
    ("subscribePattern", "earliest", False),
}


def with_timestamps(strategies: Sequence[str]) -> pytest.MarkDecorator:
    """Parametrize with each strategy and each form of timestamps; in ``make test``, each strategy has one form."""
    return pytest.mark.parametrize(
        ("strategy", "one_for_all"),
        [
            pytest.param(
                strategy,
                one_for_all,
                id=f"{strategy}-{'one for all' if one_for_all else 'by partition'}",
                marks=() if one_for_all == (strategy == "subscribe") else pytest.mark.soak,
            )
            for strategy in strategies
            for one_for_all in (False, True)
        ],
    )


def selection_options(strategy: str, topic: str, partitions: int) -> dict[str, object]:
    if strategy == "assign":
        return {"assign": json.dumps({topic: list(range(partitions))})}
    return {strategy: topic if strategy == "subscribe" else f"^{re.escape(topic)}$"}


@pytest.mark.parametrize(
    ("strategy", "start", "fail_on_data_loss"),
    [
        pytest.param(
            strategy,
            start,
            strict,
            id=f"{strategy}-{start}-{'strict' if strict else 'lenient'}",
            marks=() if (strategy, start, strict) in PAIRS else pytest.mark.soak,
        )
        for strategy in STRATEGIES
        for start in ("latest", "earliest")
        for strict in (True, False)
    ],
)
def test_from_earliest_or_latest(
    queries: Queries, make_topic: MakeTopic, strategy: str, start: str, fail_on_data_loss: bool
) -> None:
    """Records before the start, while the query runs, while it is stopped, and in new partitions (except assign)."""
    topic, output = make_topic(5), make_topic()
    queries.put(topic, range(-10, 0))
    written = list(range(-10, 0)) if start == "earliest" else []
    input_query = queries.read(
        **selection_options(strategy, topic, 5), startingOffsets=start, failOnDataLoss=fail_on_data_loss
    ).select("value")

    def put(numbers: range) -> None:
        queries.put(topic, numbers)
        written.extend(numbers)

    query = queries.start(input_query.to_kafka(output), tasksMax=2)
    query.processAllAvailable()
    put(range(10))
    queries.expect(output, written, query)
    query.stop()
    put(range(10, 20))
    query = queries.start(input_query.to_kafka(output), tasksMax=2)
    queries.expect(output, written, query)
    if strategy != "assign":
        Admin(queries.bench.bootstrap_servers).grow(topic, 7)
        put(range(20, 40))
        queries.expect(output, written, query)
        assert query.isActive


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_from_offsets(queries: Queries, make_topic: MakeTopic, strategy: str) -> None:
    topic, output = make_topic(5), make_topic()
    for partition in range(5):
        queries.put(topic, [f"{partition}-{number}" for number in range(3)], partition)
    starts = json.dumps({topic: {"0": -2, "1": -1, "2": 0, "3": 1, "4": 2}})
    input_query = queries.read(**selection_options(strategy, topic, 5), startingOffsets=starts).select("value")
    query = queries.start(input_query.to_kafka(output), tasksMax=2)
    expected = ["0-0", "0-1", "0-2", "2-0", "2-1", "2-2", "3-1", "3-2", "4-2"]
    queries.expect(output, expected, query)
    query.processAllAvailable()
    query.stop()
    queries.put(topic, ["more"], 1)
    queries.expect(output, [*expected, "more"], queries.start(input_query.to_kafka(output), tasksMax=2))


@with_timestamps(STRATEGIES)
def test_from_timestamps(queries: Queries, make_topic: MakeTopic, strategy: str, one_for_all: bool) -> None:
    topic, output = make_topic(2), make_topic()
    for partition in range(2):
        for timestamp in (1_000_000, 2_000_000):
            queries.bench.write(topic)  # separates the timestamps
            put_at(queries.bench, topic, partition, timestamp)
    chosen: dict[str, object] = (
        {"startingTimestamp": 1_500_000}
        if one_for_all
        else {"startingOffsetsByTimestamp": json.dumps({topic: {"0": 1_500_000, "1": 1_000_000}})}
    )
    input_query = queries.read(**selection_options(strategy, topic, 2), **chosen).select("value")
    expected = ["0@2000000", "1@2000000"] + ([] if one_for_all else ["1@1000000"])
    query = queries.start(input_query.to_kafka(output))
    queries.expect(output, expected, query)
    query.processAllAvailable()
    query.stop()
    queries.put(topic, ["more"], 1)
    queries.expect(output, [*expected, "more"], queries.start(input_query.to_kafka(output)))


def put_at(bench: Workbench, topic: str, partition: int, timestamp: int) -> None:
    producer = Producer({"bootstrap.servers": bench.bootstrap_servers, "log_level": 0})
    producer.produce(topic, f"{partition}@{timestamp}".encode(), partition=partition, timestamp=timestamp)
    assert producer.flush(300) == 0


@with_timestamps(["subscribe", "subscribePattern"])
def test_a_timestamp_after_the_last_record(
    queries: Queries, make_topic: MakeTopic, strategy: str, one_for_all: bool
) -> None:
    topic, output = make_topic(2), make_topic()
    put_at(queries.bench, topic, 0, 2_000_000)
    put_at(queries.bench, topic, 1, 1_000_000)
    chosen: dict[str, object] = (
        {"startingTimestamp": 1_500_000}
        if one_for_all
        else {"startingOffsetsByTimestamp": json.dumps({topic: {"0": 1_500_000, "1": 1_500_000}})}
    )
    selected = selection_options(strategy, topic, 2)
    for number, strict in enumerate(({}, {"startingOffsetsByTimestampStrategy": "error"})):
        rejected = queries.start(queries.read(**selected, **chosen, **strict).to_kafka(output), str(number))
        assert isinstance(await_failure(rejected), InvalidOffsetsError)
    lenient = queries.read(**selected, **chosen, startingOffsetsByTimestampStrategy="latest").select("value")
    query = queries.start(lenient.to_kafka(output), "lenient")
    queries.expect(output, ["0@2000000"], query)
    queries.put(topic, ["more"], 1)
    queries.expect(output, ["0@2000000", "more"], query)


def test_one_for_all_topics_by_name(queries: Queries, make_topic: MakeTopic) -> None:
    one, two, output = make_topic(), make_topic(), make_topic()
    queries.put(one, ["one"])
    queries.put(two, ["two"])
    starts = json.dumps({one: "earliest", two: "latest"})
    input_query = queries.read(subscribe=f"{one},{two}", startingOffsets=starts).select("value")
    query = queries.start(input_query.to_kafka(output))
    queries.expect(output, ["one"], query)
    query.processAllAvailable()
    query.stop()
    queries.put(two, ["more"])
    queries.expect(output, ["one", "more"], queries.start(input_query.to_kafka(output)))


def test_starting_offsets_without_all_partitions(queries: Queries, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    input_query = queries.read(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 5}}))
    assert isinstance(await_failure(queries.start(input_query.to_kafka(make_topic()))), InvalidOffsetsError)


def test_latest_is_determined_when_the_query_is_new(queries: Queries, make_topic: MakeTopic) -> None:
    """A query that is stopped before the first record reads the records that arrive meanwhile."""
    topic, output = make_topic(), make_topic()
    queries.put(topic, ["before"])
    input_query = queries.read(subscribe=topic, startingOffsets="latest").select("value")
    query = queries.start(input_query.to_kafka(output))
    query.processAllAvailable()
    query.stop()
    queries.put(topic, ["while it was stopped"])
    queries.expect(output, ["while it was stopped"], queries.start(input_query.to_kafka(output)))


def test_an_immediate_stop(queries: Queries, make_topic: MakeTopic) -> None:
    """A query that is stopped while it starts ends soon, and its checkpoint remains usable."""
    topic, output = make_topic(), make_topic()
    queries.put(topic, range(3))
    for pause in (0, 0.05, 0.2, 0.5):
        query = queries.copy(topic, output, heartbeatTimeout=LONG_LEASE)
        time.sleep(pause)
        stopped_at = time.monotonic()
        query.stop()
        assert time.monotonic() - stopped_at < STOP_TIMEOUT
        assert query.exception() is None
    query = queries.copy(topic, output)
    query.processAllAvailable()
    queries.expect(output, range(3), query)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets cannot be used here"),
        ({"endingOffsetsByTimestamp": "{}"}, "endingOffsetsByTimestamp cannot be used here"),
        ({}, "exactly one of the options assign, subscribe, subscribePattern"),
        ({"assign": "{}", "subscribe": "t"}, "exactly one of the options assign, subscribe, subscribePattern"),
        ({"assign": ""}, "assign"),
        ({"subscribe": ""}, "subscribe"),
        ({"subscribePattern": ""}, "subscribePattern"),
        ({"subscribe": "t", "kafka.auto.offset.reset": "earliest"}, "set startingOffsets"),
        ({"subscribe": "t", "kafka.enable.auto.commit": "true"}, "reads commit no offsets"),
        ({"subscribe": "t", "kafka.interceptor.classes": "x"}, "interceptors"),
        ({"subscribe": "t", "kafka.key.deserializer": "x"}, "decode them in the query's function"),
        ({"subscribe": "t", "kafka.value.deserializer": "x"}, "decode them in the query's function"),
        ({"subscribe": "t", "startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
    ],
)
def test_invalid_options(queries: Queries, options: dict[str, object], message: str) -> None:
    from pyspark_kafka_direct.continuous import continuous_query

    with pytest.raises(OptionError, match=re.escape(message)):
        continuous_query(queries.spark).read({"kafka.bootstrap.servers": "localhost:9092", **options})
