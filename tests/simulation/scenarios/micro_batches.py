"""The micro-batch planner with a stand-in for Spark: every record once over the whole history, or a reported loss.

A query runs, dies or fails, and its user starts it again, sometimes with other options. When the faults have stopped,
its lag must reach zero, and the sink is compared with what happened to each record.
"""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BinaryType, LongType, StructField, StructType
from tests.simulation.cluster.events import EVENT_KINDS
from tests.simulation.cluster.groups import CommittedOffset, GroupCoordinator
from tests.simulation.drawing import (
    WITHOUT_REUSE,
    draw_aimed_crash,
    draw_appends,
    draw_change_between_requests,
    draw_cluster,
    draw_log,
    draw_outdated_broker,
    draw_reader_events,
    reader_apis,
)
from tests.simulation.environment import OUTDATED, UNREACHABLE, Environment
from tests.simulation.errors import ProcessKilled, ViolationError
from tests.simulation.history import Event, Plan
from tests.simulation.scenarios.backpressure_stand_in import BackpressureListener, shared_folder
from tests.simulation.scenarios.micro_batch_checks import SinkChecker, selection
from tests.simulation.scenarios.micro_batch_disruptions import (
    DISRUPTIONS,
    RUNS,
    SECONDS,
    draw_deposed_retention,
    draw_disruption,
    draw_truncation,
)
from tests.simulation.scenarios.micro_batch_efforts import (
    CommitRejections,
    check_blocked_warnings,
    check_commit_warnings,
    check_latest,
    check_missing_group_offsets,
    check_requests,
    check_start_warnings,
    check_task_requests,
)
from tests.simulation.scenarios.micro_batch_limits import check_batch_sizes
from tests.simulation.scenarios.micro_batch_losses import LossCheck
from tests.simulation.scenarios.micro_batch_options import (
    GROUP,
    LIMITS,
    change_options,
    draw_options,
    parse_options,
    selected_topics,
)
from tests.simulation.scenarios.micro_batch_recreations import Report
from tests.simulation.scenarios.record_truth import RecordTruth, TruthAndOracle
from tests.simulation.scenarios.record_writer import RecordWriter
from tests.simulation.scenarios.spark_stand_in import STEPS, Checkpoint, MicroBatchExecution, Trigger
from tests.simulation.scenarios.spark_tasks import TaskLostError

from pyspark_kafka_direct.datasource.read_schema import read_schema
from pyspark_kafka_direct.errors import BrokerError, DataLossError, InvalidOffsetsError, OptionError, TopicNotFoundError

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping
    from pathlib import Path

    from tests.simulation.history import Size
    from tests.simulation.scheduler import World

NAME = "micro_batches"
SHRINKABLE = {"runs": 0, "crashes": 0, "appends": 0, "late": 0}
MAX_RESTARTS = 6  # after the faults have stopped
HEALING_SECONDS = 3.0  # brokers apply metadata a moment after the last fault
_LAGGING = OUTDATED | UNREACHABLE
# After how many seconds a planner that looks at the topics must know that a topic was recreated.
_LOOK = 2.5
# After the faults have stopped.
_FINAL_INTERVAL = 0.5
_FINAL_TRIGGERS = 70  # more than the longest maxTriggerDelay
_MAX_FINAL_TRIGGERS = 400
_LONG_LOOK = 60.0
_TOPICS = ("flights", "trains", "ships")
_SCHEMA = read_schema(StructType([StructField("offset", LongType()), StructField("value", BinaryType())]))
_LOGGER = logging.getLogger("pyspark_kafka_direct")
_RUN_SECONDS = 3600.0 * 6
_MAX_SECONDS_OF_RUNS = 600.0  # after the faults: each call waits for a deleted topic as long as its timeout allows


def draw(rng: random.Random, size: Size) -> Plan:
    long = size == "long"
    cluster = draw_cluster(rng)
    partitions = {topic: rng.randint(1, 3) for topic in _TOPICS[: rng.choice((1, 1, 2, 3))]}
    seconds = rng.choice((1.0, 4.0, 20.0, 40.0)) * (8 if long else 1)
    log = draw_log(rng, batches=rng.randint(5, 60) if long else rng.randint(0, 8))
    appends = draw_appends(rng, batches=rng.randint(20, 100) if long else rng.randint(0, 6), seconds=seconds)
    # While the lag reaches zero; nothing would end a transaction.
    late = [
        {**batch, "transaction": None} for batch in draw_appends(rng, batches=rng.choice((0, 0, 1, 2)), seconds=2.0)
    ]
    records = sum(batch["records"] for batch in log)
    options = draw_options(rng, partitions, records, seconds, groups=True)
    runs: list[dict[str, Any]] = []
    has_outdated_broker = cluster["brokers"] > 1 and rng.random() < 0.15
    run_count = rng.randint(6, 30) if long else rng.choice((1, 1, 2, 3))
    if has_outdated_broker and not long:
        run_count, seconds = 5, 20.0  # each run may begin with another broker
    disruption = None if long or has_outdated_broker or rng.random() < 0.7 else rng.choice(DISRUPTIONS)
    if disruption is not None:
        run_count, seconds = RUNS, SECONDS
    for _ in range(run_count):
        runs.append({**_draw_run(rng, seconds / run_count, long=long), "options": options})
        options = change_options(rng, options, partitions)
    crash_count = rng.randint(3, 12) if long else rng.choice((0, 0, 1, 1, 2))
    crashes = [
        {"run": rng.randrange(run_count), "step": rng.choice(STEPS), "count": rng.choice((0, 0, 0, 1, 2))}
        for _ in range(crash_count)
    ]
    groups = [GROUP] if any("commitGroupId" in each["options"] for each in runs) else []
    kinds = WITHOUT_REUSE if run_count > 1 or crashes else tuple(EVENT_KINDS)
    events = draw_reader_events(rng, partitions, groups, seconds=seconds, long=long, kinds=kinds)
    reuses_address = any(event.kind == "reuse_address" for event in events)
    if rng.random() < 0.06:
        at = round(0.4 * seconds, 3)
        events = (*events, _draw_recreation(rng, partitions, at))
        appends += [_large_batch(number, at + 0.1) for number in range(4)]
        runs[0] |= {"trigger": "processing time", "triggers": 12, "interval": round(seconds / 10, 3)}
    if disruption is None and not has_outdated_broker and not reuses_address and rng.random() < 0.1:
        # Between the requests with which a planner decides about a batch.
        aimed = ("driver:ListOffsets", "driver:Metadata")
        change = draw_change_between_requests(rng, "recreate_topic", partitions, aimed, occurrences=30, seconds=seconds)
        change.args["args"]["seconds"] = 0.0
        events = (*events, change)
        appends += [_large_batch(number, 0.05 * seconds * number) for number in range(20)]
        runs[0] |= {"trigger": "processing time", "triggers": 12, "interval": round(seconds / 10, 3)}
    if disruption == "changed isolation level":
        events, crashes = (), []  # a log that loses records has other ends
    if disruption is not None:
        added = draw_disruption(rng, disruption, partitions, runs)
        events, appends, crashes = (*events, *added.events), [*appends, *added.appends], [*added.crashes]
    if has_outdated_broker:
        events = (*events, *draw_outdated_broker(rng, partitions, seconds))
    if rng.random() < 0.25 and not reuses_address:
        apis = reader_apis(groups)
        kills = [draw_aimed_crash(rng, apis, long=long) for _ in range(rng.randint(1, 3))]
        events = (*events, *kills)
    if disruption is None and not long and rng.random() < 0.2:
        events = ()  # so that it is known what the query does
        cluster["cluster"]["metadata_lag"] = 0.0
        interval = rng.choice((None, None, 0.02, 0.3))
        for each in runs if interval is not None else ():
            each |= {"triggers": 30, "interval": interval}  # also as often as Spark polls an idle source
        for each in runs if groups else ():
            if rng.random() < 0.3:
                each["expired_offsets"] = rng.choice(tuple(partitions))  # the group's offsets of this topic
            if rng.random() < 0.3:
                each["members_joined_at"] = round(0.3 * seconds / run_count * rng.random(), 3)
    parameters = {
        **cluster,
        "partitions": partitions,
        "log": log,
        "append_list": appends,
        "appends": len(appends),
        "late_list": late,
        "late": len(late),
        "run_list": runs,
        "runs": run_count,
        "crash_list": crashes,
        "crashes": len(crashes),
        "executors": rng.choice((1, 2, 2, 3)),
        "speculation": rng.choice((0.0, 0.0, 0.0, 0.3)),
        "legacy": rng.random() < 0.2,
        "per_second": rng.choice((5.0, 30.0, 200.0)),  # how many offsets the query processes, for backpressure
        "committed": [rng.randrange(records + 1) for _ in range(3)],  # by the group before the query starts
    }
    is_undisrupted = disruption is None and not has_outdated_broker and not long
    if is_undisrupted and cluster["brokers"] > 1 and rng.random() < 0.03:
        cluster["cluster"]["replication_factor"] = cluster["brokers"]
        partitions[next(iter(partitions))] = 2
        truncation = draw_truncation(rng, partitions, runs)
        events, seconds = tuple(truncation.events), 2 * SECONDS
        appends = list(truncation.appends)
        parameters |= {"append_list": appends, "appends": len(appends), "crash_list": [], "crashes": 0}
    elif is_undisrupted and rng.random() < 0.04:
        parameters["brokers"] = 3
        # Without leader epochs, no client notices a deposed leader.
        cluster["cluster"] |= {"replication_factor": 3, "topic_ids": True, "leader_epochs": True}
        events, parameters["log"] = draw_deposed_retention(rng, partitions, runs)
        parameters |= {"start_after": 3.0, "crash_list": [], "crashes": 0}
        seconds = 30.0
    return Plan(NAME, parameters, events, quiet_after=seconds)


def run(world: World, plan: Plan) -> None:
    handler = _ReportHandler(world)
    _LOGGER.addHandler(handler)
    has_backpressure = any("backpressure" in each["options"] for each in plan.parameters["run_list"])
    try:
        with shared_folder() if has_backpressure else nullcontext() as folder:
            _QueryHistory(world, plan, handler, folder).run()
    finally:
        _LOGGER.removeHandler(handler)


def describe(plan: Plan) -> list[str]:
    """Return sentences about the parameters."""
    parameters = plan.parameters
    return [
        f"The topics have {dict(parameters['partitions'])} partitions.",
        *(
            f"Run {number}: {dict(each['options'])}, trigger {each['trigger']}, {each['triggers']} times every "
            f"{each['interval']} s, then a pause of {each['pause']} s."
            for number, each in enumerate(parameters["run_list"][: parameters["runs"]])
        ),
        *(
            f"The driver of run {each['run']} dies {each['step']}, the {each['count'] + 1}. time"
            f"{' from ' + str(each['after']) + ' s on' if each.get('after') else ''}."
            for each in parameters["crash_list"][: parameters["crashes"]]
        ),
    ]


def _draw_run(rng: random.Random, seconds: float, *, long: bool) -> dict[str, Any]:
    trigger = rng.choice(("processing time", "processing time", "processing time", "available now", "once"))
    triggers = rng.randint(10, 60) if long else rng.randint(1, 4)
    return {
        "trigger": trigger,
        "triggers": triggers if trigger == "processing time" else 40,
        "interval": round(rng.choice((0.15, seconds / triggers)), 3),
        "pause": round(rng.choice((0.0, 0.0, seconds * rng.random())), 3),
        "skip_loss": rng.random() < 0.5,  # whether the user sets failOnDataLoss=false after a data loss
    }


def _draw_recreation(rng: random.Random, partitions: Mapping[str, int], at: float) -> Event:
    """Draw a topic that is recreated while the query runs."""
    topic = rng.choice(tuple(partitions))
    return Event("recreate_topic", at=at, args={"topic": topic, "partitions": partitions[topic], "seconds": 0.0})


def _large_batch(partition: int, at: float) -> dict[str, Any]:
    return {"partition": partition, "records": 40, "keys": 0, "producer": 0, "transaction": None, "at": round(at, 3)}


class _ReportHandler(logging.Handler):
    """Collects warnings."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world
        self.reports: list[Report] = []
        self.run = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.reports.append(Report(self._world.now, self.run, record.getMessage(), is_error=False))


class _QueryHistory:
    """One query, from its first start until it has no lag."""

    def __init__(self, world: World, plan: Plan, handler: _ReportHandler, folder: Path | None) -> None:
        self._world = world
        self._plan = plan
        self._handler = handler
        self._truth = RecordTruth()
        self._environment = Environment(world, plan)
        self._cluster = self._environment.cluster
        oracle, kinds = self._cluster.oracle, {event.kind for event in plan.events}
        lags = [event.args.get("seconds", 0.0) for event in plan.events if event.kind in _LAGGING]
        self._cluster.oracle = TruthAndOracle(self._truth, oracle)  # type: ignore[assignment]
        self._checkpoint = Checkpoint()
        self._checker = SinkChecker(
            self._truth,
            oracle,
            self._cluster,
            self._checkpoint,
            handler.reports,
            look_seconds=max(_LONG_LOOK, *lags) if lags else _LOOK,
            may_lag=bool(lags),
            may_hide_partitions=self._environment.may_hide_partitions,
            may_deny_topics="deny_topic" in kinds,
        )
        self._writer = RecordWriter(self._environment, list(plan.parameters["partitions"]))
        self._crashes = [dict(each) for each in plan.parameters["crash_list"][: plan.parameters["crashes"]]]
        self._runs: list[MicroBatchExecution] = []
        self._listener = None
        if folder is not None:
            self._listener = BackpressureListener(folder, plan.parameters.get("per_second", 30.0))
        self._rejected = CommitRejections()
        self._skip_loss = False
        self._is_healthy = not plan.events and not self._cluster.settings.metadata_lag
        self._committed_before: dict[tuple[str, int], int] = {}

    def run(self) -> None:
        parameters = self._plan.parameters
        self._prepare()
        self._world.run_for(parameters.get("start_after", 0.0))
        last_options: Mapping[str, str] = parameters["run_list"][0]["options"]
        for run in parameters["run_list"][: parameters["runs"]]:
            last_options = run["options"]
            trigger = Trigger(run["trigger"], run["interval"], run["triggers"])
            if "expired_offsets" in run:
                GroupCoordinator.of(self._cluster).expire_offsets(GROUP, run["expired_offsets"])
            if "members_joined_at" in run:
                self._rejected.schedule(self._world, self._cluster, run["members_joined_at"])
            self._run_once(last_options, trigger, skip_loss=run["skip_loss"])
            self._world.run_for(run["pause"])
        self._world.run_for(max(0.0, self._environment.quiet_at + HEALING_SECONDS - self._world.now))
        self._finish(last_options)

    def _prepare(self) -> None:
        parameters = self._plan.parameters
        for topic, count in parameters["partitions"].items():
            self._cluster.create_topic(topic, count)
            for partition in range(count):
                offset = parameters["committed"][partition % len(parameters["committed"])]
                self._commit(topic, partition, offset)
        for batch in parameters["log"]:
            self._writer.append(batch)
        self._writer.schedule(parameters["append_list"][: parameters["appends"]], self._environment.started_at)

    def _commit(self, topic: str, partition: int, offset: int) -> None:
        """Commit the offset of another consumer of the query's group, if the query starts there."""
        options = self._plan.parameters["run_list"][0]["options"]
        if options.get("startingOffsets") == "committed":
            topic_id = self._cluster.topics[topic].topic_id
            committed = CommittedOffset(offset, -1, "", topic_id, 0)
            groups = GroupCoordinator.of(self._cluster)
            groups.set_members(GROUP, False)  # creates the group
            groups.commit(GROUP, (topic, partition), committed)
            self._committed_before[topic, partition] = offset

    # Runs.

    def _run_once(
        self,
        options: Mapping[str, str],
        trigger: Trigger,
        *,
        skip_loss: bool = False,
        until_done: bool = False,
    ) -> MicroBatchExecution:
        if self._skip_loss:
            options = {**options, "failOnDataLoss": "false"}
        number = self._handler.run = len(self._runs)
        parameters = self._plan.parameters
        latest = self._environment.quiet_at + _MAX_SECONDS_OF_RUNS
        execution = MicroBatchExecution(
            self._environment,
            number,
            self._checkpoint,
            parse_options(options, parameters["brokers"]),
            options,
            _SCHEMA,
            trigger,
            legacy=parameters["legacy"],
            reach=self._reach,
            listener=self._listener if "backpressure" in options else None,
            is_done=lambda: self._has_no_lag(options) if until_done else self._world.now > latest,
        )
        self._runs.append(execution)
        if self._listener is not None and "backpressure" in options:
            self._listener.begin_run(options)
        groups = dict(GroupCoordinator.of(self._cluster).committed(GROUP)) if "commitGroupId" in options else {}
        self._checker.begin_run(number, options, trigger.kind, self._world.now)
        self._world.trace("run", number, trigger.kind, *(f"{name}={options[name]}" for name in sorted(options)))
        self._world.run([execution.driver.spawn("main", execution.run)], seconds=_RUN_SECONDS)
        self._environment.raise_errors()
        if execution.finished and not execution.driver.dead and "commitGroupId" not in options:
            self._check_released(execution)
        execution.end()
        self._checker.end_run(execution)
        self._checker.check_group(options, self._committed_before)
        has_events = self._metadata_may_lag() or any(event.at is not None for event in self._plan.events)
        if not has_events and trigger.kind != "available now":
            self._checker.check_idle_answers(execution, options)
        if execution.is_complete and not has_events and not parameters["legacy"]:
            self._checker.check_available_now(execution, options)
        self._world.trace("run ended", number, repr(execution.error))
        self._check_reports(execution, groups)
        if execution.error is not None:
            self._check_error(execution, options, trigger)
            if isinstance(execution.error, DataLossError) and skip_loss:
                self._skip_loss = True
        return execution

    def _check_reports(self, execution: MicroBatchExecution, groups: Mapping[tuple[str, int], CommittedOffset]) -> None:
        """Check what a run has counted and logged, and on a healthy cluster also its effort."""
        reports = self._handler.reports
        selections = {selection(run.options) for run in self._runs}
        has_sure_deletions = not (
            self._environment.may_hide_partitions
            or len(selections) > 1
            or any(event.kind == "deny_topic" for event in self._plan.events)
        )
        LossCheck(execution, self._truth, reports).check(self._checkpoint, has_sure_deletions=has_sure_deletions)
        check_commit_warnings(execution.number, reports)
        check_blocked_warnings(execution, self._truth, reports)
        if execution.finished:
            check_start_warnings(execution, reports)
        if not self._is_healthy:
            return
        if isinstance(execution.error, BrokerError):
            raise ViolationError(f"no fault happened, but the query fails: {execution.error!r}") from execution.error
        starts = [run.options.get("startingOffsets", "") for run in self._runs]
        is_beyond_end = any("{" in start or start == "committed" for start in starts)
        # A planner waits for the confirmation of ends before its start, and a batch with other topics may run again.
        if len(selections) == 1 and not is_beyond_end:
            check_requests(execution, self._cluster)
        if len(selections) == 1 and self._cluster.settings.topic_ids:
            check_task_requests(self._environment.network.sent_requests, execution.number)
        check_batch_sizes(execution, self._cluster)
        if execution.trigger != "available now":
            check_latest(execution, self._cluster, self._truth)
        if "commitGroupId" in execution.options and not self._rejected.is_scheduled:
            check_missing_group_offsets(execution, groups, reports)

    def _reach(self, execution: MicroBatchExecution, step: str) -> None:
        """Kill the driver at a drawn step."""
        passed = self._world.now - self._environment.started_at
        for crash in self._crashes:
            if (crash["run"], crash["step"]) != (execution.number, step) or passed < crash.get("after", 0.0):
                continue
            crash["count"] -= 1
            if crash["count"] == -1:
                self._world.trace("crash", execution.number, step)
                execution.driver.kill()
                raise ProcessKilled
        self._checker.check_group(execution.options, self._committed_before)
        if step == "after the end" and self._is_healthy:
            self._rejected.check(execution, self._cluster, self._handler.reports)
            _, start, end, latest = execution.latest_reports[-1]
            has_losses = any(call.losses for call in execution.planner_calls)  # such as a start beyond the end
            is_limited = "backpressure" in execution.options and execution.trigger != "once"
            if self._listener is not None and is_limited and latest is not None and not has_losses:
                self._listener.check_end(start, end, latest)
        if step == "after the offset log":
            self._checker.check_stable_end(execution.options)

    def _check_error(self, execution: MicroBatchExecution, options: Mapping[str, str], trigger: Trigger) -> None:
        """Check that an error is one that the history can cause."""
        error = execution.error
        assert error is not None
        legacy = self._plan.parameters["legacy"]
        match error:
            case DataLossError():
                self._handler.reports.append(Report(self._world.now, execution.number, str(error), is_error=True))
                if options["failOnDataLoss"] == "false" and (trigger.kind != "available now" or legacy):
                    raise ViolationError(f"failOnDataLoss is false, but the query fails: {error!r}") from error
            case TopicNotFoundError() | InvalidOffsetsError():
                if self._checkpoint.offsets and not isinstance(error, TopicNotFoundError):
                    raise ViolationError(f"a query with a checkpoint fails: {error!r}") from error
                is_hidden = self._metadata_may_lag() or self._pattern_may_miss_topics(options)
                if not self._checker.topics_changed(options) and not is_hidden:
                    raise ViolationError(f"all topics exist, but the query fails: {error!r}") from error
            case OptionError():
                if trigger.kind != "once" or self._checkpoint.offsets:
                    raise ViolationError(f"the options are valid, but the query fails: {error!r}") from error
            case BrokerError() | TaskLostError():
                pass  # after the last fault, _finish rejects it
            case _:
                raise error

    def _check_released(self, execution: MicroBatchExecution) -> None:
        self._environment.check_released([execution.driver])

    # Liveness.

    def _finish(self, options: Mapping[str, str]) -> None:
        """Run the query without faults until its lag is zero, then check the sink."""
        late = self._plan.parameters["late_list"][: self._plan.parameters["late"]]
        self._writer.schedule(late, self._world.now)
        for _ in range(MAX_RESTARTS):
            # A batch may be limited to one offset, and maxTriggerDelay may delay each of the last ones.
            lag = self._checker.count_lag(options) + self._writer.scheduled_records
            delayed = min(lag, int(options.get("minOffsetsPerTrigger", "0")))
            triggers = lag + _FINAL_TRIGGERS * max(delayed, 1)
            if triggers > _MAX_FINAL_TRIGGERS:
                options = {name: value for name, value in options.items() if name not in LIMITS}
            trigger = Trigger("processing time", _FINAL_INTERVAL, triggers)
            execution = self._run_once(options, trigger, skip_loss=True, until_done=True)
            error = execution.error
            self._checker.check_deadlines(execution, options)
            if error is None:
                if not self._has_no_lag(options):
                    raise ViolationError(f"the lag does not reach zero: {self._checker.lag(options)}")
                break
            if isinstance(error, (TopicNotFoundError, InvalidOffsetsError)) and not self._checkpoint.offsets:
                if self._checker.topics_changed(options):
                    options = _from_earliest(options)  # the start named partitions that changed since
                    if isinstance(error, InvalidOffsetsError):
                        continue
                if self._all_topics_exist(options):
                    raise ViolationError(f"all topics exist, but the query does not start: {error!r}") from error
                return
            if not isinstance(error, DataLossError):
                raise ViolationError(f"the query fails though no fault is left: {error!r}") from error
        else:
            raise ViolationError(f"the query does not run after {MAX_RESTARTS} restarts: {error!r}")
        self._checker.check(options)

    def _metadata_may_lag(self) -> bool:
        """Return whether brokers may not have the topics yet that were created at the begin of the history."""
        return self._cluster.settings.metadata_lag > 0 or any(event.kind in _LAGGING for event in self._plan.events)

    def _pattern_may_miss_topics(self, options: Mapping[str, str]) -> bool:
        """Return whether a pattern may not have found topics because the user may not describe them for a time."""
        return "subscribePattern" in options and any(event.kind == "deny_topic" for event in self._plan.events)

    def _all_topics_exist(self, options: Mapping[str, str]) -> bool:
        for topic in selected_topics(options):
            found = self._cluster.topics.get(topic)
            partitions = json.loads(options["assign"]).get(topic, ()) if "assign" in options else ()
            if found is None or any(each >= len(found.partitions) for each in partitions):
                return False
        return True

    def _has_no_lag(self, options: Mapping[str, str]) -> bool:
        return self._writer.is_finished and not self._checker.lag(options)


def _from_earliest(options: Mapping[str, str]) -> dict[str, str]:
    return {**options, "startingOffsets": "earliest"}
