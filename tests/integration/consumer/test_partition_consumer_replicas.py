"""``PartitionConsumer`` with cluster brokers: leaders that move, fail or hang."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.integration.consumer.leader_moves import NODES, move
from tests.integration.consumer.polling_consumer import PollingConsumer
from tests.integration.waiting import suspend

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka


@pytest.fixture(scope="module")
def bench(three_brokers: EmbeddedKafka, workbench_for: Callable[[EmbeddedKafka], Workbench]) -> Workbench:
    return workbench_for(three_brokers)


def test_moved_leaders_are_followed(bench: Workbench) -> None:
    """To new brokers, and back; the old leader has no replica."""
    topic = bench.make_topic(replication=1)
    first = bench.leader(topic)
    others = [node for node in NODES if node != first]
    with PollingConsumer(bench, {topic: 0}) as consumer:
        count = 0
        for node in (*others, first):
            bench.write(topic, [b"value"] * 5)
            count += 5
            consumer.until_position(count)
            moving = threading.Thread(target=move, args=(bench, topic, [node]))
            moving.start()
            consumer.until(lambda: not moving.is_alive(), "moved")  # noqa: B023
            moving.join()
        bench.write(topic, [b"value"] * 5)
        consumer.until_position(count + 5)
        assert consumer.offsets == list(range(count + 5))
        assert consumer.partition_consumer.transient_errors == {}


def test_each_leader_serves_its_partitions(bench: Workbench) -> None:
    topic = bench.make_topic(partitions=6, replication=3)
    partitions = [TopicPartition(topic, partition) for partition in range(6)]
    with PollingConsumer(bench, dict.fromkeys(partitions, 0)) as consumer:
        for partition in range(6):
            bench.write(topic, [b"value"] * 3, partition=partition)
        consumer.until(lambda: set(consumer.partition_consumer.positions.values()) == {3})
        for partition in range(6):
            started = time.monotonic()
            bench.write(topic, [b"value"], partition=partition)
            consumer.until(lambda: consumer.partition_consumer.positions[TopicPartition(topic, partition)] == 4)  # noqa: B023
            assert time.monotonic() - started < 20


def test_unresponsive_broker_does_not_delay_others(three_brokers: EmbeddedKafka, bench: Workbench) -> None:
    """Its process is stopped, so its connections stay open; wakeup_fds still ends the poll."""
    topic, unresponsive = two_leaders(bench)
    partitions = [TopicPartition(topic, partition) for partition in range(2)]
    signal_fd = SYSTEM.wakeup_signal()
    with PollingConsumer(bench, dict.fromkeys(partitions, 0), request_timeout_ms=5000) as consumer:
        for partition in range(2):
            bench.write(topic, [b"before"], partition=partition)
        consumer.until(lambda: set(consumer.partition_consumer.positions.values()) == {1})
        suspend(three_brokers.pids[unresponsive])
        try:
            bench.write(topic, [b"during"], partition=1)
            started = time.monotonic()
            consumer.until(lambda: consumer.partition_consumer.positions[partitions[1]] == 2)
            assert time.monotonic() - started < 20
            consumer.until(lambda: partitions[0] in consumer.partition_consumer.transient_errors, "a transient error")
            assert partitions[1] not in consumer.partition_consumer.transient_errors
            threading.Timer(0.3, signal_fd.set).start()
            started = time.monotonic()
            consumer.partition_consumer.poll(60, [signal_fd.fileno()])
            assert time.monotonic() - started < 20
        finally:
            os.kill(three_brokers.pids[unresponsive], signal.SIGCONT)
        bench.write(topic, [b"after"], partition=0)
        consumer.until(lambda: consumer.partition_consumer.positions[partitions[0]] == 2)
    signal_fd.close()


def two_leaders(bench: Workbench) -> tuple[str, int]:
    """A topic of two partitions with different leaders, and the first one's."""
    while True:  # the controller may choose the same for both
        topic = bench.make_topic(partitions=2, replication=1)
        leaders = [bench.leader(topic, partition) for partition in range(2)]
        if leaders[0] != leaders[1]:
            return topic, leaders[0]
