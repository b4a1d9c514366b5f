"""An offset store that cannot be opened, on a simulated cluster."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.log.store_cluster import PARTITION, StoreCluster

from pyspark_kafka_direct.errors import OptionError, TopicNotFoundError, TopicRecreatedError
from pyspark_kafka_direct.log import log_clients
from pyspark_kafka_direct.log.kafka_offset_store import KafkaOffsetStore
from pyspark_kafka_direct.offsets import OffsetRange

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


@pytest.mark.parametrize(
    ("topics", "default", "message"),
    [("t", "newest", "default must be earliest or latest, got 'newest'"), (" , ", "latest", "topics must name")],
)
def test_starting_offsets_need_topics_and_a_default(
    cluster: StoreCluster, topics: str, default: Any, message: str
) -> None:
    with store() as opened, pytest.raises(OptionError, match=message):
        opened.starting_offsets_json(topics, default=default)


def test_starting_offsets_of_partitions_without_saved_ones(cluster: StoreCluster) -> None:
    cluster.cluster.create_topic("other", 1)
    with store() as opened:
        opened.save({PARTITION: 7})
        latest = opened.starting_offsets_json("t, other", default="latest")
        assert json.loads(latest) == {"t": {"0": 7, "1": -2}, "other": {"0": -1}}
        assert json.loads(opened.starting_offsets_json(["other"])) == {"other": {"0": -2}}
        assert json.loads(opened.starting_offsets_json(["other"], "-1h")) == {"other": {"0": "-1h"}}
        with pytest.raises(TopicNotFoundError) as caught:
            opened.starting_offsets_json(["t", "missing"])
        assert caught.value.topic == "missing"


def test_a_store_belongs_to_one_process(cluster: StoreCluster) -> None:
    with store() as opened, pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(opened)


def test_batches_of_a_direct_stream_are_saved(cluster: StoreCluster) -> None:
    rdd = SimpleNamespace(offsetRanges=lambda: [OffsetRange("t", 0, 3, 8)])
    processed: list[object] = []
    with store() as opened:
        opened.foreach_rdd(processed.append)(rdd)
        assert (processed, opened.load()) == ([rdd], {PARTITION: 8})
        assert callable(opened.foreach_batch(lambda *_: None, "checkpoint"))
