"""Offsets by sentinel or by time: one ListOffsets request for all partitions that a broker leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import ProtocolError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.settings.fetch import ISOLATION_LEVELS
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.leaders import Answer, Entry
from pyspark_kafka_direct.wire.messages import LIST_OFFSETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_kafka_direct.settings.fetch import IsolationLevel
    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.deadline import Deadline


class ListOffsets:
    """The question for offsets, as ``ask_leaders`` asks it.

    Its values are -2 for the log start, -1 for the end, else a time in milliseconds.

    Args:
        isolation_level: Whether the end of a log is the high watermark or the last stable offset.
        timeout_ms: How long a broker may look.
    """

    doing = "listing offsets"

    def __init__(self, isolation_level: IsolationLevel, timeout_ms: int) -> None:
        self._isolation_level: IsolationLevel = isolation_level
        self._timeout_ms = timeout_ms

    def is_slow(self, values: Iterable[int]) -> bool:
        """Tell whether a time is looked for: that may mean to search a log, which takes long."""
        return any(position >= 0 for position in values)

    def submit(self, connection: Connection, entries: Sequence[Entry[int]], deadline: Deadline) -> None:
        """See ``ask_offsets``."""
        ask_offsets(connection, entries, self._isolation_level, self._timeout_ms, deadline)

    def complete(self, connection: Connection, entries: Sequence[Entry[int]], deadline: Deadline) -> Answer[int]:
        """See ``offsets_answer``. Every log has a start and an end; only a time may have no offset."""
        answered, codes = offsets_answer(connection, [entry.partition for entry in entries], deadline)
        found: dict[TopicPartition, int] = {}
        for partition, position, _ in entries:
            if partition in answered and answered[partition] < 0 and position in (EARLIEST, LATEST):
                codes[partition] = ErrorCode.OFFSET_NOT_AVAILABLE
            elif partition in answered:
                found[partition] = answered[partition]
        return Answer(found, codes)


def ask_offsets(
    connection: Connection,
    entries: Iterable[Entry[int]],
    isolation_level: IsolationLevel,
    timeout_ms: int,
    deadline: Deadline,
) -> None:
    """Send the ListOffsets request for some partitions, all led by the connection's broker.

    Args:
        connection: The connection.
        entries: What to ask of each partition; see ``ListOffsets``.
        isolation_level: See ``ListOffsets``.
        timeout_ms: How long the broker may look.
        deadline: End of the wait until it is sent.

    Raises:
        BrokerError: The connection broke, or the broker speaks no version that will do.
    """
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, partition), position, leader_epoch in entries:
        topics.setdefault(topic, []).append(
            {"partition_index": partition, "current_leader_epoch": leader_epoch, "timestamp": position}
        )
    wanted = {
        "replica_id": -1,
        "isolation_level": ISOLATION_LEVELS[isolation_level],
        "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
        "timeout_ms": timeout_ms,
    }
    connection.submit(LIST_OFFSETS, wanted, deadline)


def offsets_answer(
    connection: Connection, asked: Iterable[TopicPartition], deadline: Deadline
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Wait for the answer to ``ask_offsets``.

    Args:
        connection: The connection the request was sent on.
        asked: The partitions in it.
        deadline: End of the wait.

    Returns:
        Offsets of the partitions that have one (-1: no record is as new as asked), and error codes of the others.

    Raises:
        BrokerError: No answer, or one that cannot be understood or lacks a partition.
    """
    response = connection.complete(LIST_OFFSETS, deadline)
    found: dict[TopicPartition, int] = {}
    failed: dict[TopicPartition, int] = {}
    for topic in response.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            if entry.error_code:
                failed[partition] = entry.error_code
            else:
                found[partition] = entry.offset
    for partition in asked:
        if partition not in found and partition not in failed:
            connection.close()
            raise ProtocolError(
                "The answer to ListOffsets lacks a partition.",
                topic=partition.topic,
                partition=partition.partition,
                broker=connection.broker,
            )
    return found, failed
