"""The record decoder and the encoder alone: record bytes in memory to Arrow, and back, on one core.

Prints millions of records and gigabytes of values a second, per CPU second, for each codec and record size.
``python -m bench.kernel``; ``--quick`` for a few seconds.

What is decoded are batches filled like a Java producer's with its default ``batch.size`` of 16 KiB, or with
``--batch-bytes``, fed 1 MiB at a time as fetches are. What is encoded are Arrow batches of 10,000 rows, as Spark hands
them over; the record batches are as large as the encoder makes them by default, and stamped as before they are sent.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import random
import struct
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import google_crc32c
import pyarrow as pa
from kafka.record.default_records import DefaultRecordBatchBuilder

from pyspark_kafka_direct.options.settings import COMPRESSION_TYPE_IDS
from pyspark_kafka_direct.records import COLUMNS, RecordDecoder, RecordEncoder, set_producer_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.options.settings import CompressionType

SEVEN = COLUMNS[:7]
FETCH_BYTES = 1 << 20
ROWS = 10_000
CARRIERS = ("UA", "AA", "B6", "DL", "EV", "MQ", "US", "WN", "VX", "FL", "AS", "9E", "F9", "HA", "YV", "OO")


@dataclass(frozen=True)
class Load:
    """Fetches of one kind: their bytes, and how many records and value bytes they hold."""

    fetches: list[bytes]
    records: int
    value_bytes: int
    wire_bytes: int


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--batch-bytes", type=int, default=16 << 10, help="bytes of a record batch, uncompressed")
    parser.add_argument("--codecs", nargs="+", default=list(COMPRESSION_TYPE_IDS), choices=list(COMPRESSION_TYPE_IDS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 1024], help="bytes of a value")
    options = parser.parse_args()
    runs = 3 if options.quick else 9
    megabytes = 8 if options.quick else 32
    print_line("size", "codec", "decoded", "M records/s", "GB/s", "ns/record")
    for size, codec in itertools.product(options.sizes, options.codecs):
        load = make_load(size, codec, options.batch_bytes, megabytes << 20)
        for columns, label in ((SEVEN, "all 7"), (("value",), "value")):
            seconds = measure(load, columns, runs)
            print_numbers(size, codec, label, load.records, load.value_bytes, seconds)
    print_line("size", "codec", "encoded", "M records/s", "GB/s", "ns/record")
    for size, codec in itertools.product(options.sizes, options.codecs):
        for keys, label in ((True, "key too"), (False, "value")):
            rows = make_rows(size, megabytes << 20, keys=keys)
            records = sum(each.num_rows for each in rows)
            print_numbers(size, codec, label, records, records * size, median(encode(rows, codec) for _ in range(runs)))


def print_numbers(size: int, codec: str, label: str, records: int, value_bytes: int, seconds: float) -> None:
    """Prints what was measured."""
    speed = (f"{records / seconds / 1e6:.2f}", f"{value_bytes / seconds / 1e9:.3f}", f"{seconds / records * 1e9:.1f}")
    print_line(str(size), codec, label, *speed)


def print_line(size: str, codec: str, columns: str, records: str, gigabytes: str, nanoseconds: str) -> None:
    """Prints a line of a table."""
    print(f"{size:>6} {codec:8} {columns:8} {records:>12} {gigabytes:>7} {nanoseconds:>10}", flush=True)


def encode(rows: Sequence[pa.RecordBatch], codec: CompressionType) -> float:
    """CPU seconds to encode the rows once, and to stamp what comes out."""
    encoder = RecordEncoder(topic="bench", partitions=4, codec=codec)
    records = 0
    start = time.process_time()
    for each in rows:
        for batch in encoder.add(each):
            set_producer_state(batch.data, 1, 0, 0, transactional=False)
            records += batch.records
    for batch in encoder.flush():
        set_producer_state(batch.data, 1, 0, 0, transactional=False)
        records += batch.records
    seconds = time.process_time() - start
    if records != sum(each.num_rows for each in rows):
        raise AssertionError(f"{records} records")
    return seconds


def make_rows(size: int, total: int, *, keys: bool) -> list[pa.RecordBatch]:
    """Makes Arrow batches of JSON values of ``size`` bytes, with or without keys: ``total`` bytes of values."""
    randomness = random.Random(7)
    values = [value(randomness, size) for _ in range(ROWS)]
    columns = {"value": pa.array(values, pa.binary()), "timestamp": pa.array(range(ROWS), pa.int64())}
    if keys:
        columns["key"] = pa.array([content[:2] for content in values], pa.binary())
    return [pa.record_batch(columns)] * -(-total // (size * ROWS))


def measure(load: Load, columns: Sequence[str], runs: int) -> float:
    """Median CPU seconds to decode the whole load."""
    return median(decode(load, columns) for _ in range(runs))


def decode(load: Load, columns: Sequence[str]) -> float:
    """CPU seconds to decode the whole load once."""
    decoder = RecordDecoder(topic="bench", partition=0, from_offset=0, until_offset=load.records, columns=columns)
    rows = 0
    start = time.process_time()
    for fetch in load.fetches:
        decoder.feed(fetch)
        while (batch := decoder.read()) is not None:
            rows += batch.num_rows
    seconds = time.process_time() - start
    if rows != load.records or not decoder.done:
        raise AssertionError(f"{rows} rows of {load.records} records")
    return seconds


def make_load(size: int, codec: CompressionType, batch_bytes: int, total: int) -> Load:
    """Makes fetches of batches with keyed JSON values of ``size`` bytes, ``total`` bytes of values at least."""
    randomness = random.Random(7)
    fetches: list[bytes] = []
    fetch = bytearray()
    offset = 0
    while offset * size < total:
        count = max(batch_bytes // (size + 12), 1)
        batch = make_batch(offset, [value(randomness, size) for _ in range(count)], codec)
        if fetch and len(fetch) + len(batch) > FETCH_BYTES:
            fetches.append(bytes(fetch))
            fetch.clear()
        fetch += batch
        offset += count
    fetches.append(bytes(fetch))
    return Load(fetches, offset, offset * size, sum(map(len, fetches)))


def make_batch(base_offset: int, values: Sequence[bytes], codec: CompressionType) -> bytes:
    """Makes one batch with kafka-python's builder, and compresses it with pyarrow."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 30)
    for place, content in enumerate(values):
        builder.append(place, 1_700_000_000_000 + place * 3, content[:2], content, [])
    batch = bytearray(builder.build())
    batch[61:] = compress(codec, bytes(batch[61:]))
    struct.pack_into(">qi", batch, 0, base_offset, len(batch) - 12)
    struct.pack_into(">h", batch, 21, COMPRESSION_TYPE_IDS[codec])
    struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[21:])))
    return bytes(batch)


def compress(codec: str, plain: bytes) -> bytes:
    """Compresses records as clients do."""
    if codec == "none":
        return plain
    if codec == "gzip":
        return gzip.compress(plain, 6)
    if codec == "snappy":
        return bytes(pa.compress(plain, "snappy", asbytes=True))
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(plain)
    return bytes(sink.getvalue())


def value(randomness: random.Random, size: int) -> bytes:
    """JSON-like text of ``size`` bytes, some four times as large as its zstd."""
    text = f"{randomness.choice(CARRIERS)} "
    while len(text) < size:
        flight, delay = randomness.randrange(6000), randomness.randrange(-20, 90)
        tail = f"N{flight * 7 % 999:03d}{randomness.choice(CARRIERS)}"
        text += f'{{"flight":{flight},"dep_delay":{delay},"tailnum":"{tail}"}}'
    return text[:size].encode()


if __name__ == "__main__":
    main()
