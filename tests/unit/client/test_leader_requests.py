"""One request to each leader, and retries for moved partitions."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.client.leader_requests import EARLIEST_LOCAL
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.client.cluster_client import ClusterClient

A, B, C = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    """Broker 1 leads A and C, broker 2 leads B."""
    with UnitCluster({"t": 3}, brokers=2, connection={"retry_backoff_ms": 1, "retry_backoff_max_ms": 2}) as cluster:
        for tp, count in ((A, 1), (B, 2), (C, 3)):
            cluster.append(tp, count)
        cluster.elect(B, 2)
        yield cluster


def latest(client: ClusterClient, *partitions: TopicPartition, **arguments: Any) -> list[tuple[TopicPartition, int]]:
    return list(client.offsets(dict.fromkeys(partitions, LATEST), **arguments).items())


def requests(cluster: UnitCluster) -> list[tuple[int, list[int]]]:
    """Return the brokers that have handled ListOffsets requests, with the partitions."""
    return [
        (each.broker, [partition.partition_index for partition in each.values.topics[0].partitions])
        for each in cluster.arrivals("ListOffsets")
    ]


def test_each_leader_gets_one_request_sent_before_any_wait(cluster: UnitCluster) -> None:
    cluster.every("ListOffsets", "delay_response", seconds=2)
    started = cluster.now
    assert latest(cluster.client(), C, A, B) == [(C, 3), (A, 1), (B, 2)]
    assert cluster.now - started < 3
    assert sorted(requests(cluster)) == [(1, [0, 2]), (2, [1])]
    epochs = {
        each.partition_index: each.current_leader_epoch
        for request in cluster.received("ListOffsets")
        for each in request.topics[0].partitions
    }
    assert {request.timeout_ms for request in cluster.received("ListOffsets")} == {30_000}, "for a search in logs"
    assert epochs == {tp.partition: cluster.partition(tp).epoch for tp in (A, B, C)}
    assert cluster.sent("Metadata") == 1


def test_empty_request_calls_no_leader(cluster: UnitCluster) -> None:
    client = cluster.client()
    assert client.offsets({}) == {}
    assert client.topics([]) == {}
    assert cluster.requests == []


def test_only_moved_partitions_are_retried_at_their_new_leader(cluster: UnitCluster) -> None:
    cluster.before("ListOffsets", lambda: cluster.elect(A, 2))
    assert latest(cluster.client(), A, C) == [(A, 1), (C, 3)]
    assert requests(cluster) == [(1, [0, 2]), (2, [0])]
    assert cluster.sent("Metadata") == 2


@pytest.mark.parametrize("number", range(3))
def test_a_partition_without_a_leader_waits_for_one(cluster: UnitCluster, number: int) -> None:
    cluster.event("lose_leader", topic="t", partition=number, seconds=2.0)
    client, started = cluster.client(), cluster.now
    assert latest(client, A, B, C) == [(A, 1), (B, 2), (C, 3)]
    assert 2 <= cluster.now - started < 2.5
    cluster.event("lose_leader", topic="t", partition=number, seconds=2.0)
    client.topics(["t"])
    assert client.leader(TopicPartition("t", number)).id == cluster.partition(TopicPartition("t", number)).leader
    assert 4 <= cluster.now - started < 4.5


def test_missing_leader_raises_after_the_retries(cluster: UnitCluster) -> None:
    cluster.event("lose_leader", topic="t", partition=0, seconds=2.0)
    with pytest.raises(BrokerUnreachableError, match="LEADER_NOT_AVAILABLE while listing offsets") as caught:
        latest(cluster.client(retries=2), A)
    assert (caught.value.topic, caught.value.partition) == A
    with pytest.raises(BrokerUnreachableError, match="LEADER_NOT_AVAILABLE while finding its leader") as caught:
        cluster.client(retries=2).leader(A)
    assert (caught.value.topic, caught.value.partition) == A


def test_dead_leader_does_not_delay_the_others(cluster: UnitCluster) -> None:
    client = cluster.client()
    client.topics(["t"])
    cluster.event("stop_broker", broker=0, seconds=5)
    assert latest(client, A, B) == [(A, 1), (B, 2)]
    assert requests(cluster) == [(2, [1]), (2, [0])]


@pytest.mark.parametrize("broker", [1, 2])
def test_a_leader_that_does_not_respond_takes_no_time_from_the_others(cluster: UnitCluster, broker: int) -> None:
    client, partitions = cluster.client(), [A, B] if broker == 1 else [B, A]
    latest(client, *partitions)
    before = len(requests(cluster))
    cluster.event("pause_broker", broker=broker - 1, seconds=5)
    assert sorted(latest(client, *partitions)) == [(A, 1), (B, 2)]
    answered = [each for each in requests(cluster)[before:] if each[0] != broker]
    assert answered == [(3 - broker, [2 - broker])], "its only request"


@pytest.mark.parametrize("fault", ["lose_request", "lose_response", "stall_response"])
def test_lost_connections_are_retried(cluster: UnitCluster, fault: str) -> None:
    cluster.fault("ListOffsets", fault, repeats=2)
    assert latest(cluster.client(), A, B) == [(A, 1), (B, 2)]


def test_fatal_error_raises_at_once_with_the_partition(cluster: UnitCluster) -> None:
    def reject(_: int, values: dict[str, Any]) -> dict[str, Any]:
        values["topics"][0]["partitions"][-1]["error_code"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return values

    cluster.change("ListOffsets", reject)
    with pytest.raises(AuthorizationError) as caught:
        latest(cluster.client(), A, C)
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == (*C, "broker-1:9092")
    assert cluster.sent("ListOffsets") == 1


def test_a_fatal_error_beside_one_that_may_pass_raises_at_once(cluster: UnitCluster) -> None:
    codes = {A.partition: ErrorCode.NOT_LEADER_OR_FOLLOWER, C.partition: ErrorCode.TOPIC_AUTHORIZATION_FAILED}

    def reject(_: int, values: dict[str, Any]) -> dict[str, Any]:
        for each in values["topics"][0]["partitions"]:
            each["error_code"] = codes[each["partition_index"]]
        return values

    cluster.change("ListOffsets", reject)
    with pytest.raises(AuthorizationError):
        latest(cluster.client(), A, C)
    assert cluster.sent("ListOffsets") == 1


def test_deadline_ends_the_retries(cluster: UnitCluster) -> None:
    cluster.every("ListOffsets", "error", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    client, started = cluster.client(), cluster.now
    with pytest.raises(BrokerUnreachableError, match="NOT_LEADER_OR_FOLLOWER while listing offsets"):
        latest(client, A, deadline=client.deadline(0.1))
    assert cluster.now - started < 0.11


@pytest.mark.parametrize(
    ("positions", "retries", "timeouts"),
    [
        ({A: LATEST, C: LATEST}, 9, [1, 2, 4]),
        ({A: 1}, 9, [10, 10, 10]),
        ({A: 0}, 9, [10, 10, 10]),
        ({A: LATEST, C: 1}, 9, [10, 10, 10]),
        ({A: LATEST}, 2, [1, 2, 10]),
    ],
    ids=[
        "the first timeouts are short",
        "except for timestamps",
        "and for the first time",
        "also of one partition",
        "and for the last try",
    ],
)
def test_timeouts_of_leader_requests(
    cluster: UnitCluster, positions: dict[TopicPartition, int], retries: int, timeouts: list[float]
) -> None:
    client = cluster.client(retries=retries, request_timeout_ms=10_000)
    client.topics(["t"])
    ends = [cluster.now]
    cluster.every("ListOffsets", "stall_response")
    cluster.before("ListOffsets", *[lambda: ends.append(cluster.now)] * 4)
    with pytest.raises(BrokerTimeoutError):
        client.offsets(positions, deadline=client.deadline(35))
    ends.append(cluster.now)
    assert [b - a for a, b in pairwise(ends[1:])][:3] == pytest.approx(timeouts, abs=0.12)


def test_open_transactions_of_all_partitions() -> None:
    with UnitCluster({"t": 3, "u": 1}, brokers=2) as cluster:
        partitions = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
        cluster.append(partitions[0], 5)
        for tp, producer_id in ((partitions[0], 7), (partitions[0], 8), (partitions[1], 7)):
            cluster.append(tp, 2, producer_id=producer_id)
        cluster.end_transaction(partitions[1], 7, commit=True)
        client = cluster.client()
        found = client.open_transactions(partitions)
        assert {tp: [(each.producer_id, each.start_offset) for each in open] for tp, open in found.items()} == {
            partitions[0]: [(7, 5), (8, 7)],
            partitions[1]: [],
            partitions[2]: [],
        }
        cluster.fault("DescribeProducers", "error", code=6)
        assert client.open_transactions(partitions[:1]) == {partitions[0]: found[partitions[0]]}
        assert cluster.sent("DescribeProducers") == 3, "an error that may pass is retried"


@pytest.mark.parametrize(("version", "expected"), [(9, 3), (8, 3), (7, None)], ids=["", "3.5", "before Kafka 3.5"])
def test_the_start_of_the_local_log(version: int, expected: int | None) -> None:
    with UnitCluster({"t": 1, "u": 1}, newest_versions={"ListOffsets": version}) as cluster:
        cluster.append(A, 5)
        cluster.delete_records(A, 3)
        client = cluster.client()
        assert client.local_log_start(A) == expected
        if expected is None:
            with pytest.raises(UnsupportedBrokerError, match=r"Kafka 3\.5 does"):
                client.offsets({A: LATEST, TopicPartition("u", 0): EARLIEST_LOCAL})


def test_errors_of_the_start_of_the_local_log(cluster: UnitCluster) -> None:
    """It is unknown unless a retry, or a permission, is needed."""
    client = cluster.client()
    for code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION):
        cluster.fault("ListOffsets", "error", code=code)
        assert client.local_log_start(A) is None
    cluster.fault("ListOffsets", "error", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert client.local_log_start(A) == 0
    cluster.fault("ListOffsets", "error", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError):
        client.local_log_start(A)
