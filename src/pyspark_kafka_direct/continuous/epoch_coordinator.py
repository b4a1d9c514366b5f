"""The driver's side of a run: waits for the tasks, requests epochs and merges the reports. Spark: ``EpochCoordinator``.

One thread with one wait. Any failure of a task ends the run: ``run`` raises the error and closes all connections, and
the tasks end because of that. The caller decides whether to restart.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.continuous.continuous_epochs import (
    EpochReport,
    EpochResult,
    abbreviated,
    merge_task_reports,
    next_epoch_request_time,
)
from pyspark_kafka_direct.continuous.control_messages import (
    EpochRequest,
    Heartbeat,
    StartTask,
    TaskFailure,
    TaskReady,
    encode_message,
)
from pyspark_kafka_direct.continuous.handshake import HandshakeServer
from pyspark_kafka_direct.continuous.task_lease import LEASE_MARGIN_SECONDS
from pyspark_kafka_direct.errors import QueryRunError, TaskStartTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.continuous.continuous_epochs import TaskAssignment
    from pyspark_kafka_direct.continuous.control_messages import ControlMessage, TaskHandshake
    from pyspark_kafka_direct.continuous.control_socket import ControlSocket
    from pyspark_kafka_direct.continuous.handshake import AcceptedTask
    from pyspark_kafka_direct.continuous.message_authentication import MessageSession
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.continuous_query import ContinuousSettings
    from pyspark_kafka_direct.options.security_settings import Secret

START_TIMEOUT_OPTION: Final = "taskStartTimeout"
EPOCH_TIMEOUT_OPTION: Final = "epochTimeout"

_MAX_POLL_SECONDS: Final = 60.0  # a signal interrupts the wait
_MIN_CLOSE_SECONDS: Final = 5.0  # also if the driver was suspended until after the deadline


@dataclass(frozen=True, slots=True)
class RunStart:
    """The epoch that the tasks read next; at first, that with which the run begins."""

    assignment: TaskAssignment  # for each task; a task without partitions is idle
    offsets: Mapping[TopicPartition, int]  # the next offset to read of each partition
    epoch: int

    # Where the run ends: the end of its only epoch, which the offset log has already. Empty if there is none.
    end_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    topic_ids: Mapping[TopicPartition, UUID] = field(default_factory=dict)  # that the offsets refer to, if known
    producers: Sequence[ProducerIdAndEpoch] = ()  # of the tasks; empty without transactions


@dataclass(frozen=True, slots=True)
class RunPlan:
    run: str  # unique id
    secret: Secret  # shared by the driver and the tasks of this run
    tasks: int

    # Called when all tasks are ready, so that a driver without free cores fences no other one. Its argument ends the
    # run. ``None`` if there is nothing to read.
    prepare: Callable[[Callable[[], None]], RunStart | None]

    # Whether epochs that complete while a commit is in flight are merged into one. If false, the next epoch waits for
    # the commit because a sink may rely on epoch ids.
    coalesces_epochs: bool = False


@dataclass(frozen=True, slots=True)
class _Task:
    handshake: TaskHandshake
    connection: ControlSocket
    session: MessageSession

    def send(self, message: ControlMessage) -> None:
        self.connection.send(self.session.encode(message))

    def __str__(self) -> str:
        return f"{self.handshake.task} ({self.handshake.host}, process {self.handshake.pid})"


class EpochCoordinator:
    """Listens as soon as it is created. Use it from one thread, except for ``stop`` and ``abort``.

    Order: all tasks connect and run their setups, the run is prepared, each task gets its ``StartTask``, epochs follow.
    """

    def __init__(
        self,
        plan: RunPlan,
        settings: ContinuousSettings,
        on_epoch: Callable[[EpochResult], None],  # commits an epoch; called in the thread of the committer
        host: str,
        system: System = SYSTEM,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._system = system
        listener = system.listen(host, settings.control_port)
        self.port: int = listener.getsockname()[1]
        self._handshake_server = HandshakeServer(listener, plan.run, plan.secret, plan.tasks, system)
        try:
            self._signal = system.wakeup_signal()
        except BaseException:
            self._handshake_server.close()
            raise
        self._tasks: dict[int, _Task] = {}  # that have connected
        self._tasks_by_descriptor: dict[int, _Task] = {}  # whose connections may still have messages
        self._ready_tasks: set[int] = set()
        self._start: RunStart | None = None  # None: not all tasks were sent their `StartTask`
        self._unreported_tasks: set[int] = set()  # tasks that have not reported the current epoch
        self._reports: dict[int, EpochReport] = {}  # by task
        self._on_epoch = on_epoch
        self._committer = EpochCommitter(self._signal.set, settings.epoch_timeout, system)
        self._lease_renewed_at: dict[int, float] = {}  # by task: at its `TaskReady` or the last response to a heartbeat
        self._is_last_epoch = False  # the tasks end after their next report
        self._is_disconnected = False  # the run has ended: leases are not renewed any more
        self._ended_tasks: set[int] = set()  # tasks that do not write any more
        self._is_stopping = False
        self._abort_error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def started(self) -> bool:
        """Whether all tasks were sent their ``StartTask``."""
        return self._start is not None

    @property
    def _all_connected(self) -> bool:
        return len(self._tasks) == self._plan.tasks

    def run(self) -> EpochResult | None:
        """Run epochs until ``stop``; return the last one, or ``None`` if not all tasks had started."""
        try:
            start = self._wait_for_preparation() if self._wait_until_ready() else None
            if start is None:
                return None
            self._start_tasks(start)
            if start.end_offsets:
                return self._run_planned_epoch(start)
            return self._run_epochs(start)
        finally:
            self.disconnect()

    def _run_epochs(self, start: RunStart) -> EpochResult:
        """Run and commit epochs until ``stop``; return the last one."""
        due = self._system.monotonic() + self._settings.epoch_interval
        committed_offsets, uncommitted_result = start.offsets, None
        while True:
            result = self._collect_reports(start, last=self._wait_for_epoch_end(due))
            uncommitted_result = result if uncommitted_result is None else uncommitted_result.merged_with(result)
            start = replace(start, offsets=result.offsets)
            # While the previous commit is in flight, the next reports are merged into this result.
            if result.last or not (self._plan.coalesces_epochs and self._committer.is_busy):
                self._wait_until_committed(may_disconnect=result.last)  # the previous epoch
                self._submit_commit(uncommitted_result)
                if result.last:
                    self._wait_until_committed(may_disconnect=True)
                    return uncommitted_result
                if uncommitted_result.offsets != committed_offsets:
                    # An epoch without progress is not committed, and its id is reused.
                    start = replace(start, epoch=start.epoch + 1)
                committed_offsets, uncommitted_result = uncommitted_result.offsets, None
            due = next_epoch_request_time(due, self._settings.epoch_interval, self._system.monotonic())

    def _wait_for_preparation(self) -> RunStart | None:
        """Call ``RunPlan.prepare`` in the committer's thread; return ``None`` if the run is stopped meanwhile."""
        starts: list[RunStart | None] = []
        self._committer.submit(lambda: starts.append(self._plan.prepare(self.stop)))
        self._wait_until_committed(may_disconnect=False)
        return None if self._is_stopping else starts[0]

    def _start_tasks(self, start: RunStart) -> None:
        for task_index, task in self._tasks.items():
            partitions = start.assignment[task_index]
            task.send(
                StartTask(
                    epoch=start.epoch,
                    offsets={tp: start.offsets[tp] for tp in partitions},
                    end_offsets={tp: start.end_offsets[tp] for tp in partitions} if start.end_offsets else {},
                    topic_ids={tp: start.topic_ids[tp] for tp in partitions if tp in start.topic_ids},
                    producer=start.producers[task_index] if start.producers else None,
                )
            )
        self._start = start

    def _submit_commit(self, result: EpochResult) -> None:
        self._committer.submit(lambda: self._on_epoch(result), epoch=result.epoch)

    def _run_planned_epoch(self, start: RunStart) -> EpochResult:
        """Run until the tasks have reached the end of the epoch, and commit it; return what was read until then."""
        result: EpochResult | None = None
        due = self._system.monotonic()
        while result is None or not result.last:  # tasks report their progress, and flush at the end
            due = next_epoch_request_time(due, self._settings.epoch_interval, self._system.monotonic())
            is_last = self._wait_for_epoch_end(due) or start.offsets == start.end_offsets
            progress = self._collect_reports(start, last=is_last)
            result = progress if result is None else result.merged_with(progress)
            start = replace(start, offsets=result.offsets)
        if result.offsets == start.end_offsets:  # otherwise the run was stopped before, and the next one reads it again
            self._submit_commit(result)
            self._wait_until_committed(may_disconnect=True)
        return result

    def stop(self) -> None:
        """End the run with a final epoch, which starts when the current one is complete."""
        self._is_stopping = True
        self._signal.set()

    def abort(self, error: BaseException) -> None:
        """End the run without a final epoch: ``run`` raises the error."""
        self._abort_error = error
        self._signal.set()

    def wait_until_tasks_end(self, is_interrupted: Callable[[], bool]) -> None:
        """Wait after ``run`` until another run may start: each task has ended, or its lease is over.

        Transactions need no wait, because the next run fences the tasks. ``stop`` wakes this method.
        """
        while not is_interrupted() and (until := self._leases_expire_at()) > self._system.monotonic():
            # If the process was suspended since the check, the time is over; a negative timeout would never end.
            timeout = max(until - self._system.monotonic(), 0.0)
            ready = self._system.wait_ready([self._signal.fileno(), *self._tasks_by_descriptor], [], timeout)
            self._signal.clear()
            for descriptor in ready & self._tasks_by_descriptor.keys():
                with suppress(QueryRunError):  # its failure, or its lost connection
                    self._receive_messages(descriptor, may_disconnect=True)
                task = self._tasks_by_descriptor.get(descriptor)  # None if `_receive_messages` has removed it
                if task is not None and (task.connection.closed_by_peer or task.handshake.task in self._ended_tasks):
                    del self._tasks_by_descriptor[descriptor]  # it sends nothing any more

    def _leases_expire_at(self) -> float:
        """Return until when a task of this run may write, by the monotonic clock."""
        if self._start is None or self._start.producers:  # no task may write, or the next run fences those that do
            return 0.0
        renewed_at = [at for task, at in self._lease_renewed_at.items() if task not in self._ended_tasks]
        return max(renewed_at, default=-math.inf) + self._settings.heartbeat_timeout + LEASE_MARGIN_SECONDS

    def disconnect(self) -> None:
        """End all connections, and wait for the pending commit because the next run starts from it."""
        self._is_disconnected = True
        self._handshake_server.close()
        for task in self._tasks.values():
            task.connection.end()
        self._committer.close()

    def close(self) -> None:
        """Release all resources. Idempotent."""
        self.disconnect()
        for task in self._tasks.values():
            task.connection.close()
        self._tasks_by_descriptor.clear()
        self._signal.close()

    def _wait_until_ready(self) -> bool:
        """Wait until all tasks have connected and run their setups; return false if the run is stopped before."""

        def are_connected() -> bool:
            return self._is_stopping or self._all_connected

        def are_ready() -> bool:
            return self._is_stopping or len(self._ready_tasks) == len(self._tasks)

        self._poll_until(are_connected, self._settings.task_start_timeout, self._start_timeout_error)
        self._poll_until(are_ready, self._settings.task_setup_timeout, self._setup_timeout_error)
        return not self._is_stopping

    def _wait_for_epoch_end(self, due: float) -> bool:
        """Wait until the next epoch request is due; return whether it is the final one."""
        while not self._is_stopping and self._system.monotonic() < due:
            self._poll(due)
        return self._is_stopping

    def _wait_until_committed(self, *, may_disconnect: bool) -> None:
        """Wait for the end of the call in flight, and raise its error; see ``_poll`` for ``may_disconnect``."""
        while self._committer.is_busy:
            self._poll(self._system.monotonic() + _MAX_POLL_SECONDS, may_disconnect=may_disconnect)
        self._committer.raise_if_failed()

    def _collect_reports(self, start: RunStart, *, last: bool) -> EpochResult:
        """Send a request for the epoch to each task, and wait for all reports."""
        self._reports = {}
        self._is_last_epoch = last
        self._unreported_tasks.update(self._tasks)
        request = EpochRequest(start.epoch, last)
        for task in self._tasks.values():
            task.send(request)
        self._poll_until(
            lambda: not self._unreported_tasks,
            self._settings.epoch_timeout,
            lambda: self._report_timeout_error(start.epoch),
            may_disconnect=last,
        )
        return merge_task_reports(start.epoch, start.assignment, start.offsets, self._reports, last=last)

    def _poll_until(
        self,
        is_done: Callable[[], bool],
        seconds: float,
        create_error: Callable[[], Exception],
        *,
        may_disconnect: bool = False,
    ) -> None:
        deadline = self._system.monotonic() + seconds
        while not is_done():
            # Before `_poll`, which handles the messages that arrived while the process was suspended past the deadline.
            expired = self._system.monotonic() >= deadline
            self._poll(deadline, may_disconnect=may_disconnect)
            if expired and not is_done():
                raise create_error()

    def _poll(self, until: float, *, may_disconnect: bool = False) -> None:
        """Wait for an event until the given time, and handle the received messages.

        With ``may_disconnect``, tasks that have reported may close their connections, because the run ends.
        """
        deadlines = (until, self._handshake_server.next_deadline(), self._committer.due_at)
        timeout = min(each for each in deadlines if each is not None) - self._system.monotonic()
        ready = self._system.wait_ready(
            [self._signal.fileno(), *self._handshake_server.descriptors(), *self._tasks_by_descriptor],
            [descriptor for descriptor, task in self._tasks_by_descriptor.items() if task.connection.has_unsent],
            max(timeout, 0.0),
        )
        self._signal.clear()
        if self._abort_error is not None:
            raise self._abort_error
        self._committer.raise_if_failed()
        for descriptor in ready & self._tasks_by_descriptor.keys():
            self._receive_messages(descriptor, may_disconnect=may_disconnect)
        for accepted in self._handshake_server.poll(ready):
            self._add_task(accepted)
        if self._all_connected:
            self._handshake_server.close()  # a run's tasks connect once, and the next run listens again

    def _add_task(self, accepted: AcceptedTask) -> None:
        handshake, connection = accepted.handshake, accepted.connection
        task = _Task(handshake, connection, accepted.session)
        if handshake.attempt > 0 or handshake.task in self._tasks:
            retry = f"attempt {handshake.attempt}" if handshake.attempt else "a second time"
            connection.close()
            raise _task_failed_error(
                f"Spark started task {task} {retry}, so its first attempt was lost", handshake.task
            )
        if not 0 <= handshake.task < self._plan.tasks:
            connection.close()
            raise _task_failed_error(
                f"Task {task} does not exist: the run has {self._plan.tasks} tasks", handshake.task
            )
        self._tasks[handshake.task] = task
        self._tasks_by_descriptor[connection.fileno()] = task
        connection.send(encode_message(accepted.reply))

    def _receive_messages(self, descriptor: int, *, may_disconnect: bool) -> None:
        """Handle the messages of a task, and the end of its connection; see ``_poll`` for ``may_disconnect``."""
        task = self._tasks_by_descriptor[descriptor]
        task.connection.flush()  # the descriptor is also ready when the socket has space for unsent messages
        try:
            for encoded_message in task.connection.receive():
                self._handle_message(task, task.session.decode(encoded_message))
        except ValueError as error:
            raise _task_failed_error(f"Task {task} sent an invalid message ({error})", task.handshake.task) from error
        if task.connection.closed_by_peer:
            if not may_disconnect or task.handshake.task in self._unreported_tasks:
                problem = f"The connection to task {task} was lost: its process ended, or the network failed"
                raise _task_failed_error(problem, task.handshake.task)
            del self._tasks_by_descriptor[descriptor]  # the task has completed

    def _handle_message(self, task: _Task, message: ControlMessage) -> None:
        task_index = task.handshake.task
        match message:
            case EpochReport() as report if task_index in self._unreported_tasks:
                self._unreported_tasks.discard(task_index)
                self._reports[task_index] = report
                if self._is_last_epoch:
                    self._ended_tasks.add(task_index)
            case TaskReady():
                self._ready_tasks.add(task_index)
                self._lease_renewed_at[task_index] = self._system.monotonic()
            case Heartbeat() if self._is_disconnected:
                pass  # the task has to end
            case Heartbeat():
                self._lease_renewed_at[task_index] = self._system.monotonic()
                task.send(message)
            case TaskFailure(cause_class, error_message):
                self._ended_tasks.add(task_index)  # it has closed its sink
                raise _task_failed_error(
                    f"Task {task} failed with {cause_class}: {error_message}", task_index, cause_class
                )
            case _:
                name = type(message).__name__
                raise _task_failed_error(f"Task {task} sent an unexpected message of type {name}", task_index)

    def _start_timeout_error(self) -> TaskStartTimeoutError:
        count = self._plan.tasks
        missing = [task_index for task_index in range(count) if task_index not in self._tasks]
        problem = self._handshake_server.last_problem
        return TaskStartTimeoutError(
            f"{len(missing)} of {count} tasks did not start within {self._settings.task_start_timeout:g} s (task "
            f"{abbreviated(missing)}). All tasks run at the same time, so the query needs {count} free cores: give the "
            f"application more, lower tasksMax, or raise {START_TIMEOUT_OPTION}. If the tasks are running, the "
            f"executors cannot reach port {self.port} of the driver: check controlPort."
            + (f" {problem}" if problem else "")
        )

    def _setup_timeout_error(self) -> QueryRunError:
        unready = [self._tasks[task] for task in sorted(self._tasks.keys() - self._ready_tasks)]
        return QueryRunError(
            f"The setup of {len(unready)} of {len(self._tasks)} tasks took longer than "
            f"{self._settings.task_setup_timeout:g} s: task {abbreviated(unready)}. If it is slow, raise "
            "taskSetupTimeout."
        )

    def _report_timeout_error(self, epoch: int) -> QueryRunError:
        unreported = [self._tasks[task_index] for task_index in sorted(self._unreported_tasks)]
        error = QueryRunError(
            f"{len(unreported)} of {len(self._tasks)} tasks did not report epoch {epoch} within "
            f"{self._settings.epoch_timeout:g} s: task {abbreviated(unreported)}. The query's function or sink hangs "
            f"or is slow. If it is slow, raise {EPOCH_TIMEOUT_OPTION}."
        )
        error.task_index = unreported[0].handshake.task if len(unreported) == 1 else None
        return error


class EpochCommitter:
    """Prepares a run and commits epochs in its own thread, so that the coordinator does not wait for the file system.

    Spark takes about 50 ms to write the two files of an epoch to a local disk, and much longer on an object store. If
    the file system hangs, the commit and its thread are abandoned after a deadline.
    """

    def __init__(self, on_done: Callable[[], None], timeout: float, system: System) -> None:
        self._on_done = on_done
        self._timeout = timeout
        self._system = system
        self._changed = system.condition()
        self._pending: Callable[[], None] | None = None  # the call in flight
        self._epoch: int | None = None  # that the call commits; None if it prepares a run
        self._error: BaseException | None = None  # of the last call, which ends the run
        self._is_thread_running = False
        self._is_closing = False
        self._deadline: Deadline | None = None
        self._abandon_at = 0.0  # until when `close` waits; set by its first call

    @property
    def is_busy(self) -> bool:
        """Whether a call is in flight."""
        return self._pending is not None

    @property
    def due_at(self) -> float | None:
        """The deadline of the commit in flight on the monotonic clock, or ``None``."""
        return self._deadline.at if self.is_busy and self._deadline is not None else None

    def raise_if_failed(self) -> None:
        """Raise the error of a failed commit, or a timeout."""
        if self._error is not None:
            raise self._error
        deadline = self._deadline
        if self.is_busy and deadline is not None and deadline.expired:
            raise QueryRunError(
                f"Epoch {self._epoch} was not committed within {self._timeout:g} s. The checkpoint's file system "
                f"hangs or is slow. If it is slow, raise {deadline.setting}."
            )

    def submit(self, call: Callable[[], None], epoch: int | None = None) -> None:
        """Start a call that commits an epoch, or prepares a run; the previous call must have completed.

        The preparation has no deadline of its own: the requests to brokers have theirs.
        """
        assert not self.is_busy, "one call at a time"
        with self._changed:
            assert self._error is None, "a failed call ends the run"
            self._epoch, self._deadline = epoch, None
            if epoch is not None:
                self._deadline = Deadline.after(self._timeout, EPOCH_TIMEOUT_OPTION, system=self._system)
            self._pending = call
            if not self._is_thread_running:
                self._system.start_thread(self._run, "pyspark-kafka-direct-epoch-committer")
                self._is_thread_running = True  # close() does not wait for a thread that could not be started
            self._changed.notify_all()

    def close(self) -> None:
        """Wait for the call in flight until its deadline, and end the thread. Idempotent."""
        with self._changed:
            if not self._is_closing:
                self._is_closing = True
                self._abandon_at = max(self.due_at or 0.0, self._system.monotonic() + _MIN_CLOSE_SECONDS)
                if self.is_busy and self._deadline is None:
                    self._abandon_at = math.inf  # the preparation ends by itself, after the deadlines of its requests
            self._changed.notify_all()
            while self._is_thread_running and (remaining := self._abandon_at - self._system.monotonic()) > 0:
                self._system.wait(self._changed, min(remaining, _MAX_POLL_SECONDS))

    def _run(self) -> None:
        """Run calls until one of them fails, or the committer is closed."""
        while (call := self._next_call()) is not None:
            try:
                call()
            except BaseException as error:
                self._error = error  # the coordinator raises it
            self._pending = None
            self._on_done()

    def _next_call(self) -> Callable[[], None] | None:
        """Wait for a call; return ``None`` to end the thread, after an error or if the committer is closed."""
        with self._changed:
            while self._pending is None and not self._is_closing and self._error is None:
                self._system.wait(self._changed, None)
            if self._pending is None:  # under the same lock, so that `submit` starts another thread for a later call
                self._is_thread_running = False
                self._changed.notify_all()
            return self._pending


def _task_failed_error(problem: str, task: int, cause_class: str | None = None) -> QueryRunError:
    # The problem may end with a stack trace.
    separator = "\n" if problem.endswith("\n") else " " if problem.endswith(".") else ". "
    error = QueryRunError(f"{problem}{separator}The next run reads again from the last committed epoch.")
    error.task_index, error.cause_class = task, cause_class
    return error
