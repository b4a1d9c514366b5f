"""Random runs of queries with offset stores in one topic, while the topics that they read change."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
from tests.unit.log.store_cluster import StoreCluster

from pyspark_kafka_direct.errors import TopicNotFoundError, TopicRecreatedError
from pyspark_kafka_direct.log import KafkaOffsetStore, log_clients
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

Offsets = dict[TopicPartition, int]

TOPICS = ("t", "u", "v")
QUERIES = ("q", "q2", 'q","t')  # each name begins as the one before


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreCluster]:
    with StoreCluster() as cluster:
        monkeypatch.setattr(log_clients, "ClusterClient", lambda *_: cluster.client())
        cluster.cluster.create_topic("v", 3)
        yield cluster


def store(query: str, on_topic_recreated: Literal["error", "discard"] = "error") -> KafkaOffsetStore:
    return KafkaOffsetStore(
        "offsets", query, {"bootstrap.servers": "broker:9092"}, on_topic_recreated=on_topic_recreated
    )


class Model:
    """The saved offsets of each query, and the topics that were recreated since."""

    def __init__(self, cluster: StoreCluster, seed: int) -> None:
        self.rng = random.Random(seed)
        self._cluster = cluster
        self.saved: dict[str, Offsets] = {query: {} for query in QUERIES}
        self.recreated: dict[str, set[str]] = {query: set() for query in QUERIES}

    def partitions(self) -> list[TopicPartition]:
        counts = {topic: len(self._cluster.cluster.topics[topic].partitions) for topic in TOPICS}
        return [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]

    def change_topic(self) -> None:
        topic = self.rng.choice(TOPICS)
        if self.rng.random() < 0.5:
            self._cluster.event("expand_topic", topic=topic)
            return
        self._cluster.event("recreate_topic", topic=topic, partitions=self.rng.randint(1, 3))
        for query, offsets in self.saved.items():
            if topic in {tp.topic for tp in offsets}:
                self.recreated[query].add(topic)

    def check_recreated(self, query: str) -> None:
        """A store does not open before the offsets of recreated topics are discarded."""
        recreated = self.recreated[query]
        if not recreated:
            return
        with pytest.raises(TopicRecreatedError) as caught, store(query):
            pass
        topic = min(recreated)
        assert (caught.value.topic, caught.value.topic_id) == (topic, self._cluster.topic_id(topic))
        offsets = caught.value.message.split("saved: ")[1].split(". They")[0]
        assert json.loads(offsets) == {
            topic: {str(tp.partition): offset for tp, offset in self.saved[query].items() if tp.topic == topic}
        }
        self.saved[query] = {tp: offset for tp, offset in self.saved[query].items() if tp.topic not in recreated}
        recreated.clear()

    def run(self, query: str) -> None:
        """Run a query, which saves and deletes offsets."""
        saved = self.saved[query]
        with store(query, "discard") as opened:
            for _ in range(self.rng.randint(0, 4)):
                partitions = self.partitions()
                some = self.rng.sample(partitions, self.rng.randint(1, len(partitions)))
                if self.rng.random() < 0.7:
                    offsets = {tp: self.rng.randrange(100) for tp in some}
                    opened.save(offsets)
                    saved |= offsets
                else:
                    opened.delete(some)
                    for tp in some:
                        saved.pop(tp, None)
                assert opened.load() == saved
            self.check_starts(opened, saved)

    def check_starts(self, opened: KafkaOffsetStore, saved: Offsets) -> None:
        read = {tp.topic for tp in saved}
        topics = self.rng.sample(TOPICS, self.rng.randint(1, 3))
        existing = [tp for tp in self.partitions() if tp.topic in topics]
        assert opened.load(topics) == {tp: saved.get(tp, 0) for tp in existing if tp.topic in read}
        starts = json.loads(opened.starting_offsets_json(topics, default="latest"))
        assert starts == {
            topic: {
                str(tp.partition): saved.get(tp, -2 if topic in read else -1) for tp in existing if tp.topic == topic
            }
            for topic in topics
        }
        with pytest.raises(TopicNotFoundError) as caught:
            opened.starting_offsets_json([*topics, "missing"])
        assert caught.value.topic == "missing"


@pytest.mark.parametrize("seed", range(8))
def test_stores_have_the_offsets_that_their_queries_saved(cluster: StoreCluster, seed: int) -> None:
    model = Model(cluster, seed)
    for _ in range(12):
        if model.rng.random() < 0.4:
            model.change_topic()
            cluster.sleep(1)
        query = model.rng.choice(QUERIES)
        model.check_recreated(query)
        model.run(query)
