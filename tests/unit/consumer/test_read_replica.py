"""``ReadReplica`` with a scripted broker."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from tests.unit.client.fake_broker import (
    PARTITION,
    TOPIC_ID,
    VERSIONS,
    FakeBroker,
)

from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.metadata import Node, PartitionLeader
from pyspark_kafka_direct.consumer.fetch_channel import API_KEY, NEWEST_VERSION, FetchChannel, ReadReplica
from pyspark_kafka_direct.errors import (
    BrokerUnreachableError,
    TopicRecreatedError,
    TransientBrokerError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.planning.data_loss import Presence
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.protocol.messages import LIST_OFFSETS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker
    POOL.clear()


def local_log_start(broker: FakeBroker, code: int, offset: int = -1) -> int | None:
    broker.offsets = lambda _: (code, offset)
    return ReadReplica(broker.settings, FetchSettings(), PARTITION, TOPIC_ID).local_log_start(Deadline.after(120))


def test_leader_returns_its_local_log_start(broker: FakeBroker) -> None:
    assert local_log_start(broker, 0, 7) == 7
    with pytest.raises(BrokerUnreachableError):
        local_log_start(broker, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.parametrize(
    "code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_leader_without_tiered_storage_is_no_error(broker: FakeBroker, code: int) -> None:
    """The query is only sent if the log may end with a gap."""
    assert local_log_start(broker, code) is None


def test_different_fetch_settings_share_connections(broker: FakeBroker) -> None:
    for fetch in (FetchSettings(), FetchSettings(isolation_level="read_committed", client_rack="r", fetch_min_bytes=7)):
        ReadReplica(broker.settings, fetch, PARTITION, TOPIC_ID).fetch_log_state(Deadline.after(120))
    assert broker.connections == 1


def test_rack_is_not_sent_after_the_switch_to_the_leader(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    racks_sent: list[bool] = []
    monkeypatch.setattr(Connection, "send", lambda *arguments, **_: racks_sent.append(b"our-rack" in arguments[4]))
    replica = ReadReplica(broker.settings, FetchSettings(client_rack="our-rack"), PARTITION, TOPIC_ID)
    replica.send_fetch(0, 100, Deadline.after(120))
    replica.switch_to_leader()
    replica.send_fetch(0, 100, Deadline.after(120))
    replica.release()
    assert racks_sent == [True, False]


def test_rack_is_sent_to_a_follower_unless_the_leader_names_one_that_does_not_exist(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the leader names it again in each response, without records."""
    racks_sent: list[bool] = []
    monkeypatch.setattr(Connection, "send", lambda *arguments, **_: racks_sent.append(b"our-rack" in arguments[4]))
    with FakeBroker() as follower:
        broker.leaders = follower.leaders = [(1, broker), (2, follower)]
        replica = ReadReplica(broker.settings, FetchSettings(client_rack="our-rack"), PARTITION, TOPIC_ID)
        for broker_id in (2, 9):
            replica.switch_to_replica(broker_id)
            replica.send_fetch(0, 100, Deadline.after(120))
        replica.release()
    assert racks_sent == [True, False]


def test_open_transaction_is_no_data_loss(broker: FakeBroker) -> None:
    broker.stable = 40
    replica = ReadReplica(broker.settings, FetchSettings(isolation_level="read_committed"), PARTITION, TOPIC_ID)
    assert replica.fetch_log_state(Deadline.after(120)).end == 42


@pytest.mark.parametrize(("newest", "may_be_stale"), [(4, True), (5, False)])
def test_brokers_before_kafka_2_2_may_return_a_stale_end(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, newest: int, may_be_stale: bool
) -> None:
    monkeypatch.setitem(VERSIONS, LIST_OFFSETS.key, (1, newest))
    replica = ReadReplica(broker.settings, FetchSettings(), PARTITION, TOPIC_ID)
    replica.send_fetch(0, 100, Deadline.after(120))
    replica.release()
    assert replica.end_may_be_stale == may_be_stale


def leader_of(broker: FakeBroker, epoch: int) -> PartitionLeader:
    return PartitionLeader(Node(1, "127.0.0.1", broker.port), epoch)


def test_the_epoch_of_the_plan_is_sent_and_deposes_earlier_leaders(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker believes that it leads at epoch 5; the plan has a later epoch."""
    epochs: list[int] = []
    monkeypatch.setattr(FetchChannel, "request", lambda _, fetches, *__, **___: epochs.append(fetches[0].leader_epoch))
    broker.epoch = 5
    replica = ReadReplica(broker.settings, FetchSettings(), PARTITION, TOPIC_ID, planned_leader=leader_of(broker, 7))
    replica.send_fetch(0, 100, Deadline.after(120))
    assert epochs == [7]
    with pytest.raises(TransientBrokerError):
        replica.fetch_log_state(Deadline.after(3))
    replica.check_leader(Deadline.after(120))
    broker.epoch = 8
    with pytest.raises(TransientBrokerError, match="FENCED_LEADER_EPOCH"):
        replica.check_leader(Deadline.after(120))


@pytest.mark.parametrize(("newest", "metadata_requests"), [(12, 1), (13, 0)])
def test_metadata_is_compared_with_the_plan_if_fetch_requests_have_no_topic_id(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, newest: int, metadata_requests: int
) -> None:
    epochs: list[int] = []
    monkeypatch.setattr(FetchChannel, "request", lambda _, fetches, *__, **___: epochs.append(fetches[0].leader_epoch))
    monkeypatch.setitem(VERSIONS, API_KEY, (4, newest))
    broker.epoch = 8
    replica = ReadReplica(broker.settings, FetchSettings(), PARTITION, TOPIC_ID, planned_leader=leader_of(broker, 7))
    replica.send_fetch(0, 100, Deadline.after(120))
    replica.release()
    assert broker.request_counts["Metadata"] == metadata_requests
    assert epochs == [7 + metadata_requests]


def test_a_partition_without_a_leader_is_a_transient_error(broker: FakeBroker) -> None:
    broker.leaders = [(-1, broker)]
    replica = ReadReplica(broker.settings, FetchSettings(), PARTITION, TOPIC_ID)
    with pytest.raises(TransientBrokerError, match="LEADER_NOT_AVAILABLE"):
        replica.send_fetch(0, 100, Deadline.after(120))


def test_a_topic_that_is_recreated_after_its_offsets_were_fetched_is_reported(broker: FakeBroker) -> None:
    """ListOffsets names no topic id: metadata that is fetched afterwards shows whose offsets they are."""
    replica = ReadReplica(broker.settings, FetchSettings(), PARTITION, TOPIC_ID)

    def recreate(_: int) -> tuple[int, int]:
        broker.topic_id = UUID(int=99)
        return 0, 0

    broker.offsets = recreate
    with pytest.raises(TopicRecreatedError):
        replica.fetch_log_state(Deadline.after(120))


def test_a_topic_with_another_id_is_reported(broker: FakeBroker) -> None:
    replica = ReadReplica(broker.settings, FetchSettings(), PARTITION, UUID(int=99))
    with pytest.raises(TopicRecreatedError):
        replica.send_fetch(0, 100, Deadline.after(120))
    check = replica.absence_check()
    assert check.step(Deadline.after(120)) == {PARTITION: Presence.UNCONFIRMED}


def test_only_the_leader_is_on_leader(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int | None] = []
    monkeypatch.setattr(FetchChannel, "request", lambda *_, max_wait_ms=None, **__: waits.append(max_wait_ms))
    with FakeBroker() as follower:
        broker.leaders = follower.leaders = [(1, broker), (2, follower)]
        replica = ReadReplica(broker.settings, FetchSettings(client_rack="r"), PARTITION, TOPIC_ID)
        found: list[tuple[bool, str | None]] = []
        for switch in (None, 2, None, 9):
            if switch is not None:
                replica.switch_to_replica(switch)
            elif found:
                replica.switch_to_leader()
            replica.send_fetch(0, 100, Deadline.after(120))
            found.append((replica.on_leader, replica.broker))
        replica.release()
    leader_address, follower_address = f"127.0.0.1:{broker.port}", f"127.0.0.1:{follower.port}"
    assert found == [(True, leader_address), (False, follower_address), (True, leader_address), (True, leader_address)]
    assert [wait == 0 for wait in waits] == [False, True, False, False], "a follower responds at once"


def test_connections_with_too_new_brokers_are_released(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERSIONS, API_KEY, (NEWEST_VERSION + 1, NEWEST_VERSION + 2))
    for _ in range(3):
        replica = ReadReplica(broker.settings, FetchSettings(), PARTITION, TOPIC_ID)
        with pytest.raises(UnsupportedBrokerError, match="Fetch"):
            replica.send_fetch(0, 100, Deadline.after(120))
        replica.release()
    assert broker.connections == 1, "released connections are reused"
