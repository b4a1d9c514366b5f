"""What a client knows after some responses with metadata."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from pyspark_kafka_direct.client.metadata import (
    ClusterMetadata,
    MetadataSnapshot,
    Node,
    PartitionLeader,
    PartitionMetadata,
    TopicMetadata,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.data_loss import EpochFloors

TOPIC_ID = UUID(int=7)
NODE = Node(1, "b1", 9092)


def topic(*epochs: int, topic_id: UUID | None = TOPIC_ID, name: str = "flights") -> TopicMetadata:
    return TopicMetadata(
        name,
        topic_id,
        internal=False,
        partitions={
            number: PartitionMetadata(number, 1, epoch, replicas=(1, 2)) for number, epoch in enumerate(epochs)
        },
    )


def received(
    *topics: TopicMetadata,
    since: MetadataSnapshot | None = None,
    names: tuple[str, ...] | None = ("flights",),
    floors: EpochFloors | None = None,
    now: float = 100.0,
) -> MetadataSnapshot:
    response = ClusterMetadata({1: NODE}, {each.name: each for each in topics}, {}, "cluster")
    return (since or MetadataSnapshot()).updated(response, names, floors or EpochFloors(), now)


@pytest.mark.parametrize(
    ("known", "response", "expected"),
    [
        (None, topic(1, 2), [1, 2]),
        (topic(3, 1), topic(2, 2), [3, 2]),
        (topic(3), topic(2, 2), [3, 2]),
        (topic(3, 9), topic(4), [4]),
        (topic(9), topic(0, topic_id=UUID(int=8)), [0]),  # recreated: epochs restart at 0
        (topic(9, topic_id=None), topic(0, topic_id=None), [0]),  # maybe recreated
    ],
)
def test_each_partition_has_the_leader_of_the_highest_epoch(
    known: TopicMetadata | None, response: TopicMetadata, expected: list[int]
) -> None:
    snapshot = received(response, since=None if known is None else received(known))
    partitions = snapshot.topics(["flights"])["flights"].partitions
    assert [partition.leader_epoch for partition in partitions.values()] == expected


@pytest.mark.parametrize("epoch", [-1, 0, 4])
def test_of_one_epoch_the_latest_response_counts(epoch: int) -> None:
    """A leader may have been unknown, and replicas move, without another epoch."""
    first, second = topic(epoch, epoch), topic(epoch, epoch)
    first.partitions[1] = replace(first.partitions[1], leader=None, replicas=(1, 2, 3))
    second.partitions[0] = replace(second.partitions[0], leader=None, offline_replicas=(2,))
    assert received(second, since=received(first)).topics(["flights"]) == {"flights": second}


def test_the_brokers_are_those_of_the_last_response() -> None:
    moved, added = Node(1, "b9", 9092), Node(3, "b3", 9092, rack="r")
    snapshot = received(topic(1))
    for nodes in ({1: NODE, 2: Node(2, "b2", 9092)}, {1: moved, 3: added}, {}):
        snapshot = snapshot.updated(ClusterMetadata(nodes, {}, {}, "cluster"), (), EpochFloors(), 1.0)
        assert snapshot.nodes == nodes
    assert snapshot.topics(["flights"]) == {"flights": topic(1)}
    assert snapshot.leaders([TopicPartition("flights", 0)]) == {}


def test_a_deposed_leader_is_none() -> None:
    floors = EpochFloors()
    floors.raise_to(TopicPartition("flights", 1), TOPIC_ID, 6)
    snapshot = received(topic(5, 5, 7), floors=floors)
    partitions = [TopicPartition("flights", number) for number in range(4)]
    assert snapshot.leaders(partitions) == {
        partitions[0]: PartitionLeader(NODE, 5),
        partitions[2]: PartitionLeader(NODE, 7),
    }
    assert [each and each.replicas for each in map(snapshot.partition, partitions)] == [(1, 2)] * 3 + [None]


def test_topics_are_removed_if_they_were_requested_and_are_missing() -> None:
    assert not MetadataSnapshot().was_reached
    both = received(topic(1), topic(2, name="trains"), names=None)
    assert both.was_reached
    later = received(topic(3), since=both, now=200.0)
    assert later.topics(["flights", "trains", "ships"]) == {"flights": topic(3), "trains": topic(2, name="trains")}
    assert later.topics(["flights", "trains"], received_since=150.0) == {"flights": topic(3)}
    assert received(since=later).topics(["flights", "trains"]) == {"trains": topic(2, name="trains")}
    assert received(since=later, names=None).topics(["flights", "trains"]) == {}
    assert later.without_topic("flights").without_topic("flights").topics(["flights"]) == {}
    three = received(topic(4, name="ships"), since=later, names=("ships",))
    for name in ("flights", "trains", "ships"):
        assert three.without_topic(name).cached_topics.keys() == {"flights", "trains", "ships"} - {name}
    assert later.topics(["flights"]) == {"flights": topic(3)}, "a snapshot does not change"
