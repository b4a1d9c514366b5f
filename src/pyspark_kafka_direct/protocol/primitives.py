"""Kafka's primitive types, and the one of them that ``struct`` lacks.

Primitive types (Kafka protocol guide, "Protocol Primitive Types"; all integers are big-endian):

    INT8, INT16, INT32, INT64        two's complement
    UNSIGNED_VARINT                  base 128, least significant group first, at most 5 bytes for 32 bits
    UUID                             16 bytes
    STRING                           INT16 length n, n bytes of UTF-8
    COMPACT_STRING                   UNSIGNED_VARINT n + 1, n bytes of UTF-8
    ARRAY                            INT32 count (-1: null), then the elements
    COMPACT_ARRAY                    UNSIGNED_VARINT count + 1 (0: null), then the elements
    BYTES / RECORDS                  INT32 length (-1: null), then the bytes
    COMPACT_BYTES / COMPACT_RECORDS  UNSIGNED_VARINT length + 1 (0: null), then the bytes
    TAG_BUFFER                       UNSIGNED_VARINT count, then per field: UNSIGNED_VARINT tag,
                                     UNSIGNED_VARINT size, size bytes
"""

from __future__ import annotations


class MalformedError(Exception):
    """Bytes end early or declare an impossible length; callers convert it to ``ProtocolError``."""


def read_unsigned_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Read UNSIGNED_VARINT of at most 32 bits; return it and the next position."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise MalformedError(f"a varint at byte {position} is longer than 32 bits")


def encode_unsigned_varint(value: int) -> bytes:
    if 0 <= value <= 0x7F:  # as most lengths
        return value.to_bytes(1, "big")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
