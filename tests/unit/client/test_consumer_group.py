"""Offsets of a consumer group: commits, with and without a transaction, and what brokers return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.client.consumer_group import CommittedOffset, ConsumerGroup
from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerError,
    KafkaDirectError,
    ProducerFencedError,
    ProtocolError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_code_info

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch

ALL = A, B, C, D = (
    TopicPartition("t", 0),
    TopicPartition("t", 1),
    TopicPartition("u", 0),
    TopicPartition("u", 1),
)
OFFSETS = {A: CommittedOffset(5, "metadata"), B: CommittedOffset(6)}


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    with UnitCluster({"t": 2, "u": 2}) as cluster:
        yield cluster


def commit(
    cluster: UnitCluster, offsets: dict[TopicPartition, CommittedOffset] = OFFSETS
) -> tuple[TransactionCoordinatorClient, ProducerIdAndEpoch]:
    """Commit offsets in a transaction that stays open."""
    client = cluster.client()
    transactions = TransactionCoordinatorClient(client, "p.cont.0")
    producer, transaction_v2 = transactions.init_transactions(60_000)
    if not transaction_v2:
        transactions.add_offsets(producer, "p.cont")
    group = ConsumerGroup(client, "p.cont")
    group.commit_in_transaction("p.cont.0", producer, offsets, transaction_v2=transaction_v2)
    return transactions, producer


@pytest.mark.parametrize(("level", "newest"), [(2, 5), (1, 4)])
def test_transactional_commit_request(level: int, newest: int) -> None:
    """The newest version makes the broker add the group, so it requires transaction.version 2."""
    with UnitCluster({"t": 2}, transaction_version=level) as cluster:
        _, producer = commit(cluster)
        (request,) = [each for each in cluster.requests if each.api == "TxnOffsetCommit"]
        values = request.values
        assert request.version == newest
        assert (values.transactional_id, values.group_id) == ("p.cont.0", "p.cont")
        assert (values.producer_id, values.producer_epoch) == producer
        (topic,) = values.topics
        assert topic.name == "t"
        assert [tuple(each) for each in topic.partitions] == [(0, 5, -1, "metadata"), (1, 6, -1, "")]
        keys = [(each.key, each.key_type) for each in cluster.received("FindCoordinator")]
        assert sorted(keys) == [("p.cont", 0), ("p.cont.0", 1)]


@pytest.mark.parametrize(
    ("fault", "may_arrive"),
    [({}, False), ({"kind": "error", "code": ErrorCode.NOT_COORDINATOR}, True), ({"kind": "stall_request"}, True)],
    ids=["none", "error", "stalled"],
)
def test_an_unconfirmed_commit_may_arrive_later(cluster: UnitCluster, fault: dict[str, Any], may_arrive: bool) -> None:
    client = cluster.client()
    producer = TransactionCoordinatorClient(client, "p.cont.0").init_transactions(60_000).producer
    if fault:
        cluster.fault("TxnOffsetCommit", **fault)
    group = ConsumerGroup(client, "p.cont")
    assert group.commit_in_transaction("p.cont.0", producer, OFFSETS, transaction_v2=True) is may_arrive


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ],
)
def test_retriable_commit_errors_are_retried(cluster: UnitCluster, code: int) -> None:
    cluster.fault("TxnOffsetCommit", "error", code=code, repeats=2)
    commit(cluster)
    assert cluster.sent("TxnOffsetCommit") == 3


@pytest.mark.parametrize(
    ("code", "error_type"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError),
        (ErrorCode.PRODUCER_FENCED, ProducerFencedError),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ProducerFencedError),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.INVALID_TXN_STATE, BrokerError),
        (ErrorCode.TRANSACTION_ABORTABLE, BrokerError),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TopicNotFoundError),
    ],
)
def test_failed_commit_raises_its_error(cluster: UnitCluster, code: int, error_type: type[KafkaDirectError]) -> None:
    cluster.every("TxnOffsetCommit", "error", code=code)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        cluster.event("delete_topic", topic="t")
    with pytest.raises(error_type, match=r"committing offsets of the group 'p\.cont'"):
        commit(cluster)


@pytest.mark.parametrize("api", ["OffsetFetch", "OffsetCommit", "TxnOffsetCommit"])
def test_response_without_partition_raises(cluster: UnitCluster, api: str) -> None:
    """Requests and responses may no longer match, so the connection is closed."""
    group = ConsumerGroup(cluster.client(), "g")
    group.commit({A: 1, B: 1})

    def without_last(_: int, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "topics": [{**each, "partitions": each["partitions"][:-1]} for each in values["topics"]]}

    cluster.change(api, without_last)
    calls: dict[str, Callable[[], object]] = {
        "OffsetFetch": lambda: group.committed([A, B]),
        "OffsetCommit": lambda: group.commit({A: 1, B: 1}),
        "TxnOffsetCommit": lambda: commit(cluster),
    }
    with pytest.raises(ProtocolError, match=f"The response to {api} lacks a partition") as caught:
        calls[api]()
    assert (caught.value.topic, caught.value.partition) == B
    assert cluster.open_connections == 0


def test_each_committed_offset_has_the_leader_epoch_of_its_partition(cluster: UnitCluster) -> None:
    for number, tp in enumerate(ALL):
        for _ in range(3 - number):
            cluster.elect(tp, 1)
    client = cluster.client()
    client.topics({tp.topic for tp in ALL})
    epochs = {tp: cluster.partition(tp).epoch for tp in ALL}
    assert len(set(epochs.values())) == 4
    group = ConsumerGroup(client, "g")
    group.commit({tp: number for number, tp in enumerate(ALL)})
    assert group.committed_with_metadata(ALL) == {
        tp: CommittedOffset(number, leader_epoch=epochs[tp]) for number, tp in enumerate(ALL)
    }


def test_an_offset_may_have_no_metadata(cluster: UnitCluster) -> None:
    """Other clients commit null."""

    def without_metadata(_: int, values: dict[str, Any]) -> dict[str, Any]:
        for topic in values["topics"]:
            topic["partitions"] = [{**each, "metadata": None} for each in topic["partitions"]]
        return values

    group = ConsumerGroup(cluster.client(), "g")
    group.commit({A: 1, C: 2})
    cluster.change("OffsetFetch", without_metadata)
    assert [each.metadata for each in group.committed_with_metadata([A, C]).values()] == ["", ""]


def test_all_committed_offsets_of_a_group_with_metadata(cluster: UnitCluster) -> None:
    transactions, producer = commit(cluster)
    group = ConsumerGroup(cluster.client(), "p.cont")
    group.commit({C: 0})
    committed = CommittedOffset(0, leader_epoch=0)
    assert group.committed_with_metadata(require_stable=False) == {C: committed}

    def end_later() -> None:
        cluster.sleep(1)
        transactions.end_transaction(producer, commit=True, transaction_v2=True)

    cluster.process.spawn("ends the transaction", end_later)
    started = cluster.now
    assert group.committed_with_metadata([A, C, D]) == {A: OFFSETS[A], C: committed}
    assert cluster.now - started > 1, "retried while a transaction is open"
    assert group.committed_with_metadata() == {**OFFSETS, C: committed}
    assert {each.version for each in cluster.requests if each.api == "OffsetFetch"} == {7}


@pytest.mark.parametrize("rejected", ALL, ids=str)
@pytest.mark.parametrize("api", ["OffsetFetch", "OffsetCommit", "TxnOffsetCommit"])
def test_an_error_of_any_partition_is_raised(cluster: UnitCluster, rejected: TopicPartition, api: str) -> None:
    def reject(_: int, values: dict[str, Any]) -> dict[str, Any]:
        for topic in values["topics"]:
            for each in topic["partitions"]:
                if (topic["name"], each["partition_index"]) == rejected:
                    each["error_code"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return values

    group = ConsumerGroup(cluster.client(), "g")
    group.commit(dict.fromkeys(ALL, 4))
    cluster.change(api, reject)
    calls: dict[str, Callable[[], object]] = {
        "OffsetFetch": lambda: group.committed(ALL),
        "OffsetCommit": lambda: group.commit(dict.fromkeys(ALL, 5)),
        "TxnOffsetCommit": lambda: commit(cluster, dict.fromkeys(ALL, CommittedOffset(5))),
    }
    with pytest.raises(AuthorizationError) as raised:
        calls[api]()
    assert (raised.value.topic, raised.value.partition) == rejected


def test_empty_requests_contact_no_broker(cluster: UnitCluster) -> None:
    group = ConsumerGroup(cluster.client(), "g")
    assert group.committed([]) == {}
    group.commit({})
    assert cluster.network.connect_count == 0


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_group_with_members_rejects_commits_of_others(cluster: UnitCluster, in_transaction: bool) -> None:
    cluster.event("join_group", group="p.cont", seconds=100)
    with pytest.raises(BrokerError, match=r"'p\.cont': the group has active members.*Use a separate group id"):
        commit(cluster) if in_transaction else ConsumerGroup(cluster.client(), "p.cont").commit({A: 1})
    assert cluster.sent("TxnOffsetCommit") + cluster.sent("OffsetCommit") == 1


def test_the_error_codes_of_a_group_with_members(cluster: UnitCluster) -> None:
    """No other error has this advice."""
    group, found = ConsumerGroup(cluster.client(), "g"), set()
    for code in ErrorCode:
        if code != ErrorCode.NONE and not error_code_info(code).retriable:
            cluster.fault("OffsetCommit", "error", code=code)
            with pytest.raises(KafkaDirectError, match=f"{code.name}.*committing|committing .*{code.name}") as caught:
                group.commit({A: 1, C: 1})
            found |= {code} if "active members" in str(caught.value) else set()
    assert found == {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
