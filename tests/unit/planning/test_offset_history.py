"""The metadata of the last offsets: what is remembered, and how much."""

from __future__ import annotations

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.offset_reader import OffsetHistory, OffsetMetadata

PARTITIONS = [TopicPartition("t", 0), TopicPartition("u", 3)]


def test_the_last_few_offsets_are_remembered() -> None:
    """A stream puts one for each batch, for years."""
    history = OffsetHistory()
    metadata = [OffsetMetadata({}) for _ in range(1000)]
    for offset, each in enumerate(metadata):
        history.put(dict.fromkeys(PARTITIONS, offset), each)
    remembered = [offset for offset in range(1000) if history.get(dict.fromkeys(PARTITIONS, offset)) is not None]
    assert remembered == list(range(984, 1000))
    assert history.get(dict.fromkeys(PARTITIONS, 999)) is metadata[999]
    assert history.get({PARTITIONS[0]: 999}) is None


def test_an_offset_that_is_put_again_is_the_newest() -> None:
    history = OffsetHistory()
    for offset in (*range(16), 0, 16):
        history.put({PARTITIONS[0]: offset}, OffsetMetadata({}))
    assert history.get({PARTITIONS[0]: 0}) is not None
    assert history.get({PARTITIONS[0]: 1}) is None
