"""One broker that a tail reads from: the connection with it, and the fetch request under way on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.reading._replica import ENDS_CERTAIN_FROM
from pyspark_kafka_direct.wire._retry import growing
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.fetch import AskedPartition, ManyFetchChannel
from pyspark_kafka_direct.wire.messages import LIST_OFFSETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.reading._tail_partition import TailPartition
    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.fetch import FetchAnswer
    from pyspark_kafka_direct.wire.metadata import Node

_REQUEST = "kafka.request.timeout.ms"

# A connection that was quiet for so many seconds is looked at before it is used: brokers close idle ones.
_QUIET = 1.0

# An answer that came in this part of fetch.max.wait.ms was not waited for; and the pauses, in seconds, where such ones
# come with nothing, one after the other. Kafka does so while an offset lies behind the end that may be read.
_QUICK = 0.1
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.5


class Question(NamedTuple):
    """What was asked of one partition.

    Attributes:
        partition: The partition.
        offset: The offset asked for.
        version: The partition's, when it was asked.
        compared: Whether the broker was told what was read last.
    """

    partition: TailPartition
    offset: int
    version: int
    compared: bool

    @property
    def stale(self) -> bool:
        """Whether the answer is of no use any more: the partition was sought, or what came before waits still."""
        partition = self.partition
        return partition.version != self.version or partition.fetch_from != self.offset or not partition.drained


class TailLink:
    """Asks one broker.

    Attributes:
        node: The broker.
        partitions: Those that it leads, the one that waits longest for records first: a broker fills its answer in this
            order.
        connecting: Whether an errand connects with it.
        not_before: When to ask again: where a broker answers at once with nothing, again and again.
    """

    def __init__(self, cluster: Cluster, node: Node, fetch: FetchSettings) -> None:
        self.node = node
        self.partitions: dict[TailPartition, None] = {}
        self.connecting = False
        self.not_before = 0.0
        self._cluster = cluster
        self._system = cluster.pool.system
        self._fetch = fetch
        self._patience = cluster.settings.request_timeout_ms / 1000
        self._throttled_until = 0.0
        self._empty = 0  # how many answers in a row came at once, with nothing
        self._asked_at = 0.0
        self._heard_at = 0.0  # when something came last, or was asked
        self._answered_at = 0.0
        self._channel: ManyFetchChannel | None = None
        self._asked: list[Question] = []

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._channel is not None

    @property
    def idle(self) -> bool:
        """Whether no answer is due."""
        return not self._asked

    @property
    def connection(self) -> Connection:
        """The connection."""
        assert self._channel is not None
        return self._channel.connection

    @property
    def can_take(self) -> bool:
        """Whether what the last answer brought is handed out, so that there is room for the next."""
        return all(each.drained or each.paused for each in self.partitions)

    @property
    def answer_due(self) -> float:
        """When the answer must have come."""
        return max(self._heard_at, self._throttled_until) + self._patience

    def use(self, connection: Connection) -> None:
        """Ask over this connection.

        Raises:
            UnsupportedBrokerError: The broker is too old, or too new.
        """
        self._channel = ManyFetchChannel(connection, self._fetch)

    def ask(self, partitions: Sequence[TailPartition]) -> None:
        """Send the request for these partitions.

        Raises:
            BrokerError: The connection broke.
        """
        assert self._channel is not None
        most = self._fetch.max_partition_fetch_bytes
        asked = [
            AskedPartition(
                each.name.topic,
                each.topic_id,
                each.name.partition,
                each.fetch_from,
                most,
                each.leader_epoch,
                each.last_epoch if each.compare else -1,
            )
            for each in partitions
        ]
        self._asked = [
            Question(each, each.fetch_from, each.version, sent.last_fetched_epoch >= 0)
            for each, sent in zip(partitions, asked, strict=True)
        ]
        self._asked_at = self._heard_at = self._system.monotonic()
        self._channel.request(asked, Deadline(self._heard_at + self._patience, _REQUEST, self._system))

    @property
    def end_may_lag(self) -> bool:
        """Whether a broker of this age tells too low an end of its log right after it was elected."""
        return self.connection.api_versions.get(LIST_OFFSETS.key, (0, 0))[1] < ENDS_CERTAIN_FROM

    def gather(self) -> bool:
        """Read what has come of the answer, without waiting for more; tell whether it is whole.

        Raises:
            BrokerError: The connection broke, what came is no answer, or it does not come in time.
        """
        connection = self.connection
        before = connection.gathered
        if connection.gather():
            return True
        now = self._system.monotonic()
        if connection.gathered != before:
            self._heard_at = now
        elif self.answer_due <= now:
            raise BrokerTimeoutError(
                f"No answer to Fetch in time. The broker is overloaded or stuck, or the network drops packets; the "
                f"limit is {_REQUEST}.",
                broker=str(self.node),
            )
        return False

    @property
    def was_closed(self) -> bool:
        """Whether the broker has closed the connection while nothing was asked."""
        quiet = self._system.monotonic() - self._answered_at > _QUIET
        return self._channel is not None and quiet and self._channel.connection.has_answer()

    def take(self) -> tuple[list[Question], FetchAnswer]:
        """Return what was asked, and the answer.

        Raises:
            BrokerError: The connection broke, or the answer cannot be understood.
        """
        assert self._channel is not None
        answer = self._channel.response(Deadline(self.answer_due, _REQUEST, self._system))
        asked, self._asked = self._asked, []
        self._answered_at = self._system.monotonic()
        self._throttled_until = self._answered_at + min(answer.throttle_ms / 1000, self._patience)
        self._slow_down(answer)
        return asked, answer

    def leads(self, partition: TailPartition) -> bool:
        """Tell whether a partition is read from here."""
        return partition in self.partitions

    def serve_last(self, partition: TailPartition) -> None:
        """Put a partition that got records behind the others."""
        del self.partitions[partition]
        self.partitions[partition] = None

    def drop(self) -> None:
        """Give the connection back; it is closed if an answer is due."""
        channel, self._channel = self._channel, None
        self._asked = []
        if channel is not None:
            self._cluster.give_back(channel.connection)

    def abandon(self) -> None:
        """Close a forked child's side of the connection, which is its parent's."""
        if self._channel is not None:
            self._channel.connection.close()

    def _slow_down(self, answer: FetchAnswer) -> None:
        """Do not ask without a pause where there is nothing and a broker does not wait for it."""
        quick = self._answered_at - self._asked_at < self._fetch.fetch_max_wait_ms / 1000 * _QUICK
        told = any(each.records or each.error_code for each in answer.partitions.values())
        self._empty = self._empty + 1 if quick and not told and answer.throttle_ms <= 0 else 0
        if self._empty > 1:
            self.not_before = self._answered_at + growing(_FIRST_PAUSE, self._empty - 2, _LONGEST_PAUSE)
