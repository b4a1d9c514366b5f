"""Batch queries over all topics: the plan has exactly the records that its positions and filters mean.

If nothing happens to the logs while a plan is made, its offsets are known exactly. Otherwise only the rows are checked.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.settings import read_settings, task_settings
from tests.simulation.errors import TRANSIENT_ERRORS, ViolationError
from tests.simulation.oracle import READ_COMMITTED, READ_UNCOMMITTED

from pyspark_kafka_direct.consumer.batch_query import plan_batch_query
from pyspark_kafka_direct.consumer.fetcher import read_range
from pyspark_kafka_direct.consumer.range_counter import count_range
from pyspark_kafka_direct.consumer.record_size import sample_record_size
from pyspark_kafka_direct.errors import DataLossError, InvalidOffsetsError, KafkaDirectError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.options.offset_specs import OffsetSpec
from pyspark_kafka_direct.options.positions import AtTime, LastOffsets
from pyspark_kafka_direct.options.subscription import SubscribeStrategy
from pyspark_kafka_direct.planning.pushed_filters import Comparison, push_filters

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from tests.settings import TaskSettings
    from tests.simulation.environment import Environment
    from tests.simulation.oracle import PartitionTruth
    from tests.simulation.process import SimulatedProcess

    from pyspark_kafka_direct.consumer.batch_query import PlannedBatch
    from pyspark_kafka_direct.consumer.range_task import RangeTask
    from pyspark_kafka_direct.options.settings import ReadSettings

_ELECTIONS: Final = frozenset(("delete_records", "expire_records"))
"""Events after which the leaders' logs are still the truth."""
_BASE_MS: Final = 1_700_000_000_000  # of the wall clock, when the world's clock is 0
_SAMPLE_BYTES: Final = 64 << 10
_ROUNDS: Final = 40


def draw_queries(rng: random.Random, seconds: float) -> list[dict[str, Any]]:
    """Draw queries, for some of the histories."""
    return [_draw_query(rng, seconds) for _ in range(rng.choice((0, 0, 0, 1, 1, 2)))]


def _draw_query(rng: random.Random, seconds: float) -> dict[str, Any]:
    return {
        "at": round(rng.choice((0.2, 1.0, 1.3)) * seconds * rng.random(), 3),
        "start": rng.choice(("earliest", "earliest", "given", "last", "time", "mixed")),
        "end": rng.choice(("latest", "latest", "given", "time")),
        "start_fraction": rng.choice((0.0, 0.0, 1.0, rng.random())),
        "end_fraction": rng.choice((1.0, rng.random())),
        "last": rng.choice((1, 3, 1_000)),
        "seconds_ago": round(rng.choice((0.0, 0.001, 1.0, seconds)) * rng.random(), 3),
        "committed": rng.random() < 0.5,
        "fail_on_data_loss": rng.random() < 0.5,
        "min_partitions": rng.choice((None, None, 2, 5, 11)),
        "max_records": rng.choice((None, None, 1, 3, 7)),
        "offset_filter": rng.choice((None, None, None, (0, 5), (3, 1_000), (4, 4))),
        "time_filter": rng.random() < 0.2,
        "limit": rng.choice((1, 2, 5)),
        "samples": rng.random() < 0.5,
        "begins_with": rng.randrange(3),
    }


class _Bounds(NamedTuple):
    """What is known of a log when a plan is made."""

    generation: int
    start: int
    end: int  # of the records that may be read
    high_watermark: int


class BatchQuery:
    """Plans a query in a process, and reads all its tasks there."""

    def __init__(
        self, environment: Environment, process: SimulatedProcess, topics: Mapping[str, int], query: Mapping[str, Any]
    ) -> None:
        self._environment = environment
        self.process = process
        self._topics = topics
        self._query = query
        self._isolation = READ_COMMITTED if query["committed"] else READ_UNCOMMITTED
        kinds = {event.args.get("change", event.kind) for event in environment.plan.events}
        self._is_calm = kinds <= _ELECTIONS

    def run(self) -> None:
        self.process.sleep(self._query["at"])
        for _ in range(_ROUNDS):
            started, before = self._environment.world.now, self._bounds()
            settings = self._settings(before)
            try:
                with self._environment.world.operation():
                    planned = plan_batch_query(
                        settings, pushed=self._pushed(), pool=self._environment.pool(self.process)
                    )
            except TRANSIENT_ERRORS as error:
                self._check_transient(started, error)
                self.process.sleep(2.0)
                continue
            except (DataLossError, TopicNotFoundError, InvalidOffsetsError) as error:
                self._check_refused(before, settings, error)
                return
            if before == self._bounds():
                self._check_plan(planned, before, settings)
            self._read(planned, settings, started, is_exact=before == self._bounds())
            return

    def _bounds(self) -> dict[TopicPartition, _Bounds]:
        oracle, now = self._environment.oracle, self._environment.world.now
        bounds = {}
        for topic, count in self._topics.items():
            for index in range(count):
                tp = TopicPartition(topic, index)
                if (topic, oracle.generations[topic], index) in oracle.truths:
                    truth = oracle.truth(tp)
                    start = truth.log_start(now)
                    end = max(truth.end_offset(self._isolation, now), start)
                    bounds[tp] = _Bounds(oracle.generations[topic], start, end, max(truth.high_watermark(now), start))
        return bounds

    def _settings(self, bounds: Mapping[TopicPartition, _Bounds]) -> ReadSettings:
        query, environment = self._query, self._environment
        names = {"default_api_timeout_ms": "api_timeout_ms", "request_timeout_ms": "request_timeout_ms"}
        timeouts = {name: environment.plan.parameters[parameter] for name, parameter in names.items()}
        found = read_settings(
            self._spec("start", bounds),
            fail_on_data_loss=query["fail_on_data_loss"],
            read_committed=query["committed"],
            end=self._spec("end", bounds),
            min_partitions=query["min_partitions"],
            max_records_per_partition=query["max_records"],
        )
        fetch = replace(found.fetch, max_partition_fetch_bytes=environment.plan.parameters["fetch_bytes"])
        source = replace(found.source, selection=SubscribeStrategy(tuple(self._topics)))
        connection = environment.settings(first_broker=query["begins_with"], **timeouts)
        return replace(found, connection=connection, fetch=fetch, source=source)

    def _spec(self, side: str, bounds: Mapping[TopicPartition, _Bounds]) -> OffsetSpec:
        query, option = self._query, f"{side}ingOffsets"
        given = {}
        for tp, each in bounds.items():
            first = each.start if side == "end" else 0  # a start may lie before the log
            given[tp] = first + int((each.end - first) * query[f"{side}_fraction"])
        match query[side]:
            case "given" if given:
                return OffsetSpec(partitions=given, option=option)
            case "last":
                return OffsetSpec(others=LastOffsets(query["last"]), option=option)
            case "time":
                return OffsetSpec(others=AtTime(self._timestamp, "latest"), option=option)
            case "mixed" if given:
                named, *_ = sorted(given)
                return OffsetSpec(partitions={named: given[named]}, others=EARLIEST, option=option)
        return OffsetSpec(others=EARLIEST if side == "start" else LATEST, option=option)

    @property
    def _timestamp(self) -> int:
        """A time at which records may have been appended."""
        at = self._environment.started_at + max(0.0, self._query["at"] - self._query["seconds_ago"])
        return _BASE_MS + int(at * 1000)

    def _pushed(self) -> Any:
        query = self._query
        filters = []
        if query["offset_filter"] is not None:
            first, last = query["offset_filter"]
            filters += [Comparison("offset", ">=", first), Comparison("offset", "<=", last)]
        if query["time_filter"]:
            from datetime import UTC, datetime

            filters.append(Comparison("timestamp", ">=", datetime.fromtimestamp(self._timestamp / 1000, UTC)))
        return push_filters(filters) if filters else None

    def _check_transient(self, started: float, error: KafkaDirectError) -> None:
        if not self._environment.plan.events or (started > self._environment.quiet_at + 60.0):
            raise ViolationError(f"a query cannot be planned though nothing fails: {error!r}") from error

    def _check_refused(
        self, bounds: Mapping[TopicPartition, _Bounds], settings: ReadSettings, error: KafkaDirectError
    ) -> None:
        """Check that a plan fails only if its positions have no records, or a topic may be missing."""
        if not self._is_calm or bounds != self._bounds():
            return
        if isinstance(error, TopicNotFoundError) and self._environment.cluster.settings.metadata_lag:
            return  # the broker may lag behind
        expected = self._expected(bounds, settings)
        is_lost = any(low < bounds[tp].start for tp, (low, until) in expected.items() if low < until)
        is_contradiction = any(low > until for low, until in expected.values())
        is_justified = is_contradiction if isinstance(error, InvalidOffsetsError) else is_lost
        if isinstance(error, DataLossError) and not self._query["fail_on_data_loss"]:
            is_justified = False
        if isinstance(error, DataLossError) and is_contradiction:
            return
        if not is_justified:
            raise ViolationError(f"a plan fails, and its positions are {expected} of {bounds}: {error!r}") from error

    def _expected(
        self, bounds: Mapping[TopicPartition, _Bounds], settings: ReadSettings
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return what the positions mean."""
        assert isinstance(settings.source.start, OffsetSpec)
        assert settings.source.end is not None
        return {
            tp: (self._resolve(settings.source.start, tp, each), self._resolve(settings.source.end, tp, each))
            for tp, each in bounds.items()
        }

    def _resolve(self, spec: OffsetSpec, tp: TopicPartition, bounds: _Bounds) -> int:
        match spec.position(tp):
            case AtTime(timestamp):
                found = _first_since(self._environment.oracle.truth(tp), timestamp, bounds.start)
                return bounds.end if found is None else min(found, bounds.end)
            case LastOffsets(count):
                return max(bounds.end - count, bounds.start)
            case int(offset) if offset >= 0:
                return offset
            case position:
                return bounds.start if position == EARLIEST else bounds.end

    def _check_plan(
        self, planned: PlannedBatch, bounds: Mapping[TopicPartition, _Bounds], settings: ReadSettings
    ) -> None:
        """Check the tasks of a plan that was made while nothing happened to the logs."""
        tasks = planned.tasks()
        if not all(task.offsets.count() for task in tasks):
            raise ViolationError(f"a plan has an empty range: {tasks}")
        for one, other in pairwise(tasks):
            is_split = one.offsets.topic_partition == other.offsets.topic_partition
            if is_split and one.offsets.until_offset != other.offsets.from_offset:
                raise ViolationError(f"a partition is split into {one.offsets} and {other.offsets}")
        most = self._query["max_records"]
        if most is not None and any(each.offsets.count() > most for each in tasks):
            raise ViolationError(f"a task has more than {most} offsets: {tasks}")
        least, offsets = self._query["min_partitions"], sum(each.offsets.count() for each in tasks)
        if least is not None and len(tasks) < min(least, offsets) // 2:
            raise ViolationError(f"{offsets} offsets are split into {len(tasks)} tasks, not {least}")
        if not self._is_calm:
            return
        expected = self._expected(bounds, settings)
        cluster, start = self._environment.cluster, settings.source.start
        assert isinstance(start, OffsetSpec)
        for tp, (low, until) in expected.items():
            each, pieces = bounds[tp], [task for task in tasks if task.offsets.topic_partition == tp]
            first, last = self._narrow(tp, max(low, each.start), until)
            found = (pieces[0].offsets.from_offset, pieces[-1].offsets.until_offset) if pieces else (0, 0)
            if (pieces or first < last) and found != (first, last):
                raise ViolationError(f"{tp} is planned as {found}, not {(first, last)} of {each}: {dict(self._query)}")
            target = cluster.partition(tp)
            for task in pieces:
                is_from_earliest = start.position(tp) == EARLIEST and task.offsets.from_offset == each.start
                if is_from_earliest and not task.from_earliest:
                    raise ViolationError(f"{task} starts at the log start, and does not say so")
                assert target is not None
                known_leader = None if task.leader is None else task.leader.node.id
                if task.topic_id not in (None, target.topic.topic_id) or known_leader not in (None, target.leader):
                    raise ViolationError(f"{task} names another topic or leader than {target.leader}")
                if cluster.settings.topic_ids and task.topic_id is None:
                    raise ViolationError(f"{task} has no topic id")
        self._check_losses(planned, bounds, expected)

    def _check_losses(
        self,
        planned: PlannedBatch,
        bounds: Mapping[TopicPartition, _Bounds],
        expected: Mapping[TopicPartition, tuple[int, int]],
    ) -> None:
        lost = {tp: min(bounds[tp].start, until) - low for tp, (low, until) in expected.items() if low < until}
        lost = {tp: count for tp, count in lost.items() if count > 0}
        reported = {tp: count for loss in planned.plan.losses for tp, count in loss.offsets.items()}
        has_contradiction = any(low > until for low, until in expected.values())
        if reported != lost and not has_contradiction:
            raise ViolationError(f"{lost} are lost, and a plan reports {reported}: {planned.plan.losses}")
        blocked = {
            tp
            for tp, each in bounds.items()
            if self._isolation == READ_COMMITTED and each.end < each.high_watermark and tp in planned.plan.latest
        }
        warned = [each for each in planned.plan.warnings if "open transaction" in each]
        if bool(warned) != bool(blocked) or len(warned) > 1:
            raise ViolationError(f"open transactions are in {blocked}, and the warnings are {planned.plan.warnings}")

    def _narrow(self, tp: TopicPartition, first: int, last: int) -> tuple[int, int]:
        """Apply the filters to a range."""
        if self._query["offset_filter"] is not None:
            low, high = self._query["offset_filter"]
            first, last = max(first, low), min(last, high + 1)
        if self._query["time_filter"]:
            found = _first_since(self._environment.oracle.truth(tp), self._timestamp, first)
            first = last if found is None else max(first, min(found, last))
        return first, last

    def _read(self, planned: PlannedBatch, settings: ReadSettings, planned_at: float, *, is_exact: bool) -> None:
        environment = self._environment
        oracle, pool = environment.oracle, environment.pool(self.process)
        config = task_settings(settings.connection, settings.fetch, poll_timeout=12.0)
        for number, task in enumerate(planned.tasks()):
            tp, (first, until) = task.offsets.topic_partition, (task.offsets.from_offset, task.offsets.until_offset)
            generation = oracle.generations[tp.topic]
            if task.topic_id is not None:
                generation = environment.cluster.generations_by_id[task.topic_id]
            started = environment.world.now
            read = partial(read_range, *config, task, ("offset", "value"), pool=pool)
            try:
                with environment.world.operation():
                    rows = [
                        (offset, value)
                        for batch in read()
                        for offset, value in zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
                    ]
                if self._is_calm and number == 0:
                    self._check_count(config, task, rows)
                    if self._query["samples"] and is_exact:
                        self._check_sample(settings, task.topic_id, task.leader, tp, first)
            except TRANSIENT_ERRORS as error:
                self._check_transient(started, error)
                return
            except (DataLossError, TopicNotFoundError) as error:
                is_lost = bool(oracle.loss_reasons(tp, first, until, since=planned_at, generation=generation))
                # A plan may have the offsets of a deleted topic with the id of the new one.
                was_deleted = any(topic == tp.topic for topic, _ in oracle.deleted_at)
                if not is_lost and not was_deleted and not environment.may_hide_partitions:
                    raise ViolationError(f"nothing is lost of {task}: {error!r}") from error
                return
            if not self._is_calm:
                continue
            losses = oracle.loss_reasons(tp, first, until, since=planned_at, generation=generation)
            violations = oracle.check_range(
                tp,
                generation,
                first,
                until,
                rows,
                self._isolation,
                started,
                environment.world.now,
                may_lack_records=bool(losses),
            )
            if violations:
                raise ViolationError("; ".join(violations[:3]))

    def _check_count(self, config: TaskSettings, task: RangeTask, rows: Sequence[object]) -> None:
        """Count with a limit, and check that a count ends when it has reached the limit."""
        limit, pool = self._query["limit"], self._environment.pool(self.process)
        lost_before = len(self._environment.oracle.truth(task.offsets.topic_partition).starts)
        counted = count_range(*config, task, limit=limit, pool=pool)
        if len(self._environment.oracle.truth(task.offsets.topic_partition).starts) != lost_before or lost_before:
            return
        if counted > len(rows) or counted < min(limit, len(rows)):
            raise ViolationError(f"{counted} of {len(rows)} records are counted up to the limit {limit}")

    def _check_sample(
        self, settings: ReadSettings, topic_id: Any, leader: Any, tp: TopicPartition, offset: int
    ) -> None:
        """Compare a sample of the record size with the batches of the log."""
        environment = self._environment
        client = environment.client(self.process)
        before = self._bounds()
        sample = sample_record_size(
            settings.connection,
            settings.fetch,
            tp,
            offset,
            client.deadline(),
            topic_id=topic_id,
            leader=leader,
            pool=environment.pool(self.process),
        )
        truth = environment.oracle.truth(tp)
        if before != self._bounds() or truth.starts or len(truth.epochs) > 1 or truth.compacted:
            return
        batches = [
            batch
            for epoch in truth.batches.values()
            for batch, _ in epoch
            if batch.last_offset >= offset and batch.last_offset < before[tp].end
        ]
        size = sum(len(batch.data) for batch in batches)
        if not batches or size > _SAMPLE_BYTES:
            return
        offsets = batches[-1].last_offset + 1 - batches[0].base_offset
        if sample is None or (sample.size, sample.offsets) != (size, offsets):
            raise ViolationError(
                f"{tp} has {size} bytes in {offsets} offsets from {offset} on, and the sample is {sample}"
            )


def _first_since(truth: PartitionTruth, timestamp: int, start: int) -> int | None:
    """Return the first offset from a start on with a timestamp or a later one."""
    return min(
        (
            offset
            for batches in truth.batches.values()
            for batch, _ in batches
            for offset, time in zip(batch.offsets, batch.timestamps, strict=True)
            if offset >= start and time >= timestamp
        ),
        default=None,
    )
