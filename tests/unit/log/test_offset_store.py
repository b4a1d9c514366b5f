"""An offset store that cannot be opened, in a made-up topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.unit.log.brokers import Partition, Session, Topic
from tests.unit.wire.systems import Frozen

from pyspark_kafka_direct.errors import TopicRecreatedError
from pyspark_kafka_direct.log import offset_store
from pyspark_kafka_direct.log.offset_store import KafkaOffsetStore
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection

READ = TopicPartition("flights", 0)


class Closing(Session):
    """Tells which sessions are open."""

    def __init__(self, topic: Topic, open_ones: list[Closing]) -> None:
        super().__init__(topic)
        self._open_ones = open_ones
        open_ones.append(self)

    def close(self) -> None:
        if self in self._open_ones:
            self._open_ones.remove(self)


class There(Partition):
    """The topic is as it should be."""

    def ensure(self, *_: object, **__: object) -> None:
        """Nothing to do."""


def test_a_store_that_cannot_be_opened_gives_its_connections_back(monkeypatch: pytest.MonkeyPatch) -> None:
    log, ids, open_ones = Topic(), {"offsets": UUID(int=1), "flights": UUID(int=2)}, list[Closing]()

    def topics(names: Collection[str], **_: object) -> dict[str, Any]:
        return {name: SimpleNamespace(topic_id=ids[name], partitions={0: None}) for name in names}

    cluster = SimpleNamespace(pool=SimpleNamespace(system=Frozen()), deadline=lambda *_: None, topics=topics)
    monkeypatch.setattr(offset_store, "Cluster", lambda *_: cluster)
    monkeypatch.setattr(offset_store, "CompactedPartition", lambda *_: There(log))
    monkeypatch.setattr(offset_store, "TransactionalSession", lambda *_: Closing(log, open_ones))

    def store() -> KafkaOffsetStore:
        return KafkaOffsetStore("offsets", "q", {"bootstrap.servers": "broker:9092"})

    with store() as first:
        first.save({READ: 7})
        assert len(open_ones) == 1
    ids["flights"] = UUID(int=3)
    second = store()
    for _ in range(2):
        with pytest.raises(TopicRecreatedError), second:
            pass
        assert open_ones == [], "nobody closes a store that was not opened"
