"""Every codec, in every framing that clients use."""

from __future__ import annotations

import gzip
import os
import random
import struct
import subprocess
import sys

import pytest
from tests.unit.records.batches import CODECS, Batch, Rec, compress, encode_record, xerial
from tests.unit.records.decoding import request, run
from tests.unit.records.lz4_frames import fix_header_checksum, lz4_frame, raw_lz4
from tests.unit.records.size_claims import CLAIMS, texts

from pyspark_kafka_direct.errors import CorruptRecordError

PACKED = [codec for codec in CODECS if codec != "none"]


def body(records: tuple[Rec, ...]) -> bytes:
    return b"".join(encode_record(record, index) for index, record in enumerate(records))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 10, 5000])
def test_every_codec(codec: str, count: int) -> None:
    records = texts(count)
    outcome = run(Batch(records, codec=codec).encode(), request(columns=("key", "value")))
    assert outcome.column("value") == [record.value for record in records]
    assert outcome.column("key") == [record.key for record in records]


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_record(codec: str) -> None:
    value = os.urandom(3 << 20) + bytes(9 << 20)
    outcome = run(Batch((Rec(value), Rec(b"next")), codec=codec).encode(), request(columns=("value",)))
    assert [batch.num_rows for batch in outcome.batches] == [1, 1]
    assert outcome.column("value") == [value, b"next"]


def test_snappy_in_the_java_clients_framing() -> None:
    records = texts(2000)
    data = body(records)
    assert len(data) > 3 * (32 << 10)
    outcome = run(Batch(records, codec="snappy", compressed=xerial(data)).encode())
    assert outcome.column("value") == [record.value for record in records]


@pytest.mark.parametrize("truncation", [8, 12, 15, 17, 19, 25, -1])
def test_truncated_snappy_framing(truncation: int) -> None:
    compressed = xerial(body(texts(50)))[:truncation]
    outcome = run(Batch(texts(50), codec="snappy", compressed=compressed).encode())
    assert isinstance(outcome.error, CorruptRecordError)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize(
    "features",
    [
        {},
        {"block_checksums": True},
        {"content_size": True},
        {"content_checksum": True},
        {"stored": True},
        {"stored": True, "block_checksums": True, "content_size": True, "content_checksum": True},
    ],
)
def test_lz4_frames(features: dict[str, bool], linked: bool) -> None:
    records = texts(900)
    compressed = lz4_frame(body(records), linked=linked, **features)
    outcome = run(Batch(records, codec="lz4", compressed=compressed).encode())
    assert outcome.error is None, outcome.error
    assert outcome.column("value") == [record.value for record in records]


def test_lz4_blocks_that_refer_to_their_predecessor() -> None:
    records = (Rec(bytes(range(48, 112))), Rec(bytes(range(48, 112))))
    data = body(records)
    size = len(data) // 2
    first, second = data[:size], data[size:]
    assert second[5:] == first[5:]  # the fifth byte is the offset delta
    # Five literals, a match that reaches back into the first block, and the five literals that end a block.
    match = size - 10
    block2 = bytes([5 << 4 | 15]) + second[:5] + struct.pack("<H", size) + bytes([match - 4 - 15, 5 << 4]) + second[-5:]
    frame = b"\x04\x22\x4d\x18\x40\x40\0"
    for block in (raw_lz4(first), block2):
        frame += struct.pack("<I", len(block)) + block
    compressed = fix_header_checksum(frame + bytes(4))
    outcome = run(Batch(records, codec="lz4", compressed=compressed).encode())
    assert outcome.error is None, outcome.error
    assert outcome.column("value") == [record.value for record in records]
    alone = fix_header_checksum(compressed[:4] + b"\x60" + compressed[5:])  # the same, marked as independent
    assert isinstance(run(Batch(records, codec="lz4", compressed=alone).encode()).error, CorruptRecordError)


def damaged_lz4() -> dict[str, bytes]:
    good = lz4_frame(body(texts(20)), block_checksums=True, content_size=True, content_checksum=True)
    changed = bytearray(good)
    cases = {"magic": 0, "header checksum": 14, "content size": 7, "block checksum": -13, "content checksum": -1}
    out = {}
    for name, at in cases.items():
        changed = bytearray(good)
        changed[at] ^= 1
        out[name] = fix_header_checksum(bytes(changed)) if name == "content size" else bytes(changed)
    for name, at, bits in (("version", 4, 0x80), ("reserved", 4, 0x02), ("dictionary", 4, 0x01), ("block", 5, 0x80)):
        changed = bytearray(good)
        changed[at] |= bits
        out[name] = fix_header_checksum(bytes(changed))
    return out


@pytest.mark.parametrize("damage", damaged_lz4())
def test_damaged_lz4_frames(damage: str) -> None:
    outcome = run(Batch(texts(20), codec="lz4", compressed=damaged_lz4()[damage]).encode())
    assert isinstance(outcome.error, CorruptRecordError)
    assert ("the frame requires a dictionary" in str(outcome.error)) == (damage == "dictionary")


def test_gzip_in_several_members() -> None:
    records = texts(300)
    data = body(records)
    compressed = gzip.compress(data[:1000]) + gzip.compress(b"") + gzip.compress(data[1000:])
    assert run(Batch(records, codec="gzip", compressed=compressed).encode()).error is None


def test_zstd_in_several_frames() -> None:
    records = texts(300)
    data = body(records)
    skippable = struct.pack("<II", 0x184D2A50, 3) + b"abc"
    compressed = compress("zstd", data[:1000]) + skippable + compress("zstd", data[1000:])
    assert run(Batch(records, codec="zstd", compressed=compressed).encode()).error is None


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("truncation", ["empty", "first byte", "half", "last byte missing", "garbage after"])
def test_truncated_streams(codec: str, truncation: str) -> None:
    compressed = compress(codec, body(texts(100)))
    truncations = {
        "empty": b"",
        "first byte": compressed[:1],
        "half": compressed[: len(compressed) // 2],
        "last byte missing": compressed[:-1],
        "garbage after": compressed + b"garbage",
    }
    outcome = run(Batch(texts(100), codec=codec, compressed=truncations[truncation]).encode())
    assert isinstance(outcome.error, CorruptRecordError)
    assert codec in str(outcome.error)
    assert outcome.error.offset == 0


def test_stream_truncated_after_several_chunks_is_reported_at_the_batch() -> None:
    records = tuple(Rec(random.Random(number).randbytes(700_000)) for number in range(4))
    compressed = compress("gzip", body(records))[:-1]
    outcome = run(Batch(records, 7, codec="gzip", compressed=compressed).encode())
    assert outcome.column("offset") == [7, 8]  # the records in complete chunks of a MiB
    assert isinstance(outcome.error, CorruptRecordError)
    assert outcome.error.offset == 7


def test_several_lz4_frames_are_rejected() -> None:
    """Kafka's Java client reads one frame and reports missing records."""
    records = texts(300)
    data = body(records)
    compressed = lz4_frame(data[:1000]) + lz4_frame(data[1000:])
    outcome = run(Batch(records, codec="lz4", compressed=compressed).encode())
    assert isinstance(outcome.error, CorruptRecordError)
    assert "after the frame" in str(outcome.error)


@pytest.mark.parametrize(
    ("preamble", "message"),
    [
        (b"\xff\xff\xff\xff\x0f", "cannot hold the 4294967295 they claim"),
        (b"\x80\x80\x80\x80\x01", "cannot hold the 268435456 they claim"),
        (b"\x80\x80\x80\x80\x80\x01", "snappy"),
    ],
)
def test_snappy_block_with_a_too_large_claim(preamble: bytes, message: str) -> None:
    outcome = run(Batch(texts(1), codec="snappy", compressed=preamble + b"\0a").encode())
    assert isinstance(outcome.error, CorruptRecordError)
    assert message in str(outcome.error)


@pytest.mark.parametrize("codec", PACKED)
def test_highly_compressed_zeros_are_decoded(codec: str) -> None:
    value = bytes(24 << 20)
    data = Batch((Rec(value),), codec=codec).encode()
    outcome = run(data, request(columns=("offset",)))
    assert outcome.error is None
    assert outcome.column("offset") == [0]


MEASURE = """
from tests.unit.records.batches import Batch
from tests.unit.records.decoding import run
from tests.unit.records.peak_memory import peak_memory
from tests.unit.records.lz4_frames import fix_header_checksum, lz4_frame, raw_lz4
from tests.unit.records.size_claims import CLAIMS, texts

for compressed in (None, *CLAIMS.items()):  # first an undamaged one, to load everything
    codec, compressed = compressed or ("zstd", None)
    before = peak_memory()
    outcome = run(Batch(texts(1), codec=codec.split()[0], compressed=compressed).encode())
    print(codec, type(outcome.error).__name__, (peak_memory() - before) >> 20)
"""


@pytest.mark.slow
def test_claimed_sizes_allocate_no_memory() -> None:
    completed = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    good, *bad = [line.rsplit(maxsplit=2) for line in completed.stdout.splitlines()]
    assert good[1] == "NoneType"
    assert [error for _, error, _ in bad] == ["CorruptRecordError"] * len(CLAIMS)
    assert all(int(megabytes) < 16 for _, _, megabytes in bad), bad
