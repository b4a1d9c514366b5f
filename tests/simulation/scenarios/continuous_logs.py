"""What the drivers of a continuous query log: rejected reports, changed offsets, and restarts."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulation.scenarios.micro_batch_reports import OFFSET_CHANGED

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerError,
    BrokerTimeoutError,
    ProducerFencedError,
    QueryRunError,
    TaskStartTimeoutError,
    TopicNotFoundError,
    TransientBrokerError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.scenarios.continuous_stand_in import ContinuousDriver
    from tests.simulation.scheduler import World

_RESTART: Final = re.compile(
    r"restarts from the last committed epoch in ([\d.]+) s \(restart (\d+) of at most (\d+) within [^)]+ s\): (.*)",
    re.DOTALL,
)
# Warnings in a history without faults. Other programs may connect to the port of a driver, and a producer may be slow.
_JUSTIFIED: Final = ("A connection to the control port", "isolation.level=read_committed does not read past")
_ROUNDING: Final = 0.06  # of the pause in the text
_CANCELLED: Final = "SPARK_JOB_CANCELLED"
# Errors after which a query restarts, as long as it may, but for some subclasses. The last two end the first run.
_RESTARTED: Final = (QueryRunError, TransientBrokerError, BrokerTimeoutError, ProducerFencedError, BrokerError)
_FINAL: Final = (AuthorizationError, TaskStartTimeoutError, TopicNotFoundError)


class _Restart(NamedTuple):
    time: float
    pause: float


class DriverLogs(logging.Handler):
    """Receives the warnings of all drivers of a history."""

    def __init__(
        self, world: World, start_changed: Callable[[str, int, int, int], None], *, is_calm: bool = False
    ) -> None:
        """``is_calm`` says that the history has no faults, so that a warning has no reason."""
        super().__init__(logging.WARNING)
        self._is_calm = is_calm
        self.rejections: list[str] = []  # of reports: the next run hides what was wrong with them
        self.notes: list[str] = []  # broken rules
        self._world = world
        self._start_changed = start_changed
        self._restarts: dict[str, list[_Restart]] = {}  # by driver
        self._with_pending_commits: set[str] = set()  # drivers that may not restart

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if self._is_calm and not message.startswith(_JUSTIFIED):
            self.notes.append(f"a warning without a fault: {message}")
        if "do not add up" in message:
            self.rejections.append(message)
        if (match := OFFSET_CHANGED.search(message)) is not None:
            topic, _, partition = match[1].rpartition("-")
            self._start_changed(topic, int(partition), int(match[2]), int(match[3]))
        if (match := _RESTART.search(message)) is not None:
            self._note_restart(*match.groups())
        elif "does not restart because the commit" in message:
            self._with_pending_commits.add(self._world.current.process.name)

    def job_started(self, driver: str, time: float) -> None:
        """Check that a query has paused before it runs again."""
        last = self._restarts.get(driver, [])[-1:]
        if last and time < last[0].time + last[0].pause - _ROUNDING:
            self.notes.append(f"{driver} announces a pause of {last[0].pause} s, and restarts without it")

    def check_end(self, driver: ContinuousDriver, parameters: Mapping[str, int]) -> None:
        """Check that a query has restarted as often as it may before a failure has ended it."""
        name = driver.process.name
        if driver.query is None or driver.stop_requested or name in self._with_pending_commits:
            return
        may_restart = isinstance(driver.error, _RESTARTED) and not isinstance(driver.error, _FINAL)
        if may_restart and _CANCELLED not in str(driver.error):
            restarts = len(self._restarts.get(name, []))
            if restarts < parameters["maxRestarts"]:
                self.notes.append(
                    f"{name} ends after {restarts} of {parameters['maxRestarts']} restarts: {driver.error!r}"
                )

    def _note_restart(self, pause: str, number: str, limit: str, failure: str) -> None:
        name = self._world.current.process.name
        self._restarts.setdefault(name, []).append(_Restart(self._world.now, float(pause)))
        if int(number) > int(limit):
            self.notes.append(f"{name} restarts for the {number}th time, but may restart {limit} times")
        if _CANCELLED in failure:
            self.notes.append(f"{name} restarts although a user has cancelled its job: {failure}")
