"""Logs that unclean leader elections truncated, on a simulated cluster."""

from __future__ import annotations

import pytest
from tests.unit.consumer.polling import ONE, ConsumerCluster, at_end, offsets, poll_until, poll_until_error

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.errors import TransientBrokerError, TruncatedError


@pytest.mark.parametrize("newest", [11, 17])
def test_truncated_log_is_reported(newest: int) -> None:
    """Newer brokers return where it was truncated; of older ones only the end shows it."""
    with ConsumerCluster(1, newest_versions={"Fetch": newest}) as cluster:
        for _ in range(4):
            cluster.append(ONE, 5)
        with cluster.consumer({ONE: 0}) as consumer:
            poll_until(consumer, at_end(cluster, consumer))
            cluster.truncate(ONE, 10, leader=2)
            if newest == 17:
                cluster.append(ONE, 50)  # as long as before, and longer
            for _ in range(2):  # it is raised until the owner seeks
                error = poll_until_error(consumer, TruncatedError)
                known = 10 if newest == 17 else None  # records may have been appended since
                assert (error.topic, error.partition, error.offset, error.truncated_to) == (*ONE, 20, known)
                assert (
                    "truncated the log to offset 10"
                    if known
                    else "It is not known which of the records before offset 20"
                ) in str(error)
            consumer.seek(ONE, 10)
            cluster.append(ONE, 1)
            found = poll_until(consumer, at_end(cluster, consumer))
            assert found == {ONE: list(range(10, cluster.log(ONE).end))}


def test_an_earlier_log_that_comes_back_differs_from_the_first_record_of_a_later_epoch(
    cluster: ConsumerCluster,
) -> None:
    """The common epoch ends at offset 3 of the leader's log, but at that offset the consumer has read other records."""
    cluster.event("stick_follower", topic="flights", partition=0, seconds=1000, deposed=True)
    cluster.append(ONE, 3)
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        cluster.event("elect_unclean_leader", topic="flights", partition=0)
        cluster.append(ONE, 5)
        assert poll_until_error(consumer, TruncatedError).truncated_to == 0
        consumer.seek(ONE, 0)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0, 1, 2, 3, 4]}
        cluster.event("elect_unclean_leader", topic="flights", partition=0)
        assert cluster.log(ONE).end == 3
        assert poll_until_error(consumer, TruncatedError).truncated_to == 0


def test_the_records_before_a_truncation_are_compared_with_the_next_leader(cluster: ConsumerCluster) -> None:
    """No record was read since the consumer resumed there."""
    cluster.append(ONE, 3)
    cluster.elect(ONE, 1)
    cluster.append(ONE, 3)
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        cluster.truncate(ONE, 3, leader=2)
        assert poll_until_error(consumer, TruncatedError).truncated_to == 3
        consumer.seek(ONE, 3)
        assert consumer.poll(0.1) == []
        cluster.truncate(ONE, 0, leader=1)
        cluster.append(ONE, 9)
        assert poll_until_error(consumer, TruncatedError).truncated_to == 0


def test_a_truncation_is_reported_once_if_the_owner_resumes_behind_it(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 4)
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        cluster.truncate(ONE, 0, leader=2)
        cluster.append(ONE, 3)
        assert poll_until_error(consumer, TruncatedError).truncated_to == 0
        consumer.seek(ONE, 2)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [2]}


def test_a_truncation_is_detected_after_an_earlier_one_and_a_seek(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 4)
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        cluster.truncate(ONE, 0, leader=2)
        cluster.append(ONE, 3)
        cluster.append(ONE, 6)
        assert poll_until_error(consumer, TruncatedError).truncated_to == 0
        consumer.seek(ONE, 0)
        poll_until(consumer, at_end(cluster, consumer))
        consumer.seek(ONE, 5)
        cluster.truncate(ONE, 3)
        cluster.append(ONE, 9)
        assert poll_until_error(consumer, TruncatedError).truncated_to == 3


def test_a_late_response_of_an_earlier_leader_epoch_hides_no_truncation() -> None:
    """It arrives when its broker leads the partition again, after another one that did not respond."""
    with ConsumerCluster(1, connection={"metadata_max_age_ms": 2000}) as cluster:
        cluster.append_each(ONE, 5)
        with cluster.consumer({ONE: 0}) as consumer:
            poll_until(consumer, at_end(cluster, consumer))
            cluster.fault("Fetch", "delay_response", seconds=20)
            for _ in range(2):  # the response to the second fetch is late
                cluster.append_each(ONE, 5)
                consumer.poll(1)
            cluster.event("pause_broker", broker=1, seconds=1000)
            for leader in (2, 1):
                cluster.truncate(ONE, 3, leader=leader)
                cluster.append_each(ONE, 30)
                assert consumer.poll(4) == []
            assert poll_until_error(consumer, TruncatedError).truncated_to == 3


@pytest.mark.parametrize("offset", [0, 1, 2, 4, 5])
def test_a_truncation_is_detected_after_a_seek_within_fetched_records(cluster: ConsumerCluster, offset: int) -> None:
    """They were not returned yet, but their leader epochs are known; the records before offset 2 remain the same."""
    cluster.append_each(ONE, 5)
    with cluster.consumer({ONE: 0}, max_rows=1, max_bytes=1) as consumer:
        assert offsets(consumer.poll(1)) == {ONE: [0]}
        consumer.seek(ONE, offset)
        assert consumer.last_epochs == {ONE: cluster.partition(ONE).epoch if offset else -1}
        cluster.truncate(ONE, 2, leader=2)
        cluster.append_each(ONE, 6)
        if offset > 2:
            assert poll_until_error(consumer, TruncatedError).truncated_to == 2
        else:
            assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: list(range(offset, 8))}


def test_truncation_before_the_first_read_is_no_error(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 5)
    with cluster.consumer({ONE: 3}) as consumer:
        cluster.truncate(ONE, 0)
        cluster.append(ONE, 9)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [3, 4, 5, 6, 7, 8]}


def test_a_truncation_is_detected_by_the_leader_epoch_of_an_earlier_consumer(cluster: ConsumerCluster) -> None:
    cluster.append_each(ONE, 5)
    last_epochs = {ONE: cluster.partition(ONE).epoch}
    cluster.truncate(ONE, 3, leader=2)
    cluster.append_each(ONE, 4)
    with cluster.consumer({ONE: 5}, last_epochs=last_epochs) as consumer:
        assert poll_until_error(consumer, TruncatedError).truncated_to == 3
    with cluster.consumer({ONE: 5}) as consumer:
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [5, 6]}


def test_the_leader_epoch_of_an_earlier_consumer_does_not_apply_to_earlier_records(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 5)
    first_epoch = cluster.partition(ONE).epoch
    cluster.elect(ONE, 1)
    cluster.append(ONE, 5)
    last_epochs = {ONE: cluster.partition(ONE).epoch}
    with cluster.consumer({ONE: 8}, last_epochs=last_epochs, max_rows=1, max_bytes=1) as consumer:
        assert consumer.last_epochs == last_epochs
        consumer.seek(ONE, 2)
        assert consumer.last_epochs == {ONE: -1}, "it is not known"
        poll_until(consumer, lambda: consumer.positions[ONE] >= 3)
        assert consumer.last_epochs == {ONE: first_epoch}
        poll_until(consumer, at_end(cluster, consumer))
        assert consumer.last_epochs == last_epochs


def test_a_truncation_counts_once_no_broker_reports_a_later_leader(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report_later_leader(*_: object, **__: object) -> None:
        raise TransientBrokerError("another broker has a later leader.")

    for _ in range(4):
        cluster.append(ONE, 5)
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        cluster.truncate(ONE, 10, leader=2)
        cluster.append(ONE, 50)
        with monkeypatch.context() as patch:
            patch.setattr(ClusterClient, "check_leader", report_later_leader)
            assert consumer.poll(5) == []
            assert "later leader" in str(consumer.transient_errors[ONE])
        assert poll_until_error(consumer, TruncatedError).truncated_to == 10
