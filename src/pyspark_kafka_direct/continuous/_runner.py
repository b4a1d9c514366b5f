"""Leads a continuous query from run to run: each goes on where the last whole epoch ended."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.util import inheritable_thread_target

from pyspark_kafka_direct.continuous._coordinator import RunTimes
from pyspark_kafka_direct.continuous._progress import progress
from pyspark_kafka_direct.continuous._run import Run, RunOrder
from pyspark_kafka_direct.continuous._seams import TaskPlan
from pyspark_kafka_direct.continuous._watch import Watch
from pyspark_kafka_direct.errors import (
    KafkaDirectError,
    OptionError,
    RunFailedError,
    TaskStartError,
    TopicNotFoundError,
    TransientBrokerError,
)
from pyspark_kafka_direct.planning.epochs import Restarts, assign
from pyspark_kafka_direct.planning.restarts import final, pause_before
from pyspark_kafka_direct.planning.run_start import StartPlanner, StartTuning
from pyspark_kafka_direct.planning.slots import most_tasks
from pyspark_kafka_direct.runtime.live_view import LiveView
from pyspark_kafka_direct.runtime.query_commits import GroupCommits
from pyspark_kafka_direct.wire.groups import Group
from pyspark_kafka_direct.wire.system import SYSTEM, System

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.continuous._logs import Logs
    from pyspark_kafka_direct.continuous._query_state import QueryState
    from pyspark_kafka_direct.continuous._seams import Delivery
    from pyspark_kafka_direct.continuous._task_channel import ControlAddress
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.epochs import Assignment, EpochResult
    from pyspark_kafka_direct.runtime.query_commits import RunCommits
    from pyspark_kafka_direct.settings.continuous import RunSettings
    from pyspark_kafka_direct.settings.source import ContinuousOptions

_log = logging.getLogger("pyspark_kafka_direct.continuous")

_TRIES: Final = 3  # how often brokers are asked before something is believed to be gone
_LOOKS: Final = 5  # how often partitions may change while a run is prepared
_SECONDS_TO_COMMIT: Final = 1.0
_SECONDS_TO_BROKERS: Final = 1.0  # until they are asked again, which takes long itself while they are gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a query does.

    Attributes:
        reading: What it reads.
        columns: The columns of a record.
        function: What is made of each batch; ``None`` for the batch itself.
        delivery: How its output is delivered.
    """

    reading: ContinuousOptions
    columns: tuple[str, ...]
    function: Callable[[pa.RecordBatch], pa.RecordBatch | None] | None
    delivery: Delivery


@dataclass(frozen=True, slots=True)
class _Begin:
    assignment: Assignment
    offsets: Mapping[TopicPartition, int]
    epoch: int


class Runner:
    """Runs one query; ``lead`` in a thread of its own, with the local properties of the thread that made it.

    Args:
        spark: Where it runs.
        work: What it does.
        settings: How it runs.
        logs: Its logs.
        state: Is told what happens.
        system: The world outside.
    """

    def __init__(
        self,
        spark: SparkSession,
        work: Work,
        settings: RunSettings,
        logs: Logs,
        state: QueryState,
        system: System = SYSTEM,
    ) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        self._inherit = inheritable_thread_target(spark)(lambda: None)
        self._work = work
        self._settings = settings
        self._logs = logs
        self._state = state
        self._system = system
        reading = work.reading
        self._view = LiveView(reading, _log)
        tuning = StartTuning(
            start=reading.start,
            fail_on_data_loss=reading.fail_on_data_loss,
            read_committed=reading.fetch.isolation_level == "read_committed",
            tries=reading.fetch_tries or _TRIES,
        )
        self._planner = StartPlanner(tuning, self._view)
        self._group = self._commits() if reading.commit_group_id is not None else None
        self._restarts = Restarts(settings.max_restarts, settings.restart_window)
        self._before_failure = self._restarts
        self._assignment: Assignment = ()
        self._logged: Mapping[TopicPartition, int] = {}
        self._watch: Watch | None = None
        self._began = 0.0
        self._has_started = False
        self._waits_for_brokers = False
        self._writes: int | None = None

    def lead(self) -> None:
        """Run the query to its end, and tell the state how it ended."""
        error: KafkaDirectError | None = None
        try:
            self._inherit()
            for warning in self._work.reading.warnings:
                self._view.warn(warning)
            while not self._state.stopping:
                try:
                    self._run_once()
                except Exception as failure:
                    self._after(failure)
        except KafkaDirectError as failure:
            error = failure
        except BaseException as failure:
            error = RunFailedError(f"The query has failed with {type(failure).__name__}: {failure}")
            error.__cause__ = failure
        finally:
            if self._group is not None:
                self._group[0].wait(_SECONDS_TO_COMMIT)
            self._state.end(error)

    def _after(self, failure: Exception) -> None:
        """Wait before the next run, or raise what ends the query."""
        if self._state.stopping:
            raise failure
        end = final(failure)
        if end is not None:
            raise end
        if self._writes is not None:
            # Whatever a next run would write, this write may come in between.
            _log.warning("The query does not start again: epoch %d is still being written.", self._writes)
            raise failure
        if isinstance(failure, TaskStartError | TopicNotFoundError) and not self._has_started:
            raise failure
        if self._context._jsc is None or self._context._jsc.sc().isStopped():
            raise RunFailedError("The SparkContext was stopped, and the query with it.") from failure
        now = self._system.monotonic()
        self._before_failure = self._restarts
        after = self._restarts.after_failure(now)
        if after is None:
            raise failure
        self._restarts = after
        pause = pause_before(len(after.failures))
        _log.warning(
            "The query starts again in %g s, for the %d. time of at most %d within %g s, at the last epoch that is "
            "committed: %s",
            pause,
            len(after.failures),
            after.most,
            after.seconds,
            failure,
        )
        self._state.tell("Waiting to start again", active=False)
        self._state.wait_for_stop(pause)

    def _run_once(self) -> None:
        if not self._waits_for_brokers:  # else the status says why nothing begins
            self._state.tell("Initializing the run", active=False)
        try:
            begin = self._prepare()
        except TransientBrokerError as error:
            if not self._has_started:
                raise
            # Nothing has begun that could fail: this is one long outage, as it is to tasks that only read.
            self._wait_for_brokers(error)
            return
        self._waits_for_brokers = False
        if not begin.assignment:
            self._state.tell("Waiting for topic-partitions", active=False)
            self._state.wait_for_stop(self._settings.discovery_interval)
            return
        run = self._run(begin)
        watch = self._watch = Watch(
            LiveView(self._work.reading, _log),
            begin.offsets.keys(),
            self._settings.discovery_interval,
            run.stop,
            self._system,
        )
        watch.latest = self._planner.latest
        self._began = self._system.monotonic()
        try:
            with self._state.running(run.stop):
                self._state.tell("Starting tasks", active=False)
                watch.start()
                run.run()
        finally:
            self._has_started = self._has_started or run.started
            watch.close()
            run.close()

    def _wait_for_brokers(self, error: TransientBrokerError) -> None:
        level = logging.INFO if self._waits_for_brokers else logging.WARNING
        _log.log(level, "The query waits for the brokers, and starts again when they can be asked: %s", error)
        self._waits_for_brokers = True
        self._state.tell(f"Waiting for the brokers: {error}", active=False)
        self._state.wait_for_stop(_SECONDS_TO_BROKERS)

    def _run(self, begin: _Begin) -> Run:
        try:
            return Run(self._spark, self._order(begin), self._on_epoch, self._system)
        except OptionError as error:
            if not self._has_started:
                raise
            # The port was right before: what has it now may go away again.
            raise RunFailedError(error.message) from error

    def _prepare(self) -> _Begin:
        """Decide what the next run does: settle the logs, and look what there is to read."""
        ended = self._ended()
        partitions = self._view.assigned(strict=False).partitions  # first() is strict, and patient
        for _ in range(_LOOKS):
            assignment = assign(partitions, self._settings.tasks_max, self._assignment)
            self._check_cores(len(assignment))
            self._work.delivery.prepare(self._state.about.id, partitions, len(assignment))
            state = self._logs.state()
            reached = self._work.delivery.reached(state)
            self._planner.forget(reached or ())
            settlement = self._logs.settle(reached, self._now_ms(), state)
            epoch, ended = settlement.next_epoch, settlement.begin
            offsets = self._planner.first() if ended is None else self._planner.resume(ended)
            if offsets.keys() == set(partitions):
                break
            partitions = frozenset(offsets)
        else:
            raise RunFailedError("The query's topic-partitions change faster than a run of it can be prepared.")
        if ended is None:
            self._logs.start(offsets, self._now_ms())
            self._planner.keep(self._planner.found_ids)
            epoch = 1
        elif offsets and offsets != ended:  # an end without partitions would forget where the others were (SPARK-41375)
            # What is known now, nobody could find out later: of a topic that was created anew for instance.
            self._logs.commit(epoch, offsets, self._now_ms())
            self._planner.keep(self._planner.found_ids)
            epoch += 1
            if any(offsets.get(tp) != offset for tp, offset in ended.items()):
                self._restarts = self._before_failure  # that is why the last run failed
        elif offsets:
            self._planner.keep(self._planner.found_ids)
        self._assignment, self._logged = assignment, offsets
        self._state.go_on(offsets)
        return _Begin(assignment, offsets, epoch)

    def _ended(self) -> Mapping[TopicPartition, int] | None:
        state = self._logs.state()
        return None if state.committed is None else self._logs.entry(state.committed).offsets

    def _check_cores(self, tasks: int) -> None:
        jvm = self._context._jvm
        processors = int(jvm.java.lang.Runtime.getRuntime().availableProcessors()) if jvm is not None else 1
        conf = self._context.getConf()
        most = most_tasks(self._context.master or "", conf.get, processors)
        if most is not None and tasks > most:
            raise OptionError(
                f"The query reads {tasks} topic-partitions by as many tasks, which all run at the same time, and needs "
                f"{tasks} cores; the application can never run more than {most} tasks at once. Give it more cores, or "
                f"set tasksMax to {most} or less."
            )

    def _order(self, begin: _Begin) -> RunOrder:
        settings, work, about = self._settings, self._work, self._state.about

        def plan(address: ControlAddress) -> TaskPlan:
            return TaskPlan(
                address=address,
                query_id=about.id,
                connection=work.reading.connection,
                fetch=work.reading.fetch,
                columns=work.columns,
                topic_ids=self._planner.found_ids,
                fail_on_data_loss=work.reading.fail_on_data_loss,
                max_record_batch_bytes=work.reading.max_record_batch_bytes,
                function=work.function,
                sink=work.delivery.sink(),
                start_timeout=settings.task_start_timeout,
                mark_timeout=settings.mark_timeout,
            )

        return RunOrder(
            description=f"continuous query {about.name or about.id}",
            assignment=begin.assignment,
            offsets=begin.offsets,
            epoch=begin.epoch,
            shares_numbers=work.delivery.shares_numbers,
            times=RunTimes(settings.epoch_interval, settings.task_start_timeout, settings.epoch_timeout),
            port=settings.control_port,
            plan=plan,
        )

    def _on_epoch(self, result: EpochResult) -> None:
        self._writes = result.epoch
        try:
            self._write(result)
        finally:
            self._writes = None

    def _write(self, result: EpochResult) -> None:
        """Write an epoch down. One in which nothing moved is not worth two files."""
        before = self._logged
        if result.offsets == before:
            self._planner.keep(result.anew)
            trouble = self._watch.trouble if self._watch is not None else None
            said = "Waiting for data to arrive" if trouble is None else f"Waiting for the brokers: {trouble}"
            self._state.tell(said, active=True)
            self._began = self._system.monotonic()
            return
        now = self._system.monotonic()
        self._logs.commit(result.epoch, result.offsets, self._now_ms())
        self._logged = result.offsets
        self._planner.keep(result.anew)
        done = self._system.monotonic()
        if self._group is not None:
            self._group[1].offer(result.offsets)
        told = progress(
            self._state.about,
            result,
            before=before,
            latest=self._watch.latest if self._watch is not None else {},
            at=self._system.wall_time(),
            seconds=now - self._began,
            commit_ms=(done - now) * 1000,
        )
        self._began = now
        self._state.tell("Processing new data", active=True, data=True)
        self._state.add(told, result.offsets)
        self._logs.purge(result.epoch)

    def _commits(self) -> tuple[GroupCommits, RunCommits]:
        group_id = self._work.reading.commit_group_id or ""
        commits = GroupCommits(group_id, _log, self._system)
        return commits, commits.of_run(lambda: Group(self._view.cluster, group_id))

    def _now_ms(self) -> int:
        return int(self._system.wall_time() * 1000)
