"""Backpressure and rate limits of a running stream."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.streaming import StreamingContext
from tests.integration.direct.streaming_contexts import BatchResults, direct_stream, streaming
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
    from pyspark_kafka_direct.direct import DirectKafkaInputDStream, KafkaRDD, TopicPartition

    Put = Callable[..., None]

SECONDS = 0.5
INITIAL_RATE = 400
MIN_RATE = 10
RECORD_COUNT = 30_000

# The batch sizes for functions that are pickled into a checkpoint, which cannot hold the object themselves.
CHECKPOINTED_SIZES = BatchResults()


@pytest.fixture(scope="module")
def limited(make_spark: SparkSessions) -> SparkSession:
    backpressure = "spark.streaming.backpressure."
    return make_spark(
        {
            backpressure + "enabled": "true",
            backpressure + "initialRate": str(INITIAL_RATE),
            backpressure + "pid.minRate": str(MIN_RATE),
        }
    )


class ConstantRateEstimator(PIDRateEstimator):
    """Returns a rate that the test sets."""

    rate = 100.0

    def compute(self, *_: Any) -> float:
        return self.rate


def offset_count(rdd: KafkaRDD) -> int:
    return sum(each.count() for each in rdd.offsetRanges())


def store_size(rdd: KafkaRDD) -> None:
    CHECKPOINTED_SIZES.add(offset_count(rdd))


def with_constant_rate(stream: DirectKafkaInputDStream) -> ConstantRateEstimator:
    """Replace the estimator by a constant rate, as in Spark's test suite."""
    controller = stream._stream.controller
    assert controller is not None
    constant = controller._estimator = ConstantRateEstimator(1000 * SECONDS)
    return constant


def test_batches_follow_the_rate_of_the_controller(
    limited: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic()
    put(topic, range(RECORD_COUNT))
    sizes = BatchResults()
    with streaming(limited.sparkContext, SECONDS) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        constant = with_constant_rate(stream)
        stream.foreachRDD(lambda rdd: sizes.add(offset_count(rdd)))
        ssc.start()
        assert sizes.wait_for_more()[0] == INITIAL_RATE * SECONDS
        for rate in (100, 50, 20):
            constant.rate = rate
            sizes.wait(partial(_ends_with, [rate * SECONDS] * 2))


def test_slow_processing_reduces_batches_to_the_interval(
    limited: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic, per_second = make_topic(2), 100
    put(topic, range(RECORD_COUNT))
    sizes = BatchResults()

    def handle(rdd: KafkaRDD) -> None:
        size = offset_count(rdd)
        time.sleep(size / per_second)  # slow processing
        sizes.add(size)

    with streaming(limited.sparkContext, SECONDS) as ssc:
        direct_stream(ssc, kafka.bootstrap_servers, topic, None).foreachRDD(handle)
        ssc.start()
        assert sizes.wait_for_more()[0] == INITIAL_RATE * SECONDS
        # 50 records can be processed per interval. The controller reduces the batches from 200 records to that, but not
        # to its minimum rate, at which it would stay if it was stuck.
        fits = range(int(4 * MIN_RATE * SECONDS), int(per_second * SECONDS) + 1)
        sizes.wait(lambda results: all(size in fits for size in results[-3:]) and len(results) > 4)


def test_the_rate_survives_a_restart(
    limited: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put, tmp_path: Path
) -> None:
    topic, rate = make_topic(), 60
    put(topic, range(RECORD_COUNT))
    with streaming(limited.sparkContext, SECONDS, str(tmp_path)) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        with_constant_rate(stream).rate = rate
        stream.foreachRDD(store_size)
        ssc.start()
        CHECKPOINTED_SIZES.wait(partial(_ends_with, [rate * SECONDS] * 2))
        ssc.stop(stopSparkContext=False, stopGraceFully=True)
    before = len(CHECKPOINTED_SIZES.all)
    restored = StreamingContext.getOrCreate(str(tmp_path), lambda: pytest.fail("there is no checkpoint"))
    try:
        restored.start()
        sizes = CHECKPOINTED_SIZES.wait_for_more(2)[before:]
    finally:
        restored.stop(stopSparkContext=False, stopGraceFully=False)
    assert INITIAL_RATE * SECONDS not in sizes, "the rate was lost"
    assert rate * SECONDS in sizes


class FiveAndTen(PerPartitionConfig):
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        return (5, 10)[topicPartition.partition] / SECONDS


def test_a_limit_for_each_partition(
    limited: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic(2)
    put(topic, range(200))
    sizes = BatchResults()
    with streaming(limited.sparkContext, SECONDS) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None, perPartitionConfig=FiveAndTen())
        stream.foreachRDD(lambda rdd: sizes.add([each.count() for each in rdd.offsetRanges()]))
        ssc.start()
        assert sizes.wait_for_more(2)[:2] == [[5, 10]] * 2


def test_a_limit_does_not_apply_to_expired_offsets(
    limited: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic(2)
    put(topic, range(200))
    batches = BatchResults()
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
                    reported_count(ssc, time),
                )
            )
        )
        Admin(kafka.bootstrap_servers).delete_records(topic, 93)
        ssc.start()
        first_batches = batches.wait_for_more(2)
    assert first_batches[0] == ([(0, 98), (0, 10)], 15, 15), "the expired offsets are in the range, but are not counted"
    assert first_batches[1] == ([(98, 100), (10, 20)], 12, 12)


def reported_count(ssc: StreamingContext, time: datetime) -> int:
    """The record count of the batch that was reported to Spark."""
    tracker = ssc._jssc.ssc().scheduler().inputInfoTracker()
    at = ssc._jvm.org.apache.spark.streaming.Time(round(time.timestamp() * 1000))  # type: ignore[union-attr]
    infos = tracker.getInfo(at).values().iterator()
    return int(infos.next().numRecords())


def _ends_with(expected: list[float], results: list[float]) -> bool:
    return results[-len(expected) :] == expected
