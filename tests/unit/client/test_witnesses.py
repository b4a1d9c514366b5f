"""Brokers that contradict each other: one lags behind, a leader was deposed, a cluster has lost its epochs."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn
from uuid import UUID

import pytest
from tests.unit.client.fake_broker import PARTITION, TOPIC, TOPIC_ID, FakeBroker, error_sequence
from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.metadata import Node, PartitionLeader
from pyspark_kafka_direct.client.witnesses import AbsenceCheck, Witnesses
from pyspark_kafka_direct.consumer.fetch_channel import ReadReplica
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    TransientBrokerError,
)
from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.planning.data_loss import Presence
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def pool() -> Iterator[ConnectionPool]:
    pool = ConnectionPool(FakeTimeSystem())
    pool.rotation = 0.0
    yield pool
    pool.close()


@pytest.fixture
def three() -> Iterator[list[FakeBroker]]:
    """Brokers of one cluster: the first one leads at epoch 5, and is the first to be called."""
    with contextlib.ExitStack() as stack:
        brokers = [stack.enter_context(FakeBroker()) for _ in range(3)]
        for broker in brokers:
            broker.leaders = list(enumerate(brokers, 1))
        yield brokers


@pytest.fixture
def five() -> Iterator[list[FakeBroker]]:
    with contextlib.ExitStack() as stack:
        brokers = [stack.enter_context(FakeBroker()) for _ in range(5)]
        for broker in brokers:
            broker.leaders = list(enumerate(brokers, 1))
        yield brokers


def client(brokers: list[FakeBroker], pool: ConnectionPool) -> ClusterClient:
    servers = tuple(("127.0.0.1", broker.port) for broker in brokers)
    # Simulated seconds, which the tests count.
    settings = replace(brokers[0].settings, bootstrap_servers=servers, default_api_timeout_ms=20_000)
    return ClusterClient(settings, pool=pool)


def elect(brokers: list[FakeBroker], leader: int, epoch: int) -> None:
    """Brokers learn of a new leader; it accepts requests of its epoch only."""
    nodes = dict(brokers[0].leaders)
    for broker in brokers:
        broker.epoch = epoch
        broker.leaders = sorted(nodes.items(), key=lambda node: node[0] != leader)


def serves(broker: FakeBroker, epoch: int, end: int) -> None:
    """The broker believes that it leads at this epoch, and that its log ends there."""

    def offsets(requested_epoch: int) -> tuple[int, int]:
        if requested_epoch > epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH, -1
        return (ErrorCode.FENCED_LEADER_EPOCH, -1) if 0 <= requested_epoch < epoch else (0, end)

    broker.offsets = offsets


def test_one_broker_that_lags_is_contradicted_at_once(three: list[FakeBroker], pool: ConnectionPool) -> None:
    three[0].topic_error = lambda: UNKNOWN
    started = pool.system.monotonic()
    assert client(three, pool).confirm_missing({PARTITION: TOPIC_ID}) == set()
    assert pool.system.monotonic() - started < 1


def test_a_topic_is_missing_if_all_brokers_say_so_for_five_seconds(
    three: list[FakeBroker], pool: ConnectionPool
) -> None:
    for broker in three:
        broker.topic_error = lambda: UNKNOWN
    started = pool.system.monotonic()
    assert client(three, pool).confirm_missing({PARTITION: TOPIC_ID}) == {PARTITION}
    assert 5 <= pool.system.monotonic() - started < 7
    assert all(broker.request_counts["Metadata"] >= 5 for broker in three)


def metadata_requests(brokers: list[FakeBroker]) -> list[int]:
    return [broker.request_counts["Metadata"] for broker in brokers]


def test_at_most_three_brokers_are_asked_at_once_and_later_steps_begin_with_others(
    five: list[FakeBroker], pool: ConnectionPool
) -> None:
    for broker in five:
        broker.topic_error = lambda: UNKNOWN
    cluster = client(five, pool)
    cluster.refresh_brokers()
    for broker in five:
        broker.request_counts.clear()
    check = cluster.absence_check({PARTITION: TOPIC_ID})
    asked = []
    for _ in range(3):
        assert check.step(cluster.deadline()) == {PARTITION: Presence.UNCONFIRMED}
        asked.append(metadata_requests(five))
    assert asked == [[1, 1, 1, 0, 0], [1, 2, 2, 1, 0], [1, 2, 3, 2, 1]]


def test_after_a_step_metadata_is_requested_from_another_broker(three: list[FakeBroker], pool: ConnectionPool) -> None:
    """The first one does not know the topic; without this, each retry would receive the same metadata."""
    three[0].topic_error = lambda: UNKNOWN
    cluster = client(three, pool)
    assert cluster.topics([TOPIC]) == {}
    assert cluster.absence_check({PARTITION: TOPIC_ID}).step(cluster.deadline()) == {PARTITION: Presence.PRESENT}
    assert cluster.topics([TOPIC]).keys() == {TOPIC}


def test_a_broker_that_responds_with_an_error_is_no_witness(three: list[FakeBroker], pool: ConnectionPool) -> None:
    cluster = client(three, pool)
    cluster.refresh_brokers()
    for broker in three[:2]:
        broker.topic_error = lambda: UNKNOWN
        broker.error = lambda: ErrorCode.REQUEST_TIMED_OUT
    reports, unresolved = Witnesses(cluster).request_reports([TOPIC], (), cluster.deadline())
    assert [(report.node_id, report.leader_epochs) for report in reports[TOPIC]] == [(3, {0: 5})]
    assert unresolved.keys() == {1, 2}
    three[2].error = lambda: ErrorCode.REQUEST_TIMED_OUT
    with pytest.raises(BrokerTimeoutError, match=r"REQUEST_TIMED_OUT.*;.*REQUEST_TIMED_OUT.*;.*REQUEST_TIMED_OUT"):
        Witnesses(cluster).request_reports([TOPIC], (), cluster.deadline())


def test_the_id_of_a_recreated_topic_is_reported(three: list[FakeBroker], pool: ConnectionPool) -> None:
    for broker in three:
        broker.topic_id = UUID(int=9)
    cluster = client(three, pool)
    check = cluster.absence_check({PARTITION: TOPIC_ID})
    assert check.new_topic_id(PARTITION) is None
    assert check.wait(cluster.deadline()) == {PARTITION: Presence.RECREATED}
    assert check.new_topic_id(PARTITION) == UUID(int=9)


def test_frozen_brokers_leave_most_of_the_time(
    three: list[FakeBroker], pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """request.timeout.ms is 30 s, so a witness has 3 s, or a quarter of a shorter rest; the last hope has half."""
    cluster = client(three, pool)
    limits: list[float] = []

    def fail(_: Node, limit: Deadline) -> NoReturn:
        limits.append(round(limit.remaining(), 3))
        raise BrokerUnreachableError("frozen")

    cluster.refresh_brokers()
    monkeypatch.setattr(cluster, "connect", fail)
    for seconds, expected in ((60.0, [3.0, 3.0, 30.0]), (4.0, [1.0, 1.0, 2.0])):
        limits.clear()
        with pytest.raises(BrokerUnreachableError):
            Witnesses(cluster).request_reports([TOPIC], (), cluster.deadline(seconds))
        assert limits == expected


def test_brokers_that_are_unreachable_neither_count_nor_block(three: list[FakeBroker], pool: ConnectionPool) -> None:
    for broker in three[1:]:
        broker.topic_error = lambda: UNKNOWN
    cluster = client(three, pool)
    cluster.refresh_brokers()
    three[0]._server.shutdown()
    three[0]._server.server_close()
    pool.clear()
    assert cluster.confirm_missing({PARTITION: TOPIC_ID}) == {PARTITION}
    for broker in three[1:]:
        broker._server.shutdown()
        broker._server.server_close()
    pool.clear()
    with pytest.raises(BrokerUnreachableError):
        cluster.confirm_missing({PARTITION: TOPIC_ID})


def test_a_broker_that_accepts_connections_has_to_report_a_missing_topic_too(three: list[FakeBroker]) -> None:
    """A throttled broker responds late, and may be the only one that is up to date."""
    pool = ConnectionPool()
    cluster = ClusterClient(replace(client(three, pool).settings, request_timeout_ms=6000), pool=pool)
    cluster.refresh_brokers()
    for broker in three[:2]:
        broker.topic_error = lambda: UNKNOWN
    three[2].frozen = True
    try:
        check = cluster.absence_check({PARTITION: TOPIC_ID})
        started = pool.system.monotonic()
        while (presence := check.step(cluster.deadline())[PARTITION]) is Presence.UNCONFIRMED:
            assert pool.system.monotonic() < started + 30
        assert presence is Presence.ABSENT
        assert pool.system.monotonic() >= started + 6, "request.timeout.ms"
    finally:
        three[2].frozen = False
        pool.close()


def test_an_error_about_a_topic_is_no_report_that_it_is_missing(three: list[FakeBroker], pool: ConnectionPool) -> None:
    cluster = client(three, pool)
    cluster.refresh_brokers()
    three[0].topic_error = lambda: ErrorCode.LEADER_NOT_AVAILABLE
    for broker in three[1:]:
        broker.topic_error = lambda: UNKNOWN
    assert cluster.confirm_missing({PARTITION: TOPIC_ID}) == set()


def test_a_topic_that_may_no_longer_be_described_is_an_error(three: list[FakeBroker], pool: ConnectionPool) -> None:
    """A pattern finds such topics missing. Planners asked 30 times, and then reported that brokers lag behind."""
    cluster = client(three, pool)
    cluster.refresh_brokers()
    for broker in three:
        broker.topic_error = lambda: ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(AuthorizationError) as caught:
        cluster.confirm_missing({PARTITION: TOPIC_ID})
    assert caught.value.topic == TOPIC
    three[0].topic_error = lambda: UNKNOWN
    with pytest.raises(AuthorizationError):
        cluster.confirm_missing({PARTITION: TOPIC_ID})
    three[0].topic_error = lambda: 0
    assert cluster.confirm_missing({PARTITION: TOPIC_ID}) == set()


def test_one_broker_with_a_stale_topic_id_does_not_recreate_a_topic(
    three: list[FakeBroker], pool: ConnectionPool
) -> None:
    for broker in three[:2]:
        broker.topic_id = UUID(int=9)
    cluster = client(three, pool)
    assert cluster.confirm_missing({PARTITION: TOPIC_ID}) == set()
    three[2].topic_id = UUID(int=9)
    assert cluster.confirm_missing({PARTITION: TOPIC_ID}) == {PARTITION}


def test_brokers_that_contradict_each_other_are_asked_until_the_deadline(
    three: list[FakeBroker], pool: ConnectionPool
) -> None:
    three[0].topic_id, three[1].topic_id = UUID(int=8), UUID(int=9)
    three[2].topic_error = lambda: UNKNOWN
    started = pool.system.monotonic()
    with pytest.raises(BrokerTimeoutError, match=r"do not agree .*default\.api\.timeout\.ms") as caught:
        client(three, pool).confirm_missing({PARTITION: TOPIC_ID})
    assert (caught.value.topic, caught.value.partition) == PARTITION
    assert 18 <= pool.system.monotonic() - started <= 21


def test_a_deposed_leader_is_not_asked_for_the_end_of_its_log(three: list[FakeBroker], pool: ConnectionPool) -> None:
    """The first broker believes that it still leads at epoch 5; a task was planned with epoch 7."""
    serves(three[0], 5, end=100)
    serves(three[1], 7, end=150)
    elect(three[1:], leader=2, epoch=7)
    assert client(three, pool).offsets({PARTITION: LATEST}) == {PARTITION: 100}, "nothing else is known"
    cluster = client(three, pool)
    cluster.raise_epoch_floor(PARTITION, TOPIC_ID, 7)
    assert cluster.offsets({PARTITION: LATEST}) == {PARTITION: 150}


def test_a_process_without_an_epoch_asks_several_brokers(three: list[FakeBroker], pool: ConnectionPool) -> None:
    serves(three[0], 5, end=100)
    serves(three[2], 7, end=150)
    elect(three[2:], leader=3, epoch=7)
    cluster = client(three, pool)
    assert cluster.offsets({PARTITION: LATEST}) == {PARTITION: 100}
    cluster.raise_epoch_floors([TOPIC])
    assert cluster.offsets({PARTITION: LATEST}) == {PARTITION: 150}


def test_the_bounds_of_a_log_are_those_of_a_leader_that_several_brokers_confirm(
    three: list[FakeBroker], pool: ConnectionPool
) -> None:
    serves(three[0], 5, end=100)
    serves(three[2], 7, end=150)
    elect(three[2:], leader=3, epoch=7)
    cluster = client(three, pool)
    assert cluster.offsets({PARTITION: LATEST}) == {PARTITION: 100}
    assert cluster.log_bounds([PARTITION], cluster.deadline())[PARTITION][1] == 150
    asked_before = [broker.request_counts["Metadata"] for broker in three]
    assert cluster.log_bounds([], cluster.deadline()) == {}
    assert [broker.request_counts["Metadata"] for broker in three] == asked_before


def test_the_replicas_of_a_partition_are_asked_first(pool: ConnectionPool) -> None:
    """Its leader is one of them; the others of a large cluster may lag behind."""
    with contextlib.ExitStack() as stack:
        brokers = [stack.enter_context(FakeBroker()) for _ in range(6)]
        for broker in brokers:
            broker.leaders = list(enumerate(brokers, 1))
            broker.replicas = [4, 6]
        brokers[5].epoch = 7
        cluster = client(brokers, pool)
        cluster.topics([TOPIC])
        asked_before = [broker.request_counts["Metadata"] for broker in brokers]
        cluster.check_leader(PARTITION, TOPIC_ID, 7)
        asked = [broker.request_counts["Metadata"] - count for broker, count in zip(brokers, asked_before, strict=True)]
        assert asked == [1, 0, 0, 1, 0, 1]
        with pytest.raises(TransientBrokerError):
            cluster.check_leader(PARTITION, TOPIC_ID, 5)
        check = cluster.absence_check({PARTITION: TOPIC_ID})
        for _ in range(3):
            check.step(cluster.deadline())
        assert all(broker.request_counts["Metadata"] for broker in brokers), "later steps ask others"


def test_epochs_are_not_forgotten_when_a_broker_omits_the_topic(three: list[FakeBroker], pool: ConnectionPool) -> None:
    elect(three, leader=2, epoch=7)
    cluster = client(three, pool)
    assert cluster.topics([TOPIC])[TOPIC].partitions[0].leader_epoch == 7
    for broker in three:
        broker.topic_error = lambda: UNKNOWN
    assert cluster.topics([TOPIC]) == {}
    for broker in three:
        broker.topic_error = lambda: 0
        broker.epoch = 5
    assert cluster.topics([TOPIC])[TOPIC].partitions[0].leader is None


@pytest.mark.slow
def test_epochs_that_the_cluster_lost_are_dropped_after_half_of_the_timeout(
    three: list[FakeBroker], pool: ConnectionPool, caplog: pytest.LogCaptureFixture
) -> None:
    """All brokers were restored from a backup: without this, the partition would have no leader for ever."""
    for broker in three:
        serves(broker, 5, end=100)
    cluster = client(three, pool)
    cluster.raise_epoch_floor(PARTITION, TOPIC_ID, 9)
    started = pool.system.monotonic()
    assert cluster.offsets({PARTITION: LATEST}) == {PARTITION: 100}
    assert 10 <= pool.system.monotonic() - started < 20
    assert "all brokers report an earlier leader epoch of flights-0 than before (5)" in caplog.text


def test_lost_epochs_are_dropped_when_half_of_the_timeout_has_passed(
    three: list[FakeBroker], pool: ConnectionPool
) -> None:
    cluster = client(three, pool)
    cluster.raise_epoch_floor(PARTITION, TOPIC_ID, 9)
    deposed = []
    for seconds in (0, 9.75, 0.25):
        pool.system.sleep(seconds)
        cluster.topics([TOPIC])
        deposed.append(cluster.is_deposed(PARTITION, TOPIC_ID, 5))
    assert deposed == [True, True, False]


def test_epochs_are_not_dropped_while_no_broker_confirms_the_loss(
    three: list[FakeBroker], pool: ConnectionPool
) -> None:
    cluster = client(three, pool)
    cluster.raise_epoch_floor(PARTITION, TOPIC_ID, 9)
    cluster.topics([TOPIC])
    pool.system.sleep(10)
    responses = error_sequence(0, finally_=ErrorCode.REQUEST_TIMED_OUT)
    for broker in three:
        broker.error = responses
    assert cluster.topics([TOPIC]).keys() == {TOPIC}
    assert cluster.is_deposed(PARTITION, TOPIC_ID, 5)


@pytest.mark.slow
def test_epochs_that_the_cluster_lost_are_dropped_from_cached_metadata(
    three: list[FakeBroker], pool: ConnectionPool
) -> None:
    """The client itself saw the higher epoch in metadata; without this, the partition was unusable until a restart."""
    for broker in three:
        broker.epoch = 9
        serves(broker, 9, end=150)
    cluster = client(three, pool)
    assert cluster.offsets({PARTITION: LATEST}) == {PARTITION: 150}
    for broker in three:
        broker.epoch = 5
        serves(broker, 5, end=100)
    assert cluster.offsets({PARTITION: LATEST}) == {PARTITION: 100}
    assert not cluster.is_deposed(PARTITION, TOPIC_ID, 5)


@pytest.mark.slow
def test_a_deposed_leader_that_is_cut_off_does_not_lower_the_epoch(
    three: list[FakeBroker], pool: ConnectionPool
) -> None:
    """It is the only broker that responds, but its metadata has two more."""
    serves(three[0], 5, end=100)
    cluster = client(three, pool)
    cluster.raise_epoch_floor(PARTITION, TOPIC_ID, 7)
    cluster.refresh_brokers()
    for broker in three[1:]:
        broker._server.shutdown()
        broker._server.server_close()
    pool.clear()
    for _ in range(3):
        with pytest.raises(TransientBrokerError):
            cluster.offsets({PARTITION: LATEST})
    assert cluster.is_deposed(PARTITION, TOPIC_ID, 5)


@pytest.mark.parametrize(("timeout_ms", "lag_seconds"), [(1_000, 3), (8_000, 4.5)])
def test_short_timeouts_do_not_lower_epochs_earlier(
    three: list[FakeBroker], pool: ConnectionPool, timeout_ms: int, lag_seconds: float
) -> None:
    """Metadata of healthy brokers lags by less than five seconds."""
    cluster = client(three, pool)
    cluster.settings = replace(cluster.settings, default_api_timeout_ms=timeout_ms)
    cluster.raise_epoch_floor(PARTITION, TOPIC_ID, 7)
    started = pool.system.monotonic()
    while pool.system.monotonic() < started + lag_seconds:
        cluster.topics([TOPIC])
        pool.system.sleep(0.1)
    assert cluster.is_deposed(PARTITION, TOPIC_ID, 5)


def test_epochs_of_a_recreated_topic_do_not_lower_those_of_the_deleted_one(
    three: list[FakeBroker], pool: ConnectionPool
) -> None:
    cluster = client(three, pool)
    cluster.raise_epoch_floor(PARTITION, TOPIC_ID, 7)
    for broker in three[1:]:
        broker.topic_id = UUID(int=9)
    for _ in range(300):
        cluster.topics([TOPIC])
        cluster._broker_shift = 0  # the broker that still has the deleted topic is asked again
        pool.system.sleep(0.1)
    assert cluster.is_deposed(PARTITION, TOPIC_ID, 5)


def test_a_slow_broker_gets_more_time_if_no_other_responds(pool: ConnectionPool) -> None:
    """Here it takes three times as long as the first timeout."""
    with FakeBroker() as broker, contextlib.closing(ConnectionPool()) as real_time_pool:
        cluster = ClusterClient(replace(broker.settings, request_timeout_ms=1_000), pool=real_time_pool)
        cluster.topics([TOPIC])
        broker.frozen = True
        timer = threading.Timer(0.3, setattr, (broker, "frozen", False))
        timer.start()
        cluster.raise_epoch_floors([TOPIC])
        timer.join()
        assert broker.connections == 1


def test_a_replica_that_does_not_respond_may_be_the_leader(three: list[FakeBroker]) -> None:
    """Its response came after a tenth of request.timeout.ms, and a task believed the end of a deposed leader's log."""
    with contextlib.closing(ConnectionPool()) as real_time_pool:
        real_time_pool.rotation = 0.0
        cluster = client(three, real_time_pool)
        cluster.topics([TOPIC])
        three[0].frozen = three[1].frozen = True
        with pytest.raises(BrokerTimeoutError) as raised:
            cluster.raise_epoch_floors([TOPIC], deadline=cluster.deadline(4.0))
        assert "no data loss is assumed" in "".join(raised.value.__notes__)


def test_a_broker_that_restarts_while_it_is_asked_is_asked_again(pool: ConnectionPool) -> None:
    with FakeBroker() as broker:
        broker.error = error_sequence(0, 0, ErrorCode.REQUEST_TIMED_OUT)
        broker.topic_error = lambda: UNKNOWN
        cluster = ClusterClient(broker.settings, pool=pool)
        assert cluster.confirm_missing({PARTITION: TOPIC_ID}) == {PARTITION}


def test_a_task_accepts_no_evidence_of_a_leader_that_was_deposed(three: list[FakeBroker], pool: ConnectionPool) -> None:
    """A range was skipped, or failed within milliseconds, because the leader of epoch 6 had fewer records."""
    serves(three[0], 6, end=100)
    serves(three[1], 7, end=150)
    elect(three[:1], leader=1, epoch=6)
    elect(three[1:], leader=2, epoch=7)
    settings = client(three, pool).settings
    planned = PartitionLeader(Node(2, "127.0.0.1", three[1].port), 7)
    for leader in (planned, None):
        replica = ReadReplica(settings, FetchSettings(), PARTITION, TOPIC_ID, planned_leader=leader, pool=pool)
        deadline = ClusterClient(settings, pool=pool).deadline()
        for _ in range(3):
            with contextlib.suppress(TransientBrokerError):
                assert replica.fetch_log_state(deadline).end == 150
                break
        else:
            pytest.fail("no log state")


@pytest.mark.parametrize("topic_id", [TOPIC_ID, None])
def test_the_evidence_of_a_deposed_leader_is_rejected_without_a_planned_topic_id(
    three: list[FakeBroker], pool: ConnectionPool, topic_id: UUID | None
) -> None:
    """The metadata with which a batch was planned may lack the topic; then the plan has no topic id."""
    serves(three[0], 6, end=100)
    serves(three[1], 7, end=150)
    elect(three[:1], leader=1, epoch=6)
    elect(three[1:], leader=2, epoch=7)
    cluster = client(three, pool)
    with pytest.raises(TransientBrokerError, match="leader"):
        cluster.check_leader(PARTITION, topic_id, 6)
    cluster.check_leader(PARTITION, topic_id, 7)


def test_a_committed_offset_has_the_leader_epoch(three: list[FakeBroker], pool: ConnectionPool) -> None:
    """So that a restarted query accepts no deposed leader."""
    elect(three, leader=2, epoch=7)
    cluster = client(three, pool)
    cluster.topics([TOPIC])
    ConsumerGroup(cluster, "group").commit({PARTITION: 40})
    assert three[1].committed_epoch == 7
    for broker in three[::2]:
        broker.epoch = 5
    three[0].committed_epoch = three[2].committed_epoch = 7
    restarted = client(three, pool)
    assert ConsumerGroup(restarted, "group").committed([PARTITION]) == {PARTITION: 7}
    assert restarted.is_deposed(PARTITION, TOPIC_ID, 5)


def test_an_epoch_that_a_fetch_response_names_is_no_floor_before_metadata_confirms_it(
    three: list[FakeBroker], pool: ConnectionPool
) -> None:
    """KIP-951; the next metadata may come from a broker that still has the deposed leader."""
    settings = client(three, pool).settings
    elect(three[2:], leader=3, epoch=7)
    replica = ReadReplica(settings, FetchSettings(), PARTITION, TOPIC_ID, planned_leader=None, pool=pool)
    deadline = Deadline.after(60, system=pool.system)
    replica.note_later_epoch(99, deadline)
    assert not replica._cluster.is_deposed(PARTITION, TOPIC_ID, 7), "nobody confirms 99"
    assert replica._cluster.is_deposed(PARTITION, TOPIC_ID, 5)
    requests = three[0].request_counts["Metadata"]
    replica.note_later_epoch(-1, deadline)
    assert three[0].request_counts["Metadata"] == requests, "not an epoch"


def test_a_committed_epoch_of_a_deleted_topic_is_no_floor(three: list[FakeBroker], pool: ConnectionPool) -> None:
    """Committed offsets have no topic id; the recreated topic was unreadable for half of default.api.timeout.ms."""
    for broker in three:
        broker.epoch = 0
        serves(broker, 0, end=10)
        broker.committed_epoch = 20
    cluster = client(three, pool)
    started = pool.system.monotonic()
    assert ConsumerGroup(cluster, "group").committed([PARTITION]) == {PARTITION: 7}
    assert cluster.offsets({PARTITION: LATEST}) == {PARTITION: 10}
    assert pool.system.monotonic() - started < 1


def test_the_error_of_the_last_step_is_raised_when_the_deadline_is_near(
    pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time that remains falls below a step while the failed step is handled."""

    class Ticking(FakeTimeSystem):
        def monotonic(self) -> float:
            self.now += 0.1
            return self.now

    def fail(*_: object) -> None:
        raise BrokerUnreachableError("no broker")

    monkeypatch.setattr(AbsenceCheck, "step", fail)
    with FakeBroker() as broker:
        check = ClusterClient(broker.settings, pool=pool).absence_check({PARTITION: TOPIC_ID})
        with pytest.raises(BrokerUnreachableError, match="no broker"):
            check.wait(Deadline(1001.15, system=Ticking()))


@pytest.mark.parametrize("confirms", [False, True])
def test_brokers_are_found_again_through_bootstrap_servers(pool: ConnectionPool, confirms: bool) -> None:
    """All brokers have other addresses since the last metadata."""
    with FakeBroker() as broker:
        with FakeBroker() as replaced:
            broker.leaders = [(1, replaced)]
            cluster = ClusterClient(broker.settings, pool=pool)
            cluster.refresh_brokers()
        broker.leaders = [(1, broker)]
        if confirms:
            assert cluster.confirm_missing({PARTITION: TOPIC_ID}) == set()
        else:
            cluster.raise_epoch_floors([TOPIC])
            assert cluster.is_deposed(PARTITION, TOPIC_ID, broker.epoch - 1)
