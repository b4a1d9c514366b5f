"""Preferred hosts of KafkaRDD's tasks, on clusters whose executors are processes of their own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.integration.standalone import PACKAGE, SMALL, standalone_cluster

from pyspark_kafka_direct.direct import KafkaUtils, LocationStrategies, OffsetRange, TopicPartition
from pyspark_kafka_direct.direct._placement import executors_of, place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark import SparkContext

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import KafkaRDD, LocationStrategy

pytestmark = pytest.mark.spark_app

PARTITIONS = 8
BROKER_HOST = "127.0.0.1"
HOSTS = (BROKER_HOST, "127.0.0.2")
# Long enough that no task runs elsewhere only because its executor is busy.
PATIENT = {"spark.executorEnv.PYTHONPATH": str(PACKAGE.parent), "spark.locality.wait": "60s"}


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
    """What Spark's scheduler is told, partition by partition."""
    java: Any = rdd._tasks._jrdd.rdd()  # Spark's scheduler goes down to it from there
    return [java.preferredLocations(partition).mkString(",") for partition in java.partitions()]


def places(rdd: KafkaRDD) -> dict[int, tuple[str, str]]:
    """Where the tasks ran: host and executor by Kafka partition."""

    def look(records: Any) -> Any:
        import os

        # The work directory of an executor ends with its id.
        for record in records:
            yield record.partition, (os.environ["SPARK_LOCAL_IP"], os.getcwd().rsplit("/", 1)[-1])

    return dict(rdd.mapPartitions(look).collect())


def test_local_mode_has_no_preference(make_spark: Any, kafka: EmbeddedKafka, topic: str) -> None:
    sc = make_spark().sparkContext
    assert executors_of(sc) == []
    rdd = rdd_of(sc, kafka, topic, LocationStrategies.PreferConsistent)
    assert preferred(rdd) == [""] * PARTITIONS
    assert len(places(rdd)) == PARTITIONS


def test_consistent_on_a_local_cluster(make_spark: Any, kafka: EmbeddedKafka, topic: str) -> None:
    sc = make_spark(PATIENT, master="local-cluster[2,1,1024]").sparkContext
    executors = wait_for_executors(sc, 2)
    wanted = {number: place(TopicPartition(topic, number), executors, {}) for number in range(PARTITIONS)}
    rdd = rdd_of(sc, kafka, topic, LocationStrategies.PreferConsistent)
    assert preferred(rdd) == list(wanted.values())
    assert set(wanted.values()) == {executor.location for executor in executors}  # both have work
    ran = places(rdd)
    assert {number: executor for number, (_, executor) in ran.items()} == {
        number: str(location).rsplit("_", 1)[-1] for number, location in wanted.items()
    }
    assert places(rdd_of(sc, kafka, topic, LocationStrategies.PreferConsistent)) == ran  # and the next batch as well
    assert sorted(int(record.value) for record in rdd.collect()) == list(range(PARTITIONS))


def test_fixed_and_brokers_on_two_workers(make_spark: Any, kafka: EmbeddedKafka, topic: str, two_hosts: str) -> None:
    sc = make_spark({**SMALL, **PATIENT}, master=two_hosts).sparkContext
    wait_for_executors(sc, 2)
    hosts = {number: HOSTS[number < 3] for number in range(PARTITIONS)}
    fixed = LocationStrategies.PreferFixed({TopicPartition(topic, number): host for number, host in hosts.items()})
    ran = places(rdd_of(sc, kafka, topic, fixed))
    assert {number: host for number, (host, _) in ran.items()} == hosts

    consistent = rdd_of(sc, kafka, topic, LocationStrategies.PreferConsistent)
    assert {host for host, _ in places(consistent).values()} == set(HOSTS)
    elsewhere = LocationStrategies.PreferFixed({TopicPartition(topic, 0): "no-such-host"})
    assert preferred(rdd_of(sc, kafka, topic, elsewhere)) == preferred(consistent)

    brokers = rdd_of(sc, kafka, topic, LocationStrategies.PreferBrokers)
    assert {host for host, _ in places(brokers).values()} == {BROKER_HOST}


def wait_for_executors(sc: SparkContext, count: int) -> list[Any]:
    deadline = time.monotonic() + 120
    while len(found := executors_of(sc)) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found
