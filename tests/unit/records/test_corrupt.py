"""Corrupt and unsupported bytes."""

from __future__ import annotations

import struct

import pytest
from tests.unit.records.batches import Batch, Rec, encode_record, varint
from tests.unit.records.decoding import request, run

from pyspark_kafka_direct.errors import CorruptRecordError, RecordError, UnsupportedRecordError
from pyspark_kafka_direct.records import RecordDecoder

GOOD = Batch((Rec(), Rec()), 0)


def failing(bad: bytes | Batch, from_offset: int = 0) -> RecordError:
    """The error for a bad batch after a good one (offsets 0 and 1), whose rows are returned."""
    data = bad.encode() if isinstance(bad, Batch) else bad
    outcome = run(GOOD.encode() + data, request(from_offset))
    assert outcome.column("offset")[:2] == [0, 1]
    assert outcome.error is not None
    assert not outcome.done
    assert (outcome.error.topic, outcome.error.partition) == ("flights", 7)
    return outcome.error


def body(*parts: bytes) -> Batch:
    """A batch of one record with these bytes after its length."""
    record = b"".join(parts)
    return Batch((Rec(),), 2, compressed=varint(len(record)) + record)


def test_a_wrong_crc() -> None:
    data = bytearray(Batch(base_offset=2).encode())
    data[-2] ^= 1
    error = failing(bytes(data))
    assert isinstance(error, CorruptRecordError)
    assert error.offset == 2
    assert "CRC" in str(error)
    unchecked = run(bytes(data), request(check_crcs=False))
    assert unchecked.error is None
    assert unchecked.column("offset") == [2]


def test_error_is_repeated_and_further_feeding_is_rejected() -> None:
    decoder = RecordDecoder(**request())
    decoder.feed(Batch(count=-1).encode())
    for _ in range(2):
        with pytest.raises(CorruptRecordError):
            decoder.read()
    with pytest.raises(RuntimeError):
        decoder.feed(b"")


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_an_unknown_message_format(magic: int) -> None:
    data = bytearray(Batch(base_offset=2).encode())
    data[16] = magic
    error = failing(bytes(data))
    assert isinstance(error, CorruptRecordError)
    assert error.offset == 2
    assert "message format" in str(error)


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 13, 48])
def test_an_impossible_batch_length(length: int) -> None:
    data = bytearray(Batch(base_offset=2).encode())
    struct.pack_into(">i", data, 8, length)
    assert "length" in str(failing(bytes(data)))


@pytest.mark.parametrize(("base", "delta"), [(-1, 0), (2, -1), ((1 << 63) - 1, 0), ((1 << 63) - 3, 5)])
def test_impossible_offsets(base: int, delta: int) -> None:
    assert "offsets" in str(failing(Batch(base_offset=base, last_offset_delta=delta)))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec(codec: int) -> None:
    error = failing(Batch(base_offset=2, attributes=codec))
    assert isinstance(error, UnsupportedRecordError)
    assert f"codec {codec}" in str(error)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(Batch(base_offset=2, count=-1), id="negative count"),
        pytest.param(Batch(base_offset=2, count=2, last_offset_delta=1), id="count larger than records"),
        pytest.param(Batch((Rec(), Rec()), 2, count=1), id="count smaller than records"),
        pytest.param(Batch(base_offset=2, count=(1 << 31) - 1), id="count of two thousand million"),
        pytest.param(Batch(base_offset=2, compressed=b""), id="no bytes"),
        pytest.param(Batch(base_offset=2, compressed=encode_record(Rec(), 0) + b"\0"), id="a byte after"),
        pytest.param(Batch(base_offset=2, compressed=encode_record(Rec(), 0)[:-1]), id="a byte short"),
        pytest.param(Batch(base_offset=2, compressed=b"\xff" * 5), id="endless length"),
        pytest.param(Batch(base_offset=2, compressed=b"\xff\xff\xff\xff\x1f" + b"\0" * 20), id="length beyond 32 bits"),
        pytest.param(Batch(base_offset=2, compressed=b"\xfe\xff\xff\xff\x0f" + b"\0" * 20), id="length of 2 GiB"),
        pytest.param(Batch(base_offset=2, compressed=b"\x01" + b"\0" * 20), id="negative length"),
        pytest.param(body(), id="empty record"),
        pytest.param(body(b"\0"), id="attributes only"),
        pytest.param(body(b"\0\0\0\0\0"), id="no header count"),
        pytest.param(body(b"\0\0\0\0\0\0\0"), id="a byte too many"),
        pytest.param(body(b"\0\0\0\0\0\x01"), id="negative header count"),
        pytest.param(body(b"\0\0\0\0\0\x02"), id="missing header"),
        pytest.param(body(b"\0\0\0\0\0\x02\x01\x00"), id="null header key"),
        pytest.param(body(b"\0\0\0\0\0\x02\x02"), id="truncated header key"),
        pytest.param(body(b"\0\0\0\0\0\xfe\xff\xff\xff\x0f"), id="two thousand million headers"),
        pytest.param(body(b"\0\0\0\x04a\0\0"), id="key beyond record"),
        pytest.param(body(b"\0\0\0\0\xfe\xff\xff\xff\x0f\0"), id="value of 2 GiB"),
        pytest.param(body(b"\0\0\0\x81\x80\x80\x80\x10\0\0"), id="null key by a length beyond 32 bits"),
        pytest.param(body(b"\0", b"\xff" * 9, b"\x02", b"\0\0\0\0"), id="timestamp beyond 64 bits"),
        pytest.param(body(b"\0", b"\xff" * 10, b"\0", b"\0\0\0\0"), id="endless timestamp"),
        pytest.param(body(b"\0", b"\x80" * 10 + b"\0", b"\0\0\0\0"), id="timestamp of eleven bytes"),
    ],
)
def test_malformed_records(bad: Batch) -> None:
    assert isinstance(failing(bad), CorruptRecordError)


def test_message_distinguishes_wrong_length_and_wrong_fields() -> None:
    assert "fields do not add up to its length" in str(failing(body()))
    assert "length does not fit its batch" in str(failing(Batch(base_offset=2, compressed=b"\xff" * 5)))


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (-1, 0), (0, 5)])
def test_offsets_out_of_order(deltas: tuple[int, int]) -> None:
    records = tuple(Rec(delta=delta) for delta in deltas)
    error = failing(Batch(records, 2, last_offset_delta=4))
    assert isinstance(error, CorruptRecordError)
    assert "offset delta" in str(error)


def test_the_offset_of_a_bad_record_within_its_batch() -> None:
    records = encode_record(Rec(), 0) + encode_record(Rec(), 3) + b"\x0c\0\0\x0a\0\0\x02"
    bad = Batch((Rec(),) * 3, 10, count=3, last_offset_delta=8, compressed=records)
    outcome = run(bad.encode())
    assert outcome.column("offset") == [10, 13]
    assert outcome.error is not None
    assert outcome.error.offset == 15


def test_damage_after_the_range_is_ignored() -> None:
    garbage = b"\xff" * 100
    data = GOOD.encode() + Batch(base_offset=2, count=-1).encode() + garbage
    assert run(data, request(0, 2)).done
    records = encode_record(Rec(), 0) + encode_record(Rec(), 1) + garbage
    rest = Batch((Rec(),) * 3, count=3, last_offset_delta=2, compressed=records)
    outcome = run(rest.encode(), request(0, 1))
    assert (outcome.error, outcome.done) == (None, True)


def test_damage_before_the_range_is_ignored() -> None:
    damaged = bytearray(GOOD.encode())
    damaged[-1] ^= 1
    outcome = run(bytes(damaged) + Batch(base_offset=2).encode(), request(2, 3))
    assert (outcome.error, outcome.done, outcome.column("offset")) == (None, True, [2])


def test_errors_contain_advice() -> None:
    message = str(failing(Batch(base_offset=2, count=-1)))
    assert "kafka-dump-log" in message
    assert "topic flights, partition 7, offset 2" in message
