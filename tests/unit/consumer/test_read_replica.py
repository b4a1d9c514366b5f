"""``ReadReplica`` on a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.unit.consumer.polling import ONE, ConsumerCluster
from tests.unit.consumer.reading import Read

from pyspark_kafka_direct.client.cluster_client import PartitionLeader
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.consumer import fetch_channel
from pyspark_kafka_direct.consumer.fetch_channel import ReadReplica
from pyspark_kafka_direct.errors import (
    BrokerUnreachableError,
    TopicRecreatedError,
    TransientBrokerError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.planning.data_loss import Presence
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.deadline import Deadline


class ReplicaTest:
    """A replica of partition 0 and its client."""

    def __init__(self, cluster: ConsumerCluster, *, epoch: int | None = None, **fetch: Any) -> None:
        self.client: ClusterClient = cluster.client()
        leader = None
        if epoch is not None:
            read = Read(cluster)
            read.plan_leader(epoch=epoch)
            leader = read.leader
            assert isinstance(leader, PartitionLeader)
        self.replica = ReadReplica(
            self.client.settings,
            FetchSettings(**fetch),
            ONE,
            cluster.topic_id(ONE.topic),
            planned_leader=leader,
            pool=self.client.pool,
        )

    def fetch(self) -> None:
        self.replica.send_fetch(0, 100, self.client.deadline())
        self.replica.receive_fetch(self.client.deadline())

    def local_log_start(self) -> int | None:
        return self.replica.local_log_start(self.client.deadline())


def test_leader_returns_its_local_log_start(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 7)
    cluster.event("tier_log", **ONE._asdict(), fraction=1.0)
    assert ReplicaTest(cluster).local_log_start() == 7
    cluster.every("ListOffsets", "error", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(BrokerUnreachableError):
        ReplicaTest(cluster).local_log_start()


@pytest.mark.parametrize(
    "code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_leader_without_tiered_storage_is_no_error(cluster: ConsumerCluster, code: int) -> None:
    """The query is only sent if the log may end with a gap."""
    cluster.fault("ListOffsets", "error", code=code)
    assert ReplicaTest(cluster).local_log_start() is None


def test_different_fetch_settings_share_connections() -> None:
    with ConsumerCluster(brokers=1) as cluster:
        for test in (
            ReplicaTest(cluster),
            ReplicaTest(cluster, isolation_level="read_committed", client_rack="r", fetch_min_bytes=7),
        ):
            test.replica.fetch_log_state(test.client.deadline())
        assert cluster.network.connect_count == 1


def test_a_fetch_of_another_offset_does_not_get_the_response_in_flight(cluster: ConsumerCluster) -> None:
    cluster.append_each(ONE, 5)
    test = ReplicaTest(cluster)
    deadline = test.client.deadline()
    for offset in (0, 0, 3, 1, 4):
        test.replica.send_fetch(offset, 100, deadline)
    response = test.replica.receive_fetch(deadline)
    assert int.from_bytes(response.records[:8], "big") == 4
    test.replica.release()


@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.parametrize(
    "step",
    [
        lambda replica, deadline: replica.note_later_epoch(0, deadline),
        lambda replica, _: replica.switch_to_replica(1),
        lambda replica, _: replica.switch_to_leader(),
    ],
    ids=["epoch", "replica", "leader"],
)
def test_metadata_is_refreshed_after_each_change_of_the_replica(
    cluster: ConsumerCluster, step: Callable[[ReadReplica, Deadline], None], in_flight: bool
) -> None:
    test = ReplicaTest(cluster)
    test.fetch()
    deadline = test.client.deadline()
    if in_flight:
        test.replica.send_fetch(7, 100, deadline)
    requests = cluster.sent("Metadata")
    step(test.replica, deadline)
    test.fetch()
    assert cluster.sent("Metadata") > requests
    test.replica.release()


def test_a_connection_with_changed_certificates_is_replaced(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = ReplicaTest(cluster)
    for _ in range(2):
        test.fetch()
        found: list[Connection] = []

        def is_first(connection: Connection, found: list[Connection] = found) -> bool:
            found.append(connection)
            return connection is found[0]

        with monkeypatch.context() as changed:
            changed.setattr(Connection, "certificates_changed", property(is_first))
            test.fetch()
        assert found[0].closed
    test.replica.release()


def test_rack_is_not_sent_if_the_leader_names_a_replica_that_does_not_exist(cluster: ConsumerCluster) -> None:
    """Otherwise the leader names it again in each response, without records."""
    test = ReplicaTest(cluster, client_rack="our-rack")
    for broker_id in (2, 9):
        test.replica.switch_to_replica(broker_id)
        test.fetch()
    test.replica.release()
    assert [request.rack_id for request in cluster.received("Fetch")] == ["our-rack", ""]


def test_open_transaction_is_no_data_loss(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 42, producer_id=7)
    test = ReplicaTest(cluster, isolation_level="read_committed")
    assert test.replica.fetch_log_state(test.client.deadline()).end == 42


@pytest.mark.parametrize(("newest", "may_be_stale"), [(4, True), (5, False)])
def test_brokers_before_kafka_2_2_may_return_a_stale_end(newest: int, may_be_stale: bool) -> None:
    with ConsumerCluster(newest_versions={"ListOffsets": newest}) as cluster:
        test = ReplicaTest(cluster)
        test.fetch()
        test.replica.release()
        assert test.replica.end_may_be_stale == may_be_stale


def test_the_epoch_of_the_plan_is_sent_and_deposes_earlier_leaders(cluster: ConsumerCluster) -> None:
    """The leader has an earlier epoch than the plan, and later one that is later."""
    cluster.append(ONE, 1)
    epoch = cluster.partition(ONE).epoch
    test = ReplicaTest(cluster, epoch=epoch + 2)
    test.fetch()
    assert [request.topics[0].partitions[0].current_leader_epoch for request in cluster.received("Fetch")] == [
        epoch + 2
    ]
    with pytest.raises(TransientBrokerError):
        test.replica.fetch_log_state(test.client.deadline().limited_to(3))
    test.replica.check_leader(test.client.deadline())
    for _ in range(3):
        cluster.elect(ONE, 1)
    with pytest.raises(TransientBrokerError, match="FENCED_LEADER_EPOCH"):
        test.replica.check_leader(test.client.deadline())
    test.replica.release()


@pytest.mark.parametrize(("newest", "metadata_requests"), [(12, 2), (13, 1)])
def test_metadata_is_compared_with_the_plan_if_fetch_requests_have_no_topic_id(
    newest: int, metadata_requests: int
) -> None:
    with ConsumerCluster(newest_versions={"Fetch": newest}) as cluster:
        epoch = cluster.partition(ONE).epoch
        test = ReplicaTest(cluster, epoch=epoch - 1)  # and one metadata request
        test.fetch()
        test.replica.release()
        assert cluster.sent("Metadata") == metadata_requests
        sent = [request.topics[0].partitions[0].current_leader_epoch for request in cluster.received("Fetch")]
        assert sent == [epoch - 2 + metadata_requests]


def test_a_partition_without_a_leader_is_a_transient_error(cluster: ConsumerCluster) -> None:
    cluster.event("lose_leader", **ONE._asdict(), seconds=1000.0)
    with pytest.raises(TransientBrokerError, match="LEADER_NOT_AVAILABLE"):
        ReplicaTest(cluster).fetch()


def test_a_topic_that_is_recreated_after_its_offsets_were_fetched_is_reported(cluster: ConsumerCluster) -> None:
    """ListOffsets names no topic id: metadata that is fetched afterwards shows whose offsets they are."""
    test = ReplicaTest(cluster)
    cluster.before("Metadata", lambda: None, lambda: cluster.event("recreate_topic", topic=ONE.topic, partitions=3))
    with pytest.raises(TopicRecreatedError):
        test.replica.fetch_log_state(test.client.deadline())


def test_a_topic_with_another_id_is_reported(cluster: ConsumerCluster) -> None:
    client = cluster.client()
    replica = ReadReplica(client.settings, FetchSettings(), ONE, UUID(int=99), pool=client.pool)
    with pytest.raises(TopicRecreatedError):
        replica.send_fetch(0, 100, client.deadline())
    assert replica.absence_check().step(client.deadline()) == {ONE: Presence.UNCONFIRMED}


def test_only_the_leader_is_on_leader() -> None:
    with ConsumerCluster(replication_factor=2) as cluster:
        cluster.append(ONE, 1)
        test = ReplicaTest(cluster, client_rack="r", fetch_min_bytes=1 << 20)
        found: list[tuple[bool, str | None]] = []
        for switch in (None, 2, None, 9):
            if switch is not None:
                test.replica.switch_to_replica(switch)
            elif found:
                test.replica.switch_to_leader()
            test.fetch()
            found.append((test.replica.on_leader, test.replica.broker))
        test.replica.release()
        leader, follower = "broker-1:9092", "broker-2:9092"
        assert found == [(True, leader), (False, follower), (True, leader), (True, leader)]
        waits = [request.max_wait_ms for request in cluster.received("Fetch")]
        assert waits == [500, 0, 500, 500], "a follower responds at once"


def test_connections_with_too_new_brokers_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_channel, "OLDEST_VERSION", 3)
    monkeypatch.setattr(fetch_channel, "FIRST_VERSION_WITH_TOPIC_IDS", 4)
    with ConsumerCluster(brokers=1) as cluster:
        test = ReplicaTest(cluster)
        for _ in range(3):
            with pytest.raises(UnsupportedBrokerError, match="Fetch"):
                test.fetch()
            test.replica.release()
        assert cluster.network.connect_count == 1, "released connections are reused"
