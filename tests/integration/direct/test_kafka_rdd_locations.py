"""Preferred hosts of KafkaRDD's tasks, on clusters whose executors are separate processes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.integration.standalone import PACKAGE, SMALL_EXECUTORS, standalone_cluster

from pyspark_kafka_direct.direct import KafkaUtils, LocationStrategies, OffsetRange, TopicPartition
from pyspark_kafka_direct.direct.location_strategies import list_executors, preferred_location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark import SparkContext

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import KafkaRDD, LocationStrategy

pytestmark = pytest.mark.spark_app

PARTITIONS = 8
BROKER_HOST = "127.0.0.1"
HOSTS = (BROKER_HOST, "127.0.0.2")
# Long enough that no task runs elsewhere because its executor is busy.
LONG_LOCALITY_WAIT = {"spark.executorEnv.PYTHONPATH": str(PACKAGE.parent), "spark.locality.wait": "60s"}


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka, make_topic: Callable[..., str]) -> str:
    name = make_topic(partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(PARTITIONS):
        producer.produce(name, b"%d" % number, partition=number)
    assert producer.flush(30) == 0
    return name


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone master with two workers, one of them on the broker's host."""
    with standalone_cluster(tmp_path_factory.mktemp("standalone"), HOSTS) as url:
        yield url


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


def test_local_mode_has_no_preference(make_spark: Any, kafka: EmbeddedKafka, topic: str) -> None:
    sc = make_spark().sparkContext
    assert list_executors(sc) == []
    rdd = rdd_of(sc, kafka, topic, LocationStrategies.PreferConsistent)
    assert preferred(rdd) == [""] * PARTITIONS
    assert len(locations(rdd)) == PARTITIONS


def test_consistent_on_a_local_cluster(make_spark: Any, kafka: EmbeddedKafka, topic: str) -> None:
    sc = make_spark(LONG_LOCALITY_WAIT, master="local-cluster[2,1,1024]").sparkContext
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


def test_fixed_and_brokers_on_two_workers(make_spark: Any, kafka: EmbeddedKafka, topic: str, two_hosts: str) -> None:
    sc = make_spark({**SMALL_EXECUTORS, **LONG_LOCALITY_WAIT}, master=two_hosts).sparkContext
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
    deadline = time.monotonic() + 120
    while len(executors := list_executors(sc)) < count:
        assert time.monotonic() < deadline, executors
        time.sleep(0.1)
    return executors
