"""Where a partition is fetched from: its leader, or the replica the leader prefers for our rack (KIP-392)."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.fetch import FetchChannel
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.wire._deadline import Deadline
    from pyspark_kafka_direct.wire.cluster import TopicMetadata
    from pyspark_kafka_direct.wire.fetch import FetchedPartition
    from pyspark_kafka_direct.wire.settings import ConnectionSettings


class Replica:
    """The broker that one task fetches from, and the connection to it.

    One fetch request may be outstanding. It belongs to the connection: whatever drops the connection drops it too.

    Args:
        settings: How to reach the cluster.
        partition: What to fetch.
        topic_id: The topic's id, or ``None`` where the cluster has none.

    Attributes:
        cluster: For questions to the leader.
        on_leader: Whether the last answer came from the leader. Only then it may be believed about what is lost.
        broker: ``host:port`` of the broker last fetched from.
    """

    def __init__(self, settings: ConnectionSettings, partition: TopicPartition, topic_id: UUID | None) -> None:
        self.cluster = Cluster(settings)
        self.on_leader = True
        self.broker: str | None = None
        self._settings = settings
        self._partition = partition
        self._topic_id = topic_id
        self._channel: FetchChannel | None = None
        self._leader_epoch = -1
        self._asked: int | None = None
        self._preferred: int | None = None
        self._preferred_until = 0.0
        self._leader_only = not settings.client_rack

    def ask(self, offset: int, max_bytes: int, deadline: Deadline) -> None:
        """Send the fetch request for ``offset``, unless it is under way.

        Raises:
            TopicNotFoundError: The partition does not exist (now).
            BrokerError: No connection to the replica.
        """
        if self._asked == offset:
            return
        if self._asked is not None:
            self.drop()
        channel = self._channel or self._open(deadline)
        epoch = self._leader_epoch
        channel.request(offset, epoch, max_bytes, deadline=deadline)
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

    def topic(self) -> TopicMetadata | None:
        """The topic as the cluster knows it now; ``None`` if there is none of that name."""
        return self.cluster.topics([self._partition.topic]).get(self._partition.topic)

    def prefer(self, broker_id: int) -> None:
        """Go on at another replica, for as long as metadata is believed (KIP-392)."""
        self.drop()
        if not self._leader_only:
            self._preferred = broker_id
            self._preferred_until = time.monotonic() + self._settings.metadata_max_age_ms / 1000

    def return_to_leader(self) -> None:
        """Fetch the rest from the leader: the follower could not help, and the leader's word is needed."""
        self.drop()
        self._preferred = None
        self._leader_only = True

    def drop(self) -> None:
        """Give the connection up, and with it what is known of the leader; the next ``ask`` looks again."""
        channel, self._channel, self._asked = self._channel, None, None
        if channel is not None:
            POOL.give_back(channel.connection)  # which closes it if an answer is still outstanding

    def _open(self, deadline: Deadline) -> FetchChannel:
        self.cluster.refresh([self._partition.topic])
        leader = self.cluster.leader(self._partition)
        self._leader_epoch = self.cluster.partition(self._partition).leader_epoch
        node = self.cluster.nodes.get(self._follower(), leader)
        self.on_leader = node.id == leader.id
        self.broker = str(node)
        connection = POOL.borrow(self._settings, node.host, node.port, deadline)
        # Without a rack the leader serves us itself instead of sending us to a follower.
        settings = dataclasses.replace(self._settings, client_rack="") if self._leader_only else self._settings
        self._channel = FetchChannel(
            connection,
            topic=self._partition.topic,
            topic_id=self._topic_id,
            partition=self._partition.partition,
            settings=settings,
        )
        return self._channel

    def _follower(self) -> int:
        if self._preferred is None or time.monotonic() >= self._preferred_until:
            self._preferred = None
            return -1
        return self._preferred
