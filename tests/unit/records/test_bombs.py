"""Bombs cost no more memory than is allowed, and where there is none they are an error and end no worker."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.unit.records.batches import Batch, Rec
from tests.unit.records.bombs import MIB, SIZE, bomb
from tests.unit.records.decoding import FAR, agreed, both, request

from pyspark_kafka_direct.errors import RecordTooLargeError

if TYPE_CHECKING:
    from pathlib import Path

CODECS = ("gzip", "snappy", "lz4", "zstd")
PASSING = [*(f"{codec}:pages" for codec in CODECS), "zstd:tiny", "zstd:headers"]
LARGE = [*(f"{codec}:value" for codec in CODECS), "zstd:one-of-headers", "zstd:bad-key", "zstd:endless", "gzip:old"]
STARVING = ["zstd:value", "lz4:value", "gzip:value", "zstd:one-of-headers", "zstd:bad-key", "gzip:old", "none:pages"]
ROWS = {"pages": SIZE >> 16, "tiny": 1 << 17, "headers": 64}
NO_LIMIT = 0


class Found(NamedTuple):
    name: str
    rows: int
    grown: int  # MiB
    outcome: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bombs")
    for name in {*PASSING, *LARGE, *STARVING, "gzip:control"}:
        (folder / name).write_bytes(bomb(name))
    return folder


def decode(implementation: str, folder: Path, names: list[str], *, largest: int, space: int = NO_LIMIT) -> list[Found]:
    command = [sys.executable, "-m", "tests.unit.records.bombs", implementation, str(folder), str(largest), str(space)]
    ended = subprocess.run([*command, *names], capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, (ended.returncode, ended.stdout, ended.stderr)
    lines = [line.split("|", 3) for line in ended.stdout.splitlines()]
    assert [name for name, *_ in lines] == names
    return [Found(name, int(rows), int(grown), outcome) for name, rows, grown, outcome in lines]


@both
def test_records_are_decompressed_as_they_are_read(implementation: str, folder: Path) -> None:
    found = decode(implementation, folder, PASSING, largest=1 << 30)
    assert [(each.rows, each.outcome) for each in found] == [(ROWS[name.split(":")[1]], "fine") for name in PASSING]
    assert found[-1].grown < SIZE // MIB * 3 // 4, found


@both
def test_of_a_marker_only_the_beginning_is_decompressed(implementation: str, folder: Path) -> None:
    (found,) = decode(implementation, folder, ["gzip:control"], largest=1 << 30)
    assert found.outcome.startswith("CorruptRecordError: A record's length does not fit its batch.")
    assert found.grown < SIZE // MIB // 4, found


@both
def test_what_is_larger_than_allowed_is_refused_before_it_takes_its_memory(implementation: str, folder: Path) -> None:
    found = decode(implementation, folder, LARGE, largest=SIZE // 8)
    assert [each.rows for each in found] == [0] * len(LARGE)
    assert all(each.outcome.startswith("RecordTooLargeError: ") for each in found), found
    assert all("8388608 bytes" in each.outcome and "maxRecordBatchBytes" in each.outcome for each in found), found
    assert found[-1].grown < SIZE // MIB * 3 // 4, found


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS holds on Linux only")
@both
def test_too_little_memory_is_an_error_of_ours(implementation: str, folder: Path) -> None:
    """As ``spark.executor.pyspark.memory`` has it."""
    found = decode(implementation, folder, STARVING, largest=1 << 30, space=SIZE // 4 * 3)
    assert all(each.outcome.startswith("RecordTooLargeError: There is not enough memory") for each in found), found
    assert all("spark.executor.pyspark.memory" in each.outcome for each in found), found
    assert all("topic flights, partition 7, offset 0" in each.outcome for each in found), found


@pytest.mark.parametrize("codec", ["none", *CODECS])
def test_the_limit_is_exact(codec: str) -> None:
    records = (Rec(bytes(100)), Rec(b"x" * 900), Rec(bytes(300)))
    sizes = [len(Batch((record,)).encode()) - 61 for record in records]
    data = Batch(records, codec=codec).encode()
    whole = sum(sizes) if codec != "none" else max(sizes)
    assert agreed(data, request(max_batch_bytes=whole)).error is None
    error = agreed(data, request(max_batch_bytes=whole - 1)).error
    assert isinstance(error, RecordTooLargeError)
    assert str(whole - 1) in str(error)


def test_headers_count_where_they_are_wanted() -> None:
    """Three times their bytes, and 12 each: what they may take as columns."""
    record = Rec(b"", b"", headers=((b"ab", b"c"), (b"", None)))
    size = len(Batch((record,)).encode()) - 61
    cost = size + 2 * (3 + 4) + 2 * 12
    data = Batch((record,) * 5).encode()
    assert [batch.num_rows for batch in agreed(data, request(max_bytes=2 * cost)).batches] == [2, 2, 1]
    assert [batch.num_rows for batch in agreed(data, request(max_bytes=2 * cost - 1)).batches] == [1] * 5
    assert agreed(data, request(max_batch_bytes=cost)).error is None
    refused = agreed(data, request(max_batch_bytes=cost - 1)).error
    assert isinstance(refused, RecordTooLargeError)
    assert refused.offset == 0
    without = request(0, FAR, ("offset",), max_bytes=5 * size, max_batch_bytes=size)
    assert [batch.num_rows for batch in agreed(data, without).batches] == [5]
    assert agreed(data).counts.bytes == 5 * size


def test_rows_come_before_what_is_too_large() -> None:
    data = Batch((Rec(b"a"), Rec(bytes(2000)), Rec(b"b")), 40).encode()
    outcome = agreed(data, request(max_batch_bytes=1000))
    assert outcome.column("offset") == [40]
    assert isinstance(outcome.error, RecordTooLargeError)
    assert outcome.error.offset == 41
    assert agreed(data, request(42, max_batch_bytes=1000)).column("value") == [b"b"]
