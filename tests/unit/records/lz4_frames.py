"""LZ4 frames with any feature, after the specification of the format."""

from __future__ import annotations

import struct

import pyarrow as pa


def raw_lz4(data: bytes) -> bytes:
    return bytes(pa.compress(data, "lz4_raw", asbytes=True))


def lz4_frame(
    data: bytes,
    *,
    linked: bool = False,
    block_checksums: bool = False,
    content_size: bool = False,
    content_checksum: bool = False,
    stored: bool = False,
    block: int = 64 << 10,
) -> bytes:
    """An LZ4 frame with these features, which pyarrow cannot write."""
    flags = 0x40 | (not linked) << 5 | block_checksums << 4 | content_size << 3 | content_checksum << 2
    head = bytes([flags, 0x40]) + (struct.pack("<Q", len(data)) if content_size else b"")
    out = b"\x04\x22\x4d\x18" + head + b"\0"
    for start in range(0, len(data), block):
        block_data = data[start : start + block]
        compressed, stored_flag = (block_data, 1 << 31) if stored else (raw_lz4(block_data), 0)
        out += struct.pack("<I", len(compressed) | stored_flag) + compressed
        out += struct.pack("<I", xxhash32(compressed)) if block_checksums else b""
    out += bytes(4) + (struct.pack("<I", xxhash32(data)) if content_checksum else b"")
    return fix_header_checksum(out)


def xxhash32(data: bytes) -> int:
    """xxHash32 with seed 0, after its specification."""
    prime1, prime2, prime3, prime4, prime5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    mask = 0xFFFFFFFF

    def turn(number: int, by: int) -> int:
        return (number << by | number >> (32 - by)) & mask

    at = 0
    if len(data) >= 16:
        shards = [(prime1 + prime2) & mask, prime2, 0, -prime1 & mask]
        while at + 16 <= len(data):
            for shard in range(4):
                word = int.from_bytes(data[at : at + 4], "little")
                shards[shard] = turn((shards[shard] + word * prime2) & mask, 13) * prime1 & mask
                at += 4
        value = sum(turn(shard, by) for shard, by in zip(shards, (1, 7, 12, 18), strict=True)) & mask
    else:
        value = prime5
    value = (value + len(data)) & mask
    while at + 4 <= len(data):
        value = turn((value + int.from_bytes(data[at : at + 4], "little") * prime3) & mask, 17) * prime4 & mask
        at += 4
    for byte in data[at:]:
        value = turn((value + byte * prime5) & mask, 11) * prime1 & mask
    value = (value ^ value >> 15) * prime2 & mask
    value = (value ^ value >> 13) * prime3 & mask
    return value ^ value >> 16


def fix_header_checksum(frame: bytes) -> bytes:
    """Return the frame with a correct header checksum."""
    at = 14 if frame[4] & 0x08 else 6  # after the size of the content, if it is there
    return frame[:at] + bytes([xxhash32(frame[4:at]) >> 8 & 0xFF]) + frame[at + 1 :]
