"""Writing the producer state into a batch, and splitting a batch."""

from __future__ import annotations

import contextlib
import os
import random
import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.records.batches import CODECS, crc
from tests.unit.records.encoding import (
    HEADER,
    Row,
    decode,
    encode,
    some_rows,
    without_offsets,
)

from pyspark_kafka_direct.records import is_valid_batch, set_producer_state, split_batch

every_codec = pytest.mark.parametrize("codec", CODECS)

ROWS = [Row(b"value %d" % number, b"key", (("n", b"%d" % number),), None, 1000 - number) for number in range(101)]


@every_codec
@pytest.mark.parametrize("transactional", [False, True])
def test_set_producer_state(codec: str, transactional: bool) -> None:
    (batch,) = encode(ROWS, codec=codec)
    expected = bytearray(batch.data)
    struct.pack_into(">h", expected, 21, CODECS[codec] | 0x10 * transactional)
    struct.pack_into(">qhi", expected, 43, 1 << 40, 77, 1_000_000)
    struct.pack_into(">I", expected, 17, crc(bytes(expected[21:])))
    set_producer_state(batch.data, 1 << 40, 77, 1_000_000, transactional=transactional)
    assert batch.data == expected
    assert decode(batch.data) == without_offsets(ROWS)


@every_codec
def test_is_valid_batch(codec: str) -> None:
    for rows in (ROWS, [Row(os.urandom(100_000))]):  # more bytes than are checked at once
        (batch,) = encode(rows, codec=codec)
        data = bytes(batch.data)
        assert is_valid_batch(data)
        assert is_valid_batch(memoryview(data))
        for damaged in (b"", data[:HEADER], data[:-1], data + b"x", data[:16] + b"\x01" + data[17:]):
            assert not is_valid_batch(damaged)
        for position in (*range(8, 12), *range(16, HEADER), *random.Random(1).choices(range(HEADER, len(data)), k=20)):
            changed = bytearray(data)
            changed[position] ^= 0x40
            assert not is_valid_batch(changed), position


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
def test_last_producer_state_wins(rows: list[Row], stamps: list[tuple[int, int, int, bool]]) -> None:
    (batch,) = encode(rows, codec="zstd")
    original = bytes(batch.data)
    for producer_id, epoch, sequence, transactional in stamps:
        set_producer_state(batch.data, producer_id, epoch, sequence, transactional=transactional)
        assert struct.unpack_from(">qhi", batch.data, 43) == (producer_id, epoch, sequence)
        assert bool(batch.data[22] & 0x10) == transactional
        assert struct.unpack_from(">I", batch.data, 17) == (crc(bytes(batch.data[21:])),)
    set_producer_state(batch.data, -1, -1, -1, transactional=False)
    assert bytes(batch.data) == original


@pytest.mark.parametrize("values", [0, 1, 5, 63, 1000, 70_000])
def test_producer_state_does_not_hide_damage(values: int) -> None:
    (batch,) = encode([Row(b"v" * values)])
    damaged = bytearray(batch.data)
    damaged[-2] ^= 1
    expected = bytearray(batch.data)
    for data in (damaged, expected):
        set_producer_state(data, 9, 9, 9, transactional=True)
    expected[-2] ^= 1
    assert damaged == expected
    assert struct.unpack_from(">I", damaged, 17) != (crc(bytes(damaged[21:])),)


def test_producer_state_of_too_few_bytes() -> None:
    with pytest.raises(ValueError, match="60 bytes are too short for a record batch"):
        set_producer_state(bytearray(60), 1, 1, 1, transactional=False)


@every_codec
def test_split(codec: str) -> None:
    (batch,) = encode(ROWS, codec=codec)
    set_producer_state(batch.data, 5, 5, 5, transactional=True)
    stamped = bytes(batch.data)
    halves = split_batch(batch.data)
    for half, rows in zip(halves, (ROWS[:51], ROWS[51:]), strict=True):
        assert decode(half) == without_offsets(rows)
        (alone,) = encode(rows, codec=codec)
        assert half == alone.data
    assert bytes(batch.data) == stamped


@pytest.mark.slow
@settings(deadline=None)
@given(rows=some_rows().filter(lambda rows: len(rows) > 1), codec=st.sampled_from(sorted(CODECS)))
def test_repeated_split(rows: list[Row], codec: str) -> None:
    (batch,) = encode(rows, codec=codec)
    left = [batch.data]
    while any(len(decode(data)) > 1 for data in left):
        left = [half for data in left for half in (split_batch(data) if len(decode(data)) > 1 else (data,))]
    assert decode(*left) == without_offsets(rows)
    assert left == [encode([row], codec=codec)[0].data for row in rows]


def test_timestamps_that_wrap_survive_a_split() -> None:
    rows = [replace(ROWS[0], timestamp=stamp) for stamp in ((1 << 63) - 1, -(1 << 63), 0, 5)]
    (batch,) = encode(rows)
    halves = split_batch(memoryview(bytes(batch.data)))
    assert list(halves) == [encode(pair)[0].data for pair in (rows[:2], rows[2:])]


def test_one_record_cannot_be_split() -> None:
    (batch,) = encode([Row()])
    with pytest.raises(ValueError, match="one record"):
        split_batch(batch.data)


def damage(rng: random.Random, data: bytearray, start: int) -> None:
    at = rng.randrange(start, len(data))
    match rng.randrange(4):
        case 0:
            data[at] ^= 1 << rng.randrange(8)
        case 1:
            data[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        case 2:
            del data[at : at + rng.randrange(20)]
        case _:
            data[at:at] = rng.randbytes(5)


@every_codec
def test_split_does_not_hide_damage(codec: str) -> None:
    (batch,) = encode(ROWS, codec=codec)
    rng = random.Random(3)
    for data in (batch.data[:60], batch.data[:-1], bytes(batch.data) + b"\0"):
        with pytest.raises(ValueError, match=r"too short for a record batch|damaged"):
            split_batch(data)
    for right_crc in (False, True):
        for _ in range(50):
            data = bytearray(batch.data)
            data[rng.randrange(HEADER, len(data))] ^= 1 << rng.randrange(8)
            if right_crc:
                struct.pack_into(">I", data, 17, crc(bytes(data[21:])))
                with contextlib.suppress(ValueError):  # changed bytes of a value are not detectable
                    split_batch(data)
            else:
                with pytest.raises(ValueError, match="damaged"):
                    split_batch(data)
