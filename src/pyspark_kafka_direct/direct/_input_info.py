"""What Spark is told of a batch: how many records it has, and which offsets (``InputInfoTracker``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.offsets import offset_ranges_to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_kafka_direct.offsets import OffsetRange


def description(ranges: Iterable[OffsetRange]) -> str:
    """Describe each range that is not empty in a line, the largest first."""
    full = sorted((each for each in ranges if each.count()), key=lambda each: (-each.count(), each))
    return "\n".join(
        f"topic: {each.topic}\tpartition: {each.partition}\toffsets: {each.from_offset} to {each.until_offset}\t"
        f"count: {each.count()}"
        for each in full
    )


def report(
    jvm: Any, tracker: Any, input_id: int, time_ms: int, ranges: Sequence[OffsetRange], expired: int = 0
) -> None:
    """Tell Spark about a batch, once.

    The number of records is that of offsets. Where a topic is compacted or has transactions, some of them are no
    records; counting those would take a job that reads everything twice, which is what Spark's own stream does.

    Listeners find the ranges in the metadata under ``offsets``, as with Spark's own stream: a Scala sequence of Java
    maps, with ``topic``, ``partition``, ``fromOffset`` and ``untilOffset``. Spark's class of ranges is in a jar.

    Args:
        jvm: The JVM.
        tracker: Spark's ``InputInfoTracker``.
        input_id: The number of the input stream.
        time_ms: The batch's time in milliseconds.
        ranges: Its ranges.
        expired: How many of their offsets are gone: backpressure would take them for records that were quickly read.
    """
    streaming = jvm.org.apache.spark.streaming
    metadata = jvm.PythonUtils.toScalaMap({"offsets": _offsets(jvm, ranges), "Description": description(ranges)})
    info = streaming.scheduler.StreamInputInfo(input_id, sum(each.count() for each in ranges) - expired, metadata)
    tracker.reportInfo(streaming.Time(time_ms), info)


def _offsets(jvm: Any, ranges: Sequence[OffsetRange]) -> Any:
    text = offset_ranges_to_json(ranges)
    # Parsed there: thousands of maps filled from here would take seconds.
    lists = jvm.java.lang.Class.forName("java.util.List")
    maps = jvm.com.fasterxml.jackson.databind.ObjectMapper().readValue(text, lists)
    return jvm.PythonUtils.toSeq(maps)
