"""Transaction requests, above all EndTxn, and what an error means for the outcome."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.cluster.transactions import EXHAUSTED_EPOCH
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.client.consumer_group import CommittedOffset, ConsumerGroup
from pyspark_kafka_direct.client.producer_ids import request_producer_id
from pyspark_kafka_direct.client.transaction_coordinator import (
    TransactionCoordinatorClient,
    check_supports_transactions,
)
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerError,
    KafkaDirectError,
    OutcomeUnknownError,
    ProducerFencedError,
    ProtocolError,
    TopicNotFoundError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_code_info, error_for

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
    from pyspark_kafka_direct.client.transaction_coordinator import EndTransactionResult

A, B, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
CONCURRENT, LOADING = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_COORDINATOR, NOT_AVAILABLE = ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE
FENCED, NO_TRANSACTION = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE

Fault = int | str
"""An error code, or what happens to the request."""
LOST: Fault = "lose_request"


class Transaction:
    """An open transaction of a simulated cluster."""

    def __init__(self, *faults: Fault, level: int = 2, **cluster: Any) -> None:
        self.cluster = UnitCluster({"t": 2, "u": 1}, brokers=2, transaction_version=level, **cluster)
        client = self.cluster.client()
        self.coordinator = TransactionCoordinatorClient(client, "p.sink")
        self.v2 = level == 2
        self.producer = self.coordinator.init_transactions(60_000).producer
        group = ConsumerGroup(client, "g")
        if not self.v2:
            self.coordinator.add_offsets(self.producer, "g")
        group.commit_in_transaction("p.sink", self.producer, {A: CommittedOffset(5)}, transaction_v2=self.v2)
        self.next_tries(*faults)

    def __enter__(self) -> Transaction:
        self.cluster.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.cluster.__exit__(*error)

    def next_tries(self, *faults: Fault) -> None:
        """Let something happen to the next EndTxn requests."""
        for number, fault in enumerate(faults):
            if isinstance(fault, str):
                self.cluster.fault("EndTxn", fault, number=number)
            else:
                self.cluster.fault("EndTxn", "error", number=number, code=fault)

    def end(self, *, commit: bool = True) -> EndTransactionResult:
        return self.coordinator.end_transaction(self.producer, commit=commit, transaction_v2=self.v2)

    @property
    def next_producer(self) -> ProducerIdAndEpoch:
        return self.producer._replace(epoch=self.producer.epoch + 1)

    @property
    def sent(self) -> list[tuple[int, Any]]:
        """The versions and values of the EndTxn requests that brokers have handled."""
        return [(each.version, each.values) for each in self.cluster.requests if each.api == "EndTxn"]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("level", [2, 1])
def test_end_transaction_returns_next_producer(level: int, commit: bool) -> None:
    """Without transaction.version 2 the producer continues, and the version is 4."""
    with Transaction(level=level) as transaction:
        assert transaction.producer.id == 0, "the first producer id of a cluster"
        result = transaction.end(commit=commit)
        assert result.producer == (transaction.next_producer if level == 2 else transaction.producer)
        ((version, values),) = transaction.sent
        assert version == (5 if level == 2 else 4)
        assert (values.transactional_id, values.producer_id, values.producer_epoch, values.committed) == (
            "p.sink",
            *transaction.producer,
            commit,
        )


def test_end_transaction_returns_new_producer_id() -> None:
    """The epochs are exhausted."""
    with Transaction(first_epoch=EXHAUSTED_EPOCH) as transaction:
        assert transaction.end().producer == (transaction.producer.id + 1, 0)


@pytest.mark.parametrize(
    ("faults", "may_arrive_late"), [((), False), ((CONCURRENT, NOT_COORDINATOR), False), ((LOST, CONCURRENT), True)]
)
@pytest.mark.parametrize("level", [2, 1])
def test_an_unanswered_try_may_end_the_next_transaction_of_the_epoch(
    faults: tuple[Fault, ...], may_arrive_late: bool, level: int
) -> None:
    with Transaction(*faults, level=level) as transaction:
        assert transaction.end().may_arrive_late is (may_arrive_late and level < 2)


@pytest.mark.parametrize("fault", [CONCURRENT, LOADING, NOT_COORDINATOR, NOT_AVAILABLE, LOST, "lose_response"], ids=str)
def test_retriable_end_txn_errors_are_retried(fault: Fault) -> None:
    with Transaction(fault, fault) as transaction:
        assert transaction.end().producer == transaction.next_producer
        assert transaction.cluster.sent("EndTxn") >= 3
        assert len({values for _, values in transaction.sent}) == 1


@pytest.mark.parametrize("before", [(), (CONCURRENT, LOADING)], ids=["at once", "after tries that were not applied"])
@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
def test_end_transaction_of_fenced_producer_raises(before: tuple[Fault, ...], code: int) -> None:
    with (
        Transaction(*before, code) as transaction,
        pytest.raises(ProducerFencedError, match=r"committing a transaction of 'p\.sink'"),
    ):
        transaction.end()


@pytest.mark.parametrize("unconfirmed", [LOST, NOT_AVAILABLE, NOT_COORDINATOR], ids=str)
def test_fencing_after_unconfirmed_try_is_reported(unconfirmed: Fault) -> None:
    """It may have been committed before, but a fenced producer must not continue."""
    with (
        Transaction(unconfirmed, CONCURRENT, FENCED) as transaction,
        pytest.raises(ProducerFencedError, match=r"was not confirmed .*Another producer has acquired"),
    ):
        transaction.end()


def test_rejected_end_txn_was_not_applied() -> None:
    with Transaction(NO_TRANSACTION) as transaction:
        with pytest.raises(BrokerError, match="INVALID_TXN_STATE") as caught:
            transaction.end()
        assert not isinstance(caught.value, OutcomeUnknownError)


@pytest.mark.parametrize("unconfirmed", [LOST, NOT_AVAILABLE], ids=str)
def test_rejected_end_txn_after_unconfirmed_try_has_unknown_outcome(unconfirmed: Fault) -> None:
    with (
        Transaction(unconfirmed, NO_TRANSACTION) as transaction,
        pytest.raises(OutcomeUnknownError, match="INVALID_TXN_STATE"),
    ):
        transaction.end()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (LOST, "no response arrived; then: "),
        (NOT_COORDINATOR, "the coordinator returned NOT_COORDINATOR; then: "),
        (NOT_AVAILABLE, "the coordinator returned COORDINATOR_NOT_AVAILABLE; then: "),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator returned UNKNOWN_SERVER_ERROR; then: .*UNKNOWN_SERVER_ERROR"),
        ("garble_response", "no response arrived; then: .*malformed"),
    ],
)
def test_unconfirmed_end_txn_has_unknown_outcome(fault: Fault, reason: str) -> None:
    with (
        Transaction(*[fault] * 500) as transaction,
        pytest.raises(
            OutcomeUnknownError, match=rf"^Committing a transaction of 'p\.sink' was not confirmed \({reason}"
        ),
    ):
        transaction.end()


REJECTIONS = {
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFencedError,
    FENCED: ProducerFencedError,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ProducerFencedError,
    NO_TRANSACTION: OutcomeUnknownError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: OutcomeUnknownError,
}
"""Errors of tries that were not applied for good, and what they mean after a try that may have been applied."""


def test_each_error_code_is_that_of_an_applied_or_of_a_rejected_try() -> None:
    with Transaction() as transaction:
        for code in ErrorCode:
            if code == ErrorCode.NONE or not isinstance(error_for(code, ""), BrokerError):  # such as those of topics
                continue
            transaction.next_tries(code, NO_TRANSACTION)
            with pytest.raises(BrokerError) as caught:
                transaction.end()
            is_rejected = code in REJECTIONS or code in (CONCURRENT, LOADING)
            assert isinstance(caught.value, OutcomeUnknownError) is not is_rejected, code


@pytest.mark.parametrize("code", REJECTIONS)
def test_what_a_rejection_means_after_an_unconfirmed_try(code: ErrorCode) -> None:
    with Transaction(LOST, code) as transaction:
        with pytest.raises(BrokerError, match=rf"^[^;]* \(no response arrived; then: {code.name}") as caught:
            transaction.end()
        assert type(caught.value) is REJECTIONS[code]


@pytest.mark.parametrize("code", [CONCURRENT, LOADING], ids=str)
def test_end_txn_that_was_never_started_was_not_applied(code: int) -> None:
    with Transaction(*[code] * 10_000) as transaction:
        with pytest.raises(BrokerError, match=ErrorCode(code).name) as caught:
            transaction.end()
        assert not isinstance(caught.value, OutcomeUnknownError)


@pytest.mark.parametrize(("level", "transaction_v2"), [(1, False), (2, True), (3, True)])
def test_init_transactions_fetches_the_feature_each_time(level: int, transaction_v2: bool) -> None:
    with UnitCluster({}, transaction_version=0) as cluster:
        transactions = TransactionCoordinatorClient(cluster.client(), "p.sink")
        assert not transactions.init_transactions(1000).transaction_v2
        cluster.cluster.settings = replace(cluster.cluster.settings, transaction_version=level)  # by an administrator
        result = transactions.init_transactions(1000)
        assert result == ((0, 1), transaction_v2)

        def with_other_features(_: int, values: dict[str, Any]) -> dict[str, Any]:
            others = [{"name": name, "max_version_level": 9, "min_version_level": 9} for name in ("a", "z")]
            features = [others[0], *values["finalized_features"], others[1]]
            return {**values, "finalized_features": features}

        cluster.change("ApiVersions", with_other_features)
        assert transactions.transaction_v2() is transaction_v2
        request = cluster.received("InitProducerId")[-1]
        assert (request.transactional_id, request.transaction_timeout_ms) == ("p.sink", 1000)


def test_the_epoch_is_incremented_for_the_producer_only() -> None:
    with Transaction(level=1) as transaction:
        transaction.end()
        incremented = transaction.coordinator.increment_epoch(transaction.producer, 70_000)
        requests = transaction.cluster.received("InitProducerId")
        assert {each.transaction_timeout_ms for each in requests[1:]} == {70_000}
        assert incremented == transaction.next_producer
        with pytest.raises(ProducerFencedError):
            transaction.end()
        with pytest.raises(ProducerFencedError):
            transaction.coordinator.increment_epoch(transaction.producer._replace(epoch=7), 60_000)


def test_only_a_missing_permission_on_the_cluster_has_the_advice_for_idempotent_writes() -> None:
    with UnitCluster({}) as cluster:
        client = cluster.client()
        for code in set(ErrorCode) - {ErrorCode.NONE}:
            cluster.fault("InitProducerId", "error", code=code)
            if error_code_info(code).retriable:
                request_producer_id(client, client.deadline())
                continue
            with pytest.raises(KafkaDirectError, match=code.name) as caught:
                request_producer_id(client, client.deadline())
            is_denied = code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert ("grant the principal IDEMPOTENT_WRITE" in str(caught.value)) is is_denied


def test_an_error_of_the_features_is_not_taken_for_their_absence() -> None:
    with Transaction() as transaction:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        transaction.cluster.change("ApiVersions", lambda _, values: {**values, "error_code": code})
        with pytest.raises(AuthorizationError, match="while fetching the cluster's features"):
            transaction.coordinator.transaction_v2()


@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_response_without_a_producer_id_is_an_error(is_transactional: bool) -> None:
    with UnitCluster({}) as cluster:
        cluster.change("InitProducerId", lambda _, values: {**values, "producer_id": -1})
        client = cluster.client()
        transactions = TransactionCoordinatorClient(client, "p.sink")
        with pytest.raises(ProtocolError, match="has no producer id") as caught:
            transactions.init_transactions(1000) if is_transactional else request_producer_id(client, client.deadline())
        assert caught.value.broker == "broker-1:9092"


# AddPartitionsToTxn.


def test_partitions_are_added_by_topic() -> None:
    with Transaction(level=1) as transaction:
        transaction.coordinator.add_partitions(transaction.producer, [A, OTHER, B])
        (request,) = transaction.cluster.received("AddPartitionsToTxn")
        assert [tuple(each) for each in request.v3_and_below_topics] == [("t", (0, 1)), ("u", (0,))]


def answer_additions(cluster: UnitCluster, **codes: dict[int, int]) -> None:
    """Let AddPartitionsToTxn respond with error codes by topic and partition."""
    topics = [
        {
            "name": topic,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": code} for index, code in found.items()
            ],
        }
        for topic, found in codes.items()
    ]
    cluster.change("AddPartitionsToTxn", lambda _, values: {**values, "results_by_topic_v3_and_below": topics})


@pytest.mark.parametrize(
    ("code", "error_type"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.PRODUCER_FENCED, ProducerFencedError),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TopicNotFoundError),
    ],
)
@pytest.mark.parametrize("other", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.NONE])
def test_error_names_the_partition_that_failed(other: int, code: int, error_type: type[KafkaDirectError]) -> None:
    with Transaction(level=1) as transaction:
        answer_additions(transaction.cluster, t={0: other, 1: code})
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            transaction.cluster.event("delete_topic", topic="t")
        with pytest.raises(error_type, match="adding a partition") as caught:
            transaction.coordinator.add_partitions(transaction.producer, [A, B])
        assert (caught.value.topic, caught.value.partition) == ("t", 1)


def test_add_partitions_response_without_partition_raises() -> None:
    with Transaction(level=1) as transaction:
        answer_additions(transaction.cluster, t={0: 0})
        open_before = transaction.cluster.open_connections
        with pytest.raises(ProtocolError, match="lacks a partition"):
            transaction.coordinator.add_partitions(transaction.producer, [A, B])
        assert transaction.cluster.open_connections == open_before - 1


# AddOffsetsToTxn.


def test_a_group_is_added_to_a_transaction() -> None:
    with Transaction(level=1) as transaction:
        transaction.cluster.fault("AddOffsetsToTxn", "error", code=CONCURRENT)
        transaction.coordinator.add_offsets(transaction.producer, "p.cont")
        wanted = ("p.sink", *transaction.producer, "p.cont")
        assert [tuple(each) for each in transaction.cluster.received("AddOffsetsToTxn")[1:]] == [wanted] * 2


@pytest.mark.parametrize(
    ("code", "error_type"),
    [(FENCED, ProducerFencedError), (ErrorCode.GROUP_AUTHORIZATION_FAILED, AuthorizationError)],
)
def test_failure_to_add_group_raises(code: int, error_type: type[KafkaDirectError]) -> None:
    with Transaction(level=1) as transaction:
        transaction.cluster.fault("AddOffsetsToTxn", "error", code=code)
        with pytest.raises(error_type, match=r"adding the group 'p\.cont' to a transaction of 'p\.sink'"):
            transaction.coordinator.add_offsets(transaction.producer, "p.cont")


# Versions of brokers.


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({}, None),
        ({"InitProducerId": 4, "AddPartitionsToTxn": 4}, None),
        ({"InitProducerId": 4, "AddPartitionsToTxn": 3}, "older than Kafka 3.6"),
        ({"InitProducerId": 3, "AddPartitionsToTxn": 1}, "older than Kafka 3.6"),
        ({"InitProducerId": 2, "AddPartitionsToTxn": 1}, UnsupportedBrokerError),
        ({"InitProducerId": -1, "AddPartitionsToTxn": -1}, UnsupportedBrokerError),
    ],
)
def test_old_brokers_return_a_warning_or_are_rejected(versions: dict[str, int], expected: Any) -> None:
    with UnitCluster({}, newest_versions=versions) as cluster:
        client = cluster.client()
        connection = cluster.pool.acquire(client.settings, "broker-1", 9092, client.deadline())
        if expected is UnsupportedBrokerError:
            with pytest.raises(UnsupportedBrokerError, match=r"requires Kafka 2\.5"):
                check_supports_transactions(connection)
        else:
            warning = check_supports_transactions(connection)
            assert warning is expected or expected in str(warning)
        client.release(connection)
