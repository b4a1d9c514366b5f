"""An offset store that cannot be opened."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.log.fake_offset_store import FakeCompactedPartition, FakeSession, FakeStoreTopic

from pyspark_kafka_direct.errors import TopicRecreatedError
from pyspark_kafka_direct.log import kafka_offset_store, log_clients
from pyspark_kafka_direct.log.kafka_offset_store import KafkaOffsetStore
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection

PARTITION = TopicPartition("flights", 0)


class TrackedSession(FakeSession):
    """Records which sessions are open."""

    def __init__(self, topic: FakeStoreTopic, open_sessions: list[TrackedSession]) -> None:
        super().__init__(topic)
        self._open_sessions = open_sessions
        open_sessions.append(self)

    def close(self) -> None:
        if self in self._open_sessions:
            self._open_sessions.remove(self)


class ExistingPartition(FakeCompactedPartition):
    """The topic exists."""

    def ensure_topic(self, *_: object, **__: object) -> None:
        """Do nothing."""


class StoreWorld:
    """The store's topic, and a cluster whose brokers may not agree on the id of the topic that the query reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topic = FakeStoreTopic()
        self.open_sessions: list[TrackedSession] = []
        self.topic_id = UUID(int=2)
        self.stale_id: UUID | None = None  # what the broker reports that responds first
        cluster = SimpleNamespace(
            pool=SimpleNamespace(system=FakeTimeSystem()),
            deadline=lambda *_: None,
            topics=self._topics,
            confirm_missing=lambda suspects: {tp for tp, topic_id in suspects.items() if topic_id != self.topic_id},
        )
        monkeypatch.setattr(log_clients, "ClusterClient", lambda *_: cluster)
        monkeypatch.setattr(kafka_offset_store, "CompactedPartition", lambda *_: ExistingPartition(self.topic))
        monkeypatch.setattr(
            kafka_offset_store, "TransactionalProducer", lambda *_: TrackedSession(self.topic, self.open_sessions)
        )

    def _topics(self, names: Collection[str], **_: object) -> dict[str, Any]:
        ids = {"offsets": UUID(int=1), "flights": self.stale_id or self.topic_id}
        return {name: SimpleNamespace(topic_id=ids[name], partitions={0: None}) for name in names}

    def store(self, **options: Any) -> KafkaOffsetStore:
        return KafkaOffsetStore("offsets", "q", {"bootstrap.servers": "broker:9092"}, **options)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> StoreWorld:
    return StoreWorld(monkeypatch)


def test_a_store_that_cannot_be_opened_closes_its_connections(world: StoreWorld) -> None:
    with world.store() as first:
        first.save({PARTITION: 7})
        assert len(world.open_sessions) == 1
    world.topic_id = UUID(int=3)
    second = world.store()
    for _ in range(2):
        with pytest.raises(TopicRecreatedError), second:
            pass
        assert world.open_sessions == [], "``with`` does not close a store that was not opened"


@pytest.mark.parametrize("on_topic_recreated", ["error", "discard"])
def test_one_broker_with_another_topic_id_discards_no_offsets(world: StoreWorld, on_topic_recreated: str) -> None:
    """A broker whose metadata lagged was enough: the query failed, or read everything again."""
    with world.store() as first:
        first.save({PARTITION: 7})
    world.stale_id = UUID(int=99)
    with world.store(on_topic_recreated=on_topic_recreated) as second:
        assert second.load() == {PARTITION: 7}
        second.save({PARTITION: 9})
    world.stale_id = None
    with world.store() as third:
        assert third.load() == {PARTITION: 9}, "the offsets were saved with the topic's own id"
