"""Three brokers, and leaders that move between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as ClientPartition

from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.wire._list_offsets import ask_offsets, offsets_answer
from pyspark_kafka_direct.wire.connection import Connection
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.leaders import Entry

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench

NODES = (1, 2, 3)


def address(bench: Workbench, node: int) -> str:
    return bench.bootstrap_servers.split(",")[node - 1]


def move(bench: Workbench, topic: str, replicas: list[int]) -> None:
    """Gives partition 0 other replicas, the first of them its leader."""
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
    # Metadata runs ahead of the brokers: the old leader may serve for a moment still.
    bench.wait_until(lambda: [node for node in NODES if serves(bench, node, topic)] == replicas[:1], "it serves alone")


def serves(bench: Workbench, node: int, topic: str) -> bool:
    """Whether a broker takes itself for the leader of partition 0."""
    host, port = address(bench, node).split(":")
    deadline = Deadline.after(30)
    place = TopicPartition(topic, 0)
    connection = Connection.open(bench.settings().connection, host, int(port), deadline)
    try:
        ask_offsets(connection, [Entry(place, LATEST, -1)], "read_uncommitted", 30_000, deadline)
        answered, _ = offsets_answer(connection, [place], deadline)
        return place in answered
    finally:
        connection.close()
