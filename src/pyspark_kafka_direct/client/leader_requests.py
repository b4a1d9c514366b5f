"""Requests about many partitions, sent to the partitions' leaders: one request to each, retried for those that moved.

A ``LeaderRequest`` defines what is sent and how responses are read; here it is ListOffsets, elsewhere Produce.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from pyspark_kafka_direct.client.api_versions import newest_version
from pyspark_kafka_direct.client.broker_selection import attempt_timeout
from pyspark_kafka_direct.errors import ProtocolError, TransientBrokerError, UnsupportedBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import ISOLATION_LEVEL_IDS
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_code_info, error_for
from pyspark_kafka_direct.protocol.messages import LIST_OFFSETS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline, Retry
    from pyspark_kafka_direct.client.metadata import Node, PartitionLeader
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.options.settings import ConnectionSettings, IsolationLevel

# The timestamp of the first offset on the leader's own disk, not in tiered storage (KIP-405). Brokers before Kafka 3.5,
# with ListOffsets below version 8, would take it for a time, and return the log start.
EARLIEST_LOCAL: Final = -4
_FIRST_VERSION_WITH_EARLIEST_LOCAL = 8

# Since this version (Kafka 2.2), a new leader returns an error until its log end is reliable (KIP-207).
_FIRST_VERSION_WITH_RELIABLE_END = 5

_V = TypeVar("_V")
_R = TypeVar("_R")


class LeaderRequestEntry(NamedTuple, Generic[_V]):
    partition: TopicPartition
    value: _V
    leader_epoch: int  # brokers with another epoch reject the request (KIP-320); -1 disables the check


class LeaderResponse(NamedTuple, Generic[_R]):
    """A leader's response; each partition of the request is in either dictionary."""

    results: dict[TopicPartition, _R]
    error_codes: dict[TopicPartition, int]


class LeaderRequest(Protocol[_V, _R]):
    """A kind of request that partition leaders serve."""

    @property
    def operation(self) -> str:
        """A phrase for error messages: "listing offsets"."""

    def is_slow(self, values: Iterable[_V]) -> bool:
        """Return whether a healthy leader may take long; otherwise the first tries have short timeouts."""

    def submit(self, connection: Connection, entries: Sequence[LeaderRequestEntry[_V]], deadline: Deadline) -> None:
        """Send the request for partitions that the connection's broker leads."""

    def complete(
        self, connection: Connection, entries: Sequence[LeaderRequestEntry[_V]], deadline: Deadline
    ) -> LeaderResponse[_R]: ...


class LeaderLookup(Protocol):
    """Finds the leaders of partitions and connects to them; implemented by ``ClusterClient``."""

    settings: ConnectionSettings

    def leaders(
        self, partitions: Collection[TopicPartition], deadline: Deadline, *, refresh_retry: Retry | None = None
    ) -> Mapping[TopicPartition, PartitionLeader | None]:
        """Return leaders or None, from cached metadata; ``refresh_retry`` requests new metadata instead."""

    def connect(self, node: Node, deadline: Deadline) -> Connection: ...

    def release(self, connection: Connection) -> None: ...


def call_leaders(
    cluster: LeaderLookup, request: LeaderRequest[_V, _R], values: Mapping[TopicPartition, _V], retry: Retry
) -> dict[TopicPartition, _R]:
    """Call all leaders, and retry the partitions that moved, with new metadata, until the retries are exhausted."""
    results: dict[TopicPartition, _R] = {}
    pending_values = dict(values)
    leaders = cluster.leaders(pending_values, retry.deadline)
    while pending_values:
        # The first tries have short timeouts, because an unresponsive leader may be replaced by another broker.
        use_full_timeout = retry.is_last_try or request.is_slow(pending_values.values())
        max_seconds = math.inf if use_full_timeout else attempt_timeout(cluster.settings, retry.tries)
        received, failures = _call_each_leader(
            cluster, request, pending_values, leaders, deadline=retry.deadline, max_seconds=max_seconds
        )
        results.update(received)
        pending_values = {partition: value for partition, value in pending_values.items() if partition not in received}
        if pending_values:
            retry.wait_or_raise(next(iter(failures.values())))  # one error stands for all
            leaders = cluster.leaders(pending_values, retry.deadline, refresh_retry=retry)
    return {partition: results[partition] for partition in values}


class ListOffsetsRequest:
    """Fetches offsets: of the log start (-2), of the end (-1), or by timestamp in milliseconds."""

    operation = "listing offsets"

    def __init__(self, isolation_level: IsolationLevel, timeout_ms: int) -> None:
        self._isolation_level: IsolationLevel = isolation_level  # end: high watermark or last stable offset
        self._timeout_ms = timeout_ms  # limits the broker's search

    def is_slow(self, values: Iterable[int]) -> bool:
        """Return whether timestamps are requested: brokers may have to search a log for them."""
        return any(position >= 0 for position in values)

    def submit(self, connection: Connection, entries: Sequence[LeaderRequestEntry[int]], deadline: Deadline) -> None:
        if (
            any(entry.value == EARLIEST_LOCAL for entry in entries)
            and connection.version(LIST_OFFSETS) < _FIRST_VERSION_WITH_EARLIEST_LOCAL
        ):
            raise UnsupportedBrokerError(
                "The broker does not report where its local log begins (Kafka 3.5 does).", broker=connection.broker
            )
        send_list_offsets(connection, entries, self._isolation_level, self._timeout_ms, deadline)

    def complete(
        self, connection: Connection, entries: Sequence[LeaderRequestEntry[int]], deadline: Deadline
    ) -> LeaderResponse[int]:
        """Wait for the response; every log has a start and an end, only a timestamp may have no offset."""
        offsets, error_codes = receive_list_offsets(connection, [entry.partition for entry in entries], deadline)
        results: dict[TopicPartition, int] = {}
        for partition, position, _ in entries:
            if partition in offsets and offsets[partition] < 0 and position < 0:  # no start or end yet: retry
                error_codes[partition] = ErrorCode.OFFSET_NOT_AVAILABLE
            elif partition in offsets:
                results[partition] = offsets[partition]
        return LeaderResponse(results, error_codes)


def has_reliable_end(connection: Connection) -> bool:
    """Return whether the log end of a new leader is right; before Kafka 2.2 it may be too low at first."""
    return newest_version(connection.api_versions, LIST_OFFSETS.key) >= _FIRST_VERSION_WITH_RELIABLE_END


def send_list_offsets(
    connection: Connection,
    entries: Iterable[LeaderRequestEntry[int]],
    isolation_level: IsolationLevel,
    timeout_ms: int,
    deadline: Deadline,
) -> None:
    """Send a ListOffsets request for partitions that the connection's broker leads."""
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, partition), position, leader_epoch in entries:
        topics.setdefault(topic, []).append(
            {"partition_index": partition, "current_leader_epoch": leader_epoch, "timestamp": position}
        )
    request = {
        "replica_id": -1,
        "isolation_level": ISOLATION_LEVEL_IDS[isolation_level],
        "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
        "timeout_ms": timeout_ms,
    }
    connection.submit(LIST_OFFSETS, request, deadline)


def receive_list_offsets(
    connection: Connection, requested: Iterable[TopicPartition], deadline: Deadline
) -> LeaderResponse[int]:
    """Wait for offsets; an offset is -1 if no record has the timestamp or a later one."""
    response = connection.complete(LIST_OFFSETS, deadline)
    results: dict[TopicPartition, int] = {}
    error_codes: dict[TopicPartition, int] = {}
    for topic in response.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            if entry.error_code:
                error_codes[partition] = entry.error_code
            else:
                results[partition] = entry.offset
    for partition in requested:
        if partition not in results and partition not in error_codes:
            connection.close()
            raise ProtocolError(
                "The response to ListOffsets lacks a partition.",
                topic=partition.topic,
                partition=partition.partition,
                broker=connection.broker,
            )
    return LeaderResponse(results, error_codes)


def _call_each_leader(
    cluster: LeaderLookup,
    request: LeaderRequest[_V, _R],
    values: Mapping[TopicPartition, _V],
    leaders: Mapping[TopicPartition, PartitionLeader | None],
    *,
    deadline: Deadline,
    max_seconds: float,  # for each leader to connect, and to respond
) -> tuple[dict[TopicPartition, _R], dict[TopicPartition, KafkaDirectError]]:
    """Send a request to every leader, then wait for the responses; return results, and errors of other partitions."""
    results: dict[TopicPartition, _R] = {}
    failures: dict[TopicPartition, KafkaDirectError] = {
        partition: _error_for_partition(ErrorCode.LEADER_NOT_AVAILABLE, request.operation, partition)
        for partition in values
        if leaders[partition] is None
    }
    by_leader = _group_by_leader(values, leaders)
    with contextlib.ExitStack() as acquired_connections:
        in_flight: list[tuple[Connection, list[LeaderRequestEntry[_V]]]] = []
        for node, entries in by_leader.items():
            try:
                connection = cluster.connect(node, deadline.limited_to(max_seconds))
                acquired_connections.callback(cluster.release, connection)
                request.submit(connection, entries, deadline.limited_to(max_seconds))
            except TransientBrokerError as error:  # other leaders may still respond
                failures.update({entry.partition: error for entry in entries})
            else:
                in_flight.append((connection, entries))
        for connection, entries in in_flight:
            try:
                response = request.complete(connection, entries, deadline.limited_to(max_seconds))
            except TransientBrokerError as error:
                failures.update({entry.partition: error for entry in entries})
                continue
            results.update(response.results)
            for partition, code in response.error_codes.items():
                failures[partition] = _error_for_partition(code, request.operation, partition, connection.broker)
                if not error_code_info(code).retriable:
                    raise failures[partition]
    return results, failures


def _group_by_leader(
    values: Mapping[TopicPartition, _V], leaders: Mapping[TopicPartition, PartitionLeader | None]
) -> dict[Node, list[LeaderRequestEntry[_V]]]:
    by_leader: dict[Node, list[LeaderRequestEntry[_V]]] = {}
    for partition, value in values.items():
        leader = leaders[partition]
        if leader is not None:
            by_leader.setdefault(leader.node, []).append(LeaderRequestEntry(partition, value, leader.epoch))
    return by_leader


def _error_for_partition(
    code: int, operation: str, partition: TopicPartition, broker: str | None = None
) -> KafkaDirectError:
    return error_for(code, operation, topic=partition.topic, partition=partition.partition, broker=broker)
