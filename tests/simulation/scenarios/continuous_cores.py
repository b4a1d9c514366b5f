"""The cores of a cluster, which the applications of a query share with jobs of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tests.simulation.environment import Environment

_RETRY_SECONDS = 0.02


class RunningTask(Protocol):
    @property
    def is_running(self) -> bool:
        """Whether the task has its core."""


class Cores:
    """A task gets a core in the order in which cores become free."""

    def __init__(self, environment: Environment, total: int | None) -> None:
        self.total = total  # None: as many as are needed
        self._environment = environment
        self._running: list[RunningTask] = []

    def acquire(self, task: RunningTask) -> bool:
        """Return whether a core is free; it is used for as long as the task runs."""
        self._running = [each for each in self._running if each.is_running]
        if self.total is not None and len(self._running) >= self.total:
            return False
        self._running.append(task)
        return True

    def run_other_job(self, tasks: int, seconds: float) -> None:
        """Run a job of another application, each of whose tasks takes the next free core for some seconds."""
        for _ in range(tasks):
            self._start_other_task(seconds)

    def _start_other_task(self, seconds: float) -> None:
        world = self._environment.world
        if self._environment.is_quiet:
            return
        task = _OtherTask()
        if self.acquire(task):
            world.trace("another job takes a core", seconds)
            world.after(seconds, task.end)
        else:
            world.after(_RETRY_SECONDS, self._start_other_task, seconds)


class _OtherTask:
    def __init__(self) -> None:
        self.is_running = True

    def end(self) -> None:
        self.is_running = False
