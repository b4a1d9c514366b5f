"""The simulated world: a clock, an event heap, and tasks under a baton.

A task is a greenlet that runs the package's code. One task runs at a time. At every call of its system it may hand the
baton to another ready task, which the seed chooses. Brokers and the network are not tasks but callbacks of the event
heap: they run when their time has come and every ready task waits.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from greenlet import GreenletExit, getcurrent, greenlet
from tests.simulation.errors import DeadlockError, LivelockError, ProcessKilled
from tests.simulation.storms import Storms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.simulation.process import SimulatedProcess

MAX_CALLS = 1_000_000
"""Of all systems in one history, by default."""
MAX_SECONDS = 7 * 24 * 3600.0
"""Of simulated time in one history."""
_CALL_SECONDS = 1e-6  # a call takes some time, or loops until a deadline would never end
_START = 1000.0


class Task:
    """One simulated thread."""

    __slots__ = ("greenlet", "name", "number", "process", "stall", "wait_number", "waits_for", "woken")

    def __init__(self, number: int, name: str, process: SimulatedProcess, run: Callable[[], None], hub: greenlet):
        self.number = number
        self.name = name
        self.process = process
        self.greenlet = greenlet(run, hub)
        self.waits_for: str | None = None  # None while it is ready or runs
        self.wait_number = 0  # of its current wait, so that timers of earlier ones are ignored
        self.woken = False  # whether the last wait ended before its time was up
        self.stall: tuple[int, float] | None = None  # after how many calls it is preempted, and for how many seconds


class World:
    """Everything that a history consists of, derived from one seed."""

    def __init__(self, seed: int | str, *, codec: Literal["tables", "kio"] = "tables", max_calls: int = MAX_CALLS):
        self.seed = seed
        self.codec = codec
        self.now = _START
        self.random = random.Random(f"{seed}/schedule")  # seeding by a string does not depend on PYTHONHASHSEED
        self.trace_lines: list[tuple[Any, ...]] = []
        self.coverage: Counter[tuple[str, str, str]] = Counter()  # by fault, request and outcome of the operation
        self.request_count = 0
        self.storms = Storms()
        self.calls = 0
        self.tasks: list[Task] = []
        self.processes: list[SimulatedProcess] = []
        self.errors: list[tuple[Task, BaseException]] = []  # that ended tasks
        self._max_calls = max_calls
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._event_number = 0
        self._ready: list[Task] = []
        self._hub = getcurrent()
        self._current: Task | None = None
        # In progress: the process, and the faults.
        self._operations: dict[int, tuple[SimulatedProcess | None, set[tuple[str, str]]]] = {}
        self._operation_count = 0

    # Randomness, time and trace.

    def rng(self, name: str) -> random.Random:
        """Return a generator of its own, so that one component's draws do not move another's."""
        return random.Random(f"{self.seed}/{name}")

    def at(self, time: float, callback: Callable[..., object], *args: Any) -> None:
        self._event_number += 1
        due = time if time > self.now else self.now
        heapq.heappush(self._events, (due, self._event_number, callback, args))

    def after(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        self.at(self.now + seconds, callback, *args)

    def trace(self, kind: str, *facts: Any) -> None:
        self.trace_lines.append((round(self.now - _START, 6), kind, *facts))

    # Coverage.

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Count the faults that happen within an operation of a scenario under its outcome."""
        number = self.start_operation(None if self._current is None else self._current.process)
        outcome = "failed"
        try:
            yield
            outcome = "completed"
        finally:
            self.end_operation(number, outcome)

    def start_operation(self, process: SimulatedProcess | None) -> int:
        """Start an operation, to which the faults of the requests that its process sends belong; return its number.

        It fails if its process dies.
        """
        self._operation_count += 1
        self._operations[self._operation_count] = (process, set())
        return self._operation_count

    def end_operation(self, number: int, outcome: str) -> None:
        """End an operation; has no effect if it has ended, as its process died."""
        _, faults = self._operations.pop(number, (None, set()))
        for fault, request in sorted(faults):
            self.coverage[fault, request, outcome] += 1

    def record_fault(self, fault: str, request: str, sender: SimulatedProcess | None = None) -> None:
        """Record that a fault happened to a request of a process, or to the cluster."""
        found = False
        # An operation of no process restarts a process that dies.
        is_crash = fault.startswith("crash")
        for process, faults in self._operations.values():
            if sender is None or process is sender or (process is None and not is_crash):
                faults.add((fault, request))
                found = True
        if not found:
            self.coverage[fault, request, "outside an operation"] += 1

    # Tasks.

    @property
    def current(self) -> Task:
        assert self._current is not None, "only a task can wait"
        return self._current

    def start(self, process: SimulatedProcess, name: str, run: Callable[[], None]) -> Task:
        """Start a task; its exception is recorded in ``errors``."""

        def body() -> None:
            try:
                run()
            except ProcessKilled:
                pass
            except BaseException as error:
                self.errors.append((task, error))

        task = Task(len(self.tasks), name, process, body, self._hub)
        self.tasks.append(task)
        self._ready.append(task)
        return task

    def adopt_caller(self, process: SimulatedProcess) -> None:
        """Make the caller a task of a process, so that it may wait; the scheduler gets another greenlet."""
        assert self._current is None, "the caller is a task already"
        caller = getcurrent()
        task = Task(len(self.tasks), "caller", process, _nothing, caller)
        task.greenlet = caller
        self.tasks.append(task)
        self._current = task

        def serve() -> None:
            try:
                self.run([task])
            finally:
                self._current = task  # an error is raised where the caller waits

        self._hub = greenlet(serve, caller)

    def run(self, until: Sequence[Task] | None = None, *, seconds: float = MAX_SECONDS) -> None:
        """Run until the given tasks have ended; with none, until all have ended.

        Raises:
            DeadlockError: All tasks wait and no event is due.
            LivelockError: The simulated time is over, or there were too many calls.
        """
        assert getcurrent() is self._hub, "the world is run by the scheduler, not by a task"
        end = self.now + seconds
        tasks = self.tasks if until is None else until
        ended = 0  # of them, in a row from the first one: what has ended is not asked again
        while True:
            while ended < len(tasks) and tasks[ended].greenlet.dead:
                ended += 1
            if ended == len(tasks):
                return
            if self._ready:
                # Events that are due come first in one case of two, so that a busy task cannot starve the network.
                if self._events and self._events[0][0] <= self.now and self.random.random() < 0.5:
                    self._run_event()
                else:
                    self._switch_to_ready()
            elif self._events:
                if self._events[0][0] > end:
                    raise LivelockError(
                        f"the history takes more than {seconds:.0f} simulated seconds\n{self.describe()}"
                    )
                self._run_event()
            elif livelocks := [error for _, error in self.errors if isinstance(error, LivelockError)]:
                raise livelocks[0]  # other tasks wait for the one that it ended
            else:
                raise DeadlockError(f"all tasks wait and no event is due\n{self.describe()}")

    def run_for(self, seconds: float) -> None:
        """Run tasks and events for some simulated seconds."""
        end = self.now + seconds
        while self._ready or (self._events and self._events[0][0] <= end):
            if self._ready:
                self._switch_to_ready()
            else:
                self._run_event()
        self.now = max(self.now, end)

    def checkpoint(self) -> None:
        """Count a call of a task's system, and let another task run if the seed says so."""
        task = self._current  # not the property: nothing else is called as often as this method
        assert task is not None, "only a task can wait"
        process = task.process
        if process.dead:
            raise ProcessKilled
        self.calls += 1
        self.now = now = self.now + _CALL_SECONDS
        if self.calls > self._max_calls:
            raise LivelockError(f"the history takes more than {self._max_calls} calls\n{self.describe()}")
        if self._ready or (self._events and self._events[0][0] <= now):
            self._ready.append(task)
            self._hub.switch()
            if process.dead:
                raise ProcessKilled
        if process.paused_until > self.now:
            self._wait_for_resume(task)
        if task.stall is not None:
            self._count_down(task, *task.stall)

    def block(self, waits_for: str, seconds: float | None) -> bool:
        """Let the current task wait; return whether it was woken before its time was up."""
        task = self.current
        task.waits_for = waits_for
        task.woken = False
        task.wait_number += 1
        if seconds is not None:
            self.at(self.now + max(seconds, 0.0), self._time_is_up, task, task.wait_number)
        self._hub.switch()
        if task.process.dead:
            raise ProcessKilled
        if task.process.paused_until > self.now:
            self._wait_for_resume(task)
        return task.woken

    def wake(self, task: Task) -> None:
        """Make a waiting task ready; has no effect on others."""
        if task.waits_for is not None:
            task.waits_for = None
            task.woken = True
            self._ready.append(task)

    def end_tasks_of(self, process: SimulatedProcess) -> None:
        """End all tasks of a dead process, without any effect of their cleanup."""
        for number in [number for number, (owner, _) in self._operations.items() if owner is process]:
            self.end_operation(number, "failed")
        for task in self.tasks:
            if task.process is process and not task.greenlet.dead and task is not self._current:
                if task in self._ready:
                    self._ready.remove(task)
                task.waits_for = None
                if not task.greenlet:  # not started
                    task.greenlet.run = _nothing
                task.greenlet.parent = getcurrent()
                outer, self._current = self._current, task
                try:
                    task.greenlet.throw(ProcessKilled)
                except ProcessKilled:  # of a task that had not started
                    pass
                finally:
                    self._current = outer

    def close(self) -> None:
        """Kill all processes, so that nothing of this world remains."""
        for process in self.processes:
            process.kill()
        self._events.clear()
        if self._hub is not getcurrent() and not self._hub.dead:  # the caller was adopted
            self._hub.throw(GreenletExit)

    def describe(self) -> str:
        """Return what every living task waits for."""
        return "\n".join(
            f"  {task.process.name}/{task.name}: {'ready' if task.waits_for is None else 'waits for ' + task.waits_for}"
            for task in self.tasks
            if not task.greenlet.dead
        )

    def _switch_to_ready(self) -> None:
        ready = self._ready
        task = ready.pop(self.random.randrange(len(ready)) if len(ready) > 1 else 0)
        self._current = task
        task.greenlet.switch()
        self._current = None

    def _run_event(self) -> None:
        time, _, callback, args = heapq.heappop(self._events)
        if time > self.now:
            self.now = time
        callback(*args)

    def _count_down(self, task: Task, calls: int, seconds: float) -> None:
        """Count a call before a stall, or let the task wait."""
        task.stall = (calls - 1, seconds) if calls else None
        if not calls:
            self.trace("stall", task.process.name, task.name, seconds)
            self.block("the end of a stall", seconds)

    def _wait_for_resume(self, task: Task) -> None:
        woken = task.woken
        while task.process.paused_until > self.now:
            task.waits_for = "the end of a pause"
            task.wait_number += 1
            self.at(task.process.paused_until, self._time_is_up, task, task.wait_number)
            self._hub.switch()
            if task.process.dead:
                raise ProcessKilled
        task.woken = woken

    def _time_is_up(self, task: Task, wait_number: int) -> None:
        if task.waits_for is not None and task.wait_number == wait_number:
            task.waits_for = None
            self._ready.append(task)


def _nothing() -> None:
    """The body of a task whose process dies before it starts."""
