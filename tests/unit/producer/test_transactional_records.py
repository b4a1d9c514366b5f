"""Which record of a key is the newest committed one, in a log that has transactions of several producers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.records.batches import TRANSACTIONAL, Batch, Rec, marker

from pyspark_kafka_direct.errors import CorruptRecordError
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.producer.transactional_records import TransactionalRecords


def found(*batches: Batch) -> TransactionalRecords:
    """Return what is found in these batches of one offset each, one batch in each response."""
    records = TransactionalRecords(b"key", OffsetRange("states", 0, 0, len(batches)))
    for batch in batches:
        records.feed(memoryview(batch.encode()))
    assert records.next_offset == len(batches)
    return records


def record(offset: int, producer: int, key: bytes = b"key") -> Batch:
    attributes = TRANSACTIONAL if producer >= 0 else 0
    return Batch((Rec(b"%d" % offset, key),), offset, producer_id=producer, attributes=attributes)


def summary(records: TransactionalRecords) -> tuple[int | None, int | None]:
    """Return the offsets of the newest and of the undecided record."""
    newest, undecided = records.newest, records.undecided
    return None if newest is None else newest.offset, None if undecided is None else undecided.offset


def test_a_record_is_decided_by_the_next_control_record_of_its_producer() -> None:
    assert summary(found(record(0, 7))) == (None, 0)
    assert summary(found(record(0, 7), marker(1, 8, commit=True))) == (None, 0)
    assert summary(found(record(0, 7), marker(1, 7, commit=True))) == (0, None)
    assert summary(found(record(0, 7), marker(1, 7, commit=False))) == (None, None)
    assert summary(found(record(0, 7), marker(1, 7, commit=True), record(2, 7))) == (0, 2)


def test_of_two_transactions_the_later_record_counts_and_not_the_later_commit() -> None:
    committed_in_reverse = (record(0, 7), record(1, 8), marker(2, 8, commit=True), marker(3, 7, commit=True))
    assert summary(found(*committed_in_reverse)) == (1, None)


@pytest.mark.parametrize("later_producer", [8, -1])
def test_an_open_record_before_the_newest_one_is_not_undecided(later_producer: int) -> None:
    """It can no longer become the newest one."""
    assert summary(found(record(0, 7), record(1, later_producer), marker(2, 8, commit=True))) == (1, None)


@given(st.lists(st.sampled_from(["record", "other key", "commit", "abort", "empty control"]), max_size=12), st.data())
def test_transactions_of_several_producers(kinds: list[str], data: st.DataObject) -> None:
    newest: int | None = None
    last: dict[int, int] = {}  # the offset of the last record of each open transaction
    batches: list[Batch] = []
    for offset, kind in enumerate(kinds):
        producer = data.draw(st.integers(7, 9))
        if kind == "record":
            last[producer] = offset
            batches.append(record(offset, producer))
        elif kind == "other key":
            batches.append(record(offset, producer, b"other"))
        elif kind == "empty control":  # as compaction leaves it
            batches.append(replace(marker(offset, producer, commit=True), records=(), last_offset_delta=0))
        else:
            batches.append(marker(offset, producer, commit=kind == "commit"))
            decided = last.pop(producer, None)
            if decided is not None and kind == "commit":
                newest = max(decided, -1 if newest is None else newest)
    undecided = max(last.values(), default=None)
    if undecided is not None and newest is not None and undecided < newest:
        undecided = None
    assert summary(found(*batches)) == (newest, undecided)


def test_records_of_other_keys_do_not_count() -> None:
    assert summary(found(record(0, 7), record(1, 7, b"other"), marker(2, 7, commit=True))) == (0, None)
    assert summary(found(record(0, 7, b"other"), marker(1, 7, commit=True))) == (None, None)


def test_batches_of_one_response_and_of_several() -> None:
    """A response has other keys, several records, a compressed batch, control batches; another response follows."""
    rows = (Rec(b"1", b"key"), Rec(b"other", b"other"), Rec(b"newest", b"key"), Rec(b"no key"))
    batches = (
        record(0, 7),
        Batch(rows, 1, "gzip", producer_id=8, attributes=TRANSACTIONAL),
        record(5, 9, b"other"),
        marker(6, 7, commit=True),
        Batch((Rec(b"behind a gap", b"key"), Rec(None, b"key")), 20, producer_id=7, attributes=TRANSACTIONAL),
        marker(22, 8, commit=True),
        marker(23, 7, commit=False),
    )
    for split in range(len(batches)):
        records = TransactionalRecords(b"key", OffsetRange("states", 0, 0, 24))
        for response in (batches[:split], batches[split:]):
            records.feed(memoryview(b"".join(batch.encode() for batch in response)))
        assert records.newest == (3, b"newest")
        assert records.undecided is None
        assert records.next_offset == 24
    before_the_markers = TransactionalRecords(b"key", OffsetRange("states", 0, 0, 22))
    before_the_markers.feed(memoryview(b"".join(batch.encode() for batch in batches)))
    assert before_the_markers.newest == (0, b"0")
    assert before_the_markers.undecided == (21, None)  # a tombstone


def test_the_error_of_a_damaged_batch_has_its_offset() -> None:
    damaged = bytearray(record(1, 7).encode())
    damaged[-1] ^= 1
    records = TransactionalRecords(b"key", OffsetRange("states", 0, 0, 2))
    with pytest.raises(CorruptRecordError) as caught:
        records.feed(memoryview(record(0, 7).encode() + damaged))
    assert caught.value.offset == 1


@pytest.mark.parametrize("good", range(3))
def test_a_control_batch_with_a_wrong_crc_is_an_error(good: int) -> None:
    damaged = bytearray(marker(good, 7, commit=True).encode())
    damaged[-1] ^= 1
    before = b"".join(record(offset, 7).encode() for offset in range(good))
    with pytest.raises(CorruptRecordError, match="CRC of the control batch does not match its bytes") as caught:
        TransactionalRecords(b"key", OffsetRange("states", 0, 0, good + 1)).feed(memoryview(before + damaged))
    assert caught.value.offset == good


@pytest.mark.parametrize("good", range(3))
@pytest.mark.parametrize(("position", "content"), [(8, 255), (11, 0), (16, 9)], ids=["negative", "short", "format"])
def test_a_batch_without_a_valid_header_is_an_error(position: int, content: int, good: int) -> None:
    damaged = bytearray(record(good, 7).encode())
    damaged[position] = content
    records = TransactionalRecords(b"key", OffsetRange("states", 0, 0, good + 1))
    before = b"".join(record(offset, 7).encode() for offset in range(good))
    with pytest.raises(CorruptRecordError) as caught:
        records.feed(memoryview(before + damaged))
    assert caught.value.offset == good
