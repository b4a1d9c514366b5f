"""Staging: tasks store their encoded record batches until the commit step reads them and sends them to Kafka.

The commit message of a task contains small batches itself. Larger ones are in a file or a topic, and the message has
their location, size and checksum. Readers use only the locations in messages, so failed and late task attempts have no
effect.

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
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from pyspark_kafka_direct.errors import CorruptRecordError, OptionError
from pyspark_kafka_direct.records import EncodedBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from pyspark_kafka_direct.client.system import System


_PREFIX = struct.Struct(">II")
_HEADER = struct.Struct(">iiqH")


class FramesChecksum(NamedTuple):
    """The size of consecutive frames, and the CRC-32 of their first eight bytes, which include each frame's CRC."""

    size: int = 0
    crc: int = 0

    def add(self, frame: bytes | memoryview) -> FramesChecksum:
        """Return the checksum with one more frame."""
        return FramesChecksum(self.size + len(frame), zlib.crc32(frame[: _PREFIX.size], self.crc))


@dataclass(frozen=True, slots=True)
class StagedInline:
    """Record batches of a task, in the commit message itself."""

    data: bytes  # frames
    checksum: FramesChecksum
    records: int


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Record batches of a task, in a file."""

    path: str
    checksum: FramesChecksum
    records: int


@dataclass(frozen=True, slots=True)
class StagedTopicRange:
    """Record batches of a task, in the values of records in a staging topic."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int  # records of other tasks may be in between
    key: bytes  # of the task's records
    checksum: FramesChecksum  # of the values
    records: int  # in the batches


StagedOutput: TypeAlias = StagedInline | StagedFile | StagedTopicRange


class SpillWriter(Protocol):
    """Writes the batches of one task attempt that are too large for its commit message."""

    def write(self, frame: bytes) -> None:
        """Append a frame."""

    def finish(self, checksum: FramesChecksum, records: int) -> StagedOutput:
        """Make all frames readable, and return their location."""

    def abort(self) -> None:
        """Delete the written frames if possible."""


class StagingLocation(Protocol):
    """The location for spilled batches (``stagingLocation``)."""

    def prepare(self) -> str | None:
        """Check on the driver that the location can be used; return the probe for tasks, if there is one."""

    def check(self) -> None:
        """Check in a task that this is the location that the driver uses."""

    def open_spill(self, name: str) -> SpillWriter:
        """Open a writer for a task attempt with a unique name."""

    def read(self, staged: StagedOutput) -> Iterator[tuple[str, EncodedBatch]]:
        """Yield the topics and record batches of a spilled output."""

    def delete(self, staged: Sequence[StagedOutput]) -> None:
        """Delete the spilled batches of these outputs; ``delete_expired`` retries those that cannot be deleted."""

    def delete_expired(self, superseded_runs: Collection[str], system: System) -> int:
        """Delete old spilled batches of killed drivers and failed tasks, and return their number."""


class StagingWriter:
    """Collects the record batches of one task attempt, and spills them above a threshold."""

    def __init__(
        self,
        threshold: int,  # most bytes in the commit message (stagingThreshold)
        open_spill: Callable[[], SpillWriter] | None,  # None without a stagingLocation
    ) -> None:
        self._threshold = threshold
        self._open_spill = open_spill
        self._spill: SpillWriter | None = None
        self._frames: list[bytes] = []
        self._checksum = FramesChecksum()
        self._records = 0

    def add(self, topic: str, batch: EncodedBatch) -> None:
        """Add a record batch; raise ``OptionError`` if it exceeds the threshold and there is no stagingLocation."""
        frame = encode_frame(topic, batch)
        self._checksum = self._checksum.add(frame)
        self._records += batch.records
        if self._spill is None and self._checksum.size > self._threshold:
            self._spill = self._start_spilling()
            for earlier_frame in self._frames:
                self._spill.write(earlier_frame)
            self._frames.clear()
        if self._spill is None:
            self._frames.append(frame)
        else:
            self._spill.write(frame)

    def finish(self) -> StagedOutput:
        """Make all batches readable, and return their location."""
        if self._spill is not None:
            return self._spill.finish(self._checksum, self._records)
        return StagedInline(b"".join(self._frames), self._checksum, self._records)

    def abort(self) -> None:
        """Delete the batches of a failed attempt."""
        self._frames.clear()
        if self._spill is not None:
            self._spill.abort()

    def _start_spilling(self) -> SpillWriter:
        if self._open_spill is None:
            raise OptionError(
                f"A task has more than {self._threshold} bytes of encoded records (stagingThreshold), which "
                "exactly-once delivery retains until the batch is committed. Set stagingLocation to a folder that the "
                "driver and all executors share, or to topic:NAME. Or raise stagingThreshold (all tasks of a batch "
                "share spark.driver.maxResultSize), or write smaller batches with more tasks."
            )
        return self._open_spill()


class StagedBatches:
    """The batches of all tasks, in the order of the tasks; they can be read several times."""

    def __init__(self, staged: Sequence[StagedOutput], location: StagingLocation | None) -> None:
        self._staged = staged
        self._location = location

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(output.records for output in self._staged)

    @property
    def bytes(self) -> int:
        """The size of all frames."""
        return sum(output.checksum.size for output in self._staged)

    def __iter__(self) -> Iterator[tuple[str, EncodedBatch]]:
        """Yield topics and record batches; raise if any is missing, incomplete or damaged."""
        for task, staged in enumerate(self._staged):
            if isinstance(staged, StagedInline):
                yield from decode_frames([staged.data], staged.checksum, f"the message of task {task}")
            elif self._location is None:
                raise OptionError("Tasks staged records in a stagingLocation, but the commit step has none.")
            else:
                yield from self._location.read(staged)

    def delete(self) -> None:
        """Delete the spilled batches."""
        if self._location is not None:
            self._location.delete([output for output in self._staged if not isinstance(output, StagedInline)])


def encode_frame(topic: str, batch: EncodedBatch) -> bytes:
    """Return a record batch as a frame."""
    name = topic.encode()
    header = _HEADER.pack(batch.partition, batch.records, batch.uncompressed_bytes, len(name)) + name
    crc = zlib.crc32(batch.data, zlib.crc32(header))
    return b"".join((_PREFIX.pack(len(header) + len(batch.data), crc), header, batch.data))


def decode_frames(
    chunks: Iterable[bytes | memoryview],
    expected_checksum: FramesChecksum,
    source: str,  # for error messages
) -> Iterator[tuple[str, EncodedBatch]]:
    """Yield topics and record batches from frames in chunks of any size; raise at the first damaged or missing one."""
    actual_checksum, received_bytes = FramesChecksum(), 0
    buffer = bytearray()
    for chunk in chunks:
        received_bytes += len(chunk)
        buffer += chunk
        position = 0
        while (end := _end_of_frame(buffer, position)) is not None:
            frame = memoryview(buffer)[position:end].toreadonly()
            actual_checksum = actual_checksum.add(frame)
            yield _decode_frame(frame, source)
            position = end
        if position:
            buffer = buffer[position:]
        if received_bytes > expected_checksum.size or _declared_size(buffer) > expected_checksum.size:
            break  # a damaged size must not exhaust the memory
    if buffer or actual_checksum != expected_checksum:
        raise CorruptRecordError(
            f"Staged records are incomplete or damaged: {source} has {received_bytes} bytes with CRC "
            f"{actual_checksum.crc:08x}, but {expected_checksum.size} bytes with CRC {expected_checksum.crc:08x} were "
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
