"""Moves leaders between three brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.leader_requests import LeaderRequestEntry, receive_list_offsets, send_list_offsets
from pyspark_kafka_direct.offsets import LATEST, TopicPartition

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench

NODES = (1, 2, 3)


def address(bench: Workbench, node: int) -> str:
    return bench.bootstrap_servers.split(",")[node - 1]


def move(bench: Workbench, topic: str, replicas: list[int]) -> None:
    """Reassigns partition 0 to these replicas; the first one is the leader, and the only one that responds."""
    bench.reassign(topic, replicas)
    # Metadata is ahead of the brokers: the old leader may still serve for a moment.
    bench.wait_until(
        lambda: [node for node in NODES if serves(bench, node, topic)] == replicas[:1], "only the new leader responds"
    )


def serves(bench: Workbench, node: int, topic: str) -> bool:
    """Whether a broker responds as the leader of partition 0."""
    host, port = address(bench, node).split(":")
    deadline = Deadline.after(30)
    tp = TopicPartition(topic, 0)
    connection = Connection.open(bench.settings().connection, host, int(port), deadline)
    try:
        send_list_offsets(connection, [LeaderRequestEntry(tp, LATEST, -1)], "read_uncommitted", 30_000, deadline)
        offsets, _ = receive_list_offsets(connection, [tp], deadline)
        return tp in offsets
    finally:
        connection.close()
