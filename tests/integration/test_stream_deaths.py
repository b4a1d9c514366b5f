"""What dies under a running query: task workers, the broker, the planner. The output stays exact.

Each death falls in the middle of a batch: a Python function behind the source holds the batch until the test has done
the harm. The records are more than fit between the source's worker and that function, so the source is still reading.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.stream_queries import DEADLINE, Stream, produce
from tests.soak.processes import kill, planners, task_workers

from pyspark_kafka_direct.broker import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.sessions import SparkSessions

PAD = "x" * 1000
COUNT = 20_000  # records of 1 kB: 20 MB, in two partitions


@pytest.fixture(scope="module")
def spark(make_spark: SparkSessions) -> SparkSession:
    """Tasks may be tried four times: in plain ``local[2]`` a lost one ends the query.

    The function behind the source gets a thousand records at a time, so that it has some while the source has more.
    """
    return make_spark({"spark.sql.execution.arrow.maxRecordsPerBatch": "1000"}, master="local[2,4]")


@pytest.fixture
def hold(tmp_path: Path) -> Hold:
    return Hold(tmp_path / "hold")


class Hold:
    """Holds the tasks of a query until they are let go, and tells when one has begun to read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def behind(self, df: DataFrame) -> DataFrame:
        """The numbers in ``value``, as text, held back."""
        begun, free = str(self._folder / "begun"), str(self._folder / "free")

        # Nested, so that it is pickled as a whole: Spark's Python workers do not have the tests.
        def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import time
            from pathlib import Path

            import pyarrow as pa

            for batch in batches:
                Path(begun).touch()
                until = time.monotonic() + 120
                while not Path(free).exists():
                    assert time.monotonic() < until
                    time.sleep(0.02)
                numbers = [value.split(b" ")[0] for value in batch.column("value").to_pylist()]
                yield pa.RecordBatch.from_pydict({"value": pa.array(numbers, pa.binary())})

        return df.select("value").mapInArrow(held, "value binary")

    @property
    def begun(self) -> bool:
        """Whether a task has got its first records."""
        return (self._folder / "begun").exists()

    def let_go(self) -> None:
        """Let all tasks run, now and later."""
        (self._folder / "free").touch()


def padded(numbers: Iterable[int]) -> list[str]:
    return [f"{number} {PAD}" for number in numbers]


def test_task_workers_that_are_killed_in_the_middle_of_a_batch(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, hold: Hold
) -> None:
    topic = make_topic(2)
    put(topic, padded(range(COUNT)))
    query = stream(subscribe=topic, startingOffsets="earliest")
    query.start(hold.behind(query.load()))
    query.wait(lambda: hold.begun, "a task that reads")
    assert kill(task_workers(os.getpid())) >= 2, "one that reads, and the one behind it"
    hold.let_go()
    query.wait_for(range(COUNT))
    put(topic, padded(range(COUNT, COUNT + 5)))
    query.wait_for(range(COUNT + 5))
    query.stop()
    assert len(query.batches[0]) == COUNT, "it was batch 0 that the workers were killed in"


def test_a_broker_that_is_killed_in_the_middle_of_a_batch_and_comes_back(
    spark: SparkSession, topics_on: Callable[[str], MakeTopic], tmp_path: Path, hold: Hold
) -> None:
    with EmbeddedKafka(reuse_running=False) as kafka:
        servers = kafka.bootstrap_servers
        topic = topics_on(servers)(2)
        produce(servers, topic, padded(range(COUNT)))
        options = {"subscribe": topic, "startingOffsets": "earliest"}
        options["kafka_default_api_timeout_ms"] = "200000"  # on a busy machine a broker takes its time to start
        query = Stream(spark, servers, tmp_path / "query", options)
        try:
            query.start(hold.behind(query.load()))
            query.wait(lambda: hold.begun, "a task that reads")
            kafka.kill_broker(1)
            hold.let_go()
            kafka.start_broker(1)
            query.wait_for(range(COUNT))
            produce(servers, topic, padded(range(COUNT, COUNT + 5)))
            query.wait_for(range(COUNT + 5))
            kafka.kill_broker(1)  # while the planner asks for more, ten times a second
            kafka.start_broker(1)
            produce(servers, topic, padded(range(COUNT + 5, COUNT + 9)))
            query.wait_for(range(COUNT + 9))
        finally:
            query.stop()


def test_a_planner_that_is_killed_ends_the_query_and_a_restart_goes_on(
    stream: Callable[..., Stream], make_topic: MakeTopic, put: Any, hold: Hold
) -> None:
    topic = make_topic(2)
    put(topic, padded(range(COUNT)))
    query = stream(subscribe=topic, startingOffsets="earliest")
    running = query.start(hold.behind(query.load()))
    query.wait(lambda: hold.begun, "a task that reads")
    assert kill(planners(os.getpid())) == 1
    hold.let_go()
    until = time.monotonic() + DEADLINE
    while running.isActive:
        assert time.monotonic() < until, "the query lives on, or hangs, without its planner"
        time.sleep(0.02)
    failure = running.exception()
    assert failure is not None
    assert "STREAM_FAILED" in str(failure), "Spark knows no more; its log has an EOFException and whose it is"
    assert query.values == sorted(map(str, range(COUNT))), "the batch under way needs no planner any more"
    put(topic, padded(range(COUNT, COUNT + 5)))
    query.run(hold.behind(query.load()))
    assert query.values == sorted(map(str, range(COUNT + 5)))
