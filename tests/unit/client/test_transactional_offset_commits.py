"""Offset commits in transactions, against a fake coordinator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.unit.client.fake_coordinators import FakeCluster

from pyspark_kafka_direct.client.consumer_group import CommittedOffset, ConsumerGroup
from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
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
from pyspark_kafka_direct.options.settings import ConnectionSettings
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.metadata import Node
    from pyspark_kafka_direct.protocol.messages import ApiMessageType

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER = ProducerIdAndEpoch(7, 3)


class ScriptedCluster(FakeCluster):
    """One coordinator with scripted error codes, then success; its clock is fake."""

    def __init__(self, *codes: int) -> None:
        super().__init__(ConnectionSettings((("b", 1),), retry_backoff_ms=100, retry_backoff_max_ms=1000))
        self.codes = list(codes)
        self.codes_by_partition: dict[TopicPartition, int] = {}
        self.requests: list[tuple[str, int, Mapping[str, Any]]] = []
        self.committed: dict[TopicPartition, tuple[int, str | None]] = {}
        self.partitions: list[TopicPartition] | None = None
        self.closed = False

    def connect(self, node: Node, deadline: Deadline) -> Connection:
        connection = SimpleNamespace(broker="b:1", call=self._call, close=self._close, version=lambda _: 7)
        return cast("Connection", connection)

    def requests_named(self, name: str) -> list[tuple[int, Mapping[str, Any]]]:
        return [(highest, values) for each, highest, values in self.requests if each == name]

    def _close(self) -> None:
        self.closed = True

    def _call(self, api: ApiMessageType, values: Mapping[str, Any], deadline: Deadline) -> Any:
        self.requests.append((api.name, api.versions.highest, values))
        if api.name == "FindCoordinator":
            return SimpleNamespace(error_code=0, node_id=1, host="b", port=1)
        code = self.codes.pop(0) if self.codes else 0
        if api.name == "AddOffsetsToTxn":
            return SimpleNamespace(error_code=code)
        if api.name == "OffsetFetch":
            topics = [
                SimpleNamespace(
                    name=tp.topic,
                    partitions=[
                        SimpleNamespace(
                            partition_index=tp.partition,
                            committed_offset=offset,
                            metadata=metadata,
                            committed_leader_epoch=-1,
                            error_code=code,
                        )
                    ],
                )
                for tp, (offset, metadata) in self.committed.items()
            ]
            return SimpleNamespace(error_code=0, topics=topics)
        response_partitions = self.partitions
        if response_partitions is None:
            response_partitions = [
                TopicPartition(topic["name"], each["partition_index"])
                for topic in values["topics"]
                for each in topic["partitions"]
            ]
        by_topic: dict[str, list[SimpleNamespace]] = {}
        for tp in response_partitions:
            code_of_partition = self.codes_by_partition.get(tp, code)
            entry = SimpleNamespace(partition_index=tp.partition, error_code=code_of_partition)
            by_topic.setdefault(tp.topic, []).append(entry)
        topics = [SimpleNamespace(name=topic, partitions=entries) for topic, entries in by_topic.items()]
        return SimpleNamespace(topics=topics)


def commit(cluster: ScriptedCluster, *, transaction_v2: bool = True) -> None:
    offsets = {A: CommittedOffset(5, "metadata"), B: CommittedOffset(6)}
    ConsumerGroup(cluster, "p.cont").commit_in_transaction("p.cont.0", PRODUCER, offsets, transaction_v2=transaction_v2)


@pytest.mark.parametrize(("transaction_v2", "newest"), [(True, 5), (False, 4)])
def test_transactional_commit_request(transaction_v2: bool, newest: int) -> None:
    """The newest version makes the broker add the group, so it requires transaction_v2."""
    cluster = ScriptedCluster()
    commit(cluster, transaction_v2=transaction_v2)
    partitions = [
        {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": "metadata"},
        {"partition_index": 1, "committed_offset": 6, "committed_leader_epoch": -1, "committed_metadata": ""},
    ]
    wanted = {
        "transactional_id": "p.cont.0",
        "group_id": "p.cont",
        "producer_id": 7,
        "producer_epoch": 3,
        "topics": [{"name": "t", "partitions": partitions}],
    }
    assert cluster.requests_named("TxnOffsetCommit") == [(newest, wanted)]
    assert cluster.requests_named("FindCoordinator")[0][1] == {"key": "p.cont", "key_type": 0}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ],
)
def test_retriable_commit_errors_are_retried(code: int) -> None:
    cluster = ScriptedCluster(code, code)
    commit(cluster)
    assert len(cluster.requests_named("TxnOffsetCommit")) == 3


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
def test_failed_commit_raises_its_error(code: int, error_type: type[KafkaDirectError]) -> None:
    with pytest.raises(error_type, match=r"committing offsets of the group 'p\.cont'"):
        commit(ScriptedCluster(*[code] * 100))


def test_commit_response_without_partition_raises() -> None:
    cluster = ScriptedCluster()
    cluster.partitions = [A]
    with pytest.raises(ProtocolError, match="TxnOffsetCommit lacks a partition"):
        commit(cluster)
    assert cluster.closed


def test_a_group_is_added_to_a_transaction() -> None:
    cluster = ScriptedCluster(ErrorCode.CONCURRENT_TRANSACTIONS)
    TransactionCoordinatorClient(cluster, "p.cont.0").add_offsets(PRODUCER, "p.cont")
    wanted = {"transactional_id": "p.cont.0", "producer_id": 7, "producer_epoch": 3, "group_id": "p.cont"}
    assert cluster.requests_named("AddOffsetsToTxn") == [(3, wanted)] * 2
    assert cluster.requests_named("FindCoordinator")[0][1] == {"key": "p.cont.0", "key_type": 1}


@pytest.mark.parametrize(
    ("code", "error_type"),
    [(ErrorCode.PRODUCER_FENCED, ProducerFencedError), (ErrorCode.GROUP_AUTHORIZATION_FAILED, AuthorizationError)],
)
def test_failure_to_add_group_raises(code: int, error_type: type[KafkaDirectError]) -> None:
    with pytest.raises(error_type, match=r"adding the group 'p\.cont' to a transaction of 'p\.cont\.0'"):
        TransactionCoordinatorClient(ScriptedCluster(code), "p.cont.0").add_offsets(PRODUCER, "p.cont")


def test_all_committed_offsets_of_a_group_with_metadata() -> None:
    cluster = ScriptedCluster(ErrorCode.UNSTABLE_OFFSET_COMMIT)
    cluster.committed = {A: (5, "metadata"), B: (-1, ""), TopicPartition("u", 2): (0, None)}
    committed = ConsumerGroup(cluster, "p.cont").committed_with_metadata()
    assert committed == {A: CommittedOffset(5, "metadata"), TopicPartition("u", 2): CommittedOffset(0, "")}
    wanted = {"group_id": "p.cont", "topics": None, "require_stable": True}
    assert cluster.requests_named("OffsetFetch") == [(7, wanted)] * 2, "retried while a transaction is open"
    assert ConsumerGroup(cluster, "p.cont").committed_with_metadata(require_stable=False) == committed
    assert cluster.requests_named("OffsetFetch")[2:] == [(7, {"group_id": "p.cont", "topics": None})]


@pytest.mark.parametrize("rejected", [A, B, TopicPartition("u", 0), TopicPartition("u", 1)], ids=str)
@pytest.mark.parametrize("in_transaction", [False, True])
def test_an_error_of_any_partition_is_raised(rejected: TopicPartition, in_transaction: bool) -> None:
    cluster = ScriptedCluster()
    cluster.codes_by_partition[rejected] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    group = ConsumerGroup(cluster, "g")
    partitions = [A, B, TopicPartition("u", 0), TopicPartition("u", 1)]

    def commit_all() -> None:
        if in_transaction:
            offsets = dict.fromkeys(partitions, CommittedOffset(5))
            group.commit_in_transaction("p.cont.0", PRODUCER, offsets, transaction_v2=True)
        else:
            group.commit(dict.fromkeys(partitions, 5))

    with pytest.raises(AuthorizationError) as raised:
        commit_all()
    assert (raised.value.topic, raised.value.partition) == rejected
