"""Bounds-checked reading of Kafka's primitive types from a broker's bytes.

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

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_INT8 = struct.Struct(">b").unpack_from
_INT16 = struct.Struct(">h").unpack_from
_INT32 = struct.Struct(">i").unpack_from
_INT64 = struct.Struct(">q").unpack_from


class MalformedError(Exception):
    """Bytes end early or declare an impossible length; callers convert it to ``ProtocolError``."""


class BufferReader:
    """A position in a buffer that never reads past its end; slices share the buffer's memory."""

    __slots__ = ("_end", "_view", "position")

    def __init__(self, view: memoryview, position: int = 0, end: int | None = None) -> None:
        self._view = view
        self.position = position
        self._end = len(view) if end is None else end

    @property
    def remaining(self) -> int:
        return self._end - self.position

    def skip(self, size: int) -> int:
        """Advance by ``size`` bytes and return the previous position."""
        start = self.position
        if size < 0 or size > self._end - start:
            raise MalformedError(f"{size} bytes required at byte {start}, but {self._end - start} remain")
        self.position = start + size
        return start

    def int8(self) -> int:
        value: int = _INT8(self._view, self.skip(1))[0]
        return value

    def int16(self) -> int:
        value: int = _INT16(self._view, self.skip(2))[0]
        return value

    def int32(self) -> int:
        value: int = _INT32(self._view, self.skip(4))[0]
        return value

    def int64(self) -> int:
        value: int = _INT64(self._view, self.skip(8))[0]
        return value

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack_from(self._view, self.skip(layout.size))

    def unsigned_varint(self) -> int:
        start = self.position
        try:
            value, end = read_unsigned_varint(self._view, start)
        except IndexError:
            value, end = 0, len(self._view) + 1
        self.skip(end - start)
        return value

    def bytes(self, size: int) -> memoryview:
        """Return the next ``size`` bytes, not copied."""
        start = self.skip(size)
        return self._view[start : start + size]

    def string(self, flexible: bool) -> str:
        """Read STRING or, if ``flexible``, COMPACT_STRING; null is malformed."""
        size = self.unsigned_varint() - 1 if flexible else self.int16()
        if size < 0:
            raise MalformedError(f"a string at byte {self.position} is null")
        try:
            return str(self.bytes(size), "utf-8")
        except UnicodeDecodeError:
            raise MalformedError(f"a string at byte {self.position} is not UTF-8") from None

    def count(self, flexible: bool, min_element_size: int) -> int:
        """Read the element count of ARRAY or COMPACT_ARRAY; null is -1, impossible counts are malformed."""
        # Untrusted input: the caller allocates nothing for a count that the remaining bytes cannot hold.
        count = self.unsigned_varint() - 1 if flexible else self.int32()
        if count < -1 or count * min_element_size > self.remaining:
            raise MalformedError(f"an array of {count} elements at byte {self.position}, {self.remaining} bytes remain")
        return count

    def byte_string(self, flexible: bool) -> memoryview:
        """Read BYTES/RECORDS or their compact forms, not copied; null is empty."""
        size = self.unsigned_varint() - 1 if flexible else self.int32()
        if size == -1:
            return self.bytes(0)
        return self.bytes(size)

    def tags(self, on_tag: Callable[[int, BufferReader], None] | None = None) -> None:
        """Read TAG_BUFFER; calls ``on_tag`` with each tag and a reader of its bytes."""
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            size = self.unsigned_varint()
            start = self.skip(size)
            if on_tag is not None:
                on_tag(tag, BufferReader(self._view, start, start + size))


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
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
