"""Reads staged files ahead of their use, several ranges at once, because one stream of an object store is slow."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.producer.staged_frames import StagedFile

_RANGE_BYTES: Final = 8 << 20
_RANGES: Final = 8  # in memory
_THREAD_NAME: Final = "pyspark-kafka-direct-staging"


class _Range(NamedTuple):
    path: str
    offset: int
    size: int


class ReadAhead:
    """Reads files in a given order."""

    def __init__(self, files: Any, staged: Sequence[StagedFile], system: System, timeout: float) -> None:
        self._files = files
        self._system = system
        self._timeout = timeout
        self._pending = deque(
            _Range(file.path, offset, min(_RANGE_BYTES, file.size - offset))
            for file in staged
            for offset in range(0, file.size, _RANGE_BYTES)
        )
        self._reads: deque[tuple[_Range, Future[bytes]]] = deque()
        self._start_reads()

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of the next file, which has this path; raise ``OSError`` if it cannot be read in time."""
        while self._reads and self._reads[0][0].path == path:
            future = self._reads[0][1]
            self._system.wait_for_future(future, self._timeout)
            if not future.done():
                raise TimeoutError(f"no response within {self._timeout:g} s (kafka.delivery.timeout.ms)")
            chunk = future.result()
            self._reads.popleft()
            self._start_reads()
            yield chunk

    def _start_reads(self) -> None:
        while self._pending and len(self._reads) < _RANGES:
            part, future = self._pending.popleft(), Future[bytes]()
            self._reads.append((part, future))
            self._system.start_thread(partial(self._read, part, future), _THREAD_NAME)

    def _read(self, part: _Range, future: Future[bytes]) -> None:
        try:
            with self._files.open_input_file(part.path) as source:
                future.set_result(source.read_at(part.size, part.offset))
        except BaseException as error:
            future.set_exception(error)
