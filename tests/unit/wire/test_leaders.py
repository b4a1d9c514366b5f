"""One request to each leader, and again for what moved: against made-up leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from pyspark_kafka_direct.errors import AuthorizationError, BrokerError, BrokerTimeoutError, BrokerUnreachableError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.wire._retry import Retry
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.leaders import Answer, Entry, ask_leaders
from pyspark_kafka_direct.wire.metadata import Node, PartitionLeader

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark_kafka_direct.wire.connection import Connection

A, B, C = (TopicPartition("t", number) for number in range(3))
ONE, TWO = (Node(number, f"b{number}", 9092) for number in (1, 2))


class Link:
    """Stands for a connection."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.broker = str(node)


class Cluster:
    """Tells of leaders: first those it knows, then, each time it is asked anew, the next ones."""

    def __init__(self, *leaders: Mapping[TopicPartition, Node | None]) -> None:
        self.settings = ConnectionSettings((("b", 1),), request_timeout_ms=10_000)
        self.down: set[Node] = set()
        self.lent = 0
        self.looks: list[tuple[set[TopicPartition], bool]] = []
        self._leaders = list(leaders)

    def leaders(
        self, partitions: Collection[TopicPartition], deadline: Deadline, *, fresh: Retry | None = None
    ) -> dict[TopicPartition, PartitionLeader | None]:
        self.looks.append((set(partitions), fresh is not None))
        if fresh is not None and len(self._leaders) > 1:
            self._leaders.pop(0)
        found = {partition: self._leaders[0][partition] for partition in partitions}
        return {tp: None if node is None else PartitionLeader(node, 4 + node.id) for tp, node in found.items()}

    def connect(self, node: Node, deadline: Deadline) -> Connection:
        if node in self.down:
            raise BrokerUnreachableError("down", broker=str(node))
        self.lent += 1
        return cast("Connection", Link(node))

    def give_back(self, connection: Connection) -> None:
        self.lent -= 1


class Doubling:
    """Asks leaders to double numbers; they do, unless there is an error code, or a trouble, for the partition."""

    doing = "doubling"

    def __init__(self, codes: Mapping[TopicPartition, list[int]] | None = None, slow: bool = False) -> None:
        self.codes = codes or {}
        self.slow = slow
        self.troubles: list[BrokerError] = []
        self.log: list[tuple[str, int, list[TopicPartition]]] = []
        self.epochs: dict[TopicPartition, int] = {}
        self.patience: list[float] = []

    def is_slow(self, values: Iterable[int]) -> bool:
        return self.slow

    def submit(self, connection: Connection, entries: Sequence[Entry[int]], deadline: Deadline) -> None:
        self._note("submit", connection, entries)
        self.epochs |= {entry.partition: entry.leader_epoch for entry in entries}
        self.patience.append(round(deadline.remaining()))

    def complete(self, connection: Connection, entries: Sequence[Entry[int]], deadline: Deadline) -> Answer[int]:
        self._note("complete", connection, entries)
        if self.troubles:
            raise self.troubles.pop(0)
        codes = {tp: self.codes[tp].pop(0) for tp, _, _ in entries if self.codes.get(tp)}
        return Answer({tp: 2 * value for tp, value, _ in entries if tp not in codes}, codes)

    def _note(self, what: str, connection: Any, entries: Sequence[Entry[int]]) -> None:
        self.log.append((what, connection.node.id, [entry.partition for entry in entries]))


def retry(seconds: float = 60, retries: int | None = None) -> Retry:
    return Retry(Deadline.after(seconds), retries, 0.001, 0.002)


def test_each_leader_gets_one_request_and_all_are_sent_before_an_answer_is_awaited() -> None:
    cluster, request = Cluster({A: TWO, B: ONE, C: TWO}), Doubling()
    found = ask_leaders(cluster, request, {C: 3, A: 1, B: 2}, retry())
    assert list(found.items()) == [(C, 6), (A, 2), (B, 4)]
    assert request.log == [
        ("submit", 2, [C, A]),
        ("submit", 1, [B]),
        ("complete", 2, [C, A]),
        ("complete", 1, [B]),
    ]
    assert request.epochs == {A: 6, B: 5, C: 6}
    assert cluster.looks == [({A, B, C}, False)]
    assert cluster.lent == 0


def test_who_asks_for_nothing_gets_nothing_and_no_leader_is_asked() -> None:
    cluster, request = Cluster({}), Doubling()
    assert ask_leaders(cluster, request, {}, retry()) == {}
    assert request.log == []


def test_what_moved_is_asked_again_at_its_new_leader_and_nothing_else() -> None:
    cluster = Cluster({A: ONE, B: ONE}, {A: ONE, B: TWO})
    request = Doubling({B: [ErrorCode.NOT_LEADER_OR_FOLLOWER]})
    assert ask_leaders(cluster, request, {A: 1, B: 2}, retry()) == {A: 2, B: 4}
    assert [entry for entry in request.log if entry[0] == "submit"] == [("submit", 1, [A, B]), ("submit", 2, [B])]
    assert cluster.looks == [({A, B}, False), ({B}, True)]


def test_a_partition_without_a_leader_waits_for_one() -> None:
    cluster, request = Cluster({A: None, B: TWO}, {A: None}, {A: ONE}), Doubling()
    assert ask_leaders(cluster, request, {A: 1, B: 2}, retry()) == {A: 2, B: 4}
    assert [len(partitions) for partitions, _ in cluster.looks] == [2, 1, 1]


def test_without_a_leader_until_the_end_the_error_says_so() -> None:
    with pytest.raises(BrokerUnreachableError, match="LEADER_NOT_AVAILABLE while doubling") as caught:
        ask_leaders(Cluster({A: None}), Doubling(), {A: 1}, retry(retries=2))
    assert (caught.value.topic, caught.value.partition) == A


def test_a_leader_that_is_down_does_not_hold_up_the_others() -> None:
    cluster, request = Cluster({A: ONE, B: TWO}, {A: TWO}), Doubling()
    cluster.down.add(ONE)
    assert ask_leaders(cluster, request, {A: 1, B: 2}, retry()) == {A: 2, B: 4}
    assert request.log == [("submit", 2, [B]), ("complete", 2, [B]), ("submit", 2, [A]), ("complete", 2, [A])]


def test_a_lost_connection_is_one_more_try_and_every_connection_is_given_back() -> None:
    cluster, request = Cluster({A: ONE, B: TWO}), Doubling()
    request.troubles = [BrokerUnreachableError("broke"), BrokerTimeoutError("silent")]
    assert ask_leaders(cluster, request, {A: 1, B: 2}, retry()) == {A: 2, B: 4}
    assert cluster.lent == 0


def test_a_lasting_error_ends_it_at_once_and_names_the_partition() -> None:
    cluster, request = Cluster({A: ONE, B: ONE}), Doubling({B: [ErrorCode.TOPIC_AUTHORIZATION_FAILED]})
    with pytest.raises(AuthorizationError) as caught:
        ask_leaders(cluster, request, {A: 1, B: 2}, retry())
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == (*B, "b1:9092")
    assert len(request.log) == 2
    assert cluster.lent == 0


def test_the_deadline_ends_the_tries() -> None:
    request = Doubling({A: [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 10_000})
    with pytest.raises(BrokerUnreachableError, match="NOT_LEADER_OR_FOLLOWER while doubling"):
        ask_leaders(Cluster({A: ONE}), request, {A: 1}, retry(0.1))


@pytest.mark.parametrize(
    ("slow", "retries", "patience"),
    [(False, None, [1, 2, 4]), (True, None, [60, 60, 60]), (False, 2, [1, 2, 60])],
    ids=["the first tries are short", "but not for what takes long", "nor where there is no other"],
)
def test_how_long_a_leader_is_waited_for(slow: bool, retries: int | None, patience: list[float]) -> None:
    request = Doubling({A: [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2}, slow)
    ask_leaders(Cluster({A: ONE}), request, {A: 1}, retry(retries=retries))
    assert request.patience == patience
