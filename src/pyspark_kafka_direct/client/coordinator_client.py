"""Requests to a coordinator: the broker that manages one consumer group or one transactional id.

Coordinators move as leaders do, and a new one may still be loading its state. So it is looked up before the first
request and again after errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from pyspark_kafka_direct.client.broker_selection import attempt_timeout
from pyspark_kafka_direct.client.deadline import Backoff, Retry
from pyspark_kafka_direct.client.metadata import Node
from pyspark_kafka_direct.errors import TopicNotFoundError, TransientBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_code_info, error_for
from pyspark_kafka_direct.protocol.messages import FIND_COORDINATOR

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.errors import KafkaDirectError

_T = TypeVar("_T")

CoordinatorType: TypeAlias = Literal["group", "transaction"]

_KEY_TYPES: Final[dict[CoordinatorType, int]] = {"group": 0, "transaction": 1}

# The coordinator is the right one, and a retry to it succeeds soon.
_RETRY_SAME_COORDINATOR: Final = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
_SHORT_PAUSE = 0.01


class RetriableCoordinatorError(Exception):
    """A response that a retry may change; ``error`` is raised if there is no retry."""

    def __init__(self, error: KafkaDirectError, *, same_coordinator: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.same_coordinator = same_coordinator  # whether to retry soon at the same coordinator


def raise_for_error_code(code: int, operation: str, broker: str, partition: TopicPartition | None = None) -> None:
    """Raise ``RetriableCoordinatorError`` for a retriable error code, or the error of any other code."""
    if code == ErrorCode.NONE:
        return
    topic, index = (None, None) if partition is None else partition
    error = error_for(code, operation, broker=broker, topic=topic, partition=index)
    if error_code_info(code).retriable:
        raise RetriableCoordinatorError(error, same_coordinator=code in _RETRY_SAME_COORDINATOR)
    raise error


def call_each_broker(
    cluster: ClusterClient,
    call: Callable[[Connection, Deadline], _T],  # may raise RetriableCoordinatorError
    deadline: Deadline,
) -> list[_T]:
    """Call every broker of the cluster, such as to list what each one coordinates; retry until the deadline."""
    cluster.refresh_brokers(deadline=deadline)
    return [_call_broker(cluster, node, call, deadline) for node in cluster.nodes.values()]


class CoordinatorClient:
    """Sends requests to the coordinator of one key; thread-safe."""

    def __init__(self, cluster: ClusterClient, coordinator_type: CoordinatorType, key: str) -> None:
        self._cluster = cluster
        self._coordinator_type = coordinator_type
        self._key = key
        self._node: Node | None = None

    def call(
        self,
        call: Callable[[Connection, Deadline], _T],  # may raise RetriableCoordinatorError
        topics: Collection[str] = (),  # of the request
        deadline: Deadline | None = None,  # by default after default.api.timeout.ms
    ) -> _T:
        """Call the coordinator, and retry until the deadline, looking the coordinator up again after errors."""
        settings = self._cluster.settings
        callers_deadline = deadline  # None: the confirmation of a loss may last longer than the default deadline
        deadline = deadline or self._cluster.deadline()
        retry = Retry(deadline, None, Backoff.of(settings))
        short_retry = Retry(deadline, None, Backoff(_SHORT_PAUSE, settings.retry_backoff_ms / 1000))
        if self._node is None and not self._cluster.nodes:
            # Either metadata request fails early if the cluster was never reached.
            if topics:
                self._cluster.topics(topics, deadline=deadline)
            else:
                self._cluster.refresh_brokers(deadline=deadline)
        while True:
            try:
                return self._call_once(call, deadline, retry.tries)
            except RetriableCoordinatorError as retriable:
                if retriable.same_coordinator:
                    short_retry.wait_or_raise(retriable.error)
                    continue
                if isinstance(retriable.error, TopicNotFoundError) and self._confirm_missing(
                    retriable.error, callers_deadline
                ):
                    raise retriable.error from None
                self._node = None  # the coordinator may have moved
                retry.wait_or_raise(retriable.error)
            except TransientBrokerError as error:
                self._node = None
                retry.wait_or_raise(error)

    def _confirm_missing(self, error: TopicNotFoundError, deadline: Deadline | None) -> bool:
        if error.topic is None:  # no topic to request from other brokers
            return True
        suspects = {TopicPartition(error.topic, error.partition or 0): None}
        return bool(self._cluster.confirm_missing(suspects, deadline=deadline))

    def _call_once(self, call: Callable[[Connection, Deadline], _T], deadline: Deadline, tries: int) -> _T:
        node = self._node  # another thread may reset it
        if node is None:
            node = self._node = self._find_coordinator(deadline, tries)
        # The first tries have short timeouts, because an unresponsive coordinator may be replaced by another broker.
        limit = deadline.limited_to(attempt_timeout(self._cluster.settings, tries))
        connection = self._cluster.connect(node, limit)
        try:
            return call(connection, limit)
        finally:
            self._cluster.release(connection)

    def _find_coordinator(self, deadline: Deadline, tries: int) -> Node:
        request = {"key": self._key, "key_type": _KEY_TYPES[self._coordinator_type]}

        def call(connection: Connection, limit: Deadline) -> tuple[Any, str]:
            return connection.call(FIND_COORDINATOR, request, limit), connection.broker

        response, broker = self._cluster.call_any_broker(call, deadline, tries)
        raise_for_error_code(
            response.error_code, f"finding the coordinator of the {self._coordinator_type} {self._key!r}", broker
        )
        return Node(response.node_id, response.host, response.port)


def _call_broker(
    cluster: ClusterClient, node: Node, call: Callable[[Connection, Deadline], _T], deadline: Deadline
) -> _T:
    retry = Retry(deadline, None, Backoff.of(cluster.settings))
    while True:
        try:
            connection = cluster.connect(node, deadline)
            try:
                return call(connection, deadline)
            finally:
                cluster.release(connection)
        except RetriableCoordinatorError as retriable:  # it may be loading its state
            retry.wait_or_raise(retriable.error)
        except TransientBrokerError as error:
            retry.wait_or_raise(error)
