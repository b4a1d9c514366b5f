"""An offset store that cannot be opened, on a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.log.store_cluster import PARTITION, StoreCluster

from pyspark_kafka_direct.errors import TopicRecreatedError
from pyspark_kafka_direct.log import log_clients
from pyspark_kafka_direct.log.kafka_offset_store import KafkaOffsetStore

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreCluster]:
    with StoreCluster() as cluster:
        monkeypatch.setattr(log_clients, "ClusterClient", lambda *_: cluster.client())
        yield cluster


def store(**options: Any) -> KafkaOffsetStore:
    return KafkaOffsetStore("offsets", "q", {"bootstrap.servers": "broker:9092"}, **options)


def test_a_store_that_cannot_be_opened_closes_its_connections(cluster: StoreCluster) -> None:
    """The fixture checks that none is left: ``with`` does not close a store that was not opened."""
    with store() as first:
        first.save({PARTITION: 7})
    cluster.event("recreate_topic", topic="t", partitions=2)
    second = store()
    for _ in range(2):
        with pytest.raises(TopicRecreatedError), second:
            pass


@pytest.mark.parametrize("on_topic_recreated", ["error", "discard"])
def test_one_broker_with_another_topic_id_discards_no_offsets(cluster: StoreCluster, on_topic_recreated: str) -> None:
    """A broker whose metadata lagged was enough: the query failed, or read everything again."""
    lagging = cluster.cluster.brokers[2]
    outdated = lagging.image
    cluster.event("recreate_topic", topic="t", partitions=2)
    with store() as first:
        first.save({PARTITION: 7})
    lagging.image = outdated
    with store(on_topic_recreated=on_topic_recreated) as second:
        assert second.load() == {PARTITION: 7}
        second.save({PARTITION: 9})
    cluster.heal()
    with store() as third:
        assert third.load() == {PARTITION: 9}, "the offsets were saved with the topic's own id"
