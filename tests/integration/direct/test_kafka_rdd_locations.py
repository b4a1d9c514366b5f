"""Preferred hosts of KafkaRDD's tasks, on clusters whose executors are separate processes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.integration.standalone import HOSTS

from pyspark_kafka_direct.direct import KafkaUtils, LocationStrategies, OffsetRange, TopicPartition
from pyspark_kafka_direct.direct.location_strategies import list_executors, preferred_location

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import KafkaRDD, LocationStrategy

PARTITIONS = 8
BROKER_HOST = HOSTS[0]


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka, make_topic: Callable[..., str]) -> str:
    name = make_topic(partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(PARTITIONS):
        producer.produce(name, b"%d" % number, partition=number)
    assert producer.flush(300) == 0
    return name


def rdd_of(sc: SparkContext, kafka: EmbeddedKafka, topic: str, strategy: LocationStrategy) -> KafkaRDD:
    ranges = [OffsetRange(topic, number, 0, 1) for number in range(PARTITIONS)]
    return KafkaUtils.createRDD(sc, {"bootstrap.servers": kafka.bootstrap_servers}, ranges, strategy)


def preferred(rdd: KafkaRDD) -> list[str]:
    """The preferred locations of the partitions in Spark's scheduler."""
    task_rdd: Any = rdd._tasks._jrdd.rdd()  # the parent in which Spark's scheduler finds them
    return [task_rdd.preferredLocations(partition).mkString(",") for partition in task_rdd.partitions()]


def locations(rdd: KafkaRDD) -> dict[int, tuple[str, str]]:
    """The host and the executor of each task, by Kafka partition."""

    def location(records: Any) -> Any:
        import os

        # The work directory of an executor ends with its id.
        for record in records:
            yield record.partition, (os.environ["SPARK_LOCAL_IP"], os.getcwd().rsplit("/", 1)[-1])

    return dict(rdd.mapPartitions(location).collect())


def test_local_mode_has_no_preference(spark: SparkSession, kafka: EmbeddedKafka, topic: str) -> None:
    sc = spark.sparkContext
    assert list_executors(sc) == []
    rdd = rdd_of(sc, kafka, topic, LocationStrategies.PreferConsistent)
    assert preferred(rdd) == [""] * PARTITIONS
    assert len(locations(rdd)) == PARTITIONS


@pytest.mark.spark_app
def test_consistent_on_two_workers(two_executors: SparkSession, kafka: EmbeddedKafka, topic: str) -> None:
    sc = two_executors.sparkContext
    executors = wait_for_executors(sc, 2)
    expected = {
        number: preferred_location(TopicPartition(topic, number), executors, {}) for number in range(PARTITIONS)
    }
    rdd = rdd_of(sc, kafka, topic, LocationStrategies.PreferConsistent)
    assert preferred(rdd) == list(expected.values())
    assert set(expected.values()) == {executor.location for executor in executors}  # both executors have tasks
    actual = locations(rdd)
    assert {number: executor for number, (_, executor) in actual.items()} == {
        number: str(location).rsplit("_", 1)[-1] for number, location in expected.items()
    }
    assert (
        locations(rdd_of(sc, kafka, topic, LocationStrategies.PreferConsistent)) == actual
    )  # and the same for the next RDD
    assert sorted(int(record.value) for record in rdd.collect()) == list(range(PARTITIONS))


@pytest.mark.spark_app
def test_fixed_and_brokers_on_two_workers(two_executors: SparkSession, kafka: EmbeddedKafka, topic: str) -> None:
    sc = two_executors.sparkContext
    wait_for_executors(sc, 2)
    hosts = {number: HOSTS[number < 3] for number in range(PARTITIONS)}
    fixed = LocationStrategies.PreferFixed({TopicPartition(topic, number): host for number, host in hosts.items()})
    actual = locations(rdd_of(sc, kafka, topic, fixed))
    assert {number: host for number, (host, _) in actual.items()} == hosts

    consistent = rdd_of(sc, kafka, topic, LocationStrategies.PreferConsistent)
    assert {host for host, _ in locations(consistent).values()} == set(HOSTS)
    elsewhere = LocationStrategies.PreferFixed({TopicPartition(topic, 0): "no-such-host"})
    assert preferred(rdd_of(sc, kafka, topic, elsewhere)) == preferred(consistent)

    brokers = rdd_of(sc, kafka, topic, LocationStrategies.PreferBrokers)
    assert {host for host, _ in locations(brokers).values()} == {BROKER_HOST}


def wait_for_executors(sc: SparkContext, count: int) -> list[Any]:
    deadline = time.monotonic() + 600
    while len(executors := list_executors(sc)) < count:
        assert time.monotonic() < deadline, executors
        time.sleep(0.1)
    return executors
