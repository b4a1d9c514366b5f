"""Producer ids: what a broker recognises a repeated record batch by, together with sequence numbers (KIP-98)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import AuthorizationError, ProtocolError, TransientBrokerError
from pyspark_kafka_direct.wire._idle_producers import ProducerId
from pyspark_kafka_direct.wire._retry import Retry
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.coordinator import TryAgain, check
from pyspark_kafka_direct.wire.messages import INIT_PRODUCER_ID

if TYPE_CHECKING:
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.deadline import Deadline

_NONE: Final = -1


def new_producer_id(cluster: Cluster, deadline: Deadline) -> ProducerId:
    """Ask any broker for an id that nobody else has, for an idempotent producer.

    Args:
        cluster: The cluster.
        deadline: End of the wait.

    Raises:
        AuthorizationError: The principal may not (only Kafka before 2.8 asks for a permission).
        BrokerError: No broker gave one.
    """
    settings = cluster.settings
    retry = Retry(deadline, None, settings.retry_backoff_ms / 1000, settings.retry_backoff_max_ms / 1000)

    def ask(connection: Connection, limit: Deadline) -> ProducerId:
        return init_producer_id(connection, limit)

    while True:
        try:
            return cluster.ask_any(ask, deadline, retry.tries)
        except TryAgain as again:
            retry.after(again.error)
        except TransientBrokerError as error:
            retry.after(error)


def init_producer_id(
    connection: Connection, deadline: Deadline, *, transactional_id: str | None = None, timeout_ms: int = -1
) -> ProducerId:
    """Ask a broker for a producer id.

    With a transactional id this fences whoever had it, and ends what it left open. It never names the id and epoch that
    the caller had: named by one that was fenced, they would abort its successor's transaction.

    Args:
        connection: With any broker; with a transactional id, with its coordinator.
        deadline: End of the wait.
        transactional_id: Whose id is asked for; ``None``: a new one of nobody.
        timeout_ms: After how long the broker aborts an open transaction.

    Raises:
        TryAgain: The answer may change.
        AuthorizationError: The principal may not.
        BrokerError: No answer, or another error.
    """
    wanted = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
    response = connection.call(INIT_PRODUCER_ID, wanted, deadline)
    doing = "asking for a producer id"
    if transactional_id is not None:
        doing += f" for the transactional id {transactional_id!r}"
    elif response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise AuthorizationError(
            f"CLUSTER_AUTHORIZATION_FAILED while {doing}: grant the principal IDEMPOTENT_WRITE on the cluster, or set "
            "kafka.enable.idempotence to false.",
            broker=connection.broker,
        )
    check(response.error_code, doing, connection.broker)
    if response.producer_id == _NONE:
        raise ProtocolError("The answer to InitProducerId has no producer id.", broker=connection.broker)
    return ProducerId(response.producer_id, response.producer_epoch)
