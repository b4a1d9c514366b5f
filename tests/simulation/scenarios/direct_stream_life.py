"""One life of an application with direct streams: its driver, its streams and outputs, and its end.

The streams, the functions that Spark calls, their checkpoints and their stops are the package's. What needs a JVM is
replaced: the StreamingContext, and the RDDs of tasks.
"""

from __future__ import annotations

import math
import pickle
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.errors import ProcessKilled, ViolationError
from tests.simulation.scenarios.direct_stream_spark import (
    ConstantRdd,
    ContextStandIn,
    PartitionOfTask,
    ReaderOfTasks,
    RejectedStopError,
    SimulatedBinding,
    TaskReaderStandIn,
    check_action,
    consumer_strategy,
    nothing,
    spark_conf,
)
from tests.simulation.scenarios.spark_tasks import TaskRead, TaskScheduler
from tests.simulation.scenarios.streaming_stand_in import Job, StreamingStandIn

from pyspark_kafka_direct.direct import LocationStrategies, checkpointed_stream
from pyspark_kafka_direct.direct.checkpoint_data import StreamSpec
from pyspark_kafka_direct.direct.checkpointed_stream import CheckpointedStream
from pyspark_kafka_direct.direct.direct_stream import (
    BeginGeneration,
    ComputeKafkaRdd,
    DirectStreamReference,
    EndGeneration,
    ForeachKafkaRdd,
    TransformKafkaRdd,
)
from pyspark_kafka_direct.direct.rate_controller import create_rate_controller, default_per_partition_config
from pyspark_kafka_direct.direct.stop_hooks import FLUSH_TIMEOUT_SECONDS, flush_commits
from pyspark_kafka_direct.errors import KafkaDirectError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.simulation.environment import Environment
    from tests.simulation.scenarios.streaming_stand_in import CheckpointStore, StoredCheckpoint

    from pyspark_kafka_direct.direct.kafka_rdd import KafkaRDD
    from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
    from pyspark_kafka_direct.options.kafka_params import KafkaParameters

STOP_SECONDS = 15.0  # of a stop that is not graceful, without Spark's wait for checkpoints
_FLUSH_SECONDS = 1.0  # of a stop after Spark's own, if no request has a fault
_OLD_BATCHES = 20  # without pending jobs, that may still be remembered


class UserError(Exception):
    """A function of the user raises."""


class Observer:
    """What the checks of a history learn from its lives; the scenario implements it."""

    def reach(self, life: DirectStreamLife, step: str) -> None: ...

    def started(self, life: DirectStreamLife, stream: int, asked_at: float) -> None: ...

    def logs(self, stream: int) -> Any:
        """Return what a stream can read now."""

    def planned(
        self,
        life: DirectStreamLife,
        stream: int,
        time_ms: int,
        ranges: Sequence[OffsetRange],
        asked: tuple[float, Any],  # when, and what could be read then
        deleted: int,  # offsets that were reported as deleted
    ) -> None: ...

    def completed(self, life: DirectStreamLife, batch: Any) -> None:
        """A batch has ended; the event is that of Spark's listeners."""

    def generated(self, life: DirectStreamLife, trace: Sequence[tuple[Any, ...]], *, succeeded: bool) -> None:
        """A generation has ended, in which this was traced."""

    def is_healthy(self) -> bool:
        """Return whether no request has a fault."""
        raise NotImplementedError

    def violated(self, text: str) -> None:
        """A promise is broken, on a thread whose errors the package catches."""

    def generation_ended(self, life: DirectStreamLife, time_ms: int, *, succeeded: bool) -> None: ...

    def estimates(self) -> Any: ...

    def lineage(self, estimates: Any) -> Any: ...

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

    def must_fail_job(self, life: DirectStreamLife, output: int) -> bool:
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
    rejects_stop: bool = False  # whether Spark rejects an earlier stop


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
        self.failed_generations: list[tuple[int, int]] = []  # streams and times: each is to be reported once
        self._begun_times: list[int] = []
        self._open_calls: dict[int, tuple[int, float]] = {}  # of commitAsync without a callback, with stream and time
        self._calls = 0
        self._rejected_at = -math.inf
        self._asked: dict[tuple[int, int], tuple[float, Any]] = {}  # by stream and batch, before other threads asked
        self._deleted: dict[tuple[int, int], int] = {}  # offsets, by stream and batch
        self._oldest: list[int] = []  # at each generation, the oldest batch that is pending or was processed last
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
        self._conf = spark_conf(parameters["conf"])
        self.spark = StreamingStandIn(
            self.driver, self, parameters["interval_ms"], store, concurrent_jobs=parameters["concurrent_jobs"]
        )
        self.context = ContextStandIn(self)
        self.spark.listeners.append(self)
        TaskReaderStandIn.pool = environment.pool(self.driver)

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
            self._check_released()
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
                consumer_strategy(stream, self.kafka_params[number], self.offsets[number]),
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
        rejects_at = self._world.now + self._plan.seconds / 2 if self._plan.rejects_stop else math.inf
        while self._world.now < end and (self._plan.patient or not self.errors):
            self.driver.sleep(min(pause, max(end - self._world.now, 0.001)))
            if self._observer.is_done(self):
                return
            if self._world.now >= rejects_at:
                rejects_at = math.inf
                self._reject_stop()

    def _reject_stop(self) -> None:
        """Let the user call stop where Spark rejects it, for example in a listener."""
        called = set(self._open_calls)
        self.is_stopping = self.context.rejects_stop = True
        with suppress(RejectedStopError):
            self.context.stop(True, False)
        self.is_stopping = self.context.rejects_stop = False
        self._rejected_at = self._world.now
        if self._observer.is_healthy() and called & self._open_calls.keys():
            raise ViolationError("a stop that Spark rejects does not commit the queued offsets")

    def generated_after(self, time_ms: int) -> bool:
        """Return whether another generation began after the one of a batch failed."""
        return any(each > time_ms for each in self._begun_times)

    def may_be_stopped(self) -> bool:
        """Return whether a plan may fail because of a stop."""
        return self.is_stopping or self._world.now < self._rejected_at + 1.0

    def _check_released(self) -> None:
        """Check that nothing of the streams remains after a stop."""
        registered = [each for each in self.streams if each in checkpointed_stream._streams.values()]
        hooked = getattr(self.context.sparkContext.stop, "streams", [])
        if registered or hooked:
            raise ViolationError(f"{len(registered)} stopped streams are registered, {len(hooked)} have a hook")

    def _stop(self, *, gracefully: bool) -> None:
        self.is_stopping = True
        started_at, in_flight = self._world.now, list(self._sync_commits)
        self.context.stop(True, gracefully)
        for stream, called_at in in_flight:
            if (stream, called_at) in self._sync_commits and not stream.stop_signal.flush_timed_out:
                raise ViolationError(f"a stop does not wait for commitSync, which was called at {called_at:.3f}")
        flush_seconds = self._world.now - self.context.stopped_at
        if self._observer.is_healthy() and flush_seconds > _FLUSH_SECONDS:
            raise ViolationError(f"a stop takes {flush_seconds:.1f} s to commit, without any fault")
        seconds = self._world.now - started_at - self.spark.checkpoint_wait
        if not gracefully and seconds > STOP_SECONDS:
            raise ViolationError(f"a stop takes {seconds:.1f} s, without the wait for checkpoints")

    # The graph.

    def generate(self, time_ms: int) -> list[Job]:
        time = datetime.fromtimestamp(time_ms / 1000)
        succeeded = False
        jobs: list[Job] = []
        begun: list[int] = []
        self._begun_times.append(time_ms)
        began = len(self._world.trace_lines)
        try:
            with self._world.operation():
                for number, begin in enumerate(self._begins):
                    begin(time, ConstantRdd(self, number))  # type: ignore[arg-type]
                    begun.append(number)
                    if self._parameters.get("asks_early", False) and time_ms not in self._generated[number]:
                        self._asked[number, time_ms] = (self._world.now, self._observer.logs(number))
                        self._ask_for_ranges(number, time_ms)
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
                if not succeeded:
                    self.failed_generations += [(number, time_ms) for number in begun]
                self._observer.generation_ended(self, time_ms, succeeded=succeeded)
                self._check_retention(time_ms)
                self._observer.generated(self, self._world.trace_lines[began:], succeeded=succeeded)
        return jobs

    def pickle(self) -> tuple[bytes, Any]:
        estimates = self._observer.estimates()
        graph = pickle.dumps(self._begins)
        return graph, self._observer.lineage(estimates)

    def clear_metadata(self, time_ms: int) -> None:
        for number, generated in enumerate(self._generated):
            for old in [each for each in generated if each <= time_ms - self.remember_ms(number)]:
                del generated[old]
        self._inputs.pop(time_ms - 20 * self._parameters["interval_ms"], None)

    def _check_retention(self, now_ms: int) -> None:
        """Check that old batches are forgotten: checkpoints and the memory of the driver must not grow."""
        processed_ms = -1 if self.spark.last_processed_ms is None else self.spark.last_processed_ms
        self._oldest.append(min([now_ms, processed_ms, *self.spark.pending_times()]))
        oldest_ms = min(self._oldest[-_OLD_BATCHES // 2 :])
        if len(self._oldest) <= _OLD_BATCHES // 2 or self.errors:
            return
        for number, stream in enumerate(self.streams):
            needed_ms = oldest_ms - self.remember_ms(number) - _OLD_BATCHES * self._parameters["interval_ms"]
            binding = stream.context_binding
            assert isinstance(binding, SimulatedBinding)
            old = [each for each in {*stream._state._batches, *binding._rdds} if each < needed_ms]
            if old:
                raise ViolationError(
                    f"stream {number} has batches since {min(old)} at {now_ms}, older than {needed_ms}"
                )

    def onBatchCompleted(self, batch: Any) -> None:
        self._observer.completed(self, batch)

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

    def report_input(self, stream: int, time_ms: int, records: int, deleted: int) -> None:
        self._deleted[stream, time_ms] = deleted
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
        if len(rdds) == 2 and output["window"] == 1:
            return Job(number, partial(self._run_union, number, output["streams"], time_ms))
        return Job(number, partial(self._run_job, number, time_ms, rdds))

    def _get_or_compute(self, stream: int, time_ms: int) -> KafkaRDD:
        rdd = self._generated[stream].get(time_ms)
        if rdd is None:
            time = datetime.fromtimestamp(time_ms / 1000)
            asked = self._asked.pop((stream, time_ms), None) or (self._world.now, self._observer.logs(stream))
            if self._parameters.get("asks_twice", False):
                self._ask_for_ranges(stream, time_ms)
            rdd = ComputeKafkaRdd(self.streams[stream].stream_id)(time, None)  # type: ignore[arg-type]
            deleted = self._deleted.pop((stream, time_ms), 0)
            self._observer.planned(self, stream, time_ms, rdd.offsetRanges(), asked, deleted)
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
        time = datetime.fromtimestamp(time_ms / 1000)

        def run(rdd: KafkaRDD) -> None:
            known = DirectStreamReference(self.streams[stream].stream_id).offsetRanges(time)
            if known != rdd.offsetRanges():
                raise ViolationError(f"the ranges of {time_ms} are {known}, and those of its RDD {rdd.offsetRanges()}")
            self._run_job(number, time_ms, [(stream, rdd)])

        def run_with_time(batch_time: datetime, rdd: KafkaRDD) -> None:
            if batch_time != time:
                raise ViolationError(f"the function gets the time {batch_time} instead of {time}")
            run(rdd)

        is_odd = time_ms // self._parameters["interval_ms"] % 2
        foreach = ForeachKafkaRdd((self.streams[stream].stream_id,), run_with_time if is_odd else run)
        foreach(time, None)  # type: ignore[arg-type]

    def _run_union(self, number: int, streams: Sequence[int], time_ms: int) -> None:
        """Run the job of a function of two streams, as ``transformWith`` passes their RDDs."""

        def run(first: KafkaRDD, second: KafkaRDD) -> None:
            self._run_job(number, time_ms, list(zip(streams, (first, second), strict=True)))

        transform = TransformKafkaRdd(tuple(self.streams[each].stream_id for each in streams), run)
        transform(datetime.fromtimestamp(time_ms / 1000), None, None)  # type: ignore[arg-type]

    def _run_job(self, number: int, time_ms: int, rdds: Sequence[tuple[int, KafkaRDD]]) -> None:
        ranges: list[OffsetRange] = []
        reads: list[tuple[int, TaskRead]] = []
        scheduler = self._idle.pop() if self._idle else self._new_scheduler()
        for stream, rdd in rdds:
            ranges += rdd.offsetRanges()
            seen = self._look(rdd)
            tasks = [PartitionOfTask(task) for task in rdd._tasks.tasks if task.offsets.count()]  # type: ignore[attr-defined]
            found = scheduler.run(self.driver, ReaderOfTasks(rdd._reader), tasks, nothing)  # type: ignore[arg-type]
            reads += [(stream, read) for read in found]
            if seen is not None and not self._observer.has_lost([each.topic for each in rdd.offsetRanges()]):
                check_action(self._parameters["look"], seen, found)
        self._idle.append(scheduler)
        self.driver.sleep(self._observer.delay(self, "foreachRDD"))
        if self._observer.must_fail_job(self, number):
            raise UserError(f"the function of output {number} raises")
        self.reach("before the results")
        commits = self._observer.results(self, number, time_ms, ranges, reads)
        self.reach("after the results")
        for stream, calls in commits.items():
            for call in calls:
                # The last call may be synchronous while the offsets of the others wait for the next batch.
                is_last = self._parameters.get("mixes_commits", False) and call is calls[-1]
                self._commit(stream, call, sync=is_last or self._parameters["outputs"][number]["sync"])

    def _look(self, rdd: KafkaRDD) -> Any:
        """Call an action of the RDD before its records are read."""
        look = self._parameters.get("look")
        if look is None:
            return None
        try:
            return getattr(rdd, look)(3) if look == "take" else getattr(rdd, look)()
        finally:
            self._environment.pool(self.driver).clear()

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
            self._calls += 1
            if self._parameters.get("silent_calls", False) and self._calls % 2:
                reference.commitAsync(ranges)
            else:
                self.commit_calls += 1
                self._open_calls[self._calls] = (stream, self._world.now)
                reference.commitAsync(ranges, partial(self._on_commit, self._calls, stream, ranges))
        self.reach("after the commit")

    def check_calls(self, stream: int, before: float) -> None:
        """Check that a stream's calls of commitAsync before a time have their callbacks."""
        late = [at for number, at in self._open_calls.values() if number == stream and at < before]
        if late:
            raise ViolationError(f"calls of commitAsync at {late} have no callback after a later batch was planned")

    def _on_commit(
        self,
        call: int,
        stream: int,
        ranges: Sequence[OffsetRange],
        offsets: Mapping[TopicPartition, int],
        error: Exception | None,
    ) -> None:
        self.callbacks += 1
        if self._open_calls.pop(call, None) is None:
            self._observer.violated(f"call {call} of commitAsync has two callbacks")
        if error is None:
            self._observer.committed(stream, ranges, offsets)
        else:
            self._observer.commit_failed(error)
        if raised := self._parameters.get("callback_raises"):
            raise {"error": ValueError, "exit": SystemExit}[raised]("the user's callback raises")

    def _new_scheduler(self) -> TaskScheduler:
        scheduler = TaskScheduler(self._environment, f"life-{self.number}-{len(self._schedulers)}")
        self._schedulers.append(scheduler)
        return scheduler
