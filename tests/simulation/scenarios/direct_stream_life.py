"""One life of an application with direct streams: its driver, its streams and outputs, and its end.

The streams, the functions that Spark calls, their checkpoints and their stops are the package's. What needs a JVM is
replaced: the StreamingContext, and the RDDs of tasks.
"""

from __future__ import annotations

import pickle
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from pyspark import SparkConf
from tests.simulation.errors import ProcessKilled, ViolationError
from tests.simulation.scenarios.spark_tasks import TaskRead, TaskScheduler
from tests.simulation.scenarios.streaming_stand_in import Job, StreamingStandIn

from pyspark_kafka_direct.direct import ConsumerStrategies, LocationStrategies, checkpointed_stream, kafka_rdd
from pyspark_kafka_direct.direct import direct_stream as direct_stream_module
from pyspark_kafka_direct.direct.checkpoint_data import StreamSpec, UnwrittenBatches
from pyspark_kafka_direct.direct.checkpointed_stream import CheckpointedStream
from pyspark_kafka_direct.direct.direct_stream import (
    BeginGeneration,
    ComputeKafkaRdd,
    DirectStreamReference,
    EndGeneration,
    ForeachKafkaRdd,
)
from pyspark_kafka_direct.direct.rate_controller import create_rate_controller, default_per_partition_config
from pyspark_kafka_direct.direct.stop_hooks import FLUSH_TIMEOUT_SECONDS, flush_commits, hook_stop
from pyspark_kafka_direct.direct.streaming_context import StreamingContextBinding, _release_stream
from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.simulation.environment import Environment
    from tests.simulation.scenarios.streaming_stand_in import CheckpointStore, StoredCheckpoint

    from pyspark_kafka_direct.consumer.range_task import RangeTask
    from pyspark_kafka_direct.direct.kafka_rdd import KafkaRDD
    from pyspark_kafka_direct.options.kafka_params import KafkaParameters
    from pyspark_kafka_direct.spark.range_task_reader import RangeTaskReader

STOP_SECONDS = 15.0  # of a stop that is not graceful, without Spark's wait for checkpoints
_COLUMNS = ("offset", "value")


class UserError(Exception):
    """A function of the user raises."""


class Observer:
    """What the checks of a history learn from its lives; the scenario implements it."""

    def reach(self, life: DirectStreamLife, step: str) -> None: ...

    def started(self, life: DirectStreamLife, stream: int, asked_at: float) -> None: ...

    def planned(
        self, life: DirectStreamLife, stream: int, time_ms: int, ranges: Sequence[OffsetRange], asked_at: float
    ) -> None: ...

    def generation_ended(self, life: DirectStreamLife, time_ms: int, *, succeeded: bool) -> None: ...

    def lineage(self) -> Any: ...

    def restored(self, lineage: Any) -> None: ...

    def results(
        self,
        life: DirectStreamLife,
        output: int,
        time_ms: int,
        ranges: Sequence[OffsetRange],
        reads: list[tuple[int, TaskRead]],
    ) -> dict[int, list[list[OffsetRange]]]:
        """Store results; return what is to be committed, by stream and call."""
        raise NotImplementedError

    def committed(
        self, stream: int, ranges: Sequence[OffsetRange], offsets: Mapping[TopicPartition, int] | None
    ) -> None:
        """A commit of ranges was reported as successful, with these offsets; None: of commitSync."""

    def delay(self, life: DirectStreamLife, place: str) -> float:
        """Return how many seconds a function of the user takes."""
        raise NotImplementedError

    def failed(self, life: DirectStreamLife, kind: str, time_ms: int, output: int | None, error: Exception) -> None: ...

    def must_fail(self, life: DirectStreamLife, place: int) -> bool:
        raise NotImplementedError

    def commit_failed(self, error: Exception) -> None: ...

    def has_lost(self, topics: Sequence[str]) -> bool:
        raise NotImplementedError

    def is_done(self, life: DirectStreamLife) -> bool:
        raise NotImplementedError


class LifePlan(NamedTuple):
    """How long a life is, and how it ends."""

    seconds: float
    end: str  # "stop", "graceful", "exit" or "kill"
    patient: bool  # whether the application continues after an error


class DirectStreamLife:
    """A driver, from its start to its end; implements ``Graph``."""

    def __init__(
        self,
        environment: Environment,
        number: int,
        plan: LifePlan,
        store: CheckpointStore | None,
        parameters: Mapping[str, Any],  # of the scenario
        kafka_params: Sequence[Mapping[str, object]],  # by stream
        offsets: Sequence[Mapping[TopicPartition, int]],  # where each stream starts, as far as the user says it
        observer: Observer,
    ) -> None:
        self.number = number
        self.driver = environment.process(f"driver-{number}")
        self.streams: list[CheckpointedStream] = []
        self.offsets = offsets
        self.kafka_params = kafka_params
        self.was_restored = False
        self.is_stopping = False
        self.ended_cleanly = False
        self.errors: list[Exception] = []
        self.commit_calls = 0
        self.callbacks = 0
        self._sync_commits: list[tuple[CheckpointedStream, float]] = []  # in flight, with the times of their calls
        self._environment = environment
        self._world = environment.world
        self._plan = plan
        self._store = store
        self._parameters = parameters
        self._observer = observer
        self._generated: list[dict[int, KafkaRDD]] = [{} for _ in parameters["streams"]]
        self._inputs: dict[int, dict[int, int]] = {}
        self._begins: list[BeginGeneration] = []
        self._idle: list[TaskScheduler] = []
        self._schedulers: list[TaskScheduler] = []
        self._conf = _spark_conf(parameters["conf"])
        self.spark = StreamingStandIn(
            self.driver, self, parameters["interval_ms"], store, concurrent_jobs=parameters["concurrent_jobs"]
        )
        self.context = _StreamingContext(self)

    def run(self) -> None:
        """The main thread of the application."""
        try:
            self._get_or_create()
        except ProcessKilled:
            raise
        except Exception as error:
            self.failed("start", 0, None, error)
        else:
            self._await_end()
        end = self._plan.end
        if end == "kill":
            return
        if end != "exit":
            self._stop(gracefully=end == "graceful" and not self.errors)
        flush_commits(self.streams, FLUSH_TIMEOUT_SECONDS)  # at the exit of the interpreter
        if end != "exit":
            self._environment.await_released(self.driver)
        self.ended_cleanly = True

    def end(self) -> None:
        self.driver.kill()
        for scheduler in self._schedulers:
            scheduler.kill()
        for stream in self.streams:
            checkpointed_stream._streams.pop(stream.stream_id, None)
            checkpointed_stream._stopped_streams.pop(stream.stream_id, None)

    # The application.

    def _get_or_create(self) -> None:
        restored = None if self._store is None else self._store.stored
        if restored is None:
            self._create()
        else:
            self.was_restored = True
            self._restore(restored)
        try:
            self.spark.start(restored)
        except Exception:  # Spark marks the context as stopped
            self.spark.stop(gracefully=False)
            raise

    def _create(self) -> None:
        for number, stream in enumerate(self._parameters["streams"]):
            spec = StreamSpec(
                _strategy(stream, self.kafka_params[number], self.offsets[number]),
                LocationStrategies.PreferConsistent,
                default_per_partition_config(self._conf),
                self._parameters["interval_ms"] / 1000,
            )
            stream_id = f"{self._world.seed}/{self.number}/{number}"
            controller = create_rate_controller(self._conf, self._parameters["interval_ms"])
            created = CheckpointedStream(stream_id, spec, controller, self.driver)
            asked_at = self._world.now
            try:
                with self._world.operation():
                    created.start()
                created.context_binding = SimulatedBinding(self, created, number)
            except BaseException:
                created.close()
                raise
            self.streams.append(created)
            self._observer.started(self, number, asked_at)
            checkpointed_stream.register_stream(created)
            self._begins.append(BeginGeneration(created))

    def _restore(self, restored: StoredCheckpoint) -> None:
        self._observer.restored(restored.lineage)
        for begin in pickle.loads(restored.graph):
            stream = begin._stream
            stream._init_transient(self.driver)
            self._begins.append(begin)
            self.streams.append(stream)

    def _await_end(self) -> None:
        end = self._world.now + self._plan.seconds
        pause = self._parameters["interval_ms"] / 2000
        while self._world.now < end and (self._plan.patient or not self.errors):
            self.driver.sleep(min(pause, max(end - self._world.now, 0.001)))
            if self._observer.is_done(self):
                return

    def _stop(self, *, gracefully: bool) -> None:
        self.is_stopping = True
        started_at, in_flight = self._world.now, list(self._sync_commits)
        self.context.stop(True, gracefully)
        for stream, called_at in in_flight:
            if (stream, called_at) in self._sync_commits and not stream.stop_signal.flush_timed_out:
                raise ViolationError(f"a stop does not wait for commitSync, which was called at {called_at:.3f}")
        seconds = self._world.now - started_at - self.spark.checkpoint_wait
        if not gracefully and seconds > STOP_SECONDS:
            raise ViolationError(f"a stop takes {seconds:.1f} s, without the wait for checkpoints")

    # The graph.

    def generate(self, time_ms: int) -> list[Job]:
        time = datetime.fromtimestamp(time_ms / 1000)
        succeeded = False
        jobs: list[Job] = []
        try:
            with self._world.operation():
                for number, begin in enumerate(self._begins):
                    begin(time, _ConstantRdd(self, number))  # type: ignore[arg-type]
                self.driver.sleep(self._observer.delay(self, "transform"))
                for number, output in enumerate(self._parameters["outputs"]):
                    self._fail_once(number)
                    job = self._generate_output(number, output, time_ms)
                    if job is not None:
                        jobs.append(job)
                self._fail_once(len(self._parameters["outputs"]))
                for stream in self.streams:
                    EndGeneration(stream.stream_id)(time, None)  # type: ignore[arg-type]
            succeeded = True
        finally:
            if not self.driver.dead:
                self._world.trace("generated", time_ms, succeeded)
                self._observer.generation_ended(self, time_ms, succeeded=succeeded)
        return jobs

    def pickle(self) -> tuple[bytes, Any]:
        graph = pickle.dumps(self._begins)
        return graph, self._observer.lineage()

    def clear_metadata(self, time_ms: int) -> None:
        for number, generated in enumerate(self._generated):
            for old in [each for each in generated if each <= time_ms - self.remember_ms(number)]:
                del generated[old]
        self._inputs.pop(time_ms - 20 * self._parameters["interval_ms"], None)

    def reported_input(self, time_ms: int) -> dict[int, int]:
        return self._inputs.get(time_ms, {})

    def reach(self, step: str) -> None:
        self._observer.reach(self, step)

    def failed(self, kind: str, time_ms: int, output: int | None, error: Exception) -> None:
        self._world.trace("failed", kind, time_ms, type(error).__name__)
        self.errors.append(error)
        self._observer.failed(self, kind, time_ms, output, error)

    def parameters_of(self, stream: int) -> KafkaParameters:
        """Return the parameters of a stream, which are those of its checkpoint after a restart."""
        return self.streams[stream].client.parameters

    def remember_ms(self, stream: int) -> int:
        """Return Spark's remember duration of a stream, which windows extend."""
        interval_ms: int = self._parameters["interval_ms"]
        outputs = [each for each in self._parameters["outputs"] if stream in each["streams"]]
        windows = [each["slide"] + each["window"] for each in outputs if each["window"] > 1 or each["slide"] > 1]
        return interval_ms * max(windows, default=1)

    def may_lose_records(self, topics: Sequence[str]) -> bool:
        return self._observer.has_lost(topics)

    def report_input(self, stream: int, time_ms: int, records: int) -> None:
        inputs = self._inputs.setdefault(time_ms, {})
        if stream in inputs:
            raise ViolationError(f"stream {stream} reports the batch at {time_ms} twice")
        inputs[stream] = records

    def forget_generated(self, stream: int, times_ms: Sequence[int]) -> None:
        for time_ms in times_ms:
            self._generated[stream].pop(time_ms, None)

    def _fail_once(self, place: int) -> None:
        if self._observer.must_fail(self, place):
            raise UserError(f"a function of transform before output {place} raises")

    def _generate_output(self, number: int, output: Mapping[str, Any], time_ms: int) -> Job | None:
        interval_ms = self._parameters["interval_ms"]
        if (time_ms - self.spark.zero_ms) % (output["slide"] * interval_ms):
            return None
        first = time_ms - (output["window"] - 1) * interval_ms
        rdds = [
            (stream, self._get_or_compute(stream, each))
            for stream in output["streams"]
            for each in range(first, time_ms + 1, interval_ms)
            if each > self.spark.zero_ms
        ]
        if len(rdds) == 1 and len(output["streams"]) == 1:
            return Job(number, partial(self._run_plain, number, output["streams"][0], time_ms))
        return Job(number, partial(self._run_job, number, time_ms, rdds))

    def _get_or_compute(self, stream: int, time_ms: int) -> KafkaRDD:
        rdd = self._generated[stream].get(time_ms)
        if rdd is None:
            time, asked_at = datetime.fromtimestamp(time_ms / 1000), self._world.now
            if self._parameters.get("asks_twice", False):
                self._ask_for_ranges(stream, time_ms)
            rdd = ComputeKafkaRdd(self.streams[stream].stream_id)(time, None)  # type: ignore[arg-type]
            self._observer.planned(self, stream, time_ms, rdd.offsetRanges(), asked_at)
            self._generated[stream][time_ms] = rdd
        return rdd

    def _ask_for_ranges(self, stream: int, time_ms: int) -> None:
        """Let another thread request the ranges of the batch that is being generated, at the same time."""

        def ask() -> None:
            with suppress(KafkaDirectError):  # the generation gets the error, too
                self.streams[stream].batch_ranges(time_ms)

        self.driver.spawn("other ranges", ask)

    # Jobs.

    def _run_plain(self, number: int, stream: int, time_ms: int) -> None:
        foreach = ForeachKafkaRdd(
            (self.streams[stream].stream_id,), lambda rdd: self._run_job(number, time_ms, [(stream, rdd)])
        )
        foreach(datetime.fromtimestamp(time_ms / 1000), None)  # type: ignore[arg-type]

    def _run_job(self, number: int, time_ms: int, rdds: Sequence[tuple[int, KafkaRDD]]) -> None:
        ranges: list[OffsetRange] = []
        reads: list[tuple[int, TaskRead]] = []
        scheduler = self._idle.pop() if self._idle else self._new_scheduler()
        for stream, rdd in rdds:
            ranges += rdd.offsetRanges()
            tasks = [_Partition(task) for task in rdd._tasks.tasks if task.offsets.count()]  # type: ignore[attr-defined]
            found = scheduler.run(self.driver, _Reader(rdd._reader), tasks, _nothing)  # type: ignore[arg-type]
            reads += [(stream, read) for read in found]
        self._idle.append(scheduler)
        self.driver.sleep(self._observer.delay(self, "foreachRDD"))
        self.reach("before the results")
        commits = self._observer.results(self, number, time_ms, ranges, reads)
        self.reach("after the results")
        for stream, calls in commits.items():
            for call in calls:
                # The last call may be synchronous while the offsets of the others wait for the next batch.
                is_last = self._parameters.get("mixes_commits", False) and call is calls[-1]
                self._commit(stream, call, sync=is_last or self._parameters["outputs"][number]["sync"])

    def _commit(self, stream: int, ranges: Sequence[OffsetRange], *, sync: bool) -> None:
        reference = DirectStreamReference(self.streams[stream].stream_id)
        if sync:
            call = (self.streams[stream], self._world.now)
            self._sync_commits.append(call)
            try:
                reference.commitSync(ranges)
            finally:
                self._sync_commits.remove(call)
            self._observer.committed(stream, ranges, None)
        else:
            self.commit_calls += 1
            reference.commitAsync(ranges, partial(self._on_commit, stream, ranges))
        self.reach("after the commit")

    def _on_commit(
        self,
        stream: int,
        ranges: Sequence[OffsetRange],
        offsets: Mapping[TopicPartition, int],
        error: Exception | None,
    ) -> None:
        self.callbacks += 1
        if error is None:
            self._observer.committed(stream, ranges, offsets)
        else:
            self._observer.commit_failed(error)

    def _new_scheduler(self) -> TaskScheduler:
        scheduler = TaskScheduler(self._environment, f"life-{self.number}-{len(self._schedulers)}")
        self._schedulers.append(scheduler)
        return scheduler


class SimulatedBinding(StreamingContextBinding):
    """The package's binding with a context of the simulation instead of the JVM's."""

    def __init__(self, life: DirectStreamLife, stream: CheckpointedStream, number: int) -> None:
        self._life = life
        self._ssc = life.context  # type: ignore[assignment]
        self._spark_context = life.context.sparkContext  # type: ignore[assignment]
        self._stream = stream
        self._lock = stream.system.lock()
        self._rdds = {}
        self._reported_times = set()
        self._unwritten = UnwrittenBatches()
        self._input_id = number
        self._scheduler = _Scheduler(life.spark)
        self._remember_ms = life.remember_ms(number)
        self._poll_timeout_ms = 120_000
        self._name = f"Kafka 0.10 direct stream [{number}]"
        if stream.controller is not None:
            stream.controller.listen_to(life.context, number)  # type: ignore[arg-type]
        hook_stop(life.context, stream, partial(_release_stream, stream))  # type: ignore[arg-type]

    def forget_generated_rdds(self, times_ms: Sequence[int]) -> None:
        self._life.forget_generated(self._input_id, times_ms)
        with self._lock:
            for time_ms in times_ms:
                self._rdds.pop(time_ms, None)

    def _report_input_info(self, time_ms: int, ranges: Sequence[OffsetRange]) -> None:
        with self._lock:
            if time_ms in self._reported_times:
                return
            self._reported_times.add(time_ms)
        deleted = self._stream.take_deleted_offset_count(time_ms)
        if deleted and not self._life.may_lose_records([each.topic for each in ranges]):
            raise ViolationError(f"{deleted} offsets are reported as deleted, and nothing was lost: {ranges}")
        self._life.report_input(self._input_id, time_ms, sum(each.count() for each in ranges) - deleted)

    def _is_done(self, time_ms: int) -> bool:
        return self._life.spark.is_done(time_ms)

    def _release_failed_rdds(self, before_ms: int) -> None:
        del before_ms


@contextmanager
def replaced_spark() -> Iterator[None]:
    """Replace what needs a JVM."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(kafka_rdd, "list_executors", lambda sc: []))
        stack.enter_context(patch.object(kafka_rdd, "create_task_rdd", _TaskRdd))
        stack.enter_context(patch.object(direct_stream_module, "bind_restored_stream", _bind_restored))
        yield


def _bind_restored(stream: CheckpointedStream, rdd: Any) -> SimulatedBinding:
    return SimulatedBinding(rdd.life, stream, rdd.number)


class _ConstantRdd(NamedTuple):
    """The RDD of the constant stream, from which a restored stream finds its context."""

    life: DirectStreamLife
    number: int


class _StreamingContext:
    def __init__(self, life: DirectStreamLife) -> None:
        self._life = life
        self.sparkContext = _SparkContext()
        self.stop: Any = self._stop

    def addStreamingListener(self, listener: Any) -> None:
        self._life.spark.listeners.append(listener)

    def _stop(self, stopSparkContext: bool = True, stopGraceFully: bool = False) -> None:  # noqa: N803
        self._life.spark.stop(gracefully=stopGraceFully)
        if stopSparkContext:
            self.sparkContext.stop()


class _SparkContext:
    serializer = None

    def __init__(self) -> None:
        self.stop: Any = _nothing


class _TaskRdd:
    """The RDD of a batch's tasks, without a JVM."""

    _jrdd = None
    _jrdd_deserializer = None
    is_cached = False
    is_checkpointed = False
    partitioner = None

    def __init__(self, sc: Any, tasks: Sequence[RangeTask], locations: Sequence[str | None]) -> None:
        del locations
        self.ctx = sc
        self.tasks = pickle.loads(pickle.dumps(list(tasks)))

    def setName(self, name: str) -> None:
        del name

    def _is_barrier(self) -> bool:
        return False


class _Scheduler:
    """What the package reads from Spark's JobScheduler."""

    def __init__(self, spark: StreamingStandIn) -> None:
        self._spark = spark

    def getPendingTimes(self) -> _Scheduler:
        return self

    def mkString(self, separator: str) -> str:
        return separator.join(f"{time_ms} ms" for time_ms in self._spark.pending_times())

    def jobGenerator(self) -> _Scheduler:
        return self

    def lastProcessedBatch(self) -> Any:
        return None if self._spark.last_processed_ms is None else _Time(self._spark.last_processed_ms)


class _Time(NamedTuple):
    value: int

    def milliseconds(self) -> int:
        return self.value


class _Schema:
    columns = _COLUMNS


class _Reader(NamedTuple):
    """The reader of a task, as ``TaskScheduler`` takes it."""

    task_reader: RangeTaskReader
    schema: type[_Schema] = _Schema


class _Partition(NamedTuple):
    task: RangeTask


def _spark_conf(properties: Mapping[str, str]) -> SparkConf:
    conf = SparkConf(loadDefaults=False)
    for name, value in properties.items():
        conf.set(name, value)
    return conf


def _strategy(stream: Mapping[str, Any], params: Mapping[str, object], offsets: Mapping[TopicPartition, int]) -> Any:
    match stream["kind"]:
        case "subscribe":
            return ConsumerStrategies.Subscribe(list(stream["topics"]), params, offsets)
        case "pattern":
            return ConsumerStrategies.SubscribePattern("|".join(stream["topics"]), params, offsets)
    partitions = [TopicPartition(topic, partition) for topic, partition in stream["partitions"]]
    return ConsumerStrategies.Assign(partitions, params, offsets)


def _nothing(*_: object) -> None:
    """No listener, and no stop of a SparkContext."""
