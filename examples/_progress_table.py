"""A table of the progress of a query: records read, lag, and batch durations."""

from __future__ import annotations

import ast
import shutil
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

    from _replay import Replay

_SAMPLE_INTERVAL_S = 0.25
_ROW_INTERVAL_S = 2.0
_BAR = 20
_INDENTATION = 6


def _line(text: str) -> str:
    """Return what fits into a line of the terminal: a live row that wraps would fill it."""
    return text[: shutil.get_terminal_size().columns - _INDENTATION - 1] if sys.stdout.isatty() else text


class LagSample(NamedTuple):
    """The lag in records at a time, in seconds since the start."""

    seconds: float
    behind: int


class MeasuredBatch(NamedTuple):
    """A micro-batch: when it ended, its duration in seconds, and its records."""

    seconds: float
    duration: float
    records: int


class ProgressTable:
    """Prints the progress of a replay and of the query that reads it, on a terminal with a live row.

    Args:
        replay: Writes the records.
    """

    def __init__(self, replay: Replay) -> None:
        self.samples: list[LagSample] = []
        self.batches: list[MeasuredBatch] = []
        self.stops: list[tuple[float, float]] = []
        self.read = 0
        self.open_windows = 0
        self._replay = replay
        self._started, self._started_clock = time.monotonic(), time.time()
        self._next_row = 0.0
        self._stopped_at = 0.0
        self._max_behind = 1
        self._dropped: dict[tuple[str, int], int] = {}

    @property
    def header(self) -> str:
        """The names of the columns."""
        return _line("    time    written       read        lag  batch    took  records/s  open windows  lag")

    @property
    def dropped(self) -> int:
        """The number of records that arrived after their window was written."""
        return sum(self._dropped.values())

    def show_until(self, query: StreamingQuery | None, done: Callable[[], bool], timeout: float) -> None:
        """Print the progress until a condition is true.

        Args:
            query: The query; ``None`` while it does not run.
            done: The condition, checked after each sample.
            timeout: Seconds.

        Raises:
            TimeoutError: The condition did not become true in time.
            RuntimeError: The query ended.
        """
        deadline = time.monotonic() + timeout
        while True:
            printed = self._sample(query)
            if done():
                if not printed:
                    self._sample(query, last=True)
                return
            if query is not None and not query.isActive:
                raise RuntimeError("the query ended unexpectedly") from query.exception()
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {timeout:.0f} s {self.read:,} of {self._replay.written:,} records are read")
            time.sleep(_SAMPLE_INTERVAL_S)

    def mark_stopped(self) -> None:
        """Record that the query has stopped."""
        self._stopped_at = self._now()

    def mark_resumed(self) -> None:
        """Record that the query runs again."""
        self.stops.append((self._stopped_at, self._now()))

    def add_batches(self, query: StreamingQuery) -> None:
        """Store the batches of a query that has ended."""
        for progress in query.recentProgress:
            if "addBatch" not in progress["durationMs"]:
                continue  # there were no records
            started = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
            duration = progress["durationMs"]["triggerExecution"] / 1000
            self.batches.append(
                MeasuredBatch(started + duration - self._started_clock, duration, progress["numInputRows"])
            )
            for state in progress["stateOperators"]:
                self._dropped[str(progress["runId"]), progress["batchId"]] = state["numRowsDroppedByWatermark"]

    def _sample(self, query: StreamingQuery | None, *, last: bool = False) -> bool:
        """Measure, and print a row if one is due; return whether it was."""
        written = self._replay.written
        batch, duration, rate = "-", "-", "-"
        progress = None if query is None else query.lastProgress
        if query is not None and progress is not None:
            # Spark before 4.2 formats them as Python literals instead of JSON; this parses both.
            ends = [ast.literal_eval(source["endOffset"]) for source in progress["sources"]]
            self.read = sum(offset for end in ends for partitions in end.values() for offset in partitions.values())
            self.open_windows = sum(state["numRowsTotal"] for state in progress["stateOperators"])
            seconds = progress["batchDuration"] / 1000
            batch, duration = f"{progress['batchId']}", f"{seconds:.1f} s"
            rate = f"{progress['numInputRows'] / max(seconds, 0.001):,.0f}"
        behind = max(written - self.read, 0)
        now = self._now()
        self.samples.append(LagSample(now, behind))
        self._max_behind = max(self._max_behind, behind)
        bar = "█" * round(_BAR * behind / self._max_behind)
        row = (
            f"{now:6.1f} s {written:10,} {self.read:10,} {behind:10,} {batch:>6} {duration:>7} "
            f"{rate:>10} {self.open_windows:13,}  {bar:<{_BAR}}"
        )
        due = last or now >= self._next_row
        if due:
            self._next_row = now + _ROW_INTERVAL_S
        if sys.stdout.isatty():
            print(f"\r      {_line(row)}", end="\n" if due else "", flush=True)
        elif due:
            print(f"      {row.rstrip()}", flush=True)
        return due

    def _now(self) -> float:
        return time.monotonic() - self._started
