"""What a direct stream does to Spark's graph of streams, so that no batch is lost when Spark fails to generate it.

Spark generates a batch by asking all output streams of the graph, in their order and under the graph's lock, for their
jobs. If one raises, no job of that batch is submitted, but what the others have made of it stays in ``generatedRDDs``,
where windows and states of later batches find it. So the first and the last output stream are marks of ours: streams
that give no RDD, hence no job and no row in Spark's UI, and whose functions are called. A first mark that was not
followed by the last one is a generation that failed; this is known before anything of the next one is generated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.streaming.dstream import TransformedDStream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from pyspark import RDD
    from pyspark.streaming import DStream, StreamingContext

    Mark = Callable[[datetime, RDD[Any]], None]


def mark_generations(ssc: StreamingContext, ticks: DStream[Any], begins: Mark, ends: Mark) -> None:
    """Have functions called before and after each generation, from the start of the context on.

    They are placed when Python calls the JVM's ``start``, as only then all output streams are there: the ``start`` of a
    subclass may add some. A graph that comes back from a checkpoint has them in their places.
    """
    first, last = (_jvm_stream(TransformedDStream(ticks, mark)) for mark in (begins, ends))  # type: ignore[arg-type]
    java = ssc._jssc
    start = java.start

    def place_and_start() -> None:
        if java.getState().toString() == "INITIALIZED":
            _place(ssc, first, last)
        start()

    java.start = place_and_start


def forget_generated(ssc: StreamingContext, constant: Any, times_ms: Sequence[int]) -> None:
    """Remove the RDDs of some batches from all streams that are made of a constant stream.

    Called while Spark holds the graph's lock. Other streams keep theirs: they may not be able to make them again.
    """
    jvm: Any = ssc._jvm
    times = [jvm.org.apache.spark.streaming.Time(time_ms) for time_ms in times_ms]
    seen = jvm.java.util.IdentityHashMap()

    def made_of_constant(stream: Any) -> bool:
        if stream in seen:
            return bool(seen[stream])
        parents = stream.dependencies()
        found = [made_of_constant(parents.apply(number)) for number in range(parents.size())]
        seen[stream] = any(found)
        if seen[stream]:
            _forget(stream, times)
        return bool(seen[stream])

    seen[constant] = True  # the constant stream itself, whose RDD is always the same
    for output in ssc._jssc.ssc().graph().getOutputStreams():
        made_of_constant(output)


def field(owner: Any, name: str) -> Any:
    """Return a private field of a Java class."""
    found = owner.getDeclaredField(name)
    found.setAccessible(True)
    return found


def _jvm_stream(stream: DStream[Any]) -> Any:
    return stream._jdstream.dstream()


def _place(ssc: StreamingContext, first: Any, last: Any) -> None:
    graph = ssc._jssc.ssc().graph()
    outputs = [each for each in graph.getOutputStreams() if each not in (first, last)]
    if not outputs:  # Spark refuses to start such a context, and should
        return
    streams = field(graph.getClass(), "outputStreams")
    streams.set(graph, streams.get(graph).take(0))
    for each in (first, *outputs, last):
        graph.addOutputStream(each)


def _forget(stream: Any, times: Sequence[Any]) -> None:
    for time in times:
        rdd = stream.generatedRDDs().remove(time)
        if rdd.isDefined():
            rdd.get().unpersist(False)
        # An RDD that a job of the generation itself has written would come back after a restart.
        stream.checkpointData().currentCheckpointFiles().remove(time)
