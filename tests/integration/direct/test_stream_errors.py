"""Direct streams with deleted topics, unresponsive brokers and open transactions."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.integration.direct.generated_batches import GeneratedBatches
from tests.integration.direct.streaming_contexts import (
    DEADLINE,
    BatchResults,
    direct_stream,
    streaming,
)
from tests.integration.topics import Admin
from tests.integration.waiting import suspend, wait_until
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies, TopicPartition
from pyspark_kafka_direct.direct.stream_client import StreamClusterView
from pyspark_kafka_direct.errors import BrokerError, DataLossError

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import KafkaRDD


def parameters(kafka: EmbeddedKafka, **properties: object) -> dict[str, object]:
    by_kafka_name = {name.replace("_", "."): value for name, value in properties.items()}
    return {"bootstrap.servers": kafka.bootstrap_servers, "auto.offset.reset": "earliest", **by_kafka_name}


def test_a_deleted_topic_fails_the_stream_and_is_reported(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    topic, other = make_topic(), make_topic()
    put(topic, range(3))
    results = BatchResults()
    with streaming(spark.sparkContext, 1) as ssc:
        strategy = ConsumerStrategies.Subscribe([topic, other], parameters(kafka))
        stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy)
        stream.foreachRDD(lambda rdd: results.add(rdd.map(lambda record: record.value).collect()))
        ssc.start()
        results.wait_for_elements(3)
        Admin(kafka.bootstrap_servers).delete(other)
        with pytest.raises(Exception, match=rf"data loss: {other}-0 do not exist any more"):
            ssc.awaitTerminationOrTimeout(DEADLINE)  # type: ignore[arg-type]


def test_a_recreated_topic_is_not_treated_as_the_old_one(
    kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any, topics_on: Any
) -> None:
    topic = make_topic()
    put(topic, range(3))
    stream = GeneratedBatches(ConsumerStrategies.Subscribe([topic], parameters(kafka)))
    assert [each.count() for each in stream.generate(1000)] == [3]
    Admin(kafka.bootstrap_servers).delete(topic)
    with pytest.raises(DataLossError, match="do not exist any more") as failure:
        stream.generate(2000)
    assert (failure.value.topic, failure.value.partition) == (topic, 0)
    Admin(kafka.bootstrap_servers).create(topic, 1)
    put(topic, range(10))  # more than before: without topic ids these would look like new records
    with pytest.raises(DataLossError, match="deleted and recreated"):
        stream.generate(3000)
    assert [each.count() for each in stream.generate(1000)] == [3], "a planned batch does not change"


def test_a_new_partition_starts_at_the_committed_offset(kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any) -> None:
    topic = make_topic()
    strategy = ConsumerStrategies.Subscribe([topic], parameters(kafka, group_id=topic, auto_offset_reset="latest"))
    stream = GeneratedBatches(strategy)
    assert [each.partition for each in stream.generate(1000)] == [0]
    Admin(kafka.bootstrap_servers).grow(topic, 3)
    put(topic, range(5), partition=1)
    put(topic, range(4), partition=2)
    cluster = ClusterClient(parse_client_params({"bootstrap.servers": kafka.bootstrap_servers}).connection)
    ConsumerGroup(cluster, topic).commit({TopicPartition(topic, 1): 3})
    spans = [(each.partition, each.from_offset, each.until_offset) for each in stream.generate(2000)]
    assert spans == [(0, 0, 0), (1, 3, 5), (2, 0, 4)], (
        "a partition without a committed offset starts at its first record"
    )


def test_records_that_expire_after_planning_are_data_loss_unless_it_is_allowed(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    """auto.offset.reset=earliest applies only to the start of a stream: tasks never reset offsets."""
    for fail_on_data_loss, expected in ((True, None), (False, [b"3", b"4"])):
        topic = make_topic()
        put(topic, range(5))
        results, failures = BatchResults(), BatchResults()
        with streaming(spark.sparkContext, 1) as ssc:
            strategy = ConsumerStrategies.Subscribe([topic], parameters(kafka, failOnDataLoss=fail_on_data_loss))
            stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy)

            def handle(
                rdd: KafkaRDD, topic: str = topic, results: BatchResults = results, failures: BatchResults = failures
            ) -> None:
                if rdd.offsetRanges()[0].count() >= 5:
                    Admin(kafka.bootstrap_servers).delete_records(topic, 3)
                try:
                    results.add(rdd.map(lambda record: record.value).collect())
                except Exception as error:
                    failures.add(str(error))
                    raise

            stream.foreachRDD(handle)
            ssc.start()
            if expected is None:
                with pytest.raises(Exception, match="DataLossError"):
                    ssc.awaitTerminationOrTimeout(DEADLINE)  # type: ignore[arg-type]
                assert f"{topic}-0" in failures.all[0]
                assert b"3" not in results.flat
            else:
                put(topic, ["later"])
                results.wait_for_elements(3)
                assert results.flat == [*expected, b"later"]
                assert failures.all == []


def test_a_topic_that_is_deleted_between_two_requests_of_one_plan(
    kafka: EmbeddedKafka, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic()
    stream = GeneratedBatches(ConsumerStrategies.Subscribe([topic], parameters(kafka)))
    assert len(stream.generate(1000)) == 1
    request = StreamClusterView.assigned

    def request_and_delete(view: StreamClusterView, tracked: Any) -> Any:
        partitions = request(view, tracked)
        monkeypatch.setattr(StreamClusterView, "assigned", request)
        Admin(kafka.bootstrap_servers).delete(topic)
        return partitions

    monkeypatch.setattr(StreamClusterView, "assigned", request_and_delete)
    with pytest.raises(DataLossError, match=rf"data loss: {topic}-0 do not exist any more"):
        stream.generate(2000)


def test_read_committed_ends_before_an_open_transaction(kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any) -> None:
    topic = make_topic()
    put(topic, range(3))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(600)
    producer.begin_transaction()
    producer.produce(topic, b"pending")
    producer.flush(300)
    strategy = ConsumerStrategies.Subscribe([topic], parameters(kafka, isolation_level="read_committed"))
    stream = GeneratedBatches(strategy)
    assert [each.until_offset for each in stream.generate(1000)] == [3]
    producer.commit_transaction(600)

    times_ms = iter(range(2000, 10**9, 1000))
    wait_until(
        lambda: stream.generate(next(times_ms))[0].until_offset == 5, seconds=DEADLINE
    )  # the record and the control record


def test_an_unavailable_broker_delays_a_batch_and_then_fails_it(
    stoppable_kafka: EmbeddedKafka, put: Any, topics_on: Any
) -> None:
    kafka = stoppable_kafka
    topic = topics_on(kafka.bootstrap_servers)(2)
    stream = GeneratedBatches(
        ConsumerStrategies.Subscribe(
            [topic],
            parameters(kafka, default_api_timeout_ms=4000, request_timeout_ms=2000),
        )
    )
    assert len(stream.generate(1000)) == 2
    suspend(kafka.pids[1])  # connections stay open without responses
    try:
        started = time.monotonic()
        with pytest.raises(BrokerError, match=r"No response to \w+ in time.*kafka\.request\.timeout\.ms"):
            stream.generate(2000)
        # The last try ends when the next pause, up to 1.2 s, is longer than what remains of the four seconds.
        assert time.monotonic() - started > 2
    finally:
        os.kill(kafka.pids[1], signal.SIGCONT)
    assert [each.count() for each in stream.generate(3000)] == [0, 0], (
        "the stream continues when the broker is available again"
    )


def test_functions_run_in_the_worker_that_fetches(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    """One PythonRDD in the lineage means one worker; records would be pickled between two workers."""
    topic = make_topic()
    put(topic, range(3))
    results, arrow, workers = BatchResults(), BatchResults(), BatchResults()

    def store(rdd: RDD[Any], results: BatchResults) -> None:
        workers.add((rdd.toDebugString() or b"").count(b"PythonRDD["))
        results.add(rdd.collect())

    with streaming(spark.sparkContext, 1) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None, valueDecoder=int)
        stream.map(lambda record: record.value).map(lambda number: number + 1).foreachRDD(
            lambda rdd: store(rdd, results)
        )
        stream.foreachRDD(lambda rdd: store(rdd.map(lambda record: record.value), results))
        stream.arrow().map(lambda batch: batch.num_rows).foreachRDD(lambda rdd: store(rdd, arrow))
        ssc.start()
        results.wait_for_elements(6)
        arrow.wait_for_elements(1)
    assert sorted(results.flat) == [0, 1, 1, 2, 2, 3]
    assert arrow.flat == [3]
    assert set(workers.all) == {1}


def test_a_persisted_stream_is_fetched_once(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic()
    put(topic, range(3))
    fetched = spark.sparkContext.accumulator(0)
    results = BatchResults()

    def count_and_return(data: bytes) -> bytes:
        fetched.add(1)
        return data

    with streaming(spark.sparkContext, 1) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None, valueDecoder=count_and_return)
        stream.cache()
        for _ in range(2):
            stream.foreachRDD(lambda rdd: results.add(rdd.map(lambda record: record.value).collect()))
        ssc.start()
        results.wait_for_elements(6)
    assert fetched.value <= 3


def test_planning_a_hundred_partitions_takes_few_requests(
    kafka: EmbeddedKafka, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(100)
    stream = GeneratedBatches(ConsumerStrategies.Subscribe([topic], parameters(kafka)))
    requests: list[str] = []
    write = Connection._write

    def record_and_write(connection: Connection, name: str, frame: Any, deadline: Any) -> None:
        requests.append(name)
        write(connection, name, frame, deadline)

    monkeypatch.setattr(Connection, "_write", record_and_write)
    for number in range(1, 21):
        assert len(stream.generate(number * 1000)) == 100
    planning = [each for each in requests if each != "ApiVersions"]  # of new connections: each batch opens its own
    assert len(planning) <= 20 * 2, planning
