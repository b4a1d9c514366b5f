"""What the logs of a history report to Python's logging: each report needs a reason in the history."""

from __future__ import annotations

import logging
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit
from tests.simulation.errors import ProcessKilled

from pyspark_kafka_direct.errors import TopicNotFoundError, TopicRecreatedError, TruncatedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scenarios.shared_log_checks import TopicTruth
    from tests.simulation.scheduler import World

_LOGGER = logging.getLogger("pyspark_kafka_direct.log")
_BLOCKED_SECONDS = 9.5  # a transaction that is reported has blocked a read for longer


class CallbackError(Exception):
    """What a callback of a history raises."""


class LogReports(logging.Handler):
    """Collects the reports of all processes, and the violations that they show."""

    def __init__(self, world: World, truth: TopicTruth, *, is_calm: bool) -> None:
        super().__init__(logging.WARNING)
        self._world = world
        self._truth = truth
        self._is_calm = is_calm
        self.violations: list[str] = []
        self.skips: dict[SimulatedProcess, list[tuple[int, int]]] = defaultdict(list)  # resumed at, instead of
        self.resets: dict[SimulatedProcess, list[BaseException]] = defaultdict(list)
        self.errors: dict[SimulatedProcess, list[BaseException]] = defaultdict(list)

    @contextmanager
    def collected(self) -> Iterator[None]:
        _LOGGER.addHandler(self)
        try:
            yield
        finally:
            _LOGGER.removeHandler(self)

    def begin_session(self, process: SimulatedProcess) -> None:
        """Begin with another log of a process."""
        for each in (self.skips, self.resets, self.errors):
            each.pop(process, None)

    def emit(self, record: logging.LogRecord) -> None:
        task = self._world._current
        if task is None or task.process.dead:
            return
        arguments: Any = record.args
        if record.levelno >= logging.ERROR:
            error = record.exc_info[1] if record.exc_info else None
            if not isinstance(error, (CallbackError, ProcessKilled, GreenletExit)):
                self.violations.append(f"an error is logged that no callback raised: {record.getMessage()} {error!r}")
            return
        if "Reading continues" in record.msg:
            self.skips[task.process].append((arguments[2], arguments[3]))
        elif "records that were read are lost" in record.msg:
            self._add_reset(task.process, arguments[0])
        elif "reading failed" in record.msg:
            self._add_error(task.process, arguments[0])
        elif arguments and "is blocked since" in str(arguments[0]):
            if not self._was_blocked():
                what = "a transaction is reported that has not blocked a read for long"
                self.violations.append(f"{what}: {arguments[0]}")
            return
        if self._is_calm:
            self.violations.append(f"a warning without a fault: {record.getMessage()}")

    def _add_reset(self, process: SimulatedProcess, error: BaseException) -> None:
        self.resets[process].append(error)
        count = sum(isinstance(each, TopicRecreatedError) for each in self.resets[process])
        if count >= max(self._truth.generation, 1):
            self.violations.append(f"a recreated topic is reported {count} times, and was recreated less often")
        if isinstance(error, TruncatedError) and not self._truth.was_recreated and self._truth.detects_truncations:
            self._check_truncation(process, error)

    def _check_truncation(self, process: SimulatedProcess, error: TruncatedError) -> None:
        same = [
            each
            for each in self.resets[process]
            if isinstance(each, TruncatedError) and each.partition == error.partition
        ]
        truth = self._truth.environment.oracle.truth((self._truth.topic, error.partition or 0))
        if len(same) > len(truth.epochs) - 1:
            self.violations.append(
                f"partition {error.partition} is reported as truncated {len(same)} times after "
                f"{len(truth.epochs) - 1} elections: {error!r}"
            )

    def _add_error(self, process: SimulatedProcess, error: BaseException) -> None:
        self.errors[process].append(error)
        missing = [
            each
            for each in self.errors[process]
            if isinstance(each, TopicNotFoundError) and not isinstance(each, TopicRecreatedError)
        ]
        deletions = len([name for name, _ in self._truth.environment.oracle.deleted_at if name == self._truth.topic])
        if isinstance(error, TopicNotFoundError) and len(missing) > deletions:
            self.violations.append(f"a missing topic is reported {len(missing)} times, and was deleted {deletions}")

    def _was_blocked(self) -> bool:
        now = self._world.now
        for _, truth in self._truth.partitions(self._truth.generation):
            open_offsets = {
                offset for offset, outcome in truth.outcomes(truth.epoch(), now - 3.0).items() if outcome is None
            }
            if any(
                entry.offset in open_offsets and entry.appended_at <= now - _BLOCKED_SECONDS
                for entry in truth.path(truth.epoch())
            ):
                return True
        return False
