"""Encoding of rows: topics, order, memory limits and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.records.encoding import HEADERS

from pyspark_kafka_direct.errors import ColumnError, TopicNotFoundError
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.row_writer import RowWriter
from pyspark_kafka_direct.records import EncodedBatch, RecordDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class RowCluster(UnitCluster):
    """Two brokers without topics."""

    def __init__(self) -> None:
        super().__init__({}, brokers=2, connection={"metadata_max_age_ms": 300_000})

    def create(self, **partitions: int) -> None:
        """Create topics with so many partitions."""
        for name, count in partitions.items():
            self.cluster.create_topic(name, count)

    def writer(self, sent: SentBatches, topic: str | None = None, sticky: int = 0, **settings: Any) -> RowWriter:
        return RowWriter(
            self.client(), ProducerSettings(**settings), sent.send, topic=topic, first_sticky_partition=sticky
        )

    @property
    def requested_topics(self) -> list[str]:
        return [topic.name for request in self.received("Metadata") for topic in request.topics or ()]


@pytest.fixture
def cluster() -> Iterator[RowCluster]:
    with RowCluster() as cluster:
        yield cluster


class SentBatches(list[tuple[str, EncodedBatch]]):
    """Collects what is sent."""

    def send(self, topic: str, batch: EncodedBatch) -> None:
        self.append((topic, batch))

    def values(self, topic: str, partition: int | None = None) -> list[bytes]:
        found: list[bytes] = []
        for to, batch in self:
            if to == topic and partition in (None, batch.partition):
                decoder = RecordDecoder(
                    topic=to, partition=batch.partition, from_offset=0, until_offset=batch.records, columns=("value",)
                )
                decoder.feed(bytes(batch.data))
                while (rows := decoder.read()) is not None:
                    found += rows.column(0).to_pylist()
        return found


def rows(values: Sequence[bytes], **more: Any) -> pa.RecordBatch:
    times = pa.array([1_700_000_000_000] * len(values), pa.int64())
    return pa.record_batch({"value": pa.array(values, pa.binary()), "timestamp": times, **more})


def test_all_rows_of_one_topic(cluster: RowCluster) -> None:
    cluster.create(t=1)
    sent = SentBatches()
    row_writer = cluster.writer(sent, "t")
    row_writer.write(rows([b"a", b"b"]))
    row_writer.write(rows([b"c"]))
    assert sent == []
    row_writer.flush()
    assert sent.values("t") == [b"a", b"b", b"c"]
    assert [batch.records for _, batch in sent] == [3]
    assert cluster.requested_topics == ["t"]


def test_batches_are_sent_as_soon_as_they_are_full(cluster: RowCluster) -> None:
    cluster.create(t=1)
    sent = SentBatches()
    row_writer = cluster.writer(sent, "t", batch_bytes=300)
    row_writer.write(rows([b"v" * 100] * 5))
    assert [batch.records for _, batch in sent] == [2, 2]
    row_writer.flush()
    assert sum(batch.records for _, batch in sent) == 5


def test_rows_keep_their_order_in_each_topic(cluster: RowCluster) -> None:
    cluster.create(a=1, b=1, c=1)
    sent = SentBatches()
    row_writer = cluster.writer(sent)
    names = ["b", "a", "b", "c", "a", "b"] * 50
    values = [b"%d" % number for number in range(len(names))]
    row_writer.write(rows(values, topic=pa.array(names)))
    row_writer.write(rows([b"last"], topic=pa.array(["a"])))
    row_writer.flush()
    expected = {name: [value for value, to in zip(values, names, strict=True) if to == name] for name in "abc"}
    expected["a"].append(b"last")
    assert {name: sent.values(name) for name in "abc"} == expected
    assert cluster.requested_topics == ["b", "a", "c"]


def test_rows_keep_their_other_columns(cluster: RowCluster) -> None:
    cluster.create(a=3, b=3)
    sent = SentBatches()
    row_writer = cluster.writer(sent)
    headers = pa.array([[{"key": "h", "value": b"x"}], None, []], HEADERS)
    partitions, keys = pa.array([2, 1, 0], pa.int32()), pa.array([b"k", None, b"l"])
    given = rows([b"1", b"2", b"3"], topic=pa.array(["a", "b", "a"]), partition=partitions, key=keys, headers=headers)
    row_writer.write(given)
    row_writer.flush()
    assert {(to, batch.partition, *sent.values(to, batch.partition)) for to, batch in sent} == {
        ("a", 2, b"1"),
        ("a", 0, b"3"),
        ("b", 1, b"2"),
    }


def test_a_null_topic(cluster: RowCluster) -> None:
    cluster.create(a=1)
    row_writer = cluster.writer(SentBatches())
    for _ in range(2):
        row_writer.write(rows([b"1", b"2"], topic=pa.array(["a", "a"])))
    with pytest.raises(ColumnError, match=r"contains a null topic\. Use the `topic` option .*: row 5 of the task$"):
        row_writer.write(rows([b"3", b"4"], topic=pa.array(["a", None])))


def test_an_unknown_topic_fails_and_is_not_created(cluster: RowCluster) -> None:
    cluster.create(delays=1)
    row_writer = cluster.writer(SentBatches(), "delay")
    with pytest.raises(TopicNotFoundError, match=r"'delay' does not exist, and writing .*; did you mean 'delays'"):
        row_writer.write(rows([b"1"]))
    assert not any(request.allow_auto_topic_creation for request in cluster.received("Metadata"))


def test_without_rows_no_metadata_is_requested(cluster: RowCluster) -> None:
    row_writer = cluster.writer(SentBatches(), "missing")
    row_writer.flush()
    assert cluster.requests == []


def test_open_batches_use_at_most_half_the_buffer(cluster: RowCluster) -> None:
    cluster.create(t=1000)
    sent = SentBatches()
    row_writer = cluster.writer(sent, "t", batch_bytes=100_000, buffer_bytes=200_000)
    partitions = pa.array([number % 1000 for number in range(2000)], pa.int32())
    max_waiting = 0
    for start in range(0, 2000, 50):
        row_writer.write(rows([b"v" * 500] * 50, partition=partitions.slice(start, 50)))
        waiting = (start + 50 - sum(batch.records for _, batch in sent)) * 500
        max_waiting = max(max_waiting, waiting)
    assert 50_000 < max_waiting <= 100_000
    row_writer.flush()
    assert sum(batch.records for _, batch in sent) == 2000


def test_the_open_batches_of_all_topics_share_half_the_buffer(cluster: RowCluster) -> None:
    names = [f"t{number}" for number in range(20)]
    cluster.create(**dict.fromkeys(names, 1))
    sent = SentBatches()
    row_writer = cluster.writer(sent, batch_bytes=100_000, buffer_bytes=20_000)
    waiting = []
    for number in range(60):
        row_writer.write(rows([b"v" * 500], topic=pa.array([names[number % 20]])))
        waiting.append(500 * (number + 1 - sum(batch.records for _, batch in sent)))
    assert 9_000 < max(waiting) <= 10_000
    row_writer.flush()
    assert [len(sent.values(name)) for name in names] == [3] * 20


@pytest.mark.parametrize(("sticky", "partition"), [(0, 0), (2, 2), (4, 1), (5, 2)])
def test_tasks_start_with_different_partitions(cluster: RowCluster, sticky: int, partition: int) -> None:
    cluster.create(t=3)
    sent = SentBatches()
    row_writer = cluster.writer(sent, "t", sticky)
    row_writer.write(rows([b"v"]))
    row_writer.flush()
    assert [batch.partition for _, batch in sent] == [partition]


def keyed(topic: str, count: int = 40) -> pa.RecordBatch:
    keys = [b"%d" % number for number in range(count)]
    return rows(keys, key=pa.array(keys), topic=pa.array([topic] * count))


def test_added_partitions_are_used_once_metadata_is_too_old(cluster: RowCluster) -> None:
    """A task of a continuous query writes for weeks."""
    cluster.create(t=1)
    sent = SentBatches()
    row_writer = cluster.writer(sent)

    def written_partitions() -> list[int]:
        sent.clear()
        row_writer.write(keyed("t"))
        row_writer.flush()
        assert sorted(sent.values("t")) == sorted(b"%d" % number for number in range(40))
        return sorted({batch.partition for _, batch in sent})

    assert written_partitions() == [0]
    cluster.event("expand_topic", topic="t", count=2)
    cluster.sleep(299)
    assert written_partitions() == [0]
    cluster.sleep(1)
    for broker in range(2):
        cluster.event("pause_broker", broker=broker, seconds=250)
    assert written_partitions() == [0]
    cluster.sleep(300)
    assert written_partitions() == [0, 1, 2]
    cluster.sleep(300)
    row_writer.write(keyed("t"))
    cluster.event("delete_topic", topic="t")  # the producer finds out whether it is deleted
    cluster.sleep(300)
    row_writer.write(keyed("t"))


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_rows_go_to_the_partitions_of_a_recreated_topic(cluster: RowCluster, partitions: int) -> None:
    cluster.create(t=4, u=3)
    sent = SentBatches()
    row_writer = cluster.writer(sent)
    for name in ("t", "u"):
        row_writer.write(keyed(name))
    cluster.event("recreate_topic", topic="t", partitions=partitions)
    cluster.sleep(300)
    row_writer.write(keyed("u"))
    sent.clear()  # the open batches of the deleted topic
    for name in ("t", "u"):
        row_writer.write(keyed(name))
    row_writer.flush()
    assert {batch.partition for name, batch in sent if name == "t"} == set(range(partitions))
    assert len(sent.values("t")) == 40
    assert len(sent.values("u")) == 120


def test_topics_without_rows_are_forgotten(cluster: RowCluster) -> None:
    """Rows may name a topic for each day. An encoder takes some 100 KB."""
    cluster.create(old=1, new=1)
    sent = SentBatches()
    row_writer = cluster.writer(sent)
    row_writer.write(keyed("old", 1))
    row_writer.write(keyed("new", 1))
    for _ in range(2):
        cluster.sleep(300)
        row_writer.write(keyed("new", 1))
    assert [to for to, _ in sent] == ["old"], "its open batch was sent"
    cluster.sleep(300)
    cluster.requests.clear()
    row_writer.write(keyed("new", 1))
    assert cluster.requested_topics == ["new"]
    row_writer.write(keyed("old", 1))
    assert cluster.requested_topics == ["new", "old"]
    row_writer.flush()
    assert sorted(to for to, _ in sent) == ["new", "old", "old"]
    assert sent.values("new") == [b"0"] * 4


def test_the_settings_reach_the_encoder(cluster: RowCluster) -> None:
    cluster.create(t=9)
    sent = SentBatches()
    row_writer = cluster.writer(sent, "t", 4, codec="gzip", ignore_keys=True)
    row_writer.write(rows([b"v" * 10_000] * 2, key=pa.array([b"k", b"l"])))
    row_writer.flush()
    assert [(batch.partition, batch.records, len(batch.data) < 1000) for _, batch in sent] == [(4, 2, True)]
