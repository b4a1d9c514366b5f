"""The offset store and direct streams: batches after a failed one, and the start offsets of a stream."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.direct.streaming_contexts import BatchResults, streaming
from tests.integration.log.store_helpers import new_name, store_of
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
    """A direct stream that resumes by its offset store."""

    def __init__(self, spark: SparkSession, servers: str, topic: str) -> None:
        self.seen = BatchResults()
        self.topic = topic
        self._spark = spark
        self._servers = servers
        self._store = new_name()

    @contextlib.contextmanager
    def run(self, reset: str, function: Callable[[KafkaRDD], None] | None = None) -> Iterator[BatchResults]:
        """Run the stream once; yield the errors of its batches until it is stopped."""
        failures = BatchResults()
        is_stopping = threading.Event()
        with store_of(self._servers, self._store, "job") as store, streaming(self._spark.sparkContext, 1) as ssc:
            params = {"bootstrap.servers": self._servers, "auto.offset.reset": reset}
            strategy = ConsumerStrategies.Subscribe([self.topic], params, store.load([self.topic]))
            stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy)
            handle = store.foreach_rdd(function or self.process)

            def collect_errors(rdd: KafkaRDD) -> None:
                try:
                    handle(rdd)
                except Exception as error:
                    if not is_stopping.is_set():  # a batch may outlive the store
                        failures.add(str(error))

            stream.foreachRDD(collect_errors)
            ssc.start()
            yield failures
            is_stopping.set()

    def process(self, rdd: KafkaRDD) -> None:
        self.seen.add(sorted(rdd.map(lambda record: int(record.value)).collect()))

    def stored(self) -> dict[TopicPartition, int]:
        with store_of(self._servers, self._store, "job") as store:
            return store.load()


@pytest.fixture
def job(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic) -> Job:
    return Job(spark, kafka.bootstrap_servers, make_topic(2))


def test_a_stream_resumes_at_the_stored_offsets(job: Job, put: Any) -> None:
    put(job.topic, range(10))
    with job.run("earliest") as failures:
        job.seen.wait_for_elements(10)
        job.seen.wait_for_more(2)  # so the first batch is saved
    put(job.topic, range(10, 16))
    with job.run("earliest"):
        job.seen.wait_for_elements(16)
        job.seen.wait_for_more(2)
    assert sorted(job.seen.flat) == list(range(16))
    assert failures.all == []
    assert set(job.stored().values()) == {8}


def test_a_batch_after_a_failed_one_is_rejected(job: Job, put: Any) -> None:
    """Spark runs it, but saving its end offsets would skip the failed batch."""

    def fail(rdd: KafkaRDD) -> None:
        if any(each.count() for each in rdd.offsetRanges()):
            raise RuntimeError("no results")

    put(job.topic, range(4))
    with job.run("earliest", fail) as failures:
        failures.wait(lambda seen: len(seen) >= 3)
    first, *others = failures.all
    assert first == "no results"
    assert all("the batch before it has failed" in each for each in others)
    put(job.topic, range(4, 8))
    with job.run("earliest"):
        job.seen.wait_for_elements(8)
    assert sorted(job.seen.flat) == list(range(8))


def test_the_first_start_at_latest_is_saved(job: Job, put: Any) -> None:
    """A job that dies in its first batch reads all records that arrived after its start."""

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


def test_a_partition_created_between_runs_is_read_from_its_beginning(job: Job, put: Any, kafka: EmbeddedKafka) -> None:
    put(job.topic, [-1, -2])
    with job.run("latest"):
        job.seen.wait_for_more(2)  # so the first batch is saved
    Admin(kafka.bootstrap_servers).grow(job.topic, 3)
    put(job.topic, range(6))
    with job.run("latest"):
        job.seen.wait_for_elements(6)
    assert sorted(job.seen.flat) == list(range(6))
