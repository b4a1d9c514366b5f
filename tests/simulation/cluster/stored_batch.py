"""Record batches as a simulated log stores them; encoded and parsed independently of the package."""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.unit.records.batches import CODECS, CONTROL, TRANSACTIONAL, Rec, compress, crc, encode_record

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADER_SIZE = 61
BASE_TIMESTAMP = 1_700_000_000_000
"""In ms; simulated time starts there, at second 0."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_FRAME = struct.Struct(">qi")
_COVERED = struct.Struct(">hiqqqhii")
_CODEC_NAMES = {number: name for name, number in CODECS.items()}


Headers = tuple[tuple[bytes, bytes | None], ...]


class StoredBatch:
    """A batch in a log. It is shared by replicas and never changes: compaction replaces it."""

    __slots__ = (
        "base_offset",
        "base_sequence",
        "commit",
        "data",
        "epoch",
        "headers",
        "is_control",
        "is_transactional",
        "keys",
        "last_offset",
        "last_sequence",
        "max_timestamp",
        "offsets",
        "producer_epoch",
        "producer_id",
        "timestamps",
        "values",
    )

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        epoch: int,
        data: bytes,
        offsets: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        commit: bool | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.epoch = epoch
        self.data = data
        self.offsets = offsets
        self.keys = keys
        self.values = values
        self.timestamps = timestamps
        self.headers = headers
        self.max_timestamp = max(timestamps, default=-1)
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.last_sequence = -1 if base_sequence < 0 else (base_sequence + last_offset - base_offset) % 2**31
        self.is_transactional = is_transactional
        self.commit = commit  # of a transaction marker; None for data
        self.is_control = commit is not None

    def at(self, base_offset: int, epoch: int) -> StoredBatch:
        """Return the batch with the offset and epoch that a leader assigns; the checksum does not cover them."""
        data = struct.pack(">q", base_offset) + self.data[8:12] + struct.pack(">i", epoch) + self.data[16:]
        moved = base_offset - self.base_offset
        return StoredBatch(
            base_offset,
            self.last_offset + moved,
            epoch,
            data,
            [offset + moved for offset in self.offsets],
            self.keys,
            self.values,
            self.timestamps,
            self.headers,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            is_transactional=self.is_transactional,
            commit=self.commit,
        )


def encode_batch(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamp: int = BASE_TIMESTAMP,
    timestamps: Sequence[int] | None = None,
    headers: Sequence[Headers] | None = None,
    base_offset: int = 0,
    epoch: int = 0,
    deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    commit: bool | None = None,
    codec: str = "none",
) -> StoredBatch:
    """Build a batch of records; ``deltas`` has gaps after compaction."""
    keys = (None,) * len(values) if keys is None else keys
    deltas = range(len(values)) if deltas is None else deltas
    timestamps = (timestamp,) * len(values) if timestamps is None else timestamps
    headers = ((),) * len(values) if headers is None else headers
    first_timestamp = timestamps[0] if timestamps else timestamp
    last_delta = (deltas[-1] if deltas else 0) if last_offset_delta is None else last_offset_delta
    body = b"".join(
        encode_record(Rec(value, key, time - first_timestamp, each), delta)
        for value, key, time, each, delta in zip(values, keys, timestamps, headers, deltas, strict=True)
    )
    attributes = CODECS[codec] | (TRANSACTIONAL if transactional else 0) | (CONTROL if commit is not None else 0)
    covered = (
        _COVERED.pack(
            attributes,
            last_delta,
            first_timestamp,
            max(timestamps, default=timestamp),
            producer_id,
            producer_epoch,
            base_sequence,
            len(values),
        )
        + compress(codec, body)
    )  # fmt: skip
    data = struct.pack(">qiibI", base_offset, len(covered) + 9, epoch, 2, crc(covered)) + covered
    return StoredBatch(
        base_offset,
        base_offset + last_delta,
        epoch,
        data,
        [base_offset + delta for delta in deltas],
        keys,
        values,
        timestamps,
        headers,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=transactional,
        commit=commit,
    )


def encode_marker(producer_id: int, producer_epoch: int, *, commit: bool, timestamp: int) -> StoredBatch:
    """Build the control batch that ends a transaction."""
    return encode_batch(
        (struct.pack(">hi", 0, 0),),
        keys=(struct.pack(">hh", 0, int(commit)),),
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        commit=commit,
    )


def parse_batches(data: bytes | memoryview) -> list[StoredBatch]:
    """Parse the batches of a Produce request.

    Raises:
        ValueError: The bytes are not whole batches with valid checksums.
    """
    data = bytes(data)
    batches = []
    position = 0
    while position < len(data):
        if len(data) - position < HEADER_SIZE:
            raise ValueError("a record batch is incomplete")
        size = 12 + _FRAME.unpack_from(data, position)[1]
        if size < HEADER_SIZE or position + size > len(data):
            raise ValueError("a record batch is incomplete")
        batches.append(_parse_batch(data[position : position + size]))
        position += size
    return batches


def _parse_batch(data: bytes) -> StoredBatch:
    (
        base_offset,
        _,
        epoch,
        magic,
        checksum,
        attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = _HEADER.unpack_from(data)
    if magic != 2 or checksum != crc(data[21:]):
        raise ValueError("a record batch has a wrong magic number or checksum")
    body = _decompress(attributes & 7, data[HEADER_SIZE:])
    offsets, keys, values, timestamps, headers = [], [], [], [], []
    position = 0
    for _ in range(count):
        length, position = _varint(body, position)
        end = position + length
        time, position = _varint(body, position + 1)
        delta, position = _varint(body, position)
        key, position = _sized(body, position)
        value, position = _sized(body, position)
        offsets.append(base_offset + delta)
        keys.append(key)
        values.append(value)
        timestamps.append(max_timestamp if attributes & 8 else base_timestamp + time)
        record_headers, position = _headers(body, position)
        headers.append(record_headers)
        if position != end:
            raise ValueError("a record has bytes after its headers")
    if position != len(body):
        raise ValueError("a record batch has bytes after its records")
    is_control = bool(attributes & CONTROL)
    return StoredBatch(
        base_offset,
        base_offset + last_delta,
        epoch,
        data,
        offsets,
        keys,
        values,
        timestamps,
        headers,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=bool(attributes & TRANSACTIONAL),
        commit=bool(keys[0] and keys[0][3]) if is_control else None,
    )


def _decompress(codec: int, data: bytes) -> bytes:
    match _CODEC_NAMES.get(codec):
        case "none":
            return data
        case "gzip":
            return gzip.decompress(data)
        case "snappy":
            size, shift, position = 0, 0, 0
            while True:
                size |= (data[position] & 0x7F) << shift
                shift += 7
                position += 1
                if not data[position - 1] & 0x80:
                    break
            return bytes(pa.decompress(data, size, "snappy", asbytes=True))
        case None:
            raise ValueError(f"a record batch has the unknown codec {codec}")
        case name:
            with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
                return bytes(stream.read())


def _varint(data: bytes, position: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7


def _sized(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _varint(data, position)
    if size < 0:
        return None, position
    return data[position : position + size], position + size


def _headers(data: bytes, position: int) -> tuple[Headers, int]:
    count, position = _varint(data, position)
    headers = []
    for _ in range(count):
        name, position = _sized(data, position)
        value, position = _sized(data, position)
        assert name is not None
        headers.append((name, value))
    return tuple(headers), position
