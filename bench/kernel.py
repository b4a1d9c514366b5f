"""The record decoder alone: record bytes in memory to Arrow, on one core.

Prints millions of records and gigabytes of values a second, per CPU second, for each codec and record size, native and
Python. ``python -m bench.kernel``; ``--quick`` for a few seconds. The batches are filled like a Java producer's with
its default ``batch.size`` of 16 KiB, or with ``--batch-bytes``, and fed 1 MiB at a time as fetches are.
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

from pyspark_kafka_direct.records import COLUMNS, IMPLEMENTATION
from pyspark_kafka_direct.records._protocol import DecodeRequest
from pyspark_kafka_direct.records._python import PythonDecoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark_kafka_direct.records import RecordDecoder

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
SEVEN = COLUMNS[:7]
FETCH_BYTES = 1 << 20
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
    parser.add_argument("--codecs", nargs="+", default=list(CODECS), choices=list(CODECS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 1024], help="bytes of a value")
    options = parser.parse_args()
    runs = 3 if options.quick else 9
    megabytes = 8 if options.quick else 32
    print(f"{'size':>6} {'codec':8} {'columns':8} {'decoder':8} {'M records/s':>12} {'GB/s':>7} {'ns/record':>10}")
    for size, codec in itertools.product(options.sizes, options.codecs):
        load = make_load(size, codec, options.batch_bytes, megabytes << 20)
        for columns, label in ((SEVEN, "all 7"), (("value",), "value")):
            for name, create in decoders():
                seconds = measure(create, load, columns, runs if name == "native" else 1)
                print(
                    f"{size:>6} {codec:8} {label:8} {name:8} {load.records / seconds / 1e6:>12.2f} "
                    f"{load.value_bytes / seconds / 1e9:>7.3f} {seconds / load.records * 1e9:>10.1f}",
                    flush=True,
                )


def decoders() -> Iterator[tuple[str, Callable[[DecodeRequest], RecordDecoder]]]:
    """The decoders there are."""
    if IMPLEMENTATION == "native":
        from pyspark_kafka_direct.records._native_decoder import NativeDecoder

        yield "native", NativeDecoder
    yield "python", PythonDecoder


def measure(create: Callable[[DecodeRequest], RecordDecoder], load: Load, columns: Sequence[str], runs: int) -> float:
    """Median CPU seconds to decode the whole load."""
    return median(decode(create, load, columns) for _ in range(runs))


def decode(create: Callable[[DecodeRequest], RecordDecoder], load: Load, columns: Sequence[str]) -> float:
    """CPU seconds to decode the whole load once."""
    decoder = create(DecodeRequest("bench", 0, 0, load.records, tuple(columns), True, 65536, 4 << 20))
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


def make_load(size: int, codec: str, batch_bytes: int, total: int) -> Load:
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


def make_batch(base_offset: int, values: Sequence[bytes], codec: str) -> bytes:
    """Makes one batch with kafka-python's builder, and compresses it with pyarrow."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 30)
    for place, content in enumerate(values):
        builder.append(place, 1_700_000_000_000 + place * 3, content[:2], content, [])
    batch = bytearray(builder.build())
    batch[61:] = compress(codec, bytes(batch[61:]))
    struct.pack_into(">qi", batch, 0, base_offset, len(batch) - 12)
    struct.pack_into(">h", batch, 21, CODECS[codec])
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
