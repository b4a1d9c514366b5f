"""A writer of messages of formats 0 and 1, and of wrappers that compress several."""

from __future__ import annotations

import struct
import zlib

from tests.unit.records.batches import compress

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}


def message(
    offset: int,
    value: bytes | None,
    key: bytes | None = None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = 5,
) -> bytes:
    covered = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for data in (key, value):
        covered += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    return struct.pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered


def wrapper(offset: int, inner: bytes, codec: str, *, magic: int = 1, attributes: int = 0, timestamp: int = 5) -> bytes:
    compressed = compress(codec, inner)
    return message(offset, compressed, magic=magic, attributes=attributes | CODECS[codec], timestamp=timestamp)
