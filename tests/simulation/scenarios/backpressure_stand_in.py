"""A stand-in for the listener that measures batches, and an independent model of the limits that follow."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark import SparkFiles
from tests.simulation.errors import ViolationError
from tests.simulation.scenarios.micro_batch_options import LIMITS

from pyspark_kafka_direct.offsets import partition_offsets_from_json
from pyspark_kafka_direct.planning.backpressure import BatchMeasurement, measurement_file_name
from pyspark_kafka_direct.spark.listener_files import SHARED_FOLDER_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition

_FOLDER_OF_MEMORY: Final = Path("/dev/shm")
_OPTIONS: Final = frozenset(("backpressure", "backpressureInitialRate", "backpressureMinRate"))


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Create the folder that ``enable(spark)`` creates, for the time of a history."""
    root = Path(tempfile.mkdtemp(dir=_FOLDER_OF_MEMORY if _FOLDER_OF_MEMORY.is_dir() else None))
    folder = root / SHARED_FOLDER_NAME
    folder.mkdir()
    before = {name: getattr(SparkFiles, name) for name in ("_root_directory", "_is_running_on_worker")}
    SparkFiles._root_directory, SparkFiles._is_running_on_worker = str(root), True
    try:
        yield folder
    finally:
        for name, value in before.items():
            setattr(SparkFiles, name, value)
        shutil.rmtree(root)


class _Measurement(NamedTuple):
    ended_at: float
    offsets: int
    seconds: float
    waited: float
    interval: float


class BackpressureListener:
    """Measures the batches of all runs, and checks on a healthy cluster that planners follow the measurements.

    The rates follow from the documentation of Spark's PID controller, and share no code with the package.
    """

    def __init__(self, folder: Path, per_second: float) -> None:
        self._folder = folder
        self._per_second = per_second  # how many offsets the query processes
        self._measurements: dict[str, _Measurement] = {}  # by the end of the batch

    def begin_run(self, options: Mapping[str, str]) -> None:
        """Begin a run, whose planner knows nothing of earlier ones."""
        initial = options.get("backpressureInitialRate")
        self._rate = None if initial is None else float(initial)
        self._lowest = float(options["backpressureMinRate"])
        self._has_other_limits = not options.keys().isdisjoint(LIMITS - _OPTIONS)
        self._interval = 1.0  # until the first measurement
        self._last: tuple[float, float] | None = None  # time and rate

    def check_end(self, start: str, end: str, latest: str) -> None:
        """Check the end of a batch."""
        if (measured := self._measurements.get(_key(start))) is not None:
            self._apply(measured)
        starts, ends, logs = (_parse(each) for each in (start, end, latest))
        if self._rate is None or not starts.keys() == ends.keys() == logs.keys():
            return
        limit = int(max(self._rate * self._interval, 1))
        count, lag = (sum(each[tp] - starts[tp] for tp in starts) for each in (ends, logs))
        fewest = 0 if self._has_other_limits else min(limit, lag) - len(starts)
        if count > limit + len(starts) or count < fewest:
            raise ViolationError(f"a batch has {count} of {lag} offsets, and backpressure allows {limit}")

    def measure(self, start: str, end: str, interval: float, now: float) -> None:
        """Write the measurement of a finished batch."""
        starts, ends = _parse(start), _parse(end)
        offsets = sum(max(offset - starts.get(tp, 0), 0) for tp, offset in ends.items())
        if offsets == 0:
            return
        seconds = 0.1 + offsets / self._per_second
        measured = _Measurement(now, offsets, seconds, max(seconds - interval, 0.0), interval)
        self._measurements[_key(end)] = measured
        milliseconds = [1000 * each for each in measured[2:]]
        text = BatchMeasurement(1000 * now, offsets, *milliseconds).to_json()
        (self._folder / measurement_file_name(ends)).write_text(text)

    def _apply(self, measured: _Measurement) -> None:
        rate = measured.offsets / measured.seconds
        if self._last is None:
            self._interval, self._last = measured.interval, (measured.ended_at, rate)
            return
        last_at, last_rate = self._last
        if measured.ended_at > last_at:
            proportional = last_rate - rate
            integral = measured.waited * rate / self._interval
            self._rate = max(last_rate - proportional - 0.2 * integral, self._lowest)  # the default gains
            self._last = measured.ended_at, self._rate


def _key(text: str) -> str:
    return json.dumps(sorted((str(tp), offset) for tp, offset in _parse(text).items()))


def _parse(text: str) -> Mapping[TopicPartition, int]:
    return partition_offsets_from_json(text)
