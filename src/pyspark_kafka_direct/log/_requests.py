"""What is waited for in a log, and when it is there.

There are two kinds of waiting. Who wants to read *to the end* waits for the end that the log has after they asked: all
who asked before it is looked up wait for the same one, and who asks later waits for the next. Who wants to read *past*
offsets has said what to wait for.

The end is looked up for somebody only when all that they sent before is settled, so that it lies behind their records.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from pyspark_kafka_direct.log._future import LogFuture
    from pyspark_kafka_direct.offsets import TopicPartition

    Offsets: TypeAlias = Mapping[TopicPartition, int]
    """The next offset to read of each partition."""


@dataclass(frozen=True, slots=True, eq=False)
class _ToEnd:
    waiter: LogFuture
    sent: int


@dataclass(frozen=True, slots=True, eq=False)
class _Past:
    waiter: LogFuture
    offsets: Offsets


class Requests:
    """Who waits, and for what. They ask from any thread; the thread that reads does the rest.

    Attributes:
        ends: The ends that those who are counted wait for; ``None`` while they are to be looked up.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: list[_ToEnd] = []
        self._counted: list[_ToEnd] = []
        self._past: list[_Past] = []
        self.ends: Offsets | None = None

    def to_end(self, waiter: LogFuture, sent: int = 0) -> None:
        """Take a waiter for the end of the log.

        Args:
            waiter: Who waits.
            sent: How many records had been sent before; these have to be settled first.
        """
        with self._lock:
            self._asked.append(_ToEnd(waiter, sent))

    def past(self, waiter: LogFuture, offsets: Offsets) -> None:
        """Take a waiter for offsets: the next ones to read have to be these, or later ones."""
        with self._lock:
            self._past.append(_Past(waiter, dict(offsets)))

    def forget(self, waiter: LogFuture) -> None:
        """Drop one who waits no longer."""
        with self._lock:
            self._asked = [each for each in self._asked if each.waiter is not waiter]
            self._counted = [each for each in self._counted if each.waiter is not waiter]
            self._past = [each for each in self._past if each.waiter is not waiter]

    @property
    def waiting(self) -> bool:
        """Whether anybody waits."""
        return bool(self._asked or self._counted or self._past)

    def may_be_counted(self, settled: int) -> bool:
        """Tell whether there are some who could be counted now that so many records are settled."""
        with self._lock:
            return any(each.sent <= settled for each in self._asked)

    def count(self, settled: int) -> bool:
        """Count those who wait for an end that is to be looked up; tell whether there are any.

        Nobody joins those whose end is known.

        Args:
            settled: Of how many of the records that were sent, from the first one on, it is known what became of them.
        """
        with self._lock:
            if self.ends is not None:
                return False
            self._counted += [each for each in self._asked if each.sent <= settled]
            self._asked = [each for each in self._asked if each.sent > settled]
            return bool(self._counted)

    def behind(self, positions: Offsets) -> dict[TopicPartition, int]:
        """Return what is still waited for: the next offset to read of each partition that is not read so far."""
        with self._lock:
            targets = [each.offsets for each in self._past]
        targets += [] if self.ends is None else [self.ends]
        missing: dict[TopicPartition, int] = {}
        for offsets in targets:
            for partition, offset in offsets.items():
                if positions.get(partition, 0) < offset:
                    missing[partition] = max(offset, missing.get(partition, offset))
        return missing

    def reached(self, positions: Offsets) -> list[LogFuture]:
        """Take out those who have what they wait for, in the order in which they asked."""
        with self._lock:
            found: list[LogFuture] = []
            if self.ends is not None and are_there(self.ends, positions):
                found += [each.waiter for each in self._counted]
                self._counted, self.ends = [], None
            found += [each.waiter for each in self._past if are_there(each.offsets, positions)]
            self._past = [each for each in self._past if not are_there(each.offsets, positions)]
            return found

    def failed(self) -> list[LogFuture]:
        """Take out those whom a failure concerns: the counted ones, and those who wait for offsets."""
        with self._lock:
            found = [each.waiter for each in self._counted]
            self._counted, self.ends = [], None
            found += [each.waiter for each in self._past]
            self._past = []
            return found

    def all(self) -> list[LogFuture]:
        """Take out everybody."""
        found = self.failed()
        with self._lock:
            found += [each.waiter for each in self._asked]
            self._asked = []
            return found


class Sends:
    """Numbers what is sent, and knows up to where all of it is settled: written, or failed.

    For several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent = 0
        self._under_way: OrderedDict[int, None] = OrderedDict()  # the first of a dict is not found as quickly

    @property
    def sent(self) -> int:
        """How many records were sent."""
        return self._sent

    @property
    def settled(self) -> int:
        """Of how many records, from the first one on, it is known what became of them."""
        with self._lock:
            return next(iter(self._under_way), self._sent)

    def send(
        self,
        receipt: Future[Any],
        told: Callable[[int], None],
        before: Callable[[Future[Any]], None] | None = None,
    ) -> None:
        """Count a record as sent until its receipt is there.

        Args:
            receipt: The receipt.
            told: Called then, if that changes how many are settled, with that number.
            before: Called with the receipt before the record counts as settled, so that nobody who reads to the end
                goes on before the sender was told. Two callbacks of the receipt would not hold this order: one that
                is added to a finished future runs at once, in the thread that adds it.
        """
        with self._lock:
            number = self._sent
            self._sent += 1
            self._under_way[number] = None

        def settle(done: Future[Any]) -> None:
            try:
                if before is not None:
                    before(done)
            finally:
                with self._lock:
                    first = next(iter(self._under_way)) == number
                    del self._under_way[number]
                    settled = next(iter(self._under_way), self._sent)
                if first:
                    told(settled)

        receipt.add_done_callback(settle)


def cut_back(before: Offsets, now: Offsets) -> dict[TopicPartition, int]:
    """Return the partitions whose ends went back, with these ends. Only a log that was cut back does that."""
    return {partition: now[partition] for partition in now if now[partition] < before.get(partition, 0)}


def are_there(offsets: Offsets, positions: Offsets) -> bool:
    """Tell whether everything before some offsets was read."""
    return all(positions.get(partition, 0) >= offset for partition, offset in offsets.items())
