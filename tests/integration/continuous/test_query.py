"""Continuous queries as users run them: start, progress, failures, stop and restart."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.continuous.continuous_queries import (
    LONG_LEASE,
    SHORT_LEASE,
    STOP_TIMEOUT,
    TIMEOUT,
    await_failure,
)
from tests.integration.read_back import consume, values
from tests.integration.sessions import setting
from tests.integration.topics import Admin
from tests.integration.waiting import wait_until
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.errors import (
    CheckpointFencedError,
    OptionError,
    QueryRunError,
    TaskStartTimeoutError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.spark.checkpoint_files import CheckpointFiles

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa
    from tests.conftest import MakeTopic
    from tests.integration.continuous.continuous_queries import Queries
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.continuous.continuous_sink import TaskInfo


@pytest.mark.smoke
def test_start_stop_and_restart(queries: Queries, make_topic: MakeTopic) -> None:
    source, output = make_topic(2), make_topic()
    queries.put(source, range(20))
    query = queries.copy(source, output, queryName="copies", heartbeatTimeout=LONG_LEASE)
    assert query.isActive
    assert query.name == "copies"
    assert query.exception() is None
    assert query.awaitTermination(0.01) is False
    query.processAllAvailable()
    assert values(queries.bench.bootstrap_servers, output) == sorted(map(str, range(20)))
    first = query.recentProgress[0]  # the partitions may be in two epochs
    assert query.lastProgress == query.recentProgress[-1]
    assert (first["id"], first["runId"], first["name"], first["batchId"]) == (query.id, query.runId, "copies", 1)
    assert sum(each["numInputRows"] for each in query.recentProgress) == 20
    assert sum(each["sink"]["numOutputRows"] for each in query.recentProgress) == 20
    assert query.recentProgress[0]["sources"][0]["startOffset"] == {source: {"0": 0, "1": 0}}
    assert query.recentProgress[-1]["sources"][0]["endOffset"] == {source: {"0": 10, "1": 10}}
    assert query.recentProgress[-1]["sources"][0]["description"] == f"KafkaDirect[Subscribe[{source}]]"
    assert first["timestamp"].endswith("Z")
    assert set(query.status) == {"message", "isDataAvailable", "isTriggerActive"}
    stopped_at = time.monotonic()
    query.stop()
    assert time.monotonic() - stopped_at < STOP_TIMEOUT
    assert not query.isActive
    assert query.awaitTermination() is None
    assert query.awaitTermination(1) is True
    assert query.status["message"] == "Stopped"
    query.stop()  # idempotent
    queries.put(source, range(20, 30))
    restarted = queries.copy(source, output)
    assert restarted.id == query.id
    assert restarted.runId != query.runId
    queries.expect(output, range(30), restarted)
    restarted.stop()
    epochs = queries.epochs("offsets")
    assert epochs == list(range(len(epochs))) == queries.epochs("commits")
    assert queries.end_offsets(epochs[-1]) == {source: {"0": 15, "1": 15}}


def test_epochs_without_progress_are_not_written(queries: Queries, make_topic: MakeTopic) -> None:
    source, output = make_topic(), make_topic()
    query = queries.copy(source, output, epochInterval="20 ms")
    query.processAllAvailable()
    wait_until(lambda: query.status["message"] == "Waiting for data to arrive", "an idle query")
    time.sleep(0.2)
    assert queries.epochs("commits") == [0]
    for number in range(3):
        queries.put(source, [number])
        query.processAllAvailable()
    assert queries.epochs("commits") == queries.epochs("offsets") == [0, 1, 2, 3]
    assert [each["batchId"] for each in query.recentProgress] == [1, 2, 3]


def test_old_epochs_are_purged(queries: Queries, make_topic: MakeTopic) -> None:
    source, output = make_topic(), make_topic()
    with setting(queries.spark, "spark.sql.streaming.minBatchesToRetain", "2"):
        query = queries.copy(source, output, epochInterval=0.02)
    for number in range(6):
        queries.put(source, [number])
        query.processAllAvailable()
    query.stop()
    last = queries.epochs("commits")[-1]
    assert last >= 6
    assert queries.epochs("commits") == queries.epochs("offsets") == [last - 2, last - 1, last]


def test_functions_are_applied_in_order(queries: Queries, make_topic: MakeTopic) -> None:
    import pyarrow.compute as pc

    source, output = make_topic(), make_topic()
    queries.put(source, range(10))

    def even(batch: pa.RecordBatch) -> pa.RecordBatch | None:
        assert batch.schema.names == ["offset", "value"]
        kept = batch.filter(pc.equal(pc.bit_wise_and(batch["offset"], 1), 0))
        return kept if kept.num_rows else None

    def append_exclamation_mark(batch: pa.RecordBatch) -> pa.RecordBatch:
        texts = pc.binary_join_element_wise(batch["value"].cast("string"), "!", "")
        return batch.from_arrays([texts], ["value"])

    query = queries.start(
        queries.read(subscribe=source)
        .select("offset", "value")
        .map_batches(even)
        .map_batches(append_exclamation_mark)
        .to_kafka(output)
    )
    queries.expect(output, ["0!", "2!", "4!", "6!", "8!"], query)
    queries.put(source, ["odd?"], 0)  # offset 10
    queries.put(source, ["odd"], 0)
    query.processAllAvailable()
    queries.expect(output, ["0!", "2!", "4!", "6!", "8!", "odd?!"], query)
    assert query.lastProgress is not None
    assert query.lastProgress["sources"][0]["endOffset"] == {source: {"0": 12}}, "dropped records count as read"


def test_all_columns_are_read_by_default(queries: Queries, make_topic: MakeTopic) -> None:
    source, output = make_topic(), make_topic()
    queries.put(source, ["x"])

    def column_names(batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as arrow

        return arrow.record_batch({"value": [",".join(batch.schema.names)]})

    queries.start(queries.read(subscribe=source, includeHeaders=True).map_batches(column_names).to_kafka(output))
    queries.expect(output, ["key,value,topic,partition,offset,timestamp,timestampType,headers"])


def test_nulls_are_preserved(queries: Queries, make_topic: MakeTopic) -> None:
    """SPARK-27494."""
    source, output = make_topic(), make_topic()
    queries.bench.write(source, [None, b"value"])
    query = queries.start(queries.read(subscribe=source).select("key", "value").to_kafka(output))
    query.processAllAvailable()
    assert [each[2:4] for each in consume(queries.bench.bootstrap_servers, output)] == [(None, None), (None, b"value")]


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [
        ("read_committed", ["plain-0", "plain-1", "committed-2", "committed-3", "committed-4", "plain-10"]),
        ("read_uncommitted", ["plain-0", "plain-1", "committed-2", "committed-3", "committed-4", "plain-10"]),
    ],
)
def test_transactions_of_other_producers(
    queries: Queries, make_topic: MakeTopic, mixed: str, isolation: str, expected: list[str]
) -> None:
    output = make_topic()
    expected = [*expected, "committed-11"]
    if isolation == "read_uncommitted":
        expected += ["aborted-6", "aborted-7", "aborted-8", "aborted-13", "aborted-14"]
    input_query = queries.read(subscribe=mixed, kafka_isolation_level=isolation)
    query = queries.start(input_query.select("value").to_kafka(output))
    query.processAllAvailable()
    queries.expect(output, expected, query)
    query.stop()
    assert queries.end_offsets(queries.epochs("commits")[-1]) == {mixed: {"0": 16}}


def test_a_function_as_the_output(queries: Queries, make_topic: MakeTopic, tmp_path: Path) -> None:
    source = make_topic()
    queries.put(source, range(5))
    folder = str(tmp_path)

    def write(batch: pa.RecordBatch) -> None:
        with open(f"{folder}/out", "ab") as file:
            file.write(b"".join(value + b"\n" for value in batch["value"].to_pylist()))

    query = queries.start(queries.read(subscribe=source).foreach_batch(write))
    query.processAllAvailable()
    assert (tmp_path / "out").read_bytes().split() == [b"0", b"1", b"2", b"3", b"4"]
    assert query.lastProgress is not None
    assert query.lastProgress["sink"]["description"] == "foreach_batch"


class FileSink:
    """A sink that writes a file for each flush with rows."""

    def __init__(self, folder: str, task: int) -> None:
        self.folder, self.task = folder, task
        self.rows: list[bytes] = []
        self.files = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch["value"].to_pylist()

    def flush(self, positions: Mapping[TopicPartition, int]) -> None:
        if self.rows:
            self.files += 1
            with open(f"{self.folder}/part-{self.files}-{self.task}", "xb") as file:
                file.write(b"\n".join(self.rows))
        self.rows = []

    def close(self) -> None:
        with open(f"{self.folder}/closed-{self.task}", "x"):
            pass


def test_a_custom_sink(queries: Queries, make_topic: MakeTopic, tmp_path: Path) -> None:
    source = make_topic(2)
    queries.put(source, range(10))
    folder, kind = str(tmp_path), FileSink

    def make(task: TaskInfo) -> FileSink:
        return kind(folder, task.task)

    query = queries.start(queries.read(subscribe=source).to(make))
    query.processAllAvailable()
    query.stop()
    written = b"\n".join(file.read_bytes() for file in tmp_path.glob("part-*"))
    assert sorted(written.split()) == sorted(b"%d" % number for number in range(10))
    assert sorted(file.name for file in tmp_path.glob("closed-*")) == ["closed-0", "closed-1"]


class TestFailures:
    def test_a_function_that_always_fails(self, queries: Queries, make_topic: MakeTopic) -> None:
        source, output = make_topic(), make_topic()
        queries.put(source, range(3))

        def divide(batch: pa.RecordBatch) -> pa.RecordBatch:
            raise ZeroDivisionError("on purpose")

        query = queries.start(
            queries.read(subscribe=source).map_batches(divide).to_kafka(output), maxRestarts=1, queryName="fails"
        )
        error = await_failure(query)
        assert isinstance(error, QueryRunError)
        assert error.cause_class == "ZeroDivisionError"
        message = str(error)
        assert "failed with ZeroDivisionError: on purpose" in message
        assert "Traceback (most recent call last)" in message
        assert "in divide" in message
        with pytest.raises(QueryRunError, match="on purpose"):
            query.awaitTermination(600)
        with pytest.raises(QueryRunError, match="on purpose"):
            query.processAllAvailable()
        query.stop()
        assert query.status["message"].startswith("Terminated with exception: Task 0")
        assert query.lastProgress is None

    def test_a_transient_failure(self, queries: Queries, make_topic: MakeTopic, tmp_path: Path) -> None:
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

    def test_a_port_that_is_in_use_at_a_restart(
        self, queries: Queries, make_topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another process may release the port: only the first start fails for good."""
        from pyspark_kafka_direct.continuous import epoch_coordinator, query_run

        source, output = make_topic(), make_topic()
        queries.put(source, range(10))
        once, coordinator, created = str(tmp_path / "failed"), epoch_coordinator.EpochCoordinator, []

        def fail_once(batch: pa.RecordBatch) -> pa.RecordBatch:
            if not os.path.exists(once):
                with open(once, "x"):
                    raise OSError("only once")
            return batch

        def fail_second_start(*arguments: Any) -> object:
            created.append(arguments)
            if len(created) == 2:
                raise OSError(98, "Address already in use")
            return coordinator(*arguments)

        monkeypatch.setattr(query_run, "EpochCoordinator", fail_second_start)
        query = queries.start(queries.read(subscribe=source).select("value").map_batches(fail_once).to_kafka(output))
        queries.expect(output, range(10), query)
        assert len(created) == 3

    def test_a_worker_that_exits(self, queries: Queries, make_topic: MakeTopic) -> None:
        source, output = make_topic(2), make_topic()

        def die(batch: pa.RecordBatch) -> pa.RecordBatch:
            if b"die" in batch["value"].to_pylist() and not os.path.exists(died):
                with open(died, "x"):
                    os._exit(9)
            return batch

        died = str(queries.folder / "died")
        query = queries.start(
            queries.read(subscribe=source).select("value").map_batches(die).to_kafka(output),
            heartbeatTimeout=SHORT_LEASE,
        )
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
            queries.read(subscribe=source).map_batches(hang).to_kafka(output),
            epochTimeout=3,
            maxRestarts=0,
            heartbeatTimeout=SHORT_LEASE,
        )
        assert "did not report epoch 1 within 3 s" in str(await_failure(query))

    def test_a_file_system_that_hangs(
        self, queries: Queries, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Instead of a file system, the last call before it hangs."""
        create, has_hung, released = CheckpointFiles.create, threading.Event(), threading.Event()

        def hang(self: CheckpointFiles, name: str, text: str) -> bool:
            if name == "commits/2":
                has_hung.set()
                released.wait(TIMEOUT)
            return create(self, name, text)

        monkeypatch.setattr(CheckpointFiles, "create", hang)
        source, output = make_topic(1), make_topic(1)
        queries.put(source, range(5))
        query = queries.copy(source, output, epochTimeout=8)
        try:
            queries.expect(output, range(5), query)
            wait_until(lambda: queries.epochs("commits")[-1:] == [1], "the first epoch", TIMEOUT)
            queries.put(source, range(5, 9))
            assert has_hung.wait(TIMEOUT)
            failure = await_failure(query)
            assert "Epoch 2 was not committed within 8 s" in str(failure)
            tracker = queries.spark.sparkContext.statusTracker()
            assert list(tracker.getActiveJobsIds()) == [], "the tasks have ended"
            query.stop()
        finally:
            released.set()
        wait_until(lambda: queries.epochs("commits")[-1:] == [2], "the abandoned commit", TIMEOUT)
        restarted = queries.copy(source, output)
        queries.put(source, ["more"])
        # If the records were read in two epochs, only the first of them was committed.
        queries.expect_all(output, [*range(9), "more"], range(5), restarted)
        assert query.status["message"].startswith("Terminated with exception: Epoch 2")

    def test_a_permanent_error_ends_the_query_at_once(self, queries: Queries, make_topic: MakeTopic) -> None:
        source, output = make_topic(), make_topic()
        queries.put(source, ["x"])

        def other_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch.select(["offset"])

        query = queries.start(queries.read(subscribe=source).map_batches(other_columns).to_kafka(output))
        assert type(await_failure(query)).__name__ == "ColumnError"

    def test_a_missing_topic(self, queries: Queries, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture) -> None:
        query = queries.copy("there-is-no-such-topic", make_topic(), queryName="nothing")
        error = await_failure(query)
        assert isinstance(error, TopicNotFoundError)
        assert "there-is-no-such-topic" in str(error)
        assert "restarts" not in caplog.text, "the query has never started"

    def test_a_topic_that_is_created_later(self, queries: Queries, make_topic: MakeTopic) -> None:
        """Not all brokers may know it yet, so the query retries."""
        topic, output = f"later-{make_topic()}", make_topic()
        input_query = queries.read(subscribe=topic, fetchOffset_numRetries=30).select("value")
        query = queries.start(input_query.to_kafka(output))
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
        deadline = time.monotonic() + TIMEOUT
        while one.isActive and two.isActive and time.monotonic() < deadline:
            queries.put(source, ["x"])
            time.sleep(0.05)
        (fenced,) = [each for each in (one, two) if not each.isActive]
        (other,) = [each for each in (one, two) if each.isActive]
        assert isinstance(fenced.exception(), CheckpointFencedError)
        queries.put(source, ["after"])
        other.processAllAvailable()
        assert other.isActive


def test_a_job_that_is_cancelled_by_others_ends_the_query(queries: Queries, make_topic: MakeTopic) -> None:
    query = queries.copy(make_topic(), make_topic())
    wait_until(lambda: query.status["isTriggerActive"], "a running query")
    queries.spark.sparkContext.cancelAllJobs()
    error = await_failure(query)
    assert isinstance(error, QueryRunError)
    assert "SPARK_JOB_CANCELLED" in str(error)


class TestCores:
    def test_more_tasks_than_cores(self, queries: Queries, make_topic: MakeTopic) -> None:
        """Also with partitions that are added while the query runs."""
        source, output = make_topic(2), make_topic()
        query = queries.copy(source, output)
        queries.put(source, range(10))
        queries.expect(output, range(10), query)
        queries.bench.add_partitions(source, 5)
        for partition in range(2, 5):
            queries.put(source, [partition * 10], partition=partition)
        queries.expect(output, [*range(10), 20, 30, 40], query)

    def test_as_many_tasks_as_there_are_cores(self, queries: Queries, make_topic: MakeTopic) -> None:
        source, output = make_topic(5), make_topic()
        queries.put(source, range(50))
        query = queries.copy(source, output, tasksMax=2)
        queries.expect(output, range(50), query)

    def test_cores_that_are_in_use(self, queries: Queries, make_topic: MakeTopic) -> None:
        first = queries.copy(make_topic(), make_topic(), "first")
        first.processAllAvailable()
        wait_until(lambda: first.status["isTriggerActive"], "a running query")
        second = queries.copy(make_topic(2), make_topic(), "second", taskStartTimeout=2)
        error = await_failure(second)
        assert isinstance(error, TaskStartTimeoutError)
        assert "needs 2 free cores" in str(error)
        assert "tasksMax" in str(error)
        assert first.isActive

    def test_two_concurrent_queries(self, queries: Queries, make_topic: MakeTopic) -> None:
        topics = [(make_topic(2), make_topic()) for _ in range(2)]
        started = [queries.copy(*pair, str(number), tasksMax=1) for number, pair in enumerate(topics)]
        for number, ((source, output), query) in enumerate(zip(topics, started, strict=True)):
            queries.put(source, range(number, number + 10))
            queries.expect(output, range(number, number + 10), query)


class TestRejections:
    def test_a_name_that_is_in_use(self, queries: Queries, make_topic: MakeTopic) -> None:
        first = queries.copy(make_topic(), make_topic(), "first", queryName="duplicate")
        with pytest.raises(OptionError, match="a continuous query named 'duplicate' is running"):
            queries.copy(make_topic(), make_topic(), "second", queryName="duplicate")
        first.stop()
        queries.copy(make_topic(), make_topic(), "second", queryName="duplicate")

    def test_a_function_that_cannot_be_pickled(self, queries: Queries, make_topic: MakeTopic) -> None:
        lock = threading.Lock()
        input_query = queries.read(subscribe=make_topic())

        def locked(batch: pa.RecordBatch) -> pa.RecordBatch:
            with lock:
                return batch

        with pytest.raises(OptionError, match="cannot be sent to the executors"):
            queries.start(input_query.map_batches(locked).to_kafka(make_topic()))

        def write(batch: pa.RecordBatch) -> None:
            with lock:
                pass

        with pytest.raises(OptionError, match="cannot be sent to the executors"):
            input_query.foreach_batch(write)

    def test_a_port_that_is_in_use(self, queries: Queries, make_topic: MakeTopic) -> None:
        import socket

        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            query = queries.copy(make_topic(), make_topic(), controlPort=port)
            assert f"The driver cannot listen at 127.0.0.1, port {port}" in str(await_failure(query))

    @pytest.mark.parametrize(
        ("path", "message"),
        [("nowhere://x/y", 'No FileSystem for scheme "nowhere"'), ("/proc/version/checkpoint", "/proc/version")],
        ids=["file system", "folder"],
    )
    def test_an_unusable_checkpoint(self, queries: Queries, make_topic: MakeTopic, path: str, message: str) -> None:
        with pytest.raises(OptionError, match=f"Cannot use checkpointLocation {path}: ") as caught:
            queries.copy(make_topic(), make_topic(), checkpointLocation=path)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_the_default_checkpoint_location_of_the_session(self, queries: Queries, make_topic: MakeTopic) -> None:
        with setting(queries.spark, "spark.sql.streaming.checkpointLocation", str(queries.folder)):
            queries.copy(make_topic(), make_topic(), checkpointLocation=None, queryName="named").processAllAvailable()
        assert queries.epochs("commits", "named") == [0]


def test_a_given_port(queries: Queries, make_topic: MakeTopic) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    source, output = make_topic(), make_topic()
    queries.put(source, range(3))
    queries.expect(output, range(3), queries.copy(source, output, controlPort=port))


def test_offsets_are_committed_to_a_group(queries: Queries, make_topic: MakeTopic, bench: Workbench) -> None:
    source, output = make_topic(), make_topic()
    queries.put(source, range(7))
    group = f"shows-{source}"
    input_query = queries.read(subscribe=source, commitGroupId=group)
    query = queries.start(input_query.select("value").to_kafka(output))
    query.processAllAvailable()
    cluster = ClusterClient(parse_client_params({"bootstrap.servers": bench.bootstrap_servers}).connection)
    expected = {TopicPartition(source, 0): 7}
    wait_until(lambda: ConsumerGroup(cluster, group).committed(expected) == expected, "the committed offset")
    query.stop()
    queries.put(source, ["more"])
    input_query = queries.read(subscribe=source, commitGroupId=group, startingOffsets="committed")
    other = make_topic()
    queries.expect(other, ["more"], queries.start(input_query.select("value").to_kafka(other), "another"))


def test_local_properties_are_inherited(queries: Queries, make_topic: MakeTopic) -> None:
    """The job inherits local properties of the thread that started the query, such as the scheduler pool."""
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
