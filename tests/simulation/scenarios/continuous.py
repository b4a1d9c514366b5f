"""Continuous queries with both guarantees: crashes, zombie drivers, and changes of the topics.

An application runs the query, dies or is suspended, and another one resumes from its checkpoint. When the faults have
stopped, everything must be copied, and the output is compared with what happened to each source record.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cluster.coordinator_events import draw_coordinator_event
from tests.simulation.cluster.events import draw_event
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.simulation.drawing import READ_APIS, draw_appends, draw_events, draw_log, draw_transactional_cluster
from tests.simulation.environment import Environment
from tests.simulation.errors import ViolationError
from tests.simulation.faults import CRASHES, PAUSES
from tests.simulation.history import Event, Plan
from tests.simulation.oracle import READ_COMMITTED
from tests.simulation.scenarios.checkpoint_store import FILE_FAULTS, CheckpointStore, FileSystemError
from tests.simulation.scenarios.continuous_checks import OUTPUT, Delivery, OutputChecker, is_dropped
from tests.simulation.scenarios.continuous_micro_batches import MicroBatchRun
from tests.simulation.scenarios.continuous_stand_in import ContinuousDriver
from tests.simulation.scenarios.exactly_once import SAFE_EVENTS
from tests.simulation.scenarios.record_truth import RecordTruth, TruthAndOracle
from tests.simulation.scenarios.record_writer import RecordWriter
from tests.simulation.scenarios.spark_stand_in import STEPS

from pyspark_kafka_direct.errors import (
    DataLossError,
    InvalidOffsetsError,
    KafkaDirectError,
    OptionError,
    QueryRunError,
    TransactionStateError,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    import pyarrow as pa
    from tests.simulation.history import Size
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scheduler import World

    from pyspark_kafka_direct.continuous.continuous_sink import TaskInfo
    from pyspark_kafka_direct.continuous.query_builder import ContinuousQueryBuilder
    from pyspark_kafka_direct.offsets import TopicPartition

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
    "log": (),
    "appends": (),
    "late": (),
}
_TOPICS = ("flights", "trains")
_LOSSY_EVENTS = ("expand_topic", "expand_topic", "delete_records", "expire_records", "recreate_topic", "deny_topic")
_APIS: Final = (
    *READ_APIS,
    "FindCoordinator",
    "OffsetFetch",
    "Produce",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
)
_LIVENESS_SECONDS = 400.0  # after the faults have stopped
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.2
_MAX_DRIVERS = 60
_MAX_PAUSE = 6.0
_histories: dict[str, _QueryHistory] = {}  # that run, by the name that their functions carry


def draw(rng: random.Random, size: Size) -> Plan:
    long = size == "long"
    scale = 6 if long else 1
    cluster = draw_transactional_cluster(rng)
    partitions = {topic: rng.randint(1, 2) for topic in _TOPICS[: rng.choice((1, 1, 2))]}
    seconds = rng.choice((0.4, 1.0, 1.0, 3.0)) * (15 if long else 1)
    guarantee = rng.choice(("exactly-once", "exactly-once", "at-least-once", "function", "database"))
    epoch_timeout = rng.choice((2.0, 5.0))
    requests = 1000 if long else 60

    def at() -> float:
        return round(rng.random() * seconds, 3)

    parameters: dict[str, Any] = {
        **cluster,
        "partitions": partitions,
        "output_partitions": rng.randint(1, 2),
        "guarantee": guarantee,
        "isolation": rng.choice(("read_uncommitted", "read_committed")),
        "fail_on_data_loss": rng.random() < 0.5,
        "starting": rng.choice(("earliest", "earliest", "earliest", "latest")),
        "drops_rows": rng.random() < 0.2,
        "function_seconds": rng.choice((0.0, 0.0, 0.0, 0.02, 0.3)),
        "selections": _draw_selections(rng, list(partitions)),
        "log": draw_log(rng, batches=rng.randint(5, 40) if long else rng.randint(0, 4)),
        "appends": draw_appends(rng, batches=rng.randint(10, 80) if long else rng.randint(0, 4), seconds=seconds),
        "late": [
            {**batch, "transaction": None} for batch in draw_appends(rng, batches=rng.choice((0, 0, 1)), seconds=0.5)
        ],
        "start": {
            "checkpointLocation": "memory:/checkpoint",
            "epochInterval": rng.choice((0.1, 0.3, 0.5)),
            "tasksMax": rng.choice((None, 1, 2)),
            "taskStartTimeout": rng.choice((3.0, 10.0)),
            "epochTimeout": epoch_timeout,
            "heartbeatTimeout": epoch_timeout,
            "maxRestarts": rng.choice((0, 1, 3)),
            "discoveryInterval": rng.choice((0.3, 2.0)),
        },
        "tasks": [rng.choice((None, 1, 2)) for _ in range(3)] if rng.random() < 0.3 else [],
        "request_timeout_ms": rng.choice((1_000, 5_000)),
        "api_timeout_ms": rng.choice((3_000, 10_000)),
        "restart_seconds": rng.choice((0.01, 0.5, 2.0)),
        "task_delay": rng.choice((0.005, 0.05, 0.5)),
        "task_attempts": rng.choice((1, 4)),
        "kill_seconds": rng.choice((0.0, 2.0)),
        "linger_seconds": rng.choice((0.0, 0.1, 5.0)),  # how long workers outlive their driver
        "retain": rng.choice((1, 2, 100)),
        "flush_seconds": rng.choice((0.0, 0.0, 0.2)),
        "kills": [
            [at(), rng.choice(("driver", "worker")), rng.randrange(4)] for _ in range(rng.choice((0, 0, 1, 2)) * scale)
        ],
        "pauses": [
            [at(), rng.choice(("driver", "driver", "worker")), rng.randrange(4), rng.choice((0.3, 3.0, _MAX_PAUSE))]
            for _ in range(rng.choice((0, 0, 0, 1, 2)) * scale)
        ],
        "stops": [at() for _ in range(rng.choice((0, 0, 1)) * scale)],
        "cuts": [[at(), rng.randrange(4)] for _ in range(rng.choice((0, 0, 0, 1)) * scale)],
        "extra_drivers": [at()] if rng.random() < 0.15 else [],
        "file_faults": [
            [rng.randrange(60 * scale), rng.choice(FILE_FAULTS), rng.choice((0.5, 2.0, _MAX_PAUSE))]
            for _ in range(rng.choice((0, 0, 1, 2)) * scale)
        ],
        "micro_batches": _draw_micro_batches(rng, scale) if guarantee in ("at-least-once", "function") else [],
        "executors": 2,
        "speculation": 0.0,
        "sink_failures": [rng.randrange(8 * scale) for _ in range(rng.choice((0, 0, 1)))],  # flushes that fail
    }
    topics = {**partitions, OUTPUT: parameters["output_partitions"]}
    events = draw_events(rng, topics, seconds=seconds, requests=requests, long=long, kinds=SAFE_EVENTS, apis=_APIS)
    events = tuple(each for each in events if each.args.get("topic") != OUTPUT or each.kind != "compact_log")
    events += tuple(_draw_more_events(rng, partitions, seconds, requests, scale))
    return Plan(NAME, parameters, events, quiet_after=seconds)


def run(world: World, plan: Plan) -> None:
    history = _QueryHistory(world, plan)
    _histories[history.name] = history
    try:
        history.run()
    finally:
        del _histories[history.name]


def _draw_selections(rng: random.Random, topics: list[str]) -> list[list[str]]:
    """Draw the topics that each driver subscribes to in turn; the last one has all."""
    if len(topics) == 1 or rng.random() < 0.6:
        return [topics]
    return [topics, topics[:1], topics]


def _draw_micro_batches(rng: random.Random, scale: int) -> list[list[Any]]:
    """Draw before which drivers a micro-batch query runs, and at which step it dies."""
    if rng.random() < 0.5:
        return []
    return [[rng.randint(1, 3), rng.choice(("", "after the offset log", *STEPS[2:]))] for _ in range(scale)]


def _draw_more_events(
    rng: random.Random, partitions: dict[str, int], seconds: float, requests: int, scale: int
) -> list[Event]:
    """Draw changes of the source topics, moves of coordinators, and crashes and pauses at requests."""
    events = []
    for _ in range(rng.choice((0, 0, 1, 2)) * scale):
        kind = rng.choice(_LOSSY_EVENTS)
        events.append(Event(kind, round(rng.random() * seconds, 3), args=draw_event(rng, kind, partitions, seconds)))
    for _ in range(rng.choice((0, 0, 0, 1)) * scale):
        kind = rng.choice(("move_transaction_coordinators", "move_group_coordinators"))
        args = draw_coordinator_event(rng, kind, "", seconds)
        events.append(Event(kind, round(rng.random() * seconds, 3), args=args))
    crashes = rng.choice((0, 0, 1, 2)) * scale
    events += [Event(rng.choice(CRASHES), request=rng.randrange(requests)) for _ in range(crashes)]
    for _ in range(rng.choice((0, 0, 0, 1)) * scale):
        pause = {"seconds": rng.choice((0.02, 1.0, _MAX_PAUSE))}
        events.append(Event(PAUSES[0], request=rng.randrange(requests), args=pause))
    return events


class UserFunction:
    """The query's function: it takes some time, and may drop every third record."""

    def __init__(self, history: str, seconds: float, *, drops_rows: bool) -> None:
        self._history = history
        self._seconds = seconds
        self._drops_rows = drops_rows

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        _histories[self._history].sleep(self._seconds)
        if not self._drops_rows:
            return batch
        keep = [index for index, value in enumerate(batch["value"].to_pylist()) if not is_dropped(value)]
        return batch.take(keep) if keep else None


class RowSinkFactory:
    """Makes the user's sinks of a history."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, task: TaskInfo) -> RowSink:
        _histories[self._name].open_sink(task.run_id)
        return RowSink(_histories[self._name], task.run_id)


class RowSink:
    """A sink of the user: rows are durable after a flush."""

    def __init__(self, history: _QueryHistory, run: str) -> None:
        self._history = history
        self._run = run
        self._rows: list[bytes] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows += batch["value"].to_pylist()

    def flush(self, positions: Mapping[TopicPartition, int]) -> None:
        self._history.flush(self._rows, self._run)
        self._rows = []

    def close(self) -> None:
        pass


class DatabaseSinkFactory(RowSinkFactory):
    def __call__(self, task: TaskInfo) -> DatabaseSink:
        _histories[self._name].open_sink(task.run_id)
        return DatabaseSink(_histories[self._name], task)


class DatabaseSink(RowSink):
    """A sink of the user that stores rows and positions in one transaction."""

    def __init__(self, history: _QueryHistory, task: TaskInfo) -> None:
        super().__init__(history, task.run_id)
        self._known = {tp: history.database.get(tp) for tp in task.partitions}

    def stored_positions(self) -> Mapping[TopicPartition, int]:
        return {tp: offset for tp, offset in self._known.items() if offset is not None}

    def flush(self, positions: Mapping[TopicPartition, int]) -> None:
        self._history.store(self._rows, self._run, self._known, positions)
        self._known, self._rows = dict(positions), []


class UserError(Exception):
    """The user's sink fails."""


class _QueryHistory:
    """One query, from its first start until it has no lag."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.name = f"{world.seed}"
        self._world = world
        self._parameters = parameters = plan.parameters
        self._environment = Environment(world, plan)
        self._cluster = self._environment.cluster
        oracle = self._cluster.oracle
        truth = RecordTruth()
        self._cluster.oracle = TruthAndOracle(truth, oracle)  # type: ignore[assignment]
        faults = {number: (kind, seconds) for number, kind, seconds in parameters["file_faults"]}
        self._store = CheckpointStore(self._environment, faults)
        self._store.on_pause = self._environment.network.on_pause = self._paused
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
        self._shared: set[int] = set()  # numbers of drivers before which a micro-batch query has run
        self._resumed_at = 0.0  # when all suspended processes and threads run again

    def run(self) -> None:
        parameters = self._parameters
        started_at = self._environment.started_at
        for topic, count in parameters["partitions"].items():
            self._cluster.create_topic(topic, count)
        self._cluster.create_topic(OUTPUT, parameters["output_partitions"])
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
        for at in parameters["extra_drivers"]:
            self._world.at(started_at + at, self._start_driver)
        self._start_driver()
        supervisor = self._environment.process("supervisor")
        self._world.run([supervisor.spawn("watch", lambda: self._supervise(supervisor))])
        self._environment.raise_errors()
        self._world.run_for(120.0)  # zombies wake up, late requests arrive, and transactions expire
        self._checker.check()
        self._store.check_logs()
        self._check_transactions()
        if self._store.notes:
            raise ViolationError(self._store.notes[0])

    # What users' functions call.

    def sleep(self, seconds: float) -> None:
        if seconds:
            self._world.current.process.sleep(seconds)

    def open_sink(self, run: str) -> None:
        job = self._checker.jobs[run]
        self._checker.jobs[run] = job._replace(committed=self._store.committed_offsets())

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
            if is_complete and not missing and not uncommitted and self._drivers[-1].is_steady:
                break
            if self._world.now > end:
                what = "copied" if missing else "committed"
                raise ViolationError(
                    f"records are not {what} though no fault is left\n{(missing or uncommitted)[:3]}; "
                    f"{[(each.number, each.error) for each in self._drivers[-4:]]}"
                )
        self._stop_last(supervisor)

    def _stop_last(self, supervisor: SimulatedProcess) -> None:
        driver = self._drivers[-1]
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
        driver.end()

    def _replace_drivers(self) -> None:
        for driver in self._drivers:
            if driver.is_over and driver.number not in self._judged:
                self._judged.add(driver.number)
                self._judge(driver)
                self._world.after(self._parameters["linger_seconds"], driver.end)
                if driver is self._drivers[-1] and self._restart_at is None:
                    self._restart_at = self._world.now + self._parameters["restart_seconds"] + 0.1 * driver.number
        if self._micro_batches is not None and self._micro_batches.is_over:
            self._end_micro_batches(self._micro_batches)
        if self._restart_at is not None and self._world.now >= self._restart_at and self._micro_batches is None:
            step = dict(self._parameters["micro_batches"]).get(len(self._drivers))
            if step is None or len(self._drivers) in self._shared or self._store.committed() is None:
                self._start_driver()
            else:
                self._start_micro_batches(step)

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
        self._micro_batches = MicroBatchRun(
            self._environment, 1_000 + len(self._drivers), self._store, options, crash or None
        )

    def _end_micro_batches(self, run: MicroBatchRun) -> None:
        self._world.trace("micro-batches ended", repr(run.execution.error))
        run.execution.end()
        self._checker.other_output += run.values()
        self._micro_batches = None

    def _start_driver(self) -> None:
        if self._micro_batches is not None:
            return
        self._restart_at = None
        if len(self._drivers) >= _MAX_DRIVERS:
            raise ViolationError(f"the query needs more than {_MAX_DRIVERS} drivers")
        number = len(self._drivers)
        fails_on_loss = self._parameters["fail_on_data_loss"] and not self._skip_loss
        define = partial(self._define, self._topics(number), fails_on_loss)
        parameters = self._parameters
        if tasks := parameters.get("tasks"):
            parameters = {**parameters, "start": {**parameters["start"], "tasksMax": tasks[number % len(tasks)]}}
        driver = ContinuousDriver(
            self._environment, number, self._store, parameters, define, self._checker.jobs.__setitem__
        )
        driver.fails_on_loss = fails_on_loss
        self._world.trace("driver", driver.number)
        living = [each for each in self._drivers if not each.is_over]
        for each in (*living, driver):
            each.is_alone = not living
        self._drivers.append(driver)
        driver.start()

    def _judge(self, driver: ContinuousDriver) -> None:
        """Check that a driver ended with an error that the history can cause."""
        error = driver.error
        match error:
            case None | FileSystemError():
                return
            case DataLossError():
                if not driver.fails_on_loss:
                    raise ViolationError(f"failOnDataLoss is false, but the query fails: {error!r}") from error
                self._skip_loss = True
            case InvalidOffsetsError():
                raise ViolationError(f"the checkpoint is rejected: {error!r}") from error
            case TransactionStateError():
                raise ViolationError(f"the transactions are rejected: {error!r}") from error
            case OptionError():
                raise ViolationError(f"the options are valid, but the query fails: {error!r}") from error
            case QueryRunError() if (cause := error.__cause__) is not None:
                if not isinstance(cause, KafkaDirectError | FileSystemError) and "The query failed" in str(error):
                    raise cause
            case KafkaDirectError():
                return
            case _:
                raise error

    def _topics(self, number: int | None = None) -> list[str]:
        """Return what a driver subscribes to, by default the newest one."""
        selections = self._parameters["selections"]
        number = self._drivers[-1].number if number is None else number
        return list(selections[min(number, len(selections) - 1)])

    def _define(
        self, topics: list[str], fails_on_loss: bool, builder: ContinuousQueryBuilder
    ) -> ContinuousQueryBuilder:
        parameters = self._parameters
        servers = ",".join(f"broker-{number}:9092" for number in sorted(self._cluster.brokers))
        api_timeout_ms = parameters["api_timeout_ms"]
        builder = builder.read(
            {
                "kafka.bootstrap.servers": servers,
                "kafka.request.timeout.ms": parameters["request_timeout_ms"],
                "kafka.default.api.timeout.ms": api_timeout_ms,
                "kafka.isolation.level": parameters["isolation"],
                "subscribe": ",".join(topics),
                "startingOffsets": parameters["starting"],
                "failOnDataLoss": fails_on_loss,
            }
        )
        builder = builder.select("key", "value")
        seconds = parameters.get("function_seconds", 0.0)
        if parameters["drops_rows"] or seconds:
            builder = builder.map_batches(UserFunction(self.name, seconds, drops_rows=parameters["drops_rows"]))
        if parameters["guarantee"] == "function":
            return builder.to(RowSinkFactory(self.name))
        if parameters["guarantee"] == "database":
            return builder.to(DatabaseSinkFactory(self.name))
        options: dict[str, object] = {"kafka.delivery.timeout.ms": api_timeout_ms + parameters["request_timeout_ms"]}
        if parameters["guarantee"] == "exactly-once":
            options |= {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "p"}
        return builder.to_kafka(OUTPUT, options)

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
        self._resumed_at = self._world.now + _MAX_PAUSE
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
        for index in range(len(self._cluster.topics[OUTPUT].partitions)):
            truth = self._environment.oracle.truth((OUTPUT, index))
            if truth.end_offset(READ_COMMITTED) < truth.high_watermark():
                raise ViolationError(f"a hanging transaction blocks readers of the output's partition {index}")
