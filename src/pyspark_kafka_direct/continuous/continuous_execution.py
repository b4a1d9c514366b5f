"""Runs a continuous query: each run resumes at the end of the last committed epoch. Spark: ``ContinuousExecution``."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pyspark.util import inheritable_thread_target

from pyspark_kafka_direct.client.connection_pool import POOL, ConnectionPool
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.client.deadline import Backoff, Deadline
from pyspark_kafka_direct.client.security.token_login import wait_for_token
from pyspark_kafka_direct.continuous.continuous_epochs import (
    RestartBudget,
    assign_partitions,
    final_error,
)
from pyspark_kafka_direct.continuous.continuous_start_planner import ContinuousStartPlanner
from pyspark_kafka_direct.continuous.continuous_task import TaskPlan
from pyspark_kafka_direct.continuous.epoch_coordinator import RunPlan, RunStart
from pyspark_kafka_direct.continuous.partition_discovery import PartitionDiscovery
from pyspark_kafka_direct.continuous.query_run import QueryRun, new_id
from pyspark_kafka_direct.continuous.query_state import epoch_progress
from pyspark_kafka_direct.continuous.task_slots import max_concurrent_tasks
from pyspark_kafka_direct.errors import (
    CheckpointFencedError,
    KafkaDirectError,
    OptionError,
    ProducerFencedError,
    QueryRunError,
    TaskStartTimeoutError,
    TopicNotFoundError,
    TransientBrokerError,
)
from pyspark_kafka_direct.options.security_settings import TOKENS, Secret
from pyspark_kafka_direct.spark.kafka_offset_reader import KafkaOffsetReader
from pyspark_kafka_direct.spark.offset_committer import GroupOffsetCommitter
from pyspark_kafka_direct.spark.query_reports import BatchReport, QueryReporter, session_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.continuous.checkpoint_logs import CheckpointLogs, RecoveryPlan
    from pyspark_kafka_direct.continuous.continuous_epochs import EpochResult, TaskAssignment
    from pyspark_kafka_direct.continuous.control_socket import ControlAddress
    from pyspark_kafka_direct.continuous.map_function import MapFunction
    from pyspark_kafka_direct.continuous.query_state import QueryState
    from pyspark_kafka_direct.continuous.sink_delivery import SinkDelivery
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.continuous_query import ContinuousSettings
    from pyspark_kafka_direct.options.security_settings import DelegationTokenLogin
    from pyspark_kafka_direct.options.settings import ReadSettings
    from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns
    from pyspark_kafka_direct.spark.offset_committer import RunOffsetCommitter

_log = logging.getLogger("pyspark_kafka_direct.continuous")

_MAX_PREPARE_ATTEMPTS: Final = 5  # partitions may change while a run is prepared
_GROUP_COMMIT_WAIT_SECONDS: Final = 1.0
_BROKER_RETRY_SECONDS: Final = 1.0
_CORES_RETRY_SECONDS: Final = 1.0
_RESTART_BACKOFF: Final = Backoff(0.1, 10.0)
_STARTING_TASKS: Final = "Starting tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDefinition:
    read_settings: ReadSettings
    columns: tuple[str, ...]
    decoded: DecodedColumns | None  # None: keys and values are bytes
    functions: tuple[MapFunction, ...]  # none: write the records unchanged
    delivery: SinkDelivery
    token_logins: frozenset[DelegationTokenLogin] = frozenset()  # of the tasks


class ContinuousExecution:
    """Runs one query. Call ``run`` in its own thread; it inherits the local properties of the creating thread."""

    def __init__(
        self,
        spark: SparkSession,
        definition: QueryDefinition,
        settings: ContinuousSettings,
        logs: CheckpointLogs,
        *,
        state: QueryState,
        pool: ConnectionPool = POOL,
    ) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        # Called in the query's thread, it copies the local properties that this thread has now.
        self._inherit_properties = inheritable_thread_target(spark)(lambda: None)
        self._definition = definition
        self._settings = settings
        self._logs = logs
        self._state = state
        self._pool = pool
        self._system = system = pool.system
        read_settings = definition.read_settings
        self._offset_reader = KafkaOffsetReader(read_settings, _log, pool)
        self._planner = ContinuousStartPlanner(read_settings, self._offset_reader, definition.delivery.reselected_start)
        self._group_committer: GroupOffsetCommitter | None = None  # None without commitGroupId
        self._group_commits: RunOffsetCommitter | None = None
        if (group_id := read_settings.source.commit_group_id) is not None:
            self._group_committer = GroupOffsetCommitter(group_id, _log, system)
            self._group_commits = self._group_committer.for_run(
                lambda: ConsumerGroup(self._offset_reader.cluster, group_id)
            )
        self._restart_budget = RestartBudget(settings.max_restarts, settings.restart_window)
        self._budget_before_failure = self._restart_budget  # applies if changed partitions explain the last failure
        self._assignment: TaskAssignment = ()  # of the last run
        self._committed_offsets: Mapping[TopicPartition, int] = {}  # of the run's last epoch, at first of its start
        self._discovery: PartitionDiscovery | None = None  # of the run
        self._serials_of_tasks: set[tuple[str, int]] = set()  # of the delegation tokens
        self._epoch_started_at = 0.0
        info = state.query_info
        self._reporter = QueryReporter(info.id, info.run_id, info.name, session_id(spark))
        self._any_run_started = False  # all tasks of a run have connected
        self._is_waiting_for_brokers = False
        self._starting_status = _STARTING_TASKS
        self._epoch_being_committed: int | None = None  # by the committer's thread, which may hang

    def run(self) -> None:
        """Run the query until it ends, and report its end to the state."""
        error: KafkaDirectError | None = None
        try:
            self._run_until_stopped()
        except KafkaDirectError as failure:
            error = failure
        except BaseException as failure:
            error = QueryRunError(f"The query failed with {type(failure).__name__}: {failure}")
            error.__cause__ = failure
        finally:
            if self._group_committer is not None:
                self._group_committer.wait(_GROUP_COMMIT_WAIT_SECONDS)
            self._reporter.ended(failed=error is not None)
            self._state.end(error)

    def _run_until_stopped(self) -> None:
        self._inherit_properties()
        self._reporter.started()
        for warning in self._definition.read_settings.warnings:
            self._offset_reader.warn(warning)
        while not self._state.stopping:
            try:
                self._run_once()
            except Exception as failure:
                self._handle_failure(failure)

    def _handle_failure(self, failure: Exception) -> None:
        """Wait before the next run, or raise the error that ends the query."""
        final_failure = final_error(failure)
        if final_failure is not None:
            raise final_failure
        if self._state.stopping:  # there is no next run
            raise failure
        if self._epoch_being_committed is not None:
            # The pending commit could interleave with the commits of the next run.
            _log.warning(
                "The query does not restart because the commit of epoch %d is still in flight.",
                self._epoch_being_committed,
            )
            raise failure
        if isinstance(failure, TaskStartTimeoutError | TopicNotFoundError) and not self._any_run_started:
            raise failure  # too few cores, or a mistake in a topic's name: the user has to change that
        if _is_fenced(failure):
            self._check_control(failure)
        if self._context._jsc is None or self._context._jsc.sc().isStopped():
            raise QueryRunError("The query ended because the SparkContext was stopped.") from failure
        if isinstance(failure, TaskStartTimeoutError):
            # Other jobs have taken the cores during a restart. That is no failure of the query, and nothing was fenced.
            self._wait_for_cores(failure)
        else:
            self._wait_to_restart(failure)

    def _wait_for_cores(self, failure: TaskStartTimeoutError) -> None:
        _log.warning("The query waits for cores: %s", failure)
        self._starting_status = f"Waiting for cores: {failure}"
        self._state.set_status(self._starting_status, active=False)
        self._state.wait_for_stop(_CORES_RETRY_SECONDS)

    def _wait_to_restart(self, failure: Exception) -> None:
        """Wait before a restart, or raise the failure if it exceeds ``maxRestarts``."""
        self._budget_before_failure = self._restart_budget
        remaining_budget = self._restart_budget.after_failure(self._system.monotonic())
        if remaining_budget is None:
            raise failure
        self._restart_budget = remaining_budget
        pause = _RESTART_BACKOFF.pause(len(remaining_budget.failures) - 1, self._system)
        _log.warning(
            "The query restarts from the last committed epoch in %.1f s (restart %d of at most %d within %g s): %s",
            pause,
            len(remaining_budget.failures),
            remaining_budget.max_restarts,
            remaining_budget.window_seconds,
            failure,
        )
        self._state.set_status("Waiting to restart", active=False)
        self._state.wait_for_stop(pause)

    def _check_control(self, failure: Exception) -> None:
        """Raise ``CheckpointFencedError`` if it was another driver of this query that fenced the tasks."""
        try:
            self._logs.fencing_log.check_newest()
        except CheckpointFencedError as error:
            raise error from failure
        except Exception as error:  # the next run checks it again
            _log.info("Cannot read which driver controls the query: %s", error)

    def _run_once(self) -> None:
        """Run tasks until one fails, partitions change or the query is stopped; wait if there is nothing to run."""
        if not self._is_waiting_for_brokers:  # otherwise the status shows the broker error
            self._state.set_status("Initializing the run", active=False)
        try:
            partitions = self._offset_reader.assigned(strict=False).partitions
            tasks = self._task_count(len(partitions))
            self._definition.delivery.check(self._state.query_info.id)
            # Read this last: if another driver has started the query during the requests above, it is not new any more.
            # Planning its start would fence that driver.
            committed = self._logs.state().committed
            committed_offsets = None if committed is None else self._logs.offset_entry(committed).offsets
            self._is_waiting_for_brokers = False
            if tasks:
                self._run_tasks(tasks)
            else:
                self._wait_for_partitions(committed_offsets)
        except TransientBrokerError as error:
            if not self._any_run_started:
                raise  # the address may be wrong, so the number of attempts is limited
            # No task is reading, so waiting replaces a restart. Running tasks also wait for brokers.
            self._wait_for_brokers(error)

    def _wait_for_partitions(self, committed_offsets: Mapping[TopicPartition, int] | None) -> None:
        if committed_offsets is None:
            self._plan_run(tasks=0)  # commits the start of a new query
        else:  # only report lost partitions: another driver may be allowed to read the topics
            self._planner.resume_offsets(committed_offsets)
        self._state.set_status("Waiting for topic-partitions", active=False)
        self._state.wait_for_stop(self._settings.discovery_interval)

    def _run_tasks(self, tasks: int) -> None:
        run = self._create_run(tasks)
        self._discovery = None  # until `_prepare_run`
        try:
            with self._state.calling_on_stop(run.stop):
                self._state.set_status(self._starting_status, active=False)
                try:
                    run.run()
                finally:
                    self._state.set_status("Waiting for the end of the tasks", active=False)
                    run.wait_until_tasks_end(lambda: self._state.stopping)
        finally:
            self._any_run_started = self._any_run_started or run.started
            if self._discovery is not None:
                self._discovery.close()
            run.close()

    def _prepare_run(self, tasks: int, end_run: Callable[[], None]) -> RunStart | None:
        """Plan a run whose tasks have connected, and discover changes of its partitions from now on."""
        self._starting_status = _STARTING_TASKS  # the query no longer waits for cores
        self._state.set_status("Preparing the run", active=False)
        planned = self._plan_run(tasks)
        if planned is None:
            return None
        start, partitions = planned
        discovery = self._discovery = PartitionDiscovery(
            KafkaOffsetReader(self._definition.read_settings, _log, self._pool),
            partitions,
            self._settings.discovery_interval,
            end_run,
            self._system,
            is_token_replaced=lambda: self._token_serials() != self._serials_of_tasks,
        )
        discovery.latest = self._planner.latest  # until its first check
        discovery.start()
        self._epoch_started_at = self._system.monotonic()
        return start

    def _wait_for_brokers(self, error: TransientBrokerError) -> None:
        level = logging.INFO if self._is_waiting_for_brokers else logging.WARNING
        _log.log(level, "The query waits until it can reach the brokers: %s", error)
        self._is_waiting_for_brokers = True
        self._state.set_status(f"Waiting for the brokers: {error}", active=False)
        self._state.wait_for_stop(_BROKER_RETRY_SECONDS)

    def _token_serials(self) -> set[tuple[str, int]]:
        """Return which delegation tokens the tasks of a new run get."""
        states = {login.cluster: TOKENS.state(login) for login in self._definition.token_logins}
        return {(cluster, state.token.serial) for cluster, state in states.items() if state.token is not None}

    def _create_run(self, tasks: int) -> QueryRun:
        connect_seconds = self._definition.read_settings.connection.connect_timeout_ms / 1000
        for login in self._definition.token_logins:  # that of a sink was not used yet
            wait_for_token(login, Deadline.after(connect_seconds, system=self._system))
        self._serials_of_tasks = self._token_serials()  # before the job is pickled with the tokens
        run_plan = RunPlan(
            run=new_id(self._system),
            secret=Secret(self._system.nonce()),
            tasks=tasks,
            prepare=lambda end_run: self._prepare_run(tasks, end_run),
            coalesces_epochs=self._definition.delivery.coalesces_epochs,
        )
        query_info = self._state.query_info
        description = f"continuous query {query_info.name or query_info.id}"
        try:
            return QueryRun(
                self._spark,
                run_plan,
                self._settings,
                create_task_plan=partial(self._create_task_plan, tasks),
                description=description,
                on_epoch=self._on_epoch,
                system=self._system,
            )
        except OptionError as error:  # the driver cannot listen on `controlPort`
            if not self._any_run_started:
                raise
            # The driver used the port before, so another process may release it again: restart.
            raise QueryRunError(error.message) from error

    def _plan_run(self, tasks: int) -> tuple[RunStart, Collection[TopicPartition]] | None:
        """Fence other drivers, recover the logs, and plan the next run; ``None`` if there is nothing to read.

        ``tasks`` is 0 if there were no partitions: then this only commits the start of a new query. The result has the
        run and all partitions that exist; a run that reads a planned epoch again may read only some of them.
        """
        # Missing topics are no error here: initial_offsets() waits for them, and resume_offsets() reports them as lost.
        partitions = self._offset_reader.assigned(strict=False).partitions
        if partitions and not tasks:
            return None  # they were created just now, and a run needs cores before it fences others
        for _ in range(_MAX_PREPARE_ATTEMPTS):
            self._definition.delivery.prepare(self._state.query_info.id, partitions, tasks)
            recovery = self._recover_logs()
            epoch, committed_offsets = recovery.next_epoch, recovery.start
            if committed_offsets is None:
                offsets = self._planner.initial_offsets()
            else:
                offsets = self._planner.resume_offsets(committed_offsets)
            if offsets.keys() != set(partitions):
                partitions = frozenset(offsets)
                continue  # transactions may have committed offsets of the other partitions: prepare with these
            if recovery.planned_end is None or not tasks:
                break
            start = self._replan_epoch(tasks, epoch, offsets, recovery.planned_end)
            if start is not None:
                return start, offsets.keys()
            # No record of the planned epoch exists, and it is committed now: recover again, from its end.
        else:
            raise QueryRunError("The query's topic-partitions change faster than a run can be prepared.")
        if committed_offsets is None:
            self._logs.commit_start(offsets, self._now_ms())
            self._planner.retain_topic_ids(self._planner.current_topic_ids)
            epoch = 1  # the start is epoch 0
        if not offsets or not tasks:
            # An entry without partitions is not written because it would lose the offsets of the deleted ones
            # (SPARK-41375).
            return None
        if committed_offsets is not None:
            epoch = self._commit_partition_changes(epoch, committed_offsets, offsets)
        return self._start_at(tasks, epoch, offsets), offsets.keys()

    def _recover_logs(self) -> RecoveryPlan:
        """Complete the logs of the last run; for offsets of its transactions, use the topic ids of these."""
        state, delivery = self._logs.state(), self._definition.delivery
        offsets_ahead = delivery.offsets_ahead(state)
        self._planner.replace_topic_ids({tp: delivery.topic_ids.get(tp.topic) for tp in offsets_ahead or ()})
        return self._logs.recover(offsets_ahead, self._now_ms(), state)

    def _commit_partition_changes(
        self, epoch: int, committed_offsets: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int]
    ) -> int:
        """Commit an epoch without records if the partitions or their logs have changed; return the next epoch."""
        if offsets != committed_offsets:
            # Such a change could not be detected later: the log of a recreated topic may have grown by then.
            self._definition.delivery.commit_offsets(epoch, offsets, self._planner.current_topic_ids)
            self._logs.commit(epoch, offsets, self._now_ms())
            epoch += 1
        self._planner.retain_topic_ids(self._planner.current_topic_ids)
        if any(offsets.get(tp) != offset for tp, offset in committed_offsets.items()):
            self._restart_budget = self._budget_before_failure  # the last run failed because of this change
        return epoch

    def _start_at(
        self,
        tasks: int,
        epoch: int,
        offsets: Mapping[TopicPartition, int],
        end_offsets: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> RunStart:
        assignment = assign_partitions(offsets.keys(), tasks, self._assignment)
        idle_tasks = ((),) * (tasks - len(assignment))
        self._assignment = (*assignment, *idle_tasks)
        self._committed_offsets = offsets
        self._state.set_offsets(offsets)
        return RunStart(
            assignment=self._assignment,
            offsets=offsets,
            epoch=epoch,
            end_offsets=end_offsets,
            topic_ids=self._planner.current_topic_ids,
            producers=self._definition.delivery.producers,
        )

    def _replan_epoch(
        self,
        tasks: int,
        epoch: int,
        start_offsets: Mapping[TopicPartition, int],
        planned_end: Mapping[TopicPartition, int],
    ) -> RunStart | None:
        """Plan a run that reads an epoch again up to its planned end, as far as the records exist.

        Commit the epoch and return ``None`` if no record exists.
        """
        # The planned end, or where a truncated log ends before it. Reports what is lost, and sets the topic ids for
        # `_start_at`.
        existing_ends = self._planner.resume_offsets(planned_end)
        # Only the partitions with records to read; `offsets/N` already contains the end of the others. Partitions that
        # one of the mappings lacks were added or deleted since the epoch was planned.
        from_offsets: dict[TopicPartition, int] = {}
        end_offsets: dict[TopicPartition, int] = {}
        for tp in start_offsets.keys() & planned_end.keys() & existing_ends.keys():
            end = min(planned_end[tp], existing_ends[tp])  # a recreated topic resumes at its log start, maybe later
            if start_offsets[tp] < end:
                from_offsets[tp], end_offsets[tp] = start_offsets[tp], end
        if not end_offsets:
            self._logs.commit(epoch, planned_end, self._now_ms())
            return None
        return self._start_at(tasks, epoch, from_offsets, end_offsets)

    def _task_count(self, partition_count: int) -> int:
        """Return how many tasks to run: not more than the application can ever run at once, if that is known."""
        jvm = self._context._jvm
        processors = int(jvm.java.lang.Runtime.getRuntime().availableProcessors()) if jvm is not None else 1
        slots = max_concurrent_tasks(self._context.master or "", self._context.getConf().get, processors)
        # Without a slot, a run still tries to start a task: its error says what is missing.
        limits = (self._settings.tasks_max, None if slots is None else max(slots, 1))
        return min([partition_count, *(each for each in limits if each is not None)])

    def _create_task_plan(self, tasks: int, address: ControlAddress) -> TaskPlan:
        settings, definition, rate = self._settings, self._definition, self._settings.max_records_per_second
        return TaskPlan(
            address=address,
            query_id=self._state.query_info.id,
            connection=definition.read_settings.connection,
            fetch=definition.read_settings.fetch,
            columns=definition.columns,
            decoded=definition.decoded,
            functions=definition.functions,
            max_records_per_second=None if rate is None else rate / tasks,
            writer_factory=definition.delivery.writer_factory,
            start_timeout=settings.task_start_timeout,
            heartbeat_timeout=settings.heartbeat_timeout,
        )

    def _on_epoch(self, result: EpochResult) -> None:
        self._epoch_being_committed = result.epoch
        try:
            self._commit_epoch(result)
        finally:
            self._epoch_being_committed = None

    def _commit_epoch(self, result: EpochResult) -> None:
        """Commit an epoch to the logs and report it. An epoch in which no offset moved is not written."""
        for cause, offsets in result.skipped_offsets:
            self._offset_reader.count_loss(cause, offsets)
        for records, schema_errors in result.malformed_records:
            mode = self._definition.read_settings.payloads.mode
            self._offset_reader.count_malformed(mode, records, schema_errors)
        epoch_ended_at = self._system.monotonic()
        start_offsets = self._committed_offsets
        has_progress = result.offsets != start_offsets
        if has_progress:
            self._logs.commit(result.epoch, result.offsets, self._now_ms())
            self._committed_offsets = result.offsets
        self._planner.retain_topic_ids(result.recreated_topic_ids)  # after the commit
        if has_progress:
            self._report_epoch(result, start_offsets, epoch_ended_at)
        else:
            self._report_idle_epoch()
        self._epoch_started_at = epoch_ended_at
        if has_progress:
            self._logs.purge(result.epoch)  # last, because it may fail

    def _report_idle_epoch(self) -> None:
        error = self._discovery.error if self._discovery is not None else None
        status = "Waiting for data to arrive" if error is None else f"Waiting for the brokers: {error}"
        self._state.set_status(status, active=True)
        self._reporter.idle()

    def _report_epoch(self, result: EpochResult, start_offsets: Mapping[TopicPartition, int], ended_at: float) -> None:
        """Report a committed epoch to the consumer group, the listener and the query's progress."""
        commit_seconds = self._system.monotonic() - ended_at
        seconds = ended_at - self._epoch_started_at
        if self._group_commits is not None:
            self._group_commits.commit_async(result.offsets)
        progress_report = epoch_progress(
            self._state.query_info,
            result,
            start_offsets=start_offsets,
            latest=self._discovery.latest if self._discovery is not None else {},
            ended_at=self._system.wall_time(),
            seconds=seconds,
            commit_ms=commit_seconds * 1000,
        )
        self._report_batch(result, start_offsets, seconds)
        self._state.set_status("Processing new data", active=True, has_data=True)
        self._state.add_progress(progress_report, result.offsets)

    def _report_batch(self, result: EpochResult, start: Mapping[TopicPartition, int], seconds: float) -> None:
        """Report a committed epoch to the listener of ``enable(spark)``."""
        if not self._reporter.is_monitored:
            return
        ended_ms = self._now_ms()

        def fetch_end_offsets(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
            return KafkaOffsetReader(self._definition.read_settings, _log, self._pool).high_watermarks(partitions)

        report = BatchReport(
            batch_id=result.epoch,
            source=self._state.query_info.source,
            group=self._definition.read_settings.source.commit_group_id,
            began_ms=ended_ms - seconds * 1000,
            ended_ms=ended_ms,
            rows=result.rows_read,
            start=start,
            end=result.offsets,
            fetch_end_offsets=fetch_end_offsets,
        )
        self._reporter.batch_ended(report)

    def _now_ms(self) -> int:
        return int(self._system.wall_time() * 1000)


def _is_fenced(failure: Exception) -> bool:
    """Return whether another producer has acquired a transactional id of the query."""
    if isinstance(failure, QueryRunError):
        return failure.cause_class == ProducerFencedError.__name__  # the error of a task
    return isinstance(failure, ProducerFencedError)
