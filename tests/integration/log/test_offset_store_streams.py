"""The offset store and direct streams: what Spark does after a batch that failed, and where a stream begins."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.direct.running import Seen, streaming
from tests.integration.log.stores import new_name, store_of
from tests.integration.topics import Admin

from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import KafkaRDD


class Job:
    """A direct stream over a topic that knows its place by the store."""

    def __init__(self, spark: SparkSession, servers: str, topic: str) -> None:
        self.seen = Seen()
        self.topic = topic
        self._spark = spark
        self._servers = servers
        self._store = new_name()

    @contextlib.contextmanager
    def run(self, reset: str, function: Callable[[KafkaRDD], None] | None = None) -> Iterator[Seen]:
        """One life; what it raises for each batch is seen, too."""
        failures = Seen()
        with store_of(self._servers, self._store, "job") as store, streaming(self._spark.sparkContext, 1) as ssc:
            params = {"bootstrap.servers": self._servers, "auto.offset.reset": reset}
            strategy = ConsumerStrategies.Subscribe([self.topic], params, store.load([self.topic]))
            stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy)
            handle = store.foreach_rdd(function or self.work)

            def told(rdd: KafkaRDD) -> None:
                try:
                    handle(rdd)
                except Exception as error:
                    failures.add(str(error))

            stream.foreachRDD(told)
            ssc.start()
            yield failures

    def work(self, rdd: KafkaRDD) -> None:
        self.seen.add(sorted(rdd.map(lambda record: int(record.value)).collect()))

    def stored(self) -> dict[TopicPartition, int]:
        with store_of(self._servers, self._store, "job") as store:
            return store.load()


@pytest.fixture
def job(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic) -> Job:
    return Job(spark, kafka.bootstrap_servers, make_topic(2))


def test_a_stream_goes_on_where_the_store_says(job: Job, put: Any) -> None:
    put(job.topic, range(10))
    with job.run("earliest") as failures:
        job.seen.wait_for_elements(10)
        job.seen.wait_for_more(2)  # so the first is saved
    put(job.topic, range(10, 16))
    with job.run("earliest"):
        job.seen.wait_for_elements(16)
        job.seen.wait_for_more(2)
    assert sorted(job.seen.flat) == list(range(16))
    assert failures.all == []
    assert set(job.stored().values()) == {8}


def test_a_batch_after_one_that_failed_is_not_done(job: Job, put: Any) -> None:
    """Spark goes on with it. Its end would cover what was not done."""

    def fail(rdd: KafkaRDD) -> None:
        if any(each.count() for each in rdd.offsetRanges()):
            raise RuntimeError("no results")

    put(job.topic, range(4))
    with job.run("earliest", fail) as failures:
        failures.wait(lambda seen: len(seen) >= 3)
    first, *others = failures.all
    assert first == "no results"
    assert all("is the next one by the offset store: the batch before it has failed" in each for each in others)
    put(job.topic, range(4, 8))
    with job.run("earliest"):
        job.seen.wait_for_elements(8)
    assert sorted(job.seen.flat) == list(range(8))


def test_latest_is_kept_from_the_first_batch_on(job: Job, put: Any) -> None:
    """A job that dies in its first batch misses nothing of what came after its start."""

    def die(_: KafkaRDD) -> None:
        raise RuntimeError("died")

    put(job.topic, [-1, -2])
    with job.run("latest", die) as failures:
        failures.wait(lambda seen: len(seen) >= 1)
    assert job.stored() == {TopicPartition(job.topic, 0): 1, TopicPartition(job.topic, 1): 1}
    put(job.topic, range(4))
    with job.run("latest"):
        job.seen.wait_for_elements(4)
    assert sorted(job.seen.flat) == list(range(4))


def test_a_partition_that_was_added_while_nobody_read_is_read_from_its_beginning(
    job: Job, put: Any, kafka: EmbeddedKafka
) -> None:
    put(job.topic, [-1, -2])
    with job.run("latest"):
        job.seen.wait_for_more(2)  # so the first is saved
    Admin(kafka.bootstrap_servers).grow(job.topic, 3)
    put(job.topic, range(6))
    with job.run("latest"):
        job.seen.wait_for_elements(6)
    assert sorted(job.seen.flat) == list(range(6))
