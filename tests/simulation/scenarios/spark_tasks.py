"""A stand-in for Spark's task scheduler: executors that read ranges, retries and speculative copies."""

from __future__ import annotations

import math
from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.errors import ViolationError
from tests.simulation.scenarios.record_truth import generation_of

from pyspark_kafka_direct.consumer.client_rack import with_client_rack
from pyspark_kafka_direct.consumer.fetcher import read_range
from pyspark_kafka_direct.consumer.range_task import ReadCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from tests.simulation.environment import Environment
    from tests.simulation.oracle import Oracle
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scenarios.record_truth import RecordTruth

    from pyspark_kafka_direct.datasource.partition_reader import KafkaInputPartition, KafkaPartitionReader
    from pyspark_kafka_direct.offsets import OffsetRange

MAX_FAILURES = 4  # spark.task.maxFailures
_POLL_SECONDS = 1.0


class TaskLostError(Exception):
    """The executors of a task died."""


class TaskRead(NamedTuple):
    """The result of a task."""

    offsets: OffsetRange
    topic_id: UUID | None
    started_at: float
    ended_at: float
    rows: tuple[tuple[int, bytes | None], ...]  # offset and value
    counts: ReadCounts


def check_task_read(
    read: TaskRead,
    oracle: Oracle,
    truth: RecordTruth,
    isolation: int,
    *,
    fail_on_data_loss: bool,
    generations_by_id: Mapping[UUID, int] | None,  # None: there are no topic ids
) -> None:
    """Check the rows of a task against what its partition had while it ran."""
    offsets, newest = read.offsets, truth.generations[read.offsets.topic]
    generations = {generation_of(value) for _, value in read.rows}
    if generations and generations_by_id is not None:
        planned = -1 if read.topic_id is None else generations_by_id[read.topic_id]
        if generations != {planned}:
            raise ViolationError(f"a task returns records of the topics {sorted(generations)}, not {planned}: {read}")
    if read.counts.lost:
        if fail_on_data_loss:
            raise ViolationError(f"failOnDataLoss is true, but a task skips {read.counts.lost} offsets: {read}")
        return
    if read.counts.unproven_gaps and fail_on_data_loss:
        raise ViolationError(f"failOnDataLoss is true, but a task skips offsets of which nothing is known: {read}")
    if not generations and (newest > 1 or truth.has_lost(offsets.topic, None, math.inf, ("deleted",))):
        return

    def violations_of(generation: int, start: int, end: int) -> list[str]:
        rows = [(offset, value) for offset, value in read.rows if start <= offset < end]
        partition = offsets.topic, offsets.partition
        return oracle.check_range(
            partition,
            generation,
            start,
            end,
            rows,
            isolation,
            read.started_at,
            read.ended_at,
            may_lack_records=read.counts.unproven_gaps > 0,
        )

    first, until = offsets.from_offset, offsets.until_offset
    violations = violations_of(max(generations, default=newest), first, until)
    if not violations and len(generations) < 2:
        return
    # Without topic ids nothing shows that a topic was recreated during the read if its new log has the next offset, and
    # a broker that lags serves the deleted topic's log to the end of a read.
    for before, after in permutations(range(1, newest + 1), 2) if generations_by_id is None else ():
        logs = [truth.partitions.get((offsets.topic, each, offsets.partition)) for each in (before, after)]
        if any(log is None or log.created_at > read.ended_at for log in logs):
            continue
        for position in range(first, until + 1):
            if not violations_of(before, first, position) and not violations_of(after, position, until):
                return
    first_violation = violations[0] if violations else f"it returns records of the topics {sorted(generations)}"
    raise ViolationError(f"a task breaks its promise: {first_violation}\n{violations}\n{read}")


class _Attempt:
    """One run of a task in an executor."""

    def __init__(self, task: int, executor: SimulatedProcess) -> None:
        self.task = task
        self.executor = executor
        self.result: TaskRead | None = None
        self.error: Exception | None = None
        self.ended = False


class TaskScheduler:
    """Runs the tasks of a query; an executor runs one at a time."""

    def __init__(self, environment: Environment, name: str) -> None:
        self._environment = environment
        self._world = environment.world
        self._name = name
        self._rng = environment.world.rng(f"tasks of {name}")
        self._executors: list[SimulatedProcess] = []
        self._started = 0
        self._slots: int = environment.plan.parameters["executors"]
        self._speculation: float = environment.plan.parameters["speculation"]

    def run(
        self,
        driver: SimulatedProcess,
        reader: KafkaPartitionReader,
        partitions: Sequence[KafkaInputPartition],
        on_start: Callable[[], None],
    ) -> list[TaskRead]:
        """Run a task for each partition; raise the error of a task that failed too often."""
        tasks = dict(enumerate(partitions))
        failures = dict.fromkeys(tasks, 0)
        pending = list(tasks)
        speculative = [each for each in pending if self._rng.random() < self._speculation]
        running: list[_Attempt] = []
        results: dict[int, TaskRead] = {}
        while len(results) < len(tasks):
            for executor in self._idle_executors(running):
                if not pending and not speculative:
                    break
                number = (pending or speculative).pop(0)
                if number in results:
                    continue
                running.append(self._start(driver, executor, reader, partitions[number], number, failures[number]))
                on_start()
            self._world.block("the tasks of a batch", _POLL_SECONDS)
            for attempt in tuple(running):
                if not attempt.ended and not attempt.executor.dead:
                    continue
                running.remove(attempt)
                number = attempt.task
                if attempt.result is not None:
                    results.setdefault(number, attempt.result)
                elif number not in results:
                    failures[number] += 1
                    if failures[number] >= MAX_FAILURES:
                        raise attempt.error or TaskLostError("a task lost its executor too often")
                    if number not in pending and all(each.task != number for each in running):
                        pending.append(number)
        for attempt in running:  # the slower copies
            attempt.executor.kill()
        return [results[number] for number in tasks]

    def kill(self) -> None:
        for executor in self._executors:
            executor.kill()

    def _idle_executors(self, running: Sequence[_Attempt]) -> list[SimulatedProcess]:
        self._executors = [each for each in self._executors if not each.dead]
        while len(self._executors) < self._slots:
            self._started += 1
            self._executors.append(self._environment.process(f"executor-{self._name}-{self._started}"))
        busy = [attempt.executor for attempt in running]
        return [each for each in self._executors if each not in busy]

    def _start(
        self,
        driver: SimulatedProcess,
        executor: SimulatedProcess,
        reader: KafkaPartitionReader,
        partition: KafkaInputPartition,
        number: int,
        failures: int,
    ) -> _Attempt:
        attempt = _Attempt(number, executor)
        waiting = self._world.current

        def run() -> None:
            try:
                attempt.result = self._read(executor, reader, partition, retried=failures > 0)
            except Exception as error:
                attempt.error = error
            finally:
                attempt.ended = True
                if not driver.dead:
                    self._world.wake(waiting)

        executor.spawn(f"task {number}", run)
        return attempt

    def _read(
        self, executor: SimulatedProcess, reader: KafkaPartitionReader, partition: KafkaInputPartition, *, retried: bool
    ) -> TaskRead:
        """Read a range as ``KafkaPartitionReader.read`` does, with the executor's pool."""
        pool = self._environment.pool(executor)
        if retried:
            pool.clear()
        task = partition.task
        counts = ReadCounts()
        rows: list[tuple[int, bytes | None]] = []
        started_at = self._world.now
        with self._world.operation():
            connection, fetch = reader.task_reader.connection, with_client_rack(reader.task_reader.fetch)
            for batch in read_range(connection, fetch, task, reader.schema.columns, counts, pool=pool):
                rows += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
        return TaskRead(task.offsets, task.topic_id, started_at, self._world.now, tuple(rows), counts)
