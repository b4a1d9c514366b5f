"""Where a batch ends, by the checkpoint of a query; batches of a direct stream that follow one another, or do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.errors import OffsetPlanError
from pyspark_kafka_direct.log._batches import parse_ends, run_and_save
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def entry(*lines: str, version: str = "v1") -> str:
    return "\n".join([version, METADATA, *lines])


@pytest.mark.parametrize(
    ("text", "ends"),
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
    ids=["one", "start", "void", "behind", "others", "delta", "v2", "v2-named"],
)
def test_where_a_batch_ends(text: str, ends: dict[TopicPartition, int]) -> None:
    assert parse_ends(text, "here") == ends


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (entry('{"a":{"0":5}}', version="v3"), "here is of version 'v3', and v1 and v2 are understood"),
        ("", "here is of version ''"),
        (entry('{"logOffset":0}', "-"), "here has no offsets of a Kafka source"),
        ("v1", "here has no offsets of a Kafka source"),
    ],
    ids=["v3", "empty", "no-kafka", "cut"],
)
def test_what_is_no_end_is_refused(text: str, message: str) -> None:
    with pytest.raises(OffsetPlanError, match=message):
        parse_ends(text, "here")


class Memory:
    """An offset store, and what it was told."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self.saves: list[dict[TopicPartition, int]] = []

    def load(self) -> dict[TopicPartition, int]:
        return dict(self.offsets)

    def save(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets.update(offsets)
        self.saves.append(dict(offsets))


class Batch:
    def __init__(self, *ranges: OffsetRange) -> None:
        self._ranges = list(ranges)

    def offsetRanges(self) -> list[Any]:
        return self._ranges


def test_batches_that_follow_one_another_are_saved() -> None:
    store, done = Memory(), list[Any]()
    run_and_save(store, done.append, Batch(OffsetRange("a", 0, 5, 8), OffsetRange("a", 1, 0, 0)))
    run_and_save(
        store, done.append, Batch(OffsetRange("a", 0, 8, 9), OffsetRange("a", 1, 0, 2), OffsetRange("b", 0, 0, 1))
    )
    assert store.offsets == {A0: 9, A1: 2, B0: 1}
    assert len(done) == 2


def test_where_a_stream_begins_is_saved_before_its_first_batch() -> None:
    store = Memory()

    def fail(_: Any) -> None:
        assert store.offsets == {A0: 5}
        raise RuntimeError("died")

    with pytest.raises(RuntimeError):
        run_and_save(store, fail, Batch(OffsetRange("a", 0, 5, 8)))
    assert store.offsets == {A0: 5}


def test_a_batch_after_one_that_failed_is_refused() -> None:
    """Or its end would be saved, and the failed one lost."""
    store, done = Memory(), list[Any]()
    store.offsets = {A0: 5, A1: 1}
    with pytest.raises(
        OffsetPlanError, match=r"begins at offset 8, and 5 is the next one by the offset store"
    ) as caught:
        run_and_save(store, done.append, Batch(OffsetRange("a", 1, 1, 2), OffsetRange("a", 0, 8, 9)))
    assert (caught.value.topic, caught.value.partition) == A0
    assert not done
    assert not store.saves
