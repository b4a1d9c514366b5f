"""The leader epochs of the records that were read."""

from __future__ import annotations

import pytest
from tests.unit.records.batches import Batch, Rec
from tests.unit.records.legacy_messages import message

from pyspark_kafka_direct.consumer.fetch_channel import UNKNOWN_EPOCH
from pyspark_kafka_direct.consumer.partition_state import EpochHistory, EpochStart


def history(*starts: tuple[int, int]) -> EpochHistory:
    found = EpochHistory()
    for start in starts:
        found.add(EpochStart(*start))
    return found


def batch(first: int, count: int, epoch: int) -> bytes:
    return Batch(tuple(Rec(b"x") for _ in range(count)), first, leader_epoch=epoch).encode()


def test_batches_of_a_response_begin_where_their_epochs_change() -> None:
    epochs = EpochHistory()
    assert epochs.last == UNKNOWN_EPOCH
    epochs.add_batches(memoryview(batch(0, 5, 2) + batch(5, 1, 2) + batch(6, 2, 4)), 3)
    epochs.add_batches(batch(8, 1, 4) + batch(9, 2, 5), 8)
    assert epochs.last == 5
    assert [epochs.last_before(offset) for offset in (3, 4, 6, 7, 9, 10)] == [-1, 2, 2, 4, 4, 5]


def test_incomplete_and_malformed_batches_are_ignored() -> None:
    complete = batch(0, 1, 3)
    for rest in (batch(1, 1, 4)[:-1], b"\xff" * 80, bytes(80), complete[:16]):
        epochs = EpochHistory()
        epochs.add_batches(bytearray(complete + rest), 0)
        assert epochs.last == 3


def test_older_message_formats_have_no_epoch() -> None:
    epochs = EpochHistory()
    epochs.add_batches(message(0, b"old", magic=1) + batch(1, 1, 3), 0)
    assert [epochs.last_before(offset) for offset in (1, 2)] == [UNKNOWN_EPOCH, 3]


@pytest.mark.parametrize(("offset", "last"), [(0, UNKNOWN_EPOCH), (1, 2), (10, 2), (11, 4), (30, 7), (31, 7)])
def test_truncation_forgets_later_records(offset: int, last: int) -> None:
    epochs = history((2, 0), (4, 10), (7, 20))
    epochs.truncate(offset)
    assert epochs.last == last
    epochs.add(EpochStart(9, offset))
    assert epochs.last == 9


@pytest.mark.parametrize(
    ("epoch", "end", "expected"),
    [
        (7, 25, 25),  # in the last epoch
        (4, 15, 15),  # before the last epoch began here
        (4, 20, 20),
        (4, 90, 20),  # a log in which the common epoch continued
        (5, 90, 20),
        (3, 12, 10),
        (1, 12, 0),  # no common epoch
        (8, 90, 90),
    ],
)
def test_logs_differ_from_the_end_of_the_common_epoch(epoch: int, end: int, expected: int) -> None:
    assert history((2, 0), (4, 10), (7, 20)).diverges_at(epoch, end) == expected
