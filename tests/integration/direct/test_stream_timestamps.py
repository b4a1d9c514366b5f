"""Streams that start at a timestamp."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.streaming import StreamingContext
from tests.integration.direct.streaming_contexts import BatchResults, streaming

from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies, OffsetRange, TopicPartition
from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import DirectKafkaInputDStream, KafkaRDD

START = 1_700_000_000_000


def stream_from(
    ssc: StreamingContext, kafka: EmbeddedKafka, topic: str, offsets: Any = None, **start: Any
) -> DirectKafkaInputDStream:
    params = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic, **start}
    strategy = ConsumerStrategies.Subscribe([topic], params, offsets)
    return KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent(), strategy)


def put_by_time(put: Any, topic: str) -> None:
    """Ten records in each of two partitions, a second apart; those of partition 1 start 5 seconds later."""
    for partition in range(2):
        for number in range(10):
            put(topic, [number], partition=partition, timestamp=START + 1000 * (number + 5 * partition))


def test_a_stream_starts_at_a_timestamp(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(2)
    put_by_time(put, topic)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with streaming(spark.sparkContext, 0.5) as ssc:
        stream = stream_from(ssc, kafka, topic, startingTimestamp=START + 6500)
        assert stream.currentOffsets() == {first: 7, second: 2}
        by_partition = json.dumps({topic: {"0": START, "1": START + 14000}})
        assert stream_from(ssc, kafka, topic, startingOffsetsByTimestamp=by_partition).currentOffsets() == {
            first: 0,
            second: 9,
        }
        given = stream_from(ssc, kafka, topic, {first: 4}, startingTimestamp=START + 6500)
        assert given.currentOffsets() == {first: 4, second: 2}
        batches = BatchResults()
        stream.foreachRDD(
            lambda rdd: batches.add(rdd.map(lambda record: (record.partition, int(record.value))).collect())
        )
        ssc.start()
        batches.wait_for_elements(11)
        batches.wait_for_more(2)
        assert sorted(batches.flat) == [(0, number) for number in range(7, 10)] + [
            (1, number) for number in range(2, 10)
        ]


def test_a_timestamp_takes_precedence_over_committed_offsets(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic()
    put(topic, range(4), timestamp=START)
    with streaming(spark.sparkContext, 1) as ssc:
        stream = stream_from(ssc, kafka, topic, **{"auto.offset.reset": "earliest"})
        stream.commitSync([OffsetRange(topic, 0, 0, 3)])
        assert stream_from(ssc, kafka, topic).currentOffsets() == {TopicPartition(topic, 0): 3}
        assert stream_from(ssc, kafka, topic, startingTimestamp=0).currentOffsets() == {TopicPartition(topic, 0): 0}


def test_invalid_starts_are_rejected_before_the_context_starts(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(2)
    put_by_time(put, topic)
    with streaming(spark.sparkContext, 1) as ssc:
        with pytest.raises(OptionError, match="startingTimestamp must be one timestamp"):
            stream_from(ssc, kafka, topic, startingTimestamp="yesterday")
        with pytest.raises(InvalidOffsetsError, match=f"no record has timestamp .* or a later one in {topic}-0"):
            stream_from(ssc, kafka, topic, startingTimestamp=START + 12000)
        with pytest.raises(InvalidOffsetsError, match=f"must name exactly the assigned .* missing: {topic}-1"):
            stream_from(ssc, kafka, topic, startingOffsetsByTimestamp=json.dumps({topic: {"0": START}}))
        at_end = stream_from(
            ssc, kafka, topic, startingTimestamp=START + 12000, startingOffsetsByTimestampStrategy="latest"
        )
        assert at_end.currentOffsets() == {TopicPartition(topic, 0): 10, TopicPartition(topic, 1): 7}


RESULTS = BatchResults()


def store_values(rdd: KafkaRDD) -> None:
    """Pickled by reference in the checkpoint, so it is the same function after a restart in this process."""
    RESULTS.add(rdd.map(lambda record: int(record.value)).collect())


def test_a_restored_stream_resumes_at_its_recorded_offsets(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any, tmp_path: Path
) -> None:
    topic = make_topic()
    put(topic, range(10), timestamp=START)
    put(topic, range(10, 13), timestamp=START + 1000)

    def create() -> StreamingContext:
        ssc = StreamingContext(spark.sparkContext, 1)
        stream_from(ssc, kafka, topic, startingTimestamp=START + 500).foreachRDD(store_values)
        return ssc

    for last in (12, 13):
        ssc = StreamingContext.getOrCreate(str(tmp_path), create)
        ssc.start()
        try:
            RESULTS.wait(lambda results, last=last: any(last in values for values in results))  # type: ignore[misc]
            RESULTS.wait_for_more(3)
        finally:
            ssc.stop(stopSparkContext=False, stopGraceFully=True)
        put(topic, [last + 1], timestamp=START)  # older than the starting timestamp
    assert sorted(RESULTS.flat) == [10, 11, 12, 13]
