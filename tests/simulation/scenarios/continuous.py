"""Continuous queries with both guarantees: crashes, zombie drivers, and changes of the topics.

An application runs the query, dies or is suspended, and another one resumes from its checkpoint. When the faults have
stopped, everything must be copied, and the output is compared with what happened to each source record.
"""

from __future__ import annotations

import json
import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.simulation.environment import Environment
from tests.simulation.errors import ViolationError
from tests.simulation.oracle import READ_COMMITTED
from tests.simulation.scenarios.checkpoint_store import CheckpointStore
from tests.simulation.scenarios.continuous_checks import OUTPUTS, Delivery, OutputChecker, PlannedStart
from tests.simulation.scenarios.continuous_cores import Cores
from tests.simulation.scenarios.continuous_draw import MAX_PAUSE, PREFIXES, draw
from tests.simulation.scenarios.continuous_endings import check_commit_group, judge_driver, seconds_until_new_partition
from tests.simulation.scenarios.continuous_logs import DriverLogs
from tests.simulation.scenarios.continuous_micro_batches import MicroBatchRun
from tests.simulation.scenarios.continuous_options import connection_options, define_query
from tests.simulation.scenarios.continuous_prefix import OtherQuery
from tests.simulation.scenarios.continuous_recovery import RecoveryRun
from tests.simulation.scenarios.continuous_reports import check_progress
from tests.simulation.scenarios.continuous_sinks import HISTORIES, UserError
from tests.simulation.scenarios.continuous_stand_in import ContinuousDriver
from tests.simulation.scenarios.continuous_strangers import Strangers
from tests.simulation.scenarios.record_truth import RecordTruth, TruthAndOracle
from tests.simulation.scenarios.record_writer import RecordWriter

from pyspark_kafka_direct.errors import DataLossError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.simulation.cluster.groups import CommittedOffset
    from tests.simulation.history import Plan
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scenarios.continuous_stand_in import JobStart
    from tests.simulation.scheduler import World

    from pyspark_kafka_direct.offsets import TopicPartition

__all__ = ["NAME", "SHRINKABLE", "draw", "run"]

NAME = "continuous"
SHRINKABLE = {
    "kills": (),
    "pauses": (),
    "stops": (),
    "cuts": (),
    "extra_drivers": (),
    "file_faults": (),
    "sink_failures": (),
    "micro_batches": (),
    "recoveries": (),
    "other_jobs": (),
    "log": (),
    "appends": (),
    "late": (),
}
_log = logging.getLogger("pyspark_kafka_direct")
_LIVENESS_SECONDS = 400.0  # after the faults have stopped
_STOP_SECONDS = 15.0
_NOTICE_SECONDS = 15.0  # until a reader has met the new leader
_POLL_SECONDS = 0.2
_MAX_DRIVERS = 60
_MAX_GROWTH = 50


def run(world: World, plan: Plan) -> None:
    history = QueryHistory(world, plan)
    HISTORIES[history.name] = history
    _log.addHandler(history.logs)
    try:
        history.run()
    finally:
        _log.removeHandler(history.logs)
        del HISTORIES[history.name]
    if history.logs.rejections:
        raise ViolationError(f"a task's report was rejected: {history.logs.rejections[0]}")


class QueryHistory:
    """One query, from its first start until it has no lag."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.name = f"{world.seed}"
        self.logs = DriverLogs(world, self.start_changed, is_calm=bool(plan.parameters.get("is_calm")))
        self._world = world
        self._parameters = parameters = plan.parameters
        self._environment = Environment(world, plan)
        self._cluster = self._environment.cluster
        oracle = self._cluster.oracle
        self._truth = truth = RecordTruth()
        self._cluster.oracle = TruthAndOracle(truth, oracle)  # type: ignore[assignment]
        faults = {number: (kind, seconds) for number, kind, seconds in parameters["file_faults"]}
        self._store = CheckpointStore(self._environment, faults, parameters.get("slow_files", (0.0, 0.0, 0.0)))
        self._store.on_pause = self._environment.network.on_pause = self._paused
        self._apply_change = self._environment.network.on_change
        self._environment.network.on_change = self._changed
        self._checker = OutputChecker(parameters, truth, oracle, self._store)
        self._writer = RecordWriter(self._environment, list(parameters["partitions"]))
        self._drivers: list[ContinuousDriver] = []
        self._judged: set[int] = set()
        self._restart_at: float | None = None
        self._skip_loss = False
        self._flushes = 0
        self.database: dict[TopicPartition, int] = {}  # positions that are stored with the rows
        self._last_append = 0.0
        self._micro_batches: MicroBatchRun | None = None
        self._micro_batch_count = 0
        self._recovery: RecoveryRun | None = None
        self._recovery_count = 0
        self._recovered: set[int] = set()  # numbers of drivers before which the checkpoint was recovered
        self._prefix = PREFIXES[0]
        self._cores = Cores(self._environment, parameters.get("cores"))
        self._shared: set[int] = set()  # numbers of drivers before which a micro-batch query has run
        self._sinks: list[SimulatedProcess] = []  # the workers of all sinks, in the order in which they were opened
        self._open_sinks: set[int] = set()
        self._is_expanded_by = math.inf  # until when a partition that was added last must be read
        self._resumed_at = 0.0  # when all suspended processes and threads run again

    def run(self) -> None:
        parameters = self._parameters
        started_at = self._environment.started_at
        for topic, count in parameters["partitions"].items():
            self._cluster.create_topic(topic, count)
        for topic in OUTPUTS[: parameters["output_topics"]]:
            self._cluster.create_topic(topic, parameters["output_partitions"])
        for batch in parameters["log"]:
            self._writer.append(batch)
        self._writer.schedule(parameters["appends"], started_at)
        for at, who, index in parameters["kills"]:
            self._world.at(started_at + at, self._kill, who, index)
        for at, who, index, seconds in parameters["pauses"]:
            self._world.at(started_at + at, self._pause, who, index, seconds)
        for at in parameters["stops"]:
            self._world.at(started_at + at, self._stop)
        for at, index in parameters["cuts"]:
            self._world.at(started_at + at, self._cut, index)
        for at, tasks, seconds in parameters.get("other_jobs", ()):
            self._world.at(started_at + at, self._cores.run_other_job, tasks, seconds)
        for at in parameters["extra_drivers"]:
            self._world.at(started_at + at, self._start_driver)
        if (failed := parameters.get("failed_offsets_file")) is not None:
            at, topic, records = failed
            self._store.fail_entry(started_at + at, partial(self._writer.append_to, topic, 0, records))
        if (cancelled_at := parameters.get("cancelled_at")) is not None:
            self._world.at(started_at + cancelled_at, self._cancel_job)
        if parameters.get("strangers"):
            Strangers(self._environment, parameters["strangers"])
        self._start_driver()
        supervisor = self._environment.process("supervisor")
        self._world.run([supervisor.spawn("watch", lambda: self._supervise(supervisor))])
        self._environment.raise_errors()
        self._world.run_for(120.0)  # zombies wake up, late requests arrive, and transactions expire
        self._checker.check()
        self._store.check_logs()
        self._check_transactions()
        self._check_ended()
        if notes := self._store.notes + self.logs.notes:
            raise ViolationError(notes[0])

    def start_changed(self, topic: str, partition: int, committed: int, start: int) -> None:
        """Note that a run has planned to start below what was committed, and let the log grow at once."""
        self._world.trace("start changed", topic, partition, committed, start)
        self._checker.planned_starts[topic, partition] = PlannedStart(start, self._world.now)
        if self._parameters.get("grows_after_report") and not self._environment.is_quiet:
            records = min(committed - start + 1, _MAX_GROWTH)
            self._world.after(0.0, self._writer.append_to, topic, partition, records)

    def _changed(self, change: Mapping[str, Any]) -> None:
        """Recreate a topic between two requests, with its first records."""
        self._apply_change(change)
        for partition in range(change["args"]["partitions"]):
            self._writer.append_to(change["args"]["topic"], partition, change["new_records"])

    # What users' functions call.

    def sleep(self, seconds: float) -> None:
        if seconds:
            self._world.current.process.sleep(seconds)

    def open_sink(self, run: str, partitions: Sequence[TopicPartition]) -> int:
        """Return the number of the sink, with which it is closed."""
        self._checker.sink_opened(run, partitions)
        self._sinks.append(self._world.current.process)
        self._open_sinks.add(len(self._sinks) - 1)
        return len(self._sinks) - 1

    def close_sink(self, number: int) -> None:
        self._open_sinks.discard(number)

    def store(
        self,
        rows: list[bytes],
        run: str,
        known: Mapping[TopicPartition, int | None],
        positions: Mapping[TopicPartition, int],
    ) -> None:
        """Store rows and positions, unless another task has moved them."""
        self.sleep(self._parameters["flush_seconds"])
        if any(self.database.get(tp) != known[tp] for tp in positions):
            raise UserError("another task has stored other positions")
        self.database.update(positions)
        self.flush(rows, run, stored=True)

    def flush(self, rows: list[bytes], run: str, *, stored: bool = False) -> None:
        parameters = self._parameters
        number = self._flushes
        self._flushes += 1
        fails = number in parameters["sink_failures"] and not self._environment.is_quiet
        if not stored:
            self.sleep(parameters["flush_seconds"])
        if not fails or stored:  # a commit may fail after it had its effect
            self._checker.deliveries += [Delivery(value, run, self._world.now) for value in rows]
            if rows:
                self._world.trace("flush", run, len(rows))
        if fails:
            raise UserError("the sink fails")

    # The operator.

    def _supervise(self, supervisor: SimulatedProcess) -> None:
        environment = self._environment
        end = environment.quiet_at + _LIVENESS_SECONDS
        late_appended = False
        while True:
            supervisor.sleep(_POLL_SECONDS)
            self._replace_drivers()
            self._note_active_driver()
            if not environment.is_quiet:
                continue
            if not late_appended:
                late_appended = True
                self._writer.schedule(self._parameters["late"], self._world.now)
                self._last_append = self._world.now + max(
                    (each["at"] for each in self._parameters["late"]), default=-1.0
                )
                for driver in self._drivers[:-1]:
                    driver.end()
            # Only one driver is meant to run. An older one may have been suspended, and an idle one does not notice.
            for driver in self._drivers[:-1]:
                if not driver.is_over:
                    driver.end()
            steady_at = max(self._last_append, self._resumed_at, environment.quiet_at) + 1.0
            is_complete = self._world.now > steady_at and self._checker.is_complete(self._topics())
            missing = self._checker.missing(self._topics())
            uncommitted = self._checker.uncommitted(self._topics())
            if self._world.now > self._is_expanded_by and (missing or uncommitted):
                raise ViolationError(f"a partition that was added is not read in time: {(missing or uncommitted)[:3]}")
            if is_complete and not missing and not uncommitted and self._drivers[-1].is_steady:
                if "brokers" in self._drivers[-1].query_status and self._world.now < end:
                    continue  # it says that it waits for them until its next search for partitions
                if self._checker.steady_at < math.inf and not self._expand():
                    break
                if self._checker.steady_at < math.inf:
                    continue
                if self._checker.has_lost and self._world.now < environment.quiet_at + _NOTICE_SECONDS:
                    continue  # without leader epochs, a reader notices only a log that is shorter than its position
                self._checker.steady_at = self._last_append = self._world.now
                self._append_everywhere()
                if self._has_intact_logs:
                    self._drivers[-1].process_all(partial(self._check_processed, self._unprocessed()))
            if self._world.now > end:
                what = "copied" if missing else "committed" if uncommitted else f"{self._drivers[-1].query_status}"
                raise ViolationError(
                    f"records are not {what} though no fault is left\n{(missing or uncommitted)[:3]}; "
                    f"{[(each.number, each.error) for each in self._drivers[-4:]]}"
                )
        self._stop_last(supervisor)
        if token := self._parameters.get("reuses_prefix"):
            self._run_other_query(supervisor, token)

    def _run_other_query(self, supervisor: SimulatedProcess, token: str) -> None:
        """Let a query with another checkpoint use the prefix of this one."""
        if not self._has_intact_logs:
            return
        parameters = {**self._parameters, "starting": "latest"}

        def create(number: int, store: CheckpointStore, token: str) -> ContinuousDriver:
            define = partial(
                define_query,
                parameters=parameters,
                history=self.name,
                topics=self._topics(),
                prefix=self._prefix,
                fails_on_loss=True,
                overrides={"resetTransactionState": token} if token else {},
            )
            on_job: Callable[..., None] = lambda *_: None  # noqa: E731
            return ContinuousDriver(self._environment, number, store, parameters, define, on_job, self._cores)

        other = OtherQuery(self._environment, self._checker, self._prefix, self._topics(), create)
        other.run(supervisor, self._append_everywhere, token.removeprefix("none"))

    def _cancel_job(self) -> None:
        """Cancel the job of the query while a call of ``processAllAvailable`` waits."""
        driver = self._drivers[-1]
        if driver.is_running and driver.query is not None and driver.query.status["isTriggerActive"]:
            driver.process_all(lambda: None)
            self._world.after(0.3, driver.cancel_by_user)

    def _end_driver(self, driver: ContinuousDriver) -> None:
        """End a driver, whose query has ended."""
        if driver.is_processing and driver.ended:
            self._store.notes.append(f"the query has ended with {driver.error!r}, and processAllAvailable waits")
        driver.end()

    def _note_active_driver(self) -> None:
        driver = self._drivers[-1]
        if driver.query is not None and not driver.is_over and driver.query.status["isTriggerActive"]:
            self._checker.active_since.setdefault(driver.number, self._world.now)

    @property
    def _has_intact_logs(self) -> bool:
        """Whether no log was truncated or replaced: otherwise a reader may be behind the end of another log."""
        return not self._truth.events and not self._checker.has_lost

    def _unprocessed(self) -> set[bytes]:
        """Return the values of visible records that are not written, or not committed."""
        uncommitted = set(self._checker.uncommitted(self._topics()))
        # What a transaction has written is visible some time after its commit.
        is_transactional = self._parameters["guarantee"] == "exactly-once"
        return uncommitted if is_transactional else uncommitted.union(self._checker.missing(self._topics()))

    def _check_processed(self, before: set[bytes]) -> None:
        """Check that the records are written and committed that ``processAllAvailable`` has to wait for."""
        if remaining := before & self._unprocessed():
            self._store.notes.append(f"processAllAvailable returns before records are committed: {sorted(remaining)}")

    def _expand(self) -> bool:
        """Add a partition with a record at the end of some histories; return whether that was done now."""
        if not self._parameters.get("expands_at_end") or self._is_expanded_by < math.inf or not self._has_intact_logs:
            return False
        topic = self._topics()[0]
        partition = len(self._cluster.topics[topic].partitions)
        self._cluster.expand_topic(topic, partition + 1)
        self._writer.append_to(topic, partition, 1)
        self._is_expanded_by = self._world.now + seconds_until_new_partition(self._parameters)
        return True

    def _append_everywhere(self) -> None:
        """Append to each partition, also to one whose log is shorter than it was."""
        for partition in range(4):
            for records in (1, 2):
                self._writer.append({"partition": partition, "records": records, "keys": 0, "transaction": None})

    def _stop_last(self, supervisor: SimulatedProcess) -> None:
        driver = self._drivers[-1]
        began = self._world.now
        if driver.query is not None and self._has_intact_logs:
            since = driver.process.wall_time() - began + self._checker.steady_at
            check_progress(driver.query.recentProgress, self._truth, self._parameters, since)
        while driver.is_processing:
            supervisor.sleep(_POLL_SECONDS)
            if self._world.now > began + _STOP_SECONDS:
                raise ViolationError("processAllAvailable does not return, although all records are committed")
        began = self._world.now
        driver.stop()
        while not driver.is_over:
            supervisor.sleep(_POLL_SECONDS)
            if self._world.now > began + 120.0:
                raise ViolationError("the query does not end after stop()")
        # A task with a slow function may notice a loss only now.
        is_loss = driver.fails_on_loss and isinstance(driver.error, DataLossError)
        if driver.error is not None and not is_loss:
            raise ViolationError(f"the query fails while it is stopped: {driver.error!r}") from driver.error
        if driver.stop_seconds is not None and driver.stop_seconds > _STOP_SECONDS:
            raise ViolationError(f"stop() takes {driver.stop_seconds:.1f} s")
        began = self._world.now
        while left := [
            *driver.leftovers(),
            *(f"sink {each}" for each in self._open_sinks if not self._sinks[each].dead),
        ]:
            supervisor.sleep(_POLL_SECONDS)
            if self._world.now > began + _STOP_SECONDS:
                raise ViolationError(f"the query has ended, and these are left: {left}")
        if self._has_intact_logs and driver.query is not None and driver.error is None:
            check_commit_group(driver.query.lastProgress, self._parameters, self._cluster)
        driver.end()

    def _check_ended(self) -> None:
        """Check that each query that has ended says so."""
        for driver in self._drivers:
            if driver.ended and driver.query is not None:
                status = driver.query.status
                if driver.query.isActive or status["isTriggerActive"] or status["isDataAvailable"]:
                    raise ViolationError(f"a query has ended, and its status is {status}")
                if driver.stop_seconds is None and driver.query.exception() is not driver.error:
                    raise ViolationError(f"a query has ended with {driver.error!r}, not {driver.query.exception()!r}")

    def _replace_drivers(self) -> None:
        for driver in self._drivers:
            if driver.is_over and driver.number not in self._judged:
                self._judged.add(driver.number)
                self._skip_loss |= judge_driver(driver, self._checker, self._store, self._world.now)
                if driver.ended:
                    self.logs.check_end(driver, driver.parameters["start"])
                linger = self._parameters["linger_seconds"]
                self._world.after(
                    max(linger, _STOP_SECONDS) if driver.is_processing else linger, self._end_driver, driver
                )
                if driver is self._drivers[-1] and self._restart_at is None:
                    self._restart_at = self._world.now + self._parameters["restart_seconds"] + 0.1 * driver.number
        if self._micro_batches is not None and self._micro_batches.is_over:
            self._end_micro_batches(self._micro_batches)
        if self._recovery is not None and self._recovery.is_over:
            self._end_recovery(self._recovery)
        if self._restart_at is None or self._world.now < self._restart_at or self._is_used_otherwise:
            return
        number = len(self._drivers)
        step = dict(self._parameters["micro_batches"]).get(number)
        if step is not None and number not in self._shared and self._store.committed() is not None:
            if self._parameters["guarantee"] == "exactly-once" and number not in self._recovered:
                self._start_recovery()
            else:
                self._start_micro_batches(step)
        elif number in dict(self._parameters.get("recoveries", ())) and number not in self._recovered:
            self._start_recovery()
        else:
            self._start_driver()

    @property
    def _is_used_otherwise(self) -> bool:
        """Whether another program than the query uses the checkpoint."""
        return self._micro_batches is not None or self._recovery is not None

    def _start_recovery(self) -> None:
        """Recover the checkpoint of the query, whose drivers have died, or are suspended and fenced."""
        if self._store.committed() is None:
            self._recovered.add(len(self._drivers))
            return
        for driver in self._drivers:
            if driver.process.name not in self._store.fencers:
                driver.end()  # it would control the query when it resumes
        self._world.trace("recover the checkpoint")
        self._recovery_count += 1
        options = {**connection_options(self._parameters), "transactionalIdPrefix": self._prefix}
        self._recovery = RecoveryRun(self._environment, self._recovery_count, self._store, options)

    def _end_recovery(self, recovery: RecoveryRun) -> None:
        self._recovery = None
        recovery.check()
        number = len(self._drivers)
        if not recovery.has_recovered:
            self._restart_at = self._world.now + self._parameters["restart_seconds"]
            return
        self._recovered.add(number)
        if dict(self._parameters.get("recoveries", ())).get(number):
            self._prefix = PREFIXES[1 - PREFIXES.index(self._prefix)]

    def _start_micro_batches(self, crash: str) -> None:
        """Run a micro-batch query alone on the checkpoint."""
        for driver in self._drivers:
            driver.end()
        self._shared.add(len(self._drivers))
        options = {
            "subscribe": ",".join(self._topics(len(self._drivers))),
            "startingOffsets": self._parameters["starting"],
            "failOnDataLoss": "false",
            "kafka.isolation.level": self._parameters["isolation"],
        }
        self._world.trace("micro-batches", crash)
        self._micro_batch_count += 1
        number = 1_000 + self._micro_batch_count
        self._micro_batches = MicroBatchRun(self._environment, number, self._store, options, crash or None)

    def _end_micro_batches(self, run: MicroBatchRun) -> None:
        self._world.trace("micro-batches ended", repr(run.execution.error))
        run.execution.end()
        self._checker.other_output |= run.values()
        self._micro_batches = None
        is_planned = self._store.epochs("offsets")[-1] != self._store.committed()
        if is_planned and self._parameters["guarantee"] == "exactly-once":
            self._start_micro_batches("")  # only the micro-batch query can complete its batch

    def _start_driver(self) -> None:
        if self._is_used_otherwise:
            return
        self._restart_at = None
        if len(self._drivers) >= _MAX_DRIVERS:
            raise ViolationError(f"the query needs more than {_MAX_DRIVERS} drivers")
        number = len(self._drivers)
        fails_on_loss = self._parameters["fail_on_data_loss"] and not self._skip_loss
        parameters = self._parameters
        define = partial(
            define_query,
            parameters=parameters,
            history=self.name,
            topics=self._topics(number),
            prefix=self._prefix,
            fails_on_loss=fails_on_loss,
        )
        if tasks := parameters.get("tasks"):
            parameters = {**parameters, "start": {**parameters["start"], "tasksMax": tasks[number % len(tasks)]}}
        driver = ContinuousDriver(self._environment, number, self._store, parameters, define, self._on_job, self._cores)
        driver.fails_on_loss = fails_on_loss
        self._world.trace("driver", driver.number)
        living = [each for each in self._drivers if not each.is_over]
        for each in (*living, driver):
            each.is_alone = not living
        self._drivers.append(driver)
        driver.start()

    def _on_job(self, run: str, job: JobStart) -> None:
        self._checker.jobs[run] = job
        self.logs.job_started(self._drivers[job.driver].process.name, job.time)

    def _topics(self, number: int | None = None) -> list[str]:
        """Return what a driver subscribes to, by default the newest one."""
        selections = self._parameters["selections"]
        number = self._drivers[-1].number if number is None else number
        return list(selections[min(number, len(selections) - 1)])

    # Faults of processes.

    def _process(self, who: str, index: int) -> SimulatedProcess | None:
        living = [each for each in self._drivers if not each.process.dead]
        if who == "worker":
            workers = [worker for driver in living for worker in driver.workers()]
            return workers[index % len(workers)] if workers else None
        return living[-1].process if living else None

    def _kill(self, who: str, index: int) -> None:
        process = self._process(who, index)
        if process is not None:
            self._world.trace("kill", process.name)
            process.kill()

    def _pause(self, who: str, index: int, seconds: float) -> None:
        process = self._process(who, index)
        if process is not None:
            process.pause(seconds)
            self._paused(process)

    def _paused(self, process: SimulatedProcess) -> None:
        """Replace a driver that hangs; the old one wakes up later."""
        self._resumed_at = self._world.now + MAX_PAUSE
        self._checker.has_suspended_workers |= process.name.startswith("worker")
        if self._drivers and process is self._drivers[-1].process and self._restart_at is None:
            self._restart_at = self._world.now + self._parameters["restart_seconds"]

    def _stop(self) -> None:
        self._world.trace("stop")
        self._drivers[-1].stop()

    def _cut(self, index: int) -> None:
        sockets = [each for each in self._environment.network.peers.sockets if not each.closed]
        if sockets:
            self._world.trace("cut", index)
            sockets[index % len(sockets)].cut()

    def _check_transactions(self) -> None:
        coordinator = TransactionCoordinator.of(self._cluster)
        if coordinator.ongoing:
            raise ViolationError(f"transactions are open at the end: {coordinator.ongoing}")
        for topic in OUTPUTS[: self._parameters["output_topics"]]:
            for index in range(len(self._cluster.topics[topic].partitions)):
                truth = self._environment.oracle.truth((topic, index))
                if truth.end_offset(READ_COMMITTED) < truth.high_watermark():
                    raise ViolationError(f"a hanging transaction blocks readers of the partition {topic}-{index}")
        for prefix in PREFIXES:
            for (topic, _), each in GroupCoordinator.of(self._cluster).committed(f"{prefix}.cont").items():
                self._check_topic_id(topic, json.loads(each.metadata)["topic"], is_current=prefix == self._prefix)

        if self._parameters["guarantee"] == "exactly-once" and not self._parameters["micro_batches"]:
            self._check_group(GroupCoordinator.of(self._cluster).committed(f"{self._prefix}.cont"))

    def _check_group(self, group: Mapping[tuple[str, int], CommittedOffset]) -> None:
        """Check that the transactions have committed the offsets of each epoch that the checkpoint has."""
        for (topic, partition), offset in self._store.committed_offsets().items():
            found = self._cluster.topics.get(topic)
            if found is None or found.generation > 1 or self._checker.has_lost:
                continue
            committed = group.get((topic, partition))
            if committed is None or committed.offset < offset:
                raise ViolationError(f"the epochs end at {offset} of {topic}-{partition}, and committed is {committed}")

    def _check_topic_id(self, topic: str, committed: str | None, *, is_current: bool) -> None:
        """Check that the last transaction has committed the id of its topic."""
        found = self._cluster.topics.get(topic)
        # When all faults were over, records were appended to each partition of the newest topic.
        is_last = is_current and self._checker.steady_at < math.inf and topic in self._topics()
        # If its task does not know that the topic was recreated, it takes the new log for a truncated one.
        is_last = is_last and found is not None and self._checker.has_noticed_deletion(topic, found.generation)
        if found is not None and (found.generation == 1 or is_last) and committed not in (None, found.topic_id.hex):
            raise ViolationError(f"a transaction has committed the topic id {committed} for {topic}: {found.topic_id}")
