"""Continuous queries as users have them: start, look, stop, and go on."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.continuous.queries import PATIENCE, failure_of
from tests.integration.read_back import consume, values
from tests.integration.topics import Admin
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.errors import (
    CheckpointTakenError,
    OptionError,
    RunFailedError,
    TaskStartError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.runtime.checkpoint_files import CheckpointFiles
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.groups import Group

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from tests.conftest import MakeTopic
    from tests.integration.continuous.queries import Queries
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.continuous.sink import TaskInfo


@pytest.mark.smoke
def test_from_start_to_stop_and_on(queries: Queries, make_topic: MakeTopic) -> None:
    source, output = make_topic(2), make_topic()
    queries.put(source, range(20))
    query = queries.copy(source, output, queryName="copies")
    assert query.isActive
    assert query.name == "copies"
    assert query.exception() is None
    assert query.awaitTermination(0.01) is False
    query.processAllAvailable()
    assert values(queries.bench.bootstrap_servers, output) == sorted(map(str, range(20)))
    first = query.recentProgress[0]  # two partitions may come in two epochs
    assert query.lastProgress == query.recentProgress[-1]
    assert (first["id"], first["runId"], first["name"], first["batchId"]) == (query.id, query.runId, "copies", 1)
    assert sum(each["numInputRows"] for each in query.recentProgress) == 20
    assert sum(each["sink"]["numOutputRows"] for each in query.recentProgress) == 20
    assert query.recentProgress[0]["sources"][0]["startOffset"] == {source: {"0": 0, "1": 0}}
    assert query.recentProgress[-1]["sources"][0]["endOffset"] == {source: {"0": 10, "1": 10}}
    assert query.recentProgress[-1]["sources"][0]["description"] == f"KafkaDirect[Subscribe[{source}]]"
    assert first["timestamp"].endswith("Z")
    assert set(query.status) == {"message", "isDataAvailable", "isTriggerActive"}
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < 5  # a stop is quick; how quick depends on the machine
    assert not query.isActive
    assert query.awaitTermination() is None
    assert query.awaitTermination(1) is True
    assert query.status["message"] == "Stopped"
    query.stop()  # once more does no harm
    queries.put(source, range(20, 30))
    again = queries.copy(source, output)
    assert again.id == query.id
    assert again.runId != query.runId
    queries.expect(output, range(30), again)
    again.stop()
    epochs = queries.entries("offsets")
    assert epochs == list(range(len(epochs))) == queries.entries("commits")
    assert queries.logged(epochs[-1]) == {source: {"0": 15, "1": 15}}


def test_an_epoch_in_which_nothing_moves_costs_nothing(queries: Queries, make_topic: MakeTopic) -> None:
    source, output = make_topic(), make_topic()
    query = queries.copy(source, output, epochInterval="20 ms")
    query.processAllAvailable()
    wait_until(lambda: query.status["message"] == "Waiting for data to arrive", "it is idle")
    time.sleep(0.2)
    assert queries.entries("commits") == [0]
    for number in range(3):
        queries.put(source, [number])
        query.processAllAvailable()
    assert queries.entries("commits") == queries.entries("offsets") == [0, 1, 2, 3]
    assert [each["batchId"] for each in query.recentProgress] == [1, 2, 3]


def test_old_epochs_are_removed(queries: Queries, make_topic: MakeTopic) -> None:
    source, output = make_topic(), make_topic()
    queries.spark.conf.set("spark.sql.streaming.minBatchesToRetain", "2")
    try:
        query = queries.copy(source, output, epochInterval=0.02)
    finally:
        queries.spark.conf.unset("spark.sql.streaming.minBatchesToRetain")
    for number in range(6):
        queries.put(source, [number])
        query.processAllAvailable()
    query.stop()
    last = queries.entries("commits")[-1]
    assert last >= 6
    assert queries.entries("commits") == queries.entries("offsets") == [last - 2, last - 1, last]


def test_functions_one_after_the_other(queries: Queries, make_topic: MakeTopic) -> None:
    import pyarrow.compute as pc

    source, output = make_topic(), make_topic()
    queries.put(source, range(10))

    def even(batch: pa.RecordBatch) -> pa.RecordBatch | None:
        assert batch.schema.names == ["offset", "value"]
        kept = batch.filter(pc.equal(pc.bit_wise_and(batch["offset"], 1), 0))
        return kept if kept.num_rows else None

    def shout(batch: pa.RecordBatch) -> pa.RecordBatch:
        texts = pc.binary_join_element_wise(batch["value"].cast("string"), "!", "")
        return batch.from_arrays([texts], ["value"])

    query = queries.start(
        queries.read(subscribe=source).select("offset", "value").map_batches(even).map_batches(shout).to_kafka(output)
    )
    queries.expect(output, ["0!", "2!", "4!", "6!", "8!"], query)
    queries.put(source, ["odd?"], 0)  # offset 10
    queries.put(source, ["odd"], 0)
    query.processAllAvailable()
    queries.expect(output, ["0!", "2!", "4!", "6!", "8!", "odd?!"], query)
    assert query.lastProgress is not None
    assert query.lastProgress["sources"][0]["endOffset"] == {source: {"0": 12}}, "what was filtered out counts as read"


def test_all_columns_are_read_by_default(queries: Queries, make_topic: MakeTopic) -> None:
    source, output = make_topic(), make_topic()
    queries.put(source, ["x"])

    def names(batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as arrow

        return arrow.record_batch({"value": [",".join(batch.schema.names)]})

    queries.start(queries.read(subscribe=source, includeHeaders=True).map_batches(names).to_kafka(output))
    queries.expect(output, ["key,value,topic,partition,offset,timestamp,timestampType,headers"])


def test_nulls_arrive_as_nulls(queries: Queries, make_topic: MakeTopic) -> None:
    """SPARK-27494."""
    source, output = make_topic(), make_topic()
    queries.bench.write(source, [None, b"value"])
    query = queries.start(queries.read(subscribe=source).select("key", "value").to_kafka(output))
    query.processAllAvailable()
    assert [each[2:4] for each in consume(queries.bench.bootstrap_servers, output)] == [(None, None), (None, b"value")]


@pytest.mark.parametrize(
    ("isolation", "wanted"),
    [
        ("read_committed", ["plain-0", "plain-1", "committed-2", "committed-3", "committed-4", "plain-10"]),
        ("read_uncommitted", ["plain-0", "plain-1", "committed-2", "committed-3", "committed-4", "plain-10"]),
    ],
)
def test_transactions_of_others(
    queries: Queries, make_topic: MakeTopic, mixed: str, isolation: str, wanted: list[str]
) -> None:
    output = make_topic()
    wanted = [*wanted, "committed-11"]
    if isolation == "read_uncommitted":
        wanted += ["aborted-6", "aborted-7", "aborted-8", "aborted-13", "aborted-14"]
    reading = queries.read(subscribe=mixed, kafka_isolation_level=isolation)
    query = queries.start(reading.select("value").to_kafka(output))
    query.processAllAvailable()
    queries.expect(output, wanted, query)
    query.stop()
    assert queries.logged(queries.entries("commits")[-1]) == {mixed: {"0": 16}}


def test_a_function_as_the_output(queries: Queries, make_topic: MakeTopic, tmp_path: Path) -> None:
    source = make_topic()
    queries.put(source, range(5))
    folder = str(tmp_path)

    def write(batch: pa.RecordBatch, epoch: int) -> None:
        with open(f"{folder}/out-{epoch}", "ab") as file:
            file.write(b"".join(value + b"\n" for value in batch["value"].to_pylist()))

    query = queries.start(queries.read(subscribe=source).foreach_batch(write))
    query.processAllAvailable()
    written = b"".join(file.read_bytes() for file in sorted(tmp_path.glob("out-*")))
    assert written.split() == [b"0", b"1", b"2", b"3", b"4"]
    assert query.lastProgress is not None
    assert query.lastProgress["sink"]["description"] == "foreach_batch"


class Files:
    """A sink that writes a file for each epoch."""

    def __init__(self, folder: str, task: int) -> None:
        self.folder, self.task = folder, task
        self.rows: list[bytes] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch["value"].to_pylist()

    def flush(self, epoch: int) -> None:
        if self.rows:
            with open(f"{self.folder}/part-{epoch}-{self.task}", "xb") as file:
                file.write(b"\n".join(self.rows))
        self.rows = []

    def close(self) -> None:
        with open(f"{self.folder}/closed-{self.task}", "x"):
            pass


def test_a_sink_of_ones_own(queries: Queries, make_topic: MakeTopic, tmp_path: Path) -> None:
    source = make_topic(2)
    queries.put(source, range(10))
    folder, kind = str(tmp_path), Files

    def make(task: TaskInfo) -> Files:
        return kind(folder, task.task)

    query = queries.start(queries.read(subscribe=source).to(make))
    query.processAllAvailable()
    query.stop()
    written = b"\n".join(file.read_bytes() for file in tmp_path.glob("part-*"))
    assert sorted(written.split()) == sorted(b"%d" % number for number in range(10))
    assert sorted(file.name for file in tmp_path.glob("closed-*")) == ["closed-0", "closed-1"]


class TestFailures:
    def test_a_function_that_fails_for_good(self, queries: Queries, make_topic: MakeTopic) -> None:
        source, output = make_topic(), make_topic()
        queries.put(source, range(3))

        def divide(batch: pa.RecordBatch) -> pa.RecordBatch:
            raise ZeroDivisionError("by what the user divides")

        query = queries.start(
            queries.read(subscribe=source).map_batches(divide).to_kafka(output), maxRestarts=1, queryName="fails"
        )
        error = failure_of(query)
        assert isinstance(error, RunFailedError)
        assert error.cause == "ZeroDivisionError"
        text = str(error)
        assert "failed with ZeroDivisionError: by what the user divides" in text
        assert "Traceback (most recent call last)" in text
        assert "in divide" in text
        with pytest.raises(RunFailedError, match="by what the user divides"):
            query.awaitTermination(5)
        with pytest.raises(RunFailedError, match="by what the user divides"):
            query.processAllAvailable()
        query.stop()
        assert query.status["message"].startswith("Terminated with exception: Task 0")
        assert query.lastProgress is None

    def test_a_failure_that_passes(self, queries: Queries, make_topic: MakeTopic, tmp_path: Path) -> None:
        source, output = make_topic(), make_topic()
        queries.put(source, range(10))
        once = str(tmp_path / "failed")

        def fail_once(batch: pa.RecordBatch) -> pa.RecordBatch:
            try:
                with open(once, "x"):
                    pass
            except FileExistsError:
                return batch
            raise OSError("only once")

        query = queries.start(queries.read(subscribe=source).select("value").map_batches(fail_once).to_kafka(output))
        queries.expect(output, range(10), query)
        assert query.isActive

    def test_a_port_that_is_taken_while_it_starts_again(
        self, queries: Queries, make_topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever has it may go away again: only the first start is refused for good."""
        from pyspark_kafka_direct.continuous import _coordinator, _run

        source, output = make_topic(), make_topic()
        queries.put(source, range(10))
        once, real, made = str(tmp_path / "failed"), _coordinator.Coordinator, []

        def fail_once(batch: pa.RecordBatch) -> pa.RecordBatch:
            if not os.path.exists(once):
                with open(once, "x"):
                    raise OSError("only once")
            return batch

        def second_is_refused(*arguments: Any) -> object:
            made.append(arguments)
            if len(made) == 2:
                raise OSError(98, "Address already in use")
            return real(*arguments)

        monkeypatch.setattr(_run, "Coordinator", second_is_refused)
        query = queries.start(queries.read(subscribe=source).select("value").map_batches(fail_once).to_kafka(output))
        queries.expect(output, range(10), query)
        assert len(made) == 3

    def test_a_worker_that_dies(self, queries: Queries, make_topic: MakeTopic) -> None:
        source, output = make_topic(2), make_topic()

        def die(batch: pa.RecordBatch) -> pa.RecordBatch:
            if b"die" in batch["value"].to_pylist() and not os.path.exists(marker):
                with open(marker, "x"):
                    os._exit(9)
            return batch

        marker = str(queries.folder / "died")
        query = queries.start(queries.read(subscribe=source).select("value").map_batches(die).to_kafka(output))
        queries.put(source, range(10))
        query.processAllAvailable()
        queries.put(source, ["die"], 0)
        queries.expect(output, [*range(10), "die"], query)

    def test_a_function_that_hangs(self, queries: Queries, make_topic: MakeTopic) -> None:
        source, output = make_topic(), make_topic()
        queries.put(source, ["x"])

        def hang(batch: pa.RecordBatch) -> pa.RecordBatch:
            threading.Event().wait(600)
            return batch

        query = queries.start(
            queries.read(subscribe=source).map_batches(hang).to_kafka(output), epochTimeout=1, maxRestarts=0
        )
        assert "have not reported epoch 1 within 1 s" in str(failure_of(query))

    def test_a_file_system_that_hangs(
        self, queries: Queries, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """None here can be made to hang, so the last of the calls that lead there does."""
        create, hangs, answers = CheckpointFiles.create, threading.Event(), threading.Event()

        def hang(self: CheckpointFiles, name: str, text: str) -> bool:
            if name == "commits/2":
                hangs.set()
                answers.wait(PATIENCE)
            return create(self, name, text)

        monkeypatch.setattr(CheckpointFiles, "create", hang)
        source, output = make_topic(1), make_topic(1)
        queries.put(source, range(5))
        query = queries.copy(source, output, epochTimeout=3)
        try:
            queries.expect(output, range(5), query)
            wait_until(lambda: queries.entries("commits")[-1:] == [1], "the first epoch", PATIENCE)
            queries.put(source, range(5, 9))
            assert hangs.wait(PATIENCE)
            failure = failure_of(query)
            assert "Epoch 2 has not been written down within 3 s" in str(failure)
            tracker = queries.spark.sparkContext.statusTracker()
            assert list(tracker.getActiveJobsIds()) == [], "its tasks have ended"
            query.stop()
        finally:
            answers.set()
        wait_until(lambda: queries.entries("commits")[-1:] == [2], "the late write", PATIENCE)
        again = queries.copy(source, output)
        queries.put(source, ["more"])
        queries.expect(output, [*range(9), "more"], again)
        assert query.status["message"].startswith("Terminated with exception: Epoch 2")

    def test_what_no_restart_mends_ends_at_once(self, queries: Queries, make_topic: MakeTopic) -> None:
        source, output = make_topic(), make_topic()
        queries.put(source, ["x"])

        def other_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch.select(["offset"])

        query = queries.start(queries.read(subscribe=source).map_batches(other_columns).to_kafka(output))
        assert type(failure_of(query)).__name__ == "ColumnError"

    def test_a_topic_that_is_not_there(
        self, queries: Queries, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
    ) -> None:
        query = queries.copy("there-is-no-such-topic", make_topic(), queryName="nothing")
        error = failure_of(query)
        assert isinstance(error, TopicNotFoundError)
        assert "there-is-no-such-topic" in str(error)
        assert "starts again" not in caplog.text, "it has never begun"

    def test_a_topic_that_is_there_a_moment_later(self, queries: Queries, make_topic: MakeTopic) -> None:
        """Not all brokers may know it yet, so they are asked again before the query gives up."""
        topic, output = f"later-{make_topic()}", make_topic()
        reading = queries.read(subscribe=topic, fetchOffset_numRetries=30).select("value")
        query = queries.start(reading.to_kafka(output))
        assert query.awaitTermination(1.5) is False
        Admin(queries.bench.bootstrap_servers).create(topic, 1)
        queries.put(topic, range(3))
        queries.expect(output, range(3), query)

    def test_two_queries_at_one_checkpoint(self, queries: Queries, make_topic: MakeTopic) -> None:
        source, output = make_topic(), make_topic()
        one = queries.copy(source, output)
        one.processAllAvailable()
        two = queries.copy(source, output)
        two.processAllAvailable()
        until = time.monotonic() + PATIENCE
        while one.isActive and two.isActive and time.monotonic() < until:
            queries.put(source, ["x"])
            time.sleep(0.05)
        (ended,) = [each for each in (one, two) if not each.isActive]
        (other,) = [each for each in (one, two) if each.isActive]
        assert isinstance(ended.exception(), CheckpointTakenError)
        queries.put(source, ["after"])
        other.processAllAvailable()
        assert other.isActive


class TestCores:
    def test_more_tasks_than_cores_can_ever_be(self, queries: Queries, make_topic: MakeTopic) -> None:
        query = queries.copy(make_topic(3), make_topic())
        error = failure_of(query)
        assert isinstance(error, OptionError)
        assert "needs 3 cores" in str(error)
        assert "set tasksMax to 2 or less" in str(error)
        assert queries.entries("offsets") == [], "it has not begun"

    def test_as_many_tasks_as_there_are_cores(self, queries: Queries, make_topic: MakeTopic) -> None:
        source, output = make_topic(5), make_topic()
        queries.put(source, range(50))
        query = queries.copy(source, output, tasksMax=2)
        queries.expect(output, range(50), query)

    def test_cores_that_others_have(self, queries: Queries, make_topic: MakeTopic) -> None:
        first = queries.copy(make_topic(), make_topic(), "first")
        first.processAllAvailable()
        wait_until(lambda: first.status["isTriggerActive"], "it runs")
        second = queries.copy(make_topic(2), make_topic(), "second", taskStartTimeout=2)
        error = failure_of(second)
        assert isinstance(error, TaskStartError)
        assert "needs 2 free cores" in str(error)
        assert "tasksMax" in str(error)
        assert first.isActive

    def test_two_queries_side_by_side(self, queries: Queries, make_topic: MakeTopic) -> None:
        topics = [(make_topic(2), make_topic()) for _ in range(2)]
        started = [queries.copy(*pair, str(number), tasksMax=1) for number, pair in enumerate(topics)]
        for number, ((source, output), query) in enumerate(zip(topics, started, strict=True)):
            queries.put(source, range(number, number + 10))
            queries.expect(output, range(number, number + 10), query)


class TestRefusals:
    def test_a_name_that_another_query_has(self, queries: Queries, make_topic: MakeTopic) -> None:
        first = queries.copy(make_topic(), make_topic(), "first", queryName="twin")
        with pytest.raises(OptionError, match="a continuous query 'twin' is running already"):
            queries.copy(make_topic(), make_topic(), "second", queryName="twin")
        first.stop()
        queries.copy(make_topic(), make_topic(), "second", queryName="twin")

    def test_a_function_that_cannot_travel(self, queries: Queries, make_topic: MakeTopic) -> None:
        lock = threading.Lock()
        reading = queries.read(subscribe=make_topic())

        def locked(batch: pa.RecordBatch) -> pa.RecordBatch:
            with lock:
                return batch

        with pytest.raises(OptionError, match="cannot be sent to the executors"):
            queries.start(reading.map_batches(locked).to_kafka(make_topic()))

        def write(batch: pa.RecordBatch, epoch: int) -> None:
            with lock:
                pass

        with pytest.raises(OptionError, match="cannot be sent to the executors"):
            reading.foreach_batch(write)

    def test_a_port_that_is_taken(self, queries: Queries, make_topic: MakeTopic) -> None:
        import socket

        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            query = queries.copy(make_topic(), make_topic(), controlPort=port)
            assert f"The driver cannot listen at 127.0.0.1, port {port}" in str(failure_of(query))

    @pytest.mark.parametrize(
        ("place", "says"),
        [("nowhere://x/y", 'No FileSystem for scheme "nowhere"'), ("/proc/version/checkpoint", "/proc/version")],
        ids=["file system", "folder"],
    )
    def test_a_checkpoint_that_cannot_be_used(
        self, queries: Queries, make_topic: MakeTopic, place: str, says: str
    ) -> None:
        with pytest.raises(OptionError, match=f"checkpointLocation {place} cannot be used: ") as caught:
            queries.copy(make_topic(), make_topic(), checkpointLocation=place)
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_checkpoint_by_the_sessions_default(self, queries: Queries, make_topic: MakeTopic) -> None:
        name = "spark.sql.streaming.checkpointLocation"
        queries.spark.conf.set(name, str(queries.folder))
        try:
            queries.copy(make_topic(), make_topic(), checkpointLocation=None, queryName="named").processAllAvailable()
        finally:
            queries.spark.conf.unset(name)
        assert queries.entries("commits", "named") == [0]


def test_a_port_of_ones_choice(queries: Queries, make_topic: MakeTopic) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    source, output = make_topic(), make_topic()
    queries.put(source, range(3))
    queries.expect(output, range(3), queries.copy(source, output, controlPort=port))


def test_a_group_shows_where_the_query_is(queries: Queries, make_topic: MakeTopic, bench: Workbench) -> None:
    source, output = make_topic(), make_topic()
    queries.put(source, range(7))
    group = f"shows-{source}"
    reading = queries.read(subscribe=source, commitGroupId=group)
    query = queries.start(reading.select("value").to_kafka(output))
    query.processAllAvailable()
    cluster = Cluster(connection_settings({"bootstrap.servers": bench.bootstrap_servers}).connection)
    wanted = {TopicPartition(source, 0): 7}
    wait_until(lambda: Group(cluster, group).committed(wanted) == wanted, "the group has the offset")
    query.stop()
    queries.put(source, ["more"])
    reading = queries.read(subscribe=source, commitGroupId=group, startingOffsets="committed")
    other = make_topic()
    queries.expect(other, ["more"], queries.start(reading.select("value").to_kafka(other), "another"))


def test_properties_of_the_caller(queries: Queries, make_topic: MakeTopic) -> None:
    """The job inherits local properties of the thread that started the query, such as the scheduler's pool."""
    source, output = make_topic(), make_topic()
    queries.put(source, ["x"])

    def pool(batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as arrow
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return arrow.record_batch({"value": [context.getLocalProperty("spark.scheduler.pool")]})

    context: Any = queries.spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", "alerts")
    try:
        query = queries.start(queries.read(subscribe=source).map_batches(pool).to_kafka(output))
    finally:
        context.setLocalProperty("spark.scheduler.pool", None)
    queries.expect(output, ["alerts"], query)
