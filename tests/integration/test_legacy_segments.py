"""Segments in message formats 0 and 1, written into the log folder of a stopped broker, are read after its restart.

Brokers wrote such segments before Kafka 0.11. Later brokers return them unchanged, also those of Kafka 4 (KIP-724).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pytest
from tests.shards.brokers import FEW_THREADS, new_kafka
from tests.unit.records.batches import compress, xerial
from tests.unit.records.legacy_messages import message, wrapper

from pyspark_kafka_direct.errors import CorruptRecordError

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka

pytestmark = pytest.mark.usefixtures("spark")  # so that one shard starts the broker

CREATED, APPENDED = 1_400_000_000_000, 1_400_000_099_000  # timestamps, in milliseconds
CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP = 0, 1, -1  # timestamp types
LOG_APPEND_TIME_BIT = 0x08
KEY = b"key"

# The checksums of LZ4's frame header 60 40: of these two bytes, and of the magic number before them as well, which
# clients before Kafka 0.10 wrote, and all clients in format 0 (KAFKA-3160).
RIGHT_CHECKSUM, OLD_CHECKSUM = 0x82, 0x1A


class Row(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    timestamp_type: int


def lz4_frame(content: bytes, checksum: int) -> bytes:
    block: bytes = pa.compress(content, "lz4_raw", asbytes=True)
    return bytes.fromhex("04224d18 60 40") + bytes([checksum]) + len(block).to_bytes(4, "little") + block + bytes(4)


PACKINGS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (1, lambda content: compress("gzip", content)),
    "snappy": (2, lambda content: compress("snappy", content)),
    "xerial": (2, lambda content: xerial(content, 64)),
    "lz4": (3, lambda content: lz4_frame(content, RIGHT_CHECKSUM)),
    "old-lz4": (3, lambda content: lz4_frame(content, OLD_CHECKSUM)),
}
"""Codec numbers, and writers of compressed message sets."""

INNER = (0, 1, 4)  # the first offset and those of the messages in a wrapper: compaction has removed two


def segment(magic: int, packing: str | None, *, append_time: bool = False) -> tuple[bytes, list[Row]]:
    """Return a segment of the offsets 0 to 11, with the rows in it: two messages, two wrappers."""
    timestamp = CREATED if magic else -1
    kind = CREATE_TIME if magic else NO_TIMESTAMP
    data = message(0, None, KEY, magic=magic, timestamp=CREATED) + message(1, b"", magic=magic, timestamp=CREATED)
    rows = [Row(0, KEY, None, timestamp, kind), Row(1, None, b"", timestamp, kind)]
    for start in (2, 7):
        inner = [
            message(
                delta if magic and packing else start + delta,
                b"value %d" % (start + delta),
                KEY,
                magic=magic,
                timestamp=CREATED + delta,
            )
            for delta in INNER
        ]
        if packing is None:
            data += b"".join(inner)
        else:
            codec, pack = PACKINGS[packing]
            attributes = codec | (LOG_APPEND_TIME_BIT if append_time else 0)
            last = start + INNER[-1]
            data += message(last, pack(b"".join(inner)), magic=magic, attributes=attributes, timestamp=APPENDED)
        for delta in INNER:
            own = (CREATED + delta, CREATE_TIME) if magic else (-1, NO_TIMESTAMP)
            time = (APPENDED, LOG_APPEND_TIME) if append_time else own
            rows.append(Row(start + delta, KEY, b"value %d" % (start + delta), *time))
    return data, rows


SEGMENTS = {
    **{f"format-{magic}-none": segment(magic, None) for magic in (0, 1)},
    **{
        f"format-{magic}-{packing}": segment(magic, packing)
        for magic in (0, 1)
        for packing in PACKINGS
        if (magic, packing) != (1, "old-lz4")
    },
    "append-time": segment(1, "gzip", append_time=True),
}
END = 12

# An inner message with a wrong checksum, which a broker does not verify, and a segment that is damaged later.
_BAD_INNER = message(0, b"good") + message(1, b"bad")[:-1] + b"?"
CORRUPT = {
    "inner-crc": message(0, b"first") + wrapper(2, _BAD_INNER, "gzip") + message(3, b"last"),
    "outer-crc": message(0, b"first") + message(1, b"second") + message(2, b"damaged") + message(3, b"last"),
}


class Cluster(NamedTuple):
    kafka: EmbeddedKafka
    bench: Workbench
    topics: dict[str, str]  # by the name of the segment


@pytest.fixture(scope="module", params=[None, pytest.param("3.9.2", marks=pytest.mark.soak)], ids=["newest", "3.9"])
def cluster(request: pytest.FixtureRequest, workbench_for: Callable[[EmbeddedKafka], Workbench]) -> Iterator[Cluster]:
    """A broker whose topics have these segments, and a record in format 2 behind each."""
    version = {} if request.param is None else {"version": request.param}
    with new_kafka(properties=FEW_THREADS, **version) as kafka:
        bench = workbench_for(kafka)
        # Retention would delete messages of 2014.
        topics = {name: bench.make_topic(retention_ms=-1) for name in (*SEGMENTS, *CORRUPT)}
        kafka.stop_broker(1)
        for name, topic in topics.items():
            folder = folder_of(kafka, topic)
            for index in (*folder.glob("*.index"), *folder.glob("*.timeindex")):
                index.unlink()
            data = CORRUPT.get(name) or SEGMENTS[name][0]
            (folder / f"{0:020}.log").write_bytes(data)
        kafka.start_broker(1)
        for topic in topics.values():
            bench.write(topic, [b"format 2"])
        yield Cluster(kafka, bench, topics)


def folder_of(kafka: EmbeddedKafka, topic: str) -> Path:
    return kafka.log_file().parent / "broker-1" / f"{topic}-0"


@pytest.mark.parametrize("name", SEGMENTS)
def test_every_record_is_read(cluster: Cluster, name: str) -> None:
    topic, rows = cluster.topics[name], SEGMENTS[name][1]
    columns = ("offset", "key", "value", "timestamp", "timestampType")
    read = cluster.bench.read(topic, 0, END + 1, columns=columns)
    *old, new = read.rows
    assert [
        Row(row["offset"], row["key"], row["value"], milliseconds(row["timestamp"]), row["timestampType"])
        for row in old
    ] == rows
    assert (new["offset"], new["value"], new["timestampType"]) == (END, b"format 2", CREATE_TIME)
    # A range begins inside a wrapper, and ends inside the next one.
    some = [row.offset for row in rows if 3 <= row.offset < 9]
    assert cluster.bench.read(topic, 3, 9).offsets == some
    assert cluster.bench.count(cluster.bench.request(topic, 3, 9)) == len(some)
    segment_bytes = (folder_of(cluster.kafka, topic) / f"{0:020}.log").read_bytes()
    assert segment_bytes.startswith(SEGMENTS[name][0]), "the broker has converted the segment"


def milliseconds(timestamp: datetime.datetime) -> int:
    return round(timestamp.timestamp() * 1000)


def test_spark_reads_them(cluster: Cluster, spark: SparkSession) -> None:
    topics = {cluster.topics[name]: rows for name, (_, rows) in SEGMENTS.items()}
    reader = spark.read.format("kafka-direct").option("kafka.bootstrap.servers", cluster.kafka.bootstrap_servers)
    read = reader.option("subscribe", ",".join(topics)).load()
    found: dict[str, list[Row]] = {topic: [] for topic in topics}
    time = "unix_millis(timestamp)"
    for topic, offset, key, value, *times in read.selectExpr(
        "topic", "offset", "key", "value", time, "timestampType"
    ).collect():
        if value != b"format 2":
            timestamp, timestamp_type = times
            found[topic].append(Row(offset, optional(key), optional(value), timestamp, timestamp_type))
    assert {topic: sorted(rows) for topic, rows in found.items()} == topics


def optional(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


@pytest.mark.parametrize("name", CORRUPT)
def test_wrong_checksums(cluster: Cluster, name: str) -> None:
    topic, bench = cluster.topics[name], cluster.bench
    path = folder_of(cluster.kafka, topic) / f"{0:020}.log"
    path.write_bytes(path.read_bytes().replace(b"damaged", b"DAMAGED"))
    batches = bench.open(bench.request(topic, 0, 5))
    assert next(batches).column("offset").to_pylist() == [0, 1]
    with pytest.raises(CorruptRecordError, match="The CRC of a message does not match its bytes") as caught:
        next(batches)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 2)
    assert bench.read(topic, 3, 5).offsets == [3, 4]
    assert bench.read(topic, 0, 5, kafka={"check.crcs": "false"}).offsets == [0, 1, 2, 3, 4]
