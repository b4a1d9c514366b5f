"""Backpressure and limits of a running stream: Spark tells how long batches took, and the next ones follow."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.streaming import StreamingContext
from tests.integration.direct.running import Seen, direct_stream, streaming
from tests.integration.topics import Admin

from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies, PerPartitionConfig
from pyspark_kafka_direct.planning.backpressure import PIDRateEstimator

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.sessions import SparkSessions

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import DirectKafkaDStream, KafkaRDD, TopicPartition

    Put = Callable[..., None]

SECONDS = 0.5
INITIAL_RATE = 400
LEAST_RATE = 10
LOTS = 30_000

SIZES = Seen()
"""Of each batch, for functions that go through a checkpoint: they cannot hold it themselves."""


@pytest.fixture(scope="module")
def limited(make_spark: SparkSessions) -> SparkSession:
    backpressure = "spark.streaming.backpressure."
    return make_spark(
        {
            backpressure + "enabled": "true",
            backpressure + "initialRate": str(INITIAL_RATE),
            backpressure + "pid.minRate": str(LEAST_RATE),
        }
    )


class Constant(PIDRateEstimator):
    """Says what it is told to."""

    rate = 100.0

    def compute(self, *_: Any) -> float:
        return self.rate


def records(rdd: KafkaRDD) -> int:
    return sum(each.count() for each in rdd.offsetRanges())


def note_size(rdd: KafkaRDD) -> None:
    SIZES.add(records(rdd))


def with_constant_rate(stream: DirectKafkaDStream) -> Constant:
    """Put a constant in place of the estimator, as Spark's suite does."""
    controller = stream._carried.controller
    assert controller is not None
    constant = controller._estimator = Constant(1000 * SECONDS)
    return constant


def test_batches_follow_the_controllers_rate(
    limited: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic()
    put(topic, range(LOTS))
    sizes = Seen()
    with streaming(limited.sparkContext, SECONDS) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        constant = with_constant_rate(stream)
        stream.foreachRDD(lambda rdd: sizes.add(records(rdd)))
        ssc.start()
        assert sizes.wait_for_more()[0] == INITIAL_RATE * SECONDS
        for rate in (100, 50, 20):
            constant.rate = rate
            sizes.wait(partial(_ends_with, [rate * SECONDS] * 2))


def test_slow_processing_makes_batches_that_fit_the_interval(
    limited: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic, per_second = make_topic(2), 100
    put(topic, range(LOTS))
    sizes = Seen()

    def handle(rdd: KafkaRDD) -> None:
        size = records(rdd)
        time.sleep(size / per_second)  # work that takes its time
        sizes.add(size)

    with streaming(limited.sparkContext, SECONDS) as ssc:
        direct_stream(ssc, kafka.bootstrap_servers, topic, None).foreachRDD(handle)
        ssc.start()
        assert sizes.wait_for_more()[0] == INITIAL_RATE * SECONDS
        # What can be done in an interval is 50 records, and the controller comes down to it from 200; not to its least
        # rate, at which it stays if it is stuck.
        fits = range(int(4 * LEAST_RATE * SECONDS), int(per_second * SECONDS) + 1)
        sizes.wait(lambda seen: all(size in fits for size in seen[-3:]) and len(seen) > 4)


def test_the_rate_survives_a_restart(
    limited: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put, tmp_path: Path
) -> None:
    topic, rate = make_topic(), 60
    put(topic, range(LOTS))
    with streaming(limited.sparkContext, SECONDS, str(tmp_path)) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        with_constant_rate(stream).rate = rate
        stream.foreachRDD(note_size)
        ssc.start()
        SIZES.wait(partial(_ends_with, [rate * SECONDS] * 2))
        ssc.stop(stopSparkContext=False, stopGraceFully=True)
    before = len(SIZES.all)
    again = StreamingContext.getOrCreate(str(tmp_path), lambda: pytest.fail("there is no checkpoint"))
    try:
        again.start()
        sizes = SIZES.wait_for_more(2)[before:]
    finally:
        again.stop(stopSparkContext=False, stopGraceFully=False)
    assert INITIAL_RATE * SECONDS not in sizes, "it began anew"
    assert rate * SECONDS in sizes


class FiveAndTen(PerPartitionConfig):
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        return (5, 10)[topicPartition.partition] / SECONDS


def test_a_limit_for_each_partition(
    limited: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic(2)
    put(topic, range(200))
    sizes = Seen()
    with streaming(limited.sparkContext, SECONDS) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None, perPartitionConfig=FiveAndTen())
        stream.foreachRDD(lambda rdd: sizes.add([each.count() for each in rdd.offsetRanges()]))
        ssc.start()
        assert sizes.wait_for_more(2)[:2] == [[5, 10]] * 2


def test_a_limit_does_not_crawl_through_what_has_aged_out(
    limited: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic(2)
    put(topic, range(200))
    batches = Seen()
    with streaming(limited.sparkContext, SECONDS) as ssc:
        parameters = {"bootstrap.servers": kafka.bootstrap_servers, "auto.offset.reset": "earliest"}
        strategy = ConsumerStrategies.Subscribe([topic], {**parameters, "failOnDataLoss": "false"})
        stream = KafkaUtils.createDirectStream(
            ssc, LocationStrategies.PreferConsistent, strategy, perPartitionConfig=FiveAndTen()
        )
        stream.foreachRDD(
            lambda time, rdd: batches.add(
                (
                    [(each.from_offset, each.until_offset) for each in rdd.offsetRanges()],
                    rdd.count(),
                    reported(ssc, time),
                )
            )
        )
        Admin(kafka.bootstrap_servers).delete_records(topic, 93)
        ssc.start()
        seen = batches.wait_for_more(2)
    assert seen[0] == ([(0, 98), (0, 10)], 15, 15), "what is lost is within the range, and counted by nobody"
    assert seen[1] == ([(98, 100), (10, 20)], 12, 12)


def reported(ssc: StreamingContext, time: datetime) -> int:
    """How many records Spark was told that the batch has."""
    tracker = ssc._jssc.ssc().scheduler().inputInfoTracker()
    at = ssc._jvm.org.apache.spark.streaming.Time(round(time.timestamp() * 1000))  # type: ignore[union-attr]
    infos = tracker.getInfo(at).values().iterator()
    return int(infos.next().numRecords())


def _ends_with(wanted: list[float], seen: list[float]) -> bool:
    return seen[-len(wanted) :] == wanted
