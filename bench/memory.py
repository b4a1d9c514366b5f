"""Memory of the Python workers while one task reads a large offset range."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench import spark_peers
from bench.spark_peers import NOOP
from bench.summary import OURS

if TYPE_CHECKING:
    from bench.measure import Sample
    from bench.spark_peers import Spark
    from bench.topics import Topic

_INTERVAL = 0.05  # seconds between looks


@dataclass(frozen=True, slots=True)
class Memory:
    """Peak memory of the largest Python worker.

    Attributes:
        peak_bytes: Largest resident set, as the kernel keeps it where it does (Linux), else the largest one seen.
        range_bytes: Uncompressed values of the range that was read.
    """

    peak_bytes: int
    range_bytes: int
    records: int
    seconds: float


def measure(spark: Spark, topic: Topic) -> Memory:
    """Read a topic of one partition as one task, all columns, and watch the workers; wants a session not used yet."""
    with WorkerWatch() as watch:
        cost: Sample = spark_peers.read(spark, OURS, topic, NOOP)
    return Memory(watch.peak_bytes, topic.total_bytes, topic.records, cost.seconds)


class WorkerWatch:
    """Looks at every PySpark worker below this process for as long as the ``with`` block lasts."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="worker-watch", daemon=True)

    def __enter__(self) -> WorkerWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.look()
        self._stop.set()
        self._thread.join()

    def look(self) -> None:
        """Look once."""
        for process in psutil.Process().children(recursive=True):
            try:
                if any("pyspark" in word for word in process.cmdline()) and "java" not in process.name():
                    self.peak_bytes = max(self.peak_bytes, peak_rss(process))
            except psutil.Error:  # it has ended
                continue

    def _watch(self) -> None:
        while not self._stop.wait(_INTERVAL):
            self.look()


def peak_rss(process: psutil.Process) -> int:
    """Return the largest resident set a process ever had (``VmHWM``), in bytes; the present one outside Linux."""
    try:
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return int(process.memory_info().rss)
