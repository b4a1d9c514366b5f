"""Encoding rows."""

from __future__ import annotations

import dataclasses
import random
import struct
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.records.batches import CODECS
from tests.unit.records.encoding import (
    HEADER,
    HEADERS,
    Row,
    arrow,
    decode,
    encode,
    make_encoder,
    some_rows,
    without_offsets,
)
from tests.unit.records.kafka_python import DefaultRecordBatchBuilder

from pyspark_kafka_direct.errors import ColumnError, RecordTooLargeError
from pyspark_kafka_direct.records import RecordEncoder
from pyspark_kafka_direct.records.murmur2 import partition_for_key
from pyspark_kafka_direct.records.record_batches import COMPRESSION_LEVELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.records import WritableBytes

every_codec = pytest.mark.parametrize("codec", CODECS)


def by_kafka_python(rows: Sequence[Row]) -> bytes:
    """A batch as kafka-python writes it, with Java's "no leader epoch", which no CRC covers."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 30)
    for index, row in enumerate(rows):
        builder.append(index, row.timestamp, row.key, row.value, list(row.headers or ()))
    batch = builder.build()
    struct.pack_into(">i", batch, 12, -1)
    return bytes(batch)


@settings(deadline=None)
@given(rows=some_rows(timestamps=st.integers(-(1 << 61), 1 << 61)).filter(bool))
def test_same_bytes_as_kafka_python(rows: list[Row]) -> None:
    (batch,) = encode(rows)
    expected = by_kafka_python(rows)
    assert bytes(batch.data) == expected
    assert (batch.partition, batch.records, batch.uncompressed_bytes) == (0, len(rows), len(expected) - HEADER)


@settings(deadline=None)
@given(rows=some_rows(partitions=3), codec=st.sampled_from(sorted(CODECS)), batch_bytes=st.integers(1, 400))
def test_rows_round_trip(rows: list[Row], codec: str, batch_bytes: int) -> None:
    batches = encode(rows, partitions=3, codec=codec, batch_bytes=batch_bytes)
    for batch in batches:
        assert batch.data[22] & 7 == CODECS[codec]
        assert batch.records == 1 or batch.uncompressed_bytes <= batch_bytes
        assert len(decode(batch.data)) == batch.records
    for partition in range(3):
        # Rows without a partition may be in any.
        back = decode(*(batch.data for batch in batches if batch.partition == partition))
        named = [row for row in rows if row.partition == partition]
        keyed = [
            row
            for row in rows
            if row.partition is None and row.key is not None and partition_for_key(row.key, 3) == partition
        ]
        assert not Counter(without_offsets([*named, *keyed])) - Counter(back)
    assert Counter(decode(*(batch.data for batch in batches))) == Counter(without_offsets(rows))


@pytest.mark.slow
@every_codec
def test_unusual_rows(codec: str) -> None:
    noise = random.Random(5).randbytes
    rows = [
        Row(None),
        Row(b"", b""),
        Row(b"", None, ()),
        Row(None, b""),
        Row(b"many headers", headers=tuple((f"h{n}", noise(9)) for n in range(1000))),
        Row(b"odd headers", headers=(("", None), ("", b""), ("größe", b"\xff"), ("twice", b"1"), ("twice", b"2"))),
        Row(b"before 1970", timestamp=-86_400_000),
        Row(b"just before 1970", timestamp=-1),
        Row(b"1970", timestamp=0),
        Row(b"far from now", timestamp=(1 << 63) // 1000),
        Row(noise(10_000_000), b"10 MB of noise"),
        Row(b"0123456789" * 1_000_000, b"10 MB of tedium"),
        Row(b"behind", noise(200_000)),
    ]
    batches = encode(rows, codec=codec, max_record_bytes=11 << 20)
    assert decode(*(batch.data for batch in batches)) == without_offsets(rows)


def test_extreme_timestamp_differences() -> None:
    lowest, highest = -(1 << 63), (1 << 63) - 1
    (batch,) = encode([Row(timestamp=timestamp) for timestamp in (highest, lowest, 0)])
    assert struct.unpack_from(">qq", batch.data, 27) == (highest, highest)
    # Deltas wrap, as in Java, so a reader gets the timestamps back.
    first, second = bytes(batch.data[HEADER : HEADER + 8]), bytes(batch.data[HEADER + 8 : HEADER + 16])
    assert (first[:3], second[:3]) == (bytes((2 * 7, 0, 0)), bytes((2 * 7, 0, 2 * 1)))


@pytest.mark.slow
def test_levels() -> None:
    rng = random.Random(5)
    text = b" ".join(b"flight %d to %c%c" % (number, *rng.choices(b"ABCDEFGH", k=2)) for number in range(20_000))
    for codec, levels in (("gzip", (1, 9)), ("zstd", (-50, 19))):
        sizes = [len(encode([Row(text)], codec=codec, level=level)[0].data) for level in (*levels, None)]
        assert sizes[0] > sizes[2] > sizes[1]
    (without,) = encode([Row(text)], codec="lz4")
    (deeper,) = encode([Row(text)], codec="lz4", level=12)
    assert deeper.data == without.data


def test_framing_is_that_of_the_java_client() -> None:
    noise = random.Random(5).randbytes(100_000)
    (snappy,) = encode([Row(noise)], codec="snappy")
    assert bytes(snappy.data[HEADER : HEADER + 16]) == b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1"
    (first,) = struct.unpack_from(">i", snappy.data, HEADER + 16)
    assert 32 << 10 < first < 33 << 10
    (lz4,) = encode([Row(noise)], codec="lz4")
    assert bytes(lz4.data[HEADER : HEADER + 7]) == bytes.fromhex("04224d18604082")
    # Incompressible blocks are stored uncompressed.
    assert bytes(lz4.data[HEADER + 7 : HEADER + 11]) == struct.pack("<I", (64 << 10) | 1 << 31)
    assert bytes(lz4.data[-4:]) == bytes(4)


def test_any_binary_type_and_slices() -> None:
    rows = [
        Row(f"value {n}".encode(), None if n % 3 == 0 else f"key {n}".encode(), (("n", b"%d" % n),), n % 2)
        for n in range(40)
    ]
    plain = arrow(rows)
    expected = encode(rows[7:31], partitions=2)
    assert encode(plain.slice(7, 24), partitions=2) == expected
    header = pa.struct([pa.field("value", pa.large_binary()), pa.field("key", pa.large_string())])  # in any order
    headers = pa.array([[{"key": "n", "value": b"%d" % n}] for n in range(40)], pa.large_list(header))
    for kind in (pa.string(), pa.large_string(), pa.large_binary()):
        table = {name: plain.column(name) for name in plain.schema.names}
        table |= {"key": plain.column("key").cast(kind), "value": plain.column("value").cast(kind), "headers": headers}
        batch = pa.record_batch(table)
        assert encode(batch.slice(7, 24), partitions=2) == expected


def test_sliced_headers_with_nulls() -> None:
    rows = [Row(headers=None if n % 4 == 0 else (("n", b"%d" % n),) * (n % 4)) for n in range(20)]
    (batch,) = encode(arrow(rows).slice(5, 9))
    assert decode(batch.data) == without_offsets(rows[5:14])
    # A null list may hide pairs behind it.
    hidden = pa.ListArray.from_arrays(
        [0, 1, 2, 3],
        pa.array(
            [{"key": "a", "value": b"1"}, {"key": None, "value": None}, {"key": "c", "value": b"3"}], HEADERS.value_type
        ),
        mask=pa.array([False, True, False]),
    )
    batch = pa.record_batch(
        {**dict.fromkeys(("value",), pa.array([b"v"] * 3)), "timestamp": pa.array([0] * 3), "headers": hidden}
    )
    (encoded,) = encode(batch)
    assert [row.headers for row in decode(encoded.data)] == [(("a", b"1"),), None, (("c", b"3"),)]


def test_strings_may_be_invalid_utf_8() -> None:
    offsets, data = pa.py_buffer(struct.pack("<ii", 0, 2)), pa.py_buffer(b"\xff\xfe")
    text = pa.StringArray.from_buffers(1, offsets, data)
    header = pa.StructArray.from_arrays([text, text], ["key", "value"])
    headers = pa.ListArray.from_arrays([0, 1], header)
    batch = pa.record_batch({"value": text, "key": text, "headers": headers, "timestamp": pa.array([0])})
    (encoded,) = encode(batch)
    assert bytes(encoded.data[HEADER:]).count(b"\xff\xfe") == 4


def test_only_value_and_timestamp_are_needed() -> None:
    batch = pa.record_batch({"timestamp": pa.array([7, 8]), "other": pa.array([1, 2]), "value": pa.array([b"a", None])})
    (encoded,) = encode(batch)
    assert decode(encoded.data) == [Row(b"a", timestamp=7), Row(None, timestamp=8)]


def test_no_rows_no_batch() -> None:
    encoder = make_encoder()
    assert encoder.add(arrow([])) == []
    assert encoder.flush() == []
    assert encoder.open_bytes == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": None}, "no column value"),
        ({"timestamp": None}, "no column timestamp"),
        ({"value": pa.array([1])}, "column value cannot have the type"),
        ({"key": pa.array([1.5])}, "column key cannot have the type"),
        ({"timestamp": pa.array([1], pa.int32())}, "column timestamp cannot have the type"),
        ({"timestamp": pa.array([None], pa.int64())}, "timestamp holds nulls"),
        ({"partition": pa.array([1], pa.int64())}, "column partition cannot have the type"),
        ({"headers": pa.array([["a"]])}, "column headers cannot have the type"),
        ({"headers": pa.array([[{"key": "a"}]])}, "column headers cannot have the type"),
        ({"headers": pa.array([[{"key": "a", "value": 1}]])}, "column headers cannot have the type"),
    ],
)
def test_invalid_columns_are_rejected(change: dict[str, pa.Array | None], message: str) -> None:
    good = {"value": pa.array([b"v"]), "timestamp": pa.array([0])}
    columns = {name: column for name, column in (good | change).items() if column is not None}
    encoder = make_encoder()
    with pytest.raises(ValueError, match=message):
        encoder.add(pa.record_batch(columns))
    assert encoder.open_bytes == 0


def test_missing_partition_is_rejected() -> None:
    for partition in (3, -1, (1 << 31) - 1):
        encoder = make_encoder(partitions=3)
        encoder.add(arrow([Row(), Row(partition=2)]))
        with pytest.raises(ColumnError, match=f"Row 3 names partition {partition}, .* 0 to 2.*topic flights"):
            encoder.add(arrow([Row(partition=1), Row(partition=partition)]))


def test_header_without_a_key_is_rejected() -> None:
    for headers in (((None, b"v"),), (("a", b"v"), (None, None))):
        with pytest.raises(ColumnError, match=r"Row 1 has a header without a key.*topic flights"):
            encode([Row(), Row(headers=headers)])
    batch = arrow([Row()]).drop_columns(["headers"]).append_column("headers", pa.array([[None]], HEADERS))
    with pytest.raises(ColumnError, match="Row 0 has a header without a key"):
        encode(batch)


@every_codec
def test_the_largest_record(codec: str) -> None:
    overhead = (
        1 + 1 + 1 + 1 + 1 + 2 + 1 + 1
    )  # length takes 2, timestamp, offset, no key, length of the value 2, no headers
    for max_bytes in (200, 1000):
        (batch,) = encode([Row(b"v" * (max_bytes - overhead))], codec=codec, max_record_bytes=max_bytes)
        assert batch.uncompressed_bytes == max_bytes
        with pytest.raises(
            RecordTooLargeError, match=f"Row 0 makes a record of {max_bytes + 1} bytes.*max.request.size.*flights"
        ):
            encode([Row(b"v" * (max_bytes - overhead + 1))], codec=codec, max_record_bytes=max_bytes)


def test_batch_is_full_when_the_next_record_does_not_fit() -> None:
    encoder = make_encoder(batch_bytes=30)
    ten = Row(b"abc")  # and seven bytes of overhead
    assert encoder.add(arrow([ten, ten])) == []
    assert encoder.open_bytes == 20
    (full,) = encoder.add(arrow([ten]))
    assert (full.records, full.uncompressed_bytes, encoder.open_bytes) == (3, 30, 0)
    encoder.add(arrow([ten, ten]))
    (full,) = encoder.add(arrow([Row(b"abcd")]))
    assert (full.records, encoder.open_bytes) == (2, 11)
    first, large = encoder.add(arrow([Row(b"v" * 50)]))
    assert (first.records, large.records, large.uncompressed_bytes, encoder.open_bytes) == (1, 1, 57, 0)


def test_rows_without_key_move_to_the_next_partition_after_16_kib() -> None:
    encoder = make_encoder(partitions=3, first_sticky_partition=4)
    kib = Row(b"v" * 1020)  # and four bytes of lengths: key, value and the number of headers
    assert encoder.add(arrow([kib] * 40)) == []
    assert [(batch.partition, batch.records) for batch in encoder.flush()] == [(0, 8), (1, 16), (2, 16)]
    # Neither a flush nor rows with a partition count.
    encoder.add(arrow([*[Row(b"v" * 1020, partition=1)] * 20, *[kib] * 9]))
    assert [(batch.partition, batch.records) for batch in encoder.flush()] == [(0, 8), (1, 21)]


def test_small_batches_of_rows_without_key_alternate() -> None:
    encoder = make_encoder(partitions=3, batch_bytes=30, first_sticky_partition=1)
    ten = Row(b"1234567")  # without offset, timestamp and length; the whole record has 14 bytes
    order = [(batch.partition, batch.records) for batch in encoder.add(arrow([ten] * 12))]
    assert order == [(1, 2), (2, 2), (0, 2), (1, 2)]


def test_timestamps_do_not_influence_the_partition() -> None:
    encoders = [make_encoder(partitions=5, batch_bytes=100) for _ in range(2)]
    rows = [Row(b"v" * (number % 7)) for number in range(200)]
    partitions = []
    for encoder, step in zip(encoders, (0, 1 << 20), strict=True):
        stepped = [dataclasses.replace(row, timestamp=row.timestamp + step * number) for number, row in enumerate(rows)]
        batches = [*encoder.add(arrow(stepped)), *encoder.flush()]
        counts: Counter[int] = Counter()
        for batch in batches:
            counts[batch.partition] += batch.records
        partitions.append(counts)
    assert partitions[0] == partitions[1]


def test_keys_choose_partitions_as_in_the_java_client() -> None:
    keys = [b"%d" % number for number in range(500)]
    batches = encode([Row(key=key) for key in keys], partitions=7)
    assert [batch.partition for batch in batches] == list(range(7))
    for batch in batches:
        assert all(partition_for_key(row.key or b"", 7) == batch.partition for row in decode(batch.data))
    (ignoring,) = encode([Row(key=key) for key in keys], partitions=7, ignore_keys=True)
    assert (ignoring.partition, ignoring.records) == (0, 500)
    (empty,) = encode([Row(key=b"")], partitions=1000)
    assert empty.partition == 681


def test_a_thousand_partitions() -> None:
    encoder = make_encoder(partitions=1000, batch_bytes=1 << 20, codec="zstd")
    for _ in range(3):
        assert encoder.add(arrow([Row(b"v" * 100, partition=999 - n) for n in range(1000)])) == []
    assert encoder.open_bytes == 3 * 1000 * 109
    batches = encoder.flush()
    assert [batch.partition for batch in batches] == list(range(1000))
    assert {batch.records for batch in batches} == {3}
    assert encoder.open_bytes == 0


OUT_OF_MEMORY = """
import resource, sys
from pathlib import Path
import pyarrow as pa
from tests.unit.records.encoding import make_encoder
codecs = sys.argv[1:]
value = pa.array([bytes(24 << 20)], pa.binary())
rows = pa.record_batch({"value": value, "timestamp": pa.array([0])})
limits = {"batch_bytes": 1 << 30, "max_record_bytes": 1 << 30}
encoders = [make_encoder(codec=codec, **limits) for codec in codecs]
for encoder in encoders:
    encoder.add(rows.slice(0, 0))  # to load everything
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (32 << 20), resource.RLIM_INFINITY))
while encoders:
    encoder = encoders.pop(0)
    try:
        for _ in range(4):
            encoder.add(rows)
        encoder.flush()
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS holds on Linux only")
def test_memory_error_is_a_record_error() -> None:
    """With the memory limit of ``spark.executor.pyspark.memory``."""
    command = [sys.executable, "-c", OUT_OF_MEMORY, "none", "gzip", "zstd"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended
    errors = ended.stdout.splitlines()
    assert len(errors) == 3
    for error in errors:
        assert error.startswith("RecordTooLargeError: There is not enough memory"), ended
        assert "spark.executor.pyspark.memory" in error
        assert "[topic flights]" in error


@pytest.mark.parametrize(
    "invalid",
    [
        {"partitions": 0},
        {"batch_bytes": 0},
        {"max_record_bytes": (1 << 30) + 1},
        {"first_sticky_partition": -1},
        {"codec": "lzo"},
        {"codec": "none", "level": 1},
        {"codec": "gzip", "level": 0},
        {"codec": "gzip", "level": 10},
        {"codec": "snappy", "level": 1},
        {"codec": "lz4", "level": 0},
        {"codec": "lz4", "level": 18},
        {"codec": "zstd", "level": 23},
        {"codec": "zstd", "level": -131_073},
        {"batch_bytes": (1 << 30) + 1},
        {"max_record_bytes": 0},
        {"partitions": 1 << 31},
    ],
)
def test_arguments_out_of_range(invalid: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"not|no compression level"):
        RecordEncoder(**{"topic": "flights", "partitions": 1} | invalid)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "valid",
    [
        *({"codec": codec, "level": level} for codec, levels in COMPRESSION_LEVELS.items() for level in levels),
        {"batch_bytes": 1, "max_record_bytes": 1 << 30},
        {"batch_bytes": 1 << 30},
        {"first_sticky_partition": 1 << 40},
        {"partitions": (1 << 31) - 1, "first_sticky_partition": (1 << 31) - 2},
    ],
)
def test_the_limits_of_arguments(valid: dict[str, object]) -> None:
    encoder = RecordEncoder(**{"topic": "flights", "partitions": 1} | valid)  # type: ignore[arg-type]
    batches = [*encoder.add(arrow([Row(partition=0)])), *encoder.flush()]
    assert [decode(batch.data) for batch in batches] == [[Row()]]


def test_the_memory_of_a_batch_is_reused_when_nothing_refers_to_it() -> None:
    encoder = make_encoder(batch_bytes=10_000)
    rows = arrow([Row(bytes([number]) * 1000) for number in range(40)])

    def address(data: WritableBytes) -> int:
        return int(pa.py_buffer(data).address)

    batches = encoder.add(rows)
    content = [bytes(batch.data) for batch in batches]
    assert isinstance(batches[0].data, memoryview)
    later = encoder.add(rows)
    assert [bytes(batch.data) for batch in batches] == content  # nothing was acknowledged yet
    assert not {address(batch.data) for batch in batches} & {address(batch.data) for batch in later}
    dropped = {address(batch.data) for batch in batches}
    part = batches[0].data[100:200]
    retained = address(batches[0].data)
    del batches
    reused = {address(batch.data) for batch in encoder.add(rows)} & dropped
    assert reused
    assert retained not in reused
    assert bytes(part) == content[0][100:200]
    del encoder
    assert bytes(part) == content[0][100:200]
