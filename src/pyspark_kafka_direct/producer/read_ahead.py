"""Reads staged files ahead of their use, several ranges at once, because one stream of an object store is slow."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.client.system import start_call

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    from pyarrow.fs import FileSystem

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.producer.staged_frames import StagedFile

_RANGE_BYTES: Final = 8 << 20
_RANGES: Final = 8  # in memory
_THREAD_NAME: Final = "pyspark-kafka-direct-staging"


class _Range(NamedTuple):
    path: str
    offset: int
    size: int


class _Read(NamedTuple):
    part: _Range
    buffer: bytearray
    future: Future[int]  # of the number of bytes in the buffer


class ReadAhead:
    """Reads files in a given order. Reading starts at once, in threads, up to ``_RANGES`` ranges ahead."""

    def __init__(
        self,
        file_system: FileSystem,
        staged: Sequence[StagedFile],
        system: System,
        timeout: float,  # of a range, in seconds
    ) -> None:
        self._file_system = file_system
        self._system = system
        self._timeout = timeout
        self._pending = deque(
            _Range(file.path, offset, min(_RANGE_BYTES, file.size - offset))
            for file in staged
            for offset in range(0, file.size, _RANGE_BYTES)
        )
        self._reads: deque[_Read] = deque()
        self._free_buffers: list[bytearray] = []  # page faults of new ones would cost more than reading local files
        self._start_reads()

    def chunks(self, path: str) -> Iterator[memoryview]:
        """Yield the content of the next non-empty file, which must have this path; a chunk is valid until the next.

        Raises:
            OSError: The file cannot be read, or not in time.
        """
        while self._reads and self._reads[0].part.path == path:
            _, buffer, future = self._reads[0]
            self._system.wait_for_future(future, self._timeout)
            if not future.done():
                raise TimeoutError(f"no response within {self._timeout:g} s (kafka.delivery.timeout.ms)")
            received_bytes = future.result()
            self._reads.popleft()
            self._start_reads()
            yield memoryview(buffer)[:received_bytes]
            self._free_buffers.append(buffer)

    def _start_reads(self) -> None:
        while self._pending and len(self._reads) < _RANGES:
            part = self._pending.popleft()
            buffer = self._free_buffers.pop() if self._free_buffers else bytearray(part.size)
            if len(buffer) < part.size:  # it was made for the end of a file
                buffer = bytearray(part.size)
            future = start_call(self._system, partial(self._read, part, buffer), _THREAD_NAME)
            self._reads.append(_Read(part, buffer, future))

    def _read(self, part: _Range, buffer: bytearray) -> int:
        """Read a range into a buffer; return how many bytes the file has of it."""
        with self._file_system.open_input_file(part.path) as source:
            source.seek(part.offset)
            received_bytes = 0
            with memoryview(buffer)[: part.size] as view:
                while received_bytes < part.size and (count := source.readinto(view[received_bytes:])):
                    received_bytes += count
        return received_bytes
