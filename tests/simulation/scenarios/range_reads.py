"""Range reads and counts: exactly the range's records, once and in order, or the error that the history justifies."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

from tests.simulation.drawing import draw_appends, draw_cluster, draw_events, draw_log
from tests.simulation.environment import Environment
from tests.simulation.errors import TRANSIENT_ERRORS, ViolationError
from tests.simulation.history import Plan
from tests.simulation.oracle import READ_COMMITTED, READ_UNCOMMITTED

from pyspark_kafka_direct.config.client_settings import FetchSettings
from pyspark_kafka_direct.consumer.range_counter import count_range
from pyspark_kafka_direct.consumer.range_reader import read_range
from pyspark_kafka_direct.consumer.range_request import RangeRequest, ReadCounts
from pyspark_kafka_direct.errors import (
    DataLossError,
    KafkaDirectError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition

if TYPE_CHECKING:
    import random
    from collections.abc import Generator, Mapping, Sequence
    from uuid import UUID

    from tests.simulation.history import Size
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scheduler import World

    from pyspark_kafka_direct.client.metadata import PartitionLeader
    from pyspark_kafka_direct.config.client_settings import IsolationLevel

NAME = "range_reads"
SHRINKABLE = {"reads": 1, "log": (), "append_list": (), "read_list": ()}
_TOPIC = "flights"
_SLACK = 2.0  # seconds by which an error may come late: the connects and responses on the way


def draw(rng: random.Random, size: Size) -> Plan:
    long = size == "long"
    cluster = draw_cluster(rng)
    partitions = rng.randint(1, 3)
    seconds = rng.choice((1.0, 5.0, 30.0)) * (4 if long else 1)
    requests = 1500 if long else 50
    events = draw_events(rng, {_TOPIC: partitions}, seconds=seconds, requests=requests, long=long)
    times = [event.at for event in events if event.at is not None]
    reads = [
        _draw_read(rng, seconds, partitions, times) for _ in range(rng.randint(40, 80) if long else rng.randint(1, 3))
    ]
    fetch_bytes = rng.choice((150, 400, 4_194_304))
    batches = rng.randint(5, 200 if fetch_bytes > 1000 else 40) if long else rng.randint(1, 12)
    parameters = {
        **cluster,
        "partitions": partitions,
        "log": draw_log(rng, batches=batches),
        "append_list": draw_appends(rng, batches=rng.choice((0, 3, 40 if long else 5)), seconds=seconds),
        "seconds": seconds,
        "reads": len(reads),
        "read_list": reads,
        "processes": rng.randint(1, 2),
        "api_timeout_ms": rng.choice((2_000, 10_000, 60_000)),
        "request_timeout_ms": rng.choice((1_000, 30_000)),
        "fetch_bytes": fetch_bytes,
    }
    return Plan(NAME, parameters, events, quiet_after=seconds)


def run(world: World, plan: Plan) -> None:
    environment = Environment(world, plan)
    parameters = plan.parameters
    environment.cluster.create_topic(_TOPIC, parameters["partitions"])
    environment.write_log(_TOPIC, parameters["partitions"], parameters["log"])
    environment.schedule_appends(_TOPIC, parameters["partitions"], parameters["append_list"])
    processes = [environment.process(f"executor-{number}") for number in range(parameters["processes"])]
    reads = [
        _Read(environment, processes[number % len(processes)], read)
        for number, read in enumerate(parameters["read_list"][: parameters["reads"]])
    ]
    world.run([read.process.spawn(f"read {number}", read.run) for number, read in enumerate(reads)])
    environment.raise_errors()
    environment.check_released(processes)


def _draw_read(rng: random.Random, seconds: float, partitions: int, times: Sequence[float]) -> dict[str, Any]:
    at = rng.random() * seconds
    wait = rng.choice((0.0, 0.01, 1.0, 20.0)) * rng.random()
    pause = rng.choice((0.0, 1.0, 20.0)) * rng.random()
    if times and rng.random() < 0.5:  # planned, and perhaps begun, before an event of the cluster
        event = rng.choice(times)
        at = max(0.0, event - rng.choice((0.01, 0.1, 1.0)) * rng.random())
        passed = event - at + rng.choice((0.01, 0.1, 1.0, 10.0)) * rng.random()
        wait, pause = rng.choice(((passed, 0.0), (0.0, passed)))
    return {
        "at": round(at, 3),
        "wait": round(wait, 3),  # between plan and read
        "pause": round(pause, 3),  # after a batch, as a query that is slower than the broker
        "pause_after": rng.choice((0, 1, 1, 2)),  # Arrow batches; 0: no pause
        "partition": rng.randrange(partitions),
        "from": rng.choice((0.0, 0.0, rng.random())),
        "until": rng.choice((1.0, 1.0, rng.random())),
        "committed": rng.random() < 0.5,
        "fail_on_data_loss": rng.random() < 0.5,
        "from_earliest": rng.random() < 0.3,
        "has_leader": rng.random() < 0.6,
        "has_topic_id": rng.random() < 0.8,
        "count": rng.random() < 0.25,
        "stop_after": rng.choice((0, 0, 0, 1, 3)),  # Arrow batches, as LIMIT does; 0: read all
        "poll_timeout": rng.choice((8.0, 8.0, 30.0, 120.0)),
        "columns": rng.choice((("offset", "value"), ("value", "offset", "timestamp", "key"))),
        "max_rows": rng.choice((1, 3, 32_768)),
    }


def _timeouts(plan: Plan) -> dict[str, int]:
    names = {"default_api_timeout_ms": "api_timeout_ms", "request_timeout_ms": "request_timeout_ms"}
    return {name: plan.parameters[parameter] for name, parameter in names.items()}


class _Planned:
    """The range of a read, as a driver plans it; a broker that lags may return offsets of an older generation."""

    def __init__(
        self,
        offsets: OffsetRange,
        topic_id: UUID | None,
        leader: PartitionLeader | None,
        generation: int,
        oldest_generation: int,
        at: float,
    ) -> None:
        self.oldest_generation = oldest_generation
        self.offsets = offsets
        self.topic_id = topic_id
        self.leader = leader
        self.generation = generation
        self.at = at


class _TimedCounts(ReadCounts):
    """Remembers when records were received last; a caller sees them later, in a batch of many rows."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.received_at = world.now

    def add_fetch(self, broker: str | None, size: int) -> None:
        super().add_fetch(broker, size)
        if size:
            self.received_at = self._world.now


class _Read:
    """Plans one range, waits, and reads it; after the faults have stopped it must succeed."""

    def __init__(self, environment: Environment, process: SimulatedProcess, read: Mapping[str, Any]) -> None:
        self.environment = environment
        self.process = process
        self._read_parameters = read
        self._partition = TopicPartition(_TOPIC, read["partition"])
        self._isolation: IsolationLevel = "read_committed" if read["committed"] else "read_uncommitted"

    def run(self) -> None:
        read, world = self._read_parameters, self.environment.world
        self.process.sleep(read["at"])
        planned = self._plan()
        if planned is None:
            return
        self.process.sleep(read["wait"])
        while True:
            quiet, started = self.environment.is_quiet, world.now
            try:
                with world.operation():
                    self._read(planned)
                return
            except DataLossError as error:
                self._check_loss(planned, error)
                return
            except TopicNotFoundError as error:
                if (_TOPIC, planned.generation) not in self.environment.oracle.deleted_at:
                    raise ViolationError(f"the topic exists, but the read says: {error}") from error
                return
            except TRANSIENT_ERRORS as error:
                if (
                    quiet
                    and self.environment.oracle.created_at[_TOPIC, self.environment.oracle.generations[_TOPIC]]
                    < started
                ):
                    raise ViolationError(f"a read fails though no fault is left: {error!r}") from error
                self.process.sleep(1.0)

    def _plan(self) -> _Planned | None:
        client = self.environment.client(self.process, **_timeouts(self.environment.plan))
        read = self._read_parameters
        while True:
            quiet, started = self.environment.is_quiet, self.environment.world.now
            oldest = self.environment.oldest_generation(*self._partition)
            try:
                with self.environment.world.operation():
                    topics = client.topics([_TOPIC])
                    if _TOPIC not in topics or read["partition"] not in topics[_TOPIC].partitions:
                        if quiet and self.environment.cluster.partition(self._partition) is not None:
                            raise ViolationError(f"metadata lacks {self._partition} though no fault is left")
                        return None
                    deadline = client.deadline()
                    start = client.offsets({self._partition: EARLIEST}, deadline=deadline)[self._partition]
                    end = client.offsets({self._partition: LATEST}, isolation_level=self._isolation, deadline=deadline)[
                        self._partition
                    ]
                    leader = client.known_leaders([self._partition]).get(self._partition)
                break
            except KafkaDirectError as error:
                self._check_time(started, 2 * self.environment.plan.parameters["api_timeout_ms"] / 1000, error)
                if isinstance(error, (TopicNotFoundError, DataLossError)):
                    return None
                if quiet or not isinstance(error, TRANSIENT_ERRORS):
                    raise ViolationError(f"planning fails, and no fault explains it: {error!r}") from error
                self.process.sleep(1.0)
        first = start + int((end - start) * read["from"])
        last = first + int((end - first) * read["until"])
        if first >= last:
            return None
        topic_id = topics[_TOPIC].topic_id
        return _Planned(
            OffsetRange(_TOPIC, read["partition"], first, last),
            topic_id if read["has_topic_id"] else None,
            leader if read["has_leader"] else None,
            oldest if topic_id is None else self.environment.cluster.generations_by_id[topic_id],
            oldest,
            self.environment.world.now,
        )

    def _read(self, planned: _Planned) -> None:
        read, environment = self._read_parameters, self.environment
        fetch = FetchSettings(self._isolation, max_partition_fetch_bytes=environment.plan.parameters["fetch_bytes"])
        request = RangeRequest(
            planned.offsets,
            read["columns"],
            planned.topic_id,
            planned.leader,
            from_earliest=read["from_earliest"] and planned.offsets.from_offset == 0,
            fail_on_data_loss=read["fail_on_data_loss"],
            poll_timeout=read["poll_timeout"],
            max_rows=read["max_rows"],
        )
        counts = _TimedCounts(environment.world)
        pool, settings = environment.pool(self.process), environment.settings(**_timeouts(environment.plan))
        started = progress = environment.world.now
        rows: list[tuple[int, bytes | None]] = []
        counted = -1
        try:
            if read["count"]:
                counted = count_range(settings, fetch, request, counts=counts, pool=pool)
            else:
                batches = read_range(settings, fetch, request, counts, pool=pool)
                with closing(cast("Generator[Any]", batches)):
                    for number, batch in enumerate(batches, 1):
                        rows += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
                        if number == read["stop_after"]:
                            break
                        if number == read["pause_after"]:
                            self.process.sleep(read["pause"])
                        progress = environment.world.now
        except KafkaDirectError as error:
            self._check_time(max(progress, counts.received_at), read["poll_timeout"], error)
            raise
        self._check_rows(planned, request, rows, counted, counts, started)

    def _check_rows(
        self,
        planned: _Planned,
        request: RangeRequest,
        rows: list[tuple[int, bytes | None]],
        counted: int,
        counts: ReadCounts,
        started: float,
    ) -> None:
        oracle, now = self.environment.oracle, self.environment.world.now
        isolation = READ_COMMITTED if self._isolation == "read_committed" else READ_UNCOMMITTED
        first, until = planned.offsets.from_offset, planned.offsets.until_offset
        name, generation = self._partition, planned.generation
        losses = oracle.loss_reasons(name, first, until, since=planned.at, generation=generation)
        may_skip = bool(losses) and (not request.fail_on_data_loss or request.from_earliest)
        if counted >= 0:
            # Meanwhile some may be compacted away.
            most, least = (
                len(oracle.records(name, first, until, isolation, at=at, generation=generation))
                for at in (started, now)
            )
            if not least <= counted <= most and not losses:
                raise ViolationError(f"{counted} records are counted instead of {least}")
            return
        if planned.topic_id is None and (_TOPIC, generation) in oracle.deleted_at:
            return  # without topic ids the recreated topic's records look like those of the planned one
        stopped = bool(self._read_parameters["stop_after"] and rows and rows[-1][0] < until - 1)
        violations = oracle.check_range(
            name, generation, first, until, rows, isolation, started, now, is_prefix=stopped
        )
        if may_skip:
            violations = [each for each in violations if "is missing" not in each]
            if len(rows) < until - first and counts.lost == 0 and not request.from_earliest and not stopped:
                end = min(until, oracle.replaced_from(name, until, at=now, generation=generation))
                present = oracle.records(name, first, end, isolation, at=planned.at, generation=generation)
                lost = len(present) - sum(offset < end for offset, _ in rows)
                if lost > 0 and not counts.gaps:
                    violations.append(f"{lost} records are skipped without being counted as lost")
        if violations:
            raise ViolationError("; ".join(violations[:3]))

    def _check_loss(self, planned: _Planned, error: DataLossError) -> None:
        read = self._read_parameters
        if not read["fail_on_data_loss"]:
            raise ViolationError(f"failOnDataLoss is false, but the read fails: {error!r}") from error
        offsets = planned.offsets
        if planned.oldest_generation == planned.generation and not self.environment.oracle.loss_reasons(
            self._partition,
            offsets.from_offset,
            offsets.until_offset,
            since=planned.at,
            generation=planned.generation,
        ):
            raise ViolationError(f"nothing was lost, but the read says: {error!r}") from error

    def _check_time(self, since: float, seconds: float, error: Exception) -> None:
        passed = self.environment.world.now - since
        if passed > seconds + _SLACK:
            raise ViolationError(f"an error comes after {passed:.1f} s, not {seconds:.1f} s: {error!r}") from error
