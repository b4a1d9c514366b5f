"""Offsets that a consumer group has committed: read and written from outside, without being a member.

A group without members takes commits of anyone who may (generation -1, no member id), which is how tools reset offsets
(``Admin.alterConsumerGroupOffsets``). Requests, and the newest versions used of them:

    FindCoordinator 3   one key; 4 brought several (KIP-699)
    OffsetFetch 7       one group, with require_stable (KIP-447); 8 brought several (KIP-709)
    OffsetCommit 9      topics by name; 10 names them by id (KIP-848)
    TxnOffsetCommit 5   with transaction.version 2 (KIP-890); below that 4, after AddOffsetsToTxn
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.errors import BrokerError, ProtocolError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire.codes import ErrorCode, lookup
from pyspark_kafka_direct.wire.coordinator import Coordinator, check
from pyspark_kafka_direct.wire.messages import OFFSET_COMMIT, OFFSET_FETCH, TXN_OFFSET_COMMIT

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping

    from pyspark_kafka_direct.wire._idle_producers import ProducerId
    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.coordinator import Brokers
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.messages import Api

_STABLE_VERSION = 7
_NO_OFFSET = -1
_TXN_OFFSET_COMMIT_BEFORE: Final = TXN_OFFSET_COMMIT.up_to(4)

# A coordinator that knows members takes no commits from others.
_HAS_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})


class CommittedOffset(NamedTuple):
    """What is committed for a partition.

    Attributes:
        offset: The next offset to read.
        metadata: What whoever committed it has noted; empty for nothing.
    """

    offset: int
    metadata: str = ""


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
        return {tp: each.offset for tp, each in self.noted(partitions, deadline=deadline).items()}

    def noted(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        stable: bool = True,
        deadline: Deadline | None = None,
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return what is committed with what is noted beside it; partitions without a committed offset are left out.

        Args:
            partitions: The partitions; ``None``: all that the group has, of topics that the principal may describe.
                Then one whose first offset is just being committed in a transaction is left out.
            stable: Whether to wait for transactions in which offsets of the partitions are being committed.
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            AuthorizationError: The principal may not describe the group, or a topic that was named.
            BrokerError: The coordinator could not be asked.
        """

        def ask(connection: Connection, limit: Deadline) -> dict[TopicPartition, CommittedOffset]:
            return self._fetch(connection, partitions, stable, limit)

        if partitions is not None and not partitions:
            return {}
        return self._coordinator.ask(ask, {tp.topic for tp in partitions or ()}, deadline)

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

    def commit_in_transaction(
        self,
        transactional_id: str,
        producer: ProducerId,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        bumps_epochs: bool,
        deadline: Deadline | None = None,
    ) -> None:
        """Commit offsets as a part of a transaction: they are there if and only if it is committed.

        Args:
            transactional_id: Of the transaction.
            producer: Who writes it.
            offsets: What to commit.
            bumps_epochs: Whether ``transaction.version`` is 2; else the group must have been added to the transaction.
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            FencedError: Another writer has taken over, or the transaction was open for too long.
            TopicNotFoundError: A partition is not there.
            AuthorizationError: The principal may not use the transactional id, or not read the group or a topic.
            BrokerError: The coordinator could not be asked.
        """
        api = TXN_OFFSET_COMMIT if bumps_epochs else _TXN_OFFSET_COMMIT_BEFORE
        wanted = {
            "transactional_id": transactional_id,
            "group_id": self.group_id,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "topics": _offsets_to_commit(offsets),
        }

        def ask(connection: Connection, limit: Deadline) -> None:
            self._send(connection, api, wanted, offsets, limit)

        self._coordinator.ask(ask, (), deadline)

    def _fetch(
        self, connection: Connection, partitions: Collection[TopicPartition] | None, stable: bool, deadline: Deadline
    ) -> dict[TopicPartition, CommittedOffset]:
        wanted: dict[str, Any] = {"group_id": self.group_id, "topics": None}
        if partitions is not None:
            by_topic = _by_topic(partitions)
            wanted["topics"] = [{"name": topic, "partition_indexes": numbers} for topic, numbers in by_topic.items()]
        if stable and connection.version(OFFSET_FETCH) >= _STABLE_VERSION:
            wanted["require_stable"] = True  # wait for transactions that commit offsets too (KIP-447)
        response = connection.call(OFFSET_FETCH, wanted, deadline)
        self._check(response.error_code, "asking for committed offsets", None, connection.broker)
        found: dict[TopicPartition, CommittedOffset] = {}
        for topic in response.topics:
            for entry in topic.partitions:
                tp = TopicPartition(topic.name, entry.partition_index)
                self._check(entry.error_code, "asking for committed offsets", tp, connection.broker)
                found[tp] = CommittedOffset(entry.committed_offset, entry.metadata or "")
        _check_complete(OFFSET_FETCH, partitions or (), found, connection)
        wanted_order = found if partitions is None else partitions
        return {tp: found[tp] for tp in wanted_order if found[tp].offset != _NO_OFFSET}

    def _commit(self, connection: Connection, offsets: Mapping[TopicPartition, int], deadline: Deadline) -> None:
        # Without a generation, a member and metadata: whoever commits is no member of the group.
        topics = _offsets_to_commit({tp: CommittedOffset(offset) for tp, offset in offsets.items()})
        self._send(connection, OFFSET_COMMIT, {"group_id": self.group_id, "topics": topics}, offsets, deadline)

    def _send(
        self,
        connection: Connection,
        api: Api,
        wanted: Mapping[str, Any],
        partitions: Iterable[TopicPartition],
        deadline: Deadline,
    ) -> None:
        response = connection.call(api, wanted, deadline)
        answered = set()
        for topic in response.topics:
            for entry in topic.partitions:
                tp = TopicPartition(topic.name, entry.partition_index)
                self._check(entry.error_code, "committing offsets", tp, connection.broker)
                answered.add(tp)
        _check_complete(api, partitions, answered, connection)

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


def _offsets_to_commit(offsets: Mapping[TopicPartition, CommittedOffset]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic,
            "partitions": [
                {
                    "partition_index": number,
                    "committed_offset": offsets[TopicPartition(topic, number)].offset,
                    "committed_metadata": offsets[TopicPartition(topic, number)].metadata,
                }
                for number in numbers
            ],
        }
        for topic, numbers in _by_topic(offsets).items()
    ]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for tp in sorted(partitions):
        topics[tp.topic].append(tp.partition)
    return topics
