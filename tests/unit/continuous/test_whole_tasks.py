"""Whole tasks of continuous queries on a simulated cluster, with the driver's side of their run."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.continuous import continuous_task
from pyspark_kafka_direct.continuous.continuous_sink import custom_writer_factory
from pyspark_kafka_direct.continuous.continuous_task import TaskPlan, run_task
from pyspark_kafka_direct.continuous.control_socket import ControlAddress
from pyspark_kafka_direct.continuous.epoch_coordinator import EpochCoordinator, RunPlan, RunStart
from pyspark_kafka_direct.continuous.group_offsets import parse_epoch_metadata
from pyspark_kafka_direct.continuous.kafka_writer import KafkaWriterFactory
from pyspark_kafka_direct.continuous.map_function import MapFunction
from pyspark_kafka_direct.errors import DataLossError, OptionError, QueryRunError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.continuous_query import parse_start_options
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.options.security_settings import Secret
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.options.sink_options import parse_sink_options
from pyspark_kafka_direct.payloads.json import json_column
from pyspark_kafka_direct.payloads.json.json_values import JsonDecoder
from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns
from pyspark_kafka_direct.planning.loss_errors import DataLossCause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.simulation.scheduler import Task

    from pyspark_kafka_direct.continuous.continuous_epochs import EpochResult

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = {ONE: 10, TWO: 10}
LENIENT = FetchSettings(fail_on_data_loss=False)
FULL = 8192  # rows, the largest batch of a function


class Sink:
    """A sink of a user that stores positions, and records its calls with their times."""

    def __init__(self, task: TaskCluster) -> None:
        self._task = task
        self.stored: Mapping[TopicPartition, int] = {}
        self.batches: list[Any] = []
        self.flushed: list[Mapping[TopicPartition, int]] = []
        self.flushed_at: list[float] = []
        self.flush_seconds = 0.0
        self.close_error: Exception | None = None
        self.closed_at = 0.0

    def stored_positions(self) -> Mapping[TopicPartition, int]:
        return self.stored

    def write(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def flush(self, positions: Mapping[TopicPartition, int]) -> None:
        self.flushed_at.append(self._task.now)
        self._task.sleep(self.flush_seconds)
        self.flushed.append(dict(positions))

    def close(self) -> None:
        self.closed_at = self._task.now
        self._task.events.append("closed")
        if self.close_error is not None:
            raise self.close_error

    @property
    def row_count(self) -> int:
        return sum(batch.num_rows for batch in self.batches)


class TaskCluster(UnitCluster):
    """Two partitions with ten records each, the driver of a run with one task, and the process of this task."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__({"t": 2})
        for tp in BOTH:
            self.append_each(tp, 10)
        self.start = RunStart(((ONE, TWO),), {ONE: 0, TWO: 5}, 4)
        self.sink = Sink(self)
        self.is_done: Callable[[], bool] = lambda: self.sink.row_count >= 15  # then the user stops the query
        self.epochs: list[EpochResult] = []
        self.run_error: Exception | None = None
        self.events: list[str] = []
        self.info: Any = None
        self.driver = self.environment.process("driver")
        for name in ("begin_task", "end_task"):
            monkeypatch.setattr(continuous_task, name, lambda name=name: self.events.append(name))

    def run_task(
        self,
        function: Callable[[pa.RecordBatch], Any] | None = None,
        *,
        interval: float = 600,
        heartbeat_timeout: float = 60,
        max_rows: int | None = None,
        **changes: Any,
    ) -> None:
        """Run the task until the driver has committed the last epoch, or an error."""
        options = {"checkpointLocation": "memory:/", "epochInterval": interval, "heartbeatTimeout": heartbeat_timeout}
        plan = RunPlan("run", Secret("hush"), 1, lambda _: self.start)
        coordinator = EpochCoordinator(
            plan, parse_start_options(options), self.epochs.append, self.driver.name, self.driver
        )
        run = self.driver.spawn("run", lambda: self._run(coordinator))
        self.driver.spawn("user", lambda: self._stop_when_done(coordinator, run))
        task_plan: dict[str, Any] = {
            "address": ControlAddress(self.driver.name, coordinator.port, plan.run, plan.secret),
            "query_id": "query",
            "connection": self.client().settings,
            "fetch": FetchSettings(max_record_batch_bytes=1 << 20),
            "columns": ("value",),
            "functions": () if function is None else (MapFunction(function, max_rows=max_rows),),
            "max_records_per_second": None,
            "writer_factory": custom_writer_factory(self._open_sink),
            "start_timeout": 60.0,
            "heartbeat_timeout": heartbeat_timeout,
        }
        try:
            run_task(TaskPlan(**{**task_plan, **changes}), 0, 0, self.pool)
        finally:
            while not run.greenlet.dead:
                self.sleep(1)

    @property
    def values(self) -> list[str]:
        return [row["value"].decode() for batch in self.sink.batches for row in batch.to_pylist()]

    @property
    def last(self) -> EpochResult:
        return self.epochs[-1]

    def slow(self, seconds: float) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """Return a function that takes so long for each batch."""

        def function(batch: pa.RecordBatch) -> pa.RecordBatch:
            self.sleep(seconds)
            return batch

        return function

    def _open_sink(self, info: Any) -> Sink:
        self.info = info
        return self.sink

    def _run(self, coordinator: EpochCoordinator) -> None:
        try:
            coordinator.run()
        except QueryRunError as error:
            self.run_error = error
        finally:
            coordinator.close()

    def _stop_when_done(self, coordinator: EpochCoordinator, run: Task) -> None:
        while not run.greenlet.dead and not self.is_done():
            self.driver.sleep(0.01)
        coordinator.stop()


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskCluster]:
    with TaskCluster(monkeypatch) as task:
        yield task


def records(first: int, end: int) -> list[str]:
    return [f"0-{offset}" for offset in range(first, end)]


# Records, functions and epochs.


def test_a_task_reads_its_partitions_until_the_driver_ends_the_run(task: TaskCluster) -> None:
    task.after(5.0, lambda: task.append(ONE, 3))
    task.sink.flush_seconds, task.is_done = 0.25, lambda: task.sink.row_count >= 18
    task.run_task(interval=2)
    assert sorted(task.values) == sorted([*records(0, 13), *records(5, 10)])
    assert {name for batch in task.sink.batches for name in batch.schema.names} == {"value"}
    assert task.sink.flushed == [BOTH, BOTH, {ONE: 13, TWO: 10}]
    assert [(each.epoch, each.rows, each.rows_read, each.offsets) for each in task.epochs] == [
        (4, 15, 15, BOTH),
        (5, 0, 0, BOTH),
        (5, 3, 3, {ONE: 13, TWO: 10}),
    ]
    assert [each.flush_ms for each in task.epochs] == [pytest.approx(250, abs=0.1)] * 3
    assert task.epochs[0].bytes > task.epochs[2].bytes > 0 == task.epochs[1].bytes
    assert (task.info.query_id, task.info.run_id, task.info.task) == ("query", "run", 0)
    assert task.info.partitions == (ONE, TWO)
    assert task.events == ["begin_task", "closed", "end_task"]


def test_an_idle_task_responds_to_the_driver_at_once(task: TaskCluster) -> None:
    """Not when a poll ends, which takes up to a tenth of a second."""
    started, task.is_done = task.now, lambda: task.now > started + 10
    task.run_task(interval=0.77)
    delays = [at - 0.77 * number for number, at in enumerate(task.sink.flushed_at[:-1])]
    assert len(delays) == 12
    assert max(delays) - min(delays) < 0.03


def test_rows_that_gathered_are_sent_when_a_broker_responds(task: TaskCluster) -> None:
    task.cluster.create_topic("out", 1)
    output = TopicPartition("out", 0)
    options = parse_sink_options({"kafka.bootstrap.servers": "broker-1:9092", "topic": "out"}, streaming=True)
    task.fault("Produce", "delay_response", seconds=1.037)
    task.start = replace(task.start, offsets=BOTH)
    for seconds in (1, 1.5):
        task.after(seconds, lambda: task.append(ONE, 1))
    task.is_done = lambda: task.log(output).end == 2
    task.run_task(writer_factory=KafkaWriterFactory.of(options))
    first, second = (request.at for request in task.arrivals("Produce"))
    assert second - first == pytest.approx(1.037, abs=0.02)


@pytest.mark.parametrize("columns", [("value", "offset"), ("offset", "value")])
def test_a_function_gets_the_selected_columns(task: TaskCluster, columns: tuple[str, ...]) -> None:
    seen: list[tuple[tuple[str, ...], int]] = []

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append((tuple(batch.schema.names), batch.num_rows))
        return batch

    functions = (MapFunction(function, max_rows=6), MapFunction(lambda batch: batch, max_rows=4))
    task.run_task(columns=columns, functions=functions)
    assert {names for names, _ in seen} == {columns}
    assert max(rows for _, rows in seen) <= 4
    assert len(task.values) == 15


def test_rows_that_a_function_drops_are_not_written(task: TaskCluster) -> None:
    seen: list[int] = []

    def function(batch: pa.RecordBatch) -> pa.RecordBatch | None:
        seen.append(batch.num_rows)
        return batch.slice(batch.num_rows) if len(seen) % 2 else None

    task.is_done = lambda: sum(seen) == 15
    task.run_task(function)
    assert task.sink.batches == []
    assert (task.last.rows, task.last.rows_read, task.last.offsets) == (0, 15, BOTH)


@pytest.mark.parametrize("result", [3, "rows", [], pa.table({"value": ["x"]})], ids=["number", "text", "list", "table"])
def test_results_that_are_not_batches_are_rejected(task: TaskCluster, result: object) -> None:
    with pytest.raises(OptionError, match=r"The query's function returned a .*\. It must return a pyarrow.RecordBatch"):
        task.run_task(lambda _: result)
    assert task.sink.batches == []


def test_a_backlog_is_written_in_order(task: TaskCluster) -> None:
    task.append(ONE, FULL)
    task.start = replace(task.start, assignment=((ONE,),), offsets={ONE: 10})
    task.is_done = lambda: task.sink.row_count == FULL
    task.run_task()
    sizes = [batch.num_rows for batch in task.sink.batches]
    assert sizes == [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16]
    assert task.values == records(10, 10 + FULL)


def test_epochs_end_while_a_slow_function_has_a_backlog(task: TaskCluster) -> None:
    """The function took 7.4 ms for each of 8,192 rows, so that the epoch timed out after each restart."""

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        task.sleep(0.0074 * batch.num_rows)
        return batch

    task.append(ONE, FULL)
    task.start = replace(task.start, assignment=((ONE,),), offsets={ONE: 10})
    start, task.is_done = task.now, lambda: len(task.epochs) == 3
    task.run_task(function, interval=2)
    assert task.now - start < 12
    assert 10 < task.epochs[0].offsets[ONE] < task.epochs[1].offsets[ONE] < task.last.offsets[ONE] < 2000
    assert task.last.offsets[ONE] - 10 == sum(each.rows_read for each in task.epochs) == task.sink.row_count
    assert [each[ONE] for each in task.sink.flushed] == [each.offsets[ONE] for each in task.epochs]


def test_a_rate_limit_applies_between_the_ends_of_epochs(task: TaskCluster) -> None:
    task.append(ONE, 300)
    start, task.is_done = task.now, lambda: len(task.epochs) == 2
    task.run_task(max_records_per_second=50.0, interval=1)
    assert max(batch.num_rows for batch in task.sink.batches) == 5
    assert 90 < task.sink.row_count <= 5 + 50 * (task.now - start)
    assert task.epochs[0].rows < 60


def test_a_stop_skips_the_remaining_batches(task: TaskCluster) -> None:
    task.append(ONE, 500)
    task.is_done = lambda: task.sink.row_count >= 20
    task.run_task(task.slow(1))
    assert task.sink.row_count < 100
    assert task.sink.row_count == task.last.rows == sum(task.last.offsets.values()) - 5


def test_the_sink_and_the_driver_are_checked_meanwhile_but_not_for_each_batch(
    task: TaskCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[float] = []
    monkeypatch.setattr(
        "pyspark_kafka_direct.continuous.continuous_sink.SinkWriter.run_once", lambda _: checks.append(task.now)
    )
    task.append(ONE, 100)
    task.is_done = lambda: task.sink.row_count == 115
    task.run_task(task.slow(0.002), max_rows=4)
    assert 10 <= len(checks) <= 100
    checks.clear()
    task.start, task.sink = replace(task.start, offsets=task.last.offsets), Sink(task)
    task.append_each(ONE, 100)
    task.is_done = lambda: task.sink.row_count == 100
    task.run_task(lambda batch: batch, max_rows=4)
    assert len(checks) < 10, "the function is fast"


def test_positions_are_past_control_records(task: TaskCluster) -> None:
    for tp in BOTH:
        task.append(tp, 1, producer_id=7)
        task.end_transaction(tp, 7, commit=False)
    task.after(3, lambda: task.append(ONE, 50))
    task.is_done = lambda: task.sink.row_count == 65
    task.run_task(task.slow(0.1), fetch=FetchSettings("read_committed"), interval=1, max_rows=4)
    assert task.last.offsets == {ONE: 62, TWO: 12}
    assert [each.offsets[TWO] for each in task.epochs[1:]] == [12] * (len(task.epochs) - 1)


# Sinks with positions, and planned epochs.


def test_a_sink_that_stores_positions_resumes_there(task: TaskCluster) -> None:
    task.sink.stored = {ONE: 8, TWO: 3, TopicPartition("t", 7): 3}  # the last one is of another task
    task.is_done = lambda: task.sink.row_count == 9
    task.run_task(task.slow(0.1), interval=0.15, max_rows=1)
    assert sorted(task.values) == sorted([*records(8, 10), *records(3, 10)])
    assert task.sink.flushed[-1] == BOTH
    assert min(each[TWO] for each in task.sink.flushed) < task.start.offsets[TWO], "the driver has later offsets"


@pytest.mark.parametrize("stored", [{ONE: 7}, {ONE: 7, TWO: 9}], ids=["one", "both"])
def test_a_planned_epoch_ends_where_it_was_planned(task: TaskCluster, stored: dict[TopicPartition, int]) -> None:
    """The sink of some partitions has stored more than the epoch has."""
    task.start = replace(task.start, offsets={ONE: 2, TWO: 2}, end_offsets={ONE: 6, TWO: 8})
    task.sink.stored, task.is_done = stored, lambda: False
    task.run_task(task.slow(0.1), interval=0.15, max_rows=1)
    read = [] if TWO in stored else records(2, 8)
    assert task.values == read
    assert task.sink.flushed == [{TWO: 8, **stored}], "once, at the end"
    assert [(each.offsets, each.rows) for each in task.epochs] == [({ONE: 6, TWO: 8}, len(read))]


# Failures.


def test_a_failure_is_reported_to_the_driver(task: TaskCluster, caplog: pytest.LogCaptureFixture) -> None:
    task.sink.close_error = OSError("disk")
    with pytest.raises(ZeroDivisionError):
        task.run_task(lambda batch: batch.slice(1 // 0))
    assert "failed with ZeroDivisionError" in str(task.run_error), "not the error of the sink"
    assert (task.events, task.sink.flushed) == (["begin_task", "closed"], [])
    assert "Cannot close the sink." in caplog.text


def test_an_error_of_the_close_is_one_of_the_task(task: TaskCluster) -> None:
    task.sink.close_error = OSError("disk")
    with pytest.raises(OSError, match="disk"):
        task.run_task()
    assert task.events == ["begin_task", "closed"]


@pytest.mark.parametrize("when", ["idle", "in the function", "before a flush"])
def test_a_task_without_a_lease_writes_nothing(task: TaskCluster, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """The driver is suspended."""

    def suspend(_: object = None) -> None:
        task.driver.pause(60)
        task.sleep(6)

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        if when == "in the function":
            suspend()
        return batch

    if when == "idle":
        task.after(10, lambda: task.driver.pause(60))
    if when == "before a flush":
        run_once = "pyspark_kafka_direct.continuous.continuous_sink.SinkWriter.run_once"
        task.after(10, lambda: monkeypatch.setattr(run_once, suspend))
    start = task.now
    task.is_done = lambda: when == "before a flush" and task.now > start + 10
    with pytest.raises(QueryRunError, match="not respond to a heartbeat for 5 s"):
        task.run_task(function, heartbeat_timeout=5)
    assert task.sink.row_count == (0 if when == "in the function" else 15)
    assert task.sink.flushed == []
    assert when != "idle" or 13 < task.sink.closed_at - start < 16


# Data loss.


def test_expired_records_fail_the_task(task: TaskCluster) -> None:
    task.delete_records(ONE, 4)
    with pytest.raises(DataLossError, match=r"^data loss: .* To skip them, set failOnDataLoss=false") as caught:
        task.run_task()
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (*ONE, 0)
    assert isinstance(caught.value.__cause__, DataLossError)


@pytest.mark.parametrize("obstacle", [None, "no-response", "no-topic"])
def test_expired_records_that_may_be_lost_are_skipped(
    task: TaskCluster, caplog: pytest.LogCaptureFixture, obstacle: str | None
) -> None:
    """If the task cannot fetch the bounds of the log after its consumer has, the loss is found again later."""
    task.delete_records(ONE, 4)
    task.is_done = lambda: task.sink.row_count == 11
    if obstacle == "no-response":
        task.fault("ListOffsets", "stall_request", number=2, repeats=50)
        task.after(20, task.network.aimed_faults.clear)
    elif obstacle == "no-topic":
        hide = partial(task.event, "deny_topic", topic="t", seconds=12, error_code=3)
        task.before("ListOffsets", lambda: None, lambda: None, hide)
    task.run_task(fetch=LENIENT)
    assert sorted(task.values) == sorted([*records(4, 10), *records(5, 10)])
    assert (DataLossCause.AGED_OUT, {ONE: 4}) in task.last.skipped_offsets
    (warning,) = [each for each in caplog.messages if each.startswith("data loss: ") and "resumes" in each]
    assert warning.endswith("Reading resumes at offset 4 of t-0 (failOnDataLoss=false)")


class TestLossWhileTheTaskRuns:
    """With ``failOnDataLoss=false``. The driver rejects a position that moved back without a reason."""

    @pytest.mark.parametrize(
        ("loss", "offset", "counted"),
        [
            ("truncated", 6, (DataLossCause.TRUNCATED, 0)),
            ("recreated", 25, (DataLossCause.RECREATED, 0)),
            ("expired", 15, (DataLossCause.AGED_OUT, 5)),
        ],
    )
    def test_reading_resumes(
        self, task: TaskCluster, loss: str, offset: int, counted: tuple[DataLossCause, int]
    ) -> None:
        def lose() -> None:
            if loss == "truncated":
                task.truncate(ONE, 6)
            elif loss == "recreated":
                task.event("recreate_topic", topic="t", partitions=2)
                task.append(ONE, 25)
                task.delete_records(ONE, 25)
            else:
                task.event("withhold_records", topic="t", partition=0, seconds=2)
                task.append(ONE, 5)
                task.delete_records(ONE, 15)

        task.after(3, lose)
        task.after(30, lambda: task.append(ONE, 2))
        task.is_done = lambda: task.sink.row_count == 17
        task.run_task(fetch=LENIENT, interval=1)
        assert task.values[15:] == [f"{task.partition(ONE).epoch}-{each}" for each in (offset, offset + 1)]
        assert task.last.offsets == {ONE: offset + 2, TWO: 0 if loss == "recreated" else 10}
        skipped = [each for epoch in task.epochs for each in epoch.skipped_offsets]
        cause, count = counted
        assert skipped == [(cause, dict.fromkeys(BOTH if loss == "recreated" else [ONE], count))]
        ids = [dict(each.recreated_topic_ids) for each in task.epochs if each.recreated_topic_ids]
        assert ids == ([dict.fromkeys(BOTH, task.topic_id("t"))] if loss == "recreated" else [])

    def test_an_epoch_that_ends_before_the_next_records_has_the_new_position(self, task: TaskCluster) -> None:
        """While the function processes records of another partition, the positions of the consumer do not count."""
        task.after(4.5, lambda: task.truncate(ONE, 6))
        task.after(5, lambda: task.append(TWO, 200))
        task.is_done = lambda: task.sink.row_count == 215
        task.run_task(task.slow(0.1), fetch=LENIENT, interval=2, max_rows=4)
        assert [each.offsets[ONE] for each in task.epochs] == [10, 10, *[6] * (len(task.epochs) - 2)]
        assert 10 < task.epochs[2].offsets[TWO] < 210

    def test_offsets_are_committed_with_the_id_of_the_recreated_topic(self, task: TaskCluster) -> None:
        """Also if the new topic has more records than were read of the old one."""
        task.cluster.create_topic("out", 1)
        output = TopicPartition("out", 0)
        given = {"kafka.bootstrap.servers": "broker-1:9092", "topic": "out", "transactionalIdPrefix": "p"}
        options = parse_sink_options({**given, "deliveryGuarantee": "exactly-once"}, streaming=True)
        acquired = TransactionCoordinator.of(task.cluster).init_producer_id("p.cont.0", 60_000)
        producer = ProducerIdAndEpoch(acquired.producer_id, acquired.producer_epoch)
        ids = dict.fromkeys(BOTH, task.topic_id("t"))
        task.start = replace(task.start, producers=(producer,), topic_ids=ids)
        task.after(3.2, lambda: task.event("recreate_topic", topic="t", partitions=2))
        task.after(3.2, lambda: task.append(ONE, 30))
        task.is_done = lambda: task.log(output).end >= 46  # with the control record of the first transaction
        task.run_task(fetch=LENIENT, writer_factory=KafkaWriterFactory.of(options), interval=2)
        committed = GroupCoordinator.of(task.cluster).committed("p.cont")["t", 0]
        metadata = parse_epoch_metadata(committed.metadata)
        assert metadata is not None
        assert (committed.offset, metadata.topic_id) == (30, task.topic_id("t"))

    def test_offsets_that_are_skipped_in_one_epoch_are_added(self, task: TaskCluster) -> None:
        def expire() -> None:
            task.event("withhold_records", topic="t", partition=0, seconds=2)
            task.append(ONE, 5)
            task.delete_records(ONE, task.log(ONE).end)

        for seconds in (3, 90):
            task.after(seconds, expire)
        task.after(95, lambda: task.append(ONE, 2))
        task.is_done = lambda: task.sink.row_count == 17
        task.run_task(fetch=LENIENT)
        assert task.last.skipped_offsets == ((DataLossCause.AGED_OUT, {ONE: 10}),)

    def test_a_deleted_topic_is_reported_once(self, task: TaskCluster, caplog: pytest.LogCaptureFixture) -> None:
        started = task.now
        task.after(3, lambda: task.event("delete_topic", topic="t"))
        task.after(40, lambda: task.event("create_topic", topic="t", partitions=2))
        task.after(80, lambda: task.event("delete_topic", topic="t"))
        task.is_done = lambda: task.now > started + 120
        task.run_task(fetch=LENIENT, interval=20)
        skipped = [each for epoch in task.epochs for each in epoch.skipped_offsets]
        causes = (DataLossCause.DELETED, DataLossCause.RECREATED, DataLossCause.DELETED)
        assert skipped == [(cause, dict.fromkeys(BOTH, 0)) for cause in causes]
        assert len([each for each in caplog.messages if "Reading continues without" in each]) == 4


# Payloads.


def run_decoder(task: TaskCluster, settings: PayloadSettings, **values: list[bytes]) -> list[list[Any]]:
    """Let a task decode the values of the partitions ``one`` and ``two``, and return what its function receives."""
    for tp, each in zip(BOTH, values.values(), strict=True):
        task.cluster.append(tp, each)
    task.start, seen = replace(task.start, offsets=BOTH), list[list[Any]]()

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.column("value").to_pylist())
        return batch

    schema = pa.schema([("value", pa.struct({"n": pa.int32()}))])
    task.is_done = lambda: bool(task.epochs)
    task.run_task(function, decoded=DecodedColumns(settings, ("value",), schema), interval=2)
    return seen


def test_values_are_decoded_before_the_function(task: TaskCluster, caplog: pytest.LogCaptureFixture) -> None:
    settings = PayloadSettings(value=SidePayload("value", "json"), mode="DROPMALFORMED")
    seen = run_decoder(task, settings, one=[b'{"n":1}', b"{", b'{"n":2}'], two=[b"[]"])
    assert seen == [[{"n": 1}, {"n": 2}]], "a batch whose records are all dropped is not passed on"
    assert (task.epochs[0].offsets, task.epochs[0].rows_read) == ({ONE: 13, TWO: 11}, 4)
    assert task.epochs[0].malformed_records == (({ONE: 1, TWO: 1}, {}),)
    assert "t-0: 1 malformed records were dropped" in caplog.text
    assert "t-1: 1 malformed records were dropped" in caplog.text


def test_values_that_need_too_much_memory_together_are_in_several_batches(
    task: TaskCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_column, "JsonDecoder", partial(JsonDecoder, max_bytes=1))
    settings = PayloadSettings(value=SidePayload("value", "json"))
    values = [b'{"n":%d}' % number for number in range(3)]
    assert run_decoder(task, settings, one=values, two=values) == [[{"n": number}] for number in range(3)] * 2
    assert (task.epochs[0].offsets, task.sink.row_count) == ({ONE: 13, TWO: 13}, 6)


def test_records_whose_schema_cannot_be_used_are_reported_with_the_epoch(
    task: TaskCluster, caplog: pytest.LogCaptureFixture
) -> None:
    avro = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
    settings = PayloadSettings(value=SidePayload("value", "avro", schema=avro, framing="confluent", schema_id=7))
    good, other = b"\0\0\0\0\7\2", b"\0\0\0\0\x08\2"
    run_decoder(task, settings, one=[good, other, other], two=[other])
    assert task.epochs[0].malformed_records == (({}, {ONE: 2, TWO: 1}),)
    (line,) = [each.getMessage() for each in caplog.records if "null" in each.getMessage()]
    assert line.startswith("t, values: 3 values, which may be valid, were read as null (mode=PERMISSIVE)")
