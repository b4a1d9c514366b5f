"""Committed offsets of a consumer group, read and written from outside, without being a member.

A group without members accepts commits from any client (generation -1, no member id); tools that reset offsets do the
same (``Admin.alterConsumerGroupOffsets``). Requests, and the newest versions used of them:

    FindCoordinator 3   one key; 4 has several (KIP-699)
    OffsetFetch 7       one group, with require_stable (KIP-447); 8 has several (KIP-709)
    OffsetCommit 9      topics by name; 10 has their ids (KIP-848)
    TxnOffsetCommit 5   with transaction.version 2 (KIP-890); below that 4, after AddOffsetsToTxn
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.client.coordinator_client import CoordinatorClient, call_each_broker, raise_for_error_code
from pyspark_kafka_direct.errors import BrokerError, ProtocolError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.description_messages import LIST_GROUPS
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_code_info
from pyspark_kafka_direct.protocol.messages import OFFSET_COMMIT, OFFSET_FETCH, TXN_OFFSET_COMMIT

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
    from pyspark_kafka_direct.protocol.messages import ApiMessageType

_FIRST_REQUIRE_STABLE_VERSION = 7
_NO_OFFSET = -1
_TXN_OFFSET_COMMIT_BEFORE_V2: Final = TXN_OFFSET_COMMIT.with_max_version(4)  # below transaction.version 2

# A coordinator rejects commits of other clients while the group has members.
_ACTIVE_GROUP_ERRORS = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
)


class CommittedOffset(NamedTuple):
    offset: int  # the next offset to read
    metadata: str = ""
    leader_epoch: int = -1  # at the commit; a leader with a lower one was deposed


class ConsumerGroup:
    """Committed offsets of one consumer group, which need not exist; see ``CoordinatorClient`` for retries."""

    def __init__(self, cluster: ClusterClient, group_id: str) -> None:
        self.group_id = group_id
        self._cluster = cluster
        self._coordinator = CoordinatorClient(cluster, "group", group_id)

    def committed(
        self, partitions: Collection[TopicPartition], *, deadline: Deadline | None = None
    ) -> dict[TopicPartition, int]:
        """Return the next offset to read of each partition; partitions without one are omitted."""
        committed_offsets = self.committed_with_metadata(partitions, deadline=deadline)
        return {tp: committed.offset for tp, committed in committed_offsets.items()}

    def committed_with_metadata(
        self,
        # None: all partitions of the group whose topics the principal may describe; omits those whose first offset is
        # being committed in an open transaction.
        partitions: Collection[TopicPartition] | None = None,
        *,
        # Whether to wait for open transactions that commit offsets of the partitions (KIP-447).
        require_stable: bool = True,
        deadline: Deadline | None = None,
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return committed offsets with their metadata; partitions without one are omitted."""
        if partitions is not None and not partitions:
            return {}
        requested = None if partitions is None else sorted(partitions)

        def call(connection: Connection, limit: Deadline) -> dict[TopicPartition, CommittedOffset]:
            return self._fetch_committed(connection, requested, require_stable, limit)

        return self._coordinator.call(call, {tp.topic for tp in requested or ()}, deadline)

    def commit(self, offsets: Mapping[TopicPartition, int], *, deadline: Deadline | None = None) -> None:
        """Commit the next offset to read of each partition; on an error, some may have been committed."""

        def call(connection: Connection, limit: Deadline) -> None:
            self._commit(connection, offsets, limit)

        if offsets:
            self._coordinator.call(call, {tp.topic for tp in offsets}, deadline)

    def commit_in_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        transaction_v2: bool,  # otherwise the group must have been added to the transaction
    ) -> bool:
        """Commit offsets in a transaction; return whether an earlier request without a response may still arrive."""
        api = TXN_OFFSET_COMMIT if transaction_v2 else _TXN_OFFSET_COMMIT_BEFORE_V2
        request = {
            "transactional_id": transactional_id,
            "group_id": self.group_id,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "topics": _offsets_to_commit(offsets),
        }

        unconfirmed_requests = 0  # sent without a successful response

        def call(connection: Connection, limit: Deadline) -> None:
            nonlocal unconfirmed_requests
            unconfirmed_requests += 1
            self._send_commit(connection, api, request, offsets, limit)
            unconfirmed_requests -= 1

        self._coordinator.call(call)
        return unconfirmed_requests > 0

    def _fetch_committed(
        self,
        connection: Connection,
        partitions: Collection[TopicPartition] | None,
        require_stable: bool,
        deadline: Deadline,
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return committed offsets; partitions without one are omitted."""
        request: dict[str, Any] = {"group_id": self.group_id, "topics": None}
        if partitions is not None:
            indexes_by_topic = _indexes_by_topic(partitions)
            request["topics"] = [
                {"name": topic, "partition_indexes": indexes} for topic, indexes in indexes_by_topic.items()
            ]
        if require_stable and connection.version(OFFSET_FETCH) >= _FIRST_REQUIRE_STABLE_VERSION:
            request["require_stable"] = True
        response = connection.call(OFFSET_FETCH, request, deadline)
        committed = self._parse_committed(response, connection.broker)
        _check_all_partitions(OFFSET_FETCH, partitions or (), committed, connection)
        # If a committed leader epoch is higher than that in the metadata, the metadata may name a deposed leader. Other
        # brokers are then queried, so that no offsets of that leader are used.
        self._cluster.note_later_epochs({tp: each.leader_epoch for tp, each in committed.items()}, deadline)
        ordered_partitions = committed if partitions is None else partitions
        return {tp: committed[tp] for tp in ordered_partitions if committed[tp].offset != _NO_OFFSET}

    def _parse_committed(self, response: Any, broker: str) -> dict[TopicPartition, CommittedOffset]:
        self._raise_for_error_code(response.error_code, "fetching committed offsets", None, broker)
        committed: dict[TopicPartition, CommittedOffset] = {}
        for topic in response.topics:
            for entry in topic.partitions:
                tp = TopicPartition(topic.name, entry.partition_index)
                self._raise_for_error_code(entry.error_code, "fetching committed offsets", tp, broker)
                committed[tp] = CommittedOffset(
                    entry.committed_offset, entry.metadata or "", entry.committed_leader_epoch
                )
        return committed

    def _commit(self, connection: Connection, offsets: Mapping[TopicPartition, int], deadline: Deadline) -> None:
        # No generation, member or metadata: this client is not a member of the group.
        leaders = self._cluster.known_leaders(offsets)
        topics = _offsets_to_commit(
            {
                tp: CommittedOffset(offset, leader_epoch=leaders[tp].epoch if tp in leaders else -1)
                for tp, offset in offsets.items()
            }
        )
        self._send_commit(connection, OFFSET_COMMIT, {"group_id": self.group_id, "topics": topics}, offsets, deadline)

    def _send_commit(
        self,
        connection: Connection,
        api: ApiMessageType,
        request: Mapping[str, Any],
        partitions: Iterable[TopicPartition],
        deadline: Deadline,
    ) -> None:
        response = connection.call(api, request, deadline)
        received_partitions = set()
        for topic in response.topics:
            for entry in topic.partitions:
                tp = TopicPartition(topic.name, entry.partition_index)
                self._raise_for_error_code(entry.error_code, "committing offsets", tp, connection.broker)
                received_partitions.add(tp)
        _check_all_partitions(api, partitions, received_partitions, connection)

    def _raise_for_error_code(self, code: int, operation: str, tp: TopicPartition | None, broker: str) -> None:
        operation_of_group = f"{operation} of the group {self.group_id!r}"
        if code in _ACTIVE_GROUP_ERRORS:
            raise BrokerError(
                f"{operation_of_group}: the group has active members, which commit its offsets "
                f"({error_code_info(code).name}). Use a separate group id for each query.",
                broker=broker,
            )
        raise_for_error_code(code, operation_of_group, broker, tp)


def list_group_ids(cluster: ClusterClient, deadline: Deadline) -> list[str]:
    """Return the ids of the groups of all brokers, without those that the principal may not describe."""

    def call(connection: Connection, limit: Deadline) -> list[str]:
        response = connection.call(LIST_GROUPS, {}, limit)
        raise_for_error_code(response.error_code, "listing groups", connection.broker)
        return [group.group_id for group in response.groups]

    return sorted({group_id for ids in call_each_broker(cluster, call, deadline) for group_id in ids})


def _check_all_partitions(
    api: ApiMessageType,
    requested: Iterable[TopicPartition],
    received_partitions: Container[TopicPartition],
    connection: Connection,
) -> None:
    for tp in requested:
        if tp not in received_partitions:
            connection.close()
            raise ProtocolError(
                f"The response to {api.name} lacks a partition.",
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
                    "partition_index": index,
                    "committed_offset": offsets[TopicPartition(topic, index)].offset,
                    "committed_leader_epoch": offsets[TopicPartition(topic, index)].leader_epoch,
                    "committed_metadata": offsets[TopicPartition(topic, index)].metadata,
                }
                for index in indexes
            ],
        }
        for topic, indexes in _indexes_by_topic(offsets).items()
    ]


def _indexes_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for tp in sorted(partitions):
        topics[tp.topic].append(tp.partition)
    return topics
