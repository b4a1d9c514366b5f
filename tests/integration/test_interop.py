"""Records of other clients are read byte for byte, in every codec."""

from __future__ import annotations

import random
import struct
import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.integration.producers import CODECS, FAMILIES, Producers, Record, Writer, Written, can_write
from tests.integration.topics import wait_until_stable
from tests.partition_channel import PartitionChannel
from tests.settings import parse_client_params, task_settings

from pyspark_kafka_direct import records
from pyspark_kafka_direct.broker.embedded_kafka import DEFAULT_VERSION
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.consumer.fetcher import read_range
from pyspark_kafka_direct.consumer.range_task import RangeTask, ReadCounts
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.producers import Family
    from tests.settings import TaskSettings

    from pyspark_kafka_direct.broker import EmbeddedKafka


OLDER_VERSION = "3.9.2"
LATEST_TIMESTAMP = (1 << 63) // 1000
"""The last millisecond that Spark's microseconds can hold; the year 294247."""

every_family = pytest.mark.parametrize("family", FAMILIES)

_noise = random.Random(3)

UNUSUAL = [
    Record(b"plain", b"key", timestamp=1_700_000_000_123),
    Record(b"no key"),
    Record(b"empty key", b""),
    Record(b"", b"empty value"),
    Record(None, b"null value"),
    Record(None, b""),
    Record(b"", b""),
    Record(None, None),
    Record(bytes(range(256)), bytes(range(255, -1, -1))),
    Record(b"the first millisecond", timestamp=0),
    Record(b"and the next", timestamp=1),
    Record(b"the last one", timestamp=LATEST_TIMESTAMP),
    Record(b"and back again", timestamp=1_600_000_000_000),
    Record(b"a header", headers=((b"name", b"content"),)),
    Record(b"an empty header", headers=((b"empty", b""),)),
    Record(b"a null header", headers=((b"null", None),)),
    Record(b"a nameless header", headers=((b"", b"content"),)),
    Record(b"the same name twice", headers=((b"twice", b"1"), (b"other", b"2"), (b"twice", b"3"))),
    Record(b"text beyond ASCII", "größe".encode(), headers=(("日本語".encode(), "🛩".encode()),)),
    Record(b"a name that is not UTF-8", headers=((b"\xff\xed\xa0ok\xc3", b"\xff"),)),
    Record(b"many headers", headers=tuple((b"h%d" % number, b"%d" % number * 50) for number in range(200))),
    Record(b"large and compressible" * 10_000, b"large"),
    Record(_noise.randbytes(100_000), b"large and random"),
    *(Record(b'{"flight":%d,"carrier":"AA","origin":"JFK"}' % number, b"%d" % (number % 7)) for number in range(1500)),
]


class Row(NamedTuple):
    """The compared fields of a record."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    timestamp: int
    timestamp_type: int


@dataclass(frozen=True)
class InteropCluster:
    """A cluster, with producers of its Kafka version."""

    settings: TaskSettings
    producers: Producers
    make_topic: MakeTopic

    def write(self, family: Family, topic: str, wanted: Sequence[Record], **how: Any) -> list[Written]:
        """Writes those of the records that the client can write."""
        return self.producers.open(family, **how).send(topic, [each for each in wanted if can_write(family, each)])

    def read(self, topic: str, *, partition: int = 0, isolation: Any = "read_uncommitted") -> list[Row]:
        """Reads the whole partition at an isolation level."""
        tp = TopicPartition(topic, partition)
        cluster = ClusterClient(self.settings.connection)
        start, end = (cluster.offsets({tp: position}, isolation_level=isolation)[tp] for position in (EARLIEST, LATEST))
        return self.read_range(OffsetRange(topic, partition, start, end), isolation=isolation)

    def read_range(
        self,
        wanted: OffsetRange,
        *,
        isolation: Any = "read_uncommitted",
        counts: ReadCounts | None = None,
    ) -> list[Row]:
        fetch = replace(self.settings.fetch, isolation_level=isolation)
        config = task_settings(self.settings.connection, fetch, poll_timeout=30)
        rows = []
        for batch in read_range(*config, RangeTask(wanted), records.COLUMNS, counts):
            batch.validate(full=True)
            assert set(batch.column("topic").to_pylist()) == {wanted.topic}
            assert set(batch.column("partition").to_pylist()) == {wanted.partition}
            rows += _rows(batch)
        return rows

    def stored_codecs(self, topic: str) -> set[int]:
        """The codecs of the first partition's record batches."""
        tp = TopicPartition(topic, 0)
        cluster = ClusterClient(self.settings.connection)
        end = cluster.offsets({tp: LATEST})[tp]
        node = cluster.leader(tp)
        codecs, position = set(), 0
        with closing(Connection.open(cluster.settings, node.host, node.port, Deadline.after(30))) as connection:
            topic_id = cluster.topics([topic])[topic].topic_id
            fetch = self.settings.fetch
            channel = PartitionChannel(connection, topic=topic, topic_id=topic_id, partition=0, settings=fetch)
            while position < end:
                channel.request(position, -1, None)
                batches = channel.response(Deadline.after(30)).records
                at = 0
                while at + 61 <= len(batches):
                    # Record batch, format 2: base offset, at 8 the length after 12, at 21 attributes, then last delta.
                    base, length = struct.unpack_from(">qi", batches, at)
                    attributes, last_delta = struct.unpack_from(">hi", batches, at + 21)
                    codecs.add(attributes & 7)
                    position, at = base + last_delta + 1, at + 12 + length
        return codecs


def _rows(batch: Any) -> list[Row]:
    """Rows of an Arrow batch; its timestamps may be too late for Python's datetime."""
    import pyarrow as pa

    micros = batch.column("timestamp").cast(pa.int64()).to_pylist()
    assert all(each % 1000 == 0 for each in micros)
    headers = [each and [(pair["key"], pair["value"]) for pair in each] for each in batch.column("headers").to_pylist()]
    columns = [batch.column(name).to_pylist() for name in ("offset", "key", "value")]
    types = batch.column("timestampType").to_pylist()
    return [Row(*values) for values in zip(*columns, headers, [each // 1000 for each in micros], types, strict=True)]


def expected(written: Sequence[Written], partition: int = 0, timestamp_type: int = 0) -> list[Row]:
    """The expected rows. Header names are strings, so invalid UTF-8 becomes U+FFFD, as in Java."""
    return [
        Row(
            offset,
            record.key,
            record.value,
            [(name.decode("utf-8", "replace"), value) for name, value in record.headers] or None,
            timestamp,
            timestamp_type,
        )
        for record, offset, timestamp in written
        if record.partition == partition
    ]


def open_test_cluster(bootstrap_servers: str, version: str, make_topic: MakeTopic) -> Iterator[InteropCluster]:
    settings = parse_client_params({"bootstrap.servers": bootstrap_servers, "fetch.max.wait.ms": "100"})
    with closing(Producers(bootstrap_servers, version)) as producers:
        yield InteropCluster(settings, producers, make_topic)


@pytest.fixture(scope="module")
def cluster(kafka: EmbeddedKafka, make_topic: MakeTopic) -> Iterator[InteropCluster]:
    yield from open_test_cluster(kafka.bootstrap_servers, DEFAULT_VERSION, make_topic)


@pytest.fixture(scope="module")
def older_cluster(kafka39: EmbeddedKafka, topics_on: Callable[[str], MakeTopic]) -> Iterator[InteropCluster]:
    yield from open_test_cluster(kafka39.bootstrap_servers, OLDER_VERSION, topics_on(kafka39.bootstrap_servers))


@pytest.fixture(scope="module")
def unusual_topic(cluster: InteropCluster) -> Callable[[Family, str], tuple[str, list[Written]]]:
    """A topic with the unusual records, written by a client in a codec to two partitions; cached."""
    topics: dict[tuple[Family, str], tuple[str, list[Written]]] = {}

    def make(family: Family, codec: str) -> tuple[str, list[Written]]:
        if (family, codec) not in topics:
            topic = cluster.make_topic(2, message_timestamp_after_max_ms=(1 << 63) - 1)
            spread = [replace(record, partition=number // 3 % 2) for number, record in enumerate(UNUSUAL)]
            topics[family, codec] = topic, cluster.write(family, topic, spread, codec=codec)
        return topics[family, codec]

    return make


@pytest.mark.parametrize("codec", CODECS)
@every_family
def test_every_record_is_returned(
    cluster: InteropCluster, unusual_topic: Callable[..., tuple[str, list[Written]]], family: Family, codec: str
) -> None:
    topic, written = unusual_topic(family, codec)
    for record, _, timestamp in written:
        assert record.timestamp in (None, timestamp)
    for partition in (0, 1):
        assert len(expected(written, partition)) > 700
        assert cluster.read(topic, partition=partition) == expected(written, partition)
    # A client may not compress a batch that would not become smaller.
    assert cluster.stored_codecs(topic) - {0} == {CODECS[codec]} - {0}


@every_family
def test_without_idempotence(cluster: InteropCluster, family: Family) -> None:
    topic = cluster.make_topic(message_timestamp_after_max_ms=(1 << 63) - 1)
    written = cluster.write(family, topic, UNUSUAL, codec="lz4", idempotent=False)
    assert cluster.read(topic) == expected(written)


@every_family
def test_log_append_time(cluster: InteropCluster, family: Family) -> None:
    topic = cluster.make_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    written = cluster.write(family, topic, UNUSUAL, codec="zstd")
    after = int(time.time() * 1000)
    rows = cluster.read(topic)
    assert rows == expected(written, timestamp_type=1)
    assert all(before <= row.timestamp <= after for row in rows)


@every_family
def test_records_of_0_bytes_and_of_10_mb(cluster: InteropCluster, family: Family) -> None:
    topic = cluster.make_topic(max_message_bytes=12 << 20)
    line = b"%07d departures, mean delay %03d minutes\n"
    large = b"".join(line % (number, number * number % 997) for number in range(10_000_000 // 40))
    sizes = [Record(b""), Record(large, b"large"), Record(b"x", large[:4_000_000]), Record(b"")]
    written: list[Written] = []
    for codec in CODECS:
        written += cluster.write(family, topic, sizes, codec=codec)
    written += cluster.write(family, topic, [Record(_noise.randbytes(10_000_000))], codec="snappy")
    assert cluster.read(topic) == expected(written)
    assert cluster.stored_codecs(topic) == set(CODECS.values())


def write_transactions(
    cluster: InteropCluster, family: Family, topic: str, codec: str
) -> tuple[list[Written], set[int], Writer]:
    """Transactions that overlap, the last one still open.

    Returns:
        All records, the offsets of those visible under ``read_committed``, and the writer of the open transaction.
    """
    first, second, third = (
        cluster.producers.open(family, codec=codec, transactional_id=f"{topic}-{number}") for number in range(3)
    )
    outside = cluster.producers.open(family, codec=codec)

    def some(text: bytes) -> list[Record]:
        return [Record(b"%b %d" % (text, number) * 20, text) for number in range(50)]

    first.begin()
    second.begin()
    committed = first.send(topic, some(b"committed"))
    aborted = second.send(topic, some(b"aborted"))
    plain = outside.send(topic, some(b"no transaction"))
    committed += first.send(topic, some(b"committed, too"))
    second.abort()
    first.commit()
    second.begin()
    committed += second.send(topic, some(b"committed by who aborted before"))
    second.commit()
    first.begin()
    aborted += first.send(topic, some(b"aborted by who committed before"))
    first.abort()
    third.begin()
    undecided = third.send(topic, some(b"open"))
    behind = outside.send(topic, some(b"behind the open transaction"))
    everything = sorted(committed + aborted + plain + undecided + behind, key=lambda each: each.offset)
    return everything, {each.offset for each in committed + plain}, third


def check_transactions(cluster: InteropCluster, family: Family, codec: str) -> None:
    topic = cluster.make_topic()
    written, committed, undecided = write_transactions(cluster, family, topic, codec)
    visible = [each for each in written if each.offset in committed]
    first_open = next(each.offset for each in written if each.record.key == b"open")
    wait_until_stable(cluster.settings.connection.bootstrap_string, topic, first_open)
    assert cluster.read(topic) == expected(written)
    assert cluster.read(topic, isolation="read_committed") == expected(visible)
    # A range may begin and end within an aborted transaction.
    first, last = 75, visible[-1].offset + 20
    within = [each for each in visible if first <= each.offset < last]
    counts = ReadCounts()
    wanted = OffsetRange(topic, 0, first, last)
    assert cluster.read_range(wanted, isolation="read_committed", counts=counts) == expected(within)
    assert counts.records == len(within)
    assert counts.records + counts.aborted + counts.control == wanted.count()
    assert (counts.lost, counts.gaps) == (0, 0)
    undecided.commit()
    # Five transactions have ended, each with a marker; that of the one before may lie behind the last record.
    wait_until_stable(cluster.settings.connection.bootstrap_string, topic, len(written) + 5)
    visible += written[-100:]
    assert cluster.read(topic, isolation="read_committed") == expected(visible)


@every_family
def test_transactions(cluster: InteropCluster, family: Family) -> None:
    check_transactions(cluster, family, "gzip" if family == "java" else "none")


def test_compacted_log(cluster: InteropCluster) -> None:
    topic = cluster.make_topic(
        cleanup_policy="compact", segment_ms=1, min_cleanable_dirty_ratio=0.01, delete_retention_ms=0
    )
    # Each send lies an hour after the one before, so each opens a segment; the last segment is never compacted.
    written: list[Written] = []
    for hour, family in enumerate([*FAMILIES, *FAMILIES, FAMILIES[0]]):
        # In round 5 only one key comes again; in round 6 none, and so nothing of the rounds before is kept back.
        keys = [b"%d" % number for number in ((0, 1, 2, 3, 4) if hour < 5 else (4,) if hour == 5 else ())]
        now = 1_700_000_000_000 + hour * 3_600_000
        rounds = [Record(b"%d" % hour, key, timestamp=now) for key in [*keys, b"only in round %d" % hour]]
        written += cluster.write(family, topic, rounds, codec="lz4")
    latest = {each.record.key: each for each in written}
    survivors = sorted(latest.values(), key=lambda each: each.offset)
    deadline = Deadline.after(120)
    while len(cluster.read(topic)) > len(survivors):
        assert not deadline.expired, cluster.read(topic)
        time.sleep(0.2)
    counts = ReadCounts()
    wanted = OffsetRange(topic, 0, 0, len(written))
    assert cluster.read_range(wanted, counts=counts) == expected(survivors)
    assert counts.gaps == len(written) - len(survivors)
    assert counts.lost == 0


@every_family
def test_kafka_3(older_cluster: InteropCluster, family: Family) -> None:
    topic = older_cluster.make_topic()
    written: list[Written] = []
    for codec in CODECS:
        written += older_cluster.write(family, topic, UNUSUAL, codec=codec)
    assert older_cluster.read(topic) == expected(written)
    assert older_cluster.stored_codecs(topic) == set(CODECS.values())


@every_family
def test_transactions_on_kafka_3(older_cluster: InteropCluster, family: Family) -> None:
    check_transactions(older_cluster, family, "none" if family == "java" else "zstd")


def test_spark_reads_the_same_records(
    cluster: InteropCluster, spark: SparkSession, unusual_topic: Callable[..., tuple[str, list[Written]]]
) -> None:
    from pyspark.sql.functions import expr

    # test_every_record_is_returned reads each codec of each family
    topics = dict(unusual_topic(family, codec) for family, codec in zip(FAMILIES, ("zstd", "lz4", "none"), strict=True))
    frame = (
        spark.read.format("kafka-direct")
        .option("kafka.bootstrap.servers", cluster.settings.connection.bootstrap_string)
        .option("subscribe", ",".join(topics))
        .option("includeHeaders", "true")
        .load()
        .withColumn("timestamp", expr("unix_millis(timestamp)"))  # the latest is too late for Python's datetime
        .select("topic", "partition", "offset", "key", "value", "headers", "timestamp", "timestampType")
    )
    found: dict[tuple[str, int], list[Row]] = {}
    for topic, partition, offset, key, value, headers, timestamp, kind in frame.collect():
        pairs = headers and [tuple(pair) for pair in headers]
        row = Row(offset, _bytes(key), _bytes(value), pairs, timestamp, kind)
        found.setdefault((topic, partition), []).append(row)
    assert found == {
        (topic, partition): expected(written, partition) for topic, written in topics.items() for partition in (0, 1)
    }


def _bytes(value: bytes | bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
