"""Moves leaders between three brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as ClientPartition

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
    """Reassigns partition 0 to these replicas; the first one becomes the leader."""
    from kafka.protocol.admin.topics import AlterPartitionReassignmentsRequest as Request

    topic_class = Request.ReassignableTopic
    partition = topic_class.ReassignablePartition(partition_index=0, replicas=replicas)
    response = bench.ask(Request, topics=[topic_class(name=topic, partitions=[partition])], timeout_ms=30_000)
    assert response.error_code == 0
    assert [entry.error_code for each in response.responses for entry in each.partitions] == [0]
    bench.wait_until(lambda: set(bench.replicas(topic)) == set(replicas), "the replicas have moved")

    def leads() -> bool:
        if bench.leader(topic) == replicas[0]:
            return True
        bench.admin.elect_leaders(ElectionType.PREFERRED, [ClientPartition(topic, 0)]).result(30)
        return False

    bench.wait_until(leads, "the leader has moved")
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
