"""Offsets that a consumer group has committed: read and written from outside, without being a member.

A group without members takes commits of anyone who may (generation -1, no member id), which is how tools reset offsets
(``Admin.alterConsumerGroupOffsets``). Requests, and the newest versions used of them:

    FindCoordinator 3   one key; 4 brought several (KIP-699)
    OffsetFetch 7       one group, with require_stable (KIP-447); 8 brought several (KIP-709)
    OffsetCommit 9      topics by name; 10 names them by id (KIP-848)
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.errors import BrokerError, ProtocolError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire.codes import ErrorCode, lookup
from pyspark_kafka_direct.wire.coordinator import Coordinator, check
from pyspark_kafka_direct.wire.messages import OFFSET_COMMIT, OFFSET_FETCH

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping

    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.coordinator import Brokers
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.messages import Api

_STABLE_VERSION = 7
_NO_OFFSET = -1

# A coordinator that knows members takes no commits from others.
_HAS_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})


class Group:
    """The committed offsets of one consumer group.

    Every call is tried again until ``default.api.timeout.ms`` has passed or its own deadline (see ``Coordinator``).

    Args:
        cluster: The cluster.
        group_id: The group's name; it need not exist.
    """

    def __init__(self, cluster: Brokers, group_id: str) -> None:
        self.group_id = group_id
        self._coordinator = Coordinator(cluster, "group", group_id)

    def committed(
        self, partitions: Collection[TopicPartition], *, deadline: Deadline | None = None
    ) -> dict[TopicPartition, int]:
        """Return the next offset to read of each partition; those without a committed offset are left out.

        Args:
            partitions: The partitions.
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            AuthorizationError: The principal may not describe the group, or a topic.
            BrokerError: The coordinator could not be asked.
        """

        def ask(connection: Connection, limit: Deadline) -> dict[TopicPartition, int]:
            return self._fetch(connection, partitions, limit)

        return self._coordinator.ask(ask, {tp.topic for tp in partitions}, deadline) if partitions else {}

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
            self._coordinator.ask(ask, {tp.topic for tp in offsets}, deadline)

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
        where = f"{doing} of the group {self.group_id!r}"
        if code in _HAS_MEMBERS:
            raise BrokerError(
                f"{where}: the group has members, consumers that commit for it ({lookup(code).name}). "
                "Use a group id of its own for each query.",
                broker=broker,
            )
        check(code, where, broker, tp)


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
