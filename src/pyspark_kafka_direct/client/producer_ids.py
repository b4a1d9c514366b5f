"""Producer ids: with sequence numbers, brokers use them to detect repeated record batches (KIP-98)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.client.coordinator_client import RetriableCoordinatorError, raise_for_error_code
from pyspark_kafka_direct.client.deadline import Backoff, Retry
from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.errors import AuthorizationError, ProtocolError, TransientBrokerError
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.protocol.messages import INIT_PRODUCER_ID

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline

_NO_PRODUCER_ID: Final = -1


def request_producer_id(cluster: ClusterClient, deadline: Deadline) -> ProducerIdAndEpoch:
    """Request a new id for an idempotent producer from any broker."""
    retry = Retry(deadline, None, Backoff.of(cluster.settings))

    def call(connection: Connection, limit: Deadline) -> ProducerIdAndEpoch:
        return init_producer_id(connection, limit)

    while True:
        try:
            return cluster.call_any_broker(call, deadline, retry.tries)
        except RetriableCoordinatorError as retriable:
            retry.wait_or_raise(retriable.error)
        except TransientBrokerError as error:
            retry.wait_or_raise(error)


def init_producer_id(
    connection: Connection,
    deadline: Deadline,
    *,
    transactional_id: str | None = None,
    timeout_ms: int = -1,  # of transactions; -1 without a transactional id
    # The caller's id and epoch, which the coordinator has just confirmed: sent by a fenced producer, they would abort
    # its successor's transaction.
    current: ProducerIdAndEpoch | None = None,
) -> ProducerIdAndEpoch:
    """Request a new producer id, or the producer id of a transactional id from its coordinator.

    Without ``current`` this fences the previous producer of the transactional id and ends its open transaction.
    """
    request: dict[str, Any] = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
    if current is not None:
        request |= {"producer_id": current.id, "producer_epoch": current.epoch}
    response = connection.call(INIT_PRODUCER_ID, request, deadline)
    operation = "requesting a producer id"
    if transactional_id is not None:
        operation += f" for the transactional id {transactional_id!r}"
    elif response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise AuthorizationError(
            f"CLUSTER_AUTHORIZATION_FAILED while {operation}: grant the principal IDEMPOTENT_WRITE on the cluster, or "
            "set kafka.enable.idempotence to false.",
            broker=connection.broker,
        )
    raise_for_error_code(response.error_code, operation, connection.broker)
    if response.producer_id == _NO_PRODUCER_ID:
        raise ProtocolError("The response to InitProducerId has no producer id.", broker=connection.broker)
    return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
