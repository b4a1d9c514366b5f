"""Data loss, rejected requests and malformed responses, on a simulated cluster."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.simulation.cluster.broker import SimulatedBroker
from tests.unit.consumer.polling import (
    ONE,
    OTHER,
    THREE,
    TWO,
    ConsumerCluster,
    at_end,
    offsets,
    poll_until,
    poll_until_error,
)

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.consumer.partition_state import TopicPartitionState
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    CorruptRecordError,
    DataLossError,
    ProtocolError,
    TopicNotFoundError,
    TopicRecreatedError,
    TruncatedError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.data_loss import STALE_ENDS_TO_CONFIRM


def test_offset_before_the_log_start_is_data_loss(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 10)
    cluster.append(ONE, 10)
    cluster.delete_records(ONE, 12)
    cluster.append(TWO, 1)
    with cluster.consumer({ONE: 3, TWO: 0}) as consumer:
        error = poll_until_error(consumer, DataLossError)
        assert not isinstance(error, TruncatedError)
        assert (error.topic, error.partition, error.offset) == (*ONE, 3)
        assert "[3, 12) were deleted" in str(error)
        assert "now contains [12, 20)" in str(error)
        consumer.seek(ONE, 12)
        found = poll_until(consumer, at_end(cluster, consumer))
        assert found[ONE] == list(range(12, 20))


def test_error_from_before_a_seek_is_not_raised(cluster: ConsumerCluster) -> None:
    for tp in (ONE, TWO):
        cluster.append(tp, 10)
        cluster.delete_records(tp, 10)
    with cluster.consumer({ONE: 3, TWO: 3}) as consumer:
        assert poll_until_error(consumer, DataLossError).partition == 0  # the other error is pending
        consumer.seek(ONE, 10)
        consumer.seek(TWO, 10)
        consumer.poll(10)


def test_other_partitions_continue_after_data_loss_of_one(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 10)
    cluster.delete_records(ONE, 10)
    cluster.append(TWO, 1)
    with cluster.consumer({ONE: 3, TWO: 0}) as consumer:
        found: list[int] = []
        failures = 0
        for _ in range(40):
            try:
                found += offsets(consumer.poll(1)).get(TWO, [])
            except DataLossError:
                failures += 1
            cluster.append(TWO, 1)
            cluster.sleep(0.1)
        assert found[:30] == list(range(30))
        assert failures == 5  # it is raised repeatedly, with backoff
        assert consumer.positions[ONE] == 3


def test_unread_offset_beyond_the_end_is_data_loss(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 10)
    with cluster.consumer({ONE: 11}) as consumer:
        error = poll_until_error(consumer, DataLossError)
        assert not isinstance(error, TruncatedError)
        assert "beyond the end of the log: the log now contains [0, 10)" in str(error)
        assert error.offset == 11
        consumer.seek(ONE, 10)
        assert consumer.poll(1) == []


def test_stale_end_of_an_old_leader_is_retried() -> None:
    with ConsumerCluster(newest_versions={"Fetch": 11, "ListOffsets": 4}) as cluster:
        cluster.event("stick_follower", topic="flights", partition=0, seconds=1000, deposed=True)
        cluster.append(ONE, 10)
        with cluster.consumer({ONE: 0}) as consumer:
            poll_until(consumer, at_end(cluster, consumer))
            cluster.event("elect_unclean_leader", topic="flights", partition=0)
            assert cluster.log(ONE).end == 0
            for _ in range(4):
                assert consumer.poll(0.4) == []
            cluster.event("elect_unclean_leader", topic="flights", partition=0)
            cluster.append(ONE, 1)
            assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [10]}


def test_an_end_that_may_be_stale_is_confirmed_after_each_seek() -> None:
    with ConsumerCluster(newest_versions={"Fetch": 11, "ListOffsets": 4}) as cluster:
        cluster.append(ONE, 10)
        with cluster.consumer({ONE: 11}) as consumer:
            for offset in (11, 12):
                poll_until_error(consumer, DataLossError)
                assert cluster.fetched().count((ONE, offset)) == STALE_ENDS_TO_CONFIRM + 1
                consumer.seek(ONE, offset + 1)


def test_an_offset_is_checked_again_after_transient_errors(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 5)
    cluster.delete_records(ONE, 5)
    with cluster.consumer({ONE: 0}) as consumer:
        cluster.every("ListOffsets", "lose_response")
        cluster.after(70, lambda: cluster.every("ListOffsets", None))
        assert consumer.poll(65) == []
        assert ONE in consumer.transient_errors
        assert poll_until_error(consumer, DataLossError).offset == 0


def test_leader_that_lost_its_epochs_is_read_on(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 5)
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        for offset in (5, 6):
            cluster.elect(ONE, 1)
            cluster.append(ONE, 1)
            epoch = cluster.log(ONE).batches[-2].epoch
            cluster.log(ONE).epoch_starts.clear()
            cluster.requests.clear()
            assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [offset]}
            sent_epochs = [request.topics[0].partitions[0].last_fetched_epoch for request in cluster.received("Fetch")]
            assert sent_epochs.count(epoch) == 5, sent_epochs


@pytest.mark.parametrize("newest", [12, 17])
def test_recreated_topic_is_reported(newest: int) -> None:
    with ConsumerCluster(newest_versions={"Fetch": newest}) as cluster:
        cluster.append(ONE, 5)
        with cluster.consumer({ONE: 0, TWO: 0}) as consumer:
            poll_until(consumer, at_end(cluster, consumer))
            cluster.event("delete_topic", topic="flights")
            consumer.poll(0.01)
            cluster.event("create_topic", topic="flights", partitions=3)
            cluster.append(ONE, 9)
            errors = {}
            for _ in range(2):
                error = poll_until_error(consumer, TopicRecreatedError)
                assert error.topic_id == cluster.topic_id("flights")
                assert error.topic == "flights"
                errors[TopicPartition(error.topic, error.partition)] = error
            assert errors.keys() == {ONE, TWO}
            assert isinstance(error, TopicNotFoundError)
            for tp in (ONE, TWO):
                consumer.seek(tp, 0)
            assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: list(range(9))}


def test_topic_recreated_before_the_consumer_is_reported(cluster: ConsumerCluster) -> None:
    """The topic id is given, because offsets alone fit the new topic, too."""
    known = dict.fromkeys((ONE, TWO), cluster.topic_id("flights"))
    cluster.event("recreate_topic", topic="flights", partitions=3)
    cluster.append(ONE, 9)
    with cluster.consumer({ONE: 5, TWO: 0}, topic_ids=known) as consumer:
        assert poll_until_error(consumer, TopicRecreatedError).topic_id == cluster.topic_id("flights")
        assert poll_until_error(consumer, TopicRecreatedError).topic_id == cluster.topic_id("flights")
        for tp in (ONE, TWO):
            consumer.seek(tp, 0)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: list(range(9))}


def test_a_seek_before_the_error_does_not_move_to_the_recreated_topic(cluster: ConsumerCluster) -> None:
    """The errors of two partitions wait, and the caller moves the second one before it knows of its error."""
    cluster.append(TWO, 5)
    with cluster.consumer({ONE: 0, TWO: 0}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        cluster.event("recreate_topic", topic="flights", partitions=3)
        cluster.append(TWO, 9)
        first = None
        while first is None:  # so seldom that the checks of both partitions end between two polls
            cluster.sleep(2.0)
            try:
                consumer.poll(0)
            except TopicRecreatedError as error:
                first = error
        assert first.partition is not None
        consumer.seek(TopicPartition("flights", 1 - first.partition), 3)
        second = poll_until_error(consumer, TopicRecreatedError)
        assert {first.partition, second.partition} == {0, 1}
        for tp in (ONE, TWO):
            consumer.seek(tp, 0)
        assert poll_until(consumer, at_end(cluster, consumer)) == {TWO: list(range(9))}


def test_deleted_topic_is_reported(cluster: ConsumerCluster) -> None:
    with cluster.consumer({ONE: 0}) as consumer:
        consumer.poll(1)
        topic = cluster.cluster.topics["flights"]
        cluster.event("delete_topic", topic="flights")
        now = cluster.now
        error = poll_until_error(consumer, TopicNotFoundError)
        assert not isinstance(error, TopicRecreatedError)
        assert error.topic == "flights"
        assert 5 <= cluster.now - now < 8
        cluster.cluster.topics["flights"], topic.deleted = topic, False  # as if brokers had not known it for a while
        cluster.cluster.publish()
        cluster.append(ONE, 1)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0]}


@pytest.mark.parametrize("is_recreated", [False, True])
def test_each_error_about_a_missing_topic_is_confirmed_again(is_recreated: bool) -> None:
    with ConsumerCluster(topics={"ships": 1}) as cluster, cluster.consumer({OTHER: 0}) as consumer:
        consumer.poll(1)
        cluster.event("delete_topic", topic="ships")
        if is_recreated:
            cluster.event("create_topic", topic="ships", partitions=1)
        for _ in range(3):
            now = cluster.now
            error = poll_until_error(consumer, TopicNotFoundError)
            assert isinstance(error, TopicRecreatedError) == is_recreated
            assert 5 <= cluster.now - now < 8


def test_missing_partition_is_reported(cluster: ConsumerCluster) -> None:
    with cluster.consumer({TopicPartition("flights", 7): 0}) as consumer:
        assert "no such partition; it has 3" in str(poll_until_error(consumer, TopicNotFoundError))


def test_gap_at_the_end_is_skipped_after_five_seconds(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 5)
    cluster.append_gap(ONE, 4)
    with cluster.consumer({ONE: 0, TWO: 0}) as consumer:
        assert poll_until(consumer, lambda: consumer.positions[ONE] == 5) == {ONE: [0, 1, 2, 3, 4]}
        now = cluster.now
        assert consumer.poll(500) == []
        assert consumer.positions[ONE] == 9
        assert 5 <= cluster.now - now < 8
        assert consumer.transient_errors == {}


def test_gap_that_an_old_broker_cannot_prove_is_an_error_after_a_minute() -> None:
    with ConsumerCluster(earliest_local=False) as cluster:
        cluster.append(ONE, 5)
        cluster.append_gap(ONE, 4)
        with cluster.consumer({ONE: 0}) as consumer:
            poll_until(consumer, lambda: consumer.positions[ONE] == 5)
            now = cluster.now
            error = poll_until_error(consumer, DataLossError)
            assert 60 <= cluster.now - now < 65
            assert "its leader returned no records from offset 5 on" in str(error)
            assert error.resume_offset == 9
            consumer.seek(ONE, error.resume_offset)
            cluster.append(ONE, 1)
            assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [9]}


@pytest.mark.parametrize("is_moved", [False, True])
def test_time_without_data_of_a_leader_does_not_count_after_an_interruption(is_moved: bool) -> None:
    """One empty response of the next leader was a gap, because the last leader had returned one long before."""
    with ConsumerCluster(failure_detection=100) as cluster:
        cluster.append(ONE, 5)
        cluster.append_gap(ONE, 4)
        with cluster.consumer({ONE: 0}) as consumer:
            poll_until(consumer, lambda: consumer.positions[ONE] == 5)
            consumer.poll(1)
            for broker in cluster.cluster.brokers:
                cluster.event("stop_broker", broker=broker, seconds=20)
            consumer.poll(20)
            if is_moved:
                cluster.elect(ONE, 2)
            now = cluster.now
            assert consumer.poll(500) == []
            assert consumer.positions[ONE] == 9
            assert 5 <= cluster.now - now < 9


@pytest.mark.slow
def test_throttled_time_between_empty_responses_proves_no_gap(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 5)
    cluster.append_gap(ONE, 4)
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, lambda: consumer.positions[ONE] == 5)
        consumer.poll(1)
        cluster.event("throttle_broker", broker=0, seconds=8, ms=500)
        consumer.poll(8)
        assert "THROTTLING" in str(consumer.transient_errors[ONE])
        consumer.poll(4)
        assert consumer.positions[ONE] == 5
        consumer.poll(100)
        assert consumer.positions[ONE] == 9


@pytest.mark.parametrize(("has_local_starts", "seconds"), [(True, 30), (False, 90)])
def test_time_in_the_caller_proves_no_gap(has_local_starts: bool, seconds: float) -> None:
    """Two responses within a second were a gap, because the second one was handled when the caller polled again."""
    with ConsumerCluster(earliest_local=has_local_starts) as cluster:
        cluster.append(ONE, 5)
        cluster.append_gap(ONE, 4)
        with cluster.consumer({ONE: 0}) as consumer:
            poll_until(consumer, lambda: consumer.positions[ONE] == 5)
            consumer.poll(1)
            cluster.sleep(seconds)  # the response to the fetch in flight arrives
            requests = cluster.sent("Fetch")
            while cluster.sent("Fetch") == requests:  # the response to the last fetch before the pause
                assert consumer.poll(0.01) == []
            assert consumer.positions[ONE] == 5
            assert consumer.transient_errors.keys() == {ONE}


def test_a_gap_that_is_proven_after_a_seek_is_not_skipped(cluster: ConsumerCluster) -> None:
    """The request for evidence was sent before the seek; the records after the new position are not proven yet."""
    cluster.append(ONE, 5)
    cluster.append_gap(ONE, 4)
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, lambda: consumer.positions[ONE] == 5)
        cluster.every("ListOffsets", "delay_response", seconds=3)
        poll_until(consumer, lambda: cluster.sent("ListOffsets") == 1, seconds=0.1)
        cluster.every("ListOffsets", None)
        consumer.seek(ONE, 0)
        assert poll_until(consumer, lambda: consumer.positions[ONE] == 5) == {ONE: [0, 1, 2, 3, 4]}
        consumer.poll(4)  # the response arrives
        assert consumer.positions[ONE] == 5
        consumer.poll(100)
        assert consumer.positions[ONE] == 9


def test_a_deposed_leader_proves_no_gap(cluster: ConsumerCluster) -> None:
    """It returns no records, and does not know that the controller has elected another leader."""
    cluster.append(ONE, 5)
    cluster.append(ONE, 4)
    with cluster.consumer({ONE: 0}) as consumer:
        cluster.log(ONE).replace_batches(cluster.log(ONE).batches[:-1])
        poll_until(consumer, lambda: consumer.positions[ONE] == 5)
        cluster.event("isolate_broker", broker=0, seconds=1000)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [5, 6, 7, 8]}


def test_records_in_tiered_storage_are_no_gap(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 5)
    cluster.append(ONE, 2)
    cluster.append(ONE, 2)
    cluster.event("tier_log", topic="flights", partition=0, fraction=0.9)
    assert cluster.log(ONE).local_start == 7
    cluster.event("lose_tiered_storage", topic="flights", partition=0, seconds=60)
    with cluster.consumer({ONE: 5}) as consumer:
        assert consumer.poll(59) == []
        assert consumer.positions[ONE] == 5
        assert "its log ends at offset 9" in str(consumer.transient_errors[ONE])
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [5, 6, 7, 8]}


@pytest.mark.slow
def test_gap_is_skipped_while_other_partitions_get_records(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 5)
    cluster.append_gap(ONE, 4)
    with cluster.consumer({ONE: 0, TWO: 0}) as consumer:
        poll_until(consumer, lambda: consumer.positions[ONE] == 5)
        for _ in range(100):
            cluster.append(TWO, 1)
            cluster.sleep(0.1)
            consumer.poll(1)
        assert consumer.positions[ONE] == 9


def test_partition_without_space_in_the_response_is_no_gap(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 1, size=100)
    for _ in range(100):
        cluster.append(TWO, 1, size=10)
        cluster.append(THREE, 1, size=10)
    start = cluster.now
    with cluster.consumer(fetch={"fetch_max_bytes": 1}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        assert consumer.transient_errors == {}
    assert all(len(request.topics[0].partitions) == 3 for request in cluster.received("Fetch"))  # none backed off
    assert cluster.now < start + 2


# Rejected requests and malformed responses.


def test_authorization_error_is_raised_and_retried() -> None:
    with ConsumerCluster(topics={"ships": 1}) as cluster:
        cluster.append(ONE, 2)
        with cluster.consumer({OTHER: 0, ONE: 0}) as consumer:
            assert offsets(consumer.poll(1)) == {ONE: [0, 1]}
            cluster.event("deny_topic", topic="ships", seconds=60)
            error = poll_until_error(consumer, AuthorizationError)
            assert TopicPartition(error.topic, error.partition) == OTHER
            assert consumer.transient_errors == {}
            cluster.append(OTHER, 1)
            cluster.heal()
            assert poll_until(consumer, at_end(cluster, consumer)) == {OTHER: [0]}


def test_unauthorized_topic_does_not_delay_others() -> None:
    with ConsumerCluster(topics={"ships": 1}) as cluster:
        cluster.append(ONE, 1)
        cluster.event("deny_topic", topic="ships", seconds=60)
        with cluster.consumer() as consumer:
            assert poll_until_error(consumer, AuthorizationError).topic == "ships"
            assert offsets(consumer.poll(1)) == {ONE: [0]}
            assert poll_until_error(consumer, AuthorizationError).topic == "ships"
            cluster.heal()
            cluster.append(OTHER, 1)
            assert poll_until(consumer, at_end(cluster, consumer)) == {OTHER: [0]}


def test_corrupt_records_are_reported_after_good_ones(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 3)
    cluster.append(ONE, 2)
    batch = cluster.log(ONE).batches[-1]
    good = batch.data
    batch.data = good[:-3] + bytes([good[-3] ^ 1]) + good[-2:]
    cluster.append(TWO, 1)
    with cluster.consumer({ONE: 0, TWO: 0}) as consumer:
        assert offsets(consumer.poll(1)) == {ONE: [0, 1, 2], TWO: [0]}
        for _ in range(2):
            error = poll_until_error(consumer, CorruptRecordError)
            assert (error.topic, error.partition, error.offset) == (*ONE, 3)
        assert consumer.positions == {ONE: 3, TWO: 1}
        batch.data = good
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [3, 4]}


def test_rows_of_a_partition_are_returned_although_memory_lacks_for_another(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tp in (ONE, TWO, THREE):
        cluster.append(tp, 3)
    read = TopicPartitionState.read
    failing = [TWO, THREE]

    def read_or_fail(self: TopicPartitionState) -> Any:
        if self.tp in failing:
            failing.remove(self.tp)
            raise MemoryError
        return read(self)

    monkeypatch.setattr(TopicPartitionState, "read", read_or_fail)
    with cluster.consumer({ONE: 0, TWO: 0, THREE: 0}) as consumer:
        found: dict[TopicPartition, list[int]] = {}
        errors = 0
        while sum(map(len, found.values())) < 9:
            try:
                for tp, numbers in offsets(consumer.poll(1)).items():
                    found.setdefault(tp, []).extend(numbers)
            except MemoryError:
                errors += 1
        assert found == {tp: [0, 1, 2] for tp in (ONE, TWO, THREE)}
        assert errors == 2


def test_memory_that_lacks_for_one_partition_of_a_response(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tp in (ONE, TWO, THREE):
        cluster.append(tp, 3)
    feed = TopicPartitionState.feed
    failing = [ONE]

    def feed_or_fail(self: TopicPartitionState, fetched: Any) -> bool:
        if self.tp in failing:
            failing.remove(self.tp)
            raise MemoryError
        return feed(self, fetched)

    monkeypatch.setattr(TopicPartitionState, "feed", feed_or_fail)
    with cluster.consumer({ONE: 0, TWO: 0, THREE: 0}) as consumer:
        poll_until_error(consumer, MemoryError)
        assert poll_until(consumer, at_end(cluster, consumer))[ONE] == [0, 1, 2]


def test_a_consumer_can_be_given_more_partitions(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 2)
    cluster.append(TWO, 5)
    with cluster.consumer({ONE: 0}) as consumer:
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0, 1]}
        consumer.assign({TWO: 3})
        assert consumer.positions == {ONE: 2, TWO: 3}
        cluster.append(ONE, 1)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [2], TWO: [3, 4]}


def test_bytes_without_a_complete_batch_are_corrupt(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 1)
    batch = cluster.log(ONE).batches[0]
    batch.data = batch.data[:30]
    with cluster.consumer({ONE: 0}) as consumer:
        assert "without a complete record batch" in str(poll_until_error(consumer, CorruptRecordError))


def test_malformed_response_only_closes_the_connection(cluster: ConsumerCluster) -> None:
    with cluster.consumer({ONE: 0}) as consumer:
        consumer.poll(1)
        cluster.fault("Fetch", "garble_response")
        cluster.append(ONE, 1)
        assert offsets(consumer.poll(1)) == {ONE: [0]}
        cluster.append(ONE, 1)
        assert "malformed" in str(poll_until_error(consumer, ProtocolError))
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [1]}
        closed = [facts for _, kind, *facts in cluster.world.trace_lines if kind == "closed"]
        assert closed == [["client", 1, 0]]


def test_unrequested_divergence_is_a_protocol_error(cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.append(ONE, 3)
    handle = SimulatedBroker.handle

    def diverging(broker: SimulatedBroker, api: str, version: int, request: Any, client_id: str) -> Any:
        reply = handle(broker, api, version, request, client_id)
        if isinstance(reply, dict) and "responses" in reply:
            end = {"epoch": 1, "end_offset": 1}
            reply["responses"][0]["partitions"][0].update(records=b"", diverging_epoch=end)
        return reply

    monkeypatch.setattr(SimulatedBroker, "handle", diverging)
    with cluster.consumer({ONE: 0}) as consumer:
        assert "named no epoch to compare" in str(poll_until_error(consumer, ProtocolError))


def test_bug_in_a_background_task_is_raised(cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_bug(*_: object, **__: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(ClusterClient, "topics", raise_bug)
    with cluster.consumer() as consumer, pytest.raises(KeyError, match="a bug"):
        consumer.poll(1)


def test_consumer_belongs_to_its_process(cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = cluster.consumer()
    consumer.poll(1)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pytest.raises(RuntimeError, match="belongs to the parent process"):
        consumer.poll(0)
    assert cluster.open_connections == 1
    consumer.close()
    assert cluster.open_connections == 0  # the child's copy of the descriptor is closed, and not pooled


def test_partitions_with_the_same_error_are_retried_together(cluster: ConsumerCluster) -> None:
    """They are fetched in one request, not one long poll later."""
    with cluster.consumer() as consumer:
        consumer.poll(1)
        cluster.break_connections()
        cluster.requests.clear()
        consumer.poll(0.2)
        assert [len(request.topics[0].partitions) for request in cluster.received("Fetch")] == [3]


def test_due_metadata_refresh_causes_no_busy_loop(cluster: ConsumerCluster) -> None:
    """A metadata refresh is due while a slow one is in flight."""
    with cluster.consumer(fetch={"fetch_max_wait_ms": 15_000}) as consumer:
        consumer.poll(290)
        cluster.fault("Metadata", "stall_request", repeats=10)
        cluster.break_connections()
        consumer.poll(5)
        calls = cluster.world.calls
        consumer.poll(60)
        assert cluster.world.calls - calls < 500


def test_fetch_wait_is_limited_by_the_request_timeout(cluster: ConsumerCluster) -> None:
    with cluster.consumer(fetch={"fetch_max_wait_ms": 50_000}) as consumer:
        consumer.poll(100)
        assert consumer.transient_errors == {}
    assert cluster.network.connect_count == 1
    assert {request.max_wait_ms for request in cluster.received("Fetch")} == {15_000}


def test_transient_error_is_visible_while_it_lasts(cluster: ConsumerCluster) -> None:
    cluster.event("lose_leader", topic="flights", partition=0, seconds=6)
    with cluster.consumer({ONE: 0}) as consumer:
        consumer.poll(5)
        assert "LEADER_NOT_AVAILABLE" in str(consumer.transient_errors[ONE])
        consumer.poll(3)
        assert consumer.transient_errors == {}
