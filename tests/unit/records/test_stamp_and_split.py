"""What is done to a batch on its way: it gets its producer, or is cut in two."""

from __future__ import annotations

import contextlib
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
