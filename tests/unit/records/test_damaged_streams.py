"""Compressed records that lack their end, or have something behind it: both decoders hand out the same rows.

Records are decompressed a piece of a MiB at a time and read meanwhile, so rows come before what is wrong is known.
"""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.records.batches import Batch, Rec, compress, xerial
from tests.unit.records.decoding import agreed, both, request, run
from tests.unit.records.mutations import body

from pyspark_kafka_direct.errors import CorruptRecordError, RecordTooLargeError
from pyspark_kafka_direct.records._python._codecs import PIECE

PACKINGS = ("gzip", "gzip in members", "snappy", "xerial", "lz4", "zstd", "zstd in frames")
LATE = ("gzip", "gzip in members", "xerial", "zstd", "zstd in frames")
"""Their frames tell what they lack where it should have been, lz4's and a raw block of Snappy at once."""

BATCH = 7
"""The offset of the first record."""


def packed(packing: str, plain: bytes) -> bytes:
    codec, *several = packing.split(" in ")
    if several:
        middle = len(plain) * 3 // 5
        return compress(codec, plain[:middle]) + compress(codec, plain[middle:])
    return xerial(plain) if packing == "xerial" else compress(codec, plain)


def batch(packing: str, records: tuple[Rec, ...], packed_records: bytes) -> bytes:
    codec = "snappy" if packing == "xerial" else packing.split()[0]
    return Batch(records, BATCH, codec, packed=packed_records).encode()


def values(seed: int, size: int, count: int, *, dense: bool) -> tuple[Rec, ...]:
    chance = random.Random(seed)
    return tuple(Rec(chance.randbytes(size) if dense else bytes([chance.randrange(256)]) * size) for _ in range(count))


def rows_in_whole_pieces(records: tuple[Rec, ...]) -> int:
    """How many of these records lie in front of the last piece that is whole."""
    whole = len(body(records)) // PIECE * PIECE
    return sum(len(body(records[: count + 1])) <= whole for count in range(len(records)))


@both
@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("damage", ["one byte missing", "trailer missing", "garbage behind"])
def test_rows_of_whole_pieces_come_before_the_error(implementation: str, packing: str, damage: str) -> None:
    records = values(1, 700_000, 4, dense=True)
    good = packed(packing, body(records))
    damaged = {"one byte missing": good[:-1], "trailer missing": good[:-8], "garbage behind": good + b"garbage"}
    outcome = run(implementation, batch(packing, records, damaged[damage]))
    assert isinstance(outcome.error, CorruptRecordError)
    assert outcome.error.offset == BATCH
    assert rows_in_whole_pieces(records) == 2
    assert outcome.column("offset") == ([BATCH, BATCH + 1] if packing in LATE else [])


@both
@pytest.mark.parametrize("packing", LATE)
@pytest.mark.parametrize("missing", [0, 1])
def test_what_ends_with_a_piece_is_checked_to_its_end(implementation: str, packing: str, missing: int) -> None:
    """The third record ends with the second piece, which lacks nothing where the codec has something behind it."""
    two = values(1, 900_000, 2, dense=True)
    third = 100_000 + 2 * PIECE - len(body((*two, Rec(bytes(100_000)))))
    records = (*two, Rec(random.Random(3).randbytes(third)))
    plain = body(records)
    assert len(plain) == 2 * PIECE
    good = packed(packing, plain)
    outcome = run(implementation, batch(packing, records, good[: len(good) - missing]))
    whole = 2 if not missing or packing in ("gzip", "gzip in members", "zstd") else 1  # else it is of the last block
    assert outcome.column("offset") == [BATCH, BATCH + 1, BATCH + 2][: 2 * whole - 1]
    assert isinstance(outcome.error, CorruptRecordError) == bool(missing)


@both
def test_a_flaw_behind_a_piece_costs_none_of_its_rows(implementation: str) -> None:
    """What a codec makes before it fails is lost, and the second member begins within the first piece."""
    records = values(4, 100_000, 20, dense=False)
    plain = body(records)
    second = zlib.compressobj(wbits=31)
    flawed = second.compress(plain[600_000:1_300_000]) + second.flush(zlib.Z_FULL_FLUSH) + b"\x07no such block"
    outcome = run(implementation, batch("gzip", records, compress("gzip", plain[:600_000]) + flawed))
    assert isinstance(outcome.error, CorruptRecordError)
    assert len(outcome.column("offset")) == PIECE // 100_000


@pytest.mark.parametrize("packing", PACKINGS)
def test_rows_do_not_depend_on_what_was_decoded_before(packing: str) -> None:
    """A large record leaves a large buffer behind, which is no reason to look further ahead."""
    records = values(2, 100_000, 33, dense=False)
    damaged = batch(packing, records, packed(packing, body(records))[:-1])
    large = Batch((Rec(bytes(9 << 20)),), 0, "zstd").encode()
    alone, behind = agreed(damaged), agreed(large + damaged)
    assert behind.column("offset") == [0, *alone.column("offset")]


@pytest.mark.parametrize("packing", ["gzip", "xerial", "lz4", "zstd"])
@pytest.mark.parametrize("most", [PIECE - 1, PIECE, PIECE + 1, 3 * PIECE // 2, 3 * PIECE])
def test_rows_before_a_batch_is_too_large(packing: str, most: int) -> None:
    records = values(3, 100_000, 33, dense=False)
    data = batch(packing, records, packed(packing, body(records)))
    outcome = agreed(data, request(max_batch_bytes=most))
    assert isinstance(outcome.error, RecordTooLargeError)
    assert len(outcome.column("offset")) == min(most // PIECE * PIECE // 100_000, 31)


@both
@pytest.mark.parametrize("packing", ["gzip", "xerial", "zstd"])
def test_a_record_is_too_large_whatever_is_behind_it(implementation: str, packing: str) -> None:
    records = (Rec(bytes(PIECE)),)
    data = batch(packing, records, packed(packing, body(records))[:-1])
    outcome = run(implementation, data, request(max_batch_bytes=PIECE))
    assert isinstance(outcome.error, RecordTooLargeError)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(PACKINGS))
def test_the_decoders_agree_about_damaged_ends(data: st.DataObject, packing: str) -> None:
    size = data.draw(st.sampled_from([10, 9_000, 100_000, 700_000, PIECE - 40, PIECE, 1_500_000]))
    total = data.draw(st.integers(0, 4 * PIECE) | st.sampled_from([PIECE, 2 * PIECE]))
    count = min(max(total // size, 1), 400)
    records = values(data.draw(st.integers(0, 9)), size, count, dense=data.draw(st.booleans()))
    good = packed(packing, body(records))
    if data.draw(st.booleans()):
        missing = data.draw(st.integers(1, 20) | st.integers(1, len(good)))
        damaged = good[: max(len(good) - missing, 0)]
    else:
        damaged = good + data.draw(st.binary(min_size=1, max_size=20))
    wanted = request(
        data.draw(st.integers(0, BATCH + count)),
        max_rows=data.draw(st.sampled_from([3, 65536])),
        max_bytes=data.draw(st.sampled_from([1, 300_000, 4 << 20])),
        max_batch_bytes=data.draw(st.sampled_from([PIECE, 5 * PIECE // 2, 1 << 30])),
    )
    before = Batch((Rec(bytes(data.draw(st.sampled_from([0, 5 << 20])))),), 0, "gzip").encode()
    outcome = agreed(before + batch(packing, records, damaged), wanted)
    assert len(outcome.column("offset")) <= count + 1
