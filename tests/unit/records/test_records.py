"""Decoding valid records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.records.batches import LOG_APPEND_TIME, Batch, Rec
from tests.unit.records.decoding import request, run

from pyspark_kafka_direct.errors import TimestampOverflowError
from pyspark_kafka_direct.records import COLUMNS, DecodeCounts, RecordDecoder

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def numbered(base: int, count: int, **more: object) -> Batch:
    records = tuple(Rec(value=f"value {base + index}".encode()) for index in range(count))
    return Batch(records, base, **more)  # type: ignore[arg-type]


def test_every_column() -> None:
    record = Rec(b"value", b"key", 5, ((b"name", b"content"),))
    (row,) = run(Batch((record,), 42, leader_epoch=9).encode(), request(42)).rows()
    assert row == {
        "key": b"key",
        "value": b"value",
        "topic": "flights",
        "partition": 7,
        "offset": 42,
        "timestamp": EPOCH + timedelta(milliseconds=1_700_000_000_005),
        "timestampType": 0,
        "headers": [{"key": "name", "value": b"content"}],
        "leaderEpoch": 9,
    }


def test_null_is_not_empty() -> None:
    records = (Rec(None, b""), Rec(b"", None), Rec(None, None), Rec(b"", b""))
    outcome = run(Batch(records).encode())
    assert outcome.column("key") == [b"", None, None, b""]
    assert outcome.column("value") == [None, b"", None, b""]


def test_headers() -> None:
    records = (
        Rec(headers=((b"a", None), (b"a", b""), (b"", b"x"))),
        Rec(),
        Rec(headers=(("größe".encode(), b"\xff"), (b"\xff\xed\xa0", b"1"))),
    )
    assert run(Batch(records).encode()).column("headers") == [
        [{"key": "a", "value": None}, {"key": "a", "value": b""}, {"key": "", "value": b"x"}],
        None,
        [{"key": "größe", "value": b"\xff"}, {"key": "\ufffd\ufffd\ufffd", "value": b"1"}],
    ]


def test_timestamps_go_back_and_forth() -> None:
    records = (Rec(time=0), Rec(time=-70_000), Rec(time=300), Rec(time=-1_700_000_000_001))
    timestamps = run(Batch(records).encode()).column("timestamp")
    assert [(stamp - EPOCH) // timedelta(milliseconds=1) for stamp in timestamps] == [
        1_700_000_000_000,
        1_699_999_930_000,
        1_700_000_000_300,
        -1,
    ]


def test_log_append_time_is_the_batches() -> None:
    batch = Batch((Rec(time=1), Rec(time=2)), attributes=LOG_APPEND_TIME, max_timestamp=1_234)
    outcome = run(batch.encode() + Batch(base_offset=2).encode())
    assert outcome.column("timestampType") == [1, 1, 0]
    assert outcome.column("timestamp")[:2] == [EPOCH + timedelta(milliseconds=1_234)] * 2


def test_a_timestamp_beyond_microseconds() -> None:
    most = (1 << 63) // 1000
    good, bad = Batch(base_timestamp=most - 1), Batch((Rec(time=1),), 1, base_timestamp=most)
    outcome = run(good.encode() + bad.encode(), request(columns=("offset", "timestamp")))
    assert outcome.column("offset") == [0]
    assert isinstance(outcome.error, TimestampOverflowError)
    assert (outcome.error.topic, outcome.error.partition, outcome.error.offset) == ("flights", 7, 1)
    without = run(good.encode() + bad.encode(), request(columns=("offset",)))
    assert without.column("offset") == [0, 1]
    assert without.error is None


def test_the_largest_timestamps_that_fit_microseconds() -> None:
    most = (1 << 63) // 1000
    for milliseconds, fits in ((most, True), (-most, True), (most + 1, False), (-most - 1, False)):
        outcome = run(Batch(base_timestamp=milliseconds).encode(), request(columns=("timestamp",)))
        assert (outcome.error is None) == fits, milliseconds
        microseconds = [
            value for batch in outcome.batches for value in batch.column("timestamp").cast("int64").to_pylist()
        ]
        assert microseconds == [milliseconds * 1000] * fits


def test_a_timestamp_beyond_64_bits_wraps_as_in_java() -> None:
    for base, delta, wrapped in (((1 << 63) - 1, 1, -(1 << 63)), (-(1 << 63), -1, (1 << 63) - 1)):
        data = Batch((Rec(time=delta),), base_timestamp=base).encode()
        outcome = run(data, request(columns=("timestamp",)))
        assert f"The timestamp {wrapped} ms does not fit" in str(outcome.error)


def test_no_leader_epoch_is_null() -> None:
    batches = (numbered(0, 1, leader_epoch=-1), numbered(1, 2, leader_epoch=0), numbered(3, 1, leader_epoch=-1))
    outcome = run(b"".join(batch.encode() for batch in batches))
    assert outcome.column("leaderEpoch") == [None, 0, 0, None]


@pytest.mark.parametrize(("from_offset", "until_offset"), [(0, 30), (5, 6), (9, 11), (10, 20), (3, 27), (29, 30)])
def test_only_the_range(from_offset: int, until_offset: int) -> None:
    data = b"".join(numbered(base, 10).encode() for base in (0, 10, 20))
    outcome = run(data, request(from_offset, until_offset))
    assert outcome.column("offset") == list(range(from_offset, until_offset))
    assert outcome.column("value") == [f"value {offset}".encode() for offset in range(from_offset, until_offset)]
    assert outcome.done
    assert outcome.counts.records == until_offset - from_offset
    assert outcome.counts.gaps == 0


def test_an_empty_range_is_done_at_once() -> None:
    assert RecordDecoder(**request(5, 5)).done


def test_incomplete_batch_is_left_for_the_next_fetch() -> None:
    first, second = numbered(0, 3).encode(), numbered(3, 3).encode()
    for cut in (1, 11, 12, 16, 17, 26, 60, 61, len(second) - 1):
        decoder = RecordDecoder(**request(0, 6, ("offset",)))
        decoder.feed(first + second[:cut])
        assert decoder.next_offset == 3
        assert decoder.read() is not None
        assert decoder.read() is None
        assert not decoder.done
        decoder.feed(second)
        batch = decoder.read()
        assert batch is not None
        assert batch.column("offset").to_pylist() == [3, 4, 5]
        assert decoder.done


def test_only_an_incomplete_batch() -> None:
    decoder = RecordDecoder(**request(0, 6))
    decoder.feed(numbered(0, 6).encode()[:-1])
    assert (decoder.next_offset, decoder.read(), decoder.done) == (0, None, False)


def test_gaps_are_counted() -> None:
    records = (Rec(delta=1), Rec(delta=4))
    data = Batch(records, 10, last_offset_delta=9).encode() + Batch((), 20, last_offset_delta=4).encode()
    outcome = run(data + numbered(30, 2).encode(), request(8, 40))
    assert outcome.column("offset") == [11, 14, 30, 31]
    assert outcome.counts == DecodeCounts(records=4, bytes=outcome.counts.bytes, gaps=20)
    assert (outcome.next_offset, outcome.done) == (32, False)
    behind = run(data + numbered(50, 2).encode(), request(8, 40))
    assert behind.column("offset") == [11, 14]
    assert (behind.counts.gaps, behind.done) == (30, True)


def test_offsets_of_a_batch_may_lie_far_apart() -> None:
    """A compacted log keeps batches with the remaining records."""
    last = (1 << 31) - 1
    batch = Batch((Rec(), Rec(delta=last)), 10, last_offset_delta=last)
    assert run(batch.encode(), request(10)).column("offset") == [10, 10 + last]


def test_a_batch_fed_twice_gives_its_records_once() -> None:
    first, second = numbered(0, 5).encode(), numbered(5, 5).encode()
    assert run([first, first + second]).column("offset") == list(range(10))
    assert run(first + first + second).column("offset") == list(range(10))


def test_rows_are_limited() -> None:
    data = b"".join(numbered(base, 10).encode() for base in (0, 10, 20))
    outcome = run(data, request(max_rows=4))
    assert [batch.num_rows for batch in outcome.batches] == [4, 4, 4, 4, 4, 4, 4, 2]
    assert outcome.column("offset") == list(range(30))


def test_bytes_are_limited_and_a_larger_record_is_returned_alone() -> None:
    sizes = (10, 10, 500, 10, 10, 10, 80)
    data = Batch(tuple(Rec(b"v" * size) for size in sizes)).encode()
    outcome = run(data, request(max_bytes=100))
    assert [[len(value) for value in batch.column("value").to_pylist()] for batch in outcome.batches] == [
        [10, 10],
        [500],
        [10, 10, 10],
        [80],
    ]
    assert outcome.counts.bytes == len(data) - 61


def test_fed_buffer_can_be_reused() -> None:
    buffer = bytearray(numbered(0, 3).encode())
    decoder = RecordDecoder(**request(columns=("value",)))
    decoder.feed(memoryview(buffer))
    buffer[:] = b"\xff" * len(buffer)
    batch = decoder.read()
    assert batch is not None
    assert batch.column("value").to_pylist() == [b"value 0", b"value 1", b"value 2"]


def test_feeding_too_early_is_rejected() -> None:
    decoder = RecordDecoder(**request())
    decoder.feed(numbered(0, 3).encode())
    with pytest.raises(RuntimeError, match="read"):
        decoder.feed(numbered(3, 3).encode())


def test_arrow_batches_outlive_their_decoder() -> None:
    decoder = RecordDecoder(**request())
    decoder.feed(numbered(0, 3).encode())
    batch = decoder.read()
    expected = batch.to_pylist() if batch else []
    decoder.feed(b"") if decoder.read() is None else None
    del decoder
    assert batch is not None
    assert batch.to_pylist() == expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"columns": ("valu",)}, "no column 'valu'"),
        ({"columns": ("value", "value")}, "named twice"),
        ({"topic": "t" * 250}, "characters"),
        ({"partition": -1}, "partition"),
        ({"from_offset": -1}, "offsets"),
        ({"from_offset": 5, "until_offset": 4}, "offsets"),
        ({"max_rows": 0}, "max_rows"),
        ({"max_rows": (1 << 20) + 1}, "max_rows"),
        ({"max_bytes": (1 << 30) + 1}, "max_bytes"),
        ({"max_batch_bytes": 0}, "max_batch_bytes"),
        ({"max_batch_bytes": 1 << 31}, "max_batch_bytes"),
        ({"topic": ""}, "characters"),
        ({"partition": 1 << 31}, "partition"),
        ({"until_offset": 1 << 63}, "offsets"),
    ],
)
def test_bad_arguments(wrong: dict[str, object], message: str) -> None:
    right = {"topic": "t", "partition": 0, "from_offset": 0, "until_offset": 3, "columns": COLUMNS}
    with pytest.raises(ValueError, match=message):
        RecordDecoder(**(right | wrong))  # type: ignore[arg-type]
