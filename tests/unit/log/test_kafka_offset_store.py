"""An offset store that cannot be opened."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.log.fake_offset_store import FakeCompactedPartition, FakeSession, FakeStoreTopic

from pyspark_kafka_direct.errors import TopicRecreatedError
from pyspark_kafka_direct.log import kafka_offset_store
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


def test_a_store_that_cannot_be_opened_closes_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    topic, ids, open_sessions = (
        FakeStoreTopic(),
        {"offsets": UUID(int=1), "flights": UUID(int=2)},
        list[TrackedSession](),
    )

    def topics(names: Collection[str], **_: object) -> dict[str, Any]:
        return {name: SimpleNamespace(topic_id=ids[name], partitions={0: None}) for name in names}

    cluster = SimpleNamespace(pool=SimpleNamespace(system=FakeTimeSystem()), deadline=lambda *_: None, topics=topics)
    monkeypatch.setattr(kafka_offset_store, "ClusterClient", lambda *_: cluster)
    monkeypatch.setattr(kafka_offset_store, "CompactedPartition", lambda *_: ExistingPartition(topic))
    monkeypatch.setattr(kafka_offset_store, "TransactionalProducer", lambda *_: TrackedSession(topic, open_sessions))

    def store() -> KafkaOffsetStore:
        return KafkaOffsetStore("offsets", "q", {"bootstrap.servers": "broker:9092"})

    with store() as first:
        first.save({PARTITION: 7})
        assert len(open_sessions) == 1
    ids["flights"] = UUID(int=3)
    second = store()
    for _ in range(2):
        with pytest.raises(TopicRecreatedError), second:
            pass
        assert open_sessions == [], "``with`` does not close a store that was not opened"
