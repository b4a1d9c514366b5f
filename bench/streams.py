"""Streaming queries of both Spark sources or sinks in one session, in turn: small batches, large ones, and more.

All durations are those of Spark's own progress events, which both sources have in the same way.
"""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.measure import sample
from bench.run import turn
from bench.spark_peers import FORMATS, Spark, collect_garbage
from bench.stream_summary import CATCH_UP, WRITTEN, Batch, PlannerAlone, StreamCase, StreamRun, StreamSeries
from bench.summary import EXACTLY_ONCE, JVM, OURS
from bench.writers import TASKS, check, new_topic, sink_options, value_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.client_peers import Clients
    from bench.host import Host
    from bench.run import Say

_DEADLINE = 600.0  # seconds for one query
# Spark keeps the plan of each batch, with the values in it: its heap was full after some batches with MB of them.
_POOL_BYTES = 100_000
_LOOK = 0.1  # seconds between looks at a query's progress: each costs the driver some


def measure(spark: Host[Spark], case: StreamCase, peers: list[str], say: Say) -> list[StreamSeries]:
    """Run a case with the Spark peers in turn, another one first each time; the first round is not counted."""
    chosen = [peer for peer in (JVM, OURS) if peer in peers]
    if case.kind in WRITTEN and OURS in peers:
        chosen.append(EXACTLY_ONCE)
    runs: dict[str, list[StreamRun]] = {peer: [] for peer in chosen}
    for number in range(case.rounds + 1):
        for peer in turn(chosen, number):
            done = spark.call(run, peer, case)
            if number:
                runs[peer].append(done)
    found = [StreamSeries(case, peer, tuple(done)) for peer, done in runs.items()]
    for series in found:
        say(f"    {series.peer:26s} {series.told}")
    return found


def run(spark: Spark, peer: str, case: StreamCase) -> StreamRun:
    """Run one query from the topic's start, with a checkpoint of its own.

    Raises:
        BenchError: It did not read what it was to read, or not in time.
    """
    collect_garbage(spark)
    with tempfile.TemporaryDirectory(prefix="bench-checkpoint-") as checkpoint:
        work = _WORK.get(case.kind, _some_batches)
        progress, cost = sample(lambda: work(spark, peer, case, checkpoint), spark.settings.broker_pid)
    batches = tuple(Batch(int(each["numInputRows"]), dict(each["durationMs"])) for each in progress)
    if case.kind == CATCH_UP:
        read, wanted = sum(batch.records for batch in batches), case.topic.end_offset * case.topic.partitions
        if read != wanted:
            raise BenchError(f"{peer}, {case.label}: read {read} records, not {wanted}")
        return StreamRun(cost, batches)
    counted = batches[case.warm_up : case.warm_up + case.batches]
    if any(batch.records != case.per_trigger for batch in counted):
        raise BenchError(f"{peer}, {case.label}: batches of {[batch.records for batch in counted]} records")
    return StreamRun(cost, counted)


def plan_alone(clients: Host[Clients], case: StreamCase) -> PlannerAlone:
    """Plan the batches of a case through this package's reader, without Spark around it."""
    return clients.call(_plan_alone, case)


def _catch_up(spark: Spark, peer: str, case: StreamCase, checkpoint: str) -> list[Any]:
    query = _writer(spark, peer, case, checkpoint).trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(_DEADLINE):
            raise BenchError(f"{peer}, {case.label}: not done after {_DEADLINE:.0f} s")
        return _with_records(query)
    finally:
        query.stop()


def _some_batches(spark: Spark, peer: str, case: StreamCase, checkpoint: str) -> list[Any]:
    return _watched(_writer(spark, peer, case, checkpoint), peer, case)


def _batches_written(spark: Spark, peer: str, case: StreamCase, checkpoint: str) -> list[Any]:
    from pyspark.sql.functions import col

    with new_topic(spark, case.topic.partitions) as topic:
        rows = spark.session.readStream.format("rate-micro-batch").option("rowsPerBatch", case.per_trigger)
        made = (
            rows.option("numPartitions", TASKS)
            .load()
            .select(value_at(case.topic, col("value"), _POOL_BYTES).alias("value"))
        )
        writer = made.writeStream.format(FORMATS[peer]).options(**sink_options(spark, peer, topic, case.topic.codec))
        progress = _watched(writer.option("checkpointLocation", checkpoint), peer, case)
        # What was in flight at the end may be there, or a part of it.
        more = 2
        transactions = len(progress) + more if peer == EXACTLY_ONCE else 0
        written = sum(each["numInputRows"] for each in progress)
        allowed = more * (case.per_trigger or 0) + transactions * case.topic.partitions
        check(spark, f"{peer}, {case.label}", topic, case.topic.partitions, written, allowed)
        return progress


def _watched(writer: Any, peer: str, case: StreamCase) -> list[Any]:
    query = writer.start()
    wanted = case.warm_up + case.batches
    until = time.monotonic() + _DEADLINE
    try:
        while (query.lastProgress or {"batchId": -1})["batchId"] < wanted:  # one more, so that none is cut short
            if (failure := query.exception()) is not None:
                raise BenchError(f"{peer}, {case.label}: {failure}")
            if not query.isActive:
                raise BenchError(f"{peer}, {case.label}: the query ended by itself")
            if time.monotonic() > until:
                raise BenchError(f"{peer}, {case.label}: not done after {_DEADLINE:.0f} s")
            time.sleep(_LOOK)
        return _with_records(query)
    finally:
        query.stop()


def _writer(spark: Spark, peer: str, case: StreamCase, checkpoint: str) -> Any:
    reader = (
        spark.session.readStream.format(FORMATS[peer])
        .option("kafka.bootstrap.servers", spark.settings.bootstrap_servers)
        .option("subscribe", case.topic.name)
        .option("startingOffsets", "earliest")
    )
    if case.per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(case.per_trigger))
    return reader.load().writeStream.format("noop").option("checkpointLocation", checkpoint)


def _with_records(query: Any) -> list[Any]:
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


_WORK: dict[str, Callable[[Spark, str, StreamCase, str], list[Any]]] = {
    CATCH_UP: _catch_up,
    **dict.fromkeys(WRITTEN, _batches_written),
}


def _plan_alone(clients: Clients, case: StreamCase) -> PlannerAlone:
    from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider

    options = {
        "kafka.bootstrap.servers": clients.bootstrap_servers,
        "subscribe": case.topic.name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(case.per_trigger),
    }
    source = KafkaSourceProvider(options)
    reader: Any = source.streamReader(source.schema())
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    latest, partitions = [], []
    while True:
        began = time.perf_counter()
        end = reader.latestOffset(start, limit)
        ended = time.perf_counter()
        if end == start:
            break
        reader.partitions(start, end)
        latest.append(ended - began)
        partitions.append(time.perf_counter() - ended)
        start = end
    return PlannerAlone(case.topic.partitions, tuple(latest[1:]), tuple(partitions[1:]))
