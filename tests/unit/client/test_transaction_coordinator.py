"""Transaction requests, above all EndTxn, against a fake coordinator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.unit.client.fake_coordinators import FakeCluster

from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.client.transaction_coordinator import (
    TransactionCoordinatorClient,
    check_supports_transactions,
)
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerError,
    BrokerUnreachableError,
    KafkaDirectError,
    OutcomeUnknownError,
    ProducerFencedError,
    ProtocolError,
    TopicNotFoundError,
    UnsupportedBrokerError,
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

PRODUCER = ProducerIdAndEpoch(7, 3)
NEXT_PRODUCER = ProducerIdAndEpoch(7, 4)
NEWEST_VERSIONS = {22: (0, 5), 24: (0, 5), 26: (0, 5)}

Outcome = int | KafkaDirectError | ProducerIdAndEpoch


class ScriptedCluster(FakeCluster):
    """One coordinator with scripted EndTxn outcomes, then success; its clock is fake."""

    def __init__(self, *outcomes: Outcome, level: int = 2) -> None:
        super().__init__(ConnectionSettings((("b", 1),), retry_backoff_ms=100, retry_backoff_max_ms=1000))
        self.outcomes = list(outcomes)
        self.requests: list[tuple[str, int, Mapping[str, Any]]] = []
        self.add_partitions_codes: dict[str, dict[int, int]] = {}
        self.level = level
        self.closed = False

    def connect(self, node: Node, deadline: Deadline) -> Connection:
        connection = SimpleNamespace(
            broker="b:1", api_versions=NEWEST_VERSIONS, call=self._call, features=self._features, close=self._close
        )
        return cast("Connection", connection)

    def _close(self) -> None:
        self.closed = True

    def _features(self, deadline: Deadline) -> dict[str, int]:
        return {"transaction.version": self.level} if self.level else {}

    def _call(self, api: ApiMessageType, values: Mapping[str, Any], deadline: Deadline) -> Any:
        self.requests.append((api.name, api.versions.highest, values))
        if api.name == "FindCoordinator":
            return SimpleNamespace(error_code=0, node_id=1, host="b", port=1)
        if api.name == "InitProducerId":
            return SimpleNamespace(error_code=0, producer_id=7, producer_epoch=3)
        if api.name == "AddPartitionsToTxn":
            topics = [
                SimpleNamespace(
                    name=topic,
                    results_by_partition=[
                        SimpleNamespace(partition_index=number, partition_error_code=code)
                        for number, code in codes.items()
                    ],
                )
                for topic, codes in self.add_partitions_codes.items()
            ]
            return SimpleNamespace(results_by_topic_v3_and_below=topics)
        outcome = self.outcomes.pop(0) if self.outcomes else NEXT_PRODUCER
        if isinstance(outcome, KafkaDirectError):
            raise outcome
        if isinstance(outcome, ProducerIdAndEpoch):
            return SimpleNamespace(error_code=0, producer_id=outcome.id, producer_epoch=outcome.epoch)
        return SimpleNamespace(error_code=outcome, producer_id=-1, producer_epoch=-1)

    @property
    def end_txn_requests(self) -> list[tuple[int, Mapping[str, Any]]]:
        return [(highest, values) for name, highest, values in self.requests if name == "EndTxn"]


def end(cluster: ScriptedCluster, *, transaction_v2: bool = True, commit: bool = True) -> ProducerIdAndEpoch:
    transactions = TransactionCoordinatorClient(cluster, "p.sink")
    return transactions.end_transaction(PRODUCER, commit=commit, transaction_v2=transaction_v2).producer


def connection_lost() -> BrokerUnreachableError:
    return BrokerUnreachableError("The connection broke.", broker="b:1")


def test_end_transaction_returns_next_producer() -> None:
    cluster = ScriptedCluster()
    assert end(cluster) == NEXT_PRODUCER
    wanted = {"transactional_id": "p.sink", "producer_id": 7, "producer_epoch": 3, "committed": True}
    assert cluster.end_txn_requests == [(5, wanted)]


def test_end_transaction_returns_new_producer_id() -> None:
    """The epochs are exhausted."""
    assert end(ScriptedCluster(ProducerIdAndEpoch(8, 0))) == ProducerIdAndEpoch(8, 0)
    assert end(ScriptedCluster(ProducerIdAndEpoch(0, 0))) == ProducerIdAndEpoch(0, 0), (
        "the first producer id of a cluster"
    )


def test_without_transaction_v2_end_txn_4_keeps_the_producer() -> None:
    cluster = ScriptedCluster(ProducerIdAndEpoch(-1, -1))
    assert end(cluster, transaction_v2=False, commit=False) == PRODUCER
    assert [(highest, values["committed"]) for highest, values in cluster.end_txn_requests] == [(4, False)]


@pytest.mark.parametrize(
    ("outcomes", "may_arrive_late"),
    [
        ((), False),
        ((ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR), False),
        ((connection_lost(), ErrorCode.CONCURRENT_TRANSACTIONS), True),
    ],
)
@pytest.mark.parametrize("transaction_v2", [False, True])
def test_an_unanswered_try_may_end_the_next_transaction_of_the_epoch(
    outcomes: tuple[Outcome, ...], may_arrive_late: bool, transaction_v2: bool
) -> None:
    transactions = TransactionCoordinatorClient(ScriptedCluster(*outcomes), "p.sink")
    result = transactions.end_transaction(PRODUCER, commit=True, transaction_v2=transaction_v2)
    assert result.may_arrive_late is (may_arrive_late and not transaction_v2)


@pytest.mark.parametrize(
    "outcome",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        connection_lost(),
    ],
    ids=str,
)
def test_retriable_end_txn_errors_are_retried(outcome: Outcome) -> None:
    cluster = ScriptedCluster(outcome, outcome)
    assert end(cluster) == NEXT_PRODUCER
    assert len(cluster.end_txn_requests) == 3
    assert cluster.end_txn_requests[0] == cluster.end_txn_requests[2]


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING]
)
def test_end_transaction_of_fenced_producer_raises(code: int) -> None:
    with pytest.raises(ProducerFencedError, match=r"committing a transaction of 'p\.sink'"):
        end(ScriptedCluster(code))
    with pytest.raises(ProducerFencedError):  # after responses that mean that it was not applied
        end(ScriptedCluster(ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, code))


@pytest.mark.parametrize(
    "unconfirmed", [connection_lost(), ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR], ids=str
)
def test_fencing_after_unconfirmed_try_is_reported(unconfirmed: Outcome) -> None:
    """It may have been committed before, but a fenced producer must not continue."""
    with pytest.raises(ProducerFencedError, match=r"was not confirmed .*Another producer has acquired"):
        end(ScriptedCluster(unconfirmed, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED))


def test_rejected_end_txn_was_not_applied() -> None:
    with pytest.raises(BrokerError, match="INVALID_TXN_STATE") as caught:
        end(ScriptedCluster(ErrorCode.INVALID_TXN_STATE))
    assert not isinstance(caught.value, OutcomeUnknownError)


@pytest.mark.parametrize("unconfirmed", [connection_lost(), ErrorCode.COORDINATOR_NOT_AVAILABLE], ids=str)
def test_rejected_end_txn_after_unconfirmed_try_has_unknown_outcome(unconfirmed: Outcome) -> None:
    with pytest.raises(OutcomeUnknownError, match="INVALID_TXN_STATE"):
        end(ScriptedCluster(unconfirmed, ErrorCode.INVALID_TXN_STATE))


@pytest.mark.parametrize(
    "outcome",
    [connection_lost(), ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR],
    ids=str,
)
def test_unconfirmed_end_txn_has_unknown_outcome(outcome: Outcome) -> None:
    with pytest.raises(OutcomeUnknownError, match=r"^Committing a transaction of 'p\.sink' was not confirmed"):
        end(ScriptedCluster(*[outcome] * 10_000))


def test_unknown_outcome_error_has_the_response() -> None:
    wanted = r"was not confirmed \(the coordinator returned UNKNOWN_SERVER_ERROR; then: .*UNKNOWN_SERVER_ERROR"
    with pytest.raises(OutcomeUnknownError, match=wanted):
        end(ScriptedCluster(ErrorCode.UNKNOWN_SERVER_ERROR))
    with pytest.raises(OutcomeUnknownError, match=r"was not confirmed \(no response arrived; then: .*garbage"):
        end(ScriptedCluster(ProtocolError("garbage")))


def test_malformed_end_txn_response_has_unknown_outcome() -> None:
    with pytest.raises(OutcomeUnknownError):
        end(ScriptedCluster(ProtocolError("garbage")))


@pytest.mark.parametrize("code", [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS], ids=str)
def test_end_txn_that_was_never_started_was_not_applied(code: int) -> None:
    with pytest.raises(BrokerError, match=ErrorCode(code).name) as caught:
        end(ScriptedCluster(*[code] * 10_000))
    assert not isinstance(caught.value, OutcomeUnknownError)


@pytest.mark.parametrize(("level", "transaction_v2"), [(0, False), (1, False), (2, True), (3, True)])
def test_init_transactions_fetches_the_feature_each_time(level: int, transaction_v2: bool) -> None:
    cluster = ScriptedCluster(level=0)
    transactions = TransactionCoordinatorClient(cluster, "p.sink")
    assert not transactions.init_transactions(1000).transaction_v2
    cluster.level = level  # an administrator raises it
    result = transactions.init_transactions(1000)
    assert result.producer == PRODUCER
    assert result.transaction_v2 is transaction_v2
    assert cluster.requests[-1][2] == {"transactional_id": "p.sink", "transaction_timeout_ms": 1000}


def add(cluster: ScriptedCluster, *partitions: tuple[str, int]) -> None:
    TransactionCoordinatorClient(cluster, "p.sink").add_partitions(
        PRODUCER, [TopicPartition(*each) for each in partitions]
    )


def test_partitions_are_added_by_topic() -> None:
    cluster = ScriptedCluster()
    cluster.add_partitions_codes = {"t": {0: 0, 1: 0}, "u": {0: 0}}
    add(cluster, ("t", 0), ("u", 0), ("t", 1))
    wanted = cluster.requests[-1][2]["v3_and_below_topics"]
    assert wanted == [{"name": "t", "partitions": [0, 1]}, {"name": "u", "partitions": [0]}]


@pytest.mark.parametrize(
    ("code", "error_type"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.PRODUCER_FENCED, ProducerFencedError),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TopicNotFoundError),
    ],
)
def test_error_names_the_partition_that_failed(code: int, error_type: type[KafkaDirectError]) -> None:
    cluster = ScriptedCluster()
    cluster.add_partitions_codes = {"t": {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 1: code}}
    with pytest.raises(error_type, match="adding a partition") as caught:
        add(cluster, ("t", 0), ("t", 1))
    assert (caught.value.topic, caught.value.partition) == ("t", 1)


def test_add_partitions_response_without_partition_raises() -> None:
    cluster = ScriptedCluster()
    cluster.add_partitions_codes = {"t": {0: 0}}
    with pytest.raises(ProtocolError, match="lacks a partition"):
        add(cluster, ("t", 0), ("t", 1))
    assert cluster.closed


@pytest.mark.parametrize(
    ("versions", "expected_warning"),
    [
        ({22: (0, 5), 24: (0, 5)}, None),
        ({22: (0, 4), 24: (0, 4)}, None),
        ({22: (0, 4), 24: (0, 3)}, "older than Kafka 3.6"),
        ({22: (0, 3), 24: (0, 1)}, "older than Kafka 3.6"),
    ],
)
def test_old_brokers_return_a_warning(versions: dict[int, tuple[int, int]], expected_warning: str | None) -> None:
    warning = check_supports_transactions(cast("Connection", SimpleNamespace(broker="b:1", api_versions=versions)))
    assert (warning is None) == (expected_warning is None)
    assert expected_warning is None or expected_warning in str(warning)


@pytest.mark.parametrize("versions", [{22: (0, 2), 24: (0, 1)}, {}])
def test_brokers_before_2_5_are_rejected(versions: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(UnsupportedBrokerError, match=r"requires Kafka 2\.5"):
        check_supports_transactions(cast("Connection", SimpleNamespace(broker="b:1", api_versions=versions)))
