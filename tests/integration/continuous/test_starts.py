"""Where continuous queries begin, and go on: the cases of Spark's ``KafkaSourceSuiteBase``."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.integration.continuous.queries import failure_of
from tests.integration.topics import Admin

from pyspark_kafka_direct.errors import OffsetPlanError, OptionError

if TYPE_CHECKING:
    from tests.conftest import MakeTopic
    from tests.integration.continuous.queries import Queries
    from tests.integration.workbench import Workbench

STRATEGIES = ("assign", "subscribe", "subscribePattern")


def selecting(strategy: str, topic: str, partitions: int) -> dict[str, object]:
    if strategy == "assign":
        return {"assign": json.dumps({topic: list(range(partitions))})}
    return {strategy: topic if strategy == "subscribe" else f"^{re.escape(topic)}$"}


@pytest.mark.parametrize("fail_on_data_loss", [True, False], ids=["strict", "lenient"])
@pytest.mark.parametrize("start", ["latest", "earliest"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_from_an_end(
    queries: Queries, make_topic: MakeTopic, strategy: str, start: str, fail_on_data_loss: bool
) -> None:
    """Data before, data while it runs, data while it is stopped; then more partitions, but for assign."""
    topic, output = make_topic(5), make_topic()
    queries.put(topic, range(-10, 0))
    written = list(range(-10, 0)) if start == "earliest" else []
    reading = queries.read(
        **selecting(strategy, topic, 5), startingOffsets=start, failOnDataLoss=fail_on_data_loss
    ).select("value")

    def put(numbers: range) -> None:
        queries.put(topic, numbers)
        written.extend(numbers)

    query = queries.start(reading.to_kafka(output), tasksMax=2)
    query.processAllAvailable()
    put(range(10))
    queries.expect(output, written, query)
    query.stop()
    put(range(10, 20))
    query = queries.start(reading.to_kafka(output), tasksMax=2)
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
    reading = queries.read(**selecting(strategy, topic, 5), startingOffsets=starts).select("value")
    query = queries.start(reading.to_kafka(output), tasksMax=2)
    wanted = ["0-0", "0-1", "0-2", "2-0", "2-1", "2-2", "3-1", "3-2", "4-2"]
    queries.expect(output, wanted, query)
    query.processAllAvailable()
    query.stop()
    queries.put(topic, ["more"], 1)
    queries.expect(output, [*wanted, "more"], queries.start(reading.to_kafka(output), tasksMax=2))


@pytest.mark.parametrize("whole", [False, True], ids=["by partition", "one for all"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_from_timestamps(queries: Queries, make_topic: MakeTopic, strategy: str, whole: bool) -> None:
    topic, output = make_topic(2), make_topic()
    for partition in range(2):
        for at in (1_000_000, 2_000_000):
            queries.bench.write(topic)  # a moment between
            put_at(queries.bench, topic, partition, at)
    chosen: dict[str, object] = (
        {"startingTimestamp": 1_500_000}
        if whole
        else {"startingOffsetsByTimestamp": json.dumps({topic: {"0": 1_500_000, "1": 1_000_000}})}
    )
    reading = queries.read(**selecting(strategy, topic, 2), **chosen).select("value")
    wanted = ["0@2000000", "1@2000000"] + ([] if whole else ["1@1000000"])
    query = queries.start(reading.to_kafka(output))
    queries.expect(output, wanted, query)
    query.processAllAvailable()
    query.stop()
    queries.put(topic, ["more"], 1)
    queries.expect(output, [*wanted, "more"], queries.start(reading.to_kafka(output)))


def put_at(bench: Workbench, topic: str, partition: int, at: int) -> None:
    producer = Producer({"bootstrap.servers": bench.bootstrap_servers, "log_level": 0})
    producer.produce(topic, f"{partition}@{at}".encode(), partition=partition, timestamp=at)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("whole", [False, True], ids=["by partition", "one for all"])
@pytest.mark.parametrize("strategy", ["subscribe", "subscribePattern"])
def test_a_timestamp_after_the_last_record(queries: Queries, make_topic: MakeTopic, strategy: str, whole: bool) -> None:
    topic, output = make_topic(2), make_topic()
    put_at(queries.bench, topic, 0, 2_000_000)
    put_at(queries.bench, topic, 1, 1_000_000)
    chosen: dict[str, object] = (
        {"startingTimestamp": 1_500_000}
        if whole
        else {"startingOffsetsByTimestamp": json.dumps({topic: {"0": 1_500_000, "1": 1_500_000}})}
    )
    selected = selecting(strategy, topic, 2)
    for number, strict in enumerate(({}, {"startingOffsetsByTimestampStrategy": "error"})):
        refused = queries.start(queries.read(**selected, **chosen, **strict).to_kafka(output), str(number))
        assert isinstance(failure_of(refused), OffsetPlanError)
    lenient = queries.read(**selected, **chosen, startingOffsetsByTimestampStrategy="latest").select("value")
    query = queries.start(lenient.to_kafka(output), "lenient")
    queries.expect(output, ["0@2000000"], query)
    queries.put(topic, ["more"], 1)
    queries.expect(output, ["0@2000000", "more"], query)


def test_whole_topics_by_name(queries: Queries, make_topic: MakeTopic) -> None:
    one, two, output = make_topic(), make_topic(), make_topic()
    queries.put(one, ["one"])
    queries.put(two, ["two"])
    starts = json.dumps({one: "earliest", two: "latest"})
    reading = queries.read(subscribe=f"{one},{two}", startingOffsets=starts).select("value")
    query = queries.start(reading.to_kafka(output))
    queries.expect(output, ["one"], query)
    query.processAllAvailable()
    query.stop()
    queries.put(two, ["more"])
    queries.expect(output, ["one", "more"], queries.start(reading.to_kafka(output)))


def test_a_start_that_fits_not(queries: Queries, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    reading = queries.read(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 5}}))
    assert isinstance(failure_of(queries.start(reading.to_kafka(make_topic()))), OffsetPlanError)


def test_latest_is_where_it_was_when_the_query_was_new(queries: Queries, make_topic: MakeTopic) -> None:
    """Stopped before anything came: what comes meanwhile is read."""
    topic, output = make_topic(), make_topic()
    queries.put(topic, ["before"])
    reading = queries.read(subscribe=topic, startingOffsets="latest").select("value")
    query = queries.start(reading.to_kafka(output))
    query.processAllAvailable()
    query.stop()
    queries.put(topic, ["while it was stopped"])
    queries.expect(output, ["while it was stopped"], queries.start(reading.to_kafka(output)))


def test_a_stop_at_once(queries: Queries, make_topic: MakeTopic) -> None:
    """A query that has hardly begun ends soon as well, and has done no harm to its checkpoint."""
    topic, output = make_topic(), make_topic()
    queries.put(topic, range(3))
    for pause in (0, 0.05, 0.2, 0.5):
        query = queries.copy(topic, output)
        time.sleep(pause)
        began = time.monotonic()
        query.stop()
        assert time.monotonic() - began < 5
        assert query.exception() is None
    query = queries.copy(topic, output)
    query.processAllAvailable()
    queries.expect(output, range(3), query)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets cannot be used here"),
        ({"endingOffsetsByTimestamp": "{}"}, "endingOffsetsByTimestamp cannot be used here"),
        ({}, "exactly one of the options assign, subscribe, subscribePattern"),
        ({"assign": "{}", "subscribe": "t"}, "exactly one of the options assign, subscribe, subscribePattern"),
        ({"assign": ""}, "assign"),
        ({"subscribe": ""}, "subscribe"),
        ({"subscribePattern": ""}, "subscribePattern"),
        ({"subscribe": "t", "kafka.auto.offset.reset": "earliest"}, "set startingOffsets"),
        ({"subscribe": "t", "kafka.enable.auto.commit": "true"}, "commits nothing"),
        ({"subscribe": "t", "kafka.interceptor.classes": "x"}, "interceptors"),
        ({"subscribe": "t", "kafka.key.deserializer": "x"}, "decode them in the query's function"),
        ({"subscribe": "t", "kafka.value.deserializer": "x"}, "decode them in the query's function"),
        ({"subscribe": "t", "startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
    ],
)
def test_options_that_cannot_be_used(queries: Queries, options: dict[str, object], says: str) -> None:
    from pyspark_kafka_direct.continuous import continuous_query

    with pytest.raises(OptionError, match=re.escape(says)):
        continuous_query(queries.spark).read({"kafka.bootstrap.servers": "localhost:9092", **options})
