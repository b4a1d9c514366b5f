"""Requests to the transaction coordinator of one transactional id.

There are two sequences of requests. The feature ``transaction.version`` of the cluster selects one (KIP-890); an
administrator may raise it while clients run, and the API versions do not show it.

    below 2    InitProducerId, AddPartitionsToTxn 3 before the first write to a partition, Produce up to 11, EndTxn
               up to 4. The epoch stays the same, and sequence numbers continue. A try of EndTxn that was not answered
               could end the next transaction, and one of TxnOffsetCommit replace its offsets, so InitProducerId
               increments the epoch after it (KIP-360).
    2          InitProducerId, Produce 12, which adds the partition, EndTxn 5. Its response has the epoch of the next
               transaction, whose sequence numbers start at 0; or another producer id, if the epochs are exhausted.

Offsets of a consumer group can be part of a transaction (``consumer_group.py`` commits them). They are written to an
internal partition, which is added likewise: below 2 by AddOffsetsToTxn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.client.api_versions import kafka_release, newest_version
from pyspark_kafka_direct.client.coordinator_client import CoordinatorClient, raise_for_error_code
from pyspark_kafka_direct.client.producer_ids import init_producer_id
from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.errors import (
    BrokerError,
    OutcomeUnknownError,
    ProducerFencedError,
    ProtocolError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_code_info
from pyspark_kafka_direct.protocol.messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline

_FEATURE = "transaction.version"
_TRANSACTION_V2: Final = 2  # transaction.version

# From request version 5 on, EndTxn increments the producer epoch: only transaction.version 2 allows that.
_END_TXN_BEFORE_V2: Final = END_TXN.with_max_version(4)

# Since Kafka 2.5 brokers report fencing explicitly (KIP-360). Since Kafka 3.6 they check that writes belong to an open
# transaction (KIP-890): before, a late write could leave a hanging transaction, which blocks read_committed consumers.
_INIT_PRODUCER_ID_OF_KAFKA_2_5 = 3
_ADD_PARTITIONS_OF_KAFKA_3_6 = 4

# Errors that mean that EndTxn was not applied. After other errors, the coordinator may have started to end the
# transaction.
_NOT_APPLIED_ERRORS: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_FENCED_ERRORS: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


class InitProducerIdResult(NamedTuple):
    """The producer id of a transactional id, and whether ``transaction.version`` is 2."""

    producer: ProducerIdAndEpoch
    transaction_v2: bool


class EndTransactionResult(NamedTuple):
    """The producer id and epoch of the next transaction."""

    producer: ProducerIdAndEpoch
    may_arrive_late: bool  # whether an earlier request without a response may still arrive in the next transaction


class TransactionCoordinatorClient:
    """Calls the coordinator of one transactional id, and retries until the deadline."""

    def __init__(self, cluster: ClusterClient, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._coordinator = CoordinatorClient(cluster, "transaction", transactional_id)

    def init_transactions(self, timeout_ms: int, deadline: Deadline | None = None) -> InitProducerIdResult:
        """Acquire the transactional id: fence its previous producer and abort its open transaction."""

        def init(connection: Connection, limit: Deadline) -> InitProducerIdResult:
            check_supports_transactions(connection)
            transaction_v2 = _uses_transaction_v2(connection, limit)
            producer = init_producer_id(
                connection, limit, transactional_id=self.transactional_id, timeout_ms=timeout_ms
            )
            return InitProducerIdResult(producer, transaction_v2)

        return self._coordinator.call(init, deadline=deadline)

    def increment_epoch(self, producer: ProducerIdAndEpoch, timeout_ms: int) -> ProducerIdAndEpoch:
        """Return the next epoch, which fences late requests (KIP-360), or a new id if the coordinator has none.

        Call it directly after ``end_transaction``, or after INVALID_PRODUCER_ID_MAPPING.
        """

        def call(connection: Connection, limit: Deadline) -> ProducerIdAndEpoch:
            return init_producer_id(
                connection, limit, transactional_id=self.transactional_id, timeout_ms=timeout_ms, current=producer
            )

        return self._coordinator.call(call)

    def transaction_v2(self, deadline: Deadline | None = None) -> bool:
        """Return whether ``transaction.version`` is 2 now."""
        return self._coordinator.call(_uses_transaction_v2, deadline=deadline)

    def add_partitions(self, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]) -> None:
        """Add partitions before the first write to them; only below ``transaction.version`` 2."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        request = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": producer.id,
            "v3_and_below_producer_epoch": producer.epoch,
            "v3_and_below_topics": [{"name": name, "partitions": indexes} for name, indexes in topics.items()],
        }

        def call(connection: Connection, limit: Deadline) -> None:
            response = connection.call(ADD_PARTITIONS_TO_TXN, request, limit)
            codes = {
                TopicPartition(topic.name, result.partition_index): result.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            }
            # If one partition fails, the others have OPERATION_NOT_ATTEMPTED: they come last, so its error is raised.
            operation = f"adding a partition to a transaction of {self.transactional_id!r}"
            not_attempted_last = sorted(codes, key=lambda tp: codes[tp] == ErrorCode.OPERATION_NOT_ATTEMPTED)
            for partition in not_attempted_last:
                raise_for_error_code(codes[partition], operation, connection.broker, partition)
            if not codes.keys() >= set(partitions):
                connection.close()
                raise ProtocolError("The response to AddPartitionsToTxn lacks a partition.", broker=connection.broker)

        self._coordinator.call(call, topics)

    def add_offsets(self, producer: ProducerIdAndEpoch, group_id: str) -> None:
        """Add a group before its offsets are committed; only below ``transaction.version`` 2."""
        request = {
            "transactional_id": self.transactional_id,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "group_id": group_id,
        }
        operation = f"adding the group {group_id!r} to a transaction of {self.transactional_id!r}"

        def call(connection: Connection, limit: Deadline) -> None:
            response = connection.call(ADD_OFFSETS_TO_TXN, request, limit)
            raise_for_error_code(response.error_code, operation, connection.broker)

        self._coordinator.call(call)

    def end_transaction(
        self, producer: ProducerIdAndEpoch, *, commit: bool, transaction_v2: bool, deadline: Deadline | None = None
    ) -> EndTransactionResult:
        """Commit or abort the transaction."""
        api = END_TXN if transaction_v2 else _END_TXN_BEFORE_V2
        operation = f"{'committing' if commit else 'aborting'} a transaction of {self.transactional_id!r}"
        request = {
            "transactional_id": self.transactional_id,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "committed": commit,
        }
        tries = EndTxnTries()

        def call(connection: Connection, limit: Deadline) -> ProducerIdAndEpoch:
            nonlocal tries
            earlier, tries = tries, tries.after_sending()
            response = connection.call(api, request, limit)
            tries = earlier.after_response(response.error_code)
            tries.raise_if_outcome_is_unknown(response.error_code, operation, connection.broker)
            raise_for_error_code(response.error_code, operation, connection.broker)
            return _next_producer(producer, response)

        try:
            next_producer = self._coordinator.call(call, deadline=deadline)
        except BrokerError as error:
            if tries.may_be_applied is None or isinstance(error, OutcomeUnknownError | ProducerFencedError):
                raise  # no try was applied, or the error already says what is known
            raise tries.outcome_unknown_error(operation, str(error), error.broker) from error
        # With transaction.version 2 the next transaction has another epoch, so that the coordinator rejects a late one.
        return EndTransactionResult(next_producer, tries.unanswered > 0 and not transaction_v2)


def check_supports_transactions(connection: Connection) -> str | None:
    """Reject a broker that is too old for transactions; return a warning if it is older than Kafka 3.6."""
    versions = connection.api_versions
    release = f"it appears to be Kafka {kafka_release(versions)}"
    if newest_version(versions, INIT_PRODUCER_ID.key) < _INIT_PRODUCER_ID_OF_KAFKA_2_5:
        raise UnsupportedBrokerError(
            f"The broker is too old for transactions ({release}): exactly-once delivery requires Kafka 2.5 or newer.",
            broker=connection.broker,
        )
    if newest_version(versions, ADD_PARTITIONS_TO_TXN.key) >= _ADD_PARTITIONS_OF_KAFKA_3_6:
        return None
    return (
        f"The broker {connection.broker} is older than Kafka 3.6 ({release}): a late write can leave a hanging "
        "transaction in its log, which blocks read_committed consumers. Upgrade the brokers."
    )


@dataclass(frozen=True, slots=True)
class EndTxnTries:
    """The state after some tries of one EndTxn request."""

    may_be_applied: str | None = (
        None  # why a try may have ended the transaction; None: none of them did, or one responded
    )
    unanswered: int = 0

    def after_sending(self) -> EndTxnTries:
        return EndTxnTries("no response arrived", self.unanswered + 1)

    def after_response(self, code: int) -> EndTxnTries:
        """Return the state after a response to one more try; this is the state before that try."""
        if code == ErrorCode.NONE:
            return EndTxnTries(None, self.unanswered)
        if code in _NOT_APPLIED_ERRORS:
            return self
        return EndTxnTries(f"the coordinator returned {error_code_info(code).name}", self.unanswered)

    def raise_if_outcome_is_unknown(self, code: int, operation: str, broker: str | None) -> None:
        """Raise if the last try was rejected for good, but an earlier one may have been applied.

        The error is the same after an earlier try has committed, and after an abort.
        """
        info = error_code_info(code)
        if self.may_be_applied is not None and code in _NOT_APPLIED_ERRORS and not info.retriable:
            raise self.outcome_unknown_error(operation, info.name, broker, fenced=code in _FENCED_ERRORS)

    def outcome_unknown_error(
        self, operation: str, reason: str, broker: str | None, *, fenced: bool = False
    ) -> BrokerError:
        """Return the error for a transaction that may or may not have been committed."""
        message = f"{operation[0].upper()}{operation[1:]} was not confirmed ({self.may_be_applied}; then: {reason})."
        if fenced:
            return ProducerFencedError(f"{message} Another producer has acquired the transactional id.", broker=broker)
        return OutcomeUnknownError(message, broker=broker)


def _next_producer(producer: ProducerIdAndEpoch, response: Any) -> ProducerIdAndEpoch:
    """Return the producer of the next transaction: the response has one from version 5 on."""
    if response.producer_id < 0:
        return producer
    return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)


def _uses_transaction_v2(connection: Connection, deadline: Deadline) -> bool:
    return connection.features(deadline).get(_FEATURE, 0) >= _TRANSACTION_V2
