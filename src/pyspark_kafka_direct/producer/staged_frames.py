"""Frames: how tasks store their encoded record batches until they are sent.

Batches are stored as consecutive frames. A frame is one record batch with its metadata, big-endian:

    UINT32 size of the rest of the frame
    UINT32 CRC-32 (zlib) of the rest of the frame
    INT32  partition
    INT32  number of records
    INT64  bytes of the records before compression
    UINT16 length of the topic's name, and the name
    the record batch
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark_kafka_direct.errors import CorruptRecordError
from pyspark_kafka_direct.records import EncodedBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PREFIX = struct.Struct(">II")
_HEADER = struct.Struct(">iiqH")


@dataclass(frozen=True, slots=True)
class StagedInline:
    """Record batches of a task, in the commit message itself."""

    data: bytes  # frames
    records: int

    @property
    def size(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Record batches of a task, in a file."""

    path: str
    size: int  # of the frames
    records: int


StagedOutput: TypeAlias = StagedInline | StagedFile


def encode_frame(topic: str, batch: EncodedBatch) -> bytes:
    """Return a record batch as a frame."""
    name = topic.encode()
    header = _HEADER.pack(batch.partition, batch.records, batch.uncompressed_bytes, len(name)) + name
    crc = zlib.crc32(batch.data, zlib.crc32(header))
    return b"".join((_PREFIX.pack(len(header) + len(batch.data), crc), header, batch.data))


def decode_frames(
    chunks: Iterable[bytes | memoryview],
    size: int,  # of all frames
    source: str,  # for error messages
) -> Iterator[tuple[str, EncodedBatch]]:
    """Yield topics and record batches from frames in chunks of any size; raise at the first damaged or missing one."""
    received_bytes = 0
    buffer = bytearray()
    for chunk in chunks:
        received_bytes += len(chunk)
        buffer += chunk
        position = 0
        while (end := _end_of_frame(buffer, position)) is not None:
            yield _decode_frame(memoryview(buffer)[position:end].toreadonly(), source)
            position = end
        if position:
            buffer = buffer[position:]
        if received_bytes > size or _declared_size(buffer) > size:
            break  # a damaged size must not exhaust the memory
    if buffer or received_bytes != size:
        raise CorruptRecordError(
            f"Staged records are incomplete or damaged: {source} has {received_bytes} bytes, but {size} bytes were "
            "written."
        )


def _end_of_frame(data: bytearray, position: int) -> int | None:
    """Return the position after a frame, or ``None`` if the frame is incomplete."""
    if len(data) - position < _PREFIX.size:
        return None
    end = position + _PREFIX.size + int(_PREFIX.unpack_from(data, position)[0])
    return end if end <= len(data) else None


def _declared_size(data: bytearray) -> int:
    """Return the size in the prefix of the first frame, or 0 if the prefix is incomplete."""
    return 0 if len(data) < _PREFIX.size else int(_PREFIX.unpack_from(data)[0])


def _decode_frame(frame: memoryview, source: str) -> tuple[str, EncodedBatch]:
    _, crc = _PREFIX.unpack_from(frame)
    content = frame[_PREFIX.size :]
    if zlib.crc32(content) != crc or len(content) < _HEADER.size:
        raise CorruptRecordError(f"A staged record batch is damaged: its checksum in {source} is wrong.")
    partition, records, uncompressed_bytes, name_length = _HEADER.unpack_from(content)
    batch_start = _HEADER.size + name_length
    topic = bytes(content[_HEADER.size : batch_start]).decode()
    return topic, EncodedBatch(partition, records, uncompressed_bytes, bytearray(content[batch_start:]))
