"""Watching a query: what it has read, how far it is behind, how long its batches take."""

from __future__ import annotations

import ast
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

    from _replay import Replay
    from pyspark_kafka_direct.monitor import Monitor

_LOOK_S = 0.25
_ROW_S = 2.0
_BAR = 20


class Sample(NamedTuple):
    """A look: seconds since the beginning, and records behind."""

    seconds: float
    behind: int


class Batch(NamedTuple):
    """A micro-batch: when it ended, how long it took, and its records."""

    seconds: float
    duration: float
    records: int


class Meter:
    """Shows a replay and the query that reads it: a row now and then, on a terminal with one below that is alive.

    Args:
        replay: What is written.
        monitor: Knows what is read.
    """

    header = "    time    written       read     behind   in time  batch    took  records/s  open windows"

    def __init__(self, replay: Replay, monitor: Monitor) -> None:
        self.samples: list[Sample] = []
        self.batches: list[Batch] = []
        self.stops: list[tuple[float, float]] = []
        self.read = 0
        self.open_windows = 0
        self._replay = replay
        self._monitor = monitor
        self._began, self._began_clock = time.monotonic(), time.time()
        self._next_row = 0.0
        self._stopped_at = 0.0
        self._most = 1
        self._dropped: dict[tuple[str, int], int] = {}

    @property
    def dropped(self) -> int:
        """Records that came after their window was written."""
        return sum(self._dropped.values())

    def watch(self, query: StreamingQuery | None, done: Callable[[], bool], patience: float) -> None:
        """Show what happens until it is done.

        Args:
            query: ``None`` while none runs.
            done: Is asked after each look.
            patience: Seconds.

        Raises:
            TimeoutError: It took longer.
            RuntimeError: The query ended by itself.
        """
        deadline = time.monotonic() + patience
        while True:
            self._look(query)
            if done():
                self._look(query, last_look=True)
                return
            if query is not None and not query.isActive:
                raise RuntimeError("the query ended by itself") from query.exception()
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {patience:.0f} s {self.read:,} of {self._replay.written:,} records are read")
            time.sleep(_LOOK_S)

    def stopped(self) -> None:
        """Note that the query does not run from now on."""
        self._stopped_at = self._now()

    def resumed(self) -> None:
        """Note that the query runs again."""
        self.stops.append((self._stopped_at, self._now()))

    def keep(self, query: StreamingQuery) -> None:
        """Remember the batches of a query that has ended."""
        for progress in query.recentProgress:
            if "addBatch" not in progress["durationMs"]:
                continue  # nothing was there to do
            began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
            duration = progress["durationMs"]["triggerExecution"] / 1000
            self.batches.append(Batch(began + duration - self._began_clock, duration, progress["numInputRows"]))
            for state in progress["stateOperators"]:
                self._dropped[str(progress["runId"]), progress["batchId"]] = state["numRowsDroppedByWatermark"]

    def _look(self, query: StreamingQuery | None, last_look: bool = False) -> None:
        written = self._replay.written
        batch, took, rate, late = "-", "-", "-", "-"
        progress = None if query is None else query.lastProgress
        if query is not None and progress is not None:
            # Spark before 4.2 writes them as Python does and not as JSON; this reads both.
            ends = [ast.literal_eval(source["endOffset"]) for source in progress["sources"]]
            self.read = sum(offset for end in ends for partitions in end.values() for offset in partitions.values())
            self.open_windows = sum(state["numRowsTotal"] for state in progress["stateOperators"])
            seconds = progress["batchDuration"] / 1000
            batch, took = f"{progress['batchId']}", f"{seconds:.1f} s"
            rate = f"{progress['numInputRows'] / max(seconds, 0.001):,.0f}"
            late = self._seconds_behind(query)
        behind = max(written - self.read, 0)
        now = self._now()
        self.samples.append(Sample(now, behind))
        self._most = max(self._most, behind)
        bar = "█" * round(_BAR * behind / self._most)
        row = (
            f"{now:6.1f} s {written:10,} {self.read:10,} {behind:10,} {late:>9} {batch:>6} {took:>7} {rate:>10}"
            f" {self.open_windows:13,}  {bar:<{_BAR}}"
        )
        due = last_look or now >= self._next_row
        if due:
            self._next_row = now + _ROW_S
        if sys.stdout.isatty():
            print(f"\r      {row}", end="\n" if due else "", flush=True)
        elif due:
            print(f"      {row.rstrip()}", flush=True)

    def _seconds_behind(self, query: StreamingQuery) -> str:
        lag = self._monitor.lag(query)
        if lag is None or lag.run_id != str(query.runId):
            return "-"
        seconds = lag.sources[0].max_seconds_behind
        return "-" if seconds is None else f"{seconds:.1f} s"

    def _now(self) -> float:
        return time.monotonic() - self._began
