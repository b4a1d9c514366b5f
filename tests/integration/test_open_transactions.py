"""The lag of ``read_committed`` queries behind an open transaction, with two topics on a real broker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import pytest
from prometheus_client import CollectorRegistry
from tests.integration.direct.streaming_contexts import streaming
from tests.integration.groups import committed
from tests.integration.sessions import setting
from tests.integration.stream_queries import Stream, produce
from tests.integration.waiting import wait_until
from tests.integration.workbench import Workbench

import pyspark_kafka_direct
from pyspark_kafka_direct.continuous import continuous_query
from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies
from pyspark_kafka_direct.offsets import LATEST, TopicPartition, partition_offsets_from_json
from pyspark_kafka_direct.options.read_options import parse_stream_options
from pyspark_kafka_direct.spark.kafka_offset_reader import KafkaOffsetReader
from pyspark_kafka_direct.spark.spark_versions import spark_features

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.monitor import QueryLag

TIMEOUT_S = 600


class Blocked(NamedTuple):
    """Ten records, an open transaction and 500 more records in one topic; five records in another."""

    servers: str
    topic: str
    other: str

    def options(self) -> dict[str, str]:
        topics = f"{self.topic},{self.other}"
        options = {"kafka.bootstrap.servers": self.servers, "subscribe": topics, "startingOffsets": "earliest"}
        return {**options, "kafka.isolation.level": "read_committed"}

    def is_behind(self, lag: QueryLag | None) -> bool:
        """Return whether the lag counts the 501 records."""
        rows = [] if lag is None else [each for source in lag.sources for each in source.partitions]
        return {each.topic: (each.offset, each.latest, each.lag) for each in rows} == {
            self.topic: (10, 511, 501),
            self.other: (5, 5, 0),
        }


@pytest.fixture(scope="module")
def blocked(kafka: EmbeddedKafka, make_topic: MakeTopic) -> Iterator[Blocked]:
    bench = Workbench(kafka.bootstrap_servers, make_topic)
    topic, other = make_topic(1, prefix="blocked"), make_topic(1, prefix="open")
    produce(kafka.bootstrap_servers, topic, range(10))
    produce(kafka.bootstrap_servers, other, range(5))
    writer = bench.producer(transactional_id=topic, transaction_timeout_ms=900_000)
    writer.init_transactions(600)
    writer.begin_transaction()
    writer.produce(topic, b"open", partition=0)
    assert writer.flush(300) == 0
    produce(kafka.bootstrap_servers, topic, range(500))
    yield Blocked(kafka.bootstrap_servers, topic, other)
    writer.abort_transaction(600)


@pytest.mark.smoke
def test_the_lag_of_a_stream_counts_records_behind_the_transaction(
    spark: SparkSession, blocked: Blocked, tmp_path: Path
) -> None:
    monitor = pyspark_kafka_direct.enable(spark)
    registry = CollectorRegistry()
    monitor.register_metrics(registry)
    group = f"group-{blocked.topic}"
    stream = Stream(spark, blocked.servers, tmp_path, {**blocked.options(), "commitGroupId": group})
    stream.start()
    try:
        wait_until(lambda: blocked.is_behind(monitor.lag(stream.query)), "the lag", TIMEOUT_S)
        wait_until(lambda: committed(blocked.servers, group, blocked.topic) == {0: 10}, "the commit", TIMEOUT_S)
        labels = {"topic": blocked.topic, "partition": "0"}
        assert registry.get_sample_value("kafka_partition_latest_offset", labels) == 511
        assert registry.get_sample_value("kafka_consumergroup_group_lag", {"group": group, **labels}) == 501
        if spark_features().has_read_limits:
            assert registry.get_sample_value("kafka_partition_last_stable_offset", labels) == 10
            assert stream.query is not None
            progress = stream.query.lastProgress
            assert progress is not None
            latest = partition_offsets_from_json(progress["sources"][0]["latestOffset"])
            assert latest == {TopicPartition(blocked.topic, 0): 10, TopicPartition(blocked.other, 0): 5}
    finally:
        stream.stop()


def test_the_lag_of_a_continuous_query(
    spark: SparkSession, blocked: Blocked, make_topic: MakeTopic, tmp_path: Path
) -> None:
    monitor = pyspark_kafka_direct.enable(spark)
    query = (
        continuous_query(spark)
        .read(blocked.options())
        .select("value")
        .to_kafka(make_topic(1))
        .start(checkpointLocation=str(tmp_path / "checkpoint"), epochInterval=0.2)
    )
    try:
        wait_until(lambda: blocked.is_behind(monitor.lag(query)), "the lag", TIMEOUT_S)
    finally:
        query.stop()


def test_the_lag_of_a_direct_stream(spark: SparkSession, blocked: Blocked, caplog: pytest.LogCaptureFixture) -> None:
    monitor = pyspark_kafka_direct.enable(spark)
    params = {
        "bootstrap.servers": blocked.servers,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    with streaming(spark.sparkContext, 0.5) as ssc, caplog.at_level(logging.WARNING):
        strategy = ConsumerStrategies.Subscribe([blocked.topic, blocked.other], params)
        stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy)
        stream.foreachRDD(lambda rdd: rdd.count())
        ssc.start()
        name = "Kafka 0.10 direct stream [0]"
        wait_until(lambda: blocked.is_behind(monitor.lag(name)), "the lag", TIMEOUT_S)
    (message,) = [record.getMessage() for record in caplog.records if "is blocked since" in record.getMessage()]
    assert f"{blocked.topic}-0 is blocked since" in message


def test_a_batch_says_why_it_lacks_the_records(spark: SparkSession, blocked: Blocked) -> None:
    with setting(spark, "spark.sql.pyspark.worker.logging.enabled", "true"):
        assert spark.read.format("kafka-direct").options(**blocked.options()).load().count() == 15
        logs = spark.tvf.python_worker_logs().select("level", "msg").collect()
    (row,) = [row for row in logs if "is blocked since" in row.msg and blocked.topic in row.msg]
    assert row.level == "WARNING"
    assert "by producer id" in row.msg


def test_the_planner_names_the_producer(blocked: Blocked, caplog: pytest.LogCaptureFixture) -> None:
    reader = KafkaOffsetReader(parse_stream_options(blocked.options()), logging.getLogger("planner"))
    partition, other = TopicPartition(blocked.topic, 0), TopicPartition(blocked.other, 0)
    for _ in range(2):
        assert reader.offsets({partition: LATEST, other: LATEST}) == {partition: 10, other: 5}
    transactions = reader.cluster.open_transactions([partition, other])
    (transaction,) = transactions[partition]
    assert (transaction.start_offset, transactions[other]) == (10, ())
    (message,) = caplog.messages
    producer = f"by producer id {transaction.producer_id} (epoch {transaction.producer_epoch})"
    assert f"{producer}: 501 offsets from 10 on cannot be read yet" in message
    reader.cluster.pool.clear()
