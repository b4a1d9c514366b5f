"""A cluster as a client sees it: which topics there are, who leads their partitions, and their offsets."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from pyspark_kafka_direct.errors import TopicNotFoundError, TransientBrokerError
from pyspark_kafka_direct.wire._any_broker import ask_any
from pyspark_kafka_direct.wire._list_offsets import ListOffsets
from pyspark_kafka_direct.wire._retry import Retry
from pyspark_kafka_direct.wire.codes import ErrorCode, error_for, lookup
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.leaders import ask_leaders
from pyspark_kafka_direct.wire.metadata import (
    Node,
    PartitionLeader,
    PartitionMetadata,
    TopicMetadata,
    ask_metadata,
    newest,
)
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.fetch import IsolationLevel
    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.metadata import ClusterMetadata
    from pyspark_kafka_direct.wire.pool import ConnectionPool

_T = TypeVar("_T")

__all__ = ["Cluster", "Node", "PartitionLeader", "PartitionMetadata", "TopicMetadata"]


class Cluster:
    """Answers questions about a cluster, each within ``default.api.timeout.ms``, retries included.

    After a moved leader, a restarted broker or a broken connection it tries again, with fresh metadata where that
    helps. A cluster that was never reached is given up sooner, as a wrong address does not get better by waiting: when
    ``socket.connection.setup.timeout.ms`` has passed and every bootstrap server was tried at least once.

    May be used by several threads.

    Args:
        settings: How to reach it.
        retries: Tries after the first (``fetchOffset.numRetries``); ``None``: as many as fit into the time.
        retry_interval: Seconds between tries (``fetchOffset.retryIntervalMs``); ``None``: growing, by
            ``retry.backoff.ms`` and ``retry.backoff.max.ms``.
        pool: Has the connections, and the system where the brokers are.

    Attributes:
        settings: How to reach it.
        pool: Has the connections.
        cluster_id: Its id, which another cluster at the same address does not have; ``None`` before the first answer.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        retries: int | None = None,
        retry_interval: float | None = None,
        pool: ConnectionPool = POOL,
    ) -> None:
        self.settings = settings
        self.pool = pool
        self._retries = retries
        self._retry_interval = retry_interval
        self._lock = threading.Lock()
        self.cluster_id: str | None = None
        self._nodes: dict[int, Node] = {}
        self._topics: dict[str, tuple[TopicMetadata, float]] = {}
        self._reached = False
        self._turn = 0  # how often another broker was wanted

    def deadline(self, seconds: float | None = None) -> Deadline:
        """Return the end of a wait that begins now, by the cluster's clock.

        Args:
            seconds: How long; by default ``default.api.timeout.ms``.
        """
        seconds = self.settings.default_api_timeout_ms / 1000 if seconds is None else seconds
        return Deadline.after(seconds, system=self.pool.system)

    @property
    def nodes(self) -> dict[int, Node]:
        """The brokers by id, as of the last metadata; empty before the first question."""
        return dict(self._nodes)

    def topics(
        self, names: Iterable[str], *, deadline: Deadline | None = None, retry: Retry | None = None
    ) -> dict[str, TopicMetadata]:
        """Return fresh metadata of topics; a topic that does not exist is absent.

        Args:
            names: The topics.
            deadline: End of the wait instead of ``default.api.timeout.ms``, for a question within a longer operation.
            retry: Count and pace the tries by this.

        Raises:
            AuthorizationError: The principal may not see one of them.
            TopicNotFoundError: A name that no topic can have.
            BrokerError: The cluster could not be asked.
        """
        wanted = sorted(set(names))
        if not wanted:
            return {}
        return self._ask_topics(wanted, deadline or self.deadline(), retry)

    def reach(self, *, deadline: Deadline | None = None) -> None:
        """Ask who the brokers are, and about no topic.

        Args:
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            BrokerError: The cluster could not be asked.
        """
        self._ask_topics([], deadline or self.deadline())

    def all_topics(self, *, deadline: Deadline | None = None) -> dict[str, TopicMetadata]:
        """Return fresh metadata of all topics the principal may see, internal ones included.

        Args:
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            BrokerError: The cluster could not be asked.
        """
        return self._ask_topics(None, deadline or self.deadline())

    def ask_another(self) -> None:
        """Let another broker answer the next questions about topics: the one that did so may be behind."""
        with self._lock:
            self._turn += 1

    def partition(self, partition: TopicPartition, *, deadline: Deadline | None = None) -> PartitionMetadata:
        """Return metadata of a partition, at most ``metadata.max.age.ms`` old.

        Args:
            partition: The partition.
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            TopicNotFoundError: There is no such topic, or it has no such partition.
            BrokerError: The cluster could not be asked.
        """
        return self._known_partition(partition, self._known_topics({partition.topic}, deadline or self.deadline()))

    def leader(self, partition: TopicPartition, *, deadline: Deadline | None = None) -> Node:
        """Return the leader of a partition; wait for one while there is none.

        Args:
            partition: The partition.
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            TopicNotFoundError: There is no such partition.
            BrokerUnreachableError: It has no leader, and got none in time.
            BrokerError: The cluster could not be asked.
        """
        deadline = deadline or self.deadline()
        retry = self._retry(deadline)
        found = self.leaders([partition], deadline)[partition]
        while found is None:
            topic, number = partition
            doing = "looking for its leader"
            retry.after(error_for(ErrorCode.LEADER_NOT_AVAILABLE, doing, topic=topic, partition=number))
            found = self.leaders([partition], deadline, fresh=retry)[partition]
        return found.node

    def leaders(
        self, partitions: Collection[TopicPartition], deadline: Deadline, *, fresh: Retry | None = None
    ) -> dict[TopicPartition, PartitionLeader | None]:
        """Return the leaders of partitions, at most ``metadata.max.age.ms`` old; ``None`` where there is none now.

        Args:
            partitions: The partitions.
            deadline: End of the wait.
            fresh: Ask anew, and count and pace the tries by this.

        Raises:
            TopicNotFoundError: A topic or partition does not exist.
            BrokerError: The cluster could not be asked.
        """
        names = {partition.topic for partition in partitions}
        if fresh is None:
            topics = self._known_topics(names, deadline)
        else:
            topics = self._ask_topics(sorted(names), deadline, fresh)
        nodes = self._nodes  # another thread may replace it meanwhile
        found: dict[TopicPartition, PartitionLeader | None] = {}
        for partition in partitions:
            metadata = self._known_partition(partition, topics)
            node = None if metadata.leader is None else nodes.get(metadata.leader)
            found[partition] = None if node is None else PartitionLeader(node, metadata.leader_epoch)
        return found

    def known_leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionLeader]:
        """Return leaders as of the last answers about their topics, without asking: only those that are known."""
        known = {}
        with self._lock:
            for partition in partitions:
                topic = self._topics.get(partition.topic)
                metadata = None if topic is None else topic[0].partitions.get(partition.partition)
                node = None if metadata is None or metadata.leader is None else self._nodes.get(metadata.leader)
                if metadata is not None and node is not None:
                    known[partition] = PartitionLeader(node, metadata.leader_epoch)
        return known

    def offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        deadline: Deadline | None = None,
    ) -> dict[TopicPartition, int]:
        """Return offsets of partitions, with one request to each leader. Ends follow ``isolation.level``.

        Args:
            wanted: For each partition -2 (log start), -1 (end) or a time in milliseconds: then the first offset whose
                record is at least that new, or -1 if none is.
            isolation_level: What the end is: the high watermark, or with ``read_committed`` the last stable offset.
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            TopicNotFoundError: A topic or partition does not exist.
            AuthorizationError: The principal may not read a topic.
            BrokerError: A leader could not be asked, or none was elected in time.
        """
        request = ListOffsets(isolation_level, self.settings.request_timeout_ms)
        return ask_leaders(self, request, wanted, self._retry(deadline or self.deadline()))

    def ask_any(self, ask: Callable[[Connection, Deadline], _T], deadline: Deadline, tries: int = 1) -> _T:
        """Ask known brokers, or bootstrap servers, one after the other until one answers; one round of all of them.

        Args:
            ask: Asks over one connection, within a deadline.
            deadline: End of the wait.
            tries: How often the same question was asked, this time included.

        Raises:
            BrokerError: None answered.
        """
        known = [(node.host, node.port) for node in self._nodes.values()]
        return ask_any(self.pool, self.settings, known, ask, deadline, tries=tries, turn=self._turn)

    def connect(self, node: Node, deadline: Deadline) -> Connection:
        """Borrow a connection to one broker from the pool; ``give_back`` returns it.

        Raises:
            BrokerError: As ``Connection.open``.
        """
        try:
            return self.pool.borrow(self.settings, node.host, node.port, deadline)
        except TransientBrokerError as error:
            if (node.host, node.port) not in self.settings.bootstrap_servers:
                error.message += (
                    f" The address is the one broker {node.id} advertises (its advertised.listeners), not one from "
                    "kafka.bootstrap.servers; it must be reachable from here too."
                )
            raise

    def give_back(self, connection: Connection) -> None:
        """Give a connection back to the pool; one that is broken, or awaits an answer, is closed."""
        self.pool.give_back(connection)

    def _known_topics(self, names: Collection[str], deadline: Deadline) -> dict[str, TopicMetadata]:
        oldest = self.pool.system.monotonic() - self.settings.metadata_max_age_ms / 1000
        with self._lock:
            known = {
                name: entry[0] for name in names if (entry := self._topics.get(name)) is not None and entry[1] >= oldest
            }
        if len(known) == len(names):
            return known
        return self._ask_topics(sorted(names), deadline)

    def _known_partition(self, partition: TopicPartition, topics: Mapping[str, TopicMetadata]) -> PartitionMetadata:
        topic = topics.get(partition.topic)
        if topic is None:
            raise TopicNotFoundError(
                "The topic does not exist, or may not be seen (a missing DESCRIBE permission looks the same).",
                topic=partition.topic,
            )
        metadata = topic.partitions.get(partition.partition)
        if metadata is None:
            raise TopicNotFoundError(
                f"The topic has no such partition; it has {len(topic.partitions)}.",
                topic=partition.topic,
                partition=partition.partition,
            )
        return metadata

    def _ask_topics(
        self, names: Collection[str] | None, deadline: Deadline, retry: Retry | None = None
    ) -> dict[str, TopicMetadata]:
        if retry is None:
            # Before the first answer, patience is short: a wrong address does not get better by waiting.
            patience = deadline if self._reached else deadline.sooner(self.settings.connect_timeout_ms / 1000)
            retry = self._retry(patience)
        rounds = 0
        while True:
            rounds += 1
            try:
                metadata = self._ask_once(names, deadline, rounds)
            except TransientBrokerError as error:
                retry.after(error)
                continue
            retry.deadline = deadline
            topics = self._remember(metadata, names)
            for topic, code in metadata.topic_errors.items():
                failure = error_for(code, "asking for metadata", topic=topic)
                if not lookup(code).retriable:
                    raise failure
                retry.after(failure)
                break
            else:
                return topics

    def _ask_once(self, names: Collection[str] | None, deadline: Deadline, tries: int) -> ClusterMetadata:
        def ask(connection: Connection, limit: Deadline) -> tuple[ClusterMetadata, str]:
            return ask_metadata(connection, names, limit), connection.broker

        metadata, broker = self.ask_any(ask, deadline, tries)
        if metadata.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:  # KIP-1102: the brokers known so far are history
            with self._lock:
                self._nodes = {}
        if metadata.error_code:
            raise error_for(metadata.error_code, "asking for metadata", broker=broker)
        return metadata

    def _remember(self, metadata: ClusterMetadata, names: Collection[str] | None) -> dict[str, TopicMetadata]:
        now = self.pool.system.monotonic()
        with self._lock:
            before = self._topics
            topics = {
                name: newest(before[name][0] if name in before else None, told)
                for name, told in metadata.topics.items()
            }
            self._reached = True
            self.cluster_id = metadata.cluster_id
            self._nodes = metadata.nodes
            forgotten = before.keys() if names is None else set(names)
            self._topics = {name: entry for name, entry in before.items() if name not in forgotten}
            self._topics.update({name: (topic, now) for name, topic in topics.items()})
        return topics

    def _retry(self, deadline: Deadline) -> Retry:
        settings = self.settings
        if self._retry_interval is not None:
            return Retry(deadline, self._retries, self._retry_interval, self._retry_interval)
        return Retry(deadline, self._retries, settings.retry_backoff_ms / 1000, settings.retry_backoff_max_ms / 1000)
