"""Staging: tasks keep their encoded record batches where the commit step finds them, and tell it where by a message.

A message holds the batches themselves while they are small. Beyond that they are in a file, or in a topic, and the
message has the place, the size and a checksum. What a message does not name is never read: so neither an attempt that
failed nor one that came too late matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.writing._frames import Sum, frame, frames

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from pyspark_kafka_direct.records import EncodedBatch
    from pyspark_kafka_direct.wire.system import System


@dataclass(frozen=True, slots=True)
class Inline:
    """Record batches of a task, in the message itself.

    Attributes:
        data: Frames.
        sum: Their size and checksum.
        records: How many records they hold.
    """

    data: bytes
    sum: Sum
    records: int


@dataclass(frozen=True, slots=True)
class InFile:
    """Record batches of a task, in a file.

    Attributes:
        path: Its path within the staging location.
        sum: Its size and checksum.
        records: How many records it holds.
    """

    path: str
    sum: Sum
    records: int


@dataclass(frozen=True, slots=True)
class InTopic:
    """Record batches of a task, as values of records in a staging topic.

    Attributes:
        topic: The topic.
        partition: Its partition.
        from_offset: Offset of the first record.
        until_offset: Offset after the last one. Records of others may lie in between.
        key: The key of the task's records.
        sum: Size and checksum of the values.
        records: How many records the batches hold.
    """

    topic: str
    partition: int
    from_offset: int
    until_offset: int
    key: bytes
    sum: Sum
    records: int


Staged: TypeAlias = Inline | InFile | InTopic


class Spill(Protocol):
    """Where the batches of one task attempt go that are too large for its message."""

    def write(self, data: bytes) -> None:
        """Write a frame behind the others."""

    def finish(self, sum: Sum, records: int) -> Staged:
        """Make sure that all can be read; return where."""

    def abandon(self) -> None:
        """Remove what was written, as far as that is possible."""


class Location(Protocol):
    """A place for spilled batches: ``stagingLocation``."""

    def prepare(self) -> str | None:
        """Check, on the driver, that it can be used; return by what tasks recognise it, if there is such a thing.

        Raises:
            OptionError: It cannot.
        """

    def check(self) -> None:
        """Check, in a task, that it is the place that the driver sees.

        Raises:
            OptionError: It is not.
        """

    def spill(self, name: str) -> Spill:
        """Begin to write.

        Args:
            name: Name of the task attempt, which no other one has.
        """

    def read(self, staged: Staged) -> Iterator[tuple[str, EncodedBatch]]:
        """Read what was spilled.

        Raises:
            KafkaDirectError: It is not there any more, incomplete or damaged.
        """

    def discard(self, staged: Sequence[Staged]) -> None:
        """Remove what was spilled, and nothing else; what cannot be removed is left to a sweep."""

    def sweep(self, superseded: Collection[str], system: System) -> int:
        """Remove what killed drivers and failed tasks have left, by age; return how many files.

        Args:
            superseded: Runs that cannot commit any more.
            system: Has the clock.
        """


class Stager:
    """Takes the record batches of one task attempt.

    Args:
        threshold: Most bytes for the message (``stagingThreshold``).
        spill: Opens the place for more; ``None`` where there is none.
    """

    def __init__(self, threshold: int, spill: Callable[[], Spill] | None) -> None:
        self._threshold = threshold
        self._open = spill
        self._spill: Spill | None = None
        self._waiting: list[bytes] = []
        self._sum = Sum()
        self._records = 0

    def add(self, topic: str, batch: EncodedBatch) -> None:
        """Take a record batch.

        Args:
            topic: Its topic.
            batch: The batch.

        Raises:
            OptionError: There is more than the message may hold, and no other place.
            KafkaDirectError: The other place does not take it.
        """
        data = frame(topic, batch)
        self._sum = self._sum.add(data)
        self._records += batch.records
        if self._spill is None and self._sum.size > self._threshold:
            self._spill = self._begin_to_spill()
            for each in self._waiting:
                self._spill.write(each)
            self._waiting.clear()
        if self._spill is None:
            self._waiting.append(data)
        else:
            self._spill.write(data)

    def finish(self) -> Staged:
        """Return the message; everything that it names can be read."""
        if self._spill is not None:
            return self._spill.finish(self._sum, self._records)
        return Inline(b"".join(self._waiting), self._sum, self._records)

    def abandon(self) -> None:
        """Remove what the attempt has written: it failed."""
        self._waiting.clear()
        if self._spill is not None:
            self._spill.abandon()

    def _begin_to_spill(self) -> Spill:
        if self._open is None:
            raise OptionError(
                f"A task has more than {self._threshold} bytes of encoded records (stagingThreshold), which "
                "exactly-once delivery keeps until the batch is committed. Set stagingLocation to a folder that the "
                "driver and all executors can reach, or to topic:NAME; or raise stagingThreshold (mind "
                "spark.driver.maxResultSize, which all tasks of a batch share), or write smaller batches with more "
                "tasks."
            )
        return self._open()


class StagedBatches:
    """The batches of all tasks, in the order of the tasks; may be read several times.

    Args:
        staged: The tasks' messages, in order.
        location: Where they were spilled.
    """

    def __init__(self, staged: Sequence[Staged], location: Location | None) -> None:
        self._staged = staged
        self._location = location

    @property
    def records(self) -> int:
        """How many records there are."""
        return sum(each.records for each in self._staged)

    @property
    def bytes(self) -> int:
        """How many bytes they take."""
        return sum(each.sum.size for each in self._staged)

    def __iter__(self) -> Iterator[tuple[str, EncodedBatch]]:
        """Read them.

        Raises:
            KafkaDirectError: Some are not there any more, incomplete or damaged.
        """
        for number, each in enumerate(self._staged):
            if isinstance(each, Inline):
                yield from frames([each.data], each.sum, f"the message of task {number}")
            elif self._location is None:
                raise OptionError("Tasks staged records in a stagingLocation, and the commit step has none.")
            else:
                yield from self._location.read(each)

    def discard(self) -> None:
        """Remove what was spilled."""
        if self._location is not None:
            self._location.discard([each for each in self._staged if not isinstance(each, Inline)])
