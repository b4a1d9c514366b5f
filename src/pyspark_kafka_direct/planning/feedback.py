"""How measured batches reach the planner of a stream and become a limit for the next one.

Spark tells a planner no durations; a query listener on the driver sees them. Both can see how a finished batch ended:
the listener in the progress report, the planner as the start of what it plans next. So the listener leaves each
measurement under a name made from the batch's end, in a folder both know (``runtime.shared_folder``), and the planner
looks for those of the batches it planned. This file has the names, the text and the decisions; files are read in
``structured`` and written in ``monitor``.

    file:  <sha256 of the end's JSON, 32 hex digits>.json
    text:  {"endedMs":1700000000000,"records":5000,"processingMs":800,"waitingMs":0,"intervalMs":1000}
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.offsets import MAX_OFFSET, partition_offsets_to_json
from pyspark_kafka_direct.planning.backpressure import Gains, PIDRateEstimator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition

DEFAULT_INTERVAL_MS = 1000.0
"""A query without a trigger interval has no batch length to aim at; this is the one it gets."""

_REMEMBERED = 16
_PATIENCE = 8

_NOT_FED = (
    f"backpressure: nothing was measured for {_PATIENCE} batches, so only the first rate limits them; call "
    "pyspark_kafka_direct.enable(spark) with the session that runs the query"
)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One finished batch of one source.

    Attributes:
        ended_ms: When it ended, since 1970.
        records: How many offsets it spanned.
        processing_ms: How long it took, from trigger to commit.
        waiting_ms: How late it began, because the batch before took longer than the interval.
        interval_ms: The trigger's interval.
    """

    ended_ms: float
    records: int
    processing_ms: float
    waiting_ms: float
    interval_ms: float

    @property
    def rate(self) -> float:
        """The records per second that the batch came to."""
        return self.records / max(self.processing_ms, 1) * 1000

    def to_text(self) -> str:
        """Return the text that the planner reads."""
        values = (self.ended_ms, self.records, self.processing_ms, self.waiting_ms, self.interval_ms)
        return json.dumps(dict(zip(_KEYS, values, strict=True)))

    @classmethod
    def from_text(cls, text: str) -> Measurement:
        """Read the text of a measurement.

        Raises:
            ValueError: Not a measurement.
        """
        found = json.loads(text)
        if not isinstance(found, dict) or set(found) != set(_KEYS):
            raise ValueError(f"not a measurement: {text!r}")
        values: list[Any] = [found[key] for key in _KEYS]
        if not all(isinstance(value, int | float) and value >= 0 for value in values) or not values[-1] > 0:
            raise ValueError(f"not a measurement: {text!r}")
        return cls(values[0], int(values[1]), *values[2:])


_KEYS = ("endedMs", "records", "processingMs", "waitingMs", "intervalMs")


def file_name(end: Mapping[TopicPartition, int]) -> str:
    """Return the name of the file for the measurement of the batch with this end."""
    return hashlib.sha256(partition_offsets_to_json(end).encode()).hexdigest()[:32] + ".json"


@dataclass(frozen=True, slots=True)
class Backpressure:
    """The options of backpressure.

    Attributes:
        gains: The controller's settings.
        initial_rate: Records per second until there is a measured rate; ``None`` is no limit.
    """

    gains: Gains
    initial_rate: float | None = None


class MeasuredLimit:
    """Turns measurements into the most offsets of the next batch; not for several threads.

    Args:
        options: The options.
        find: Looks for the measurement of the batch that ended there.
        warn: Tells the user.
    """

    def __init__(
        self,
        options: Backpressure,
        find: Callable[[Mapping[TopicPartition, int]], Measurement | None],
        warn: Callable[[str], None],
    ) -> None:
        self._options = options
        self._find = find
        self._warn = warn
        self._interval_ms = DEFAULT_INTERVAL_MS
        self._rate = options.initial_rate
        self._controller: PIDRateEstimator | None = None
        self._unmeasured: OrderedDict[str, _Ended] = OrderedDict()  # by name, oldest first
        self._allowed: int | None = None
        self._in_vain = 0

    def most(self, start: Mapping[TopicPartition, int]) -> int | None:
        """Return the most offsets of the batch that begins at ``start``; at least 1, ``None`` is no limit.

        What is measured arrives a little after a batch has ended, and Spark may ask for the next one before; then the
        rate known so far holds.
        """
        key = file_name(start)
        if key not in self._unmeasured:
            self._unmeasured[key] = _Ended(dict(start), self._allowed)
            self._in_vain += 1
            if len(self._unmeasured) > _REMEMBERED:
                self._unmeasured.popitem(last=False)
        self._learn()
        if self._in_vain == _PATIENCE and self._controller is None:
            self._warn(_NOT_FED)
        if self._rate is not None:
            self._allowed = int(min(max(self._rate * self._interval_ms / 1000, 1), MAX_OFFSET))
        return self._allowed

    def _learn(self) -> None:
        measured = [
            (key, ended, found)
            for key, ended in self._unmeasured.items()
            if (found := self._find(ended.end)) is not None
        ]
        if not measured:
            return
        for _, ended, found in measured:
            if self._controller is None:
                self._interval_ms = found.interval_ms
                self._controller = PIDRateEstimator(found.interval_ms, self._options.gains)
            rate = self._controller.compute(
                found.ended_ms, ended.read_of(found.records), found.processing_ms, found.waiting_ms
            )
            self._rate = self._rate if rate is None else rate
        # What is older than the newest measured had no records and will not be measured.
        while self._unmeasured.popitem(last=False)[0] != measured[-1][0]:
            pass


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of a batch, and the most offsets it was allowed, beside one for each partition."""

    end: Mapping[TopicPartition, int]
    allowed: int | None

    def read_of(self, offsets: int) -> int:
        """Return how many offsets were read: one that spans more than it was allowed has passed over lost records."""
        return offsets if self.allowed is None else min(offsets, self.allowed + len(self.end))
