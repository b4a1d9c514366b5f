"""What a coordinator's answers mean for offsets that are a part of a transaction: against a made-up one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest
from tests.unit.wire.systems import Frozen

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerError,
    FencedError,
    KafkaDirectError,
    ProtocolError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.wire._idle_producers import ProducerId
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.groups import CommittedOffset, Group
from pyspark_kafka_direct.wire.metadata import Node
from pyspark_kafka_direct.wire.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.messages import Api

_T = TypeVar("_T")

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ME = ProducerId(7, 3)


class Cluster:
    """One coordinator, which answers with codes by a script, and then well; a minute passes quickly."""

    def __init__(self, *codes: int) -> None:
        self.settings = ConnectionSettings((("b", 1),), retry_backoff_ms=100, retry_backoff_max_ms=1000)
        self.nodes: Mapping[int, Node] = {1: Node(1, "b", 1)}
        self.codes = list(codes)
        self.asked: list[tuple[str, int, Mapping[str, Any]]] = []
        self.committed: dict[TopicPartition, tuple[int, str | None]] = {}
        self.partitions: list[TopicPartition] | None = None
        self.closed = False
        self._system = Frozen()

    def deadline(self) -> Deadline:
        return Deadline.after(60, system=self._system)

    def topics(self, names: Collection[str], *, deadline: Deadline | None = None) -> dict[str, Any]:
        return {}

    def reach(self, *, deadline: Deadline | None = None) -> None: ...

    def ask_any(self, ask: Callable[[Connection, Deadline], _T], deadline: Deadline, tries: int = 1) -> _T:
        return ask(self.connect(self.nodes[1], deadline), deadline)

    def connect(self, node: Node, deadline: Deadline) -> Connection:
        connection = SimpleNamespace(broker="b:1", call=self._call, close=self._close, version=lambda _: 7)
        return cast("Connection", connection)

    def give_back(self, connection: Connection) -> None: ...

    def named(self, name: str) -> list[tuple[int, Mapping[str, Any]]]:
        return [(highest, values) for each, highest, values in self.asked if each == name]

    def _close(self) -> None:
        self.closed = True

    def _call(self, api: Api, values: Mapping[str, Any], deadline: Deadline) -> Any:
        self.asked.append((api.name, api.versions.highest, values))
        if api.name == "FindCoordinator":
            return SimpleNamespace(error_code=0, node_id=1, host="b", port=1)
        code = self.codes.pop(0) if self.codes else 0
        if api.name == "AddOffsetsToTxn":
            return SimpleNamespace(error_code=code)
        if api.name == "OffsetFetch":
            told = [
                SimpleNamespace(
                    name=tp.topic,
                    partitions=[
                        SimpleNamespace(
                            partition_index=tp.partition, committed_offset=offset, metadata=metadata, error_code=code
                        )
                    ],
                )
                for tp, (offset, metadata) in self.committed.items()
            ]
            return SimpleNamespace(error_code=0, topics=told)
        answered = self.partitions
        if answered is None:
            answered = [
                TopicPartition(topic["name"], each["partition_index"])
                for topic in values["topics"]
                for each in topic["partitions"]
            ]
        topics = [
            SimpleNamespace(name=tp.topic, partitions=[SimpleNamespace(partition_index=tp.partition, error_code=code)])
            for tp in answered
        ]
        return SimpleNamespace(topics=topics)


def commit(cluster: Cluster, *, bumps_epochs: bool = True) -> None:
    offsets = {A: CommittedOffset(5, "noted"), B: CommittedOffset(6)}
    Group(cluster, "p.cont").commit_in_transaction("p.cont.0", ME, offsets, bumps_epochs=bumps_epochs)


@pytest.mark.parametrize(("bumps_epochs", "newest"), [(True, 5), (False, 4)])
def test_a_commit_names_the_transaction_its_writer_and_all_offsets(bumps_epochs: bool, newest: int) -> None:
    """The newest version says by itself that the broker shall add the group, so it is only for those who do."""
    cluster = Cluster()
    commit(cluster, bumps_epochs=bumps_epochs)
    partitions = [
        {"partition_index": 0, "committed_offset": 5, "committed_metadata": "noted"},
        {"partition_index": 1, "committed_offset": 6, "committed_metadata": ""},
    ]
    wanted = {
        "transactional_id": "p.cont.0",
        "group_id": "p.cont",
        "producer_id": 7,
        "producer_epoch": 3,
        "topics": [{"name": "t", "partitions": partitions}],
    }
    assert cluster.named("TxnOffsetCommit") == [(newest, wanted)]
    assert cluster.named("FindCoordinator")[0][1] == {"key": "p.cont", "key_type": 0}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ],
)
def test_a_commit_that_passes_is_asked_again(code: int) -> None:
    cluster = Cluster(code, code)
    commit(cluster)
    assert len(cluster.named("TxnOffsetCommit")) == 3


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, FencedError),
        (ErrorCode.PRODUCER_FENCED, FencedError),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, FencedError),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.INVALID_TXN_STATE, BrokerError),
        (ErrorCode.TRANSACTION_ABORTABLE, BrokerError),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TopicNotFoundError),
    ],
)
def test_a_commit_that_fails_says_why(code: int, kind: type[KafkaDirectError]) -> None:
    with pytest.raises(kind, match=r"committing offsets of the group 'p\.cont'"):
        commit(Cluster(*[code] * 100))


def test_a_commit_that_is_not_answered_for_a_partition_is_an_error() -> None:
    cluster = Cluster()
    cluster.partitions = [A]
    with pytest.raises(ProtocolError, match="TxnOffsetCommit lacks a partition"):
        commit(cluster)
    assert cluster.closed


def test_a_group_is_added_to_a_transaction() -> None:
    cluster = Cluster(ErrorCode.CONCURRENT_TRANSACTIONS)
    Transactions(cluster, "p.cont.0").add_offsets(ME, "p.cont")
    wanted = {"transactional_id": "p.cont.0", "producer_id": 7, "producer_epoch": 3, "group_id": "p.cont"}
    assert cluster.named("AddOffsetsToTxn") == [(3, wanted)] * 2
    assert cluster.named("FindCoordinator")[0][1] == {"key": "p.cont.0", "key_type": 1}


@pytest.mark.parametrize(
    ("code", "kind"),
    [(ErrorCode.PRODUCER_FENCED, FencedError), (ErrorCode.GROUP_AUTHORIZATION_FAILED, AuthorizationError)],
)
def test_a_group_that_cannot_be_added_is_an_error(code: int, kind: type[KafkaDirectError]) -> None:
    with pytest.raises(kind, match=r"adding the group 'p\.cont' to a transaction of 'p\.cont\.0'"):
        Transactions(Cluster(code), "p.cont.0").add_offsets(ME, "p.cont")


def test_all_that_a_group_has_is_read_with_what_is_noted() -> None:
    cluster = Cluster(ErrorCode.UNSTABLE_OFFSET_COMMIT)
    cluster.committed = {A: (5, "noted"), B: (-1, ""), TopicPartition("u", 2): (0, None)}
    found = Group(cluster, "p.cont").noted()
    assert found == {A: CommittedOffset(5, "noted"), TopicPartition("u", 2): CommittedOffset(0, "")}
    wanted = {"group_id": "p.cont", "topics": None, "require_stable": True}
    assert cluster.named("OffsetFetch") == [(7, wanted)] * 2, "asked again while a transaction is open"
    assert Group(cluster, "p.cont").noted(stable=False) == found
    assert cluster.named("OffsetFetch")[2:] == [(7, {"group_id": "p.cont", "topics": None})]
