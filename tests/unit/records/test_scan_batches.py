"""The headers of the record batches of a fetch response."""

from __future__ import annotations

import struct

import pytest
from tests.unit.records.batches import TRANSACTIONAL, Batch, Rec, compress, encode_record, marker
from tests.unit.records.legacy_messages import message, wrapper

from pyspark_kafka_direct.records import is_abort_marker, scan_batches, scan_leader_epoch
from pyspark_kafka_direct.records.scanned_batches import BadRecordError, ScannedBatch

MAX_OFFSET = (1 << 63) - 1
FIRST = Batch((Rec(b"a"), Rec(b"b")), 5, leader_epoch=3).encode()
SECOND = Batch((), 10, last_offset_delta=89, leader_epoch=1 << 30, producer_id=7, attributes=TRANSACTIONAL).encode()
MARKER = marker(100, 7, commit=False).encode()


def test_the_fields_of_headers() -> None:
    old = wrapper(101, message(0, b"old") + message(1, b"older"), "gzip")
    scanned = scan_batches(memoryview(FIRST + SECOND + MARKER + old + FIRST[:20]), 5)
    second, third, fourth = len(FIRST), len(FIRST + SECOND), len(FIRST + SECOND + MARKER)
    assert scanned.batches == [
        ScannedBatch(0, second, 5, 6, 2, 3, -1, is_transactional=False, is_control=False, records=2),
        ScannedBatch(second, third, 10, 99, 2, 1 << 30, 7, is_transactional=True, is_control=False, records=0),
        ScannedBatch(third, fourth, 100, 100, 2, 3, 7, is_transactional=True, is_control=True, records=1),
        ScannedBatch(fourth, fourth + len(old), 101, 101, 1, -1, -1, False, False, -1),
    ]
    assert scanned.next_offset == 102
    assert scanned.error is None


def test_positions_before_inside_and_after_the_batches() -> None:
    assert scan_batches(b"", 3) == scan_batches(FIRST[:-1], 3) == ([], 3, None)
    assert [scan_batches(FIRST + SECOND, position).next_offset for position in (0, 6, 50, 100, 300)] == [
        100,
        100,
        100,
        100,
        300,
    ]
    assert [len(scan_batches(FIRST + SECOND, 5, until).batches) for until in (5, 6, 7, 8, 100)] == [0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("at", "form", "number"),
    [
        *((8, ">i", length) for length in (-(1 << 31), -1, 0, 13, 48)),  # the length
        *((16, ">b", magic) for magic in (-128, -1, 3, 127)),  # the message format
        *((0, ">q", offset) for offset in (-(1 << 63), -1, MAX_OFFSET - 1, MAX_OFFSET)),  # the base offset
        *((23, ">i", delta) for delta in (-(1 << 31), -1)),  # the last offset delta
    ],
)
def test_impossible_headers(at: int, form: str, number: int) -> None:
    bad = bytearray(Batch((Rec(b"bad"),) * 3, 7).encode())
    struct.pack_into(form, bad, at, number)
    scanned = scan_batches(FIRST + bad + SECOND, 5)
    assert [batch.base_offset for batch in scanned.batches] == [5]
    assert scanned.next_offset == 7
    assert isinstance(scanned.error, BadRecordError)
    assert (scanned.error.kind, scanned.error.offset) == ("corrupt", 7)
    assert str(number) in str(scanned.error)
    assert scan_leader_epoch(FIRST + bad + SECOND) == 3


@pytest.mark.parametrize("length", [64, 1 << 16, (1 << 31) - 1])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_batch_beyond_the_response_is_incomplete(length: int, magic: int) -> None:
    rest = struct.pack(">qiib", 7, length, 0, magic)
    for end in range(len(rest) + 1):
        assert scan_batches(FIRST + rest[:end], 5) == scan_batches(FIRST, 5)
        assert scan_leader_epoch(bytearray(FIRST + rest[:end])) == 3


def test_the_leader_epoch_of_the_last_complete_batch() -> None:
    assert scan_leader_epoch(b"") == scan_leader_epoch(FIRST[:-1]) == scan_leader_epoch(b"\xff" * 80) == -1
    assert (
        scan_leader_epoch(FIRST)
        == scan_leader_epoch(FIRST + SECOND[:-1])
        == scan_leader_epoch(bytearray(FIRST + b"\xff" * 80))
        == 3
    )
    assert scan_leader_epoch(memoryview(FIRST + SECOND + FIRST[:20])) == 1 << 30
    for magic in (0, 1):
        old = message(11, b"old", magic=magic)
        assert scan_leader_epoch(FIRST + old) == -1
        assert scan_leader_epoch(old + SECOND) == 1 << 30


class TestAbortMarkers:
    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_markers(self, codec: str) -> None:
        for commit in (False, True):
            record = encode_record(Rec(b"\0\0\0\0\0\7", struct.pack(">hh", 0, commit)), 0)
            compressed = compress(codec, record)
            batch = Batch((), 20, codec, count=1, attributes=TRANSACTIONAL | 0x20, compressed=compressed).encode()
            assert is_abort_marker(memoryview(batch), 1 << 20) is not commit
            assert is_abort_marker(marker(20, 1, commit=commit).encode(), 1 << 20) is not commit

    def test_malformed_markers(self) -> None:
        short = Batch((Rec(b"value", b"\0\0\0"),), 20).encode()
        with pytest.raises(BadRecordError, match="key is shorter") as caught:
            is_abort_marker(short, 1 << 20)
        assert caught.value.offset == 20
        with pytest.raises(BadRecordError):
            is_abort_marker(Batch((), 20).encode(), 1 << 20)
        large = Batch((Rec(bytes(5000)),), 20, "gzip").encode()
        with pytest.raises(BadRecordError, match="more than 100 bytes") as caught:
            is_abort_marker(large, 100)
        assert (caught.value.kind, caught.value.offset) == ("large", 20)
