"""The leader epoch of what was read last."""

from __future__ import annotations

import struct

import pytest
from tests.unit.records.batches import Batch, Rec
from tests.unit.records.test_old_formats import message

from pyspark_kafka_direct.reading._epochs import UNKNOWN, last_epoch

FIRST = Batch((Rec(), Rec()), 0, leader_epoch=3).encode()
SECOND = Batch((Rec(),), 2, leader_epoch=5).encode()


def test_the_last_complete_batch_counts() -> None:
    assert last_epoch(FIRST + SECOND, 7) == 5
    assert last_epoch(memoryview(FIRST + SECOND), 5) == 5
    assert last_epoch(FIRST + SECOND[:-1], 7) == 3
    assert last_epoch(FIRST + SECOND[:13], 7) == 3
    assert last_epoch(FIRST, UNKNOWN) == 3


def test_a_batch_of_the_newest_epoch_ends_the_walk() -> None:
    assert last_epoch(FIRST + b"what is not looked at any more", 3) == 3


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_have_none(magic: int) -> None:
    old = message(0, b"old", magic=magic)
    assert last_epoch(old, 7) == UNKNOWN
    assert last_epoch(old + FIRST, 7) == 3


def test_nothing_and_nonsense_have_none() -> None:
    assert last_epoch(b"", 7) == UNKNOWN
    assert last_epoch(FIRST[:60], 7) == UNKNOWN
    for length in (-1, -12, -(1 << 31), (1 << 31) - 1):
        assert last_epoch(struct.pack(">qiib", 0, length, 3, 2) + bytes(60), 7) == UNKNOWN
