"""Staging: tasks store their encoded record batches until the commit step reads them and sends them to Kafka.

The commit message of a task contains small batches itself. Larger ones are in a file, and the message has its path and
size. Readers use only the files that messages name, so failed and late task attempts have no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.producer.staged_frames import StagedFile, StagedInline, decode_frames, frame_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.producer.staged_frames import StagedOutput
    from pyspark_kafka_direct.producer.staging_location import ReadAhead, StagingFileWriter, StagingLocation
    from pyspark_kafka_direct.records import EncodedBatch


class StagingWriter:
    """Collects the record batches of one task attempt, and spills them above a threshold."""

    def __init__(
        self,
        threshold: int,  # most bytes in the commit message (stagingThreshold)
        open_spill: Callable[[], StagingFileWriter] | None,  # None without a stagingLocation
    ) -> None:
        self._threshold = threshold
        self._open_spill = open_spill
        self._spill: StagingFileWriter | None = None
        self._frames = bytearray()
        self._size = 0
        self._records = 0

    def add(self, topic: str, batch: EncodedBatch) -> None:
        """Add a record batch; raise ``OptionError`` if it exceeds the threshold and there is no stagingLocation."""
        start = frame_start(topic, batch)
        self._size += len(start) + len(batch.data)
        self._records += batch.records
        if self._spill is None and self._size > self._threshold:
            self._spill = self._start_spilling()
            self._spill.write(self._frames)
            self._frames.clear()
        if self._spill is None:
            self._frames += start + batch.data
        else:
            self._spill.write(start)
            self._spill.write(batch.data)

    def finish(self) -> StagedOutput:
        """Make all batches readable, and return their location."""
        if self._spill is not None:
            return self._spill.finish(self._size, self._records)
        return StagedInline(bytes(self._frames), self._records)

    def abort(self) -> None:
        """Delete the batches of a failed attempt."""
        self._frames.clear()
        if self._spill is not None:
            self._spill.abort()

    def _start_spilling(self) -> StagingFileWriter:
        if self._open_spill is None:
            raise OptionError(
                f"A task has more than {self._threshold} bytes of encoded records (stagingThreshold): set "
                "stagingLocation to a folder that the driver and all executors share."
            )
        return self._open_spill()


class StagedBatches:
    """The batches of all tasks, in the order of the tasks; they can be read several times."""

    def __init__(
        self,
        staged: Sequence[StagedOutput],
        location: StagingLocation | None,
        timeout: float = 120.0,  # seconds for each range of a file
        system: System = SYSTEM,
    ) -> None:
        self._system = system
        self._staged = staged
        self._location = location
        self._timeout = timeout
        self._read_ahead: ReadAhead | None = None

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(output.records for output in self._staged)

    @property
    def bytes(self) -> int:
        """The size of all frames."""
        return sum(output.size for output in self._staged)

    def start_reading(self) -> None:
        """Read the first ranges of files, which the next iteration returns."""
        files = [output for output in self._staged if isinstance(output, StagedFile)]
        if files and self._location is not None:
            self._read_ahead = self._location.read_ahead(files, self._timeout, self._system)

    def __iter__(self) -> Iterator[tuple[str, EncodedBatch]]:
        """Yield topics and record batches; raise if any is missing, incomplete or damaged."""
        if self._read_ahead is None:
            self.start_reading()
        read_ahead, self._read_ahead = self._read_ahead, None  # the next iteration reads the files again
        for task, staged in enumerate(self._staged):
            if isinstance(staged, StagedInline):
                yield from decode_frames([staged.data], staged.size, f"the message of task {task}")
            elif self._location is None or read_ahead is None:
                raise OptionError("Tasks staged records in a stagingLocation, but the commit step has none.")
            else:
                yield from self._location.read(staged, read_ahead)

    def delete(self) -> None:
        """Delete the spilled batches."""
        if self._location is not None:
            self._location.delete(self._staged)
