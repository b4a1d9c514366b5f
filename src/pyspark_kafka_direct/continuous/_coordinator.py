"""The driver's side of a run: it waits for the tasks, marks the epochs, and hands over what they add up to.

One thread, one wait. Whatever goes wrong with one task ends the run: the error is raised by ``run``, all connections
are closed, and tasks end themselves when they notice. Whoever called decides what comes next.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Self

from pyspark_kafka_direct.continuous._control import Failure, Mark, Report, Start, from_line, to_line
from pyspark_kafka_direct.continuous._epoch_writer import EPOCH_SETTING, EpochWriter
from pyspark_kafka_direct.continuous._reception import Reception
from pyspark_kafka_direct.errors import RunFailedError, TaskStartError
from pyspark_kafka_direct.planning.epochs import EpochResult, TaskReport, add_up, named, next_mark
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.system import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.continuous._control import Hello, Message
    from pyspark_kafka_direct.continuous._lines import Lines
    from pyspark_kafka_direct.continuous._reception import Arrival
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.epochs import Assignment
    from pyspark_kafka_direct.settings.secret import Secret
    from pyspark_kafka_direct.wire.system import System

START_SETTING: Final = "taskStartTimeout"

_LONGEST_TURN: Final = 60.0  # a signal ends it


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run is to do.

    Attributes:
        run: Its id, which no other run has.
        secret: What only the driver and the tasks of this run know.
        assignment: Who reads what.
        offsets: The first offset to read of every partition.
        epoch: The number of the first epoch.
        shares_numbers: Whether an epoch that cannot be written down yet may leave its number to the next one, and be
            written with it. Else the next one waits: a sink may go by the numbers.
    """

    run: str
    secret: Secret
    assignment: Assignment
    offsets: Mapping[TopicPartition, int]
    epoch: int
    shares_numbers: bool = False


@dataclass(frozen=True, slots=True)
class RunTimes:
    """How long everything may take, in seconds.

    Attributes:
        interval: From one mark to the next one.
        start: Until all tasks have said hello (``taskStartTimeout``).
        report: From a mark until all tasks have reported, and then until the epoch is written (``epochTimeout``).
        hello: What one who connects has for its hello.
    """

    interval: float
    start: float = 60.0
    report: float = 60.0
    hello: float = 10.0


@dataclass(frozen=True, slots=True)
class _Task:
    hello: Hello
    lines: Lines

    def __str__(self) -> str:
        return f"{self.hello.task} ({self.hello.host}, process {self.hello.pid})"


class Coordinator:
    """Leads the tasks of one run. It listens as soon as it is made.

    ``stop`` and ``abort`` may be called from any thread, everything else from one.

    Args:
        plan: What the run is to do.
        times: How long everything may take.
        on_epoch: Is told whole epochs, in a thread of its own, and writes them down. The next one goes on meanwhile;
            where numbers are shared, those that end before it has returned are told as one. Where no offset has moved
            there is nothing to write down, and the next epoch has the same number.
        host: The address of this machine to listen at.
        port: The port; 0 for any that is free.
        system: The world outside.

    Raises:
        OSError: Nobody can listen there.
    """

    def __init__(
        self,
        plan: RunPlan,
        times: RunTimes,
        on_epoch: Callable[[EpochResult], None],
        host: str,
        port: int = 0,
        system: System = SYSTEM,
    ) -> None:
        self._plan = plan
        self._times = times
        self._system = system
        listener = system.listen(host, port)
        self.port: int = listener.getsockname()[1]
        self._reception = Reception(listener, plan.run, plan.secret, len(plan.assignment), times.hello, system)
        try:
            self._signal = system.signal()
        except BaseException:
            self._reception.close()
            raise
        self._tasks: dict[int, _Task] = {}
        self._by_descriptor: dict[int, _Task] = {}
        self._offsets = plan.offsets
        self._epoch = plan.epoch
        self._awaited: set[int] = set()  # tasks that have a mark to report on
        self._reports: list[TaskReport] = []
        self._writer = EpochWriter(on_epoch, self._signal.give, times.report, system)
        self._stopping = False
        self._aborted: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def started(self) -> bool:
        """Whether all tasks have said hello."""
        return len(self._tasks) == len(self._plan.assignment)

    def run(self) -> EpochResult | None:
        """Lead the tasks until ``stop``; return the last epoch, ``None`` where not all tasks had started.

        Raises:
            TaskStartError: Not all tasks came in time.
            RunFailedError: A task failed, was lost, reported late or what cannot be; or came twice, as when Spark tries
                it again. Or an epoch was not written in time.
            BaseException: What ``on_epoch`` raised, or was given to ``abort``.
        """
        try:
            if not self._wait_for_tasks():
                return None
            for number, task in self._tasks.items():
                offsets = {each: self._offsets[each] for each in self._plan.assignment[number]}
                task.lines.send(to_line(Start(self._epoch, offsets)))
            due = self._system.monotonic() + self._times.interval
            written, unwritten = self._offsets, None
            while True:
                result = self._end_epoch(last=self._wait_for_mark(due))
                unwritten = result if unwritten is None else unwritten.and_then(result)
                self._offsets = result.offsets
                if result.last or not (self._plan.shares_numbers and self._writer.is_busy):
                    self._wait_until_written(last=result.last)
                    self._writer.put(unwritten)
                    if result.last:
                        self._wait_until_written(last=True)
                        return unwritten
                    if unwritten.offsets != written:
                        self._epoch += 1  # so does one in which nothing moved
                    written, unwritten = unwritten.offsets, None
                due = next_mark(due, self._times.interval, self._system.monotonic())
        finally:
            self.close()

    def stop(self) -> None:
        """End the run by a last mark, now or as soon as the epoch is whole that is just ending."""
        self._stopping = True
        self._signal.give()

    def abort(self, error: BaseException) -> None:
        """End the run without a last mark: ``run`` raises the error."""
        self._aborted = error
        self._signal.give()

    def close(self) -> None:
        """Hang up, and wait until what was to be written is written, or late: the next run begins with it.

        Tasks that have not ended take it for the death of the driver.
        """
        self._reception.close()
        for task in self._tasks.values():
            task.lines.close()
        self._by_descriptor.clear()
        self._writer.close()
        self._signal.close()

    def _wait_for_tasks(self) -> bool:
        deadline = Deadline.after(self._times.start, START_SETTING, system=self._system)
        while not self.started:
            if self._stopping:
                return False
            expired = deadline.expired  # as long as this process slept, nothing was looked at that came in time
            self._turn(deadline.at)
            if expired and not self.started:
                raise self._missing(deadline)
        return True

    def _wait_for_mark(self, due: float) -> bool:
        """Return when a mark is due: whether it is the last one."""
        while not self._stopping and self._system.monotonic() < due:
            self._turn(due)
        return self._stopping

    def _wait_until_written(self, *, last: bool) -> None:
        while self._writer.is_busy:
            self._turn(self._system.monotonic() + _LONGEST_TURN, ending=last)
        self._writer.check()

    def _end_epoch(self, *, last: bool) -> EpochResult:
        self._reports.clear()
        self._awaited.update(self._tasks)
        mark = to_line(Mark(self._epoch, last))
        for task in self._tasks.values():
            task.lines.send(mark)
        deadline = Deadline.after(self._times.report, EPOCH_SETTING, system=self._system)
        while self._awaited:
            expired = deadline.expired
            self._turn(deadline.at, ending=last)
            if expired and self._awaited:
                raise self._late(deadline)
        return add_up(self._epoch, self._plan.assignment, self._offsets, self._reports, last=last)

    def _turn(self, until: float, *, ending: bool = False) -> None:
        """Wait until something happens, or the time has come, and take what has come."""
        others = (self._reception.next_time(), self._writer.late_at)
        seconds = min([until, *(each for each in others if each is not None)]) - self._system.monotonic()
        ready = self._system.wait_ready(
            [self._signal.fileno(), *self._reception.descriptors(), *self._by_descriptor],
            [descriptor for descriptor, task in self._by_descriptor.items() if task.lines.unsent],
            max(seconds, 0.0),
        )
        self._signal.take()
        if self._aborted is not None:
            raise self._aborted
        self._writer.check()
        for descriptor in ready & self._by_descriptor.keys():
            self._hear(descriptor, ending=ending)
        for arrival in self._reception.turn(ready):
            self._let_in(arrival)

    def _let_in(self, arrival: Arrival) -> None:
        hello, lines = arrival.hello, arrival.lines
        task = _Task(hello, lines)
        if hello.attempt > 0 or hello.task in self._tasks:
            again = f"attempt {hello.attempt}" if hello.attempt else "a second time"
            lines.close()
            raise _failed(f"Spark has started task {task} {again}, so the first one is lost", hello.task)
        if not 0 <= hello.task < len(self._plan.assignment):
            lines.close()
            raise _failed(f"There is no task {task}: the run has {len(self._plan.assignment)}", hello.task)
        self._tasks[hello.task] = task
        self._by_descriptor[lines.fileno()] = task
        lines.send(to_line(arrival.welcome))

    def _hear(self, descriptor: int, *, ending: bool) -> None:
        task = self._by_descriptor[descriptor]
        task.lines.flush()
        try:
            messages = [from_line(line) for line in task.lines.receive()]
        except ValueError as error:
            raise _failed(f"Task {task} sent what is no message ({error})", task.hello.task) from error
        for message in messages:
            self._take(task, message)
        if task.lines.ended:
            if not ending or task.hello.task in self._awaited:
                lost = f"The connection to task {task} was lost: its process has ended, or the network failed"
                raise _failed(lost, task.hello.task)
            del self._by_descriptor[descriptor]  # it has done its work

    def _take(self, task: _Task, message: Message) -> None:
        number = task.hello.task
        match message:
            case Report() as report if self._awaited:
                self._awaited.discard(number)
                self._reports.append(_task_report(number, report))
            case Failure(cause, text):
                raise _failed(f"Task {task} failed with {cause}: {text}", number, cause)
            case _:
                name = type(message).__name__.lower()
                raise _failed(f"Task {task} sent a message of type {name} that nobody waited for", number)

    def _missing(self, deadline: Deadline) -> TaskStartError:
        count = len(self._plan.assignment)
        missing = [number for number in range(count) if number not in self._tasks]
        refused = self._reception.last_refusal
        return TaskStartError(
            f"{len(missing)} of {count} tasks have not started within {self._times.start:g} s (task {named(missing)}). "
            f"All run at the same time, so the query needs {count} free cores: give the application more, lower "
            f"tasksMax, or raise {deadline.setting}. If they have started, the executors cannot reach port {self.port} "
            "of the driver: see controlPort."
            + (f" A connection was refused, the last from {refused}." if refused else "")
        )

    def _late(self, deadline: Deadline) -> RunFailedError:
        late = [self._tasks[number] for number in sorted(self._awaited)]
        error = RunFailedError(
            f"{len(late)} of {len(self._tasks)} tasks have not reported epoch {self._epoch} within "
            f"{self._times.report:g} s: task {named(late)}. The function of the query or its sink hangs, or needs "
            f"longer: raise {deadline.setting}."
        )
        error.task = late[0].hello.task if len(late) == 1 else None
        return error


def _task_report(task: int, report: Report) -> TaskReport:
    return TaskReport(task, **{each.name: getattr(report, each.name) for each in fields(report)})


def _failed(what: str, task: int, cause: str | None = None) -> RunFailedError:
    between = "\n" if what.endswith("\n") else " " if what.endswith(".") else ". "  # a stack ends its last line itself
    error = RunFailedError(f"{what}{between}What was read since the last whole epoch is read again by the next run.")
    error.task, error.cause = task, cause
    return error
