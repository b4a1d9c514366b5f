"""Logs that unclean leader elections truncated, with a fake cluster."""

from __future__ import annotations

import pytest
from tests.unit.consumer.fake_cluster import FakeCluster
from tests.unit.consumer.polling import ONE, at_end, poll_until, poll_until_error

from pyspark_kafka_direct.errors import TruncatedError


@pytest.fixture
def cluster() -> FakeCluster:
    """Two brokers; the first one leads."""
    return FakeCluster([ONE], cluster=2)


@pytest.mark.parametrize("newest", [11, 17])
def test_truncated_log_is_reported(cluster: FakeCluster, newest: int) -> None:
    """Newer brokers return where it was truncated; of older ones only the end shows it."""
    cluster.versions = {1: (4, newest), 2: (1, 11)}
    log = cluster.logs[ONE]
    for _ in range(4):
        log.append(5)
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        log.truncate(10)
        log.leader = 2
        if newest == 17:
            log.append(50)  # as long as before, and longer
        cluster.respond_to_waiting_fetches()
        for _ in range(2):  # it is raised until the owner seeks
            error = poll_until_error(consumer, TruncatedError)
            known = 10 if newest == 17 else None  # records may have been appended since
            assert (error.topic, error.partition, error.offset, error.truncated_to) == (*ONE, 20, known)
            assert (
                "truncated the log to offset 10" if known else "It is not known which of the records before offset 20"
            ) in str(error)
        consumer.seek(ONE, 10)
        log.append(1)
        found = poll_until(consumer, at_end(cluster, consumer))
        assert found == {ONE: list(range(10, log.end))}


def test_an_earlier_log_that_comes_back_differs_from_the_first_record_of_a_later_epoch(cluster: FakeCluster) -> None:
    """The common epoch ends at offset 3 of the leader's log, but at that offset the consumer has read other records."""
    log = cluster.logs[ONE]
    log.append(3)
    earlier = list(log.batches)
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        log.truncate(0)
        log.append(5)
        log.leader = 2
        cluster.respond_to_waiting_fetches()
        assert poll_until_error(consumer, TruncatedError).truncated_to == 0
        consumer.seek(ONE, 0)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0, 1, 2, 3, 4]}
        log.batches, log.epoch, log.leader = earlier, log.epoch + 1, 1
        cluster.respond_to_waiting_fetches()
        assert poll_until_error(consumer, TruncatedError).truncated_to == 0


def test_the_records_before_a_truncation_are_compared_with_the_next_leader(cluster: FakeCluster) -> None:
    """No record was read since the consumer resumed there."""
    log = cluster.logs[ONE]
    log.append(3)
    log.epoch += 1
    log.append(3)
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        log.truncate(3)
        log.leader = 2
        cluster.respond_to_waiting_fetches()
        assert poll_until_error(consumer, TruncatedError).truncated_to == 3
        consumer.seek(ONE, 3)
        assert consumer.poll(0.1) == []
        log.truncate(0)
        log.append(9)
        log.leader = 1
        cluster.respond_to_waiting_fetches()
        assert poll_until_error(consumer, TruncatedError).truncated_to == 0


def test_a_truncation_below_the_log_start_is_reported_once(cluster: FakeCluster) -> None:
    log = cluster.logs[ONE]
    log.append(4)
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        log.truncate(0)
        log.append(3)
        log.start, log.leader = 2, 2
        cluster.respond_to_waiting_fetches()
        assert poll_until_error(consumer, TruncatedError).truncated_to == 0
        consumer.seek(ONE, 2)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [2]}


def test_truncation_before_the_first_read_is_no_error(cluster: FakeCluster) -> None:
    log = cluster.logs[ONE]
    log.append(5)
    with cluster.consumer({ONE: 3}) as consumer:
        log.truncate(0)
        log.append(9)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [3, 4, 5, 6, 7, 8]}
