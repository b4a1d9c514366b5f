"""Partition discovery on a simulated cluster."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_kafka_direct.continuous.partition_discovery import PartitionDiscovery
from pyspark_kafka_direct.errors import PatternTimeoutError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.spark.kafka_offset_reader import KafkaOffsetReader

if TYPE_CHECKING:
    import pytest
    from tests.unit.planning.planner_cluster import NewCluster, PlannerCluster

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def discover(brokers: PlannerCluster, ended: list[float], seconds: float = 5.0) -> PartitionDiscovery:
    """Check partitions every few seconds from now on; ``ended`` gets the times at which the run has to end."""
    discovery = PartitionDiscovery(brokers.reader(), [A0], seconds, lambda: ended.append(brokers.now), brokers.process)
    discovery.start()
    return discovery


def test_an_error_is_reported_while_it_lasts(cluster: NewCluster, caplog: pytest.LogCaptureFixture) -> None:
    brokers, ended = cluster(3, topic="a"), list[float]()
    discovery = discover(brokers, ended)
    brokers.sleep(11)
    assert (discovery.latest, discovery.error) == ({A0: 3}, None)
    brokers.every("Metadata", "stall_request")
    brokers.sleep(180)
    assert "No broker responded in time" in str(discovery.error)
    brokers.every("Metadata", None)
    brokers.sleep(180)
    assert discovery.error is None
    assert len([each for each in caplog.messages if each.startswith("Cannot read the partitions")]) == 1
    assert ended == []
    caplog.set_level(logging.INFO)
    brokers.grow(A1, 1)
    brokers.sleep(30)
    assert len(ended) == 1, "the discovery ends with the run"
    assert "The query restarts because its partitions changed. New: a-1. Missing: none." in caplog.messages
    discovery.close()


def test_a_pattern_that_takes_too_long_ends_the_run(cluster: NewCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run fails with the error. Without this, the query would ignore new topics from then on."""
    brokers, ended = cluster(3, topic="a"), list[float]()
    discovery = discover(brokers, ended)
    brokers.sleep(11)

    def hostile(*_: object, strict: bool) -> None:
        raise PatternTimeoutError("subscribePattern='(a+)+$': took too long")

    monkeypatch.setattr(KafkaOffsetReader, "assigned", hostile)
    brokers.sleep(30)
    assert len(ended) == 1
    discovery.close()


def test_a_closed_discovery_checks_nothing_and_does_not_wait_for_the_next_check(cluster: NewCluster) -> None:
    brokers, ended = cluster(3, topic="a"), list[float]()
    discovery = discover(brokers, ended)
    brokers.sleep(11)
    discovery.close()
    brokers.grow(A1, 1)
    requests = len(brokers.requests)
    brokers.sleep(100)
    assert (ended, len(brokers.requests)) == ([], requests)
    began = brokers.now
    discovery = discover(brokers, ended, 3600.0)
    discovery.close()
    assert brokers.now - began < 1
    brokers.sleep(1)
    assert all(task.greenlet.dead for task in brokers.world.tasks[1:]), "the thread has ended"


def test_a_replaced_delegation_token_ends_the_run(cluster: NewCluster) -> None:
    """Tasks get a new token only with a new run."""
    brokers, ended, replaced = cluster(3, topic="a"), list[float](), list[bool]()
    discovery = PartitionDiscovery(
        brokers.reader(),
        [A0],
        5.0,
        lambda: ended.append(brokers.now),
        brokers.process,
        is_token_replaced=lambda: bool(replaced),
    )
    discovery.start()
    brokers.sleep(11)
    assert ended == []
    replaced.append(True)
    brokers.sleep(11)
    assert len(ended) == 1
    discovery.close()
