"""``RecordCounter`` counts the records that a decoder returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.records.batches import TRANSACTIONAL, Batch, Rec, marker
from tests.unit.records.legacy_messages import message, wrapper

from pyspark_kafka_direct.consumer.range_counter import RecordCounter
from pyspark_kafka_direct.errors import CorruptRecordError
from pyspark_kafka_direct.records import AbortedTransaction, RecordDecoder

if TYPE_CHECKING:
    from collections.abc import Sequence

FAR = 1 << 40
ABORTED = [AbortedTransaction(1, 5)]

# Offsets 0-4 plain; 5-7 of an aborted transaction with its marker 8; 9-11 of the same
# producer, committed, marker 12; 13-22 with only two
# records left by compaction; 23-24 an empty batch that compaction left; 25-27 plain, compressed.
LOG = b"".join(
    (
        Batch(tuple(Rec() for _ in range(5))).encode(),
        Batch(tuple(Rec() for _ in range(3)), 5, producer_id=1, attributes=TRANSACTIONAL).encode(),
        marker(8, 1, commit=False).encode(),
        Batch(tuple(Rec() for _ in range(3)), 9, producer_id=1, attributes=TRANSACTIONAL).encode(),
        marker(12, 1, commit=True).encode(),
        Batch((Rec(delta=3), Rec(delta=8)), 13, last_offset_delta=9).encode(),
        Batch((), 23, last_offset_delta=1).encode(),
        Batch(tuple(Rec() for _ in range(3)), 25, "zstd").encode(),
    )
)
END = 28


def decoded(data: bytes, start: int, until: int, aborted: Sequence[AbortedTransaction]) -> tuple[int, int]:
    decoder = RecordDecoder(topic="t", partition=0, from_offset=start, until_offset=until, columns=())
    decoder.feed(data, aborted)
    while decoder.read() is not None:
        pass
    return decoder.counts.records, decoder.next_offset


def counted(data: bytes, start: int, until: int, aborted: Sequence[AbortedTransaction] = ()) -> tuple[int, int]:
    counter = RecordCounter("t", 0, start, until)
    counter.feed(data, aborted)
    return counter.records, counter.next_offset


@pytest.mark.parametrize("aborted", [[], ABORTED], ids=["uncommitted", "committed"])
@pytest.mark.parametrize("start", range(END))
def test_every_range_of_a_log_counts_as_it_decodes(start: int, aborted: list[AbortedTransaction]) -> None:
    for until in range(start + 1, END + 3):
        assert counted(LOG, start, until, aborted) == decoded(LOG, start, until, aborted)


def test_the_whole_log() -> None:
    assert counted(LOG, 0, END) == (16, END)
    assert counted(LOG, 0, END, ABORTED) == (13, END)


@given(st.integers(0, len(LOG)))
def test_incomplete_response_counts_complete_batches(length: int) -> None:
    assert counted(LOG[:length], 0, FAR, ABORTED) == decoded(LOG[:length], 0, FAR, ABORTED)


def test_counting_continues_with_the_next_response() -> None:
    first = Batch(tuple(Rec() for _ in range(5))).encode()
    counter = RecordCounter("t", 0, 0, FAR)
    counter.feed(first)
    counter.skip_to(100)
    counter.feed(Batch((Rec(), Rec()), 100).encode())
    assert (counter.records, counter.next_offset) == (7, 102)


def test_only_the_batches_at_the_edges_are_decompressed() -> None:
    broken = Batch(tuple(Rec() for _ in range(4)), 10, "zstd", compressed=b"no zstd").encode()
    assert counted(broken, 0, FAR) == (4, 14)
    with pytest.raises(CorruptRecordError) as failure:
        counted(broken, 11, FAR)
    assert (failure.value.topic, failure.value.partition) == ("t", 0)


def test_legacy_message_formats_are_decoded() -> None:
    inner = message(0, b"a") + message(1, b"b")
    data = wrapper(1, inner, "gzip") + Batch((Rec(), Rec()), 2).encode() + message(4, b"c")
    assert counted(data, 1, FAR) == decoded(data, 1, FAR, ()) == (4, 5)


@pytest.mark.parametrize("count", [-1, -(1 << 31)])
def test_a_negative_number_of_records_is_corrupt(count: int) -> None:
    with pytest.raises(CorruptRecordError, match="claims"):
        counted(Batch((Rec(),), 7, count=count).encode(), 0, FAR)


def test_malformed_header_is_reported_after_earlier_batches() -> None:
    data = Batch((Rec(),), 0).encode() + b"\0" * 100
    with pytest.raises(CorruptRecordError) as failure:
        counted(data, 0, FAR)
    assert failure.value.offset == 1
