"""Brokers that contradict each other: one lags behind, a leader was deposed, a cluster has lost its epochs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.settings import task_settings
from tests.unit.client.witness_cluster import (
    LONG,
    PARTITION,
    TOPIC,
    UNKNOWN,
    advertise,
    cluster_of,
    depose,
    end,
    epoch_of,
    metadata_requests,
    pause,
    respond,
    restore,
    stick,
    stop,
)

from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.client.metadata import submit_metadata
from pyspark_kafka_direct.client.witnesses import Witnesses
from pyspark_kafka_direct.consumer.fetcher import read_range
from pyspark_kafka_direct.consumer.range_task import RangeTask, ReadCounts
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ProtocolError,
    TransientBrokerError,
)
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.planning.data_loss import Presence
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.connection import Connection

# Missing topics.


def test_one_broker_that_lags_is_contradicted_at_once() -> None:
    with cluster_of() as cluster:
        respond(cluster, UNKNOWN, 1)
        started = cluster.now
        assert cluster.client().confirm_missing({PARTITION: cluster.topic_id(TOPIC)}) == set()
        assert cluster.now - started < 1


@pytest.mark.parametrize("has_deadline", [False, True])
def test_a_topic_is_missing_if_all_brokers_say_so_for_five_seconds(has_deadline: bool) -> None:
    with cluster_of() as cluster:
        client, topic_id = cluster.client(), cluster.topic_id(TOPIC)
        cluster.event("delete_topic", topic=TOPIC)
        started = cluster.now
        deadline = client.deadline(20) if has_deadline else None
        assert client.confirm_missing({PARTITION: topic_id}, deadline=deadline) == {PARTITION}
        assert 5 <= cluster.now - started < 7
        assert min(metadata_requests(cluster)) >= 5


def test_at_most_three_brokers_are_asked_at_once_and_later_steps_begin_with_others() -> None:
    with cluster_of(5) as cluster:
        cluster.event("delete_topic", topic=TOPIC)
        client = cluster.client()
        client.refresh_brokers()
        before = metadata_requests(cluster)
        check = client.absence_check({PARTITION: None})
        asked = []
        for _ in range(3):
            assert check.step(client.deadline()) == {PARTITION: Presence.UNCONFIRMED}
            asked.append(metadata_requests(cluster, before))
        assert asked == [[1, 1, 1, 0, 0], [1, 2, 2, 1, 0], [1, 2, 3, 2, 1]]


def test_another_broker_is_asked_for_each_one_that_does_not_report() -> None:
    with cluster_of(5) as cluster:
        client = cluster.client()
        client.refresh_brokers()
        stop(cluster, 2)
        reports, _ = Witnesses(client).request_reports([TOPIC], (), client.deadline())
        assert {each.node_id for each in reports[TOPIC]} == {1, 3, 4}


def test_brokers_are_found_again_only_if_all_known_ones_failed() -> None:
    with cluster_of(5) as cluster:
        client = cluster.client()
        client.refresh_brokers()
        for broker in (1, 2, 3):
            stop(cluster, broker)
            Witnesses(client).request_reports([TOPIC], (), client.deadline())
            before = metadata_requests(cluster)
            Witnesses(client).request_reports([TOPIC], (), client.deadline())
            assert sum(metadata_requests(cluster, before)) == min(3, 5 - broker), "no other request for the brokers"


def test_after_a_step_metadata_is_requested_from_another_broker() -> None:
    """The first one does not know the topic; without this, each retry would receive the same metadata."""
    with cluster_of() as cluster:
        respond(cluster, UNKNOWN, 1)
        client = cluster.client()
        assert client.topics([TOPIC]) == {}
        assert client.absence_check({PARTITION: None}).step(client.deadline()) == {PARTITION: Presence.PRESENT}
        assert client.topics([TOPIC]).keys() == {TOPIC}


def test_a_broker_that_responds_with_an_error_is_no_witness() -> None:
    with cluster_of() as cluster:
        client = cluster.client()
        client.refresh_brokers()

        def fail(*brokers: int) -> None:
            code = ErrorCode.REQUEST_TIMED_OUT
            cluster.change(
                "Metadata", lambda broker, values: {**values, "error_code": code if broker in brokers else 0}
            )

        fail(1, 2)
        reports, unresolved = Witnesses(client).request_reports([TOPIC], (), client.deadline())
        assert [(each.node_id, each.leader_epochs) for each in reports[TOPIC]] == [(3, {0: epoch_of(cluster)})]
        assert unresolved.keys() == {1, 2}
        fail(1, 2, 3)
        with pytest.raises(BrokerTimeoutError, match=r"REQUEST_TIMED_OUT.*;.*REQUEST_TIMED_OUT.*;.*REQUEST_TIMED_OUT"):
            Witnesses(client).request_reports([TOPIC], (), client.deadline())


@pytest.mark.parametrize("api", ["ApiVersions", "Metadata"])
def test_a_server_that_is_no_broker_neither_counts_nor_blocks(api: str) -> None:
    with cluster_of() as cluster:
        client = cluster.client()
        client.refresh_brokers()
        cluster.pool.clear()
        requests_before = 2 if api == "ApiVersions" else 1  # to broker 1
        cluster.fault(api, "garble_response", number=requests_before)
        reports, unresolved = Witnesses(client).request_reports([TOPIC], (), client.deadline())
        assert {each.node_id for each in reports[TOPIC]} == {1, 3}
        assert unresolved == {}


@pytest.mark.parametrize("error", [ProtocolError("it is malformed"), BrokerUnreachableError("it broke")])
@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_request_that_cannot_be_sent_to_a_broker(
    monkeypatch: pytest.MonkeyPatch, failing: int, error: BrokerError
) -> None:
    """As if its session expired, and it responded to the login with something else."""
    with cluster_of() as cluster:
        client = cluster.client()
        client.refresh_brokers()
        address = str(client.nodes[failing])

        def submit(connection: Connection, *arguments: Any) -> None:
            if connection.broker == address:
                raise error
            submit_metadata(connection, *arguments)

        monkeypatch.setattr("pyspark_kafka_direct.client.witnesses.submit_metadata", submit)
        reports, _ = Witnesses(client).request_reports([TOPIC], (), client.deadline())
        assert {each.node_id for each in reports[TOPIC]} == {1, 2, 3} - {failing}


def test_the_id_of_a_recreated_topic_is_reported() -> None:
    with cluster_of() as cluster:
        client, planned_id = cluster.client(), cluster.topic_id(TOPIC)
        cluster.event("recreate_topic", topic=TOPIC)
        check = client.absence_check({PARTITION: planned_id})
        assert check.new_topic_id(PARTITION) is None
        assert check.wait(client.deadline()) == {PARTITION: Presence.RECREATED}
        assert check.new_topic_id(PARTITION) == cluster.topic_id(TOPIC)


def test_brokers_that_are_unreachable_neither_count_nor_block() -> None:
    with cluster_of() as cluster:
        client = cluster.client()
        client.refresh_brokers()
        stop(cluster, 1)
        cluster.event("delete_topic", topic=TOPIC)
        assert client.confirm_missing({PARTITION: None}) == {PARTITION}
        stop(cluster, 2, 3)
        with pytest.raises(BrokerUnreachableError):
            client.confirm_missing({PARTITION: None})


@pytest.mark.parametrize("timeout_ms", [2000, 6000])
def test_a_broker_that_accepts_connections_has_to_report_a_missing_topic_too(timeout_ms: int) -> None:
    """A throttled broker responds late, and may be the only one that is up to date."""
    with cluster_of(request_timeout_ms=timeout_ms) as cluster:
        client = cluster.client()
        client.refresh_brokers()
        pause(cluster, 3)
        cluster.event("delete_topic", topic=TOPIC)
        check, started = client.absence_check({PARTITION: None}), cluster.now
        while (presence := check.step(client.deadline())[PARTITION]) is Presence.UNCONFIRMED:
            assert cluster.now < started + 30
            cluster.sleep(0.1)
        assert presence is Presence.ABSENT
        assert cluster.now >= started + max(5, timeout_ms / 1000)


def test_an_error_about_a_topic_is_no_report_that_it_is_missing() -> None:
    with cluster_of() as cluster:
        client = cluster.client()
        client.refresh_brokers()
        cluster.event("delete_topic", topic=TOPIC)
        respond(cluster, ErrorCode.LEADER_NOT_AVAILABLE, 1)
        assert client.confirm_missing({PARTITION: None}) == set()


def test_a_topic_that_may_no_longer_be_described_is_an_error() -> None:
    """A pattern finds such topics missing. Planners asked 30 times, and then reported that brokers lag behind."""
    with cluster_of() as cluster:
        client = cluster.client()
        client.refresh_brokers()
        cluster.event("deny_topic", topic=TOPIC, seconds=LONG)
        with pytest.raises(AuthorizationError) as caught:
            client.confirm_missing({PARTITION: None})
        assert caught.value.topic == TOPIC
        respond(cluster, UNKNOWN, 1)
        with pytest.raises(AuthorizationError):
            client.confirm_missing({PARTITION: None})
        cluster.heal()
        respond(cluster, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 2, 3)
        assert client.confirm_missing({PARTITION: None}) == set()


@pytest.mark.parametrize("broker", [1, 2, 3])
def test_one_broker_that_denies_a_topic_is_enough_if_no_other_has_it(broker: int) -> None:
    with cluster_of() as cluster:
        client = cluster.client()
        client.refresh_brokers()
        cluster.event("delete_topic", topic=TOPIC)
        respond(cluster, ErrorCode.TOPIC_AUTHORIZATION_FAILED, broker)
        with pytest.raises(AuthorizationError):
            client.absence_check({PARTITION: None}).step(client.deadline())


def test_one_broker_with_a_stale_topic_id_does_not_recreate_a_topic() -> None:
    with cluster_of() as cluster:
        client, planned = cluster.client(), {PARTITION: cluster.topic_id(TOPIC)}
        stick(cluster, 3)
        cluster.event("recreate_topic", topic=TOPIC)
        assert client.confirm_missing(planned) == set()
        cluster.heal()
        assert client.confirm_missing(planned) == {PARTITION}


def test_brokers_that_contradict_each_other_are_asked_until_the_deadline() -> None:
    with cluster_of() as cluster:
        stick(cluster, 1)
        cluster.event("recreate_topic", topic=TOPIC)
        stick(cluster, 2)
        cluster.event("delete_topic", topic=TOPIC)
        started = cluster.now
        with pytest.raises(BrokerTimeoutError, match=r"do not agree .*default\.api\.timeout\.ms") as caught:
            cluster.client().confirm_missing({PARTITION: UUID(int=7)})
        assert (caught.value.topic, caught.value.partition) == PARTITION
        assert 18 <= cluster.now - started <= 21


def test_a_broker_that_restarts_while_it_is_asked_is_asked_again() -> None:
    with cluster_of(1) as cluster:
        client = cluster.client()
        cluster.event("delete_topic", topic=TOPIC)
        cluster.after(2.5, lambda: cluster.event("stop_broker", broker=0, seconds=1.0))
        assert client.confirm_missing({PARTITION: None}) == {PARTITION}


@pytest.mark.parametrize("confirms", [False, True])
def test_brokers_are_found_again_through_bootstrap_servers(confirms: bool) -> None:
    """All brokers have other addresses since the last metadata."""
    with cluster_of(1) as cluster:
        client = cluster.client()
        advertise(cluster, 1)
        client.refresh_brokers()
        cluster.change("Metadata", None)
        if confirms:
            assert client.confirm_missing({PARTITION: None}) == set()
        else:
            client.raise_epoch_floors([TOPIC])
            assert client.is_deposed(PARTITION, None, -1) is client.is_deposed(PARTITION, cluster.topic_id(TOPIC), -1)
        assert {node.port for node in client.nodes.values()} == {9092}


# Time for brokers that do not respond.


def test_unresponsive_brokers_leave_most_of_the_time() -> None:
    """request.timeout.ms is 30 s, so a witness has 3 s, or a quarter of a shorter rest; the last hope has half.

    While brokers are unresolved, each has twice as much the next time, up to an equal share of the deadline.
    """
    with cluster_of(connect_timeout_ms=60_000) as cluster:
        client = cluster.client()
        client.refresh_brokers()
        witnesses = Witnesses(client)

        def limits(witnesses: Witnesses, *, seconds: float = 60, refused: int = 3) -> list[float]:
            cluster.pool.clear()
            cluster.connect_limits.clear()
            cluster.connect_fault("refuse_connect", repeats=refused)
            with contextlib.suppress(BrokerUnreachableError):
                witnesses.request_reports([TOPIC], (), client.deadline(seconds))
            return cluster.connect_limits

        def about(*expected: float) -> object:
            return pytest.approx(expected, abs=0.05)

        assert limits(Witnesses(client), seconds=4) == about(1, 1, 2)
        assert limits(witnesses) == about(3, 3, 30)
        assert limits(witnesses) == about(6, 6, 30)
        error = BrokerTimeoutError("frozen")
        other_witnesses = Witnesses(client)
        assert other_witnesses.track_unresolved({1: error}) is error
        assert limits(other_witnesses) == about(6, 6, 30)
        assert witnesses.track_unresolved({1: error}) is error
        assert witnesses.track_unresolved({1: error}) is error
        assert limits(witnesses) == about(15, 15, 30)
        assert witnesses.track_unresolved({}) is None
        assert limits(witnesses) == about(3, 3, 30)
        assert limits(witnesses, refused=0) == about(6, 6, 6), "a response of another one is due"


@pytest.mark.parametrize("broker", [1, 2, 3])
def test_a_fatal_error_of_one_broker_releases_the_connections_to_the_others(broker: int) -> None:
    """The test fails if one is left."""
    with cluster_of() as cluster:
        client = cluster.client()
        client.refresh_brokers()
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        cluster.change("Metadata", lambda node, values: {**values, "error_code": code if node == broker else 0})
        for node in {1, 2, 3} - {broker}:
            pause(cluster, node, seconds=1)
        with pytest.raises(AuthorizationError):
            Witnesses(client).request_reports([TOPIC], (), client.deadline())


def test_a_slow_broker_gets_more_time_if_no_other_responds() -> None:
    """Here it takes three times as long as the first timeout."""
    with cluster_of(1, request_timeout_ms=1_000) as cluster:
        client = cluster.client()
        client.topics([TOPIC])
        pause(cluster, 1, seconds=0.3)
        client.raise_epoch_floors([TOPIC])
        assert cluster.network.connect_count == 1


def test_a_replica_that_does_not_respond_may_be_the_leader() -> None:
    """Its response came after a tenth of request.timeout.ms, and a task believed the end of a deposed leader's log."""
    with cluster_of() as cluster:
        client = cluster.client()
        client.topics([TOPIC])
        pause(cluster, 1, 2)
        with pytest.raises(BrokerTimeoutError) as raised:
            client.raise_epoch_floors([TOPIC], deadline=client.deadline(4.0))
        assert "no data loss is assumed" in "".join(raised.value.__notes__)


def test_an_unresolved_broker_counts_for_one_request_timeout() -> None:
    with cluster_of(1) as cluster:
        witnesses = Witnesses(cluster.client())
        error, other = BrokerTimeoutError("frozen"), BrokerTimeoutError("later")
        assert witnesses.track_unresolved({1: error}) is error
        assert error.confirmation_seconds == 60.0
        cluster.sleep(29.99)
        assert witnesses.track_unresolved({1: error, 2: other}) is error
        cluster.sleep(0.01)
        assert witnesses.track_unresolved({1: error, 2: other}) is other
        cluster.sleep(30)
        assert witnesses.track_unresolved({1: error, 2: other}) is None


# Leaders that were deposed.


def test_a_deposed_leader_is_not_asked_for_the_end_of_its_log() -> None:
    """The first broker believes that it still leads; a task was planned with a later epoch."""
    with cluster_of() as cluster:
        depose(cluster, 2, 1)
        assert end(cluster.client()) == 100, "nothing else is known"
        client = cluster.client()
        client.raise_epoch_floor(PARTITION, cluster.topic_id(TOPIC), epoch_of(cluster))
        assert end(client) == 150


def test_a_process_without_an_epoch_asks_several_brokers() -> None:
    with cluster_of() as cluster:
        depose(cluster, 3, 1, 2)
        client = cluster.client()
        assert end(client) == 100
        client.raise_epoch_floors([TOPIC])
        assert end(client) == 150


def test_the_bounds_of_a_log_are_those_of_a_leader_that_several_brokers_confirm() -> None:
    with cluster_of() as cluster:
        depose(cluster, 3, 1, 2)
        client = cluster.client()
        assert end(client) == 100
        assert client.log_bounds([PARTITION], client.deadline()) == {PARTITION: (0, 150)}
        sent = cluster.sent("Metadata")
        assert client.log_bounds([], client.deadline()) == {}
        assert cluster.sent("Metadata") == sent


@pytest.mark.parametrize("has_topic_id", [True, False])
def test_the_evidence_of_a_deposed_leader_is_rejected(has_topic_id: bool) -> None:
    """The metadata with which a batch was planned may lack the topic; then the plan has no topic id."""
    with cluster_of() as cluster:
        depose(cluster, 2, 1)
        client, topic_id = cluster.client(), cluster.topic_id(TOPIC) if has_topic_id else None
        with pytest.raises(TransientBrokerError, match="leader"):
            client.check_leader(PARTITION, topic_id, epoch_of(cluster) - 1)
        client.check_leader(PARTITION, topic_id, epoch_of(cluster))


@pytest.mark.parametrize("first_epoch", [0, 5])
def test_an_epoch_without_a_topic_id_is_no_floor_before_metadata_confirms_it(first_epoch: int) -> None:
    """One of a fetch response (KIP-951); the next metadata may come from a broker that has the deposed leader."""
    with cluster_of() as cluster:
        restore(cluster, first_epoch)
        depose(cluster, 3, 1, 2)
        client, topic_id = cluster.client(), cluster.topic_id(TOPIC)
        client.note_later_epochs({PARTITION: 99}, client.deadline())
        assert not client.is_deposed(PARTITION, topic_id, epoch_of(cluster)), "nobody confirms 99"
        assert client.is_deposed(PARTITION, topic_id, epoch_of(cluster) - 1)
        sent = cluster.sent("Metadata")
        client.note_later_epochs({PARTITION: -1}, client.deadline())
        assert cluster.sent("Metadata") == sent, "not an epoch"


def test_a_task_follows_a_response_that_names_a_later_leader() -> None:
    """Although its metadata comes from a broker that still names the deposed leader (KIP-951)."""
    with cluster_of() as cluster:
        cluster.pool.rotation = 0.9
        depose(cluster, 2, 3)
        client, started = cluster.client(first_broker=2), cluster.now
        config = task_settings(client.settings, FetchSettings(), fail_on_data_loss=True)
        task = RangeTask(OffsetRange(*PARTITION, 0, 150), cluster.topic_id(TOPIC), None)
        batches = list(read_range(*config, task, ("offset",), ReadCounts(), pool=client.pool))
        assert sum(batch.num_rows for batch in batches) == 150
        assert cluster.now - started < 3


def test_a_committed_offset_has_the_leader_epoch() -> None:
    """So that a restarted query accepts no deposed leader."""
    with cluster_of() as cluster:
        depose(cluster, 2, 1)
        client = cluster.client(first_broker=1)
        client.topics([TOPIC])
        ConsumerGroup(client, "group").commit({PARTITION: 40})
        restarted = cluster.client()
        assert end(restarted) == 100
        assert ConsumerGroup(restarted, "group").committed([PARTITION]) == {PARTITION: 40}
        assert end(restarted) == 150


def test_a_committed_epoch_of_a_deleted_topic_is_no_floor() -> None:
    """Committed offsets have no topic id; the recreated topic was unreadable for half of default.api.timeout.ms."""
    with cluster_of() as cluster:

        def with_epoch(_: int, values: dict[str, Any]) -> dict[str, Any]:
            entry = {"partition_index": 0, "error_code": 0, "committed_offset": 7, "committed_leader_epoch": 20}
            return {**values, "topics": [{"name": TOPIC, "partitions": [{**entry, "metadata": ""}]}]}

        cluster.change("OffsetFetch", with_epoch)
        client, started = cluster.client(), cluster.now
        assert ConsumerGroup(client, "group").committed([PARTITION]) == {PARTITION: 7}
        assert end(client) == 100
        assert cluster.now - started < 1


# Clusters that lost their epochs.


def test_epochs_are_not_forgotten_when_a_broker_omits_the_topic() -> None:
    with cluster_of() as cluster:
        client, epoch = cluster.client(), epoch_of(cluster)
        assert client.topics([TOPIC])[TOPIC].partitions[0].leader_epoch == epoch
        respond(cluster, UNKNOWN, 1, 2, 3)
        assert client.topics([TOPIC]) == {}
        respond(cluster, UNKNOWN)
        restore(cluster, epoch - 1)
        assert client.topics([TOPIC])[TOPIC].partitions[0].leader is None


@pytest.mark.parametrize("cached", [True, False])
def test_epochs_that_the_cluster_lost_are_dropped_after_half_of_the_timeout(
    cached: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """All brokers were restored from a backup: without this, the partition would have no leader until a restart."""
    with cluster_of() as cluster:
        client = cluster.client()
        if cached:  # the client itself saw the higher epoch in metadata
            cluster.append(PARTITION, 50)
            assert end(client) == 150
            restore(cluster)
        else:
            client.raise_epoch_floor(PARTITION, cluster.topic_id(TOPIC), 9)
        started = cluster.now
        assert end(client) == 100
        assert 10 <= cluster.now - started < 20
        assert "all brokers report an earlier leader epoch of flights-0 than before" in caplog.text
        assert not client.is_deposed(PARTITION, cluster.topic_id(TOPIC), epoch_of(cluster))


@pytest.mark.parametrize(("timeout_ms", "after"), [(20_000, 10), (1_000, 5), (8_000, 5)])
def test_lost_epochs_are_dropped_exactly_then(timeout_ms: int, after: float) -> None:
    """Metadata of healthy brokers lags by less than five seconds."""
    with cluster_of(default_api_timeout_ms=timeout_ms) as cluster:
        client, topic_id = cluster.client(), cluster.topic_id(TOPIC)
        client.raise_epoch_floor(PARTITION, topic_id, 9)
        deposed = []
        for seconds in (0, after - 0.3, 0.3):
            cluster.sleep(seconds)
            has_leader = client.topics([TOPIC])[TOPIC].partitions[0].leader is not None
            deposed.append(client.is_deposed(PARTITION, topic_id, epoch_of(cluster)))
            assert has_leader is not deposed[-1]
        assert deposed == [True, True, False]


@pytest.mark.parametrize("alone", ["others fail", "others are down"])
def test_epochs_are_not_dropped_while_no_other_broker_confirms_the_loss(alone: str) -> None:
    """The only broker that responds may be a deposed leader that is cut off; its metadata has two more."""
    with cluster_of() as cluster:
        client, topic_id = cluster.client(), cluster.topic_id(TOPIC)
        client.refresh_brokers()
        client.raise_epoch_floor(PARTITION, topic_id, 9)
        if alone == "others fail":
            code = ErrorCode.REQUEST_TIMED_OUT
            cluster.change("Metadata", lambda broker, values: {**values, "error_code": 0 if broker == 1 else code})
        else:
            stick(cluster, 1)
            stop(cluster, 2, 3)
        for _ in range(3):
            with pytest.raises(TransientBrokerError):
                end(client)
        assert client.is_deposed(PARTITION, topic_id, epoch_of(cluster))


def test_epochs_of_a_recreated_topic_do_not_lower_those_of_the_deleted_one() -> None:
    with cluster_of() as cluster:
        client, topic_id = cluster.client(), cluster.topic_id(TOPIC)
        client.raise_epoch_floor(PARTITION, topic_id, 7)
        stick(cluster, 1)
        cluster.event("recreate_topic", topic=TOPIC)
        for _ in range(300):
            client.topics([TOPIC])
            client.use_next_broker()
            cluster.sleep(0.1)
        assert metadata_requests(cluster)[0] > 90
        assert client.is_deposed(PARTITION, topic_id, 5)
