"""What of Spark a direct stream uses in this process: the constant stream that ticks for it, and RDDs by batch.

``ConstantInputDStream`` is Spark's own; it hands out the same empty RDD for every batch, which calls our Python. Some
of what is done here goes beyond Spark's public interface, and each trap has its reason beside it.
"""

from __future__ import annotations

import gc
import re
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.streaming import DStream, StreamingContext

from pyspark_kafka_direct.direct import _input_info
from pyspark_kafka_direct.direct._graph import field, forget_generated
from pyspark_kafka_direct.direct._registry import leave
from pyspark_kafka_direct.direct._state import Needs
from pyspark_kafka_direct.direct._stopping import stop_with
from pyspark_kafka_direct.direct.locations import preferred_hosts
from pyspark_kafka_direct.direct.rdd import kafka_rdd
from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.runtime.plain_errors import tell_plainly
from pyspark_kafka_direct.settings.spark_conf import poll_timeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark import RDD, SparkContext

    from pyspark_kafka_direct.direct._carried import CarriedStream
    from pyspark_kafka_direct.direct.rdd import KafkaRDD
    from pyspark_kafka_direct.offsets import OffsetRange

_LOOKED_UP_ONCE = (
    "PythonRDD",
    "PythonUtils",
    "SimplePythonFunction",
    "com.fasterxml.jackson.databind.ObjectMapper",
    "java.lang.Class",
    "org.apache.spark.streaming.Time",
    "org.apache.spark.streaming.scheduler.StreamInputInfo",
    "py4j.reflection.TypeUtil",
)


class SparkSide:
    """A stream's connection with one StreamingContext; for several threads.

    Args:
        ssc: The context.
        constant: The constant stream in the JVM, part of the context's graph.
        carried: The stream.
    """

    def __init__(self, ssc: StreamingContext, constant: Any, carried: CarriedStream) -> None:
        tell_plainly()
        look_up_once(ssc._jvm)
        self._ssc = ssc
        self._context: SparkContext = ssc.sparkContext
        self._constant = constant
        self._carried = carried
        self._lock = threading.Lock()
        self._rdds: dict[int, KafkaRDD] = {}
        self._reported: set[int] = set()
        self._input_id: int = constant.id()
        self._scheduler = ssc._jssc.ssc().scheduler()
        self._remember_ms: int | None = None
        self._poll_timeout = poll_timeout(ssc.sparkContext.getConf())
        if carried.controller is not None:
            carried.controller.attach(ssc, self._input_id)
        stop_with(ssc, carried, partial(leave, carried))

    def rdd(self, time_ms: int) -> KafkaRDD:
        """Return the RDD of a batch: one object for all that ask."""
        ranges = self._carried.batch(time_ms)
        with self._lock:
            rdd = self._rdds.get(time_ms)
            if rdd is None:
                rdd = self._rdds[time_ms] = self._make_rdd(ranges)
            return rdd

    def generated(self, time_ms: int) -> KafkaRDD:
        """Return the RDD of a batch that Spark generates now; tell Spark about it, and forget old batches."""
        rdd = self.rdd(time_ms)
        self._report(time_ms, rdd.offsetRanges())
        self._forget(time_ms)
        return rdd

    def forget_generated(self, times_ms: Sequence[int]) -> None:
        """Forget the RDDs of batches that Spark failed to generate, here and throughout Spark's graph."""
        forget_generated(self._ssc, self._constant, times_ms)
        with self._lock:
            for time_ms in times_ms:
                self._rdds.pop(time_ms, None)

    def _make_rdd(self, ranges: Sequence[OffsetRange]) -> KafkaRDD:
        carried, spec = self._carried, self._carried.spec
        leaders = carried.wire.cluster.known_leaders(each.topic_partition for each in ranges)
        rdd = kafka_rdd(
            self._context,
            carried.wire.parameters,
            ranges,
            hosts=preferred_hosts(spec.locations, leaders),
            topic_ids=carried.topic_ids,
            leaders=leaders,
            key_decoder=spec.key_decoder,
            value_decoder=spec.value_decoder,
            assume_consecutive=spec.assume_consecutive,
            poll_timeout=self._poll_timeout,
        )
        # Spark persists what it is given; then functions must start from there, and not from the tasks below it.
        rdd.is_cached = carried.persisted
        return rdd

    def _report(self, time_ms: int, ranges: Sequence[OffsetRange]) -> None:
        with self._lock:
            if time_ms in self._reported:  # a second report of a batch is an error in Spark
                return
            self._reported.add(time_ms)
        tracker = self._scheduler.inputInfoTracker()
        expired = self._carried.expired(time_ms)
        _input_info.report(self._context._jvm, tracker, self._input_id, time_ms, ranges, expired)

    def _forget(self, now_ms: int) -> None:
        """Forget what neither a window, nor a state, nor a restart can ask for."""
        if self._remember_ms is None:
            # Known once the graph runs; windows and states have handed theirs up to the constant stream.
            self._remember_ms = self._constant.rememberDuration().milliseconds()
        interval_ms = round(self._carried.spec.batch_seconds * 1000)
        # One call: as "1000 ms,2000 ms".
        pending = [int(text) for text in re.findall(r"\d+", self._scheduler.getPendingTimes().mkString(","))]
        processed = self._scheduler.jobGenerator().lastProcessedBatch()
        needs = Needs(
            now_ms,
            None if processed is None else processed.milliseconds(),
            tuple(sorted(pending)),
            self._remember_ms + interval_ms,
        )
        forgotten = self._carried.forget(needs.batch)
        with self._lock:
            for time_ms in forgotten:
                self._rdds.pop(time_ms, None)
                self._reported.discard(time_ms)
        self._free(now_ms - self._remember_ms - interval_ms)

    def _free(self, before_ms: int) -> None:
        """Let go of the RDDs of old batches that have failed.

        To Spark they are pending for good, and a restart runs them again: their ranges stay.
        """
        with self._lock:
            old = [time_ms for time_ms in self._rdds if time_ms < before_ms]
        if not old:
            return
        job_sets = field(self._scheduler.getClass(), "jobSets").get(self._scheduler)
        time = self._context._jvm.org.apache.spark.streaming.Time  # type: ignore[union-attr]
        for time_ms in old:
            jobs = job_sets.get(time(time_ms))
            if jobs is None or jobs.hasCompleted():
                with self._lock:
                    self._rdds.pop(time_ms, None)


def constant_stream(ssc: StreamingContext) -> tuple[Any, DStream[Any]]:
    """Build the stream that ticks; returns it as the JVM and as Python know it."""
    jvm, spark = ssc._jvm, ssc.sparkContext
    assert jvm is not None
    any_class = jvm.scala.reflect.ClassTag.Any()
    empty = spark._jsc.emptyRDD().rdd()
    constant = jvm.org.apache.spark.streaming.dstream.ConstantInputDStream(ssc._jssc.ssc(), empty, any_class)
    java = jvm.org.apache.spark.streaming.api.java.JavaDStream(constant, any_class)
    return constant, DStream(java, ssc, spark.serializer)


def look_up_once(jvm: Any) -> None:
    """Keep the names in the JVM that each batch uses, or else py4j looks them up every time.

    py4j tries a name in every package that is imported, and a class that is not there is looked for in each of Spark's
    jars. PySpark asks a hundred times whenever Spark calls a function of a stream: it reads the list of RDDs to its
    end, which is an exception in the JVM, and compares that with each kind of exception it knows.
    """
    for name in _LOOKED_UP_ONCE:
        owner = jvm
        for part in name.split("."):
            found = getattr(owner, part)
            setattr(owner, part, found)  # py4j is asked only for what is no attribute yet
            owner = found


def side_after_restore(carried: CarriedStream, rdd: RDD[Any]) -> SparkSide:
    """Connect a stream that came back from a checkpoint.

    Args:
        carried: The stream.
        rdd: The constant stream's RDD, as it arrives with the first batch.

    Raises:
        KafkaDirectError: No StreamingContext of this process has the stream.
    """
    constant_rdd = rdd._jrdd.rdd()
    for ssc in _contexts(rdd.ctx):
        for stream in ssc._jssc.ssc().graph().getInputStreams():
            if stream.getClass().getSimpleName() != "ConstantInputDStream":
                continue
            if field(stream.getClass(), "rdd").get(stream).equals(constant_rdd):
                _revive(constant_rdd, ssc)
                return SparkSide(ssc, stream, carried)
    raise KafkaDirectError(
        "The stream came back from a checkpoint, but no StreamingContext of this process runs it. Get the context from "
        "StreamingContext.getOrCreate and keep it until it is stopped."
    )


def _contexts(spark: SparkContext) -> list[StreamingContext]:
    """Return the Python contexts that exist.

    Asking Spark for the active one would wait for ever: the call that starts it holds its lock and waits for the first
    batches. Nor does Python know it before that call returns. So it is looked for among all objects, once in a process.
    """
    # By type(), because isinstance() would wake lazy proxies of other libraries.
    found = [each for each in gc.get_objects() if issubclass(type(each), StreamingContext)]
    return [ssc for ssc in found if ssc.sparkContext is spark]


def _revive(constant_rdd: Any, ssc: StreamingContext) -> None:
    """Give the constant RDD back what a checkpoint does not keep.

    Spark unpersists old RDDs of a stream, which needs their SparkContext, and goes by their number; the number it had
    may by now be that of an RDD somebody has cached.
    """
    spark = ssc._jssc.ssc().sparkContext()
    base = constant_rdd.getClass()
    while base.getName() != "org.apache.spark.rdd.RDD":
        base = base.getSuperclass()
    context = field(base, "_sc")
    if context.get(constant_rdd) is None:
        context.set(constant_rdd, spark)
        field(base, "id").set(constant_rdd, spark.newRddId())
