"""Where a partition is fetched from: its leader, or the replica the leader prefers for our rack (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import ProtocolError, TopicNotFoundError, UnsupportedBrokerError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST
from pyspark_kafka_direct.planning.loss import LogState
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.fetch import TOPIC_IDS_FROM, FetchChannel
from pyspark_kafka_direct.wire.messages import LIST_OFFSETS
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.wire.cluster import Node, PartitionLeader
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.fetch import FetchedPartition
    from pyspark_kafka_direct.wire.pool import ConnectionPool

# ListOffsets: from here on (Kafka 2.2) a new leader says so while it does not know its end yet (KIP-207).
ENDS_CERTAIN_FROM = 5

EARLIEST_LOCAL = -4  # ListOffsets: first offset on the broker's own disk, not in tiered storage (KIP-405)


class Replica:
    """The broker that one task fetches from, and the connection to it.

    One fetch request may be outstanding. It belongs to the connection: whatever drops the connection drops it too.
    Nothing is tried twice here; that is for the caller, who counts the tries and the time.

    Args:
        settings: How to reach the cluster.
        fetch: How to fetch.
        partition: What to fetch.
        topic_id: The id the topic must have; ``None`` where the cluster has no ids.
        hint: Who led the partition when the read was planned: spares the first look-up. It may be out of date, as the
            leader's epoch and the topic's id in the request make a broker refuse that is not the right one.
        pool: Has the connections.

    Attributes:
        on_leader: Whether we fetch from the leader. Only then the answer may be believed about what is lost.
        broker: ``host:port`` of the broker fetched from last.
        recreated_as: The topic's id, if the cluster knows it under another id than the wanted one.
        end_may_lag: Whether a broker of this age tells too low an end right after it was elected.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        fetch: FetchSettings,
        partition: TopicPartition,
        topic_id: UUID | None,
        hint: PartitionLeader | None = None,
        pool: ConnectionPool = POOL,
    ) -> None:
        self.on_leader = True
        self.broker: str | None = None
        self.end_may_lag = False
        self._leader_epoch = -1
        self.recreated_as: UUID | None = None
        self._fetch = fetch
        self._cluster = Cluster(settings, retries=0, pool=pool)
        self._partition = partition
        self._topic_id = topic_id
        self._hint = hint
        self._channel: FetchChannel | None = None
        self._asked: int | None = None
        self._preferred: int | None = None
        self._leader_only = not fetch.client_rack

    def ask(self, offset: int, max_bytes: int, deadline: Deadline, *, last_epoch: int = -1) -> None:
        """Send the fetch request for ``offset``, unless it is under way.

        Args:
            offset: First offset wanted.
            max_bytes: About how many bytes to return.
            deadline: End of the wait until the request is sent.
            last_epoch: Leader epoch of the last batch before the offset, if the broker shall look whether its log still
                has that batch (Kafka from 2.7 on); -1: it need not.

        Raises:
            TopicNotFoundError: The partition does not exist, or its topic has another id.
            BrokerError: No connection to the replica.
        """
        if self._asked == offset:
            return
        if self._asked is not None:
            self.drop()
        channel = self._channel or self._open(deadline)
        # By the plan the records are there. A follower may lack them, as it learns up to half a second late what is
        # committed: it shall say so at once. The leader shall say so before we lose patience with it.
        max_wait_ms = int(deadline.remaining() * 500) if self.on_leader else 0
        channel.request(
            offset,
            self._leader_epoch,
            max_bytes,
            last_fetched_epoch=last_epoch,
            max_wait_ms=max_wait_ms,
            deadline=deadline,
        )
        self._asked = offset

    def answer(self, deadline: Deadline) -> FetchedPartition:
        """Wait for the answer to the outstanding request. Its records stay valid until the next ``answer``.

        Raises:
            BrokerError: The connection broke, or the answer cannot be understood.
        """
        assert self._channel is not None
        fetched = self._channel.response(deadline)
        self._asked = None
        return fetched

    def log_state(self, deadline: Deadline) -> LogState:
        """Return what the leader, looked up anew, says of its log.

        Raises:
            TopicNotFoundError: The partition does not exist, or its topic has another id.
            BrokerError: The leader could not be asked.
        """
        self.drop()
        self._look_up(deadline)
        start, end = (self._list_offset(position, deadline) for position in (EARLIEST, LATEST))
        return LogState(start, end, self._topic_id)

    def local_start(self, deadline: Deadline) -> int:
        """Return the first offset on the leader's own disk; what lies before it is in tiered storage, and slow to come.

        0 where the broker refuses the question: it has no such storage, or none that it tells of.

        Raises:
            TopicNotFoundError: The partition does not exist.
            BrokerError: The leader could not be asked.
        """
        try:
            return self._list_offset(EARLIEST_LOCAL, deadline)
        except (ProtocolError, UnsupportedBrokerError):
            return 0

    def prefer(self, broker_id: int) -> None:
        """Go on at another replica (KIP-392)."""
        self.drop()
        self._preferred = broker_id

    def return_to_leader(self) -> None:
        """Fetch the rest from the leader: the follower could not help, and the leader's word is needed."""
        self.drop()
        self._preferred = None
        self._leader_only = True

    def drop(self) -> None:
        """Give the connection up, and with it what is known of the leader; the next ``ask`` looks again."""
        channel, self._channel, self._asked = self._channel, None, None
        if channel is not None:
            self._cluster.give_back(channel.connection)  # which closes it if an answer is still outstanding

    def _open(self, deadline: Deadline) -> FetchChannel:
        hint, self._hint = self._hint, None
        if hint is None:
            leader = self._look_up(deadline)
        else:
            leader, self._leader_epoch = hint
        node = leader
        if self._preferred is not None:
            node = self._cluster.nodes.get(self._preferred, leader)
            self._leader_only = node.id == leader.id  # the follower is gone: do not be sent to it again
        self.on_leader = node.id == leader.id
        self.broker = str(node)
        connection = self._cluster.connect(node, deadline)
        self.end_may_lag = connection.api_versions.get(LIST_OFFSETS.key, (0, 0))[1] < ENDS_CERTAIN_FROM
        try:
            self._channel = FetchChannel(
                connection,
                topic=self._partition.topic,
                topic_id=self._topic_id,
                partition=self._partition.partition,
                settings=self._fetch,
                follow_rack=not self._leader_only,
            )
        except BaseException:
            self._cluster.give_back(connection)
            raise
        if hint is not None and self._channel.version < TOPIC_IDS_FROM:
            self._look_up(deadline)  # the request cannot say which topic of that name is meant
        return self._channel

    def _look_up(self, deadline: Deadline) -> Node:
        """Ask for the leader, and whether the topic is still the one that was planned."""
        topic = self._cluster.topics([self._partition.topic], deadline=deadline).get(self._partition.topic)
        self.recreated_as = None
        if topic is not None and topic.topic_id is not None and self._topic_id not in (None, topic.topic_id):
            self.recreated_as = topic.topic_id
            raise TopicNotFoundError(
                f"The topic was deleted and created again: its id is {topic.topic_id}, not {self._topic_id}.",
                topic=self._partition.topic,
            )
        self._leader_epoch = self._cluster.partition(self._partition, deadline=deadline).leader_epoch
        return self._cluster.leader(self._partition, deadline=deadline)

    def _list_offset(self, position: int, deadline: Deadline) -> int:
        # Uncommitted, so that the end of the log is the high watermark: an open transaction is no loss.
        wanted = {self._partition: position}
        return self._cluster.offsets(wanted, isolation_level="read_uncommitted", deadline=deadline)[self._partition]
