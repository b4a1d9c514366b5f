"""A reference writer of record batches, independent of this package, after Kafka's message format guide."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass, field

import google_crc32c
import pyarrow as pa

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@dataclass(frozen=True)
class Rec:
    """A record: ``delta`` is its offset delta (None: its index), ``time`` its timestamp delta."""

    value: bytes | None = b"v"
    key: bytes | None = None
    time: int = 0
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    delta: int | None = None


@dataclass(frozen=True)
class Batch:
    """A format 2 batch."""

    records: tuple[Rec, ...] = (Rec(),)
    base_offset: int = 0
    codec: str = "none"
    base_timestamp: int = 1_700_000_000_000
    max_timestamp: int = 1_700_000_000_999
    leader_epoch: int = 3
    producer_id: int = -1
    attributes: int = 0  # without the codec
    last_offset_delta: int | None = None
    count: int | None = None
    compressed: bytes | None = field(default=None, repr=False)  # instead of the records, compressed

    def encode(self) -> bytes:
        deltas = [index if record.delta is None else record.delta for index, record in enumerate(self.records)]
        body = b"".join(encode_record(record, delta) for record, delta in zip(self.records, deltas, strict=True))
        compressed = compress(self.codec, body) if self.compressed is None else self.compressed
        last = self.last_offset_delta
        covered = (
            struct.pack(
                ">hiqqqhii",
                self.attributes | CODECS[self.codec],
                (deltas[-1] if deltas else 0) if last is None else last,
                self.base_timestamp,
                self.max_timestamp,
                self.producer_id,
                0 if self.producer_id >= 0 else -1,
                0 if self.producer_id >= 0 else -1,
                len(self.records) if self.count is None else self.count,
            )
            + compressed
        )
        return struct.pack(">qiibI", self.base_offset, len(covered) + 9, self.leader_epoch, 2, crc(covered)) + covered


LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20


def marker(base_offset: int, producer_id: int, *, commit: bool) -> Batch:
    """A control batch that ends a transaction."""
    key = struct.pack(">hh", 0, int(commit))
    return Batch((Rec(key=key, value=struct.pack(">hi", 0, 0)),), base_offset, producer_id=producer_id, attributes=0x30)


def encode_record(record: Rec, delta: int) -> bytes:
    body = b"\0" + varint(record.time) + varint(delta) + sized(record.key) + sized(record.value)
    body += varint(len(record.headers))
    for key, value in record.headers:
        body += sized(key) + sized(value)
    return varint(len(body)) + body


def varint(number: int) -> bytes:
    raw = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def crc(covered: bytes) -> int:
    return int(google_crc32c.value(covered))


def compress(codec: str, plain: bytes) -> bytes:
    match codec:
        case "none":
            return plain
        case "gzip":
            return gzip.compress(plain, 6)
        case "snappy":
            return bytes(pa.compress(plain, "snappy", asbytes=True))
        case _:
            sink = pa.BufferOutputStream()
            with pa.CompressedOutputStream(sink, codec) as stream:
                stream.write(plain)
            return bytes(sink.getvalue())


def xerial(plain: bytes, block: int = 32 * 1024) -> bytes:
    """Snappy in the framing of the Java client."""
    out = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for start in range(0, len(plain), block):
        compressed = compress("snappy", plain[start : start + block])
        out += struct.pack(">i", len(compressed)) + compressed
    return out
