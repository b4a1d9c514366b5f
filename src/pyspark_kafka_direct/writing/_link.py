"""One broker that leads partitions: the connection with it, and the requests under way on it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.errors import BrokerUnreachableError
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.produce import ProduceChannel, ProducedPartition

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings.produce import ProduceSettings
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.metadata import Node
    from pyspark_kafka_direct.writing._partition import Partition, Pending

_DELIVERY = "kafka.delivery.timeout.ms"
_REQUEST = "kafka.request.timeout.ms"

Sent = dict["Partition", "Pending"]
"""The batches of a request."""


class _Request(NamedTuple):
    batches: Sent
    sent_at: float


class Link:
    """Sends to one broker and takes its answers. It connects when it first has something to send.

    Args:
        cluster: Has the connections.
        node: The broker.
        settings: How records are written.
        transactional_id: Of the transaction that the records belong to.
        adds_partitions: Whether the broker adds partitions to the transaction by itself.

    Attributes:
        node: The broker.
        ready: Partitions that it leads with something to send, the one that waits longest first.
        throttled_until: When the broker reads the next request, as a quota is used up.
    """

    def __init__(
        self,
        cluster: Cluster,
        node: Node,
        settings: ProduceSettings,
        transactional_id: str | None,
        *,
        adds_partitions: bool,
    ) -> None:
        self.node = node
        self.ready: dict[Partition, None] = {}
        self.throttled_until = 0.0
        self._cluster = cluster
        self._system = cluster.pool.system
        self._settings = settings
        self._transaction = (transactional_id, adds_partitions)
        self._channel: ProduceChannel | None = None
        self._under_way: deque[_Request] = deque()
        self._answered_at = 0.0
        self._patience = min(cluster.settings.request_timeout_ms, settings.delivery_timeout_ms) / 1000

    @property
    def has_room(self) -> bool:
        """Whether another request may be sent now."""
        if self._under_way and self._channel is not None and self._channel.connection.login_due:
            return False  # a login is an exchange of its own: it waits until no answer is due
        return len(self._under_way) < self._settings.max_in_flight and self.throttled_until <= self._system.monotonic()

    @property
    def idle(self) -> bool:
        """Whether no answer is due."""
        return not self._under_way

    @property
    def descriptor(self) -> int:
        """The socket, to wait for an answer."""
        assert self._channel is not None
        return self._channel.connection.fileno()

    @property
    def has_answer(self) -> bool:
        """Whether an answer, or the connection's end, can be read at once."""
        return self._channel is not None and bool(self._under_way) and self._channel.connection.has_answer()

    @property
    def answer_due(self) -> float:
        """When the answer to the oldest request must have come."""
        return max(self._under_way[0].sent_at, self._answered_at, self.throttled_until) + self._patience

    @property
    def overdue(self) -> bool:
        """Whether an answer has not come in time."""
        return bool(self._under_way) and self.answer_due <= self._system.monotonic()

    def connect(self) -> None:
        """Connect where there is no connection.

        Raises:
            BrokerError: There is none to be had; ``lose`` says what was under way.
        """
        self._open(self._deadline())

    def send(self, batches: Sent) -> None:
        """Send batches of partitions, after ``connect``.

        Raises:
            BrokerError: The connection broke; ``lose`` says what was under way.
        """
        deadline = self._deadline()
        channel = self._open(deadline)
        channel.request({each.name: batch.data for each, batch in batches.items()}, deadline)
        if self._settings.acks != 0:
            self._under_way.append(_Request(batches, self._system.monotonic()))

    def receive(self) -> list[tuple[Partition, Pending, ProducedPartition]]:
        """Return what the broker says of the oldest request's batches.

        An answer that is there is taken, however late the caller is.

        Raises:
            BrokerError: The connection broke, no answer came in time, or it cannot be understood.
        """
        assert self._channel is not None
        patience = self._patience if self.has_answer else 0.0
        answers, throttle_ms = self._channel.response(Deadline.after(patience, _REQUEST, system=self._system))
        batches, _ = self._under_way.popleft()
        self._answered_at = self._system.monotonic()
        if throttle_ms > 0:
            throttled = min(throttle_ms, self._settings.delivery_timeout_ms)  # what it says is not waited for blindly
            self.throttled_until = self._answered_at + throttled / 1000
        return [(partition, batch, answers[partition.name]) for partition, batch in batches.items()]

    def lose(self) -> list[tuple[Partition, Pending]]:
        """Give the connection up; return the batches whose answers are lost, oldest first."""
        lost = [each for request in self._under_way for each in request.batches.items()]
        self._under_way.clear()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.connection.close()
            self._cluster.give_back(channel.connection)
        return lost

    def close(self) -> None:
        """Give the connection back; it is closed if an answer is due."""
        channel, self._channel = self._channel, None
        if channel is not None:
            self._cluster.give_back(channel.connection)

    def _deadline(self) -> Deadline:
        return Deadline.after(self._settings.delivery_timeout_ms / 1000, _DELIVERY, system=self._system)

    def _open(self, deadline: Deadline) -> ProduceChannel:
        channel = self._channel
        if channel is not None and self.idle and channel.connection.has_answer():
            self.lose()
            channel = None
            if self._settings.acks == 0:
                # It is the only way in which a broker that does not lead the partition any more can say so.
                raise BrokerUnreachableError("The broker closed the connection.", broker=str(self.node))
        if channel is None:
            connection = self._cluster.connect(self.node, deadline)
            transactional_id, adds_partitions = self._transaction
            try:
                channel = self._channel = ProduceChannel(
                    connection,
                    acks=self._settings.acks,
                    timeout_ms=self._cluster.settings.request_timeout_ms,
                    transactional_id=transactional_id,
                    adds_partitions=adds_partitions,
                    zstd=self._settings.codec == "zstd",
                )
            except BaseException:
                self._cluster.give_back(connection)
                raise
        return channel
