"""Stopping a stream with an unresponsive broker, and its connections after a stop."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.direct.streaming_contexts import (
    DEADLINE,
    BatchResults,
    direct_stream,
    streaming,
)
from tests.integration.stream_queries import produce
from tests.integration.waiting import suspend, wait_until
from tests.shards.brokers import new_kafka

from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies
from pyspark_kafka_direct.errors import TopicNotFoundError
from pyspark_kafka_direct.offsets import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import KafkaRDD

_MAX_STOP_SECONDS = 120  # planning and commits would wait for their timeouts


def test_a_stop_does_not_wait_for_an_unresponsive_broker(spark: SparkSession, topics_on: Any) -> None:
    with new_kafka() as kafka:
        topic = topics_on(kafka.bootstrap_servers)()
        produce(kafka.bootstrap_servers, topic, range(3))
        batches = BatchResults()
        with streaming(spark.sparkContext, 1) as ssc:
            parameters = {
                "bootstrap.servers": kafka.bootstrap_servers,
                "auto.offset.reset": "earliest",
                "group.id": topic,
                "request.timeout.ms": 600_000,
                "default.api.timeout.ms": 600_000,
            }
            strategy = ConsumerStrategies.Subscribe([topic], parameters)
            stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy)

            def handle(rdd: KafkaRDD) -> None:
                stream.commitAsync(rdd.offsetRanges())
                batches.add(rdd.offsetRanges())

            stream.foreachRDD(handle)
            ssc.start()
            batches.wait_for_more(3)
            suspend(kafka.pids[1])
            try:
                planning = PlanningTime()
                wait_until(lambda: planning.seconds() > 3, "a batch that waits for the broker", DEADLINE)
                started = time.monotonic()
                ssc.stop(stopSparkContext=False, stopGraceFully=False)
                duration = time.monotonic() - started
            finally:
                os.kill(kafka.pids[1], signal.SIGCONT)
        print(f"the stop took {duration:.1f} s")
        assert duration < _MAX_STOP_SECONDS


def test_a_stop_closes_the_connections_of_the_stream(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic()
    put(topic, range(3))
    sockets, threads = set(broker_sockets(kafka)), set(threading.enumerate())
    batches = BatchResults()
    with streaming(spark.sparkContext, 0.5) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, topic)

        def handle(rdd: KafkaRDD) -> None:
            stream.commitAsync(rdd.offsetRanges())
            batches.add(rdd.offsetRanges())

        stream.foreachRDD(handle)
        ssc.start()
        batches.wait_for_more(3)
        assert set(broker_sockets(kafka)) - sockets
    assert set(broker_sockets(kafka)) <= sockets
    left = {thread.name for thread in set(threading.enumerate()) - threads}
    assert not {name for name in left if name.startswith("pyspark-kafka-direct")}
    stream.commitSync([OffsetRange(topic, 0, 0, 3)])
    assert set(broker_sockets(kafka)) <= sockets, "a later commit opens a connection and closes it"


def test_a_stream_without_a_start_closes_its_connections(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic
) -> None:
    sockets = set(broker_sockets(kafka))
    with streaming(spark.sparkContext, 1) as ssc:
        with pytest.raises(TopicNotFoundError):
            direct_stream(ssc, kafka.bootstrap_servers, "no-such-topic", None)
        assert set(broker_sockets(kafka)) <= sockets
        direct_stream(ssc, kafka.bootstrap_servers, make_topic(), None)
        assert set(broker_sockets(kafka)) - sockets
    assert set(broker_sockets(kafka)) <= sockets


def broker_sockets(kafka: EmbeddedKafka) -> list[int]:
    """The ids of this process's Python sockets that are connected to the broker."""
    ports = {int(server.rpartition(":")[2]) for server in kafka.bootstrap_servers.split(",")}
    found = []
    for candidate in gc.get_objects():
        if issubclass(type(candidate), socket.socket) and candidate.fileno() >= 0:
            with contextlib.suppress(OSError):
                if candidate.getpeername()[1] in ports:
                    found.append(id(candidate))
    return found


class PlanningTime:
    """Measures how long the current batch has been planned."""

    def __init__(self) -> None:
        self._thread: int | None = None
        self._since = 0.0

    def seconds(self) -> float:
        planning = [each.ident for each in threading.enumerate() if each.name == "pyspark-kafka-direct-planning"]
        ident = planning[0] if planning else None
        if ident != self._thread:
            self._thread, self._since = ident, time.monotonic()
        return 0.0 if ident is None else time.monotonic() - self._since
