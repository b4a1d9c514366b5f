"""Partition discovery on a fake cluster."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from tests.integration.waiting import wait_until
from tests.unit.planning.fake_offset_reader import FakeOffsetReader

from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.continuous.partition_discovery import PartitionDiscovery
from pyspark_kafka_direct.errors import BrokerTimeoutError, PatternTimeoutError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    import pytest

    from pyspark_kafka_direct.planning.offset_reader import AssignedPartitions

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class FlakyCluster(FakeOffsetReader):
    """A cluster that responds only while it is ``healthy``."""

    healthy = True
    hostile_topic = False

    def assigned(self, *, strict: bool) -> AssignedPartitions:
        if self.hostile_topic:
            raise PatternTimeoutError("subscribePattern='(a+)+$': took too long")
        if not self.healthy:
            raise BrokerTimeoutError("no response")
        return super().assigned(strict=strict)


def wait_for_end() -> None:
    """Wait until no thread checks partitions."""
    name = "pyspark-kafka-direct-partition-discovery"
    wait_until(lambda: name not in [each.name for each in threading.enumerate()], "the end of the thread")


def test_an_error_is_reported_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    cluster, has_ended_run = FlakyCluster({A0: (0, 3)}), threading.Event()
    discovery = PartitionDiscovery(cluster, [A0], 0.01, has_ended_run.set, RealSystem())
    discovery.start()
    try:
        wait_until(lambda: discovery.latest == {A0: 3}, "the first check")
        assert discovery.error is None
        cluster.healthy = False
        wait_until(lambda: "no response" in str(discovery.error), "an error")
        refreshes = cluster.refreshes
        cluster.healthy = True
        wait_until(lambda: cluster.refreshes > refreshes + 1, "more checks")
        assert discovery.error is None
        assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 1
        assert not has_ended_run.is_set()
        caplog.set_level(logging.INFO)
        cluster.logs[A1] = (0, 1)
        assert has_ended_run.wait(120)
        wait_for_end()
        assert "The query restarts because its partitions changed. New: a-1. Missing: none." in caplog.messages
    finally:
        discovery.close()


def test_a_pattern_that_takes_too_long_ends_the_run() -> None:
    """The next run fails with the error. Without this, the query would ignore new topics from then on."""
    cluster, has_ended_run = FlakyCluster({A0: (0, 3)}), threading.Event()
    discovery = PartitionDiscovery(cluster, [A0], 0.01, has_ended_run.set, RealSystem())
    discovery.start()
    try:
        wait_until(lambda: discovery.latest == {A0: 3}, "the first check")
        cluster.hostile_topic = True
        assert has_ended_run.wait(120)
        wait_for_end()
    finally:
        discovery.close()


def test_a_closed_discovery_checks_nothing() -> None:
    cluster, has_ended_run = FlakyCluster({A0: (0, 3)}), threading.Event()
    discovery = PartitionDiscovery(cluster, [A0], 0.01, has_ended_run.set, RealSystem())
    discovery.start()
    wait_until(lambda: discovery.latest == {A0: 3}, "the first check")
    discovery.close()
    wait_for_end()
    cluster.logs[A1] = (0, 1)
    assert not has_ended_run.is_set()


def test_a_closed_discovery_does_not_wait_for_the_next_check() -> None:
    cluster = FlakyCluster({A0: (0, 3)})
    discovery = PartitionDiscovery(cluster, [A0], 3600.0, lambda: None, RealSystem())
    discovery.start()
    discovery.close()
    wait_for_end()
    assert cluster.refreshes == 0
