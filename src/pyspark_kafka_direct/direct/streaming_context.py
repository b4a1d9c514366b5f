"""The binding of a direct stream to Spark's StreamingContext: input stream, RDDs by batch, generation callbacks.

Spark's own ``ConstantInputDStream`` drives the stream: it returns the same empty RDD for every batch, and Spark then
calls Python. Some of this code relies on Spark's internals; the comments say why.
"""

from __future__ import annotations

import gc
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.streaming import DStream, StreamingContext
from pyspark.streaming.dstream import TransformedDStream

from pyspark_kafka_direct.direct.batch_reports import BatchReportListener
from pyspark_kafka_direct.direct.checkpoint_data import BatchRetention, UnwrittenBatches
from pyspark_kafka_direct.direct.checkpointed_stream import unregister_stream
from pyspark_kafka_direct.direct.kafka_rdd import create_kafka_rdd
from pyspark_kafka_direct.direct.location_strategies import preferred_hosts
from pyspark_kafka_direct.direct.stop_hooks import hook_stop
from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.offsets import offset_ranges_to_json
from pyspark_kafka_direct.options.spark_conf import poll_timeout_ms
from pyspark_kafka_direct.spark.delegation_tokens import start_delegation_tokens
from pyspark_kafka_direct.spark.query_reports import QueryReporter
from pyspark_kafka_direct.spark.spark_versions import changed_spark_error, check_internal_class
from pyspark_kafka_direct.spark.stack_traces import hide_stack_traces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from pyspark import RDD, SparkContext

    from pyspark_kafka_direct.direct.checkpointed_stream import CheckpointedStream
    from pyspark_kafka_direct.direct.kafka_rdd import KafkaRDD
    from pyspark_kafka_direct.offsets import OffsetRange

    GenerationCallback = Callable[[datetime, RDD[Any]], None]

_CONSTANT_STREAM = "org.apache.spark.streaming.dstream.ConstantInputDStream"
_CACHED_JVM_NAMES = (
    "PythonRDD",
    "PythonUtils",
    "SimplePythonFunction",
    "com.fasterxml.jackson.databind.ObjectMapper",
    "java.lang.Class",
    "org.apache.spark.streaming.Time",
    "org.apache.spark.streaming.scheduler.StreamInputInfo",
    "py4j.reflection.TypeUtil",
)


class StreamingContextBinding:
    """Binds a stream to one StreamingContext; thread-safe."""

    def __init__(self, ssc: StreamingContext, constant_stream: Any, stream: CheckpointedStream) -> None:
        hide_stack_traces()
        cache_jvm_names(ssc._jvm)
        self._ssc = ssc
        self._spark_context: SparkContext = ssc.sparkContext
        self._constant_stream = constant_stream  # in the JVM, part of the context's graph
        self._stream = stream
        self._lock = stream.system.lock()
        self._rdds: dict[int, KafkaRDD] = {}
        self._reported_times: set[int] = set()  # of batches whose input info Spark has
        self._unwritten = UnwrittenBatches()  # under whose time Spark may still write a checkpoint
        self._input_id: int = constant_stream.id()
        self._scheduler = ssc._jssc.ssc().scheduler()
        self._remember_ms: int | None = None  # how long Spark keeps RDDs; None until the graph runs
        self._poll_timeout_ms = poll_timeout_ms(ssc.sparkContext.getConf())
        start_delegation_tokens(ssc.sparkContext)  # of a restored stream, whose client connects with its first batch
        if stream.controller is not None:
            stream.controller.listen_to(ssc, self._input_id)
        self._name = f"Kafka 0.10 direct stream [{self._input_id}]"
        self.show_name()
        self._reporter = reporter = QueryReporter(stream.stream_id, stream.system.nonce(), self._name)
        if reporter.is_monitored:
            ssc.addStreamingListener(BatchReportListener(stream, self._input_id, self._name, reporter))
            reporter.started()
        hook_stop(ssc, stream, self._stopped)

    def _stopped(self) -> None:
        self._reporter.ended()
        _release_stream(self._stream)

    def show_name(self) -> None:
        """Replace the name "Constant dstream" in Spark's UI by that of Spark's own direct stream."""
        # Spark takes the names when it starts the graph. After a restart the names from the checkpoint are there.
        graph = self._ssc._jssc.ssc().graph()
        names = accessible_field(graph.getClass(), "inputStreamNameAndID")
        jvm: Any = self._ssc._jvm
        old = names.get(graph)
        pairs = [old.apply(index) for index in range(old.size())]
        named = jvm.scala.Tuple2(self._name, self._input_id)
        names.set(graph, jvm.PythonUtils.toSeq([named if pair._2() == self._input_id else pair for pair in pairs]))

    def rdd(self, time_ms: int) -> KafkaRDD:
        """Return the RDD of a batch, the same object at every call."""
        ranges = self._stream.batch_ranges(time_ms)
        with self._lock:
            rdd = self._rdds.get(time_ms)
            if rdd is None:
                rdd = self._rdds[time_ms] = self._make_rdd(ranges)
            return rdd

    def generate_rdd(self, time_ms: int) -> KafkaRDD:
        """Return the RDD of the batch that Spark is generating, report its input info, and drop old batches."""
        rdd = self.rdd(time_ms)
        self._report_input_info(time_ms, self._stream.batch_ranges(time_ms))  # without topic ids, as in Spark
        self._forget_old_batches(time_ms)
        return rdd

    def forget_generated_rdds(self, times_ms: Sequence[int]) -> None:
        """Remove the RDDs of batches that Spark failed to generate, here and from Spark's graph."""
        remove_generated_rdds(self._ssc, self._constant_stream, times_ms)
        with self._lock:
            for time_ms in times_ms:
                self._rdds.pop(time_ms, None)

    def _make_rdd(self, ranges: Sequence[OffsetRange]) -> KafkaRDD:
        stream = self._stream
        spec = stream.spec
        leaders = stream.client.cluster.known_leaders(offset_range.topic_partition for offset_range in ranges)
        rdd = create_kafka_rdd(
            self._spark_context,
            stream.client.parameters,
            ranges,
            hosts=preferred_hosts(spec.locations, leaders),
            topic_ids=stream.topic_ids,
            leaders=leaders,
            key_decoder=spec.key_decoder,
            value_decoder=spec.value_decoder,
            assume_consecutive=spec.assume_consecutive,
            poll_timeout_ms=self._poll_timeout_ms,
            name=self._name,
        )
        # If Spark persists this RDD, derived RDDs must be computed from it and not from the underlying tasks.
        rdd.is_cached = stream.persisted
        return rdd

    def _report_input_info(self, time_ms: int, ranges: Sequence[OffsetRange]) -> None:
        """Report a batch to Spark, but only once if Spark generates its RDD again."""
        with self._lock:
            if time_ms in self._reported_times:  # Spark raises if a batch is reported twice
                return
            self._reported_times.add(time_ms)
        tracker = self._scheduler.inputInfoTracker()
        deleted_offset_count = self._stream.take_deleted_offset_count(time_ms)
        report_input_info(
            self._spark_context._jvm,
            tracker,
            input_id=self._input_id,
            time_ms=time_ms,
            ranges=ranges,
            deleted_offset_count=deleted_offset_count,
        )

    def _forget_old_batches(self, now_ms: int) -> None:
        """Drop the batches that no window, state or restart can request."""
        if self._remember_ms is None:
            # Final once the graph runs: windows and states propagate their durations to the constant stream.
            self._remember_ms = self._constant_stream.rememberDuration().milliseconds()
        interval_ms = round(self._stream.spec.batch_seconds * 1000)
        # One JVM call, which returns a string such as "1000 ms,2000 ms".
        pending = [int(time_ms) for time_ms in re.findall(r"\d+", self._scheduler.getPendingTimes().mkString(","))]
        processed = self._scheduler.jobGenerator().lastProcessedBatch()
        processed_ms = None if processed is None else processed.milliseconds()
        unwritten_ms = self._unwritten.oldest(now_ms, processed_ms, pending, self._is_done)
        retention = BatchRetention(
            now_ms,
            processed_ms=None if processed_ms is None else min(processed_ms, unwritten_ms),
            pending=tuple(sorted(pending)),
            look_back_ms=self._remember_ms + interval_ms,
        )
        forgotten = self._stream.forget_batches(retention.is_needed)
        with self._lock:
            for time_ms in forgotten:
                self._rdds.pop(time_ms, None)
                self._reported_times.discard(time_ms)
        self._release_failed_rdds(now_ms - self._remember_ms - interval_ms)

    def _release_failed_rdds(self, before_ms: int) -> None:
        """Release the RDDs of old failed batches; keep their ranges, because a restart runs the batches again."""
        with self._lock:
            old = [time_ms for time_ms in self._rdds if time_ms < before_ms]
        for time_ms in old:
            if self._is_done(time_ms):
                with self._lock:
                    self._rdds.pop(time_ms, None)

    @cached_property
    def _job_sets(self) -> Any:
        """The jobs of the batches that the scheduler has, by their time."""
        return accessible_field(self._scheduler.getClass(), "jobSets").get(self._scheduler)

    def _is_done(self, time_ms: int) -> bool:
        """Return whether all jobs of a batch have ended, successfully or not."""
        jobs = self._job_sets.get(self._spark_context._jvm.org.apache.spark.streaming.Time(time_ms))  # type: ignore[union-attr]
        return jobs is None or bool(jobs.hasCompleted())


def _release_stream(stream: CheckpointedStream) -> None:
    """Release a stream whose context is stopped, and close its connections."""
    unregister_stream(stream)
    stream.close()


def create_constant_stream(ssc: StreamingContext) -> tuple[Any, DStream[Any]]:
    """Create the constant input stream; returns the JVM object and its Python wrapper."""
    jvm = ssc._jvm
    spark = ssc.sparkContext
    assert jvm is not None
    any_class = jvm.scala.reflect.ClassTag.Any()
    empty_rdd = spark._jsc.emptyRDD().rdd()
    cache_jvm_names(jvm, (_CONSTANT_STREAM,))
    constant = jvm.org.apache.spark.streaming.dstream.ConstantInputDStream(ssc._jssc.ssc(), empty_rdd, any_class)
    java_stream = jvm.org.apache.spark.streaming.api.java.JavaDStream(constant, any_class)
    return constant, DStream(java_stream, ssc, spark.serializer)


def bind_restored_stream(stream: CheckpointedStream, rdd: RDD[Any]) -> StreamingContextBinding:
    """Bind a stream that was restored from a checkpoint; ``rdd`` is the constant stream's RDD of the first batch."""
    constant_rdd = rdd._jrdd.rdd()
    for ssc in _streaming_contexts(rdd.ctx):
        for input_stream in ssc._jssc.ssc().graph().getInputStreams():
            if input_stream.getClass().getSimpleName() != "ConstantInputDStream":
                continue
            if accessible_field(input_stream.getClass(), "rdd").get(input_stream).equals(constant_rdd):
                _restore_constant_rdd(constant_rdd, ssc)
                return StreamingContextBinding(ssc, input_stream, stream)
    raise KafkaDirectError(
        "The stream was restored from a checkpoint, but no StreamingContext of this process runs it. Get the context "
        "from StreamingContext.getOrCreate, and keep a reference to it until it is stopped."
    )


# To generate a batch, Spark requests the jobs of all output streams of the graph, in order and under the graph's
# lock. If one of them raises, Spark submits no job of that batch, but the RDDs that the others generated stay in
# ``generatedRDDs``, where windows and states of later batches find them. Therefore the first and the last output stream
# are callbacks: streams that return no RDD, so they have no job and no row in Spark's UI. If the first callback runs
# and the last one does not, the generation has failed. This is detected before anything of the next generation runs.


def add_generation_callbacks(
    ssc: StreamingContext,
    batches: DStream[Any],
    on_begin: GenerationCallback,
    on_end: GenerationCallback,
    on_started: Callable[[], None],
) -> None:
    """Add callbacks that Spark runs before and after each generation, and one for the start of the context."""
    first, last = (_jvm_stream(TransformedDStream(batches, callback)) for callback in (on_begin, on_end))  # type: ignore[arg-type]
    java_context = ssc._jssc
    start = java_context.start

    # The callbacks are added when Python calls start() of the JVM's context, because only then all output streams
    # exist: start() of a subclass may add some. A second call of start(), which fails, adds nothing. A graph that is
    # restored from a checkpoint contains them already, and this function is not called for it.
    def add_callbacks_and_start() -> None:
        if java_context.getState().toString() == "INITIALIZED":
            _surround_output_streams(ssc, first, last)
        start()
        on_started()

    java_context.start = add_callbacks_and_start


def remove_generated_rdds(ssc: StreamingContext, constant_stream: Any, times_ms: Sequence[int]) -> None:
    """Remove the RDDs of some batches from all streams derived from a constant stream, under the graph's lock."""
    # Streams that do not derive from the constant stream keep their RDDs: they may be unable to generate them again.
    jvm: Any = ssc._jvm
    times = [jvm.org.apache.spark.streaming.Time(time_ms) for time_ms in times_ms]
    is_derived = jvm.java.util.IdentityHashMap()  # of each visited stream
    is_derived[constant_stream] = True  # so it is not visited: its RDD is the same in every batch

    def remove_if_derived(stream: Any) -> bool:
        """Remove the RDDs of a stream, and of its parents, if they derive from the constant one; return whether."""
        if stream not in is_derived:
            parents = stream.dependencies()
            # A list, because each parent must be visited.
            derived_parents = [remove_if_derived(parents.apply(index)) for index in range(parents.size())]
            is_derived[stream] = any(derived_parents)
            if is_derived[stream]:
                _remove_rdds(stream, times)
        return bool(is_derived[stream])

    for output in ssc._jssc.ssc().graph().getOutputStreams():
        remove_if_derived(output)


def cache_jvm_names(jvm: Any, names: Iterable[str] = _CACHED_JVM_NAMES) -> None:
    """Resolve JVM names, by default those that every batch uses, and keep them: py4j would resolve them each time."""
    # To resolve a name, py4j tries it in every imported package, and the JVM searches each of Spark's jars for it.
    # PySpark resolves about a hundred names whenever Spark calls a function of a stream. It iterates over Spark's list
    # of RDDs, which in py4j ends when the Java iterator throws NoSuchElementException. PySpark converts every Java
    # exception: it compares this one with each type that it knows, and resolves py4j.reflection.TypeUtil each time.
    for name in names:
        owner = jvm
        for part in name.split("."):
            resolved = getattr(owner, part)
            setattr(owner, part, resolved)  # py4j resolves only names that are not attributes yet
            owner = resolved
        check_internal_class(owner, name)


def describe_ranges(ranges: Iterable[OffsetRange]) -> str:
    """Describe each non-empty range in one line, the largest range first."""
    non_empty = sorted(
        (offset_range for offset_range in ranges if offset_range.count()),
        key=lambda offset_range: (-offset_range.count(), offset_range),
    )
    return "\n".join(
        f"topic: {offset_range.topic}\tpartition: {offset_range.partition}\t"
        f"offsets: {offset_range.from_offset} to {offset_range.until_offset}\tcount: {offset_range.count()}"
        for offset_range in non_empty
    )


def report_input_info(
    jvm: Any, tracker: Any, *, input_id: int, time_ms: int, ranges: Sequence[OffsetRange], deleted_offset_count: int = 0
) -> None:
    """Report a batch to Spark's ``InputInfoTracker``: its record count, and its offset ranges as metadata."""
    # The count is of offsets. Compacted and transactional topics have offsets without records. To count only records,
    # an extra job would have to read everything, as Spark's own stream does with
    # spark.streaming.kafka.allowNonConsecutiveOffsets. Offsets whose records were deleted are not counted, because
    # backpressure would treat them as records that were processed very fast, and raise the rate.
    # As with Spark's own stream, listeners find the ranges in the metadata under "offsets": a Scala sequence of Java
    # maps with topic, partition, fromOffset and untilOffset. They are maps, not OffsetRange objects, because that class
    # is in a jar that may be missing.
    streaming = jvm.org.apache.spark.streaming
    metadata = jvm.PythonUtils.toScalaMap(
        {"offsets": _scala_offset_ranges(jvm, ranges), "Description": describe_ranges(ranges)}
    )
    info = streaming.scheduler.StreamInputInfo(
        input_id, sum(offset_range.count() for offset_range in ranges) - deleted_offset_count, metadata
    )
    tracker.reportInfo(streaming.Time(time_ms), info)


def accessible_field(owner: Any, name: str) -> Any:
    """Return a private field of a Java class."""
    try:
        field = owner.getDeclaredField(name)
    except Py4JJavaError as error:
        raise changed_spark_error(f"the field {name} of the class {owner.getName()}") from error
    field.setAccessible(True)
    return field


def _streaming_contexts(spark: SparkContext) -> list[StreamingContext]:
    """Return the Python StreamingContext objects of this SparkContext."""
    # StreamingContext.getActive would deadlock: the call that starts the context holds the lock of getActive and waits
    # for the first batches. PySpark also registers the context only when that call returns. So all objects of the
    # process are searched, once. The search uses type(), because isinstance() would trigger lazy proxies of other
    # libraries.
    contexts = [candidate for candidate in gc.get_objects() if issubclass(type(candidate), StreamingContext)]
    return [ssc for ssc in contexts if ssc.sparkContext is spark]


def _restore_constant_rdd(constant_rdd: Any, ssc: StreamingContext) -> None:
    """Set the SparkContext and a new id of the constant RDD, which a checkpoint does not contain."""
    # Spark unpersists old RDDs of a stream, which needs their SparkContext and uses their id. The id from before the
    # restart may now belong to an RDD that the user has cached.
    spark = ssc._jssc.ssc().sparkContext()
    rdd_class = constant_rdd.getClass()
    while rdd_class.getName() != "org.apache.spark.rdd.RDD":
        rdd_class = rdd_class.getSuperclass()
    context_field = accessible_field(rdd_class, "_sc")
    if context_field.get(constant_rdd) is None:
        context_field.set(constant_rdd, spark)
        accessible_field(rdd_class, "id").set(constant_rdd, spark.newRddId())


def _jvm_stream(stream: DStream[Any]) -> Any:
    return stream._jdstream.dstream()


def _surround_output_streams(ssc: StreamingContext, first: Any, last: Any) -> None:
    """Add an output stream before all others, and one after them."""
    graph = ssc._jssc.ssc().graph()
    # Both are there already if an earlier call of start() was rejected.
    outputs = [output for output in graph.getOutputStreams() if output not in (first, last)]
    if not outputs:  # Spark rejects such a context in start
        return
    streams = accessible_field(graph.getClass(), "outputStreams")
    streams.set(graph, streams.get(graph).take(0))  # an empty list of the same class
    for output in (first, *outputs, last):
        graph.addOutputStream(output)


def _remove_rdds(stream: Any, times: Sequence[Any]) -> None:
    """Remove the RDDs of some batches from one stream."""
    for time in times:
        rdd = stream.generatedRDDs().remove(time)
        if rdd.isDefined():
            rdd.get().unpersist(False)  # does not wait until the blocks are deleted
        # An RDD that was checkpointed during the generation would be restored after a restart.
        stream.checkpointData().currentCheckpointFiles().remove(time)


def _scala_offset_ranges(jvm: Any, ranges: Sequence[OffsetRange]) -> Any:
    # The JVM parses JSON, because filling thousands of maps over py4j would take seconds.
    list_class = jvm.java.lang.Class.forName("java.util.List")
    maps = jvm.com.fasterxml.jackson.databind.ObjectMapper().readValue(offset_ranges_to_json(ranges), list_class)
    return jvm.PythonUtils.toSeq(maps)
