"""What is done to a batch on its way: it gets its producer, or is cut in two."""

from __future__ import annotations

import collections
import contextlib
import os
import random
import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.records.batches import CODECS, crc
from tests.unit.records.encoding import HEADER, SPLITS, STAMPS, Row, decode, encode, some_rows, without_place

both = pytest.mark.parametrize("implementation", sorted(STAMPS))
every_codec = pytest.mark.parametrize("codec", CODECS)

ROWS = [Row(b"value %d" % number, b"key", (("n", b"%d" % number),), None, 1000 - number) for number in range(101)]


@both
@every_codec
@pytest.mark.parametrize("transactional", [False, True])
def test_stamp(implementation: str, codec: str, transactional: bool) -> None:
    (batch,) = encode(implementation, ROWS, codec=codec)
    expected = bytearray(batch.data)
    struct.pack_into(">h", expected, 21, CODECS[codec] | 0x10 * transactional)
    struct.pack_into(">qhi", expected, 43, 1 << 40, 77, 1_000_000)
    struct.pack_into(">I", expected, 17, crc(bytes(expected[21:])))
    STAMPS[implementation](batch.data, 1 << 40, 77, 1_000_000, transactional=transactional)
    assert batch.data == expected
    assert decode(batch.data) == without_place(ROWS)


@both
@settings(deadline=None)
@given(
    rows=some_rows().filter(bool),
    stamps=st.lists(
        st.tuples(
            st.integers(-1, (1 << 63) - 1),
            st.integers(-1, (1 << 15) - 1),
            st.integers(-1, (1 << 31) - 1),
            st.booleans(),
        ),
        max_size=3,
    ),
)
def test_the_last_stamp_counts(implementation: str, rows: list[Row], stamps: list[tuple[int, int, int, bool]]) -> None:
    (batch,) = encode(implementation, rows, codec="zstd")
    original = bytes(batch.data)
    for producer_id, epoch, sequence, transactional in stamps:
        STAMPS[implementation](batch.data, producer_id, epoch, sequence, transactional=transactional)
        assert struct.unpack_from(">qhi", batch.data, 43) == (producer_id, epoch, sequence)
        assert bool(batch.data[22] & 0x10) == transactional
        assert struct.unpack_from(">I", batch.data, 17) == (crc(bytes(batch.data[21:])),)
    STAMPS[implementation](batch.data, -1, -1, -1, transactional=False)
    assert batch.data == original


@both
@pytest.mark.parametrize("values", [0, 1, 5, 63, 1000, 70_000])
def test_a_stamp_does_not_cover_up_damage(implementation: str, values: int) -> None:
    (batch,) = encode(implementation, [Row(b"v" * values)])
    damaged = bytearray(batch.data)
    damaged[-2] ^= 1
    expected = bytearray(batch.data)
    for data in (damaged, expected):
        STAMPS[implementation](data, 9, 9, 9, transactional=True)
    expected[-2] ^= 1
    assert damaged == expected
    assert struct.unpack_from(">I", damaged, 17) != (crc(bytes(damaged[21:])),)


@both
def test_a_stamp_for_no_batch(implementation: str) -> None:
    with pytest.raises(ValueError, match="60 bytes are no record batch"):
        STAMPS[implementation](bytearray(60), 1, 1, 1, transactional=False)


@both
@every_codec
def test_split(implementation: str, codec: str) -> None:
    (batch,) = encode(implementation, ROWS, codec=codec)
    STAMPS[implementation](batch.data, 5, 5, 5, transactional=True)
    stamped = bytes(batch.data)
    halves = SPLITS[implementation](batch.data)
    for half, rows in zip(halves, (ROWS[:51], ROWS[51:]), strict=True):
        assert decode(half) == without_place(rows)
        (alone,) = encode(implementation, rows, codec=codec)
        assert half == alone.data
    assert batch.data == stamped


@both
@settings(deadline=None)
@given(rows=some_rows().filter(lambda rows: len(rows) > 1), codec=st.sampled_from(sorted(CODECS)))
def test_split_again_and_again(implementation: str, rows: list[Row], codec: str) -> None:
    (batch,) = encode(implementation, rows, codec=codec)
    left = [batch.data]
    while any(len(decode(data)) > 1 for data in left):
        left = [half for data in left for half in (SPLITS[implementation](data) if len(decode(data)) > 1 else (data,))]
    assert decode(*left) == without_place(rows)
    assert left == [encode(implementation, [row], codec=codec)[0].data for row in rows]


@both
def test_timestamps_that_wrap_survive_a_split(implementation: str) -> None:
    rows = [replace(ROWS[0], timestamp=stamp) for stamp in ((1 << 63) - 1, -(1 << 63), 0, 5)]
    (batch,) = encode(implementation, rows)
    halves = SPLITS[implementation](memoryview(bytes(batch.data)))
    assert list(halves) == [encode(implementation, pair)[0].data for pair in (rows[:2], rows[2:])]


@both
def test_one_record_cannot_be_split(implementation: str) -> None:
    (batch,) = encode(implementation, [Row()])
    with pytest.raises(ValueError, match="one record"):
        SPLITS[implementation](batch.data)


@pytest.mark.skipif(len(SPLITS) < 2, reason="the native encoder was not built (no Rust toolchain)")
def test_both_see_the_same_damage() -> None:
    """Whatever the bytes, there are two batches or a ValueError, and the same ones."""
    chance = random.Random(int(os.environ.get("RECORD_FUZZ_SEED") or 7))
    verdicts = collections.Counter[bool]()
    for _ in range(3000):
        rows = [Row(chance.randbytes(chance.randrange(90)), timestamp=chance.randrange(99)) for _ in range(5)]
        data = encode("python", rows)[0].data
        damage(chance, data, chance.choice([21, HEADER]))
        if len(data) >= HEADER:
            struct.pack_into(">i", data, 8, len(data) - 12)
            struct.pack_into(">I", data, 17, crc(bytes(data[21:])))
        found: dict[str, tuple[bytearray, bytearray] | None] = {}
        for name, cut in SPLITS.items():
            try:
                found[name] = cut(data)
            except ValueError:
                found[name] = None
        if data[22] & 7:  # whether such bytes are compressed records is the codec's own affair
            continue
        assert found["native"] == found["python"], data.hex()
        verdicts[found["python"] is None] += 1
    assert min(verdicts.values()) > 100, verdicts


def damage(chance: random.Random, data: bytearray, start: int) -> None:
    at = chance.randrange(start, len(data))
    match chance.randrange(4):
        case 0:
            data[at] ^= 1 << chance.randrange(8)
        case 1:
            data[at] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        case 2:
            del data[at : at + chance.randrange(20)]
        case _:
            data[at:at] = chance.randbytes(5)


@both
@every_codec
def test_damage_is_not_covered_up_by_a_split(implementation: str, codec: str) -> None:
    (batch,) = encode(implementation, ROWS, codec=codec)
    chance = random.Random(3)
    for data in (batch.data[:60], batch.data[:-1], batch.data + b"\0"):
        with pytest.raises(ValueError, match=r"no record batch|damaged"):
            SPLITS[implementation](data)
    for right_crc in (False, True):
        for _ in range(50):
            data = bytearray(batch.data)
            data[chance.randrange(HEADER, len(data))] ^= 1 << chance.randrange(8)
            if right_crc:
                struct.pack_into(">I", data, 17, crc(bytes(data[21:])))
                with contextlib.suppress(ValueError):  # a change of a value's bytes is none that can be seen
                    SPLITS[implementation](data)
            else:
                with pytest.raises(ValueError, match="damaged"):
                    SPLITS[implementation](data)
