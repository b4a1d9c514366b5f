"""Frames: how tasks store their encoded record batches until they are sent.

Batches are stored as consecutive frames. A frame is one record batch with its metadata, big-endian:

    UINT32 size of the rest of the frame
    UINT32 CRC-32 (zlib) of the rest of the frame up to the end of the record batch's header
    INT32  partition
    INT32  number of records
    INT64  bytes of the records before compression
    UINT16 length of the topic's name, and the name
    the record batch, which has a CRC-32C of its own
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark_kafka_direct.errors import CorruptRecordError
from pyspark_kafka_direct.records import EncodedBatch, is_valid_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark_kafka_direct.records import WritableBytes

_PREFIX = struct.Struct(">II")
_HEADER = struct.Struct(">iiqH")
_BATCH_HEADER_BYTES: Final = 61


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


def frame_start(topic: str, batch: EncodedBatch) -> bytes:
    """Return what a frame has before the record batch."""
    name = topic.encode()
    header = _HEADER.pack(batch.partition, batch.records, batch.uncompressed_bytes, len(name)) + name
    return _PREFIX.pack(len(header) + len(batch.data), _crc(header, batch.data)) + header


def decode_frames(
    chunks: Iterable[bytes | memoryview],
    size: int,  # of all frames
    source: str,  # for error messages
) -> Iterator[tuple[str, EncodedBatch]]:
    """Yield topics and record batches from frames in chunks of any size; raise at the first damaged or missing one.

    The data of batches are copies, because a batch that waits for a slow broker must not retain its whole chunk.
    """
    received_bytes = 0
    partial = bytearray()  # of a frame that ends in a later chunk
    for chunk in chunks:
        received_bytes += len(chunk)
        view, position = memoryview(chunk), 0
        # Complete the frame that an earlier chunk has begun: first its prefix, which has the size, then the rest.
        while partial and position < len(view) and (missing := _missing_bytes(partial)):
            piece = view[position : position + missing]
            partial += piece
            position += len(piece)
        if partial and not _missing_bytes(partial):
            yield _decode_frame(memoryview(partial), source)
            partial = bytearray()
        while (end := _end_of_frame(view, position)) is not None:
            yield _decode_frame(view[position:end], source)
            position = end
        partial += view[position:]
        if received_bytes > size or _missing_bytes(partial) > size:
            break  # a damaged size must not exhaust the memory
    if partial or received_bytes != size:
        raise CorruptRecordError(
            f"Staged records are incomplete or damaged: {source} has {received_bytes} bytes, but {size} bytes were "
            "written."
        )


def _missing_bytes(partial: bytearray) -> int:
    """Return how many bytes of a frame are missing, or of its prefix if that is incomplete."""
    if len(partial) < _PREFIX.size:
        return _PREFIX.size - len(partial)
    return max(0, _PREFIX.size + int(_PREFIX.unpack_from(partial)[0]) - len(partial))


def _end_of_frame(data: memoryview, position: int) -> int | None:
    """Return the position after a frame, or ``None`` if the frame is incomplete."""
    if len(data) - position < _PREFIX.size:
        return None
    end = position + _PREFIX.size + int(_PREFIX.unpack_from(data, position)[0])
    return end if end <= len(data) else None


def _decode_frame(frame: memoryview, source: str) -> tuple[str, EncodedBatch]:
    _, crc = _PREFIX.unpack_from(frame)
    content = frame[_PREFIX.size :]
    if len(content) >= _HEADER.size:
        partition, records, uncompressed_bytes, name_length = _HEADER.unpack_from(content)
        header, batch = content[: _HEADER.size + name_length], content[_HEADER.size + name_length :]
        if _crc(header, batch) == crc and is_valid_batch(batch):
            topic = bytes(header[_HEADER.size :]).decode()
            return topic, EncodedBatch(partition, records, uncompressed_bytes, bytearray(batch))
    raise CorruptRecordError(f"A staged record batch is damaged: its checksum in {source} is wrong.")


def _crc(header: bytes | memoryview, batch: WritableBytes) -> int:
    return zlib.crc32(batch[:_BATCH_HEADER_BYTES], zlib.crc32(header))
