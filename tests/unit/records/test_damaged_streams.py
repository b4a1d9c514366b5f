"""Truncated compressed records, and excess bytes.

Records are decompressed and read in chunks of a MiB, so rows are returned before the damage is detected.
"""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.records.batches import Batch, Rec, compress, xerial
from tests.unit.records.decoding import request, run
from tests.unit.records.mutations import body

from pyspark_kafka_direct.errors import CorruptRecordError, RecordTooLargeError

PACKINGS = ("gzip", "gzip in members", "snappy", "xerial", "lz4", "zstd", "zstd in frames")
LATE = ("gzip", "gzip in members", "xerial", "zstd", "zstd in frames")
"""They detect truncation at the end of the frame; lz4 and a raw block of Snappy at once."""

CHUNK_BYTES = 1 << 20
"""Of the kernel: records are decompressed in chunks of this size."""

BATCH = 7
"""The offset of the first record."""


def pack(packing: str, uncompressed: bytes) -> bytes:
    codec, *several = packing.split(" in ")
    if several:
        middle = len(uncompressed) * 3 // 5
        return compress(codec, uncompressed[:middle]) + compress(codec, uncompressed[middle:])
    return xerial(uncompressed) if packing == "xerial" else compress(codec, uncompressed)


def batch(packing: str, records: tuple[Rec, ...], packed_records: bytes) -> bytes:
    codec = "snappy" if packing == "xerial" else packing.split()[0]
    return Batch(records, BATCH, codec, compressed=packed_records).encode()


def values(seed: int, size: int, count: int, *, dense: bool) -> tuple[Rec, ...]:
    rng = random.Random(seed)
    return tuple(Rec(rng.randbytes(size) if dense else bytes([rng.randrange(256)]) * size) for _ in range(count))


def rows_in_whole_pieces(records: tuple[Rec, ...]) -> int:
    """How many of these records lie in complete chunks."""
    complete = len(body(records)) // CHUNK_BYTES * CHUNK_BYTES
    return sum(len(body(records[: count + 1])) <= complete for count in range(len(records)))


@pytest.mark.slow
@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("damage", ["one byte missing", "trailer missing", "garbage behind"])
def test_rows_of_complete_chunks_are_returned_before_the_error(packing: str, damage: str) -> None:
    records = values(1, 700_000, 4, dense=True)
    good = pack(packing, body(records))
    damaged = {"one byte missing": good[:-1], "trailer missing": good[:-8], "garbage behind": good + b"garbage"}
    outcome = run(batch(packing, records, damaged[damage]))
    assert isinstance(outcome.error, CorruptRecordError)
    assert outcome.error.offset == BATCH
    assert rows_in_whole_pieces(records) == 2
    assert outcome.column("offset") == ([BATCH, BATCH + 1] if packing in LATE else [])


@pytest.mark.parametrize("packing", LATE)
@pytest.mark.parametrize("missing", [0, 1])
def test_stream_that_ends_with_a_chunk_is_checked_to_its_end(packing: str, missing: int) -> None:
    """The third record ends with the second chunk, which is complete if the codec has a checksum after it."""
    two = values(1, 900_000, 2, dense=True)
    third = 100_000 + 2 * CHUNK_BYTES - len(body((*two, Rec(bytes(100_000)))))
    records = (*two, Rec(random.Random(3).randbytes(third)))
    uncompressed = body(records)
    assert len(uncompressed) == 2 * CHUNK_BYTES
    good = pack(packing, uncompressed)
    outcome = run(batch(packing, records, good[: len(good) - missing]))
    # With the other codecs, the missing bytes belong to the last block.
    complete = 2 if not missing or packing in ("gzip", "gzip in members", "zstd") else 1
    assert outcome.column("offset") == [BATCH, BATCH + 1, BATCH + 2][: 2 * complete - 1]
    assert isinstance(outcome.error, CorruptRecordError) == bool(missing)


def test_error_after_a_chunk_keeps_its_rows() -> None:
    """The output of a codec before an error is lost, and the second member starts within the first chunk."""
    records = values(4, 100_000, 20, dense=False)
    uncompressed = body(records)
    second = zlib.compressobj(wbits=31)
    damaged_member = (
        second.compress(uncompressed[600_000:1_300_000]) + second.flush(zlib.Z_FULL_FLUSH) + b"\x07no such block"
    )
    outcome = run(batch("gzip", records, compress("gzip", uncompressed[:600_000]) + damaged_member))
    assert isinstance(outcome.error, CorruptRecordError)
    assert len(outcome.column("offset")) == CHUNK_BYTES // 100_000


@pytest.mark.parametrize("packing", PACKINGS)
def test_rows_do_not_depend_on_what_was_decoded_before(packing: str) -> None:
    """A large buffer of an earlier record must not change how far the decoder reads ahead."""
    records = values(2, 100_000, 33, dense=False)
    damaged = batch(packing, records, pack(packing, body(records))[:-1])
    large = Batch((Rec(bytes(9 << 20)),), 0, "zstd").encode()
    alone, behind = run(damaged), run(large + damaged)
    assert behind.column("offset") == [0, *alone.column("offset")]


@pytest.mark.parametrize("packing", ["gzip", "xerial", "lz4", "zstd"])
@pytest.mark.parametrize(
    "max_batch_bytes", [CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES // 2, 3 * CHUNK_BYTES]
)
def test_rows_before_a_batch_is_too_large(packing: str, max_batch_bytes: int) -> None:
    records = values(3, 100_000, 33, dense=False)
    data = batch(packing, records, pack(packing, body(records)))
    outcome = run(data, request(max_batch_bytes=max_batch_bytes))
    assert isinstance(outcome.error, RecordTooLargeError)
    assert len(outcome.column("offset")) == min(max_batch_bytes // CHUNK_BYTES * CHUNK_BYTES // 100_000, 31)


@pytest.mark.parametrize("packing", ["gzip", "xerial", "zstd"])
def test_too_large_record_is_reported_before_a_later_error(packing: str) -> None:
    records = (Rec(bytes(CHUNK_BYTES)),)
    data = batch(packing, records, pack(packing, body(records))[:-1])
    outcome = run(data, request(max_batch_bytes=CHUNK_BYTES))
    assert isinstance(outcome.error, RecordTooLargeError)


@examples(20)
@given(st.data(), st.sampled_from(PACKINGS))
def test_rows_before_a_damaged_end_are_returned(data: st.DataObject, packing: str) -> None:
    size = data.draw(st.sampled_from([10, 9_000, 100_000, 700_000, CHUNK_BYTES - 40, CHUNK_BYTES, 1_500_000]))
    total = data.draw(st.integers(0, 4 * CHUNK_BYTES) | st.sampled_from([CHUNK_BYTES, 2 * CHUNK_BYTES]))
    count = min(max(total // size, 1), 400)
    records = values(data.draw(st.integers(0, 9)), size, count, dense=data.draw(st.booleans()))
    good = pack(packing, body(records))
    if data.draw(st.booleans()):
        missing = data.draw(st.integers(1, 20) | st.integers(1, len(good)))
        damaged = good[: max(len(good) - missing, 0)]
    else:
        damaged = good + data.draw(st.binary(min_size=1, max_size=20))
    wanted = request(
        data.draw(st.integers(0, BATCH + count)),
        max_rows=data.draw(st.sampled_from([3, 65536])),
        max_bytes=data.draw(st.sampled_from([1, 300_000, 4 << 20])),
        max_batch_bytes=data.draw(st.sampled_from([CHUNK_BYTES, 5 * CHUNK_BYTES // 2, 1 << 30])),
    )
    before = Batch((Rec(bytes(data.draw(st.sampled_from([0, 5 << 20])))),), 0, "gzip").encode()
    outcome = run(before + batch(packing, records, damaged), wanted)
    assert len(outcome.column("offset")) <= count + 1
