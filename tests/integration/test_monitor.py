"""``enable(spark)`` on real queries: progress is seen, and lag is 0 at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkFiles
from pyspark.errors import StreamingQueryException
from tests.integration.groups import committed
from tests.integration.stream_queries import DEADLINE, Stream, produce
from tests.integration.waiting import wait_until

import pyspark_kafka_direct
from pyspark_kafka_direct.planning.feedback import Measurement
from pyspark_kafka_direct.runtime.shared_folder import FOLDER
from pyspark_kafka_direct.wire.groups import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.monitor import QueryLag
    from pyspark_kafka_direct.offsets import TopicPartition

PATIENCE = 180  # seconds; the first batch of a session is slow, on a busy machine very slow


def wait_for(condition: Callable[[], bool]) -> None:
    # Progress reports arrive a little after their batch, on a thread of Spark's.
    wait_until(condition, seconds=PATIENCE)


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
    seen: list[QueryLag] = []

    def remember(batch_id: int) -> None:
        def told() -> bool:
            lag = None if stream.query is None else monitor.lag(stream.query)
            if lag is not None and lag.batch_id == batch_id:
                seen.append(lag)
            return bool(seen) and seen[-1].batch_id == batch_id

        wait_for(told)

    def collect(batch: DataFrame, number: int) -> None:
        if number == 1:  # the first one's report is there before this one ends
            remember(0)
        stream._collect(batch, number)

    writer = stream.load().writeStream.foreachBatch(collect)
    stream.query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    remember(1)
    stream.stop()
    after = monitor.lag(stream.query)
    assert after is not None
    assert after.batch_id == 1
    first, last = seen
    assert first.sources[0].total == 40
    assert [(each.topic, each.offset, each.latest, each.lag) for each in last.sources[0].partitions] == [
        (topic, 50, 50, 0),
        (topic, 50, 50, 0),
    ]
    assert last.sources[0].max_seconds_behind == 0
    assert last.sources[0].rate > 0


@pytest.mark.smoke
def test_an_idle_query_shows_what_waits_for_it(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1, prefix="idle")
    produce(kafka.bootstrap_servers, topic, range(4))
    monitor = pyspark_kafka_direct.enable(spark)
    interval = "spark.sql.streaming.noDataProgressEventInterval"  # between an idle query's events, else 10 s
    spark.conf.set(interval, "500")
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "100"}
    stream = Stream(spark, kafka.bootstrap_servers, tmp_path, options)
    try:
        stream.start()
        stream.wait_for(range(4))
        produce(kafka.bootstrap_servers, topic, range(3))

        def waiting() -> bool:
            lag = monitor.lag(stream.query)
            return lag is not None and lag.sources[0].total == 3

        wait_for(waiting)
        assert stream.committed == 0
    finally:
        spark.conf.unset(interval)
        stream.stop()


@pytest.mark.smoke
def test_a_batch_is_committed_when_it_is_done(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(2, prefix="commit")
    produce(kafka.bootstrap_servers, topic, range(5), partition=0)
    monitor = pyspark_kafka_direct.enable(spark)
    options = {"subscribe": topic, "startingOffsets": "earliest", "commitGroupId": f"group-{topic}"}
    stream = Stream(spark, kafka.bootstrap_servers, tmp_path, options)
    # The planner commits when it plans the next batch: in an hour.
    stream.start(processingTime="1 hour")
    try:
        wait_for(lambda: monitor.lag(stream.query) is not None)
        wait_for(lambda: committed(kafka.bootstrap_servers, f"group-{topic}", topic) == {0: 5, 1: 0})
    finally:
        stream.stop()


def test_what_planner_and_listener_commit_only_goes_forward(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1, prefix="forward")
    produce(kafka.bootstrap_servers, topic, range(40))
    pyspark_kafka_direct.enable(spark)
    stream = committing(spark, kafka, topic, tmp_path)
    seen: list[int] = []

    def look() -> bool:
        now = committed(kafka.bootstrap_servers, f"group-{topic}", topic).get(0)
        if now is not None:
            assert now <= len(stream.values), "not before the sink has it"
            seen.append(now)
        return now == 40

    query = stream.start(availableNow=True)
    wait_for(look)
    assert query.awaitTermination(PATIENCE)
    wait_for_reports(spark)
    assert look()
    assert seen == sorted(seen)


def test_a_listener_that_stalls_takes_no_group_back(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    make_topic: MakeTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planner went on to commit, and then what the listener had begun to commit long before came after it."""
    topic = make_topic(1, prefix="stalled")
    produce(kafka.bootstrap_servers, topic, range(10))
    pyspark_kafka_direct.enable(spark)
    stalled, go_on = threading.Event(), threading.Event()
    history: list[dict[int, int]] = []
    commit = Group.commit

    def stall(group: Group, offsets: Mapping[TopicPartition, int], **more: Any) -> None:
        stalled.set()
        assert go_on.wait(PATIENCE)
        commit(group, offsets, **more)
        look()

    def look() -> None:
        history.append(committed(kafka.bootstrap_servers, f"group-{topic}", topic))

    monkeypatch.setattr(Group, "commit", stall)  # of this process: the planner is another
    stream = committing(spark, kafka, topic, tmp_path)
    try:
        stream.run()
        assert stalled.wait(PATIENCE)
        assert stream.values == sorted(map(str, range(10)))
        look()
    finally:
        go_on.set()
    wait_for(lambda: history[-1] == {0: 10})
    assert history[0] == {}, "one commits, and that one stalls"
    assert [seen.get(0, 0) for seen in history] == sorted(seen.get(0, 0) for seen in history)


def test_a_query_that_runs_when_the_listener_comes_stays_the_planners(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1, prefix="late")
    produce(kafka.bootstrap_servers, topic, range(3))
    session = spark.newSession()
    stream = committing(session, kafka, topic, tmp_path)
    started, enabled = threading.Event(), threading.Event()

    def wait_for_the_listener(batch: DataFrame, number: int) -> None:
        started.set()
        assert enabled.wait(PATIENCE)

    writer = stream.load().writeStream.foreachBatch(wait_for_the_listener).trigger(processingTime="1 second")
    stream.query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        assert started.wait(PATIENCE)
        monitor = pyspark_kafka_direct.enable(session)
        (committer,) = monitor._observers
        enabled.set()
        wait_for(lambda: committed(kafka.bootstrap_servers, f"group-{topic}", topic) == {0: 3})
        wait_for(lambda: monitor.lag(stream.query) is not None)
        groups = {group.group_id for group in committer._groups}  # type: ignore[attr-defined]
        assert f"group-{topic}" not in groups, "the listener has nothing to do with it"
    finally:
        enabled.set()
        stream.stop()


def test_a_query_of_a_session_without_the_listener_is_its_planners(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """The folder is one for the application, so that it is there says nothing about a session."""
    topic = make_topic(1, prefix="other")
    produce(kafka.bootstrap_servers, topic, range(3))
    pyspark_kafka_direct.enable(spark)
    stream = committing(spark.newSession(), kafka, topic, tmp_path)
    stream.start()
    try:
        wait_for(lambda: committed(kafka.bootstrap_servers, f"group-{topic}", topic) == {0: 3})
    finally:
        stream.stop()


def test_a_query_that_goes_on_and_finds_nothing_shows_where_it_is(
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
    """A query with batches of two records that commits."""
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    return Stream(spark, kafka.bootstrap_servers, folder, {**options, "commitGroupId": f"group-{topic}"})


def wait_for_reports(spark: SparkSession) -> None:
    context = spark.sparkContext._jsc
    assert context is not None
    context.sc().listenerBus().waitUntilEmpty(60_000)


@pytest.mark.spark_app
def test_the_last_batch_is_committed_by_a_program_that_ends_at_once(
    kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1, prefix="last")
    produce(kafka.bootstrap_servers, topic, range(7))
    app = Path(__file__).with_name("commit_app.py")
    arguments = [kafka.bootstrap_servers, topic, f"group-{topic}", str(tmp_path / "checkpoint")]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, str(app), *arguments], capture_output=True, text=True, timeout=280, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert committed(kafka.bootstrap_servers, f"group-{topic}", topic) == {0: 7}


@pytest.mark.smoke
def test_backpressure_settles_at_the_speed_of_a_slow_sink(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1, prefix="backpressure")
    # Enough for seven batches even if reports come late: before there are two, a batch has up to 6000.
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
    # A batch costs more than its sink, so fewer than 2 s x 1000 records fit; how many depends on the machine. But a
    # controller that is stuck at its least rate stays at 20.
    assert all(20 <= size < 2000 for size in sizes[4:]), sizes
    assert max(sizes[4:]) > 100, sizes
    measured = [file.read_text() for file in Path(SparkFiles.getRootDirectory(), FOLDER).glob("*.json")]
    assert any(Measurement.from_text(text).interval_ms == 2000 for text in measured)


def test_backpressure_is_refused_without_the_listener(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    # Other tests of this session may have called enable: then as if they had not.
    folder = Path(SparkFiles.getRootDirectory(), FOLDER)
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
