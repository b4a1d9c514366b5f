"""A stand-in for Spark's MicroBatchExecution (4.2): offset log, commit log, triggers and restarts.

What a checkpoint and a sink keep is in the memory of the scenario, so that it survives the processes.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.simulation.errors import ProcessKilled, ViolationError
from tests.simulation.scenarios.spark_tasks import TaskRead, TaskScheduler

from pyspark_kafka_direct.datasource.legacy_micro_batch_stream import LegacyKafkaMicroBatchStream
from pyspark_kafka_direct.datasource.micro_batch_stream import KafkaMicroBatchStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.environment import Environment
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scenarios.backpressure_stand_in import BackpressureListener

    from pyspark_kafka_direct.datasource.read_schema import ReadSchema
    from pyspark_kafka_direct.options.settings import ReadSettings

    LossKey = tuple[str, int, str]
    """Topic, partition, and the cause in lower case."""

STEPS = (
    "before the initial offset",
    "before the offset log",
    "after the offset log",
    "after planning",
    "while tasks run",
    "before the sink",
    "after the sink",
    "after the commit log",
)
"""Where a driver can die."""


class LoggedEnd(NamedTuple):
    """An entry of the offset log."""

    text: str
    time: float
    run: int
    asked_at: float  # when the planner was called


class BatchRead(NamedTuple):
    """A batch as one run read it."""

    batch: int
    run: int
    start: str
    end: str
    planned_at: float
    ended_at: float
    reads: tuple[TaskRead, ...]  # by partition and offset


class Checkpoint:
    """What outlives a driver: both logs and the sink, which replaces a batch that runs again."""

    def __init__(self) -> None:
        self.offsets: list[LoggedEnd] = []
        self.committed = 0  # batches
        self.sink: dict[int, BatchRead] = {}
        self.reads: list[BatchRead] = []  # also those that were replaced, or whose driver died
        self.initial: InitialOffset | None = None

    def write_end(self, batch: int, text: str, time: float, run: int, asked_at: float) -> None:
        if batch != len(self.offsets):
            raise ViolationError(f"the end of batch {batch} is written, and the offset log has {len(self.offsets)}")
        self.offsets.append(LoggedEnd(text, time, run, asked_at))

    def end(self, batch: int) -> str | None:
        """Return the end of a batch; None before the first one."""
        return self.offsets[batch].text if batch >= 0 else None


class InitialOffset(NamedTuple):
    """What ``initialOffset`` returned in the run that wrote the first end."""

    text: str
    asked_at: float
    returned_at: float
    options: Mapping[str, str]


class PlannerCall(NamedTuple):
    """One call of the planner by Spark."""

    name: str
    called_at: float
    returned_at: float
    arguments: tuple[str, ...]  # offsets, as JSON
    result: Any
    requests: Counter[str]  # that the driver has sent meanwhile, by API
    losses: Mapping[LossKey, tuple[int, int]]  # that were counted meanwhile: how often, and how many offsets


class Trigger(NamedTuple):
    """When and how long a run plans batches."""

    kind: str  # "processing time", "available now" or "once"
    interval: float = 0.1  # seconds between triggers
    triggers: int = 10  # after which the user stops the query


class MicroBatchExecution:
    """One run of a query, in a driver process and its executors."""

    def __init__(
        self,
        environment: Environment,
        number: int,
        checkpoint: Checkpoint,
        options: ReadSettings,
        raw_options: Mapping[str, str],
        schema: ReadSchema,
        trigger: Trigger,
        *,
        legacy: bool,
        reach: Callable[[MicroBatchExecution, str], None],
        listener: BackpressureListener | None = None,
        is_done: Callable[[], bool] = lambda: False,
    ) -> None:
        self.number = number
        self.error: Exception | None = None
        self.finished = False
        self.is_complete = False  # Trigger.AvailableNow found no more records
        self.batches = 0
        self.calls: list[tuple[str, float, float]] = []  # of the planner: name, and when it was called and returned
        self.planner_calls: list[PlannerCall] = []  # the same ones
        self.driver: SimulatedProcess = environment.process(f"driver-{number}")
        self.tasks = TaskScheduler(environment, f"run-{number}")
        # When Spark requested the end of a batch that was not to be, and the offset that it got.
        self.idle_answers: list[tuple[float, str]] = []
        # When Spark requested the latest offsets, start and end of the batch, and the latest offsets.
        self.latest_reports: list[tuple[float, str, str, str | None]] = []
        self._environment = environment
        self._world = environment.world
        self._checkpoint = checkpoint
        self._options = options
        self.options = raw_options
        self._schema = schema
        self.trigger = trigger.kind
        self._trigger = trigger
        self._legacy = legacy
        self._reach = reach
        self._listener = listener
        self._is_done = is_done
        self._reader: Any = None
        self._limit: Any = None
        self._batch = 0
        self._start: str | None = None  # the end of the last finished batch, as JSON; None before the first one
        self._end: str | None = None  # of the batch to run; None: not planned
        self._initial: InitialOffset | None = None
        self._counted_losses: Any = ()

    def run(self) -> None:
        """Run until the trigger ends, the user stops the query, or it fails; the driver's thread calls this."""
        try:
            self._execute()
            self.finished = True
        except ProcessKilled:
            raise
        except Exception as error:
            self.error = error

    def end(self) -> None:
        """End the processes: Spark's executors end with their driver."""
        self.driver.kill()
        self.tasks.kill()

    def _execute(self) -> None:
        pool = self._environment.pool(self.driver)
        reader_class = LegacyKafkaMicroBatchStream if self._legacy else KafkaMicroBatchStream
        self._reader = reader_class(self._options, self._schema, pool)
        if not self._legacy:
            if self._trigger.kind == "available now":
                self._call("prepareForTriggerAvailableNow")
            is_once = self._trigger.kind == "once"
            self._limit = ReadAllAvailable() if is_once else self._reader.getDefaultReadLimit()
        self._resume()
        for _ in range(self._trigger.triggers):
            constructed = self._end is not None or self._construct_batch()
            if constructed:
                self._run_batch()
            if self._trigger.kind == "once":
                break
            if self._trigger.kind == "available now" and not constructed:
                self.is_complete = True
                break
            if self._is_done():
                break
            if self._trigger.kind == "processing time":
                self.driver.sleep(self._trigger.interval)

    def _resume(self) -> None:
        """Find out what to do first (``populateStartOffsets``)."""
        logged = len(self._checkpoint.offsets)
        if not logged:
            return
        last = self._checkpoint.end(logged - 1)
        # Spark passes the last offset to a Python source before anything else (setLatestSeenOffset).
        self._call("partitions", last, last)
        if self._checkpoint.committed == logged:
            self._batch, self._start = logged, last
        else:
            self._batch, self._start, self._end = logged - 1, self._checkpoint.end(logged - 2), last

    def _construct_batch(self) -> bool:
        """Plan the end of the next batch and log it; return whether there is a batch."""
        self._reach(self, "before the initial offset")
        asked_at = self._world.now
        if self._legacy:
            end = self._call("latestOffset")
        else:
            start = self._initial_offset() if self._start is None else self._start
            end = self._call("latestOffset", start, limit=self._limit)
            self.latest_reports.append((self._world.now, start, end, self._call("reportLatestOffset")))
            self._reach(self, "after the end")
        if end == self._start:
            self.idle_answers.append((asked_at, end))
            return False
        self._reach(self, "before the offset log")
        self._checkpoint.write_end(self._batch, end, self._world.now, self.number, asked_at)
        self._world.trace("offset log", self._batch, end)
        if self._batch == 0:
            self._checkpoint.initial = self._initial
        else:
            self._call("commit", self._start)
        self._end = end
        self._reach(self, "after the offset log")
        return True

    def _run_batch(self) -> None:
        # Spark resolves the start of the first batch again when it runs it.
        start = self._initial_offset() if self._start is None else self._start
        if self._checkpoint.initial is None and self._checkpoint.offsets[0].run == self.number:  # before Spark 4.2
            self._checkpoint.initial = self._initial
        end = self._end
        assert end is not None
        planned_at = self._world.now
        if start == end and self._batch > 0:
            reads: list[TaskRead] = []
        else:
            partitions = self._call("partitions", start, end)
            self._reach(self, "after planning")
            reader = pickle.loads(pickle.dumps(self._reader))
            reads = self.tasks.run(
                self.driver, reader, [pickle.loads(pickle.dumps(each)) for each in partitions], self._reach_task
            )
        read = BatchRead(self._batch, self.number, start, end, planned_at, self._world.now, tuple(reads))
        self._checkpoint.reads.append(read)
        self._reach(self, "before the sink")
        self._checkpoint.sink[self._batch] = read
        self._reach(self, "after the sink")
        if self._listener is not None:
            self._listener.measure(start, end, max(self._trigger.interval, 0.001), self._world.now)
        self._checkpoint.committed = self._batch + 1
        self._world.trace("commit log", self._batch)
        self._reach(self, "after the commit log")
        self._start, self._end = end, None
        self._batch += 1
        self.batches += 1

    def _initial_offset(self) -> str:
        # Before Spark 4.2 the first call of latestOffset resolves it, and Trigger.AvailableNow has fixed "latest".
        is_resolved_before = self._legacy or self._trigger.kind == "available now"
        asked_at = self.calls[0][1] if is_resolved_before and self.calls else self._world.now
        text: str = self._call("initialOffset")
        if self._initial is None:
            self._initial = InitialOffset(text, asked_at, self._world.now, self.options)
        elif self._initial.text != text:
            raise ViolationError(f"initialOffset returned {self._initial.text}, then {text}")
        return text

    def _reach_task(self) -> None:
        self._reach(self, "while tasks run")

    def _call(self, name: str, *offsets: str | None, limit: Any = None) -> Any:
        """Call the reader as Spark's Python process does, with offsets as JSON."""
        arguments = [json.loads(each) for each in offsets if each is not None]
        if limit is not None:
            arguments.append(limit)
        called_at, first_request = self._world.now, len(self._environment.network.sent_requests)
        texts = tuple(each for each in offsets if each is not None)
        try:
            with self._world.operation():
                result = getattr(self._reader, name)(*arguments)
        except Exception:
            self._record_call(f"failed {name}", called_at, texts, None, first_request)
            raise
        self.calls.append((name, called_at, self._world.now))
        result = json.dumps(result) if isinstance(result, dict) else result
        self._record_call(name, called_at, texts, result, first_request)
        return result

    def _record_call(
        self, name: str, called_at: float, arguments: tuple[str, ...], result: Any, first_request: int
    ) -> None:
        sent = self._environment.network.sent_requests[first_request:]
        requests = Counter(api for process, api in sent if process == self.driver.name)
        call = PlannerCall(name, called_at, self._world.now, arguments, result, requests, self._new_losses())
        self.planner_calls.append(call)

    def _new_losses(self) -> Mapping[LossKey, tuple[int, int]]:
        """Return the losses that the planner has counted since the last call."""
        totals = self._reader._offset_reader()._loss_counter._totals.losses
        if totals is self._counted_losses:
            return {}
        before = {each[:3]: each[3:] for each in map(astuple, self._counted_losses)}
        self._counted_losses = totals
        changes = {}
        for topic, partition, cause, losses, offsets in map(astuple, totals):
            losses_before, offsets_before = before.get((topic, partition, cause), (0, 0))
            if losses > losses_before:
                changes[topic, partition, cause] = (losses - losses_before, offsets - offsets_before)
        return changes
