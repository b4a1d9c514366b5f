"""One request to each leader, and retries for moved partitions, against fake leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.client.deadline import Backoff, Deadline, Retry
from pyspark_kafka_direct.client.leader_requests import LeaderRequestEntry, LeaderResponse, call_leaders
from pyspark_kafka_direct.client.metadata import Node, PartitionLeader
from pyspark_kafka_direct.errors import AuthorizationError, BrokerError, BrokerTimeoutError, BrokerUnreachableError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import ConnectionSettings
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark_kafka_direct.client.connection import Connection

A, B, C = (TopicPartition("t", number) for number in range(3))
ONE, TWO = (Node(number, f"b{number}", 9092) for number in (1, 2))


class FakeConnection:
    """Replaces a connection."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.broker = str(node)


class FakeCluster:
    """Returns the first leaders, and the next ones after each metadata refresh."""

    def __init__(self, *leaders: Mapping[TopicPartition, Node | None]) -> None:
        self.settings = ConnectionSettings((("b", 1),), request_timeout_ms=10_000)
        self.down: set[Node] = set()
        self.acquired = 0
        self.lookups: list[tuple[set[TopicPartition], bool]] = []
        self._leaders = list(leaders)

    def leaders(
        self, partitions: Collection[TopicPartition], deadline: Deadline, *, refresh_retry: Retry | None = None
    ) -> dict[TopicPartition, PartitionLeader | None]:
        self.lookups.append((set(partitions), refresh_retry is not None))
        if refresh_retry is not None and len(self._leaders) > 1:
            self._leaders.pop(0)
        results = {partition: self._leaders[0][partition] for partition in partitions}
        return {tp: None if node is None else PartitionLeader(node, 4 + node.id) for tp, node in results.items()}

    def connect(self, node: Node, deadline: Deadline) -> Connection:
        if node in self.down:
            raise BrokerUnreachableError("down", broker=str(node))
        self.acquired += 1
        return cast("Connection", FakeConnection(node))

    def release(self, connection: Connection) -> None:
        self.acquired -= 1


class DoublingRequest:
    """Requests leaders to double numbers, which they do unless an error is scripted for the partition."""

    operation = "doubling"

    def __init__(self, codes: Mapping[TopicPartition, list[int]] | None = None, slow: bool = False) -> None:
        self.codes = codes or {}
        self.slow = slow
        self.errors: list[BrokerError] = []
        self.log: list[tuple[str, int, list[TopicPartition]]] = []
        self.epochs: dict[TopicPartition, int] = {}
        self.timeouts: list[float] = []

    def is_slow(self, values: Iterable[int]) -> bool:
        return self.slow

    def submit(self, connection: Connection, entries: Sequence[LeaderRequestEntry[int]], deadline: Deadline) -> None:
        self._record("submit", connection, entries)
        self.epochs |= {entry.partition: entry.leader_epoch for entry in entries}
        self.timeouts.append(round(deadline.remaining()))

    def complete(
        self, connection: Connection, entries: Sequence[LeaderRequestEntry[int]], deadline: Deadline
    ) -> LeaderResponse[int]:
        self._record("complete", connection, entries)
        if self.errors:
            raise self.errors.pop(0)
        codes = {tp: self.codes[tp].pop(0) for tp, _, _ in entries if self.codes.get(tp)}
        return LeaderResponse({tp: 2 * value for tp, value, _ in entries if tp not in codes}, codes)

    def _record(self, what: str, connection: Any, entries: Sequence[LeaderRequestEntry[int]]) -> None:
        self.log.append((what, connection.node.id, [entry.partition for entry in entries]))


def retry(seconds: float = 60, retries: int | None = None) -> Retry:
    return Retry(Deadline.after(seconds), retries, Backoff(0.001, 0.002))


def test_each_leader_gets_one_request_sent_before_any_wait() -> None:
    cluster, request = FakeCluster({A: TWO, B: ONE, C: TWO}), DoublingRequest()
    results = call_leaders(cluster, request, {C: 3, A: 1, B: 2}, retry())
    assert list(results.items()) == [(C, 6), (A, 2), (B, 4)]
    assert request.log == [
        ("submit", 2, [C, A]),
        ("submit", 1, [B]),
        ("complete", 2, [C, A]),
        ("complete", 1, [B]),
    ]
    assert request.epochs == {A: 6, B: 5, C: 6}
    assert cluster.lookups == [({A, B, C}, False)]
    assert cluster.acquired == 0


def test_empty_request_calls_no_leader() -> None:
    cluster, request = FakeCluster({}), DoublingRequest()
    assert call_leaders(cluster, request, {}, retry()) == {}
    assert request.log == []


def test_only_moved_partitions_are_retried_at_their_new_leader() -> None:
    cluster = FakeCluster({A: ONE, B: ONE}, {A: ONE, B: TWO})
    request = DoublingRequest({B: [ErrorCode.NOT_LEADER_OR_FOLLOWER]})
    assert call_leaders(cluster, request, {A: 1, B: 2}, retry()) == {A: 2, B: 4}
    assert [entry for entry in request.log if entry[0] == "submit"] == [("submit", 1, [A, B]), ("submit", 2, [B])]
    assert cluster.lookups == [({A, B}, False), ({B}, True)]


def test_a_partition_without_a_leader_waits_for_one() -> None:
    cluster, request = FakeCluster({A: None, B: TWO}, {A: None}, {A: ONE}), DoublingRequest()
    assert call_leaders(cluster, request, {A: 1, B: 2}, retry()) == {A: 2, B: 4}
    assert [len(partitions) for partitions, _ in cluster.lookups] == [2, 1, 1]


def test_missing_leader_raises_after_the_retries() -> None:
    with pytest.raises(BrokerUnreachableError, match="LEADER_NOT_AVAILABLE while doubling") as caught:
        call_leaders(FakeCluster({A: None}), DoublingRequest(), {A: 1}, retry(retries=2))
    assert (caught.value.topic, caught.value.partition) == A


def test_dead_leader_does_not_delay_the_others() -> None:
    cluster, request = FakeCluster({A: ONE, B: TWO}, {A: TWO}), DoublingRequest()
    cluster.down.add(ONE)
    assert call_leaders(cluster, request, {A: 1, B: 2}, retry()) == {A: 2, B: 4}
    assert request.log == [("submit", 2, [B]), ("complete", 2, [B]), ("submit", 2, [A]), ("complete", 2, [A])]


def test_lost_connections_are_retried_and_released() -> None:
    cluster, request = FakeCluster({A: ONE, B: TWO}), DoublingRequest()
    request.errors = [BrokerUnreachableError("broke"), BrokerTimeoutError("no response")]
    assert call_leaders(cluster, request, {A: 1, B: 2}, retry()) == {A: 2, B: 4}
    assert cluster.acquired == 0


def test_fatal_error_raises_at_once_with_the_partition() -> None:
    cluster, request = FakeCluster({A: ONE, B: ONE}), DoublingRequest({B: [ErrorCode.TOPIC_AUTHORIZATION_FAILED]})
    with pytest.raises(AuthorizationError) as caught:
        call_leaders(cluster, request, {A: 1, B: 2}, retry())
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == (*B, "b1:9092")
    assert len(request.log) == 2
    assert cluster.acquired == 0


def test_deadline_ends_the_retries() -> None:
    request = DoublingRequest({A: [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 10_000})
    with pytest.raises(BrokerUnreachableError, match="NOT_LEADER_OR_FOLLOWER while doubling"):
        call_leaders(FakeCluster({A: ONE}), request, {A: 1}, retry(0.1))


@pytest.mark.parametrize(
    ("slow", "retries", "timeouts"),
    [(False, None, [1, 2, 4]), (True, None, [60, 60, 60]), (False, 2, [1, 2, 60])],
    ids=["the first timeouts are short", "except for slow requests", "and for the last try"],
)
def test_timeouts_of_leader_requests(slow: bool, retries: int | None, timeouts: list[float]) -> None:
    request = DoublingRequest({A: [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2}, slow)
    call_leaders(FakeCluster({A: ONE}), request, {A: 1}, retry(retries=retries))
    assert request.timeouts == timeouts


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


def test_the_start_of_the_local_log() -> None:
    with UnitCluster({"t": 1}) as cluster:
        tp = TopicPartition("t", 0)
        cluster.append(tp, 5)
        cluster.delete_records(tp, 3)
        assert cluster.client().local_log_start(tp) == 3
