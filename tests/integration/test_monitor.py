"""``enable(spark)`` with running queries."""

from __future__ import annotations

import threading
import time
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry
from pyspark import SparkFiles
from pyspark.errors import StreamingQueryException
from tests.integration.direct.streaming_contexts import direct_stream, streaming
from tests.integration.groups import committed
from tests.integration.sessions import setting
from tests.integration.stream_queries import DEADLINE, Stream, produce
from tests.integration.topics import Admin
from tests.integration.waiting import wait_until

import pyspark_kafka_direct
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.continuous import continuous_query
from pyspark_kafka_direct.direct import KafkaUtils
from pyspark_kafka_direct.offsets import OffsetRange, offset_ranges_to_json
from pyspark_kafka_direct.planning.backpressure import BatchMeasurement
from pyspark_kafka_direct.spark.listener_files import SHARED_FOLDER_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.monitor import QueryLag
    from pyspark_kafka_direct.offsets import TopicPartition

TIMEOUT_S = 600  # the first batch of a session is slow, especially on a busy machine


def wait_for(condition: Callable[[], bool]) -> None:
    # Progress reports arrive shortly after their batch, on a thread of Spark.
    wait_until(condition, seconds=TIMEOUT_S)


def test_enable_is_idempotent(spark: SparkSession) -> None:
    monitor = pyspark_kafka_direct.enable(spark)
    assert pyspark_kafka_direct.enable(spark) is monitor
    assert pyspark_kafka_direct.enable(type(spark).builder.getOrCreate()) is monitor


@pytest.mark.smoke
def test_lag_goes_down_to_zero(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(2, prefix="lag")
    for partition in (0, 1):
        produce(kafka.bootstrap_servers, topic, range(50), partition=partition)
    monitor = pyspark_kafka_direct.enable(spark)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    stream = Stream(spark, kafka.bootstrap_servers, tmp_path, options)
    lags: list[QueryLag] = []

    def wait_for_lag(batch_id: int) -> None:
        def is_reported() -> bool:
            lag = None if stream.query is None else monitor.lag(stream.query)
            if lag is not None and lag.batch_id == batch_id:
                lags.append(lag)
            return bool(lags) and lags[-1].batch_id == batch_id

        wait_for(is_reported)

    def collect(batch: DataFrame, number: int) -> None:
        if number == 1:  # the report of the first batch arrives before this batch ends
            wait_for_lag(0)
        stream._collect(batch, number)

    writer = stream.load().writeStream.foreachBatch(collect)
    stream.query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    wait_for_lag(1)
    stream.stop()
    after = monitor.lag(stream.query)
    assert after is not None
    assert after.batch_id == 1
    first, last = lags
    assert first.sources[0].total == 40
    assert [(each.topic, each.offset, each.latest, each.lag) for each in last.sources[0].partitions] == [
        (topic, 50, 50, 0),
        (topic, 50, 50, 0),
    ]
    assert last.sources[0].max_seconds_behind == 0
    assert last.sources[0].rate > 0


@pytest.mark.smoke
def test_an_idle_query_shows_its_lag(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, stream: Callable[..., Stream]
) -> None:
    topic = make_topic(1, prefix="idle")
    produce(kafka.bootstrap_servers, topic, range(4))
    monitor = pyspark_kafka_direct.enable(spark)
    interval = "spark.sql.streaming.noDataProgressEventInterval"  # between the events of an idle query, by default 10 s
    with setting(spark, interval, "500"):
        idle = stream(subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger="100")
        idle.start()
        idle.wait_for(range(4))
        produce(kafka.bootstrap_servers, topic, range(3))

        def has_lag() -> bool:
            lag = monitor.lag(idle.query)
            return lag is not None and lag.sources[0].total == 3

        wait_for(has_lag)
        assert idle.committed == 0


@pytest.mark.smoke
def test_a_batch_is_committed_when_it_is_done(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(2, prefix="commit")
    produce(kafka.bootstrap_servers, topic, range(5), partition=0)
    monitor = pyspark_kafka_direct.enable(spark)
    options = {"subscribe": topic, "startingOffsets": "earliest", "commitGroupId": f"group-{topic}"}
    stream = Stream(spark, kafka.bootstrap_servers, tmp_path, options)
    # The planner would commit when it plans the next batch, in an hour.
    stream.start(processingTime="1 hour")
    try:
        wait_for(lambda: monitor.lag(stream.query) is not None)
        wait_for(lambda: committed(kafka.bootstrap_servers, f"group-{topic}", topic) == {0: 5, 1: 0})
    finally:
        stream.stop()


def test_a_continuous_query_is_monitored(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, output = make_topic(2), make_topic(1)
    monitor = pyspark_kafka_direct.enable(spark)
    registry = CollectorRegistry()
    monitor.register_metrics(registry)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    query = (
        continuous_query(spark)
        .read(options, commitGroupId="copies-group")
        .select("value")
        .to_kafka(output)
        .start(checkpointLocation=str(tmp_path / "checkpoint"), queryName="copies", epochInterval=0.2)
    )
    up = partial(registry.get_sample_value, "kafka_direct_query_up", {"query": "copies"})
    try:
        wait_for(lambda: up() == 1)
        for partition in (0, 1):
            produce(kafka.bootstrap_servers, topic, range(50), partition=partition)
        wait_for(lambda: offsets_and_lags(monitor.lag(query)) == [(50, 0), (50, 0)])
        labels = {"group": "copies-group", "topic": topic, "partition": "0"}
        assert registry.get_sample_value("kafka_consumergroup_group_offset", labels) == 50
        assert registry.get_sample_value("kafka_consumergroup_group_lag", labels) == 0
        assert registry.get_sample_value("kafka_direct_query_last_batch_timestamp_seconds", {"query": "copies"})
    finally:
        query.stop()
    assert up() == 0
    assert registry.get_sample_value("kafka_consumergroup_group_lag", labels) is None


def test_a_direct_stream_is_monitored(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    monitor = pyspark_kafka_direct.enable(spark)
    registry = CollectorRegistry()
    monitor.register_metrics(registry)
    name = "Kafka 0.10 direct stream [0]"
    up = partial(registry.get_sample_value, "kafka_direct_query_up", {"query": name})
    produce(kafka.bootstrap_servers, topic, range(50))
    with streaming(spark.sparkContext, 0.5) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, "direct-group")
        stream.foreachRDD(lambda rdd: rdd.count())
        assert up() == 1
        ssc.start()
        wait_for(lambda: offsets_and_lags(monitor.lag(name)) == [(50, 0)])
        labels = {"group": "direct-group", "topic": topic, "partition": "0"}
        assert registry.get_sample_value("kafka_consumergroup_group_offset", labels) == 50
    assert up() == 0


def offsets_and_lags(lag: QueryLag | None) -> list[tuple[int, int]]:
    return [] if lag is None else [(each.offset, each.lag) for each in lag.sources[0].partitions]


@pytest.mark.smoke
def test_records_that_a_query_skips_are_counted_for_prometheus(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1, prefix="skipped")
    monitor = pyspark_kafka_direct.enable(spark)
    registry = CollectorRegistry()
    monitor.register_metrics(registry)
    labels = {"topic": topic, "partition": "0", "cause": "aged_out"}
    produce(kafka.bootstrap_servers, topic, range(4))
    options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    stream = Stream(spark, kafka.bootstrap_servers, tmp_path, options)
    stream.run()
    assert registry.get_sample_value("kafka_direct_skipped_offsets_total", labels) is None
    produce(kafka.bootstrap_servers, topic, range(4, 20))
    Admin(kafka.bootstrap_servers).delete_records(topic, 12)
    stream.run()
    assert registry.get_sample_value("kafka_direct_skipped_offsets_total", labels) == 8
    assert registry.get_sample_value("kafka_direct_data_losses_total", labels) == 1
    assert [(loss.partition, loss.offsets) for loss in monitor.losses if loss.topic == topic] == [(0, 8)]


def test_records_that_tasks_skip_are_counted(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """A stream whose records expire between planning and reading; a batch and an RDD of a deleted topic."""
    expiring, deleted = make_topic(1, prefix="expiring"), make_topic(1, prefix="deleted")
    monitor = pyspark_kafka_direct.enable(spark)
    admin = Admin(kafka.bootstrap_servers)
    produce(kafka.bootstrap_servers, expiring, range(20))
    admin.delete(deleted)
    ranges = [OffsetRange(deleted, 0, 0, 7)]

    def wait_for_losses(topic: str, *losses: tuple[int, str, int, int]) -> None:
        # A task hardly waits until the driver has its report.
        wait_for(lambda: [loss[1:] for loss in map(astuple, monitor.losses) if loss[0] == topic] == [*losses])

    def read_expired(rows: DataFrame, _: int) -> None:
        admin.delete_records(expiring, 12)
        assert rows.count() == 8

    reader = spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    options = {"subscribe": expiring, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    stream = reader.options(**options).load().writeStream.foreachBatch(read_expired)
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(TIMEOUT_S)
    wait_for_losses(expiring, (0, "aged_out", 1, 12))

    batch = spark.read.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    batch = batch.option("offsetRanges", offset_ranges_to_json(ranges)).option("failOnDataLoss", "false")
    assert batch.load().count() == 0
    wait_for_losses(deleted, (0, "deleted", 1, 7))
    params = {"bootstrap.servers": kafka.bootstrap_servers, "failOnDataLoss": "false"}
    assert KafkaUtils.createRDD(spark.sparkContext, params, ranges).collect() == []
    wait_for_losses(deleted, (0, "deleted", 2, 14))


def test_committed_offsets_never_decrease(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1, prefix="forward")
    produce(kafka.bootstrap_servers, topic, range(20))
    pyspark_kafka_direct.enable(spark)
    stream = committing(spark, kafka, topic, tmp_path)
    offsets: list[int] = []

    def is_complete() -> bool:
        offset = committed(kafka.bootstrap_servers, f"group-{topic}", topic).get(0)
        if offset is not None:
            assert offset <= len(stream.values), "not before the sink has the records"
            offsets.append(offset)
        return offset == 20

    query = stream.start(availableNow=True)
    wait_for(is_complete)
    assert query.awaitTermination(TIMEOUT_S)
    wait_for_reports(spark)
    assert is_complete()
    assert offsets == sorted(offsets)


def test_a_stalled_listener_does_not_set_a_group_back(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    make_topic: MakeTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planner once committed newer offsets, and the stalled commit of the listener then overwrote them."""
    topic = make_topic(1, prefix="stalled")
    produce(kafka.bootstrap_servers, topic, range(10))
    pyspark_kafka_direct.enable(spark)
    stalled, resume = threading.Event(), threading.Event()
    history: list[dict[int, int]] = []
    commit = ConsumerGroup.commit

    def stall(group: ConsumerGroup, offsets: Mapping[TopicPartition, int], **more: Any) -> None:
        stalled.set()
        assert resume.wait(TIMEOUT_S)
        commit(group, offsets, **more)
        record_offsets()

    def record_offsets() -> None:
        history.append(committed(kafka.bootstrap_servers, f"group-{topic}", topic))

    monkeypatch.setattr(ConsumerGroup, "commit", stall)  # only in this process: the planner runs in another one
    stream = committing(spark, kafka, topic, tmp_path)
    try:
        stream.run()
        assert stalled.wait(TIMEOUT_S)
        assert stream.values == sorted(map(str, range(10)))
        record_offsets()
    finally:
        resume.set()
    wait_for(lambda: history[-1] == {0: 10})
    assert history[0] == {}, "only the listener commits, and it stalls"
    assert [offsets.get(0, 0) for offsets in history] == sorted(offsets.get(0, 0) for offsets in history)


def test_the_planner_commits_for_a_query_that_started_before_the_listener(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1, prefix="late")
    produce(kafka.bootstrap_servers, topic, range(3))
    session = spark.newSession()
    stream = committing(session, kafka, topic, tmp_path)
    started, enabled = threading.Event(), threading.Event()

    def wait_for_the_listener(batch: DataFrame, number: int) -> None:
        started.set()
        assert enabled.wait(TIMEOUT_S)

    writer = stream.load().writeStream.foreachBatch(wait_for_the_listener).trigger(processingTime="1 second")
    stream.query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        assert started.wait(TIMEOUT_S)
        monitor = pyspark_kafka_direct.enable(session)
        (committer,) = monitor._observers
        enabled.set()
        wait_for(lambda: committed(kafka.bootstrap_servers, f"group-{topic}", topic) == {0: 3})
        wait_for(lambda: monitor.lag(stream.query) is not None)
        groups = {group.group_id for group in committer._groups}  # type: ignore[attr-defined]
        assert f"group-{topic}" not in groups, "the listener does not commit for the query"
    finally:
        enabled.set()
        stream.stop()


def test_the_planner_commits_for_a_session_without_the_listener(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """The shared folder belongs to the application, so its existence says nothing about a session."""
    topic = make_topic(1, prefix="other")
    produce(kafka.bootstrap_servers, topic, range(3))
    pyspark_kafka_direct.enable(spark)
    stream = committing(spark.newSession(), kafka, topic, tmp_path)
    stream.start()
    try:
        wait_for(lambda: committed(kafka.bootstrap_servers, f"group-{topic}", topic) == {0: 3})
    finally:
        stream.stop()


def test_a_resumed_query_without_new_records_commits_its_start_offsets(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1, prefix="again")
    produce(kafka.bootstrap_servers, topic, range(3))
    pyspark_kafka_direct.enable(spark)
    stream = committing(spark, kafka, topic, tmp_path)
    del stream.options["commitGroupId"]
    stream.run()
    stream.options["commitGroupId"] = f"group-{topic}"
    assert stream.run() == []
    wait_for(lambda: committed(kafka.bootstrap_servers, f"group-{topic}", topic) == {0: 3})


def committing(spark: SparkSession, kafka: EmbeddedKafka, topic: str, folder: Path) -> Stream:
    """A query that commits, with batches of two records."""
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    return Stream(spark, kafka.bootstrap_servers, folder, {**options, "commitGroupId": f"group-{topic}"})


def wait_for_reports(spark: SparkSession) -> None:
    context = spark.sparkContext._jsc
    assert context is not None
    context.sc().listenerBus().waitUntilEmpty(60_000)


@pytest.mark.smoke
def test_backpressure_converges_to_the_speed_of_a_slow_sink(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1, prefix="backpressure")
    # Enough for seven batches even if reports arrive late: before the second report, a batch has up to 6000 records.
    produce(kafka.bootstrap_servers, topic, range(40_000))
    pyspark_kafka_direct.enable(spark)
    sizes: list[int] = []

    def sink_of_1000_a_second(batch: DataFrame, number: int) -> None:
        sizes.append(batch.count())
        time.sleep(sizes[-1] / 1000)

    options = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "backpressure": "true",
        "backpressureInitialRate": "3000",
        "backpressureMinRate": "10",
    }
    stream = Stream(spark, kafka.bootstrap_servers, tmp_path, options)
    writer = stream.load().writeStream.foreachBatch(sink_of_1000_a_second).trigger(processingTime="2 seconds")
    stream.query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        stream.wait(lambda: len(sizes) == 7, "seven batches")
    finally:
        stream.stop()
    assert sizes[0] == 3000
    # A batch takes longer than its sink, so fewer than 2 s x 1000 records fit, depending on the machine. A controller
    # that is stuck at its minimum rate would stay at 20.
    assert all(20 <= size < 2000 for size in sizes[4:]), sizes
    assert max(sizes[4:]) > 100, sizes
    measured = [file.read_text() for file in Path(SparkFiles.getRootDirectory(), SHARED_FOLDER_NAME).glob("*.json")]
    assert any(BatchMeasurement.from_json(text).interval_ms == 2000 for text in measured)


def test_backpressure_without_the_listener_is_rejected(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    # Other tests of this session may have called enable, so their folder is moved away.
    folder = Path(SparkFiles.getRootDirectory(), SHARED_FOLDER_NAME)
    aside = folder.with_name("aside")
    enabled = folder.exists()
    if enabled:
        folder.rename(aside)
    try:
        stream = Stream(spark, kafka.bootstrap_servers, tmp_path, {"subscribe": make_topic(), "backpressure": "true"})
        with pytest.raises(StreamingQueryException, match=r"pyspark_kafka_direct\.enable\(spark\)"):
            stream.start().awaitTermination(DEADLINE)
    finally:
        if enabled:
            aside.rename(folder)
