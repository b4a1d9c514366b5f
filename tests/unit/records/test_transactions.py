"""Control records and aborted transactions."""

from __future__ import annotations

import pytest
from tests.unit.records.batches import CONTROL, TRANSACTIONAL, Batch, Rec, marker
from tests.unit.records.decoding import request, run

from pyspark_kafka_direct.errors import CorruptRecordError
from pyspark_kafka_direct.records import AbortedTransaction


def sent(base: int, count: int, producer_id: int, codec: str = "none") -> bytes:
    records = tuple(Rec(b"%d" % (base + index)) for index in range(count))
    return Batch(records, base, codec, producer_id=producer_id, attributes=TRANSACTIONAL).encode()


def aborts(base: int, producer_id: int) -> bytes:
    return marker(base, producer_id, commit=False).encode()


def commits(base: int, producer_id: int) -> bytes:
    return marker(base, producer_id, commit=True).encode()


def test_control_records_are_skipped() -> None:
    data = sent(0, 3, 1) + commits(3, 1) + Batch(base_offset=4).encode()
    outcome = run(data, request(0, 5))
    assert outcome.column("offset") == [0, 1, 2, 4]
    assert (outcome.counts.control, outcome.counts.gaps, outcome.done) == (1, 0, True)


def test_range_of_markers_only_is_empty() -> None:
    outcome = run(commits(0, 1) + aborts(1, 2), request(0, 2))
    assert (outcome.batches, outcome.counts.control, outcome.done) == ((), 2, True)


def test_read_uncommitted_returns_aborted_records() -> None:
    assert run(sent(0, 2, 1) + aborts(2, 1)).column("offset") == [0, 1]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_aborted_records_are_skipped_up_to_their_marker(codec: str) -> None:
    data = b"".join(
        (
            sent(0, 2, 1, codec),  # committed before
            commits(2, 1),
            sent(3, 2, 1, codec),  # aborted
            sent(5, 2, 2, codec),  # committed
            Batch((Rec(), Rec()), 7, codec, producer_id=1).encode(),  # the same producer, outside a transaction
            sent(9, 2, 1, codec),  # still aborted
            aborts(11, 1),
            sent(12, 2, 1, codec),  # the next transaction of the same producer
            commits(14, 2),
            commits(15, 1),
        )
    )
    outcome = run(data, request(0, 16), [AbortedTransaction(1, 3)])
    assert outcome.column("offset") == [0, 1, 5, 6, 7, 8, 12, 13]
    assert (outcome.counts.aborted, outcome.counts.control, outcome.counts.gaps) == (4, 4, 0)
    assert outcome.done


def test_several_aborted_transactions_of_one_producer() -> None:
    data = sent(0, 1, 1) + aborts(1, 1) + sent(2, 1, 1) + commits(3, 1) + sent(4, 1, 1) + aborts(5, 1)
    listed = [AbortedTransaction(1, 4), AbortedTransaction(1, 0)]  # in no order
    assert run(data, None, listed).column("offset") == [2]


def test_aborted_transactions_belong_to_their_response() -> None:
    first, second = sent(0, 2, 1), sent(2, 2, 1)
    outcome = run([first, second], None, [AbortedTransaction(1, 0)])
    assert outcome.column("offset") == []
    fresh = run([first, second], None)
    assert fresh.column("offset") == [0, 1, 2, 3]


def test_a_range_that_starts_inside_an_aborted_transaction() -> None:
    data = sent(0, 4, 1) + sent(4, 2, 2) + aborts(6, 1) + sent(7, 1, 1)
    outcome = run(data, request(2, 8), [AbortedTransaction(1, 0)])
    assert outcome.column("offset") == [4, 5, 7]
    assert outcome.counts.aborted == 2


def test_a_marker_before_the_wanted_offset_counts() -> None:
    data = sent(0, 2, 1) + aborts(2, 1) + sent(3, 2, 1)
    assert run(data, request(3, 5), [AbortedTransaction(1, 0)]).column("offset") == [3, 4]


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_marker_without_a_type(key: bytes | None) -> None:
    bad = Batch((Rec(key=key),), 2, producer_id=1, attributes=TRANSACTIONAL | CONTROL)
    listed = [AbortedTransaction(1, 0)]
    outcome = run(sent(0, 2, 1) + bad.encode(), None, listed)
    assert isinstance(outcome.error, CorruptRecordError)
    assert outcome.error.offset == 2
    assert run(sent(0, 2, 1) + bad.encode()).error is None


def test_an_empty_control_batch() -> None:
    empty = Batch((), 2, producer_id=1, attributes=TRANSACTIONAL | CONTROL, last_offset_delta=0)
    outcome = run(sent(0, 2, 1) + empty.encode(), request(0, 3), [AbortedTransaction(1, 0)])
    assert (outcome.counts.control, outcome.counts.aborted, outcome.counts.gaps) == (0, 2, 1)
    assert outcome.done
