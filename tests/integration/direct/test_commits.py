"""commitAsync and commitSync of a running stream, checked with the committed offsets of the group."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer
from tests.integration.direct.streaming_contexts import (
    DEADLINE,
    BatchResults,
    direct_stream,
    streaming,
)
from tests.integration.groups import groups_named_after
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies
from pyspark_kafka_direct.errors import BrokerError, OptionError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import KafkaRDD

    Put = Callable[..., None]


def committed(servers: str, group: str, *partitions: TopicPartition) -> dict[TopicPartition, int]:
    return ConsumerGroup(
        ClusterClient(parse_client_params({"bootstrap.servers": servers}).connection), group
    ).committed(partitions)


def wait_for_commit(servers: str, group: str, expected: Mapping[TopicPartition, int]) -> None:
    deadline = time.monotonic() + DEADLINE
    while (offsets := committed(servers, group, *expected)) != expected:
        assert time.monotonic() < deadline, f"{offsets}, not {expected}"
        time.sleep(0.05)


def test_a_new_stream_starts_at_the_committed_offsets_of_the_group(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic, servers = make_topic(2), kafka.bootstrap_servers
    put(topic, range(7))
    first, second, callbacks = BatchResults(), BatchResults(), BatchResults()
    with streaming(spark.sparkContext, 0.5) as ssc:
        stream = direct_stream(ssc, servers, topic, topic)

        def handle(rdd: KafkaRDD) -> None:
            first.add(rdd.map(lambda record: int(record.value)).collect())
            stream.commitAsync(rdd.offsetRanges(), lambda offsets, error: callbacks.add((offsets, error)))

        stream.foreachRDD(handle)
        ssc.start()
        ends = {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 3}
        wait_for_commit(servers, topic, ends)
    assert sorted(first.flat) == list(range(7))
    assert [error for _, error in callbacks.all if error] == []
    assert callbacks.all[-1][0] == ends
    put(topic, range(7, 10))
    with streaming(spark.sparkContext, 0.5) as ssc:
        stream = direct_stream(ssc, servers, topic, topic)
        stream.foreachRDD(lambda rdd: second.add(rdd.map(lambda record: int(record.value)).collect()))
        ssc.start()
        second.wait_for_elements(3)
        second.wait_for_more(2)
    assert sorted(second.flat) == [7, 8, 9]


def test_a_graceful_stop_commits_the_offsets_of_the_last_batch(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic()
    partition = TopicPartition(topic, 0)
    put(topic, range(5))
    batches, callbacks = BatchResults(), BatchResults()
    with streaming(spark.sparkContext, 1) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, topic)

        def handle(rdd: KafkaRDD) -> None:
            [only] = rdd.offsetRanges()
            stream.commitAsync([only], lambda offsets, error: callbacks.add((offsets[partition], error)))
            put(topic, ["one more"])  # so that every batch after the first has a new offset to commit
            batches.add(only.untilOffset)

        stream.foreachRDD(handle)
        ssc.start()
        batches.wait(lambda results: len(results) >= 2)
        ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert [error for _, error in callbacks.all if error] == []
    assert callbacks.all[-1] == (batches.all[-1], None)
    assert len(callbacks.all) == len(batches.all), "each callback was called, including that of the last batch"
    assert committed(kafka.bootstrap_servers, topic, partition) == {partition: batches.all[-1]}


def test_a_stop_that_is_not_graceful_commits_queued_offsets(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic()
    partition = TopicPartition(topic, 0)
    put(topic, range(5))
    callbacks = BatchResults()
    with streaming(spark.sparkContext, 3600) as ssc:  # the next batch, which would send the commit, is far away
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, topic)
        stream.foreachRDD(lambda rdd: None)
        ssc.start()
        stream.commitAsync([OffsetRange(topic, 0, 0, 3)], lambda offsets, error: callbacks.add((offsets, error)))
        assert committed(kafka.bootstrap_servers, topic, partition) == {}
        ssc.stop(stopSparkContext=False, stopGraceFully=False)
    assert callbacks.all == [({partition: 3}, None)]
    assert committed(kafka.bootstrap_servers, topic, partition) == {partition: 3}


def test_nothing_is_committed_automatically_and_no_group_is_created(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    """Neither by the driver nor by executors, for which Spark uses the group spark-executor-*."""
    topic = make_topic()
    put(topic, range(5))
    batches = BatchResults()
    with streaming(spark.sparkContext, 0.5) as ssc:
        parameters = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic}
        reset = {"auto.offset.reset": "earliest", "enable.auto.commit": True, "auto.commit.interval.ms": 100}
        strategy = ConsumerStrategies.Subscribe([topic], {**parameters, **reset})
        stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy)
        stream.foreachRDD(lambda rdd: batches.add(rdd.map(lambda record: record.offset).collect()))
        ssc.start()
        batches.wait_for_elements(5)
        batches.wait_for_more(2)
        ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert committed(kafka.bootstrap_servers, topic, TopicPartition(topic, 0)) == {}
    assert groups_named_after(kafka.bootstrap_servers, topic) == []
    with streaming(spark.sparkContext, 1) as ssc:
        direct_stream(ssc, kafka.bootstrap_servers, topic, topic).commitSync([OffsetRange(topic, 0, 0, 3)])
    assert groups_named_after(kafka.bootstrap_servers, topic) == [topic], "an existing group is found"


def test_commit_sync_has_committed_when_it_returns(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic()
    partition = TopicPartition(topic, 0)
    put(topic, range(5))
    offsets = BatchResults()
    with streaming(spark.sparkContext, 0.5) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, topic)

        def handle(rdd: KafkaRDD) -> None:
            stream.commitSync(rdd.offsetRanges())
            offsets.add(committed(kafka.bootstrap_servers, topic, partition))

        stream.foreachRDD(handle)
        ssc.start()
        assert offsets.wait(lambda results: len(results) >= 1)[0] == {partition: 5}


def test_a_failed_commit_is_passed_to_the_callback_and_the_stream_continues(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic()
    put(topic, range(5))
    callbacks, batches = BatchResults(), BatchResults()
    member: Any = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic})
    try:
        member.subscribe([topic])
        deadline = time.monotonic() + DEADLINE
        while not member.assignment():
            member.poll(0.1)
            assert time.monotonic() < deadline
        with streaming(spark.sparkContext, 0.5) as ssc:
            stream = direct_stream(ssc, kafka.bootstrap_servers, topic, topic)

            def handle(rdd: KafkaRDD) -> None:
                batches.add(rdd.count())
                stream.commitAsync(rdd.offsetRanges(), lambda offsets, error: callbacks.add((offsets, error)))

            stream.foreachRDD(handle)
            ssc.start()
            offsets, error = callbacks.wait(lambda results: len(results) >= 1)[0]
            batches.wait_for_more(2)
    finally:
        member.close()
    assert offsets == {TopicPartition(topic, 0): 5}
    assert isinstance(error, BrokerError)
    assert "has active members" in str(error)


def test_commits_without_a_group_are_rejected(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Put
) -> None:
    topic = make_topic()
    put(topic, range(5))
    errors = BatchResults()
    with streaming(spark.sparkContext, 0.5) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)

        def handle(rdd: KafkaRDD) -> None:
            for commit in (stream.commitAsync, stream.commitSync):
                try:
                    commit(rdd.offsetRanges())
                except OptionError as error:
                    errors.add(str(error))

        stream.foreachRDD(handle)
        ssc.start()
        messages = errors.wait(lambda results: len(results) >= 2)[:2]
    assert [message.partition(" ")[0] for message in messages] == ["commitAsync", "commitSync"]
    assert all("set group.id" in message for message in messages)
