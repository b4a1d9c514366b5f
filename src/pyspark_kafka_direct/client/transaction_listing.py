"""ListTransactions and DescribeTransactions: the transactions of a cluster, as coordinators have them (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.client.coordinator_client import CoordinatorClient, call_each_broker, raise_for_error_code
from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.errors import ProtocolError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.protocol.messages import DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline

_OPEN_STATES: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


class ListedTransaction(NamedTuple):
    """The latest transaction of a transactional id."""

    transactional_id: str
    producer_id: int
    state: str  # Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, PrepareEpochFence


class DescribedTransaction(NamedTuple):
    """The latest transaction of a transactional id, with its partitions."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    state: str
    timeout_ms: int
    started_at: int | None  # ms since 1970; None: no transaction is open
    partitions: tuple[TopicPartition, ...]  # empty once the transaction is complete

    def is_open_in(self, partition: TopicPartition) -> bool:
        """Return whether the coordinator will end the transaction in a partition."""
        return self.state in _OPEN_STATES and partition in self.partitions


def describe_producers_transactions(
    cluster: ClusterClient, producer_ids: Collection[int], deadline: Deadline
) -> dict[int, DescribedTransaction]:
    """Return the open transactions of producers, by producer id, as their coordinators have them.

    Raises:
        UnsupportedBrokerError: A broker does not support the requests (Kafka before 3.0).
        BrokerError: A broker cannot be reached. Without it, one of its transactions would seem to be hanging.
    """
    described: dict[int, DescribedTransaction] = {}
    for listed in list_transactions(cluster, deadline) if producer_ids else ():
        if listed.producer_id in producer_ids and listed.state in _OPEN_STATES:
            found = describe_transaction(cluster, listed.transactional_id, deadline)
            if found is not None:
                described[listed.producer_id] = found
    return described


def list_transactions(cluster: ClusterClient, deadline: Deadline) -> list[ListedTransaction]:
    """Return the transactions of all coordinators, without those that the principal may not describe."""

    def call(connection: Connection, limit: Deadline) -> list[ListedTransaction]:
        response = connection.call(LIST_TRANSACTIONS, {"state_filters": [], "producer_id_filters": []}, limit)
        raise_for_error_code(response.error_code, "listing transactions", connection.broker)
        return [
            ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state)
            for each in response.transaction_states
        ]

    return sorted({each for listed in call_each_broker(cluster, call, deadline) for each in listed})


def describe_transaction(
    cluster: ClusterClient, transactional_id: str, deadline: Deadline
) -> DescribedTransaction | None:
    """Return the latest transaction of a transactional id; None if the cluster does not know the id."""

    def call(connection: Connection, limit: Deadline) -> DescribedTransaction | None:
        response = connection.call(DESCRIBE_TRANSACTIONS, {"transactional_ids": [transactional_id]}, limit)
        if [each.transactional_id for each in response.transaction_states] != [transactional_id]:
            connection.close()
            raise ProtocolError("The response to DescribeTransactions lacks the id.", broker=connection.broker)
        (found,) = response.transaction_states
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        raise_for_error_code(
            found.error_code, f"describing the transactions of {transactional_id!r}", connection.broker
        )
        partitions = [TopicPartition(each.topic, index) for each in found.topics for index in each.partitions]
        return DescribedTransaction(
            transactional_id,
            ProducerIdAndEpoch(found.producer_id, found.producer_epoch),
            found.transaction_state,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
            tuple(sorted(partitions)),
        )

    return CoordinatorClient(cluster, "transaction", transactional_id).call(call, deadline=deadline)
