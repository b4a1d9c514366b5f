"""``PartitionConsumer`` with cluster brokers, of which one hangs."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest
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


def test_unresponsive_broker_does_not_delay_others(three_brokers: EmbeddedKafka, bench: Workbench) -> None:
    """Its process is stopped, so its connections stay open; wakeup_fds still ends the poll."""
    topic, unresponsive = two_leaders(bench)
    partitions = [TopicPartition(topic, partition) for partition in range(2)]
    signal_fd = SYSTEM.wakeup_signal()
    with (
        PollingConsumer(bench, dict.fromkeys(partitions, 0), request_timeout_ms=5000) as consumer,
        PollingConsumer(bench, dict.fromkeys(partitions, 0), request_timeout_ms=3_600_000) as undelayed,
    ):
        for partition in range(2):
            bench.write(topic, [b"before"], partition=partition)
        for each in (consumer, undelayed):
            each.until(lambda: set(each.partition_consumer.positions.values()) == {1})  # noqa: B023
        suspend(three_brokers.pids[unresponsive])
        try:
            bench.write(topic, [b"during"], partition=1)
            for each in (consumer, undelayed):
                each.until(lambda: each.partition_consumer.positions[partitions[1]] == 2)  # noqa: B023
            consumer.until(lambda: partitions[0] in consumer.partition_consumer.transient_errors, "a transient error")
            assert partitions[1] not in consumer.partition_consumer.transient_errors
            threading.Timer(0.3, signal_fd.set).start()
            started = time.monotonic()
            consumer.partition_consumer.poll(600, [signal_fd.fileno()])
            assert time.monotonic() - started < 120
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
