"""A direct stream that is killed or stopped, and restarts from its checkpoint."""

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
from tests.integration.direct.streaming_contexts import BatchResults, direct_stream
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import KafkaRDD

APP = Path(__file__).with_name("stream_app.py")
DEADLINE = 600  # seconds


@dataclass
class App:
    """The application under test, which can run several times in one folder."""

    servers: str
    topic: str
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-W", "ignore", str(APP), self.servers, self.topic, str(self.folder)]
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)

    def kill(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)  # including its JVM and its workers
        self.process.wait(600)

    def terminate(self) -> None:
        """Send SIGTERM, and wait until the application has ended."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(DEADLINE) == 0, self.output()

    def events(self, event: str) -> list[dict[str, Any]]:
        log = self.folder / "log"
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]  # a kill may have truncated the last line
        return [each for each in events if each["event"] == event]

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
    return sum(len(event["values"]) for event in app.events("done"))


def write(app: App, put: Any, numbers: range) -> None:
    """Half of the numbers to each partition."""
    middle = (numbers.start + numbers.stop) // 2
    put(app.topic, range(numbers.start, middle), partition=0)
    put(app.topic, range(middle, numbers.stop), partition=1)


@pytest.mark.parametrize("kills", [pytest.param(1, marks=pytest.mark.smoke), pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.spark_app
@pytest.mark.timeout(1500)
def test_a_killed_stream_reruns_pending_batches_with_the_same_ranges(app: App, put: Any, kills: int) -> None:
    """Then it continues: no record is skipped, and keyed state has counted each record once.

    At SIGTERM, it stops gracefully, as docs/direct-stream.md says, and commits the offsets of its last batch.
    """
    write(app, put, range(100))
    app.start()
    app.wait(lambda: read(app) >= 100)
    (app.folder / "hold").touch()
    write(app, put, range(100, 200))
    # 20 records per partition and batch: the batches with records are planned but not done, and their checkpoints
    # written.
    app.wait(lambda: ends(app.events("planned")) == [100, 100])
    count_before = len(app.events("planned"))
    app.wait(lambda: len(app.events("planned")) >= count_before + 4)  # two events per batch
    app.kill()
    before = app.events("planned")
    done_before = {event["time"] for event in app.events("done")}
    pending = {event["time"]: event["ranges"] for event in before if event["time"] not in done_before}
    with_records = {at for at, ranges in pending.items() if sum(until - start for _, start, until in ranges)}
    assert len(with_records) >= 3
    (app.folder / "hold").unlink()
    write(app, put, range(200, 260))  # while the application does not run

    app.start()
    app.wait(lambda: ends(app.events("done")) == [130, 130])
    again = app.events("planned")[len(before) :]
    replayed = {event["time"]: event["ranges"] for event in again if event["time"] in with_records}
    assert replayed == {at: pending[at] for at in with_records}
    # An empty batch may have been planned without its checkpoint being written. Then it is planned again.
    new = [event["ranges"] for event in again if all(start >= 100 for _, start, _ in event["ranges"])]
    first = next(ranges for ranges in new if any(until > start for _, start, until in ranges))
    assert first == [[0, 100, 120], [1, 100, 120]], "the lag, up to the limit"

    once = {event["time"]: event for event in app.events("done")}
    assert sorted(value for event in once.values() for value in event["values"]) == list(range(260))
    assert contiguous([once[at]["ranges"] for at in sorted(once)])
    app.wait(lambda: app.events("state")[-1]["sum"] == [sum(range(260))])
    sums = {event["time"]: event["sum"] for event in app.events("state")}
    assert [sums[at] for at in sorted(sums)] == sorted(sums.values())

    if kills == 2:  # the second restart continues the windows and the state that the first restart restored
        app.kill()
        last = app.events("state")[-1]["time"]
        write(app, put, range(260, 280))
        app.start()
        app.wait(lambda: app.events("state")[-1]["sum"] == [sum(range(280))])
        # The events of batches that ran again replace the earlier ones.
        app.wait(lambda: app.events("state")[-1]["time"] > last)
    windows = {event["time"]: sorted(event["window"]) for event in app.events("state")}
    done = {event["time"]: event["values"] for event in app.events("done")}
    for at, values in windows.items():
        parts = [done.get(at - back) for back in (0, 4000)]
        if None not in parts:
            assert values == sorted(value for part in parts if part for value in part), at

    last = [offset + 5 for offset in ends(app.events("done"))]
    write(app, put, range(280, 290))
    app.wait(lambda: ends(app.events("done")) == last)
    app.terminate()
    assert app.output().endswith("stopped\n")
    assert committed(app) == dict(enumerate(last)), "committed with the reference in the restored function"


RESULTS = BatchResults()


def store_values(rdd: KafkaRDD) -> None:
    """Pickled by reference in the checkpoint, so it is the same function after a restart in this process."""
    RESULTS.add(rdd.map(lambda record: int(record.value)).collect())


def test_a_context_that_restarts_in_the_same_process(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any, tmp_path: Path
) -> None:
    """It runs until Spark releases the first batches, which needs state that a checkpoint does not contain."""
    topic = make_topic()
    put(topic, range(3))

    def create() -> StreamingContext:
        ssc = StreamingContext(spark.sparkContext, 1)
        direct_stream(ssc, kafka.bootstrap_servers, topic, None).foreachRDD(store_values)
        return ssc

    def must_not_be_called() -> StreamingContext:
        raise AssertionError("there is a checkpoint")

    for number, make in enumerate([create, must_not_be_called, must_not_be_called]):
        ssc = StreamingContext.getOrCreate(str(tmp_path), make)
        ssc.start()
        try:
            put(topic, [3 + number])
            RESULTS.wait(lambda results, last=3 + number: any(last in values for values in results))  # type: ignore[misc]
            RESULTS.wait_for_more(4)
            ssc.awaitTerminationOrTimeout(0.1)  # type: ignore[arg-type]  # raises the error of a batch
        finally:
            ssc.stop(stopSparkContext=False, stopGraceFully=False)
    assert set(RESULTS.flat) == set(range(6))


OUTPUT: dict[str, dict[int, list[int]]] = {}
OUTPUT_CHANGES = BatchResults()


def replace_output(time: datetime, rdd: KafkaRDD) -> None:
    """Store the output of a batch by its time; a batch that runs again replaces its output."""
    batches = OUTPUT.setdefault("output", {})
    batches[round(time.timestamp() * 1000)] = rdd.map(lambda record: int(record.value)).collect()
    OUTPUT_CHANGES.add(None)


def test_a_batch_that_ran_before_its_checkpoint_reruns_with_other_ranges(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any, tmp_path: Path
) -> None:
    """Spark starts the jobs of a batch before it writes the checkpoint, so a batch time may have other records later.

    If the driver fails in between, there is output of batches that are in no checkpoint. If output is replaced by batch
    time, including empty batches, it still contains each record once.
    """
    topic, before, after = make_topic(), tmp_path / "before", tmp_path / "after"
    OUTPUT.clear()

    def create() -> StreamingContext:
        ssc = StreamingContext(spark.sparkContext, 1)
        direct_stream(ssc, kafka.bootstrap_servers, topic, None).foreachRDD(replace_output)
        return ssc

    def run(checkpoint: Path, *steps: Callable[[], bool]) -> dict[int, list[int]]:
        ssc = StreamingContext.getOrCreate(str(checkpoint), create)
        ssc.start()
        try:
            for step in steps:
                OUTPUT_CHANGES.wait(lambda _, step=step: step())  # type: ignore[misc]
            return dict(OUTPUT["output"])
        finally:
            ssc.stop(stopSparkContext=False, stopGraceFully=False)

    def stored(numbers: range) -> bool:
        return sorted(value for values in OUTPUT["output"].values() for value in values) == list(numbers)

    def write_more() -> bool:
        put(topic, range(10, 15))
        return True

    empty = run(before, lambda: len(OUTPUT.get("output", {})) >= 3)
    assert set(map(tuple, empty.values())) == {()}
    shutil.copytree(before, after)  # the durable state when the driver fails
    put(topic, range(10))
    first = run(before, lambda: stored(range(10)), write_more, lambda: stored(range(15)))
    put(topic, range(15, 25))
    again = run(after, lambda: stored(range(25)))
    one, two = sorted(time_ms for time_ms, values in first.items() if values)
    assert (first[one], first[two]) == ([*range(10)], [*range(10, 15)])
    assert (again[one], again[two]) == ([*range(25)], []), (
        "the first batch now also contains the records of the next one"
    )


def ends(events: list[dict[str, Any]]) -> list[int]:
    return [until for _, _, until in max(events, key=lambda event: event["time"])["ranges"]] if events else []


def contiguous(batches: list[list[list[int]]]) -> bool:
    position: dict[int, int] = {}
    for ranges in batches:
        for partition, start, until in ranges:
            if position.get(partition, 0) != start:
                return False
            position[partition] = until
    return True


def committed(app: App) -> dict[int, int]:
    cluster = ClusterClient(parse_client_params({"bootstrap.servers": app.servers}).connection)
    offsets = ConsumerGroup(cluster, f"group-{app.topic}").committed(
        [TopicPartition(app.topic, 0), TopicPartition(app.topic, 1)]
    )
    return {tp.partition: offset for tp, offset in offsets.items()}
