"""An offset store that cannot be opened, on a simulated cluster."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.log.store_cluster import OTHER_TOPIC, PARTITION, StoreCluster

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError, TopicNotFoundError, TopicRecreatedError
from pyspark_kafka_direct.log import log_clients
from pyspark_kafka_direct.log.kafka_offset_store import KafkaOffsetStore
from pyspark_kafka_direct.log.log_clients import LogClients
from pyspark_kafka_direct.log.log_topic import parse_topic_spec
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.options.option_messages import warn_once

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreCluster]:
    with StoreCluster() as cluster:
        monkeypatch.setattr(log_clients, "ClusterClient", lambda *_: cluster.client())
        yield cluster


OFFSETS = {PARTITION: 7, TopicPartition("t", 1): 5, OTHER_TOPIC: 8}


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
    for topic in "tu":
        cluster.event("recreate_topic", topic=topic, partitions=2)
    with store() as first:
        first.save(OFFSETS)
    lagging.image = outdated
    with store(on_topic_recreated=on_topic_recreated) as second:
        assert second.load() == OFFSETS
        second.save({PARTITION: 9, OTHER_TOPIC: 10})
    cluster.heal()
    with store() as third:
        expected = OFFSETS | {PARTITION: 9, OTHER_TOPIC: 10}
        assert third.load() == expected, "the offsets were saved with the topics' own ids"


@pytest.mark.parametrize("recreated", ["t", "u", "tu"])
def test_the_offsets_of_recreated_topics_are_discarded(
    cluster: StoreCluster, caplog: pytest.LogCaptureFixture, recreated: str
) -> None:
    with store() as first:
        first.save(OFFSETS)
    for topic in recreated:
        cluster.event("recreate_topic", topic=topic, partitions=2)
    with pytest.raises(TopicRecreatedError) as caught, store():
        pass
    assert caught.value.topic == recreated[0]
    assert ('{"t":{"0":7,"1":5}}' if "t" in recreated else '{"u":{"0":8}}') in caught.value.message
    with store(on_topic_recreated="discard") as second:
        assert second.load() == {tp: offset for tp, offset in OFFSETS.items() if tp.topic not in recreated}
    assert [f'{{"{topic}":{{"0":' in caplog.text for topic in "tu"] == [topic in recreated for topic in "tu"]
    with store() as third:
        assert third.load() == {tp: offset for tp, offset in OFFSETS.items() if tp.topic not in recreated}


def test_added_partitions_of_each_topic_start_at_their_first_record(cluster: StoreCluster) -> None:
    with store() as first:
        first.save(OFFSETS)
    for topic in "tu":
        cluster.event("expand_topic", topic=topic)
    added = {TopicPartition("t", 2): 0, TopicPartition("u", 1): 0}
    with store() as second:
        starts = json.loads(second.starting_offsets_json("t,u", default="latest"))
        assert starts == {"t": {"0": 7, "1": 5, "2": -2}, "u": {"0": 8, "1": -2}}
        assert second.load(["t", "u"]) == OFFSETS | added
        assert second.load(["u"]) == {OTHER_TOPIC: 8, TopicPartition("u", 1): 0}
        second.save(added)
        second.delete(list(OFFSETS))
        assert second.load() == added


@pytest.mark.parametrize(("topic", "query", "name"), [(" ", "q", "topic"), ("offsets", "", "query")])
def test_a_store_needs_a_topic_and_a_query(topic: str, query: str, name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} must be a non-empty string"):
        KafkaOffsetStore(topic, query, {"bootstrap.servers": "broker:9092"})


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
        for key in ("t", ("", 0)):
            with pytest.raises(InvalidOffsetsError, match="keys must be TopicPartition"):
                opened.save({PARTITION: 9, key: 1})  # type: ignore[dict-item]
        latest = opened.starting_offsets_json("t, other", default="latest")
        assert json.loads(latest) == {"t": {"0": 7, "1": -2}, "other": {"0": -1}}
        assert json.loads(opened.starting_offsets_json(["other"])) == {"other": {"0": -2}}
        assert json.loads(opened.starting_offsets_json(["other"], "-1h")) == {"other": {"0": "-1h"}}
        with pytest.raises(TopicNotFoundError) as caught:
            opened.starting_offsets_json(["t", "missing"])
        assert caught.value.topic == "missing"


def test_all_fields_of_the_topic_are_checked_and_used() -> None:
    with pytest.raises(OptionError, match="create has no field 'compression'"):
        store(create={"partitions": 1, "compression": "zstd"})
    configs = {"segment.ms": 1000, "min.compaction.lag.ms": "7", "preallocate": True}
    expected = {"segment.ms": "1000", "min.compaction.lag.ms": "7", "preallocate": "true"}
    assert parse_topic_spec({"configs": configs}).configs == {"cleanup.policy": "compact", **expected}
    own = {"cleanup.policy": "compact,delete", "retention.ms": 1}
    assert parse_topic_spec({"configs": own}).configs == {"cleanup.policy": "compact,delete", "retention.ms": "1"}


def test_all_warnings_about_properties_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    LogClients.from_params({"bootstrap.servers": "broker:9092", "linger.ms": 5, "max.block.ms": 100}, read_only=True)
    assert len(caplog.messages) == 2


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
