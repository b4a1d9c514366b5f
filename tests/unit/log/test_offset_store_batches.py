"""End offsets in the checkpoint of a query, and batches of a direct stream that are contiguous or not."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError
from pyspark_kafka_direct.log import offset_store_batches
from pyspark_kafka_direct.log.offset_store_batches import (
    OffsetSavingBatchFunction,
    parse_end_offsets,
    process_and_save,
)
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

A0, A1, B0, C0 = (TopicPartition(*each) for each in (("a", 0), ("a", 1), ("b", 0), ("c", 0)))
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def entry(*lines: str, version: str = "v1") -> str:
    return "\n".join([version, METADATA, *lines])


@pytest.mark.parametrize(
    ("offset_log_entry", "end_offsets"),
    [
        (entry('{"a":{"0":5,"1":0},"b":{"0":7}}'), {A0: 5, A1: 0, B0: 7}),
        (entry('{"a": {"0": 5}, "(start)": {}}'), {A0: 5}),
        (entry('{"a":{"0":5}}', "-", '{"b":{"0":7}}'), {A0: 5, B0: 7}),
        (entry('{"a":{"0":5,"1":2}}', '{"a":{"0":3,"1":4}}'), {A0: 3, A1: 2}),
        (entry('{"logOffset":0}', "17", '{"0":{"value":1,"runTimeMs":2}}', '{"a":{"0":5}}', '"x"'), {A0: 5}),
        (entry('{"sourceVersion":1,"reservoirId":"x"}', '{"a":{"0":5}}'), {A0: 5}),
        (entry('0:{"a":{"0":5}}', '1:{"b":{"0":6}}', "2:-", version="v2"), {A0: 5, B0: 6}),
        (entry('my source:{"a":{"0":5}}', version="v2"), {A0: 5}),
    ],
    ids=["one", "start", "no-offset", "lowest", "other-sources", "delta", "v2", "v2-named"],
)
def test_end_offsets_of_a_batch(offset_log_entry: str, end_offsets: dict[TopicPartition, int]) -> None:
    assert parse_end_offsets(offset_log_entry, "offsets/7") == end_offsets


@pytest.mark.parametrize(
    ("offset_log_entry", "message"),
    [
        (entry('{"a":{"0":5}}', version="v3"), "offsets/7 has version 'v3', but only v1 and v2 are supported"),
        ("", "offsets/7 has version ''"),
        (entry('{"logOffset":0}', "-"), "offsets/7 has no offsets of a Kafka source"),
        ("v1", "offsets/7 has no offsets of a Kafka source"),
    ],
    ids=["v3", "empty", "no-kafka", "truncated"],
)
def test_an_invalid_offset_log_entry_is_an_error(offset_log_entry: str, message: str) -> None:
    with pytest.raises(InvalidOffsetsError, match=message):
        parse_end_offsets(offset_log_entry, "offsets/7")


class MemoryOffsetStore:
    """An offset store that records its saves."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self.saves: list[dict[TopicPartition, int]] = []

    def load(self) -> dict[TopicPartition, int]:
        return dict(self.offsets)

    def save(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets.update(offsets)
        self.saves.append(dict(offsets))


class FakeKafkaRDD:
    def __init__(self, *ranges: OffsetRange) -> None:
        self._ranges = list(ranges)

    def offsetRanges(self) -> list[Any]:
        return self._ranges


def test_contiguous_batches_are_saved() -> None:
    store, processed = MemoryOffsetStore(), list[Any]()
    process_and_save(store, processed.append, FakeKafkaRDD(OffsetRange("a", 0, 5, 8), OffsetRange("a", 1, 0, 0)))
    process_and_save(
        store,
        processed.append,
        FakeKafkaRDD(OffsetRange("a", 0, 8, 9), OffsetRange("a", 1, 0, 2), OffsetRange("b", 0, 0, 1)),
    )
    assert store.offsets == {A0: 9, A1: 2, B0: 1}
    assert len(processed) == 2


@pytest.mark.parametrize("known", [(), (A0,), (B0, A1), (A0, A1, B0)])
def test_start_offsets_are_saved_before_the_first_batch_of_a_partition(known: tuple[TopicPartition, ...]) -> None:
    store = MemoryOffsetStore()
    starts = {A0: 5, A1: 2, B0: 1}
    store.offsets = {tp: starts[tp] for tp in known}

    def fail(_: Any) -> None:
        assert store.offsets == starts
        raise RuntimeError("died")

    with pytest.raises(RuntimeError):
        process_and_save(store, fail, FakeKafkaRDD(*(OffsetRange(*tp, start, 8) for tp, start in starts.items())))
    assert store.offsets == starts


def test_a_batch_after_a_failed_one_is_rejected() -> None:
    """Otherwise its end would be saved and the failed batch lost."""
    store, processed = MemoryOffsetStore(), list[Any]()
    store.offsets = {A0: 5, A1: 1}
    with pytest.raises(InvalidOffsetsError, match=r"starts at offset 8, but the offset store is at 5") as caught:
        process_and_save(store, processed.append, FakeKafkaRDD(OffsetRange("a", 1, 1, 2), OffsetRange("a", 0, 8, 9)))
    assert (caught.value.topic, caught.value.partition) == A0
    assert not processed
    assert not store.saves


class QueryOnCheckpoint:
    """A query that calls a function for each batch, and its checkpoint's files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: MemoryOffsetStore) -> None:
        self.files = {"metadata": '{"id":"query"}'}
        self.properties = {"sql.streaming.queryId": "query", "spark.jobGroup.id": "run"}
        self.processed: list[int] = []
        files = SimpleNamespace(path=lambda name: f"checkpoint/{name}", read=self.files.get)
        monkeypatch.setattr(offset_store_batches, "CheckpointFiles", lambda *_: files)
        self._function = OffsetSavingBatchFunction(
            store, lambda _, number: self.processed.append(number), "s3x://key:cret@b/c/"
        )

    def run(self, batch_id: int, **ends: int) -> None:
        """``run(7, a=5)``: a batch that ends at offset 5 of partition 0 of the topic ``a``."""
        offsets = {topic: {"0": offset} for topic, offset in ends.items()}
        self.files[f"offsets/{batch_id}"] = entry(json.dumps(offsets))
        self.call(batch_id)

    def call(self, batch_id: int) -> None:
        context = SimpleNamespace(getLocalProperty=self.properties.get)
        frame: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
        self._function.run(frame, batch_id)


@pytest.fixture
def store() -> MemoryOffsetStore:
    return MemoryOffsetStore()


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch, store: MemoryOffsetStore) -> QueryOnCheckpoint:
    return QueryOnCheckpoint(monkeypatch, store)


def test_the_end_offsets_of_each_batch_are_saved(query: QueryOnCheckpoint, store: MemoryOffsetStore) -> None:
    query.run(0, a=5)
    query.run(1, a=7, b=2)
    assert store.saves == [{A0: 5}, {A0: 7, B0: 2}]
    assert query.processed == [0, 1]
    with pytest.raises(OptionError, match="checkpoint/offsets/2 does not exist"):
        query.call(2)


@pytest.mark.parametrize(
    ("stored", "batch_id", "differing"),
    [
        ({}, 0, None),
        ({A0: 5}, 0, None),
        ({A0: 6, A1: 9}, 0, 'resumes at {"a":{"0":5}}, and the offset store is at {"a":{"0":6}}'),
        ({A1: 9, A0: 6}, 0, 'resumes at {"a":{"0":5}}, and the offset store is at {"a":{"0":6}}'),
        ({A0: 3, A1: 9}, 1, None),
        ({A0: 5}, 1, None),
        ({A0: 4, B0: 1}, 1, 'resumes at {"a":{"0":3}}, and the offset store is at {"a":{"0":4}}'),
        (
            {A0: 4, C0: 2},
            1,
            'resumes at {"a":{"0":3},"c":{"0":1}}, and the offset store is at {"a":{"0":4},"c":{"0":2}}',
        ),
    ],
)
def test_other_offsets_in_the_store_than_in_the_checkpoint_are_logged_once(
    query: QueryOnCheckpoint,
    store: MemoryOffsetStore,
    caplog: pytest.LogCaptureFixture,
    stored: dict[TopicPartition, int],
    batch_id: int,
    differing: str | None,
) -> None:
    store.offsets = stored
    query.files["offsets/0"] = entry('{"a":{"0":3},"c":{"0":1}}')
    query.run(batch_id, a=5)
    assert (f"The checkpoint s3x://key:***@b/c {differing}" in caplog.text) == (differing is not None)
    assert len(caplog.records) == (differing is not None)
    store.offsets[A0] = 99
    query.run(batch_id + 1, a=7)
    assert len(caplog.records) == (differing is not None), "only at the start of each run"


def test_the_checkpoint_is_checked_once_in_each_run(
    query: QueryOnCheckpoint, store: MemoryOffsetStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The same function may be used for several runs: a query is restarted, and its checkpoint may be replaced."""
    for run in range(3):
        query.properties["spark.jobGroup.id"] = f"run {run}"
        for number in range(2):
            store.offsets = {A0: 99}
            query.run(2 * run + number, a=5)
        assert len(caplog.records) == run + 1
    query.properties["spark.jobGroup.id"] = "last run"
    query.files["metadata"] = '{"id":"other"}'
    with pytest.raises(OptionError, match="is the checkpoint of query other"):
        query.run(6, a=5)
    assert query.processed == [*range(6)]


@pytest.mark.parametrize(("metadata", "query_id", "is_other"), [("other", "query", True), ("other", None, False)])
def test_a_checkpoint_of_another_query_is_an_error(
    query: QueryOnCheckpoint, metadata: str, query_id: str | None, is_other: bool
) -> None:
    query.files["metadata"] = json.dumps({"id": metadata})
    query.properties["sql.streaming.queryId"] = query_id  # type: ignore[assignment]
    message = r"^s3x://key:\*\*\*@b/c is the checkpoint of query other, but"
    with pytest.raises(OptionError, match=message) if is_other else nullcontext():
        query.run(0, a=5)
    assert query.processed == [] if is_other else [0]
