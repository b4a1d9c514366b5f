"""Data loss, rejected requests and malformed responses, with a fake cluster."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.consumer.fake_cluster import FakeCluster
from tests.unit.consumer.polling import (
    ONE,
    OTHER,
    THREE,
    TWO,
    at_end,
    offsets,
    poll_until,
    poll_until_error,
)
from tests.unit.records.batches import Batch, Rec

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
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_for

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def cluster() -> FakeCluster:
    """Two brokers; the first one leads."""
    return FakeCluster([ONE, TWO, THREE], cluster=2)


def test_offset_before_the_log_start_is_data_loss(cluster: FakeCluster) -> None:
    log = cluster.logs[ONE]
    log.append(10)
    log.append(10)
    log.start = 12
    cluster.logs[TWO].append(1)
    with cluster.consumer({ONE: 3, TWO: 0}) as consumer:
        error = poll_until_error(consumer, DataLossError)
        assert not isinstance(error, TruncatedError)
        assert (error.topic, error.partition, error.offset) == (*ONE, 3)
        assert "[3, 12) were deleted" in str(error)
        assert "now contains [12, 20)" in str(error)
        consumer.seek(ONE, 12)
        found = poll_until(consumer, at_end(cluster, consumer))
        assert found[ONE] == list(range(12, 20))


def test_error_from_before_a_seek_is_not_raised(cluster: FakeCluster) -> None:
    for tp in (ONE, TWO):
        cluster.logs[tp].append(10)
        cluster.logs[tp].start = 10
    with cluster.consumer({ONE: 3, TWO: 3}) as consumer:
        assert poll_until_error(consumer, DataLossError).partition == 0  # the other error is pending
        consumer.seek(ONE, 10)
        consumer.seek(TWO, 10)
        consumer.poll(10)


def test_other_partitions_continue_after_data_loss_of_one(cluster: FakeCluster) -> None:
    log = cluster.logs[ONE]
    log.append(10)
    log.start = 10
    cluster.logs[TWO].append(1)
    with cluster.consumer({ONE: 3, TWO: 0}) as consumer:
        found: list[int] = []
        failures = 0
        for _ in range(40):
            try:
                found += offsets(consumer.poll(1)).get(TWO, [])
            except DataLossError:
                failures += 1
            cluster.logs[TWO].append(1)
            cluster.system.wait_readable([], 0.1)
            cluster.respond_to_waiting_fetches()
        assert found[:30] == list(range(30))
        assert failures > 3  # it is raised repeatedly, with backoff
        assert consumer.positions[ONE] == 3


def test_unread_offset_beyond_the_end_is_data_loss(cluster: FakeCluster) -> None:
    cluster.logs[ONE].append(10)
    with cluster.consumer({ONE: 11}) as consumer:
        error = poll_until_error(consumer, DataLossError)
        assert not isinstance(error, TruncatedError)
        assert "beyond the end of the log: the log now contains [0, 10)" in str(error)
        assert error.offset == 11
        consumer.seek(ONE, 10)
        assert consumer.poll(1) == []


def test_stale_end_of_an_old_leader_is_retried(cluster: FakeCluster) -> None:
    cluster.versions = {1: (4, 11), 2: (1, 4)}
    log = cluster.logs[ONE]
    log.append(10)
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        batches, log.batches, log.epoch = log.batches, [], 6
        cluster.respond_to_waiting_fetches()
        for _ in range(4):
            assert consumer.poll(0.4) == []
        log.batches = batches
        log.append(1)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [10]}


def test_leader_that_lost_its_epochs_is_read_on(cluster: FakeCluster) -> None:
    log = cluster.logs[ONE]
    log.append(5)
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        log.epoch = 6
        sent_epochs: list[int] = []

        def error(tp: TopicPartition) -> int:
            entry = cluster.requests[-1].topics[0].partitions[0]
            sent_epochs.append(entry.last_fetched_epoch)
            return ErrorCode.OFFSET_OUT_OF_RANGE if entry.last_fetched_epoch >= 0 else 0

        cluster.error = error
        log.append(1)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [5]}
        assert sent_epochs.count(5) == 5


@pytest.mark.parametrize("newest", [12, 17])
def test_recreated_topic_is_reported(cluster: FakeCluster, newest: int) -> None:
    cluster.versions = {1: (4, newest), 2: (1, 11)}
    cluster.logs[ONE].append(5)
    with cluster.consumer({ONE: 0, TWO: 0}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        cluster.error = lambda _: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # while it is deleted
        cluster.respond_to_waiting_fetches()
        consumer.poll(0.01)
        cluster.error = lambda _: 0
        cluster.recreate("flights")
        cluster.logs[ONE].append(9)
        errors = {}
        for _ in range(2):
            error = poll_until_error(consumer, TopicRecreatedError)
            assert error.topic_id == cluster.topic_ids["flights"]
            assert error.topic == "flights"
            errors[TopicPartition(error.topic, error.partition)] = error
        assert errors.keys() == {ONE, TWO}
        assert isinstance(error, TopicNotFoundError)
        for tp in (ONE, TWO):
            consumer.seek(tp, 0)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: list(range(9))}


def test_topic_recreated_before_the_consumer_is_reported(cluster: FakeCluster) -> None:
    """The topic id is given, because offsets alone fit the new topic, too."""
    known = dict.fromkeys((ONE, TWO), cluster.topic_ids["flights"])
    cluster.recreate("flights")
    cluster.logs[ONE].append(9)
    with cluster.consumer({ONE: 5, TWO: 0}, topic_ids=known) as consumer:
        assert poll_until_error(consumer, TopicRecreatedError).topic_id == cluster.topic_ids["flights"]
        assert poll_until_error(consumer, TopicRecreatedError).topic_id == cluster.topic_ids["flights"]
        for tp in (ONE, TWO):
            consumer.seek(tp, 0)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: list(range(9))}


def test_deleted_topic_is_reported(cluster: FakeCluster) -> None:
    with cluster.consumer({ONE: 0}) as consumer:
        consumer.poll(1)
        log = cluster.logs.pop(ONE)
        del cluster.logs[TWO], cluster.logs[THREE]
        cluster.respond_to_waiting_fetches()
        now = cluster.system.now
        error = poll_until_error(consumer, TopicNotFoundError)
        assert not isinstance(error, TopicRecreatedError)
        assert error.topic == "flights"
        assert 5 <= cluster.system.now - now < 8
        cluster.logs[ONE] = log
        log.append(1)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0]}


def test_missing_partition_is_reported(cluster: FakeCluster) -> None:
    with cluster.consumer({TopicPartition("flights", 7): 0}) as consumer:
        assert "no such partition; it has 3" in str(poll_until_error(consumer, TopicNotFoundError))


def test_gap_at_the_end_is_skipped_after_five_seconds(cluster: FakeCluster) -> None:
    log = cluster.logs[ONE]
    log.append(5)
    log.empty_until = 9
    with cluster.consumer({ONE: 0, TWO: 0}) as consumer:
        assert poll_until(consumer, lambda: consumer.positions[ONE] == 5) == {ONE: [0, 1, 2, 3, 4]}
        now = cluster.system.now
        assert consumer.poll(500) == []
        assert consumer.positions[ONE] == 9
        assert 5 <= cluster.system.now - now < 8
        assert consumer.transient_errors == {}


@pytest.mark.parametrize("interruption", ["disconnected", "leader moved"])
def test_time_without_data_of_a_leader_does_not_count_after_an_interruption(
    cluster: FakeCluster, interruption: str
) -> None:
    """One empty response of the next leader was a gap, because the last leader had returned one long before."""
    log = cluster.logs[ONE]
    log.append(5)
    log.empty_until = 9
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, lambda: consumer.positions[ONE] == 5)
        consumer.poll(1)
        cluster.down = {1, 2}
        cluster.break_connections()
        if interruption == "leader moved":
            log.leader, log.epoch = 2, log.epoch + 1
        consumer.poll(20)
        cluster.down = set()
        now = cluster.system.now
        assert consumer.poll(500) == []
        assert consumer.positions[ONE] == 9
        assert 5 <= cluster.system.now - now < 9


def test_throttled_time_between_empty_responses_proves_no_gap(cluster: FakeCluster) -> None:
    log = cluster.logs[ONE]
    log.append(5)
    log.empty_until = 9
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, lambda: consumer.positions[ONE] == 5)
        consumer.poll(1)
        cluster.throttled = 1_000_000
        consumer.poll(8)
        assert "THROTTLING" in str(consumer.transient_errors[ONE])
        cluster.throttled = 0
        consumer.poll(4)
        assert consumer.positions[ONE] == 5
        consumer.poll(100)
        assert consumer.positions[ONE] == 9


@pytest.mark.parametrize(("first_local_offset", "seconds"), [(0, 30), (None, 90)])
def test_time_in_the_caller_proves_no_gap(cluster: FakeCluster, first_local_offset: int | None, seconds: float) -> None:
    """Two responses within a second were a gap, because the second one was handled when the caller polled again."""
    log = cluster.logs[ONE]
    log.append(5)
    log.empty_until = 9
    cluster.first_local_offset = first_local_offset
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, lambda: consumer.positions[ONE] == 5)
        consumer.poll(1)
        cluster.system.wait_readable([], seconds)  # the response to the fetch in flight arrives
        requests = len(cluster.requests)
        while len(cluster.requests) == requests:  # the response to the last fetch before the pause
            assert consumer.poll(0.01) == []
        assert consumer.positions[ONE] == 5
        assert consumer.transient_errors.keys() == {ONE}


def test_a_deposed_leader_proves_no_gap(cluster: FakeCluster) -> None:
    log = cluster.logs[ONE]
    log.append(5)
    log.empty_until = 9
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, lambda: consumer.positions[ONE] == 5)
        cluster.deposed = {ONE}
        assert consumer.poll(100) == []
        assert consumer.positions[ONE] == 5
        assert "FENCED_LEADER_EPOCH" in str(consumer.transient_errors[ONE])
        cluster.deposed = set()
        consumer.poll(100)
        assert consumer.positions[ONE] == 9


def test_records_in_tiered_storage_are_no_gap(cluster: FakeCluster) -> None:
    log = cluster.logs[ONE]
    log.append(5)
    log.empty_until = 9
    cluster.first_local_offset = 7
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, lambda: consumer.positions[ONE] == 5)
        assert consumer.poll(500) == []
        assert consumer.positions[ONE] == 5
        assert "its log ends at offset 9" in str(consumer.transient_errors[ONE])
        cluster.first_local_offset = 0
        consumer.poll(100)
        assert consumer.positions[ONE] == 9


def test_gap_is_skipped_while_other_partitions_get_records(cluster: FakeCluster) -> None:
    log = cluster.logs[ONE]
    log.append(5)
    log.empty_until = 9
    with cluster.consumer({ONE: 0, TWO: 0}) as consumer:
        poll_until(consumer, lambda: consumer.positions[ONE] == 5)
        for _ in range(1000):
            cluster.logs[TWO].append(1)
            cluster.respond_to_waiting_fetches()
            cluster.system.wait_readable([], 0.1)
            consumer.poll(1)
        assert consumer.positions[ONE] == 9


def test_partition_without_space_in_the_response_is_no_gap(cluster: FakeCluster) -> None:
    cluster.logs[ONE].append(1, size=100)
    for _ in range(300):
        cluster.logs[TWO].append(1, size=10)
        cluster.logs[THREE].append(1, size=10)
    with cluster.consumer(fetch={"fetch_max_bytes": 1}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        assert consumer.transient_errors == {}
    assert all(len(request.topics[0].partitions) == 3 for request in cluster.requests)  # none backed off
    assert cluster.system.now < 1002


# Rejected requests and malformed responses.


def test_authorization_error_is_raised_and_retried(cluster: FakeCluster) -> None:
    cluster.error = lambda tp: ErrorCode.TOPIC_AUTHORIZATION_FAILED if tp == ONE else 0
    cluster.logs[TWO].append(2)
    with cluster.consumer({ONE: 0, TWO: 0}) as consumer:
        error = poll_until_error(consumer, AuthorizationError)
        assert TopicPartition(error.topic, error.partition) == ONE
        assert consumer.transient_errors == {}
        cluster.logs[ONE].append(1)
        cluster.error = lambda _: 0
        found = poll_until(consumer, at_end(cluster, consumer))
        assert found.get(ONE) == [0]


def test_unauthorized_topic_does_not_delay_others() -> None:
    cluster = FakeCluster([ONE, OTHER])
    cluster.logs[ONE].append(1)

    def metadata_error(topic: str) -> Exception | None:
        return error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "asking", topic=topic) if topic == "ships" else None

    cluster.metadata_error = metadata_error
    with cluster.consumer() as consumer:
        assert poll_until_error(consumer, AuthorizationError).topic == "ships"
        assert offsets(consumer.poll(1)) == {ONE: [0]}
        assert poll_until_error(consumer, AuthorizationError).topic == "ships"
        cluster.metadata_error = lambda _: None
        cluster.logs[OTHER].append(1)
        assert poll_until(consumer, at_end(cluster, consumer)) == {OTHER: [0]}


def test_corrupt_records_are_reported_after_good_ones(cluster: FakeCluster) -> None:
    log = cluster.logs[ONE]
    log.append(3)
    good = Batch((Rec(b"x"), Rec(b"y")), 3, leader_epoch=5)
    encoded = bytearray(good.encode())
    encoded[-3] ^= 1

    class Damaged(Batch):
        def encode(self) -> bytes:
            return bytes(encoded)

    log.batches.append(Damaged(good.records, 3, leader_epoch=5))
    cluster.logs[TWO].append(1)
    with cluster.consumer({ONE: 0, TWO: 0}) as consumer:
        assert offsets(consumer.poll(1)) == {ONE: [0, 1, 2], TWO: [0]}
        for _ in range(2):
            error = poll_until_error(consumer, CorruptRecordError)
            assert (error.topic, error.partition, error.offset) == (*ONE, 3)
        assert consumer.positions == {ONE: 3, TWO: 1}
        log.batches[-1] = good
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [3, 4]}


def test_rows_of_a_partition_are_returned_although_memory_lacks_for_another(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tp in (ONE, TWO, THREE):
        cluster.logs[tp].append(3)
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
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tp in (ONE, TWO, THREE):
        cluster.logs[tp].append(3)
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


def test_a_consumer_can_be_given_more_partitions(cluster: FakeCluster) -> None:
    cluster.logs[ONE].append(2)
    cluster.logs[TWO].append(5)
    with cluster.consumer({ONE: 0}) as consumer:
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [0, 1]}
        consumer.assign({TWO: 3})
        assert consumer.positions == {ONE: 2, TWO: 3}
        cluster.logs[ONE].append(1)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [2], TWO: [3, 4]}


def test_bytes_without_a_complete_batch_are_corrupt(cluster: FakeCluster) -> None:
    class Incomplete(Batch):
        def encode(self) -> bytes:
            return super().encode()[:30]

    cluster.logs[ONE].batches.append(Incomplete((Rec(b"x"),), 0))
    with cluster.consumer({ONE: 0}) as consumer:
        assert "without a complete record batch" in str(poll_until_error(consumer, CorruptRecordError))


def test_malformed_response_only_closes_the_connection(cluster: FakeCluster) -> None:
    cluster.logs[ONE].append(1)
    with cluster.consumer({ONE: 0}) as consumer:
        consumer.poll(1)
        cluster.connections[0]._encode = lambda responses: b"\xff" * 60  # type: ignore[method-assign]
        cluster.logs[ONE].append(1)
        cluster.respond_to_waiting_fetches()
        error = poll_until_error(consumer, ProtocolError)
        assert "malformed" in str(error)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [1]}
    assert cluster.connections[0].closed


def test_unrequested_divergence_is_a_protocol_error(cluster: FakeCluster) -> None:
    cluster.logs[ONE].append(3)
    with cluster.consumer({ONE: 0}) as consumer:
        poll_until(consumer, at_end(cluster, consumer))
        connection = cluster.connections[0]
        diverging = diverging_response(connection)
        connection._partition = diverging  # type: ignore[method-assign]
        assert "named no epoch to compare" in str(poll_until_error(consumer, ProtocolError))


def diverging_response(connection: Any) -> Callable[..., dict[str, Any]]:
    from tests.unit.consumer.fake_cluster import PartitionData

    respond = connection._partition
    end = PartitionData.EpochEndOffset(version=17, epoch=1, end_offset=1)
    return lambda *arguments: respond(*arguments) | {"records": b"", "diverging_epoch": end}


def test_bug_in_a_background_task_is_raised(cluster: FakeCluster) -> None:
    cluster.metadata_error = lambda _: KeyError("a bug")
    with cluster.consumer() as consumer, pytest.raises(KeyError, match="a bug"):
        consumer.poll(1)


def test_consumer_belongs_to_its_process(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = cluster.consumer()
    consumer.poll(1)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pytest.raises(RuntimeError, match="belongs to the parent process"):
        consumer.poll(0)
    consumer.close()
    assert cluster.connections[0].closed  # the child's copy of the descriptor
    assert cluster.released == []


def test_partitions_with_the_same_error_are_retried_together(cluster: FakeCluster) -> None:
    """They are fetched in one request, not one long poll later."""
    with cluster.consumer() as consumer:
        consumer.poll(1)
        cluster.break_connections()
        count = len(cluster.requests)
        consumer.poll(0.2)
        assert [len(request.topics[0].partitions) for request in cluster.requests[count:]] == [3]


def test_due_metadata_refresh_causes_no_busy_loop(cluster: FakeCluster) -> None:
    """A metadata refresh is due while a slow one is in flight."""
    with cluster.consumer(fetch={"fetch_max_wait_ms": 15_000}) as consumer:
        consumer.poll(290)
        cluster.system.hold_background = True
        cluster.break_connections()
        consumer.poll(5)
        cluster.system.waits.clear()
        consumer.poll(60)
        assert len(cluster.system.waits) < 10


def test_fetch_wait_is_limited_by_the_request_timeout(cluster: FakeCluster) -> None:
    with cluster.consumer(fetch={"fetch_max_wait_ms": 50_000}) as consumer:
        consumer.poll(100)
        assert consumer.transient_errors == {}
    assert len(cluster.connections) == 1
    assert {request.max_wait_ms for request in cluster.requests} == {15_000}


def test_transient_error_is_visible_while_it_lasts(cluster: FakeCluster) -> None:
    cluster.down.add(1)
    with cluster.consumer({ONE: 0}) as consumer:
        consumer.poll(5)
        assert "LEADER_NOT_AVAILABLE" in str(consumer.transient_errors[ONE])
        cluster.down.clear()
        consumer.poll(3)
        assert consumer.transient_errors == {}
