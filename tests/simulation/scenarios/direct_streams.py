"""The direct stream with checkpoint and replay, several streams, failed generations; commits never ahead of results.

An application runs, dies, fails or is stopped, and its user starts it again. When the faults have stopped, its lag must
reach zero, and the results are compared with what happened to each record.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.groups import CommittedOffset, GroupCoordinator
from tests.simulation.environment import OUTDATED, Environment
from tests.simulation.errors import ProcessKilled, ViolationError
from tests.simulation.history import Plan
from tests.simulation.scenarios.direct_stream_checks import (
    Epoch,
    Planned,
    Report,
    Result,
    ResultChecker,
    check_order,
    committed_offsets,
    contiguous_end,
)
from tests.simulation.scenarios.direct_stream_ends import BatchEnds
from tests.simulation.scenarios.direct_stream_life import DirectStreamLife, LifePlan, Observer, UserError
from tests.simulation.scenarios.direct_stream_lineage import Lineage, spans_of
from tests.simulation.scenarios.direct_stream_options import describe_plan, draw_plan, kafka_params
from tests.simulation.scenarios.direct_stream_reports import Warnings, check_requests
from tests.simulation.scenarios.direct_stream_spark import replaced_spark
from tests.simulation.scenarios.record_truth import RecordTruth, TruthAndOracle
from tests.simulation.scenarios.record_writer import RecordWriter
from tests.simulation.scenarios.spark_tasks import TaskLostError
from tests.simulation.scenarios.streaming_stand_in import CheckpointStore

from pyspark_kafka_direct.direct.direct_stream import DirectStreamReference
from pyspark_kafka_direct.errors import (
    BrokerError,
    DataLossError,
    InvalidOffsetsError,
    KafkaDirectError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from tests.simulation.history import Size
    from tests.simulation.scenarios.direct_stream_lineage import TopicAndIndex
    from tests.simulation.scenarios.spark_tasks import TaskRead
    from tests.simulation.scheduler import World

NAME = "direct_streams"
SHRINKABLE = {
    "lives": 0,
    "job_failures": 0,
    "crashes": 0,
    "failures": 0,
    "delays": 0,
    "appends": 0,
    "late": 0,
    "log": (),
}
MAX_RESTARTS = 8  # after the faults have stopped
HEALING_SECONDS = 3.0  # brokers apply metadata a moment after the last fault
_LIFE_SECONDS = 3600.0 * 6
_LOGGER = logging.getLogger("pyspark_kafka_direct")
_COMMIT_SECONDS = 0.5  # of a commit, if no request has a fault
_CALLS = ("calls", "newer calls first")
_HARMLESS = {"expand_topic", "compact_log"}
_MAX_BATCHES_OF_LAG = 500  # with the lowest rate
_REORDERING = {"late_request", "late_stalled_request", "throttle", "pause_broker", "throttle_broker", "isolate_broker"}


def draw(rng: random.Random, size: Size) -> Plan:
    parameters, events, seconds = draw_plan(rng, long=size == "long")
    return Plan(NAME, parameters, events, quiet_after=seconds)


def describe(plan: Plan) -> list[str]:
    """Return sentences about the parameters."""
    return describe_plan(plan.parameters)


def run(world: World, plan: Plan) -> None:
    history = _ApplicationHistory(world, plan)
    _LOGGER.addHandler(history.warnings)
    try:
        with replaced_spark():
            history.run()
    finally:
        _LOGGER.removeHandler(history.warnings)
        for life in history.lives:
            life.end()


class _ApplicationHistory(Observer):
    """One application, from its first start until it has no lag."""

    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._parameters = parameters = plan.parameters
        self._plan = plan
        self._truth = RecordTruth()
        self._environment = Environment(world, plan)
        self._cluster = self._environment.cluster
        oracle = self._cluster.oracle
        self._cluster.oracle = TruthAndOracle(self._truth, oracle)  # type: ignore[assignment]
        self._writer = RecordWriter(self._environment, list(parameters["partitions"]))
        self._checker = ResultChecker(parameters, self._truth, oracle, self._cluster)
        self._checkpoint = (
            CheckpointStore(parameters.get("checkpoint_seconds", 0.2)) if parameters["mode"] == "checkpoint" else None
        )
        self.lives: list[DirectStreamLife] = []
        self.warnings = Warnings(lambda: world.now)
        self.warnings.on_loss = self.report
        kinds = {event.kind for event in plan.events}
        self._has_faults = bool(kinds - _HARMLESS)
        self._has_good_broker = parameters["brokers"] > 1 and kinds == {"stick_image", "expand_topic"}
        self._ends = BatchEnds(parameters, self._truth, self._cluster, is_certain=not kinds & OUTDATED)
        self._asked_before: dict[int, float] = {}  # by stream: when the last batch that was planned was requested
        self._epochs: list[Epoch] = []
        self._lineage = Lineage(len(parameters["streams"]))
        self._before: list[dict[TopicAndIndex, int]] = []  # committed offsets before the life, by stream
        self._first_starts: list[dict[TopicAndIndex, int]] = []  # of the life, for the user's own store
        self._finished_spans: list[dict[TopicAndIndex, list[tuple[int, int]]]] = []  # of the life, by stream
        self._last_commits: list[dict[TopicAndIndex, int]] = []  # of the life, by stream
        # Generations of topics, and offsets.
        self._own_commits: list[dict[TopicAndIndex, set[tuple[int | None, int]]]] = [{} for _ in parameters["streams"]]
        self._new_partitions: list[tuple[int, TopicAndIndex]] = []  # that the generation has found
        self._passed: dict[tuple[int, str], int] = {}
        self._generations: dict[int, int] = {}
        self._violations: list[Exception] = []
        self._skip_loss = False
        self._may_reorder_commits = any(event.kind in _REORDERING for event in plan.events)
        self._is_finishing = False
        self._commits_in_order = all(each.get("order") != "newer calls first" for each in parameters["outputs"])

    def run(self) -> None:
        parameters = self._parameters
        self._prepare()
        for life in parameters["life_list"][: parameters["lives"]]:
            self._live(LifePlan(life["seconds"], life["end"], life["patient"], life.get("rejects_stop", False)))
            self._world.run_for(life["pause"])
            if life["reset"] and any(isinstance(each, DataLossError) for each in self.lives[-1].errors):
                self._reset()
        self._world.run_for(max(0.0, self._environment.quiet_at + HEALING_SECONDS - self._world.now))
        self._finish()

    def report(self, text: str) -> None:
        self._epochs[-1].reports.append(Report(self._world.now, text))

    def _prepare(self) -> None:
        parameters = self._parameters
        groups = GroupCoordinator.of(self._cluster)
        self._reset()
        for topic, count in parameters["partitions"].items():
            self._cluster.create_topic(topic, count)
            for number, stream in enumerate(parameters["streams"]):
                groups.set_members(stream["group"], False)  # creates the group
                for partition in range(count):
                    offset = parameters["committed"][partition]
                    if offset >= 0:
                        committed = CommittedOffset(offset, -1, "", self._cluster.topics[topic].topic_id, 0)
                        groups.commit(stream["group"], (topic, partition), committed)
                        self._checker.allowed_commits[number].setdefault((topic, partition), set()).add(offset)
        for batch in parameters["log"]:
            self._writer.append(batch)
        self._writer.schedule(parameters["append_list"][: parameters["appends"]], self._environment.started_at)

    def _reset(self) -> None:
        """Start the application afresh, as a user does after a data loss."""
        self._world.trace("reset")
        self._epochs.append(Epoch(len(self._parameters["outputs"]), len(self._parameters["streams"]), self._world.now))
        if self._checkpoint is not None:
            self._checkpoint.stored = None

    # Lives.

    def _live(self, plan: LifePlan) -> DirectStreamLife:
        parameters, number = self._parameters, len(self.lives)
        epoch = self._epochs[-1]
        if self._checkpoint is not None and self._checkpoint.stored is None:
            for sink in epoch.sink:
                sink.clear()
            epoch.failed_jobs.clear()
        streams = range(len(parameters["streams"]))
        self._before = [committed_offsets(self._cluster, each["group"]) for each in parameters["streams"]]
        self._finished_spans = [{} for _ in streams]
        self._first_starts = [{} for _ in streams]
        self._last_commits = [{} for _ in streams]
        params = [kafka_params(parameters, each, skip_loss=self._skip_loss) for each in streams]
        offsets = [{TopicPartition(*each): offset for each, offset in self._user_offsets(s).items()} for s in streams]
        life = DirectStreamLife(
            self._environment, number, plan, self._checkpoint, parameters, params, offsets, observer=self
        )
        self.lives.append(life)
        self._world.trace("life", number, plan.end)
        began, began_at = len(self._world.trace_lines), self._world.now
        self._asked_before.clear()
        self._life_began_at = began_at
        self._world.run([life.driver.spawn("main", life.run)], seconds=_LIFE_SECONDS)
        self._environment.raise_errors()
        if life.ended_cleanly and life.callbacks > life.commit_calls:
            raise ViolationError(f"{life.commit_calls} calls of commitAsync have {life.callbacks} callbacks")
        life.end()
        self._world.trace("life ended", number, tuple(type(each).__name__ for each in life.errors))
        if self._violations:
            raise self._violations[0]
        self._checker.check_commits()
        self._check_order_of_commits(began)
        self.warnings.check_life(life, began_at, is_healthy=self.is_healthy())
        return life

    def _user_offsets(self, stream: int) -> dict[TopicAndIndex, int]:
        """Return the offsets that the user passes to a stream."""
        parameters = self._parameters
        if parameters["mode"] == "store":
            return self._epochs[-1].stored[stream]
        given = parameters["streams"][stream]["offsets"] if len(self._epochs) == 1 else ()
        return {(topic, partition): offset for topic, partition, offset in given}

    def _check_order_of_commits(self, began: int) -> None:
        """Check that no committed offset went back in the last life."""
        if not self._commits_in_order or self.lives[-1].was_restored or self._may_reorder_commits or self._truth.events:
            return
        if self.lives[-1].number:
            check_order(self._world.trace_lines[began:])

    # What lives report.

    def reach(self, life: DirectStreamLife, step: str) -> None:
        """Kill the driver at a drawn step."""
        parameters = self._parameters
        count = self._count(life, step)
        for crash in parameters["crash_list"][: parameters["crashes"]]:
            if (crash["life"], crash["step"], crash["count"]) == (life.number, step, count):
                self._world.trace("crash", life.number, step)
                life.driver.kill()
                raise ProcessKilled
        self._checker.check_commits()

    def must_fail(self, life: DirectStreamLife, place: int) -> bool:
        generation = self._generations.get(life.number, 0)
        return self._drawn("failure", life=life.number, generation=generation, place=place) is not None

    def must_fail_job(self, life: DirectStreamLife, output: int) -> bool:
        count = self._count(life, f"job of {output}")
        return self._drawn("job_failure", life=life.number, output=output, count=count) is not None

    def delay(self, life: DirectStreamLife, place: str) -> float:
        found = self._drawn("delay", life=life.number, place=place, count=self._count(life, place))
        if found is None:
            return 0.0
        self._world.trace("delay", life.number, place)
        seconds: float = found["seconds"]
        return seconds

    def _count(self, life: DirectStreamLife, step: str) -> int:
        """Return how often a life has passed a step before."""
        count = self._passed.get((life.number, step), 0)
        self._passed[life.number, step] = count + 1
        return count

    def _drawn(self, kind: str, **facts: Any) -> Mapping[str, Any] | None:
        """Return the element of the plan that has these values."""
        drawn = self._parameters.get(f"{kind}_list", ())[: self._parameters.get(f"{kind}s", 0)]
        return next((each for each in drawn if facts.items() <= each.items()), None)

    def started(self, life: DirectStreamLife, stream: int, asked_at: float) -> None:
        position = {(tp.topic, tp.partition): offset for tp, offset in life.streams[stream].current_offsets.items()}
        generations = {topic: self._generation_of(life, stream, topic) for topic, _ in sorted(position)}
        self._lineage.start(stream, position, generations)
        explicit = {(tp.topic, tp.partition): offset for tp, offset in life.offsets[stream].items()}
        self._checker.check_start(stream, position, explicit, self._before[stream], asked_at)
        self._ends.start(stream)
        is_certain = not self._truth.events and not self._metadata_may_lag()
        self._checker.check_selection(stream, position, has_all_topics=is_certain)
        self._check_warnings(stream, {each: position[each] for each in position.keys() - explicit.keys()}, asked_at)
        starts = self._epochs[-1].starts[stream]
        if self._parameters["mode"] == "checkpoint":
            starts.clear()
        for partition, offset in position.items():
            # An offset of another consumer of the group, or of a deleted topic, says nothing about results.
            own = (generations[partition[0]], offset) in self._own_commits[stream].get(partition, ())
            resumes = own if self._parameters["mode"] == "group" else explicit.get(partition) == offset
            if not resumes:
                starts[partition] = offset
            starts.setdefault(partition, offset)
        self._first_starts[stream] = dict(position)

    def _generation_of(self, life: DirectStreamLife, stream: int, topic: str) -> int:
        topic_id = life.streams[stream].topic_ids.get(topic)
        newest = self._truth.generations[topic]
        return newest if topic_id is None else self._cluster.generations_by_id.get(topic_id, newest)

    def _check_warnings(
        self, stream: int, starts: Mapping[TopicAndIndex, int], asked_at: float, *, is_new: bool = False
    ) -> None:
        group = self._parameters["streams"][stream]["group"]
        committed = committed_offsets(self._cluster, group)
        if self._truth.events or self._metadata_may_lag():
            return  # the group may have had other offsets
        stable = {p: offset for p, offset in committed.items() if self._before[stream].get(p) == offset}
        known = {p: offset for p, offset in starts.items() if p in stable or p not in committed}
        exact = not self._has_faults
        self.warnings.check_starts(group, known, stable, asked_at, is_new=is_new, is_exact=exact)

    def logs(self, stream: int) -> Any:
        return self._ends.logs(stream)

    def completed(self, life: DirectStreamLife, batch: Any) -> None:
        for stream, info in batch.streamIdToInputInfo().items():
            times = batch.processingEndTime(), info.numRecords(), batch.processingDelay(), batch.schedulingDelay()
            self._ends.completed(stream, self._world.now, *times)

    def generated(self, life: DirectStreamLife, trace: Sequence[tuple[Any, ...]], *, succeeded: bool) -> None:
        parameters = self._parameters
        is_steady = succeeded and not self._metadata_may_lag() and not self._truth.has_new_partitions
        if not self.is_healthy() or not is_steady or parameters.get("look"):
            return
        skips_loss = any(not life.parameters_of(each).fetch.fail_on_data_loss for each in range(len(life.streams)))
        check_requests(trace, life.driver.name, parameters, skips_loss=skips_loss)

    def is_healthy(self) -> bool:
        return not self._has_faults

    def violated(self, text: str) -> None:
        self._violations.append(ViolationError(text))

    def planned(
        self,
        life: DirectStreamLife,
        stream: int,
        time_ms: int,
        ranges: Sequence[OffsetRange],
        asked: tuple[float, Any],
        deleted: int,
    ) -> None:
        asked_at, logs = asked
        new = self._lineage.plan(stream, time_ms, ranges)
        if new is None:
            return
        spans = spans_of(ranges)
        self._world.trace("planned", stream, time_ms, spans)
        self._checker.check_rates(spans)
        if spans:
            skips_loss = not life.parameters_of(stream).fetch.fail_on_data_loss
            self._ends.check(stream, spans, logs, asked_at, deleted, skips_loss=skips_loss)
            earlier = self._asked_before.get(stream, self._world.now)
            is_due = earlier < self._world.now - _COMMIT_SECONDS and not self._parameters.get("asks_early", False)
            if self.is_healthy() and is_due:
                life.check_calls(stream, earlier - 0.01)
            if self.is_healthy() and stream not in self._asked_before:
                read = {each for each, _, _ in spans}
                blocked = [each for each in self._ends.blocked(stream, logs) if each in read]
                self.warnings.check_blocked(sorted(blocked), self._life_began_at)
            self._asked_before[stream] = asked_at
            if not life.was_restored:
                self._check_warnings(stream, dict(new), asked_at, is_new=True)
        self._checker.check_stable_ends(stream, spans)
        now = committed_offsets(self._cluster, self._parameters["streams"][stream]["group"])
        self._checker.check_start(
            stream,
            dict(new),
            {},
            {**self._before[stream], **now},
            asked_at,
            added=True,
            restored=life.was_restored,
        )
        starts = self._epochs[-1].starts[stream]
        for partition, offset in new:
            if partition not in starts:
                starts[partition] = offset
                self._new_partitions.append((stream, partition))
            self._first_starts[stream].setdefault(partition, offset)
            self._lineage.streams[stream].generations.setdefault(
                partition[0], self._generation_of(life, stream, partition[0])
            )
        planned_at = self._world.now
        self._epochs[-1].planned += [Planned(planned_at, partition, until) for partition, _, until in spans]

    def generation_ended(self, life: DirectStreamLife, time_ms: int, *, succeeded: bool) -> None:
        self._generations[life.number] = self._generations.get(life.number, 0) + 1
        for stream, partition in self._new_partitions if not succeeded else ():
            # The next generation decides again where the partition starts, perhaps in another life.
            self._epochs[-1].starts[stream].pop(partition, None)
        self._new_partitions.clear()
        self._lineage.end_generation(time_ms, succeeded=succeeded)
        for number, each in enumerate(life.streams if succeeded else ()):
            current = DirectStreamReference(each.stream_id).currentOffsets()
            if {(tp.topic, tp.partition): offset for tp, offset in current.items()} != self._lineage.streams[
                number
            ].position:
                raise ViolationError(f"the current offsets of stream {number} are {current} after {time_ms}")

    def estimates(self) -> Any:
        return self._ends.estimates

    def lineage(self, estimates: Any) -> Any:
        """Return what a checkpoint contains; an estimate is not known if a batch ended while it was pickled."""
        now = self._ends.estimates
        known = [each if each == before else None for each, before in zip(now, estimates, strict=True)]
        return self._lineage.copy(), known

    def restored(self, lineage: Any) -> None:
        known, estimates = lineage
        self._lineage = known.copy()
        self._ends.restore(estimates)

    def results(
        self,
        life: DirectStreamLife,
        output: int,
        time_ms: int,
        ranges: Sequence[OffsetRange],
        reads: list[tuple[int, TaskRead]],
    ) -> dict[int, list[list[OffsetRange]]]:
        parameters, epoch = self._parameters, self._epochs[-1]
        shape = parameters["outputs"][output]
        for stream, read in reads:
            fail_on_data_loss = life.parameters_of(stream).fetch.fail_on_data_loss
            self._checker.check_read(stream, read, fail_on_data_loss=fail_on_data_loss)
        spans = spans_of(ranges)
        self._lineage.check_window(shape, time_ms, spans, parameters["interval_ms"])
        key = (0 if parameters["mode"] == "checkpoint" else life.number, time_ms)
        if parameters["mode"] == "store":
            self._update_store(shape["streams"], time_ms)
        epoch.sink[output][key] = Result(spans, tuple(reads))
        epoch.failed_jobs.pop((output, key), None)
        self._world.trace("results", output, time_ms, sum(len(read.rows) for _, read in reads))
        if not shape["commits"]:
            return {}
        return {stream: self._commits(stream, time_ms, shape["order"]) for stream in shape["streams"]}

    def _update_store(self, streams: Sequence[int], time_ms: int) -> None:
        """Store the offsets in the transaction of the results, if each range begins where the last one ended."""
        stores = self._epochs[-1].stored
        for stream in streams:
            for partition, first, _ in self._lineage.streams[stream].known[time_ms]:
                expected = stores[stream].get(partition, self._first_starts[stream].get(partition))
                if expected != first:
                    raise UserError(f"the range of {partition} begins at {first}, and the store has {expected}")
        for stream in streams:
            for partition, _, until in self._lineage.streams[stream].known[time_ms]:
                stores[stream][partition] = until

    def _commits(self, stream: int, time_ms: int, order: str) -> list[list[OffsetRange]]:
        """Return the ranges to commit, by call: until the end of the results without a gap."""
        finished = self._finished_spans[stream]
        committed = []
        for partition, first, until in self._lineage.streams[stream].known[time_ms]:
            finished.setdefault(partition, []).append((first, until))
            lineage = self._lineage.streams[stream]
            start = self._first_starts[stream].get(partition)
            if start is None:  # restored from a checkpoint: the first batch of this life
                start = self._first_starts[stream][partition] = min(
                    [first, *(a for spans in lineage.known.values() for p, a, _ in spans if p == partition)]
                )
            end = contiguous_end(start, finished[partition])
            middle = (max(self._last_commits[stream].get(partition, 0), start) + end) // 2
            spans = [(a, b) for a, b in sorted(finished[partition]) if start <= a < b <= end]
            if order in _CALLS and start <= middle < end:
                spans = [(start, middle), (middle, end)]
            elif order == "one range" or order in _CALLS or not spans:
                spans = [(min(start, end), end)]
            for _, until in spans:
                self._checker.allowed_commits[stream].setdefault(partition, set()).add(until)
                generation = lineage.generations.get(partition[0])
                self._own_commits[stream].setdefault(partition, set()).add((generation, until))
            self._last_commits[stream][partition] = end
            committed += [OffsetRange(*partition, *span) for span in spans]
        if order in _CALLS:
            calls = [[each] for each in committed]
            return calls if order == "calls" else calls[::-1]
        return [committed[::-1] if order == "newest first" else committed]

    def committed(
        self, stream: int, ranges: Sequence[OffsetRange], offsets: Mapping[TopicPartition, int] | None
    ) -> None:
        try:
            if offsets is None:
                if not self._may_reorder_commits:
                    self._checker.check_committed(stream, ranges)
                return
            for each in ranges:
                if offsets[each.topic_partition] < each.until_offset:
                    raise ViolationError(f"{each} is committed by {offsets}")
            if not self._may_reorder_commits:
                self._checker.check_acknowledged(stream, offsets)
        except ViolationError as violation:  # the package catches what callbacks raise
            self._violations.append(violation)

    def commit_failed(self, error: Exception) -> None:
        if self._is_finishing and not self._truth.events:  # the topic may be missing
            self._violations.append(ViolationError(f"a commit fails though no fault is left: {error!r}"))

    def has_lost(self, topics: Sequence[str]) -> bool:
        return any(self._truth.has_lost(topic, None, math.inf) for topic in topics)

    def failed(self, life: DirectStreamLife, kind: str, time_ms: int, output: int | None, error: Exception) -> None:
        """Check that an error is one that the history can cause."""
        if kind == "job" and output is not None:
            key = (0 if self._parameters["mode"] == "checkpoint" else life.number, time_ms)
            shape = self._parameters["outputs"][output]
            spans = [s for stream in shape["streams"] for s in self._lineage.streams[stream].known.get(time_ms, ())]
            self._epochs[-1].failed_jobs[output, key] = tuple(spans)
        try:
            self._check_error(life, kind, error)
        except ViolationError as violation:
            self._violations.append(violation)
        except Exception as unexpected:
            self._violations.append(unexpected)

    def _check_error(self, life: DirectStreamLife, kind: str, error: Exception) -> None:
        quiet = self._world.now > self._environment.quiet_at + HEALING_SECONDS + 130.0 or self._is_finishing
        match error:
            case UserError():
                pass
            case DataLossError():
                self.report(f"data loss: {error}")
                if not self._checker.is_loss_explained(str(error)):
                    raise ViolationError(f"nothing was lost, but a {kind} fails: {error!r}") from error
                streams = range(len(life.streams))
                if kind == "job" and not any(life.parameters_of(each).fetch.fail_on_data_loss for each in streams):
                    raise ViolationError(f"failOnDataLoss is false, but a job fails: {error!r}") from error
            case TopicNotFoundError() | InvalidOffsetsError():
                if kind != "start" and not self._truth.events and not self._truth.has_new_partitions:
                    raise ViolationError(f"a {kind} fails: {error!r}") from error
                self._check_start_error(error)
            case BrokerError():
                if quiet or (self._has_good_broker and "some brokers do not know" in str(error)):
                    raise ViolationError(f"a {kind} fails though no fault is left: {error!r}") from error
            case KafkaDirectError() if "The stream was stopped" in str(error) and life.may_be_stopped():
                pass
            case TaskLostError():
                pass
            case _:
                raise error

    def _check_start_error(self, error: Exception) -> None:
        parameters = self._parameters
        if self._truth.events or self._truth.has_new_partitions or self._metadata_may_lag():
            return
        has_offsets = any(each["offsets"] or each["reset"] == "none" for each in parameters["streams"])
        if isinstance(error, TopicNotFoundError) or not has_offsets:
            raise ViolationError(f"the application does not start: {error!r}") from error

    def _metadata_may_lag(self) -> bool:
        """Return whether brokers may not have the topics yet that were created at the begin of the history."""
        kinds = {"stick_image", "isolate_broker", "stop_broker", "deny_topic"}
        return self._cluster.settings.metadata_lag > 0 or any(event.kind in kinds for event in self._plan.events)

    # Liveness.

    def is_done(self, life: DirectStreamLife) -> bool:
        if not self._is_finishing or not self._writer.is_finished or life.spark.pending_times():
            return False
        return not self._checker.lag(self._lineage, self._epochs[-1])

    def _finish(self) -> None:
        """Run the application without faults until its lag is zero, then check its results."""
        late = self._parameters["late_list"][: self._parameters["late"]]
        self._writer.schedule(late, self._world.now)
        self._is_finishing = True
        interval = self._parameters["interval_ms"] / 1000
        for _ in range(MAX_RESTARTS):
            life = self._live(LifePlan(_MAX_BATCHES_OF_LAG * interval + 60.0, "graceful", patient=False))
            if not life.ended_cleanly:
                continue  # a drawn crash
            if not life.errors:
                lag = self._checker.lag(self._lineage, self._epochs[-1])
                if lag:
                    raise ViolationError(f"the lag does not reach zero: {lag}")
                self._check_end(life)
                return
            error = next((each for each in life.errors if not isinstance(each, UserError)), None)
            match error:
                case DataLossError():
                    self._skip_loss = True
                    self._reset()
                case InvalidOffsetsError() | TopicNotFoundError():
                    if self._checker.are_topics_missing():
                        return
                    self._reset()
        raise ViolationError(f"the application does not run after {MAX_RESTARTS} restarts: {life.errors}")

    def _check_end(self, life: DirectStreamLife) -> None:
        if life.callbacks != life.commit_calls:
            raise ViolationError(f"{life.commit_calls} calls of commitAsync have {life.callbacks} callbacks")
        if self._commits_in_order and not self._may_reorder_commits:
            self._checker.check_last_commits(self._last_commits)
        for number, epoch in enumerate(self._epochs):
            self._checker.check(epoch, is_last=number == len(self._epochs) - 1)
        self._checker.check_recreations(self._lineage, self._epochs[-1].started_at)
