"""Coordinator lookup, requests and retries, by the offsets of a group and by transactional ids."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerError,
    BrokerUnreachableError,
    KafkaDirectError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

A, B = TopicPartition("t", 0), TopicPartition("u", 0)
BACKOFF = {"retry_backoff_ms": 100, "retry_backoff_max_ms": 300}


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    with UnitCluster({"t": 1, "u": 1}, brokers=2) as cluster:
        yield cluster


def pauses(cluster: UnitCluster, api: str) -> list[float]:
    """Return the times between the requests of a kind, in seconds."""
    return [after.at - before.at for before, after in pairwise(cluster.arrivals(api))]


def assert_backoff(found: list[float], expected: list[float]) -> None:
    """Check pauses that have a jitter of 20 %, and some milliseconds of latency."""
    assert len(found) == len(expected)
    assert all(0.8 * each <= pause <= 1.2 * each + 0.04 for pause, each in zip(found, expected, strict=True)), found


@pytest.mark.parametrize("commits", [False, True])
def test_coordinator_of_a_group_is_looked_up_once(cluster: UnitCluster, commits: bool) -> None:
    group = ConsumerGroup(cluster.client(), "mine")
    for _ in range(3):
        if commits:
            group.commit({A: 1, B: 1})
        else:
            group.committed([A, B])
    assert [(each.key, each.key_type) for each in cluster.received("FindCoordinator")] == [("mine", 0)]
    (metadata,) = cluster.received("Metadata")
    names = [each.name for each in metadata.topics]
    assert names == ["t", "u"], "the client finds out whether a cluster can be reached"
    assert cluster.open_connections <= 2


def test_coordinator_of_a_transactional_id_is_looked_up_once(cluster: UnitCluster) -> None:
    transactions = TransactionCoordinatorClient(cluster.client(), "mine")
    for _ in range(3):
        transactions.transaction_v2()
    assert [(each.key, each.key_type) for each in cluster.received("FindCoordinator")] == [("mine", 1)]
    (metadata,) = cluster.received("Metadata")
    assert metadata.topics == ()


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "error", "code": ErrorCode.NOT_COORDINATOR},
        {"kind": "error", "code": ErrorCode.COORDINATOR_NOT_AVAILABLE},
        {"kind": "lose_request"},
        {"kind": "stall_response"},
    ],
    ids=str,
)
def test_coordinator_is_looked_up_again_after_errors(cluster: UnitCluster, fault: dict[str, Any]) -> None:
    group = ConsumerGroup(cluster.client(**BACKOFF), "g")
    cluster.fault("OffsetFetch", repeats=4, **fault)
    assert group.committed([A]) == {}
    assert (cluster.sent("FindCoordinator"), cluster.sent("OffsetFetch")) == (5, 5)
    if "stall" not in fault["kind"]:
        found = cluster.arrivals("FindCoordinator")
        assert_backoff([b.at - a.at for a, b in pairwise(found)], [0.1, 0.2, 0.3, 0.3])


@pytest.mark.parametrize(
    ("api", "code"),
    [
        ("OffsetFetch", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ("InitProducerId", ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_loading_coordinator_is_retried_soon(cluster: UnitCluster, api: str, code: int) -> None:
    client = cluster.client(retry_backoff_ms=50, retry_backoff_max_ms=300)

    def call(seconds: float) -> None:
        if api == "OffsetFetch":
            ConsumerGroup(client, "g").committed([A], deadline=client.deadline(seconds))
        else:
            TransactionCoordinatorClient(client, "id").init_transactions(1000, client.deadline(seconds))

    cluster.fault(api, "error", code=code, repeats=5)
    call(60)
    assert cluster.sent("FindCoordinator") == 1
    assert_backoff(pauses(cluster, api), [0.01, 0.02, 0.04, 0.05, 0.05])
    cluster.every(api, "error", code=code)
    started = cluster.now
    with pytest.raises(BrokerError, match=ErrorCode(code).name):
        call(1)
    assert 0.9 < cluster.now - started <= 1


def test_unavailable_coordinator_is_looked_up_again(cluster: UnitCluster) -> None:
    cluster.fault("FindCoordinator", "error", code=ErrorCode.COORDINATOR_NOT_AVAILABLE, repeats=2)
    assert ConsumerGroup(cluster.client(), "g").committed([A]) == {}
    assert cluster.sent("FindCoordinator") == 3


def test_fatal_lookup_error_names_the_key(cluster: UnitCluster) -> None:
    cluster.every("FindCoordinator", "error", code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError, match="finding the coordinator of the group 'g'") as caught:
        ConsumerGroup(cluster.client(), "g").committed([A])
    assert caught.value.broker == f"broker-{cluster.arrivals('FindCoordinator')[0].broker}:9092"
    assert cluster.sent("FindCoordinator") == 1


def test_an_unknown_topic_without_a_name_cannot_be_confirmed(cluster: UnitCluster) -> None:
    cluster.every("OffsetFetch", "error", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with pytest.raises(TopicNotFoundError):
        ConsumerGroup(cluster.client(), "g").committed([A])
    assert cluster.sent("OffsetFetch") == 1


def test_fatal_error_is_not_retried(cluster: UnitCluster) -> None:
    cluster.every("OffsetCommit", "error", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError) as caught:
        ConsumerGroup(cluster.client(), "g").commit({A: 1})
    broker = f"broker-{cluster.arrivals('OffsetCommit')[0].broker}:9092"
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == (*A, broker)
    assert cluster.sent("OffsetCommit") == 1


@pytest.mark.parametrize("fault", [{"kind": "error", "code": ErrorCode.NOT_COORDINATOR}, {"kind": "lose_request"}])
def test_retriable_error_raises_at_the_deadline(cluster: UnitCluster, fault: dict[str, Any]) -> None:
    client = cluster.client(**BACKOFF)
    cluster.every("OffsetFetch", **fault)
    started = cluster.now
    with pytest.raises(BrokerUnreachableError, match=r"NOT_COORDINATOR while|The connection broke"):
        ConsumerGroup(client, "g").committed([A], deadline=client.deadline(2))
    assert 1.6 < cluster.now - started <= 2
    assert cluster.sent("OffsetFetch") < 10


def test_an_unknown_topic_raises_only_if_several_brokers_confirm_it(cluster: UnitCluster) -> None:
    """The coordinator may not have the metadata of a new partition yet, even for longer than a short timeout."""
    group = ConsumerGroup(cluster.client(default_api_timeout_ms=1000), "g")
    cluster.fault("OffsetCommit", "error", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, repeats=2)
    group.commit({A: 1})
    assert cluster.sent("OffsetCommit") == 3
    cluster.event("delete_topic", topic="t")
    with pytest.raises(TopicNotFoundError) as caught:
        group.commit({A: 1})
    assert (caught.value.topic, caught.value.partition) == A
    assert cluster.sent("OffsetCommit") == 4


@pytest.mark.parametrize("missing", [TopicPartition("t", 1), TopicPartition("u", 7), TopicPartition("v", 0)], ids=str)
def test_a_missing_partition_is_confirmed_within_the_deadline_of_the_caller(
    cluster: UnitCluster, missing: TopicPartition
) -> None:
    client = cluster.client()
    group = ConsumerGroup(client, "g")
    for seconds, expected in ((None, 5), (2, 2)):
        started = cluster.now
        with pytest.raises(KafkaDirectError) as caught:
            group.commit({A: 1, missing: 1}, deadline=None if seconds is None else client.deadline(seconds))
        assert (caught.value.topic, caught.value.partition) == missing
        assert expected - 1 <= cluster.now - started < expected + 2


@pytest.mark.parametrize(("settings", "seconds"), [({}, 12), ({"default_api_timeout_ms": 1000}, 1)])
def test_a_group_of_an_unreached_cluster_fails_early(
    cluster: UnitCluster, settings: dict[str, Any], seconds: float
) -> None:
    """Waiting does not repair a wrong address."""
    for broker in (0, 1):
        cluster.event("stop_broker", broker=broker, seconds=1000)
    started = cluster.now
    with pytest.raises(BrokerUnreachableError):
        ConsumerGroup(cluster.client(**settings), "g").commit({A: 1})
    with pytest.raises(BrokerUnreachableError):
        TransactionCoordinatorClient(cluster.client(**settings), "id").init_transactions(1000)
    assert cluster.now - started <= 2 * seconds


def test_another_thread_may_reset_the_coordinator(cluster: UnitCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A direct stream plans on one thread and commits on another, both for its group."""
    group, read_clock = ConsumerGroup(cluster.client(), "g"), cluster.process.monotonic

    def reset_and_read_clock() -> float:
        group._coordinator._node = None
        return read_clock()

    monkeypatch.setattr(cluster.process, "monotonic", reset_and_read_clock)
    for _ in range(2):
        assert group.committed([A]) == {}
    assert cluster.sent("FindCoordinator") == 2


def test_the_first_tries_are_short(cluster: UnitCluster) -> None:
    """An unresponsive coordinator may be replaced by another broker."""
    client = cluster.client(request_timeout_ms=10_000, retry_backoff_ms=1, retry_backoff_max_ms=2)
    cluster.fault("OffsetFetch", "stall_response", repeats=3)
    ConsumerGroup(client, "g").committed([A])
    assert pauses(cluster, "OffsetFetch") == pytest.approx([1, 2, 4], abs=0.1)
