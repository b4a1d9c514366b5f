"""Record batches as bytes to be kept for a while: how staged ones travel in messages, lie in files, and in a topic.

A frame is one record batch, with what is known of it beside its bytes. All numbers are big-endian:

    UINT32 size of what follows
    UINT32 CRC-32 (of zlib) of what follows
    INT32  partition
    INT32  number of records
    INT64  bytes of the records before compression
    UINT16 length of the topic's name, and the name
    the record batch

Frames follow one another. Whoever keeps them also keeps their whole size, and the CRC-32 over the first eight bytes of
each, which stand for the rest: so nothing is lost at the end, and every byte is looked at once.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.errors import CorruptRecordError
from pyspark_kafka_direct.records import EncodedBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PREFIX = struct.Struct(">II")
_HEAD = struct.Struct(">iiqH")


class Sum(NamedTuple):
    """What tells whether frames are complete.

    Attributes:
        size: How many bytes they take.
        crc: The CRC-32 of their first eight bytes, of one frame after the other.
    """

    size: int = 0
    crc: int = 0

    def add(self, framed: bytes | memoryview) -> Sum:
        """Return the sum with one more frame behind the others."""
        return Sum(self.size + len(framed), zlib.crc32(framed[: _PREFIX.size], self.crc))


def frame(topic: str, batch: EncodedBatch) -> bytes:
    """Return a record batch as a frame."""
    name = topic.encode()
    head = _HEAD.pack(batch.partition, batch.records, batch.raw_bytes, len(name)) + name
    crc = zlib.crc32(batch.data, zlib.crc32(head))
    return b"".join((_PREFIX.pack(len(head) + len(batch.data), crc), head, batch.data))


def frames(chunks: Iterable[bytes | memoryview], wanted: Sum, where: str) -> Iterator[tuple[str, EncodedBatch]]:
    """Read frames from bytes that come in pieces of any size.

    Args:
        chunks: The pieces, in order.
        wanted: What all of them together must be.
        where: Where they come from, for errors.

    Yields:
        Topic and record batch.

    Raises:
        CorruptRecordError: They are damaged or incomplete; batches before the damage were handed out.
    """
    seen, size = Sum(), 0
    waiting = bytearray()
    for chunk in chunks:
        size += len(chunk)
        waiting += chunk
        position = 0
        while (end := _end_of_frame(waiting, position)) is not None:
            framed = memoryview(waiting)[position:end].toreadonly()
            seen = seen.add(framed)
            yield _parse(framed, where)
            position = end
        if position:
            waiting = waiting[position:]
        if size > wanted.size or _claimed(waiting) > wanted.size:
            break  # damage must not fill the memory
    if waiting or seen != wanted:
        raise CorruptRecordError(
            f"Staged records are incomplete or damaged: {where} has {size} bytes with CRC {seen.crc:08x}, and "
            f"{wanted.size} with CRC {wanted.crc:08x} were written."
        )


def _end_of_frame(data: bytearray, position: int) -> int | None:
    if len(data) - position < _PREFIX.size:
        return None
    end = position + _PREFIX.size + int(_PREFIX.unpack_from(data, position)[0])
    return end if end <= len(data) else None


def _claimed(data: bytearray) -> int:
    return 0 if len(data) < _PREFIX.size else int(_PREFIX.unpack_from(data)[0])


def _parse(data: memoryview, where: str) -> tuple[str, EncodedBatch]:
    _, crc = _PREFIX.unpack_from(data)
    content = data[_PREFIX.size :]
    if zlib.crc32(content) != crc or len(content) < _HEAD.size:
        raise CorruptRecordError(f"A staged record batch is damaged, in {where}: its checksum is wrong.")
    partition, records, raw_bytes, length = _HEAD.unpack_from(content)
    start = _HEAD.size + length
    topic = bytes(content[_HEAD.size : start]).decode()
    return topic, EncodedBatch(partition, records, raw_bytes, bytearray(content[start:]))
