"""A topic that gets more partitions while a log reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.log.fake_cluster import TOPIC, FakeCluster, WorkerHarness, tp

from pyspark_kafka_direct.errors import TransientBrokerError

if TYPE_CHECKING:
    from pyspark_kafka_direct.log.log_topic import LogTopic


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(1)


@pytest.fixture
def harness(cluster: FakeCluster) -> WorkerHarness:
    harness = WorkerHarness(cluster)
    harness.run_until_done(harness.read_to_end())
    return harness


def test_a_read_to_the_end_covers_partitions_that_were_added(cluster: FakeCluster, harness: WorkerHarness) -> None:
    cluster.write(2)
    cluster.add_partition(start=5, end=8)
    future = harness.read_to_end()
    harness.run_until_done(future)
    assert future.exception() is None
    assert harness.delivered == [(0, 0), (0, 1), (1, 5), (1, 6), (1, 7)]
    assert len(cluster.consumers) == 1, "partitions are added to the consumer, which keeps what it has fetched"


def test_added_partitions_are_found_without_a_read(cluster: FakeCluster, harness: WorkerHarness) -> None:
    cluster.add_partition(end=1)
    seconds = cluster.settings.metadata_max_age_ms / 1000
    started = cluster.system.now
    while not harness.delivered:
        harness.run_times()
        assert cluster.system.now < started + seconds + 60
    assert harness.delivered == [(1, 0)]


def test_partitions_that_are_not_selected_are_not_added(cluster: FakeCluster) -> None:
    harness = WorkerHarness(cluster, partition_filter=lambda number: number == 0)
    harness.run_until_done(harness.read_to_end())
    cluster.add_partition(end=1)
    for _ in range(2):
        cluster.requests.clear()
        harness.run_until_done(harness.read_to_end())
    assert harness.worker.positions == {tp(0): 0}
    assert cluster.requests == ["end", "replicas"], "the topic is described once"


def test_a_wait_for_an_added_partition_finds_it(cluster: FakeCluster, harness: WorkerHarness) -> None:
    cluster.add_partition(end=3)
    future = harness.add_read_past({tp(1): 2})
    harness.run_until_done(future)
    assert future.exception() is None
    assert harness.worker.positions[tp(1)] >= 2


def test_a_wait_for_a_partition_that_no_broker_knows_fails(cluster: FakeCluster, harness: WorkerHarness) -> None:
    started = cluster.system.now
    done_at: list[float] = []
    future = harness.add_read_past({tp(7): 2})
    future.add_done_callback(lambda _: done_at.append(cluster.system.now))
    harness.run_until_done(future)
    with pytest.raises(ValueError, match="settings-7 is not read by this log; it reads settings-0"):
        future.result(0)
    assert 5 <= done_at[0] - started < 10


def test_a_read_waits_for_a_partition_that_has_records_of_the_log(cluster: FakeCluster, harness: WorkerHarness) -> None:
    """The brokers that are asked do not know it yet, but its leader has acknowledged a record."""
    harness.worker.on_written(tp(1), 0, None, harness.worker.log_generation)
    future = harness.read_to_end()
    harness.run_times(3)
    assert not future.done()
    cluster.add_partition(end=1)
    harness.run_until_done(future)
    assert harness.delivered == [(1, 0)]


def test_a_broker_that_does_not_know_an_added_partition_is_not_believed(
    cluster: FakeCluster, harness: WorkerHarness
) -> None:
    """A replica's broker reports it; the one that describes the topic lags behind."""
    cluster.add_partition(end=1)
    reports = cluster.request_reports({TOPIC: cluster.topic_id}, (), cluster.deadline(1)).by_topic[TOPIC]
    del cluster.ends[tp(1)], cluster.starts[tp(1)]
    cluster.reports = [reports]
    future = harness.read_to_end()
    harness.run_times(2)
    assert not future.done()
    assert isinstance(harness.worker.last_error, TransientBrokerError)
    cluster.add_partition(end=1)
    harness.run_until_done(future)
    assert harness.delivered == [(1, 0)]


class RejectingView:
    """Rejects more than one partition."""

    def check_partition_count(self, topic: LogTopic) -> None:
        if topic.partition_count > 1:
            raise ValueError("rejected")

    def begin_reload(self) -> None:
        raise AssertionError

    def end_reload(self) -> None:
        raise AssertionError


def test_each_read_fails_while_a_view_rejects_the_partitions(cluster: FakeCluster) -> None:
    harness = WorkerHarness(cluster, view=RejectingView())
    harness.run_until_done(harness.read_to_end())
    cluster.add_partition(end=1)
    for _ in range(3):
        future = harness.read_to_end()
        harness.run_until_done(future)
        with pytest.raises(ValueError, match="rejected"):
            future.result(0)
    assert harness.worker.positions == {tp(0): 0}
