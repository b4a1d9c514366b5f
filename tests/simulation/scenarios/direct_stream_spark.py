"""What lives of direct streams use in place of a JVM: contexts, RDDs of tasks, and parts of Spark's scheduler."""

from __future__ import annotations

import pickle
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from unittest.mock import patch

from pyspark import SparkConf
from tests.simulation.errors import ViolationError

from pyspark_kafka_direct.consumer.client_rack import with_client_rack
from pyspark_kafka_direct.consumer.fetcher import read_range
from pyspark_kafka_direct.consumer.range_counter import count_range
from pyspark_kafka_direct.direct import ConsumerStrategies, kafka_rdd
from pyspark_kafka_direct.direct import direct_stream as direct_stream_module
from pyspark_kafka_direct.direct.checkpoint_data import UnwrittenBatches
from pyspark_kafka_direct.direct.stop_hooks import hook_stop
from pyspark_kafka_direct.direct.streaming_context import StreamingContextBinding, _release_stream
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.spark.range_task_reader import RangeTaskReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from tests.simulation.scenarios.direct_stream_life import DirectStreamLife
    from tests.simulation.scenarios.spark_tasks import TaskRead
    from tests.simulation.scenarios.streaming_stand_in import StreamingStandIn

    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.consumer.range_task import RangeTask
    from pyspark_kafka_direct.direct.checkpointed_stream import CheckpointedStream
    from pyspark_kafka_direct.offsets import OffsetRange

_COLUMNS = ("offset", "value")


class RejectedStopError(Exception):
    """Spark rejects a stop, for example within a listener."""


class TaskReaderStandIn(RangeTaskReader):
    """Reads ranges for the actions of an RDD, with the driver's connections instead of those of a worker."""

    pool: ClassVar[ConnectionPool]

    def read(self, task: RangeTask, columns: tuple[str, ...], **limits: Any) -> Iterator[pa.RecordBatch]:
        return read_range(self.connection, with_client_rack(self.fetch), task, columns, pool=self.pool, **limits)

    def count(self, task: RangeTask, limit: int | None) -> int:
        return count_range(self.connection, with_client_rack(self.fetch), task, limit=limit, pool=self.pool)


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
        self._scheduler = SchedulerStandIn(life.spark)
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
        self._life.report_input(self._input_id, time_ms, sum(each.count() for each in ranges) - deleted, deleted)

    def _is_done(self, time_ms: int) -> bool:
        return self._life.spark.is_done(time_ms)

    def _release_failed_rdds(self, before_ms: int) -> None:
        del before_ms


def check_action(action: str, result: Any, reads: Sequence[TaskRead]) -> None:
    """Compare the result of an action of an RDD with the records of its tasks."""
    rows = [row for read in reads for row in read.rows]
    expected = {"count": len(rows), "isEmpty": not rows, "take": rows[:3]}[action]
    found = [(each.offset, each.value) for each in result] if isinstance(result, list) else result
    if found != expected and not (action == "isEmpty" and expected):  # has failed once, and was not examined
        raise ViolationError(f"{action} of an RDD returns {found} instead of {expected}")


@contextmanager
def replaced_spark() -> Iterator[None]:
    """Replace what needs a JVM."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(kafka_rdd, "RangeTaskReader", TaskReaderStandIn))
        stack.enter_context(patch.object(kafka_rdd, "list_executors", lambda sc: []))
        stack.enter_context(patch.object(kafka_rdd, "create_task_rdd", TaskRdd))
        stack.enter_context(patch.object(direct_stream_module, "bind_restored_stream", _bind_restored))
        yield


def _bind_restored(stream: CheckpointedStream, rdd: Any) -> SimulatedBinding:
    return SimulatedBinding(rdd.life, stream, rdd.number)


class ConstantRdd(NamedTuple):
    """The RDD of the constant stream, from which a restored stream finds its context."""

    life: DirectStreamLife
    number: int


class ContextStandIn:
    def __init__(self, life: DirectStreamLife) -> None:
        self._life = life
        self.sparkContext = SparkContextStandIn()
        self.stop: Any = self._stop
        self.rejects_stop = False
        self.stopped_at = 0.0  # when Spark's own stop has ended

    def addStreamingListener(self, listener: Any) -> None:
        self._life.spark.listeners.append(listener)

    def _stop(self, stopSparkContext: bool = True, stopGraceFully: bool = False) -> None:  # noqa: N803
        if self.rejects_stop:
            raise RejectedStopError("a stop within a listener")
        self._life.spark.stop(gracefully=stopGraceFully)
        self.stopped_at = self._life.driver.world.now
        if stopSparkContext:
            self.sparkContext.stop()


class SparkContextStandIn:
    serializer = None

    def __init__(self) -> None:
        self.stop: Any = nothing

    def runJob(self, rdd: Any, function: Callable[[Any], Any], partitions: Sequence[int]) -> list[Any]:
        tasks = rdd.prev.tasks
        return [row for each in partitions for row in function(rdd.func(each, iter([tasks[each]])))]


class TaskRdd:
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


class SchedulerStandIn:
    """What the package reads from Spark's JobScheduler."""

    def __init__(self, spark: StreamingStandIn) -> None:
        self._spark = spark

    def getPendingTimes(self) -> SchedulerStandIn:
        return self

    def mkString(self, separator: str) -> str:
        return separator.join(f"{time_ms} ms" for time_ms in self._spark.pending_times())

    def jobGenerator(self) -> SchedulerStandIn:
        return self

    def lastProcessedBatch(self) -> Any:
        return None if self._spark.last_processed_ms is None else _Time(self._spark.last_processed_ms)


class _Time(NamedTuple):
    value: int

    def milliseconds(self) -> int:
        return self.value


class _Schema:
    columns = _COLUMNS


class ReaderOfTasks(NamedTuple):
    """The reader of a task, as ``TaskScheduler`` takes it."""

    task_reader: RangeTaskReader
    schema: type[_Schema] = _Schema


class PartitionOfTask(NamedTuple):
    task: RangeTask


def spark_conf(properties: Mapping[str, str]) -> SparkConf:
    conf = SparkConf(loadDefaults=False)
    for name, value in properties.items():
        conf.set(name, value)
    return conf


def consumer_strategy(
    stream: Mapping[str, Any], params: Mapping[str, object], offsets: Mapping[TopicPartition, int]
) -> Any:
    match stream["kind"]:
        case "subscribe":
            return ConsumerStrategies.Subscribe(list(stream["topics"]), params, offsets)
        case "pattern":
            return ConsumerStrategies.SubscribePattern("|".join(stream["topics"]), params, offsets)
    partitions = [TopicPartition(topic, partition) for topic, partition in stream["partitions"]]
    return ConsumerStrategies.Assign(partitions, params, offsets)


def nothing(*_: object) -> None:
    """No listener, and no stop of a SparkContext."""
