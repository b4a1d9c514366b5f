"""From rows to record batches: topics, their order, what is open, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.unit.records.encoding import HEADERS

from pyspark_kafka_direct.errors import ColumnError, TopicNotFoundError
from pyspark_kafka_direct.records import EncodedBatch, create_decoder
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.wire.cluster import TopicMetadata
from pyspark_kafka_direct.writing.rows import RowWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Topics:
    """A cluster that knows topics and their partitions, and counts what it is asked."""

    def __init__(self, **partitions: int) -> None:
        self.partitions = partitions
        self.asked: list[str] = []

    def topics(self, names: Iterable[str]) -> dict[str, Any]:
        self.asked += names
        return {name: self._metadata(name) for name in self.asked if name in self.partitions}

    def all_topics(self) -> dict[str, Any]:
        return {name: self._metadata(name) for name in self.partitions}

    def _metadata(self, name: str) -> TopicMetadata:
        there: dict[int, Any] = dict.fromkeys(range(self.partitions[name]))
        return TopicMetadata(name, None, False, there)


class Sent(list[tuple[str, EncodedBatch]]):
    """Takes what is sent."""

    def take(self, topic: str, batch: EncodedBatch) -> None:
        self.append((topic, batch))

    def values(self, topic: str, partition: int | None = None) -> list[bytes]:
        found: list[bytes] = []
        for to, batch in self:
            if to == topic and partition in (None, batch.partition):
                decoder = create_decoder(
                    topic=to, partition=batch.partition, from_offset=0, until_offset=batch.records, columns=("value",)
                )
                decoder.feed(bytes(batch.data))
                while (rows := decoder.read()) is not None:
                    found += rows.column(0).to_pylist()
        return found


def writer(sent: Sent, topics: Topics, topic: str | None = None, sticky: int = 0, **settings: Any) -> RowWriter:
    cluster: Any = topics
    return RowWriter(cluster, ProduceSettings(**settings), sent.take, topic=topic, first_sticky=sticky)


def rows(values: Sequence[bytes], **more: Any) -> pa.RecordBatch:
    times = pa.array([1_700_000_000_000] * len(values), pa.int64())
    return pa.record_batch({"value": pa.array(values, pa.binary()), "timestamp": times, **more})


def test_all_rows_of_one_topic() -> None:
    sent, topics = Sent(), Topics(t=1)
    writing = writer(sent, topics, "t")
    writing.write(rows([b"a", b"b"]))
    writing.write(rows([b"c"]))
    assert sent == []
    writing.flush()
    assert sent.values("t") == [b"a", b"b", b"c"]
    assert [batch.records for _, batch in sent] == [3]
    assert topics.asked == ["t"]


def test_batches_go_as_soon_as_they_are_full() -> None:
    sent = Sent()
    writing = writer(sent, Topics(t=1), "t", batch_bytes=300)
    writing.write(rows([b"v" * 100] * 5))
    assert [batch.records for _, batch in sent] == [2, 2]
    writing.flush()
    assert sum(batch.records for _, batch in sent) == 5


def test_rows_name_their_topics_and_keep_their_order_in_each() -> None:
    sent, topics = Sent(), Topics(a=1, b=1, c=1)
    writing = writer(sent, topics)
    names = ["b", "a", "b", "c", "a", "b"] * 50
    values = [b"%d" % number for number in range(len(names))]
    writing.write(rows(values, topic=pa.array(names)))
    writing.write(rows([b"last"], topic=pa.array(["a"])))
    writing.flush()
    expected = {name: [value for value, to in zip(values, names, strict=True) if to == name] for name in "abc"}
    expected["a"].append(b"last")
    assert {name: sent.values(name) for name in "abc"} == expected
    assert topics.asked == ["b", "a", "c"]


def test_rows_of_a_topic_take_their_other_columns_along() -> None:
    sent = Sent()
    writing = writer(sent, Topics(a=3, b=3))
    headers = pa.array([[{"key": "h", "value": b"x"}], None, []], HEADERS)
    partitions, keys = pa.array([2, 1, 0], pa.int32()), pa.array([b"k", None, b"l"])
    given = rows([b"1", b"2", b"3"], topic=pa.array(["a", "b", "a"]), partition=partitions, key=keys, headers=headers)
    writing.write(given)
    writing.flush()
    assert {(to, batch.partition, *sent.values(to, batch.partition)) for to, batch in sent} == {
        ("a", 2, b"1"),
        ("a", 0, b"3"),
        ("b", 1, b"2"),
    }


def test_a_null_topic() -> None:
    writing = writer(Sent(), Topics(a=1))
    writing.write(rows([b"1", b"2"], topic=pa.array(["a", "a"])))
    with pytest.raises(ColumnError, match=r"contains a null topic\. Use the `topic` option .*: row 3 of the task$"):
        writing.write(rows([b"3", b"4"], topic=pa.array(["a", None])))


def test_an_unknown_topic_fails_at_once_and_is_not_made() -> None:
    topics = Topics(delays=1)
    writing = writer(Sent(), topics, "delay")
    with pytest.raises(TopicNotFoundError, match=r"'delay' does not exist, and writing .*; did you mean 'delays'"):
        writing.write(rows([b"1"]))


def test_without_rows_no_topic_is_asked_for() -> None:
    topics = Topics()
    writing = writer(Sent(), topics, "gone")
    writing.flush()
    assert topics.asked == []


def test_open_batches_hold_half_the_buffer_whatever_the_number_of_partitions() -> None:
    sent = Sent()
    writing = writer(sent, Topics(t=1000), "t", batch_bytes=100_000, buffer_bytes=200_000)
    partitions = pa.array([number % 1000 for number in range(2000)], pa.int32())
    most = 0
    for start in range(0, 2000, 50):
        writing.write(rows([b"v" * 500] * 50, partition=partitions.slice(start, 50)))
        waiting = (start + 50 - sum(batch.records for _, batch in sent)) * 500
        most = max(most, waiting)
    assert 50_000 < most <= 100_000
    writing.flush()
    assert sum(batch.records for _, batch in sent) == 2000


@pytest.mark.parametrize(("sticky", "partition"), [(0, 0), (2, 2), (5, 2)])
def test_tasks_begin_with_different_partitions(sticky: int, partition: int) -> None:
    sent = Sent()
    writing = writer(sent, Topics(t=3), "t", sticky)
    writing.write(rows([b"v"]))
    writing.flush()
    assert [batch.partition for _, batch in sent] == [partition]


def test_the_settings_reach_the_encoder() -> None:
    sent = Sent()
    writing = writer(sent, Topics(t=9), "t", 4, codec="gzip", ignore_keys=True)
    writing.write(rows([b"v" * 10_000] * 2, key=pa.array([b"k", b"l"])))
    writing.flush()
    assert [(batch.partition, batch.records, len(batch.data) < 1000) for _, batch in sent] == [(4, 2, True)]
