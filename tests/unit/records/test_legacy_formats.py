"""Message formats 0 and 1, from kafka-python and from ``legacy_messages``."""

from __future__ import annotations

import struct
import zlib

import pytest
from tests.unit.records.batches import Batch, Rec, compress, xerial
from tests.unit.records.decoding import Outcome, request, run
from tests.unit.records.kafka_python import LegacyRecordBatchBuilder
from tests.unit.records.legacy_messages import CODECS, message, wrapper

from pyspark_kafka_direct.errors import CorruptRecordError, RecordError, RecordTooLargeError, TimestampOverflowError
from pyspark_kafka_direct.records import RecordDecoder

COLUMNS = ("key", "value", "offset", "timestampType", "headers", "leaderEpoch")


def by_kafka_python(magic: int, codec: str, count: int) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, CODECS[codec], 1 << 20)
    for index in range(count):
        builder.append(index, 1000 + index if magic else None, b"k%d" % index, b"v%d" % index)
    data = bytearray(builder.build())
    if codec != "none":
        struct.pack_into(">q", data, 0, count - 1)  # a broker sets a wrapper's offset to its last message's
    return bytes(data)


def milliseconds(outcome: Outcome) -> list[int]:
    return [round(stamp.timestamp() * 1000) for stamp in outcome.column("timestamp")]


@pytest.mark.parametrize(
    ("magic", "codec"),
    # Format 0 with LZ4 has a wrong checksum, see below.
    [(magic, codec) for magic in (0, 1) for codec in CODECS if (magic, codec) != (0, "lz4")],
)
def test_messages_of_kafka_python(magic: int, codec: str) -> None:
    outcome = run(by_kafka_python(magic, codec, 5), request(0, 5))
    assert outcome.error is None
    assert outcome.done
    assert outcome.column("key") == [b"k%d" % index for index in range(5)]
    assert outcome.column("value") == [b"v%d" % index for index in range(5)]
    assert outcome.column("offset") == list(range(5))
    assert outcome.column("timestampType") == [0 if magic else -1] * 5
    assert milliseconds(outcome) == ([1000, 1001, 1002, 1003, 1004] if magic else [-1] * 5)
    assert outcome.column("headers") == outcome.column("leaderEpoch") == [None] * 5


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_offsets_in_wrappers(codec: str) -> None:
    relative = b"".join(message(index, b"%d" % index) for index in (0, 1, 4))
    absolute = b"".join(message(10 + index, b"%d" % index, magic=0) for index in (0, 1, 4))
    one = run(wrapper(14, relative, codec), request(10, 15))
    zero = run(wrapper(14, absolute, codec, magic=0), request(10, 15))
    assert one.column("offset") == zero.column("offset") == [10, 11, 14]
    assert one.counts.gaps == zero.counts.gaps == 2


def test_snappy_framing_in_a_wrapper() -> None:
    data = message(1, xerial(message(0, b"a") + message(1, b"b")), attributes=2)
    assert run(data).column("value") == [b"a", b"b"]


def test_wrong_lz4_checksum_of_old_clients() -> None:
    compressed = bytearray(compress("lz4", message(7, b"a", magic=0)))
    compressed[14 if compressed[4] & 0x08 else 6] ^= 0xFF
    data = message(7, bytes(compressed), magic=0, attributes=3)
    assert run(data).column("value") == [b"a"]
    newer = message(7, bytes(compressed), magic=1, attributes=3)
    assert isinstance(run(newer).error, CorruptRecordError)


def test_log_append_time_of_a_wrapper_is_used() -> None:
    inner = message(0, b"a", timestamp=1) + message(1, b"b", timestamp=2)
    outcome = run(wrapper(1, inner, "gzip", attributes=0x08, timestamp=99))
    assert milliseconds(outcome) == [99, 99]
    assert outcome.column("timestampType") == [1, 1]
    own = run(wrapper(1, inner, "gzip", timestamp=99))
    assert milliseconds(own) == [1, 2]


def test_a_wrapper_without_a_timestamp() -> None:
    inner = message(0, b"a", timestamp=7) + message(1, b"b", timestamp=-1)
    for attributes, expected in ((0, [7, -1]), (0x08, [-1, -1])):
        outcome = run(wrapper(1, inner, "gzip", attributes=attributes, timestamp=-1))
        assert milliseconds(outcome) == expected


def test_a_message_that_the_response_truncates_is_fetched_again() -> None:
    last = wrapper(2, message(0, b"b") + message(1, b"c"), "gzip")
    for end in range(len(last)):
        outcome = run([message(0, b"a") + last[:end], last])
        assert outcome.column("value") == [b"a", b"b", b"c"]
        assert outcome.error is None


def test_checksums_are_only_verified_if_wanted() -> None:
    damaged = message(0, b"a")[:-1] + b"b"
    data = damaged + wrapper(1, damaged, "gzip")
    outcome = run(data, request(check_crcs=False))
    assert outcome.column("value") == [b"b", b"b"]
    assert "The CRC of a message does not match its bytes: it says" in str(run(data).error)


def test_a_wrapper_is_limited() -> None:
    inner = b"".join(message(index, bytes(100)) for index in range(50))
    data = wrapper(59, inner, "gzip")
    assert run(data, request(max_batch_bytes=len(inner))).column("offset") == list(range(10, 60))
    error = run(data, request(max_batch_bytes=len(inner) - 1)).error
    assert isinstance(error, RecordTooLargeError)
    assert (error.topic, error.partition, error.offset) == ("flights", 7, 59)


@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, 5, 6, 13, 100, (1 << 31) - 1])
def test_impossible_sizes_of_inner_messages(size: int) -> None:
    inner = bytearray(message(0, b"a") + message(1, b"b"))
    struct.pack_into(">i", inner, len(inner) // 2 + 8, size)
    error = run(wrapper(5, bytes(inner), "gzip")).error
    assert isinstance(error, CorruptRecordError)
    assert error.offset == 5


def test_null_is_not_empty() -> None:
    outcome = run(message(0, None, b"") + message(1, b"", None))
    assert (outcome.column("key"), outcome.column("value")) == ([b"", None], [None, b""])


def test_log_with_all_formats() -> None:
    """Formats may change within a response, and from one response to the next."""
    old = b"".join(message(offset, b"old", magic=offset % 2) for offset in range(4))
    new = Batch((Rec(b"new"),) * 3, 4).encode()
    newest = Batch((Rec(b"newest"),), 7).encode()
    for feeds in ([old + new, newest], [old, new + newest], [old[:40], old + new[:-1], new, newest]):
        outcome = run(feeds, request(1, 8, ("offset", "value")))
        assert outcome.error is None
        assert outcome.done
        assert outcome.column("offset") == list(range(1, 8))
        assert outcome.counts.records == 7
        assert outcome.counts.gaps == 0


def test_only_the_range() -> None:
    inner = b"".join(message(index, b"x") for index in range(5))
    data = message(9, b"x") + wrapper(14, inner, "gzip") + message(15, b"x") + message(16, b"x")
    outcome = run(data, request(11, 16))
    assert outcome.column("offset") == [11, 12, 13, 14, 15]
    assert outcome.done
    outcome = run(data, dict(request(11, 13), max_rows=1))
    assert [batch.num_rows for batch in outcome.batches] == [1, 1]
    assert outcome.done


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(message(5, b"x")[:-1] + b"y", id="crc"),
        pytest.param(message(5, None, attributes=1), id="wrapper without a value"),
        pytest.param(message(5, b"junk", attributes=1), id="wrapper of junk"),
        pytest.param(wrapper(5, b"", "gzip"), id="empty wrapper"),
        pytest.param(wrapper(5, message(0, b"a")[:-1], "gzip"), id="inner message cut off"),
        pytest.param(wrapper(5, message(0, b"a")[:-1] + b"b", "gzip"), id="crc of an inner message"),
        pytest.param(wrapper(5, message(0, b"a", magic=0), "gzip"), id="inner message of another format"),
        pytest.param(wrapper(5, wrapper(0, message(0, b"a"), "gzip"), "gzip"), id="wrapper in a wrapper"),
        pytest.param(wrapper(5, message(1, b"a") + message(0, b"a"), "gzip"), id="inner offsets out of order"),
        pytest.param(wrapper(5, message(9, b"a", magic=0), "gzip", magic=0), id="inner offset behind its wrapper"),
        pytest.param(wrapper(5, message(0, b"a") + message(9, b"b"), "gzip"), id="inner offset below zero"),
        pytest.param(wrapper(5, message(0, b"a") + message(6, b"b"), "gzip"), id="inner offset of minus one"),
        pytest.param(message(5, b"x", attributes=4), id="zstd"),
        pytest.param(struct.pack(">qiIbb", 5, 14, zlib.crc32(b"\1\0" + bytes(8)), 1, 0) + bytes(8), id="no lengths"),
        pytest.param(
            wrapper(5, struct.pack(">qiIbb", 0, 6, zlib.crc32(b"\1\0"), 1, 0), "gzip"),
            id="no timestamp of an inner one",
        ),
    ],
)
def test_malformed_messages(bad: bytes) -> None:
    outcome = run(message(0, b"good") + bad)
    assert outcome.column("value") == [b"good"]
    assert isinstance(outcome.error, RecordError)
    assert (outcome.error.topic, outcome.error.offset) == ("flights", 5)


def test_unreadable_message_is_reported_at_the_offset_of_its_wrapper() -> None:
    inner = message(0, b"a") + message(1, b"b")[:-1] + b"c" + message(2, b"d")
    outcome = run(wrapper(5, inner, "gzip"))
    assert outcome.column("offset") == [3]
    assert isinstance(outcome.error, CorruptRecordError)
    assert outcome.error.offset == 5


def test_messages_before_one_without_a_size_are_returned() -> None:
    inner = message(0, b"a") + struct.pack(">qi", 1, 0) + message(2, b"c")
    outcome = run(wrapper(5, inner, "gzip"))
    assert outcome.column("offset") == [3]
    assert isinstance(outcome.error, CorruptRecordError)


def test_each_offset_is_returned_once() -> None:
    outcome = run(wrapper(5, message(0, b"a") * 2, "gzip"))
    assert outcome.column("offset") == [5]
    assert isinstance(outcome.error, CorruptRecordError)


def test_a_timestamp_beyond_microseconds() -> None:
    data = message(0, b"a", timestamp=7) + message(1, b"b", timestamp=1 << 62)
    outcome = run(data)
    assert milliseconds(outcome) == [7]
    assert isinstance(outcome.error, TimestampOverflowError)
    assert outcome.error.offset == 1
    assert run(data, request(columns=("value",))).column("value") == [b"a", b"b"]


def test_message_of_the_largest_allowed_size() -> None:
    data = message(0, b"x" * 100)
    size = len(data) - 12  # without offset and size
    assert run(data, request(max_batch_bytes=size)).column("value") == [b"x" * 100]
    assert isinstance(run(data, request(max_batch_bytes=size - 1)).error, RecordTooLargeError)


def test_the_next_response_is_fed_after_all_messages_were_read() -> None:
    decoder = RecordDecoder(**request())
    decoder.feed(wrapper(1, message(0, b"old") + message(1, b"old"), "gzip"))
    assert decoder.next_offset == 2
    with pytest.raises(RuntimeError):
        decoder.feed(message(2, b"early"))
    assert decoder.read() is not None
    assert decoder.read() is None
    decoder.feed(Batch(base_offset=2).encode())
    assert decoder.next_offset == 3
    assert decoder.read() is not None
    assert decoder.counts.records == 3
