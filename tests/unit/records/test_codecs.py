"""Every codec, in every shape clients give it."""

from __future__ import annotations

import gzip
import os
import random
import struct
import subprocess
import sys
import tracemalloc

import pyarrow as pa
import pytest
from tests.unit.records.batches import CODECS, Batch, Rec, compress, encode_record, xerial
from tests.unit.records.claims import CLAIMS, texts
from tests.unit.records.decoding import both, request, run

from pyspark_kafka_direct.errors import CorruptRecordError
from pyspark_kafka_direct.records._python._bad_record import BadRecordError
from pyspark_kafka_direct.records._python._batch_format import Codec
from pyspark_kafka_direct.records._python._codecs import PIECE, decompress
from pyspark_kafka_direct.records._python._lz4_frame import with_right_checksum

PACKED = [codec for codec in CODECS if codec != "none"]


def plain(records: tuple[Rec, ...]) -> bytes:
    return b"".join(encode_record(record, place) for place, record in enumerate(records))


def raw_lz4(data: bytes) -> bytes:
    return bytes(pa.compress(data, "lz4_raw", asbytes=True))


def lz4_frame(
    data: bytes,
    *,
    linked: bool = False,
    block_checksums: bool = False,
    content_size: bool = False,
    content_checksum: bool = False,
    stored: bool = False,
    block: int = 64 << 10,
) -> bytes:
    """An LZ4 frame with these features (pyarrow writes one kind only)."""
    flags = 0x40 | (not linked) << 5 | block_checksums << 4 | content_size << 3 | content_checksum << 2
    head = bytes([flags, 0x40]) + (struct.pack("<Q", len(data)) if content_size else b"")
    out = b"\x04\x22\x4d\x18" + head + b"\0"
    for start in range(0, len(data), block):
        piece = data[start : start + block]
        packed, mark = (piece, 1 << 31) if stored else (raw_lz4(piece), 0)
        out += struct.pack("<I", len(packed) | mark) + packed
        out += struct.pack("<I", xxhash32(packed)) if block_checksums else b""
    out += bytes(4) + (struct.pack("<I", xxhash32(data)) if content_checksum else b"")
    return with_right_checksum(out)


def xxhash32(data: bytes) -> int:
    """xxHash32 with seed 0, as its specification has it."""
    prime1, prime2, prime3, prime4, prime5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    mask = 0xFFFFFFFF

    def turn(number: int, by: int) -> int:
        return (number << by | number >> (32 - by)) & mask

    at = 0
    if len(data) >= 16:
        lanes = [(prime1 + prime2) & mask, prime2, 0, -prime1 & mask]
        while at + 16 <= len(data):
            for lane in range(4):
                word = int.from_bytes(data[at : at + 4], "little")
                lanes[lane] = turn((lanes[lane] + word * prime2) & mask, 13) * prime1 & mask
                at += 4
        value = sum(turn(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
    else:
        value = prime5
    value = (value + len(data)) & mask
    while at + 4 <= len(data):
        value = turn((value + int.from_bytes(data[at : at + 4], "little") * prime3) & mask, 17) * prime4 & mask
        at += 4
    for byte in data[at:]:
        value = turn((value + byte * prime5) & mask, 11) * prime1 & mask
    value = (value ^ value >> 15) * prime2 & mask
    value = (value ^ value >> 13) * prime3 & mask
    return value ^ value >> 16


@both
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 10, 5000])
def test_every_codec(implementation: str, codec: str, count: int) -> None:
    records = texts(count)
    outcome = run(implementation, Batch(records, codec=codec).encode(), request(columns=("key", "value")))
    assert outcome.column("value") == [record.value for record in records]
    assert outcome.column("key") == [record.key for record in records]


@both
@pytest.mark.parametrize("codec", CODECS)
def test_a_large_record(implementation: str, codec: str) -> None:
    value = os.urandom(3 << 20) + bytes(9 << 20)
    outcome = run(implementation, Batch((Rec(value), Rec(b"next")), codec=codec).encode(), request(columns=("value",)))
    assert [batch.num_rows for batch in outcome.batches] == [1, 1]
    assert outcome.column("value") == [value, b"next"]


@both
def test_snappy_in_the_java_clients_framing(implementation: str) -> None:
    records = texts(2000)
    data = plain(records)
    assert len(data) > 3 * (32 << 10)
    outcome = run(implementation, Batch(records, codec="snappy", packed=xerial(data)).encode())
    assert outcome.column("value") == [record.value for record in records]


@both
@pytest.mark.parametrize("cut", [8, 12, 15, 17, 19, 25, -1])
def test_snappy_framing_that_is_cut_off(implementation: str, cut: int) -> None:
    packed = xerial(plain(texts(50)))[:cut]
    outcome = run(implementation, Batch(texts(50), codec="snappy", packed=packed).encode())
    assert isinstance(outcome.error, CorruptRecordError)


@both
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
def test_lz4_frames(implementation: str, features: dict[str, bool], linked: bool) -> None:
    records = texts(900)
    packed = lz4_frame(plain(records), linked=linked, **features)
    outcome = run(implementation, Batch(records, codec="lz4", packed=packed).encode())
    assert outcome.error is None, outcome.error
    assert outcome.column("value") == [record.value for record in records]


@both
def test_lz4_blocks_that_refer_to_their_predecessor(implementation: str) -> None:
    records = (Rec(bytes(range(48, 112))), Rec(bytes(range(48, 112))))
    data = plain(records)
    size = len(data) // 2
    first, second = data[:size], data[size:]
    assert second[5:] == first[5:]  # the fifth byte is the offset delta
    # Five literals, a match that reaches back into the first block, and the five literals that end a block.
    match = size - 10
    block2 = bytes([5 << 4 | 15]) + second[:5] + struct.pack("<H", size) + bytes([match - 4 - 15, 5 << 4]) + second[-5:]
    frame = b"\x04\x22\x4d\x18\x40\x40\0"
    for block in (raw_lz4(first), block2):
        frame += struct.pack("<I", len(block)) + block
    packed = with_right_checksum(frame + bytes(4))
    outcome = run(implementation, Batch(records, codec="lz4", packed=packed).encode())
    assert outcome.error is None, outcome.error
    assert outcome.column("value") == [record.value for record in records]
    alone = with_right_checksum(packed[:4] + b"\x60" + packed[5:])  # the same, said to be independent
    assert isinstance(run(implementation, Batch(records, codec="lz4", packed=alone).encode()).error, CorruptRecordError)


def damaged_lz4() -> dict[str, bytes]:
    good = lz4_frame(plain(texts(20)), block_checksums=True, content_size=True, content_checksum=True)
    changed = bytearray(good)
    cases = {"magic": 0, "header checksum": 14, "content size": 7, "block checksum": -13, "content checksum": -1}
    out = {}
    for name, at in cases.items():
        changed = bytearray(good)
        changed[at] ^= 1
        out[name] = with_right_checksum(bytes(changed)) if name == "content size" else bytes(changed)
    for name, at, bits in (("version", 4, 0x80), ("reserved", 4, 0x02), ("dictionary", 4, 0x01), ("block", 5, 0x80)):
        changed = bytearray(good)
        changed[at] |= bits
        out[name] = with_right_checksum(bytes(changed))
    return out


@both
@pytest.mark.parametrize("what", damaged_lz4())
def test_damaged_lz4_frames(implementation: str, what: str) -> None:
    outcome = run(implementation, Batch(texts(20), codec="lz4", packed=damaged_lz4()[what]).encode())
    assert isinstance(outcome.error, CorruptRecordError)
    assert ("the frame wants a dictionary" in str(outcome.error)) == (what == "dictionary")


@both
def test_gzip_in_several_members(implementation: str) -> None:
    records = texts(300)
    data = plain(records)
    packed = gzip.compress(data[:1000]) + gzip.compress(b"") + gzip.compress(data[1000:])
    assert run(implementation, Batch(records, codec="gzip", packed=packed).encode()).error is None


@both
def test_zstd_in_several_frames(implementation: str) -> None:
    records = texts(300)
    data = plain(records)
    skippable = struct.pack("<II", 0x184D2A50, 3) + b"abc"
    packed = compress("zstd", data[:1000]) + skippable + compress("zstd", data[1000:])
    assert run(implementation, Batch(records, codec="zstd", packed=packed).encode()).error is None


@both
@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("cut", ["empty", "first byte", "half", "last byte missing", "garbage behind"])
def test_cut_off_streams(implementation: str, codec: str, cut: str) -> None:
    packed = compress(codec, plain(texts(100)))
    cuts = {
        "empty": b"",
        "first byte": packed[:1],
        "half": packed[: len(packed) // 2],
        "last byte missing": packed[:-1],
        "garbage behind": packed + b"garbage",
    }
    outcome = run(implementation, Batch(texts(100), codec=codec, packed=cuts[cut]).encode())
    assert isinstance(outcome.error, CorruptRecordError)
    assert codec in str(outcome.error)
    assert outcome.error.offset == 0


def test_a_zstd_frame_that_is_cut_off_leaves_nothing_in_memory() -> None:
    packed = pa.Codec("zstd").compress(os.urandom(1000) * 200, asbytes=True)[:500]
    tracemalloc.start()
    try:
        for _ in range(20):
            with pytest.raises(BadRecordError, match="cannot be decompressed"):
                list(decompress(Codec.ZSTD, packed, 1 << 20))
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < PIECE  # twenty pieces, when each failure kept its own


@both
def test_a_stream_that_is_cut_off_behind_several_pieces_is_blamed_on_no_record(implementation: str) -> None:
    records = tuple(Rec(random.Random(number).randbytes(700_000)) for number in range(4))
    packed = compress("gzip", plain(records))[:-1]
    outcome = run(implementation, Batch(records, 7, codec="gzip", packed=packed).encode())
    assert outcome.column("offset") == [7, 8]  # what is in whole pieces of a MiB
    assert isinstance(outcome.error, CorruptRecordError)
    assert outcome.error.offset == 7


@both
def test_lz4_in_several_frames_is_refused(implementation: str) -> None:
    """Kafka's Java client reads one frame and takes the rest for missing records."""
    records = texts(300)
    data = plain(records)
    packed = lz4_frame(data[:1000]) + lz4_frame(data[1000:])
    outcome = run(implementation, Batch(records, codec="lz4", packed=packed).encode())
    assert isinstance(outcome.error, CorruptRecordError)
    assert "behind the frame" in str(outcome.error)


@both
@pytest.mark.parametrize(
    ("preamble", "message"),
    [
        (b"\xff\xff\xff\xff\x0f", "cannot hold the 4294967295 they claim"),
        (b"\x80\x80\x80\x80\x01", "cannot hold the 268435456 they claim"),
        (b"\x80\x80\x80\x80\x80\x01", "snappy"),
    ],
)
def test_a_snappy_block_that_claims_too_much(implementation: str, preamble: bytes, message: str) -> None:
    outcome = run(implementation, Batch(texts(1), codec="snappy", packed=preamble + b"\0a").encode())
    assert isinstance(outcome.error, CorruptRecordError)
    assert message in str(outcome.error)


@both
@pytest.mark.parametrize("codec", PACKED)
def test_zeros_by_the_million_are_fine(implementation: str, codec: str) -> None:
    value = bytes(24 << 20)
    data = Batch((Rec(value),), codec=codec).encode()
    outcome = run(implementation, data, request(columns=("offset",)))
    assert outcome.error is None
    assert outcome.column("offset") == [0]


MEASURE = """
import resource
from tests.unit.records.batches import Batch
from tests.unit.records.decoding import run
from tests.unit.records.claims import CLAIMS, texts

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

for packed in (None, *CLAIMS.items()):  # first a good one, to have everything loaded
    codec, packed = packed or ("zstd", None)
    before = peak()
    outcome = run({implementation!r}, Batch(texts(1), codec=codec.split()[0], packed=packed).encode())
    print(codec, type(outcome.error).__name__, (peak() - before) // 1024)
"""


@both
def test_claims_cost_no_memory(implementation: str) -> None:
    code = MEASURE.format(implementation=implementation)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    good, *bad = [line.rsplit(maxsplit=2) for line in found.stdout.splitlines()]
    assert good[1] == "NoneType"
    assert [error for _, error, _ in bad] == ["CorruptRecordError"] * len(CLAIMS)
    assert all(int(megabytes) < 16 for _, _, megabytes in bad), bad
