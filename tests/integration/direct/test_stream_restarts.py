"""A direct stream that is killed, or stopped, and comes back from its checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.streaming import StreamingContext
from tests.integration.direct.running import Seen, direct_stream

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.groups import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import KafkaRDD

APP = Path(__file__).with_name("stream_app.py")
DEADLINE = 240  # seconds


@dataclass
class App:
    """The program under test, which can be run several times in one folder."""

    servers: str
    topic: str
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self, **more: str) -> None:
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **more}
        command = [sys.executable, "-W", "ignore", str(APP), self.servers, self.topic, str(self.folder)]
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, env=environment, start_new_session=True
            )

    def kill(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)  # its JVM and its workers as well
        self.process.wait(30)

    def stop(self) -> None:
        assert self.process is not None
        (self.folder / "stop").touch()
        assert self.process.wait(DEADLINE) == 0, self.output()
        (self.folder / "stop").unlink()

    def facts(self, what: str) -> list[dict[str, Any]]:
        log = self.folder / "log"
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        facts = [json.loads(line) for line in lines if line.endswith("\n")]  # a kill may have cut the last one
        return [fact for fact in facts if fact["what"] == what]

    def wait(self, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not enough():
            assert self.process is not None
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.1)

    def output(self) -> str:
        return (self.folder / "output").read_text()[-6000:]


@pytest.fixture
def app(kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path) -> Iterator[App]:
    app = App(kafka.bootstrap_servers, make_topic(2), tmp_path)
    yield app
    if app.process is not None and app.process.poll() is None:
        app.kill()


def read(app: App) -> int:
    return sum(len(fact["values"]) for fact in app.facts("done"))


def write(app: App, put: Any, numbers: range) -> None:
    """Half of the numbers to each partition."""
    middle = (numbers.start + numbers.stop) // 2
    put(app.topic, range(numbers.start, middle), partition=0)
    put(app.topic, range(middle, numbers.stop), partition=1)


@pytest.mark.smoke
@pytest.mark.spark_app
@pytest.mark.timeout(1500)
def test_a_killed_stream_reads_pending_batches_again_with_the_same_ranges(app: App, put: Any) -> None:
    """Then goes on: nothing is skipped, and keyed state has counted each record once."""
    write(app, put, range(100))
    app.start()
    app.wait(lambda: read(app) >= 100)
    (app.folder / "hold").touch()
    write(app, put, range(100, 200))
    # 20 a partition and batch: the batches with them are planned, not done, and their checkpoints written.
    app.wait(lambda: ends(app.facts("planned")) == [100, 100])
    so_far = len(app.facts("planned"))
    app.wait(lambda: len(app.facts("planned")) >= so_far + 4)  # two facts a batch
    app.kill()
    before = app.facts("planned")
    done_before = {fact["time"] for fact in app.facts("done")}
    pending = {fact["time"]: fact["ranges"] for fact in before if fact["time"] not in done_before}
    with_records = {at for at, ranges in pending.items() if sum(until - start for _, start, until in ranges)}
    assert len(with_records) >= 3
    (app.folder / "hold").unlink()
    write(app, put, range(200, 260))  # while nobody reads

    app.start()
    app.wait(lambda: ends(app.facts("done")) == [130, 130])
    again = app.facts("planned")[len(before) :]
    replayed = {fact["time"]: fact["ranges"] for fact in again if fact["time"] in with_records}
    assert replayed == {at: pending[at] for at in with_records}
    # A batch with nothing in it may have been planned without its checkpoint being written: it is planned anew.
    new = [fact["ranges"] for fact in again if all(start >= 100 for _, start, _ in fact["ranges"])]
    first = next(ranges for ranges in new if any(until > start for _, start, until in ranges))
    assert first == [[0, 100, 120], [1, 100, 120]], "the lag, within the limit"

    once = {fact["time"]: fact for fact in app.facts("done")}
    assert sorted(value for fact in once.values() for value in fact["values"]) == list(range(260))
    assert contiguous([once[at]["ranges"] for at in sorted(once)])
    app.wait(lambda: app.facts("state")[-1]["sum"] == [sum(range(260))])
    sums = {fact["time"]: fact["sum"] for fact in app.facts("state")}
    assert [sums[at] for at in sorted(sums)] == sorted(sums.values())

    # A second time, in which windows and state go on from what the first restart has restored.
    app.kill()
    last = app.facts("state")[-1]["time"]
    write(app, put, range(260, 280))
    app.start()
    app.wait(lambda: app.facts("state")[-1]["sum"] == [sum(range(280))])
    app.wait(lambda: app.facts("state")[-1]["time"] > last)  # each batch that runs again has overwritten its facts
    windows = {fact["time"]: sorted(fact["window"]) for fact in app.facts("state")}
    done = {fact["time"]: fact["values"] for fact in app.facts("done")}
    for at, values in windows.items():
        parts = [done.get(at - back) for back in (0, 4000)]
        if None not in parts:
            assert values == sorted(value for part in parts if part for value in part), at


@pytest.mark.spark_app
@pytest.mark.timeout(900)
def test_a_graceful_stop_commits_what_is_done_and_a_restart_goes_on(app: App, put: Any) -> None:
    write(app, put, range(40))
    app.start()
    app.wait(lambda: read(app) >= 40)
    app.stop()
    assert committed(app) == {0: 20, 1: 20}
    so_far = len(app.facts("done"))
    write(app, put, range(40, 60))
    app.start()
    app.wait(lambda: ends(app.facts("done")) == [30, 30])
    app.stop()
    values = [value for fact in app.facts("done")[so_far:] for value in fact["values"]]
    assert sorted(values) == list(range(40, 60)), "none of before"
    assert committed(app) == {0: 30, 1: 30}, "by the reference that the restored function holds"
    app.start(PYSPARK_PIN_THREAD="false")
    assert app.process is not None
    assert app.process.wait(DEADLINE / 2) != 0
    assert "a direct stream needs PYSPARK_PIN_THREAD=true" in (app.folder / "output").read_text()


SEEN = Seen()


def note(rdd: KafkaRDD) -> None:
    """Known by its name to the checkpoint, and so the same function after a restart in this process."""
    SEEN.add(rdd.map(lambda record: int(record.value)).collect())


def test_a_context_that_comes_back_in_the_same_process(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any, tmp_path: Path
) -> None:
    """For so many batches that Spark lets go of the first ones, which needs what a checkpoint does not keep."""
    topic = make_topic()
    put(topic, range(3))

    def create() -> StreamingContext:
        ssc = StreamingContext(spark.sparkContext, 1)
        direct_stream(ssc, kafka.bootstrap_servers, topic, None).foreachRDD(note)
        return ssc

    def must_not_be_called() -> StreamingContext:
        raise AssertionError("there is a checkpoint")

    for number, make in enumerate([create, must_not_be_called, must_not_be_called]):
        ssc = StreamingContext.getOrCreate(str(tmp_path), make)
        ssc.start()
        try:
            put(topic, [3 + number])
            SEEN.wait(lambda seen, last=3 + number: any(last in some for some in seen))  # type: ignore[misc]
            SEEN.wait_for_more(4)
            ssc.awaitTerminationOrTimeout(0.1)  # type: ignore[arg-type]  # raises what went wrong
        finally:
            ssc.stop(stopSparkContext=False, stopGraceFully=False)
    assert set(SEEN.flat) == set(range(6))


RUNS: dict[str, dict[int, list[int]]] = {}
CHANGED = Seen()


def replace_output(time: datetime, rdd: KafkaRDD) -> None:
    """The output of a batch, known by its time: one that comes again replaces what was there."""
    batches = RUNS.setdefault("output", {})
    batches[round(time.timestamp() * 1000)] = rdd.map(lambda record: int(record.value)).collect()
    CHANGED.add(None)


def test_a_batch_that_ran_before_its_checkpoint_was_written_comes_again_with_other_ranges(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any, tmp_path: Path
) -> None:
    """Spark starts the jobs of a batch first, and writes its checkpoint then. So one time may hold other records later.

    A driver that dies in between leaves what it has here: the output of batches that no checkpoint knows. Output that
    is replaced by batch time, empty batches included, has each record once all the same.
    """
    topic, before, after = make_topic(), tmp_path / "before", tmp_path / "after"
    RUNS.clear()

    def create() -> StreamingContext:
        ssc = StreamingContext(spark.sparkContext, 1)
        direct_stream(ssc, kafka.bootstrap_servers, topic, None).foreachRDD(replace_output)
        return ssc

    def run(checkpoint: Path, *steps: Callable[[], bool]) -> dict[int, list[int]]:
        ssc = StreamingContext.getOrCreate(str(checkpoint), create)
        ssc.start()
        try:
            for step in steps:
                CHANGED.wait(lambda _, step=step: step())  # type: ignore[misc]
            return dict(RUNS["output"])
        finally:
            ssc.stop(stopSparkContext=False, stopGraceFully=False)

    def stored(numbers: range) -> bool:
        return sorted(value for values in RUNS["output"].values() for value in values) == list(numbers)

    def write_more() -> bool:
        put(topic, range(10, 15))
        return True

    empty = run(before, lambda: len(RUNS.get("output", {})) >= 3)
    assert set(map(tuple, empty.values())) == {()}
    shutil.copytree(before, after)  # what is durable when the driver dies
    put(topic, range(10))
    first = run(before, lambda: stored(range(10)), write_more, lambda: stored(range(15)))
    put(topic, range(15, 25))
    again = run(after, lambda: stored(range(25)))
    one, two = sorted(time_ms for time_ms, values in first.items() if values)
    assert (first[one], first[two]) == ([*range(10)], [*range(10, 15)])
    assert (again[one], again[two]) == ([*range(25)], []), "wider, and what the next one had is in the first one now"


def ends(facts: list[dict[str, Any]]) -> list[int]:
    return [until for _, _, until in max(facts, key=lambda fact: fact["time"])["ranges"]] if facts else []


def contiguous(batches: list[list[list[int]]]) -> bool:
    position: dict[int, int] = {}
    for ranges in batches:
        for partition, start, until in ranges:
            if position.get(partition, 0) != start:
                return False
            position[partition] = until
    return True


def committed(app: App) -> dict[int, int]:
    cluster = Cluster(connection_settings({"bootstrap.servers": app.servers}).connection)
    found = Group(cluster, f"group-{app.topic}").committed([TopicPartition(app.topic, 0), TopicPartition(app.topic, 1)])
    return {tp.partition: offset for tp, offset in found.items()}
