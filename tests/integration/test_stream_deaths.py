"""Task workers, the broker or the planner die during a query. The output stays exact.

Each death is in the middle of a batch: a Python function after the source blocks the batch until the process is dead.
The buffers between the source's worker and that function cannot hold all records, so the source is still reading.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.stream_queries import DEADLINE, Stream, produce
from tests.shards.brokers import new_kafka
from tests.soak.processes import kill, planners, task_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.sessions import SparkSessions

PAD = "x" * 10_000
COUNT = 2_000  # records of 10 kB: 20 MB, in two partitions


@pytest.fixture(scope="module")
def spark(make_spark: SparkSessions) -> SparkSession:
    """Tasks are tried four times: in plain ``local[2]`` a lost task ends the query.

    The function after the source gets a hundred records at a time, so it has some while the source has more.
    """
    return make_spark({"spark.sql.execution.arrow.maxRecordsPerBatch": "100"}, master="local[2,4]")


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


class Gate:
    """Blocks the tasks of a query until they are released, and reports when one has started to read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def block(self, df: DataFrame) -> DataFrame:
        """The numbers in ``value``, blocked until release."""
        started, released = str(self._folder / "started"), str(self._folder / "released")

        # Nested, so that it is pickled by value: Spark's Python workers do not have the tests.
        def blocked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import time
            from pathlib import Path

            import pyarrow as pa

            for batch in batches:
                Path(started).touch()
                until = time.monotonic() + 600
                while not Path(released).exists():
                    assert time.monotonic() < until
                    time.sleep(0.02)
                numbers = [value.split(b" ")[0] for value in batch.column("value").to_pylist()]
                yield pa.RecordBatch.from_pydict({"value": pa.array(numbers, pa.binary())})

        return df.select("value").mapInArrow(blocked, "value binary")

    @property
    def started(self) -> bool:
        """Whether a task has its first records."""
        return (self._folder / "started").exists()

    def release(self) -> None:
        """Let all current and later tasks run."""
        (self._folder / "released").touch()


def padded(numbers: Iterable[int]) -> list[str]:
    return [f"{number} {PAD}" for number in numbers]


def test_killed_task_workers_in_the_middle_of_a_batch(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, gate: Gate
) -> None:
    topic = make_topic(2)
    put(topic, padded(range(COUNT)))
    query = stream(subscribe=topic, startingOffsets="earliest")
    query.start(gate.block(query.load()))
    query.wait(lambda: gate.started, "a task that reads")
    assert kill(task_workers(os.getpid())) >= 2, "one that reads, and the one behind it"
    gate.release()
    query.wait_for(range(COUNT))
    put(topic, padded(range(COUNT, COUNT + 5)))
    query.wait_for(range(COUNT + 5))
    query.stop()
    assert len(query.batches[0]) == COUNT, "it was batch 0 that the workers were killed in"


def test_a_broker_killed_and_restarted_in_the_middle_of_a_batch(
    spark: SparkSession, topics_on: Callable[[str], MakeTopic], tmp_path: Path, gate: Gate
) -> None:
    with new_kafka() as kafka:
        servers = kafka.bootstrap_servers
        topic = topics_on(servers)(2)
        produce(servers, topic, padded(range(COUNT)))
        options = {"subscribe": topic, "startingOffsets": "earliest"}
        options["kafka_default_api_timeout_ms"] = "900000"  # on a busy machine a broker starts slowly
        query = Stream(spark, servers, tmp_path / "query", options)
        try:
            query.start(gate.block(query.load()))
            query.wait(lambda: gate.started, "a task that reads")
            kafka.kill_broker(1)
            gate.release()
            kafka.start_broker(1)
            query.wait_for(range(COUNT))
            produce(servers, topic, padded(range(COUNT, COUNT + 5)))
            query.wait_for(range(COUNT + 5))
        finally:
            query.stop()


def test_a_killed_planner_ends_the_query_and_a_restart_resumes(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, gate: Gate
) -> None:
    topic = make_topic(2)
    put(topic, padded(range(COUNT)))
    query = stream(subscribe=topic, startingOffsets="earliest")
    running = query.start(gate.block(query.load()))
    query.wait(lambda: gate.started, "a task that reads")
    assert kill(planners(os.getpid())) == 1
    gate.release()
    until = time.monotonic() + DEADLINE
    while running.isActive:
        assert time.monotonic() < until, "the query lives on, or hangs, without its planner"
        time.sleep(0.02)
    failure = running.exception()
    assert failure is not None
    assert "STREAM_FAILED" in str(failure), "Spark reports no more; its log has an EOFException"
    assert query.values == sorted(map(str, range(COUNT))), "the batch in flight does not need the planner"
    put(topic, padded(range(COUNT, COUNT + 5)))
    query.run(gate.block(query.load()))
    assert query.values == sorted(map(str, range(COUNT + 5)))
