"""The structure of an LZ4 frame (lz4_Frame_format.md), whose end pyarrow does not report.

::

    magic        uint32  0x184D2204, little-endian like all numbers here
    FLG          byte    bits 7-6 version 01, 5 blocks are independent, 4 block checksums, 3 content size,
                         2 content checksum, 1 reserved, 0 dictionary id
    BD           byte    bits 6-4 the largest block: 4 to 7 for 64 KiB, 256 KiB, 1 MiB, 4 MiB; the others reserved
    content size uint64  if FLG says so
    HC           byte    second byte of the xxHash32 of the bytes between magic and HC
    blocks       uint32 size (top bit: stored as it is), bytes, uint32 checksum if FLG says so
    end mark     uint32  0
    checksum     uint32  of the content, if FLG says so
"""

from __future__ import annotations

from pyspark_kafka_direct.records.scanned_batches import BadRecordError

_MAGIC = 0x184D2204
_STORED = 1 << 31

_VERSION = 1
_BLOCK_CHECKSUMS = 0x10
_CONTENT_SIZE = 0x08
_CONTENT_CHECKSUM = 0x04
_RESERVED_FLAG = 0x02
_DICTIONARY = 0x01

_RESERVED_BLOCK_BITS = 0x8F
_SMALLEST_BLOCK = 4


def check_frame(frame: bytes) -> None:
    """Raise BadRecordError unless the bytes are exactly one frame with a supported header."""
    if len(frame) < 7 or int.from_bytes(frame[:4], "little") != _MAGIC:
        raise _frame_error("the bytes are not an LZ4 frame")
    flags, block = frame[4], frame[5]
    if flags >> 6 != _VERSION or flags & _RESERVED_FLAG or block & _RESERVED_BLOCK_BITS or block >> 4 < _SMALLEST_BLOCK:
        raise _frame_error("the frame's header has an unknown version or reserved bits")
    if flags & _DICTIONARY:
        raise _frame_error("the frame requires a dictionary")
    position = header_size(frame)
    block_checksum_size = 4 if flags & _BLOCK_CHECKSUMS else 0
    while True:
        size = int.from_bytes(frame[position : position + 4], "little")
        if position + 4 > len(frame):
            raise _frame_error("the frame is truncated")
        position += 4
        if size == 0:
            break
        position += (size & ~_STORED) + block_checksum_size
    end = position + (4 if flags & _CONTENT_CHECKSUM else 0)
    if end != len(frame):
        raise _frame_error("the frame is truncated" if end > len(frame) else "there are bytes after the frame")


def fix_header_checksum(frame: bytes) -> bytes:
    """Return the frame with a correct header checksum.

    Kafka's clients before 0.10 computed it over the magic as well, and still do in messages of format 0 (KIP-57).
    pyarrow rejects such frames, and has no option to ignore the checksum.
    """
    if len(frame) < 7 or len(frame) < header_size(frame):
        return frame
    position = header_size(frame) - 1
    checksum = _xxhash32_short(frame[4:position]) >> 8 & 0xFF
    return frame[:position] + bytes([checksum]) + frame[position + 1 :]


def header_size(frame: bytes) -> int:
    """Return the number of bytes up to and including the header's checksum."""
    return 15 if frame[4] & _CONTENT_SIZE else 7


def _xxhash32_short(data: bytes) -> int:
    """Return the xxHash32, seed 0, of fewer than 16 bytes."""
    prime1, prime2, prime3, prime4, prime5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    mask = 0xFFFFFFFF
    value = (prime5 + len(data)) & mask
    words_end = len(data) // 4 * 4
    for position in range(0, words_end, 4):
        value = (value + int.from_bytes(data[position : position + 4], "little") * prime3) & mask
        value = (value << 17 | value >> 15) & mask
        value = value * prime4 & mask
    for byte in data[words_end:]:
        value = (value + byte * prime5) & mask
        value = (value << 11 | value >> 21) & mask
        value = value * prime1 & mask
    value = (value ^ value >> 15) * prime2 & mask
    value = (value ^ value >> 13) * prime3 & mask
    return value ^ value >> 16


def _frame_error(reason: str) -> BadRecordError:
    return BadRecordError(f"the records cannot be decompressed (lz4): {reason}")
