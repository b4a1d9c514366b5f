"""Offsets that a consumer group has committed: read and written from outside, without being a member.

A group without members takes commits of anyone who may (generation -1, no member id), which is how tools reset offsets
(``Admin.alterConsumerGroupOffsets``). Requests, and the newest versions used of them:

    FindCoordinator 3   one key; 4 brought several (KIP-699)
    OffsetFetch 7       one group, with require_stable (KIP-447); 8 brought several (KIP-709)
    OffsetCommit 9      topics by name; 10 names them by id (KIP-848)
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_kafka_direct.errors import BrokerError, ProtocolError, TopicNotFoundError, TransientBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire._any_broker import patience
from pyspark_kafka_direct.wire._retry import Retry
from pyspark_kafka_direct.wire.codes import ErrorCode, error_for, lookup
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.messages import FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH
from pyspark_kafka_direct.wire.metadata import Node
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Mapping

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.messages import Api

_T = TypeVar("_T")

_STABLE_VERSION = 7
_NO_OFFSET = -1

# How often a coordinator must deny a partition: one that was just made it may not know yet. By default about 1.5 s.
_DENIALS_TO_BELIEVE = 5

# A coordinator that knows members takes no commits from others.
_HAS_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})


class Group:
    """The committed offsets of one consumer group.

    Every call is tried again, at the coordinator of the moment, until ``default.api.timeout.ms`` has passed or its own
    deadline. The first tries are short, as a coordinator that does not answer may be replaced by another broker.

    Args:
        cluster: The cluster.
        group_id: The group's name; it need not exist.
    """

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.group_id = group_id
        self._cluster = cluster
        self._coordinator: Node | None = None

    def committed(
        self, partitions: Collection[TopicPartition], *, deadline: Deadline | None = None
    ) -> dict[TopicPartition, int]:
        """The next offset to read of each partition; those without a committed offset are left out.

        Args:
            partitions: The partitions.
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            AuthorizationError: The principal may not describe the group, or a topic.
            BrokerError: The coordinator could not be asked.
        """

        def ask(connection: Connection, limit: Deadline) -> dict[TopicPartition, int]:
            return self._fetch(connection, partitions, limit)

        return self._at_coordinator(ask, partitions, deadline) if partitions else {}

    def commit(self, offsets: Mapping[TopicPartition, int], *, deadline: Deadline | None = None) -> None:
        """Commit the next offset to read of each partition.

        Args:
            offsets: What to commit.
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            TopicNotFoundError: A partition is not there; others may have been committed.
            AuthorizationError: The principal may not read the group, or a topic.
            BrokerError: The coordinator could not be asked, or the group has members.
        """

        def ask(connection: Connection, limit: Deadline) -> None:
            self._commit(connection, offsets, limit)

        if offsets:
            self._at_coordinator(ask, offsets.keys(), deadline)

    def _at_coordinator(
        self,
        ask: Callable[[Connection, Deadline], _T],
        partitions: Collection[TopicPartition],
        deadline: Deadline | None,
    ) -> _T:
        settings = self._cluster.settings
        deadline = deadline or Deadline.after(settings.default_api_timeout_ms / 1000)
        retry = Retry(deadline, None, settings.retry_backoff_ms / 1000, settings.retry_backoff_max_ms / 1000)
        denials = 0
        while True:
            try:
                return self._ask_once(ask, partitions, deadline, retry.tries)
            except _TryAgain as again:
                denials = denials + 1 if isinstance(again.error, TopicNotFoundError) else 0
                if denials >= _DENIALS_TO_BELIEVE:
                    raise again.error from None
                self._coordinator = None
                retry.after(again.error)
            except TransientBrokerError as error:
                self._coordinator = None
                retry.after(error)

    def _ask_once(
        self,
        ask: Callable[[Connection, Deadline], _T],
        partitions: Collection[TopicPartition],
        deadline: Deadline,
        tries: int,
    ) -> _T:
        if self._coordinator is None:
            self._coordinator = self._find_coordinator(partitions, deadline, tries)
        limit = deadline.sooner(patience(self._cluster.settings, tries))
        connection = self._cluster.connect(self._coordinator, limit)
        try:
            return ask(connection, limit)
        finally:
            POOL.give_back(connection)

    def _find_coordinator(self, partitions: Collection[TopicPartition], deadline: Deadline, tries: int) -> Node:
        def ask(connection: Connection, limit: Deadline) -> tuple[Any, str]:
            return connection.call(FIND_COORDINATOR, {"key": self.group_id}, limit), connection.broker

        if not self._cluster.nodes:  # a cluster that was never reached is given up sooner
            self._cluster.topics({tp.topic for tp in partitions}, deadline=deadline)
        response, broker = self._cluster.ask_any(ask, deadline, tries)
        self._check(response.error_code, "looking for the coordinator", None, broker)
        return Node(response.node_id, response.host, response.port)

    def _fetch(
        self, connection: Connection, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, int]:
        wanted: dict[str, Any] = {
            "group_id": self.group_id,
            "topics": [
                {"name": topic, "partition_indexes": numbers} for topic, numbers in _by_topic(partitions).items()
            ],
        }
        if connection.version(OFFSET_FETCH) >= _STABLE_VERSION:
            wanted["require_stable"] = True  # wait for transactions that commit offsets too (KIP-447)
        response = connection.call(OFFSET_FETCH, wanted, deadline)
        self._check(response.error_code, "asking for committed offsets", None, connection.broker)
        found: dict[TopicPartition, int] = {}
        for topic in response.topics:
            for entry in topic.partitions:
                tp = TopicPartition(topic.name, entry.partition_index)
                self._check(entry.error_code, "asking for committed offsets", tp, connection.broker)
                found[tp] = entry.committed_offset
        _check_complete(OFFSET_FETCH, partitions, found, connection)
        return {tp: found[tp] for tp in partitions if found[tp] != _NO_OFFSET}

    def _commit(self, connection: Connection, offsets: Mapping[TopicPartition, int], deadline: Deadline) -> None:
        # Without a generation, a member and metadata: whoever commits is no member of the group.
        topics = [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": number, "committed_offset": offsets[TopicPartition(topic, number)]}
                    for number in numbers
                ],
            }
            for topic, numbers in _by_topic(offsets).items()
        ]
        response = connection.call(OFFSET_COMMIT, {"group_id": self.group_id, "topics": topics}, deadline)
        answered = set()
        for topic in response.topics:
            for entry in topic.partitions:
                tp = TopicPartition(topic.name, entry.partition_index)
                self._check(entry.error_code, "committing offsets", tp, connection.broker)
                answered.add(tp)
        _check_complete(OFFSET_COMMIT, offsets, answered, connection)

    def _check(self, code: int, doing: str, tp: TopicPartition | None, broker: str) -> None:
        if code == ErrorCode.NONE:
            return
        where = f"{doing} of the group {self.group_id!r}"
        if code in _HAS_MEMBERS:
            raise BrokerError(
                f"{where}: the group has members, consumers that commit for it ({lookup(code).name}). "
                "Use a group id of its own for each query.",
                broker=broker,
            )
        place = {} if tp is None else {"topic": tp.topic, "partition": tp.partition}
        error = error_for(code, where, broker=broker, **place)  # type: ignore[arg-type]
        if lookup(code).retriable:
            raise _TryAgain(error)
        raise error


class _TryAgain(Exception):  # noqa: N818 (caught here, never seen outside)
    """An answer that another try may change; not itself an error of ours."""

    def __init__(self, error: KafkaDirectError) -> None:
        super().__init__(str(error))
        self.error = error


def _check_complete(
    api: Api, asked: Iterable[TopicPartition], answered: Container[TopicPartition], connection: Connection
) -> None:
    for tp in asked:
        if tp not in answered:  # neither committed nor without an offset: nobody knows
            connection.close()
            raise ProtocolError(
                f"The answer to {api.name} lacks a partition.",
                topic=tp.topic,
                partition=tp.partition,
                broker=connection.broker,
            )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for tp in sorted(partitions):
        topics[tp.topic].append(tp.partition)
    return topics
