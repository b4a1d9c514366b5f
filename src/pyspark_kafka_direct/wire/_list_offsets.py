"""Offsets by sentinel or by time: one ListOffsets request for all partitions that a broker leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.errors import ProtocolError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire.messages import LIST_OFFSETS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.deadline import Deadline

_ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}


class Question(NamedTuple):
    """What to ask about one partition.

    Attributes:
        partition: The topic-partition.
        position: -2 for the log start, -1 for the end, else a time in milliseconds.
        leader_epoch: Epoch of the leader we believe in; the broker refuses if it knows another (KIP-320). -1: any.
    """

    partition: TopicPartition
    position: int
    leader_epoch: int


def ask_offsets(connection: Connection, questions: Iterable[Question], timeout_ms: int, deadline: Deadline) -> None:
    """Send the ListOffsets request for some partitions, all led by the connection's broker.

    Raises:
        BrokerError: The connection broke, or the broker speaks no version that will do.
    """
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, partition), position, leader_epoch in questions:
        topics.setdefault(topic, []).append(
            {"partition_index": partition, "current_leader_epoch": leader_epoch, "timestamp": position}
        )
    wanted = {
        "replica_id": -1,
        "isolation_level": _ISOLATION_LEVELS[connection.settings.isolation_level],
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
