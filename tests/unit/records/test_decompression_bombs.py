"""Decompression bombs take no more memory than allowed, and cause an error, not a dead worker."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.unit.records.batches import Batch, Rec
from tests.unit.records.decoding import FAR, request, run
from tests.unit.records.decompression_bombs import MIB, SIZE, bomb

from pyspark_kafka_direct.errors import RecordTooLargeError

if TYPE_CHECKING:
    from pathlib import Path

CODECS = ("gzip", "snappy", "lz4", "zstd")
DECODABLE = [*(f"{codec}:pages" for codec in CODECS), "zstd:tiny", "zstd:headers"]
LARGE = [*(f"{codec}:value" for codec in CODECS), "zstd:one-of-headers", "zstd:bad-key", "zstd:endless", "gzip:old"]
OUT_OF_MEMORY = [
    "zstd:value",
    "lz4:value",
    "gzip:value",
    "zstd:one-of-headers",
    "zstd:bad-key",
    "gzip:old",
    "none:pages",
]
ROWS = {"pages": SIZE >> 16, "tiny": 1 << 17, "headers": 64}
NO_LIMIT = 0
OWN_MIB = 16  # the memory of a decoder and of the batch that it returns


class Result(NamedTuple):
    name: str
    rows: int
    grown: int  # MiB
    outcome: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bombs")
    for name in {*DECODABLE, *LARGE, *OUT_OF_MEMORY, "gzip:control"}:
        (folder / name).write_bytes(bomb(name))
    return folder


def decode(folder: Path, names: list[str], *, max_batch_bytes: int, address_space: int = NO_LIMIT) -> list[Result]:
    command = [
        sys.executable,
        "-m",
        "tests.unit.records.decompression_bombs",
        str(folder),
        str(max_batch_bytes),
        str(address_space),
    ]
    completed = subprocess.run([*command, *names], capture_output=True, text=True, check=False, timeout=300)
    assert completed.returncode == 0, (completed.returncode, completed.stdout, completed.stderr)
    lines = [line.split("|", 3) for line in completed.stdout.splitlines()]
    assert [name for name, *_ in lines] == names
    return [Result(name, int(rows), int(grown), outcome) for name, rows, grown, outcome in lines]


@pytest.mark.slow
def test_records_are_decompressed_as_they_are_read(folder: Path) -> None:
    results = decode(folder, DECODABLE, max_batch_bytes=1 << 30)
    assert [(each.rows, each.outcome) for each in results] == [(ROWS[name.split(":")[1]], "ok") for name in DECODABLE]
    assert results[-1].grown < OWN_MIB + SIZE // MIB * 3 // 4, results


def test_only_the_start_of_a_marker_is_decompressed(folder: Path) -> None:
    (result,) = decode(folder, ["gzip:control"], max_batch_bytes=1 << 30)
    assert result.outcome.startswith("CorruptRecordError: A record's length does not fit its batch.")
    assert result.grown < SIZE // MIB // 4, result


def test_too_large_batches_are_rejected_before_they_take_memory(folder: Path) -> None:
    results = decode(folder, LARGE, max_batch_bytes=SIZE // 8)
    limit = f"{SIZE // 8} bytes"
    assert [each.rows for each in results] == [0] * len(LARGE)
    assert all(each.outcome.startswith("RecordTooLargeError: ") for each in results), results
    assert all(limit in each.outcome and "maxRecordBatchBytes" in each.outcome for each in results), results
    assert results[-1].grown < SIZE // MIB * 3 // 4, results


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS holds on Linux only")
def test_memory_error_is_a_record_error(folder: Path) -> None:
    """With the memory limit of ``spark.executor.pyspark.memory``."""
    results = decode(folder, OUT_OF_MEMORY, max_batch_bytes=1 << 30, address_space=SIZE // 4 * 3)
    assert all(each.outcome.startswith("RecordTooLargeError: There is not enough memory") for each in results), results
    assert all("spark.executor.pyspark.memory" in each.outcome for each in results), results
    assert all("topic flights, partition 7, offset 0" in each.outcome for each in results), results


@pytest.mark.parametrize("codec", ["none", *CODECS])
def test_the_limit_is_exact(codec: str) -> None:
    records = (Rec(bytes(100)), Rec(b"x" * 900), Rec(bytes(300)))
    sizes = [len(Batch((record,)).encode()) - 61 for record in records]
    data = Batch(records, codec=codec).encode()
    size = sum(sizes) if codec != "none" else max(sizes)
    assert run(data, request(max_batch_bytes=size)).error is None
    error = run(data, request(max_batch_bytes=size - 1)).error
    assert isinstance(error, RecordTooLargeError)
    assert str(size - 1) in str(error)


def test_headers_count_if_they_are_wanted() -> None:
    """Their maximum size as columns: three times their bytes, and 12 each."""
    record = Rec(b"", b"", headers=((b"ab", b"c"), (b"", None)))
    size = len(Batch((record,)).encode()) - 61
    cost = size + 2 * (3 + 4) + 2 * 12
    data = Batch((record,) * 5).encode()
    assert [batch.num_rows for batch in run(data, request(max_bytes=2 * cost)).batches] == [2, 2, 1]
    assert [batch.num_rows for batch in run(data, request(max_bytes=2 * cost - 1)).batches] == [1] * 5
    assert run(data, request(max_batch_bytes=cost)).error is None
    error = run(data, request(max_batch_bytes=cost - 1)).error
    assert isinstance(error, RecordTooLargeError)
    assert error.offset == 0
    without = request(0, FAR, ("offset",), max_bytes=5 * size, max_batch_bytes=size)
    assert [batch.num_rows for batch in run(data, without).batches] == [5]
    assert run(data).counts.bytes == 5 * size


def test_rows_before_a_too_large_record_are_returned() -> None:
    data = Batch((Rec(b"a"), Rec(bytes(2000)), Rec(b"b")), 40).encode()
    outcome = run(data, request(max_batch_bytes=1000))
    assert outcome.column("offset") == [40]
    assert isinstance(outcome.error, RecordTooLargeError)
    assert outcome.error.offset == 41
    assert run(data, request(42, max_batch_bytes=1000)).column("value") == [b"b"]


RETAINED = """
import resource, struct, sys
from pathlib import Path
import pyarrow as pa
from tests.unit.records.decoding import request
from tests.unit.records.encoding import make_encoder
from pyspark_kafka_direct.records import RecordDecoder
from pyspark_kafka_direct.records.columns import binary_column

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20

for codec in sys.argv[1:]:
    encoder = make_encoder(codec=codec, batch_bytes=1 << 30, max_record_bytes=1 << 30)
    decoder = RecordDecoder(**request(columns=("value",)))
    before = 0
    for offset, size in enumerate([1000, 24 << 20, 1000, 2000]):
        # Arrow's own memory pool would retain some.
        encoder.add(pa.record_batch({"value": binary_column([bytes(size)]), "timestamp": pa.array([0])}))
        (batch,) = encoder.flush()
        data = bytearray(batch.data)
        struct.pack_into(">q", data, 0, offset)
        del batch
        decoder.feed(data)
        rows = decoder.read()
        assert len(rows.column("value")[0].as_buffer()) == size
        del rows
        assert decoder.read() is None
        before = before or resident()
    print(codec, resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc exists on Linux only")
def test_the_memory_of_an_unusual_batch_is_freed_with_the_next_one() -> None:
    # The allocator returns freed memory of this size to the operating system.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(MIB)}
    command = [sys.executable, "-c", RETAINED, *CODECS]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, ended
    grown = dict(line.split() for line in ended.stdout.splitlines())
    assert list(grown) == list(CODECS)
    assert all(int(mib) < OWN_MIB for mib in grown.values()), grown
