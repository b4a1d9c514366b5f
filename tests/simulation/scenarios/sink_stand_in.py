"""A stand-in for Spark that runs a query with the exactly-once sink: drivers, tasks, executors and the commit log."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import pyarrow as pa
from tests.simulation.errors import ViolationError
from tests.simulation.record_attributes import attributes_of
from tests.simulation.scenarios.several_topics import partition_at, partition_counts
from tests.simulation.scenarios.sink_commits import STATE_TOPIC, FencingCheck, is_calm, is_certain

from pyspark_kafka_direct.datasource.exactly_once_committer import ExactlyOnceCommitter
from pyspark_kafka_direct.datasource.write_task import StagingConfig, StagingWriteTask, WriteTaskContext
from pyspark_kafka_direct.errors import KafkaDirectError, TransactionStateError
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.payloads.write_rows import HEADERS
from pyspark_kafka_direct.payloads.write_schema import WriteSchema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.simulation.cluster.stored_batch import Headers
    from tests.simulation.environment import Environment
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scheduler import Task

    from pyspark_kafka_direct.datasource.write_task import StagedCommitMessage
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.spark.write_report import PartitionWriteReport

TARGETS: Final = ("target", "dead-letters", "audit")
_SCHEMA = WriteSchema(value=0, partition=1, key=2, headers=3, timestamp=4)
_SCHEMA_WITH_TOPIC = dataclasses.replace(_SCHEMA, topic=5)
_TASK_ATTEMPTS = 4  # spark.task.maxFailures
_MAX_RUNS = 60  # while faults occur, and as many afterwards


class ConcurrentRunError(Exception):
    """Another run has written the batch's entry of the commit log, so Spark ends this one."""


class SinkRow(NamedTuple):
    value: bytes
    partition: TopicPartition


class SinkQuery:
    """A streaming query with its checkpoint, which outlives its drivers.

    Args:
        environment: The environment.
        name: The name, which each row contains.
        parameters: ``topics`` and ``partitions``; ``batches``, a sequence of the partitions of each batch's rows
            (``draw_place``); ``names_topics``, whether rows name their topics; ``stamp``;
            ``parallelism`` of each run in turn; ``prefix``; ``restart_seconds``; ``pauses``, seconds before
            steps of batches as ``[run, batch, step, seconds]``; ``speculated`` batches; the settings of timeouts.
    """

    def __init__(self, environment: Environment, name: str, parameters: Mapping[str, Any]) -> None:
        self.environment = environment
        self.name = name
        self.parameters = parameters
        self.id = str(UUID(int=0x5EED_0000 + sum(name.encode()), version=4))
        self.batches: Sequence[Sequence[int]] = parameters["batches"][: parameters["batch_count"]]
        self.commit_log: dict[int, str] = {}  # run ids by batch
        self.reports: dict[int, Mapping[TopicPartition, PartitionWriteReport]] = {}  # by batch
        self.committing: dict[int, set[int]] = {}  # numbers of the drivers that called the commit, by batch
        self.drivers: list[SinkDriver] = []
        self.tasks: list[Task] = []  # of the drivers
        self.rejection: TransactionStateError | None = None  # that no restart resolves
        self.newest_ticket = -1  # the offset
        self.denied: set[int] = set()  # tickets of commits that failed for certain
        self.notes: list[str] = []  # violations that matter less than lost and duplicated rows
        self.executors: list[SimulatedProcess] = []
        self._executor_number = 0

    @property
    def is_done(self) -> bool:
        return self.rejection is not None or len(self.commit_log) == len(self.batches)

    def rows(self, batch: int) -> list[SinkRow]:
        """Return a batch's rows."""
        counts = partition_counts(TARGETS, self.parameters)
        return [
            SinkRow(b"%s-%d-%d" % (self.name.encode(), batch, row), partition_at(counts, place))
            for row, place in enumerate(self.batches[batch])
        ]

    def stamp(self, batch: int) -> Headers:
        """Return the headers that ``stampBatch`` adds to all rows of a batch."""
        if not self.parameters["stamp"]:
            return ()
        return ((b"spark.query.id", self.id.encode()), (b"spark.batch.id", b"%d" % batch))

    def all_rows(self) -> Iterator[SinkRow]:
        """Return the rows of all batches."""
        return chain.from_iterable(map(self.rows, range(len(self.batches))))

    def start_driver(self) -> None:
        """Start a driver process; others may run already."""
        if self.is_done:
            return
        if len(self.drivers) >= _MAX_RUNS and not self.environment.is_quiet:
            self.environment.world.at(self.environment.quiet_at, self._restart_after, self.drivers[-1])
            return
        if len(self.drivers) >= 2 * _MAX_RUNS:
            self.notes.append(f"query {self.name} was started {2 * _MAX_RUNS} times and is not done")
            return
        driver = SinkDriver(self, len(self.drivers))
        self.drivers.append(driver)
        self.tasks.append(driver.process.spawn("query", driver.run))

    def start_restored(self) -> Task:
        """Start a driver whose checkpoint was restored, and has another last batch than the one that was written."""
        driver = SinkDriver(self, len(self.drivers), content=", restored")
        return driver.process.spawn("query", driver.run_restored)

    def driver_ended(self, driver: SinkDriver) -> None:
        """Restart the query, unless a newer driver runs."""
        if driver is self.drivers[-1] and not self.is_done:
            self.environment.world.after(self.parameters["restart_seconds"], self._restart_after, driver)

    def paused(self, process: SimulatedProcess) -> None:
        """Replace a driver that hangs; the old one wakes up later."""
        if self.drivers and process is self.drivers[-1].process:
            self.environment.world.after(self.parameters["restart_seconds"], self.start_driver)

    def executor(self, slot: int) -> SimulatedProcess:
        """Return an executor that lives."""
        living = [each for each in self.executors if not each.dead]
        while len(living) <= slot:
            self._executor_number += 1
            process = self.environment.process(f"{self.name}-executor-{self._executor_number}")
            self.executors.append(process)
            living.append(process)
        return living[slot]

    def _restart_after(self, driver: SinkDriver) -> None:
        if driver is self.drivers[-1]:
            self.start_driver()


class SinkDriver:
    """One run of the query."""

    def __init__(self, query: SinkQuery, number: int, *, content: str = "") -> None:
        self.content = content  # of its batches, as far as it differs from that of other drivers
        self.query = query
        self.number = number
        self.run_id = str(UUID(int=(sum(query.name.encode()) << 32) + number + 1, version=4))
        self.process = query.environment.process(f"{query.name}-driver-{number}")
        self.started_at = query.environment.world.now
        self.ticket = -1  # the offset of the current batch's
        parameters = query.parameters
        prefix = parameters["prefix"]
        topic = None if parameters["names_topics"] else TARGETS[0]
        connection = query.environment.settings(
            request_timeout_ms=parameters["request_timeout_ms"], default_api_timeout_ms=parameters["api_timeout_ms"]
        )
        produce = ProducerSettings(
            batch_bytes=parameters["batch_bytes"], delivery_timeout_ms=parameters["delivery_timeout_ms"]
        )
        staging = StagingConfig(f"{prefix}.sink", 1 << 20)
        self._task = StagingWriteTask(
            connection=connection,
            produce=produce,
            schema=_SCHEMA if topic is not None else _SCHEMA_WITH_TOPIC,
            topic=topic,
            stamp=parameters["stamp"],
            staging=staging,
            ticket=None,
            job=None,
        )
        self._committer = ExactlyOnceCommitter(
            connection=connection,
            produce=produce,
            staging=staging,
            prefix=prefix,
            topic=topic,
            sink_state_topic=STATE_TOPIC,
            timeout_ms=parameters["transaction_timeout_ms"],
            reset_token=None,
            checkpoint=None,
        )

    @property
    def is_newest(self) -> bool:
        return self is self.query.drivers[-1]

    def run(self) -> None:
        """Run batches until all are committed, or until one fails; the query then restarts."""
        world = self.query.environment.world
        batch = len(self.query.commit_log)
        try:
            while batch < len(self.query.batches):
                with world.operation():
                    self._run_batch(batch)
                batch += 1
        except ConcurrentRunError as error:
            world.trace("run ended", self.process.name, str(error))
        except KafkaDirectError as error:
            world.trace("run failed", self.process.name, batch, type(error).__name__, str(error)[:160])
            self._check_failure(batch, error)
        finally:  # also if the process dies
            self.query.driver_ended(self)

    def run_restored(self) -> None:
        """Run the last batch again, which has other content and must be rejected."""
        try:
            with self.query.environment.world.operation():
                self._run_batch(len(self.query.batches) - 1)
        except TransactionStateError:
            return
        except KafkaDirectError as error:
            self.query.notes.append(f"a restored batch fails though no fault is left: {error!r}")
        except ConcurrentRunError:
            self.query.notes.append("a batch with other content than the one that was written is not rejected")

    def _run_batch(self, batch: int) -> None:
        pool = self.query.environment.pool(self.process)
        self._pause(batch, "plan")
        self._committer.prepare(pool)
        ticket = self._committer.append_ticket(pool)
        self.ticket, self.query.newest_ticket = ticket.offset, max(ticket.offset, self.query.newest_ticket)
        task = dataclasses.replace(self._task, ticket=ticket)
        self._pause(batch, "tasks")
        messages = self._run_tasks(batch, task)
        self._pause(batch, "commit")
        committing = self.query.committing.setdefault(batch, set())
        committing.add(self.number)
        fencing = FencingCheck(self.query.environment, self.process, self.query.id, self.ticket)
        try:
            report = self._committer.commit(messages, batch, pool)
        except KafkaDirectError as error:
            if is_certain(error):
                self.query.denied.add(self.ticket)
            fencing.check()
            self._committer.abort(messages)
            raise
        if report is not None:
            self.query.reports[batch] = report
        elif committing == {self.number}:
            raise ViolationError(f"batch {batch} was not committed before, but the commit reports that it was")
        self._pause(batch, "commit log")
        if batch in self.query.commit_log:
            raise ConcurrentRunError(f"batch {batch} has an entry in the commit log")
        self.query.commit_log[batch] = self.run_id
        self.query.environment.world.trace("batch committed", self.process.name, batch)

    def _pause(self, batch: int, step: str) -> None:
        for run, paused_batch, paused_step, seconds in self.query.parameters["pauses"]:
            if (run, paused_batch, paused_step) == (self.number, batch, step):
                self.query.environment.world.trace("paused", self.process.name, batch, step, seconds)
                self.query.paused(self.process)
                self.process.sleep(seconds)

    def _run_tasks(self, batch: int, task: StagingWriteTask) -> list[StagedCommitMessage]:
        rows = self.query.rows(batch)
        parallelism = self.query.parameters["parallelism"]
        count = parallelism[self.number % len(parallelism)]
        size = -(-len(rows) // count) or 1
        tasks = [_TaskSet(self, batch, index, rows[index * size : (index + 1) * size], task) for index in range(count)]
        for task_set in tasks:
            task_set.start_attempt()
            if batch in self.query.parameters["speculated"]:
                task_set.start_attempt()
        return [task_set.result(self.process) for task_set in tasks]

    def _check_failure(self, batch: int, error: KafkaDirectError) -> None:
        query = self.query
        if isinstance(error, TransactionStateError):
            if "Another query uses this" in str(error):
                query.rejection = error
                if not query.parameters["shares_prefix"]:
                    query.notes.append(f"no other query has the prefix, but the batch is rejected: {error}")
            elif self.ticket == query.newest_ticket and "has superseded this run" in str(error):
                # A driver that was started earlier may plan later: then that one continues, and this one ends.
                query.notes.append(f"the run that planned last is superseded: {error}")
            elif "there is no sink state record" in str(error) and is_calm(query.environment):
                query.notes.append(f"the run does not find the state of the last batch: {error}")
        elif "does not directly follow what was read" in str(error) and is_calm(query.environment):
            query.notes.append(f"batch {batch} fails because of a leader that was replaced, and none was: {error!r}")
        elif self.is_newest and self.started_at > query.environment.quiet_at + 200:
            query.notes.append(f"batch {batch} fails though no fault is left: {error!r}")


class _TaskSet:
    """The attempts of one task; the first that succeeds counts."""

    def __init__(
        self, driver: SinkDriver, batch: int, index: int, rows: Sequence[SinkRow], task: StagingWriteTask
    ) -> None:
        self._driver = driver
        self._batch = batch
        self._index = index
        self._rows = rows
        self._task = task
        self._attempts = 0
        self._running = 0
        self._last_error: KafkaDirectError | None = None
        self._result: Future[StagedCommitMessage] = Future()

    def start_attempt(self) -> None:
        attempt = self._attempts
        self._attempts += 1
        self._running += 1
        executor = self._driver.query.executor((self._index + attempt) % 2)
        executor.spawn(f"task {self._batch}.{self._index}.{attempt}", partial(self._run_attempt, executor, attempt))

    def result(self, process: SimulatedProcess) -> StagedCommitMessage:
        process.wait_for_future(self._result, None)
        return self._result.result(0)

    def _run_attempt(self, executor: SimulatedProcess, attempt: int) -> None:
        driver = self._driver
        context = WriteTaskContext(
            self._index,
            attempt,
            query_id=driver.query.id,
            batch_id=self._batch,
            run_id=driver.run_id,
            offsets_digest=f"{driver.query.name} {self._batch}{driver.content}",
        )
        try:
            with driver.query.environment.world.operation():
                message = self._task.write(
                    iter([_arrow_rows(self._rows)]), context, driver.query.environment.pool(executor)
                )
            if not self._result.done():
                self._result.set_result(message)
        except KafkaDirectError as error:
            self._last_error = error
        finally:  # also if the executor dies
            self._running -= 1
            self._attempt_ended()

    def _attempt_ended(self) -> None:
        if self._result.done() or self._running or self._driver.process.dead:
            return
        if self._attempts < _TASK_ATTEMPTS:
            self._driver.query.environment.world.after(0.1, self.start_attempt)
        else:
            error = self._last_error or KafkaDirectError("all executors of a task were lost")
            self._result.set_exception(error)


def _arrow_rows(rows: Sequence[SinkRow]) -> pa.RecordBatch:
    attributes = [attributes_of(row.value) for row in rows]
    headers = [[{"key": key.decode(), "value": value} for key, value in each.headers] or None for each in attributes]
    columns = {
        "value": pa.array([row.value for row in rows], pa.binary()),
        "partition": pa.array([row.partition.partition for row in rows], pa.int32()),
        "key": pa.array([each.key for each in attributes], pa.binary()),
        "headers": pa.array(headers, HEADERS),
        "timestamp": pa.array([1000 * each.timestamp for each in attributes], pa.timestamp("us")),
        "topic": pa.array([row.partition.topic for row in rows], pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)
