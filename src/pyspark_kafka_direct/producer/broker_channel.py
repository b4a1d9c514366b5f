"""One broker that leads partitions: the connection to it, and the Produce requests in flight on it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import BrokerUnreachableError
from pyspark_kafka_direct.producer.produce_channel import PartitionProduceResponse, ProduceChannel

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.metadata import Node
    from pyspark_kafka_direct.options.settings import ProducerSettings
    from pyspark_kafka_direct.producer.partition_queue import PartitionQueue, ProducerBatch

_REQUEST_TIMEOUT = "kafka.request.timeout.ms"

RequestBatches = dict["PartitionQueue", "ProducerBatch"]  # the batches of one request


class _InFlightRequest(NamedTuple):
    batches: RequestBatches
    sent_at: float
    expires_at: float  # when the first of the batches expires


class BrokerChannel:
    """Sends to one broker and receives its responses; connects when there is something to send."""

    def __init__(
        self,
        cluster: ClusterClient,
        node: Node,
        settings: ProducerSettings,
        transactional_id: str | None,
        *,
        adds_partitions: bool,  # whether writes add partitions to the transaction (transaction.version 2)
    ) -> None:
        self.node = node
        self.ready_partitions: dict[PartitionQueue, None] = {}  # with queued batches, the one that waits longest first
        self.throttled_until = 0.0  # by the monotonic clock; until then the broker reads no request (quota)
        self._cluster = cluster
        self._system = cluster.pool.system
        self._settings = settings
        self._transactional_id = transactional_id
        self._adds_partitions = adds_partitions
        self._channel: ProduceChannel | None = None
        self._in_flight: deque[_InFlightRequest] = deque()
        self._last_response_at = 0.0  # by the monotonic clock
        self._request_timeout = min(cluster.settings.request_timeout_ms, settings.delivery_timeout_ms) / 1000

    @property
    def can_send(self) -> bool:
        """Whether another request may be sent now."""
        if self._in_flight and self._channel is not None and self._channel.connection.renewal_due:
            return False  # reauthentication and another connection wait until no response is due
        return len(self._in_flight) < self._settings.max_in_flight and self.throttled_until <= self._system.monotonic()

    @property
    def idle(self) -> bool:
        """Whether no response is due."""
        return not self._in_flight

    @property
    def descriptor(self) -> int:
        """The socket's file descriptor, to wait for a response."""
        assert self._channel is not None
        return self._channel.connection.fileno()

    @property
    def has_response(self) -> bool:
        """Whether a response, or the end of the connection, can be read without waiting."""
        return self._channel is not None and bool(self._in_flight) and self._channel.connection.has_response()

    @property
    def response_due(self) -> float:
        """The monotonic time at which the oldest request times out."""
        oldest = self._in_flight[0]
        # The time in which the broker throttles does not count, but delivery.timeout.ms does not wait for its end.
        throttled_until = min(self.throttled_until, oldest.expires_at)
        # The broker handles requests one after the other, so the time of one begins with the response before it.
        return max(oldest.sent_at, self._last_response_at, throttled_until) + self._request_timeout

    @property
    def timed_out(self) -> bool:
        """Whether a response is overdue."""
        return bool(self._in_flight) and self.response_due <= self._system.monotonic()

    def connect(self, deadline: Deadline) -> None:
        """Connect unless there is a connection; if this fails, the broker has received nothing."""
        self._ensure_connected(deadline)

    def send(self, batches: RequestBatches, expires_at: float) -> None:
        """Send one request; after a ``BrokerError`` call ``disconnect`` for the batches in flight, without these."""
        deadline = Deadline.after(self._request_timeout, _REQUEST_TIMEOUT, system=self._system)
        channel = self._ensure_connected(deadline)
        channel.request({partition.topic_partition: batch.data for partition, batch in batches.items()}, deadline)
        if self._settings.acks != 0:
            self._in_flight.append(_InFlightRequest(batches, self._system.monotonic(), expires_at))

    def receive(self) -> list[tuple[PartitionQueue, ProducerBatch, PartitionProduceResponse]]:
        """Return the responses to the oldest request; one that has arrived is read even after its deadline."""
        assert self._channel is not None
        timeout = self._request_timeout if self.has_response else 0.0  # 0: the request has timed out, so this raises
        responses, throttle_ms = self._channel.response(Deadline.after(timeout, _REQUEST_TIMEOUT, system=self._system))
        batches = self._in_flight.popleft().batches
        self._last_response_at = self._system.monotonic()
        if throttle_ms > 0:
            limited_throttle_ms = min(throttle_ms, self._settings.delivery_timeout_ms)  # brokers may return any value
            self.throttled_until = self._last_response_at + limited_throttle_ms / 1000
        return [(partition, batch, responses[partition.topic_partition]) for partition, batch in batches.items()]

    def disconnect(self) -> list[tuple[PartitionQueue, ProducerBatch]]:
        """Close the connection; return the batches whose responses are lost, oldest first."""
        lost_batches = [item for request in self._in_flight for item in request.batches.items()]
        self.close()
        self._in_flight.clear()
        return lost_batches

    def close(self) -> None:
        """Release the connection to the pool, which closes it if a response is due."""
        channel, self._channel = self._channel, None
        if channel is not None:
            self._cluster.release(channel.connection)

    def _ensure_connected(self, deadline: Deadline) -> ProduceChannel:
        channel = self._channel
        if channel is not None and self.idle and channel.connection.has_response():
            # No response is due, so the socket is readable because the broker has closed the connection.
            self.disconnect()
            channel = None
            if self._settings.acks == 0:
                # With acks=0, closing is the only way for a broker to report that it no longer leads the partition.
                raise BrokerUnreachableError("The broker closed the connection.", broker=str(self.node))
        if channel is not None and self.idle and channel.connection.certificates_changed:
            self.close()
            channel = None
        if channel is None:
            connection = self._cluster.connect(self.node, deadline)
            try:
                channel = self._channel = ProduceChannel(
                    connection,
                    acks=self._settings.acks,
                    timeout_ms=self._cluster.settings.request_timeout_ms,
                    transactional_id=self._transactional_id,
                    adds_partitions=self._adds_partitions,
                    uses_zstd=self._settings.codec == "zstd",
                )
            except BaseException:
                self._cluster.release(connection)
                raise
        return channel
