"""A stand-in for Spark Streaming (4.2): timer, job generator, job scheduler, checkpoint writer and stops.

After ``JobGenerator``, ``JobScheduler``, ``RecurringTimer`` and ``CheckpointWriter``. What a checkpoint keeps is in the
memory of the scenario, so that it survives the driver.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.process import SimulatedProcess

_POLL_SECONDS = 0.1  # between two looks of a graceful stop
_GRACEFUL_INTERVALS = 10  # spark.streaming.gracefulStopTimeout
_JOB_SECONDS = 2.0  # which other stops wait for running jobs
_WRITER_SECONDS = 10.0
_FORCED_SECONDS = 3600.0

STEPS = (
    "before the generation",
    "after the generation",
    "after the jobs were submitted",
    "before the checkpoint",
    "before the checkpoint is written",
    "after the checkpoint is written",
    "before the results",
    "after the results",
    "after the commit",
    "during the stop",
)
"""Where a driver can die."""


class StoredCheckpoint(NamedTuple):
    """What a restart finds."""

    time_ms: int
    zero_ms: int
    pending: tuple[int, ...]
    graph: bytes  # the pickled streams
    lineage: Any  # what the checks need


class CheckpointStore:
    """The checkpoint directory; as with Spark's files, the last one written counts."""

    def __init__(self, write_seconds: float = 0.2) -> None:
        self.stored: StoredCheckpoint | None = None
        self.write_seconds = write_seconds  # at most


class Job(NamedTuple):
    """What an output runs for a batch."""

    output: int
    run: Callable[[], None]


class Graph(Protocol):
    """The streams and outputs of a context, implemented by the application."""

    def generate(self, time_ms: int) -> list[Job]:
        """Generate a batch as Spark asks the outputs of its graph."""

    def pickle(self) -> tuple[bytes, Any]:
        """Return the pickled streams, and what the checks need."""

    def clear_metadata(self, time_ms: int) -> None:
        """Forget the RDDs that no batch after this one needs."""

    def reported_input(self, time_ms: int) -> dict[int, int]:
        """Return the reported numbers of records of a batch by input."""

    def reach(self, step: str) -> None:
        """The driver is at a step."""

    def failed(self, kind: str, time_ms: int, output: int | None, error: Exception) -> None:
        """A start, a generation or a job has failed, and Spark reports it."""


class _JobSet:
    def __init__(self, time_ms: int, jobs: Sequence[Job], now: float) -> None:
        self.time_ms = time_ms
        self.submitted_at = now
        self.started_at = math.inf
        self.unfinished = len(jobs)


class _Queue:
    """A queue whose consumer is one or more tasks."""

    def __init__(self, driver: SimulatedProcess) -> None:
        self._driver = driver
        self._changed = driver.condition()
        self._items: deque[Any] = deque()
        self._is_closed = False

    def put(self, item: Any) -> None:
        with self._changed:
            if not self._is_closed:
                self._items.append(item)
                self._changed.notify_all()

    def take(self) -> Any:
        """Return the next item, or None after the end."""
        with self._changed:
            while not self._items:
                if self._is_closed:
                    return None
                self._driver.wait(self._changed, None)
            return self._items.popleft()

    def close(self, *, drop: bool) -> None:
        with self._changed:
            self._is_closed = True
            if drop:
                self._items.clear()
            self._changed.notify_all()


class StreamingStandIn:
    """Generates and runs the batches of one context in a driver."""

    def __init__(
        self,
        driver: SimulatedProcess,
        graph: Graph,
        interval_ms: int,
        store: CheckpointStore | None,  # None: checkpoints are not enabled
        *,
        concurrent_jobs: int = 1,
    ) -> None:
        self.listeners: list[Any] = []
        self.last_processed_ms: int | None = None
        self.checkpoint_wait = 0.0  # how many seconds a stop has waited for checkpoints
        self.zero_ms = 0
        self._driver = driver
        self._world = driver.world
        self._graph = graph
        self._interval_ms = interval_ms
        self._store = store
        self._concurrent_jobs = concurrent_jobs
        self._graph_lock = driver.reentrant_lock()
        self._events = _Queue(driver)
        self._jobs = _Queue(driver)
        self._writes = _Queue(driver)
        self._job_sets: dict[int, _JobSet] = {}
        self._alive = {"events": 0, "jobs": 0, "writer": 0, "timer": 0}  # threads
        self._timer_stopped = False
        self._timer_interrupted = False
        self._last_timer_ms = 0
        self._timer_changed = driver.condition()

    def pending_times(self) -> list[int]:
        return sorted(self._job_sets)

    def is_done(self, time_ms: int) -> bool:
        """Return whether the jobs of a batch have ended, successfully or not."""
        job_set = self._job_sets.get(time_ms)
        return job_set is None or not job_set.unfinished

    def now_ms(self) -> int:
        return round(self._driver.wall_time() * 1000)

    # Start.

    def start(self, restored: StoredCheckpoint | None) -> None:
        """Start as ``JobGenerator.start``; raises what the generation of a batch of the downtime raises."""
        self._spawn("events", self._run_events)
        self._spawn("writer", self._run_writes)
        for _ in range(self._concurrent_jobs):
            self._spawn("jobs", self._run_jobs)
        first = (self.now_ms() // self._interval_ms + 1) * self._interval_ms
        if restored is None:
            self.zero_ms = first - self._interval_ms
        else:
            self.zero_ms = restored.zero_ms
            down = range(restored.time_ms, first, self._interval_ms)
            for time_ms in sorted({*restored.pending, *down}):
                if time_ms < first:
                    self._submit(time_ms, self._generate(time_ms))
        self._spawn("timer", lambda: self._run_timer(first))

    # Stop.

    def stop(self, *, gracefully: bool) -> None:
        """Stop as ``JobScheduler.stop``."""
        self._graph.reach("during the stop")
        with self._timer_changed:
            self._timer_stopped = True
            self._timer_interrupted = not gracefully
            self._timer_changed.notify_all()
        self._wait_for("timer", _FORCED_SECONDS)
        if gracefully:
            end = self._world.now + _GRACEFUL_INTERVALS * self._interval_ms / 1000
            while self.last_processed_ms != self._last_timer_ms and self._world.now < end:
                self._driver.sleep(_POLL_SECONDS)
        self._events.close(drop=True)
        self._wait_for("events", _FORCED_SECONDS)
        self._writes.close(drop=False)
        waits_since = self._world.now
        self._wait_for("writer", _WRITER_SECONDS)
        self.checkpoint_wait = self._world.now - waits_since
        self._jobs.close(drop=False)
        if not self._wait_for("jobs", _FORCED_SECONDS if gracefully else _JOB_SECONDS):
            self._jobs.close(drop=True)

    def _wait_for(self, threads: str, seconds: float) -> bool:
        """Wait until the threads of a kind have ended; return whether they did in time."""
        end = self._world.now + seconds
        while self._alive[threads] and self._world.now < end:
            self._driver.sleep(0.01 if self._world.now + 1 < end else 0.1)
        return not self._alive[threads]

    def _spawn(self, kind: str, run: Callable[[], None]) -> None:
        def body() -> None:
            run()
            self._alive[kind] -= 1

        self._alive[kind] += 1
        self._driver.spawn(kind, body)

    # The threads.

    def _run_timer(self, first_ms: int) -> None:
        next_ms = first_ms
        while True:
            stopped = self._timer_stopped
            with self._timer_changed:
                while not self._timer_interrupted and (wait := next_ms / 1000 - self._driver.wall_time()) > 0:
                    self._driver.wait(self._timer_changed, wait)
            if self._timer_interrupted:
                return
            self._events.put(("generate", next_ms))
            self._last_timer_ms = next_ms
            next_ms += self._interval_ms
            if stopped:
                return

    def _run_events(self) -> None:
        while (event := self._events.take()) is not None:
            match event:
                case ("generate", time_ms):
                    self._generate_batch(time_ms)
                case ("clear", time_ms):
                    with self._graph_lock:
                        self._graph.clear_metadata(time_ms)
                    if self._store is None:
                        self.last_processed_ms = time_ms
                    else:
                        self._write_checkpoint(time_ms, is_processed=True)
                case ("processed", time_ms):
                    self.last_processed_ms = time_ms

    def _generate_batch(self, time_ms: int) -> None:
        try:
            jobs = self._generate(time_ms)
        except Exception as error:
            self._graph.failed("generation", time_ms, None, error)
        else:
            self._submit(time_ms, jobs)
        if self._store is not None:
            self._write_checkpoint(time_ms, is_processed=False)

    def _generate(self, time_ms: int) -> list[Job]:
        self._graph.reach("before the generation")
        with self._graph_lock:
            jobs = self._graph.generate(time_ms)
        self._graph.reach("after the generation")
        return jobs

    def _submit(self, time_ms: int, jobs: Sequence[Job]) -> None:
        if not jobs:
            return
        self._job_sets[time_ms] = _JobSet(time_ms, jobs, self._world.now)
        for job in jobs:
            self._jobs.put((time_ms, job))
        self._graph.reach("after the jobs were submitted")

    def _write_checkpoint(self, time_ms: int, *, is_processed: bool) -> None:
        self._graph.reach("before the checkpoint")
        pending = tuple(self.pending_times())
        with self._graph_lock:
            graph, lineage = self._graph.pickle()
        self._writes.put((StoredCheckpoint(time_ms, self.zero_ms, pending, graph, lineage), is_processed))

    def _run_writes(self) -> None:
        rng = self._world.rng(f"writer of {self._driver.name}")
        while (write := self._writes.take()) is not None:
            stored, is_processed = write
            assert self._store is not None
            self._driver.sleep(0.001 + self._store.write_seconds * rng.random() ** 4)
            self._graph.reach("before the checkpoint is written")
            self._store.stored = stored
            self._world.trace("checkpoint", stored.time_ms, stored.pending)
            self._graph.reach("after the checkpoint is written")
            if is_processed:
                self._events.put(("processed", stored.time_ms))

    def _run_jobs(self) -> None:
        while (item := self._jobs.take()) is not None:
            time_ms, job = item
            job_set = self._job_sets[time_ms]
            job_set.started_at = min(job_set.started_at, self._world.now)
            error: Exception | None = None
            try:
                job.run()
            except Exception as raised:
                error = raised
            job_set.unfinished -= 1
            if not job_set.unfinished:
                self._batch_completed(job_set)
            if error is not None:
                self._graph.failed("job", time_ms, job.output, error)
            elif not job_set.unfinished:
                # The jobs of a batch whose last one succeeded are done, even if another one has failed.
                del self._job_sets[time_ms]
                self._events.put(("clear", time_ms))

    def _batch_completed(self, job_set: _JobSet) -> None:
        completed = _BatchInfo(
            self._graph.reported_input(job_set.time_ms),
            self.now_ms(),
            round((self._world.now - job_set.started_at) * 1000),
            round((job_set.started_at - job_set.submitted_at) * 1000),
        )
        for listener in self.listeners:
            listener.onBatchCompleted(completed)


class _BatchInfo:
    """Spark's event about a completed batch, with the methods that the package calls."""

    def __init__(self, records: dict[int, int], ended_ms: int, processing_ms: int, scheduling_ms: int) -> None:
        self._records = records
        self.processingEndTime = lambda: ended_ms
        self.processingDelay = lambda: processing_ms
        self.schedulingDelay = lambda: scheduling_ms

    def batchInfo(self) -> _BatchInfo:
        return self

    def streamIdToInputInfo(self) -> dict[int, _InputInfo]:
        return {number: _InputInfo(count) for number, count in self._records.items()}


class _InputInfo(NamedTuple):
    records: int

    def numRecords(self) -> int:
        return self.records
