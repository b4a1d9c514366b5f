"""Whole tasks of continuous queries on a simulated cluster, with a fake connection to the driver."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.continuous import continuous_task
from pyspark_kafka_direct.continuous.continuous_task import TaskPlan, run_task
from pyspark_kafka_direct.continuous.control_messages import EpochRequest, StartTask
from pyspark_kafka_direct.continuous.control_socket import ControlAddress
from pyspark_kafka_direct.continuous.map_function import MapFunction
from pyspark_kafka_direct.errors import DataLossError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.options.security_settings import Secret
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from pyspark_kafka_direct.continuous.continuous_epochs import EpochReport

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


class TaskRun(UnitCluster):
    """Two partitions with ten records each, and a task that is both connection and sink of itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__({"t": 2})
        for tp in (ONE, TWO):
            self.append(tp, 10)
        self.start = StartTask(4, {ONE: 0, TWO: 5})
        self.epochs = [(15, EpochRequest(4, stop=True))]  # written rows, and what the driver then requests
        self.stored: Mapping[TopicPartition, int] = {}  # by the sink
        self.written: list[Any] = []
        self.ended_epochs: list[tuple[int, Mapping[TopicPartition, int]]] = []
        self.reports: list[EpochReport] = []
        self.failures: list[BaseException] = []
        self.close_errors: list[Exception] = []
        self.events: list[str] = []
        self.info: Any = None
        self._began = self.now
        self._signal = self.process.wakeup_signal()
        channel: Any = self
        monkeypatch.setattr(continuous_task, "TaskChannel", channel)
        for name in ("begin_task", "end_task"):
            monkeypatch.setattr(continuous_task, name, lambda name=name: self.events.append(name))

    def run_task(self, **changes: Any) -> None:
        plan: dict[str, Any] = {
            "address": ControlAddress("driver", 1, "run", Secret("s")),
            "query_id": "query",
            "connection": self.client().settings,
            "fetch": FetchSettings(max_record_batch_bytes=1 << 20),
            "columns": ("value",),
            "functions": (),
            "max_records_per_second": None,
            "writer_factory": self._open_sink,
            "start_timeout": 60.0,
            "heartbeat_timeout": 60.0,
        }
        run_task(TaskPlan(**{**plan, **changes}), 3, 0, self.environment.pool(self.process))

    @property
    def values(self) -> list[str]:
        return [row["value"].decode() for batch in self.written for row in batch.to_pylist()]

    # The connection to the driver.

    def connect(
        self, address: ControlAddress, task: int, attempt: int, deadline: object
    ) -> AbstractContextManager[Any]:
        assert (address.host, task, attempt) == ("driver", 3, 0)
        return nullcontext(self)

    def begin_lease(self, timeout: float) -> AbstractContextManager[None]:
        return nullcontext()

    def wait_for_start(self) -> StartTask:
        return self.start

    def fileno(self) -> int:
        return self._signal.fileno()

    def check_lease(self) -> None:
        pass

    def receive(self) -> list[EpochRequest]:
        assert self.now < self._began + 60
        if self.epochs and sum(batch.num_rows for batch in self.written) >= self.epochs[0][0]:
            return [self.epochs.pop(0)[1]]
        return []

    def report(self, report: EpochReport, deadline: object) -> None:
        self.reports.append(report)

    def report_failure(self, error: BaseException, deadline: object) -> None:
        self.failures.append(error)

    # The sink.

    def _open_sink(self, info: Any, start: StartTask, pool: object) -> Any:
        self.info = info
        assert start is self.start
        return self

    def stored_positions(self) -> Mapping[TopicPartition, int]:
        return self.stored

    def write(self, batch: pa.RecordBatch) -> None:
        self.written.append(batch)

    def end_epoch(self, epoch: int, positions: Mapping[TopicPartition, int], _: object = None) -> None:
        self.ended_epochs.append((epoch, positions))

    def descriptors(self) -> list[int]:
        return []

    def run_once(self) -> None:
        pass

    def close(self) -> None:
        self.events.append("closed")
        if self.close_errors:
            raise self.close_errors[0]


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskRun]:
    with TaskRun(monkeypatch) as task:
        yield task
        task._signal.close()


def records(first: int, end: int) -> list[str]:
    return [f"0-{offset}" for offset in range(first, end)]


def test_a_task_reads_its_partitions_until_the_driver_ends_the_run(task: TaskRun) -> None:
    task.epochs = [(15, EpochRequest(4, stop=False)), (18, EpochRequest(5, stop=True))]
    task.after(5.0, lambda: task.append(ONE, 3))
    task.run_task()
    assert sorted(task.values) == sorted([*records(0, 13), *records(5, 10)])
    assert {name for batch in task.written for name in batch.schema.names} == {"value"}
    assert task.ended_epochs == [(4, {ONE: 10, TWO: 10}), (5, {ONE: 13, TWO: 10})]
    assert [(each.epoch, each.rows, each.offsets) for each in task.reports] == [
        (4, 15, {ONE: 10, TWO: 10}),
        (5, 3, {ONE: 13, TWO: 10}),
    ]
    assert (task.info.query_id, task.info.run_id, task.info.task) == ("query", "run", 3)
    assert task.info.partitions == (ONE, TWO)
    assert (task.events, task.failures) == (["begin_task", "closed", "end_task"], [])


def test_a_function_gets_the_selected_columns(task: TaskRun) -> None:
    seen: list[tuple[list[str], int]] = []

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append((batch.schema.names, batch.num_rows))
        return batch

    task.run_task(columns=("offset", "value"), functions=(MapFunction(function, max_rows=4),))
    assert {tuple(names) for names, _ in seen} == {("offset", "value")}
    assert max(rows for _, rows in seen) == 4
    assert len(task.values) == 15


def test_values_are_decoded(task: TaskRun) -> None:
    wanted = DecodedColumns(
        PayloadSettings(value=SidePayload("value", "string")), ("value",), pa.schema([("value", pa.string())])
    )
    task.run_task(decoded=wanted)
    assert sorted(row["value"] for batch in task.written for row in batch.to_pylist()) == sorted(
        [*records(0, 10), *records(5, 10)]
    )


def test_a_sink_that_stores_positions_resumes_there(task: TaskRun) -> None:
    other = TopicPartition("t", 7)  # of another task
    task.stored, task.epochs = {ONE: 8, other: 3}, [(7, EpochRequest(4, stop=True))]
    task.run_task()
    assert sorted(task.values) == sorted([*records(8, 10), *records(5, 10)])
    assert task.ended_epochs == [(4, {ONE: 10, TWO: 10})]


def test_a_planned_epoch_ends_where_it_was_planned(task: TaskRun) -> None:
    """The sink of the first partition has stored more than the epoch has."""
    task.start = StartTask(4, {ONE: 2, TWO: 5}, end_offsets={ONE: 6, TWO: 8})
    task.stored, task.epochs = {ONE: 7}, [(3, EpochRequest(4, stop=True))]
    task.run_task()
    assert task.values == records(5, 8)
    assert task.ended_epochs == [(4, {ONE: 7, TWO: 8})]
    assert task.reports[0].offsets == {ONE: 6, TWO: 8}


def test_a_failure_is_reported_to_the_driver(task: TaskRun, caplog: pytest.LogCaptureFixture) -> None:
    task.close_errors = [OSError("disk")]
    with pytest.raises(ZeroDivisionError) as raised:
        task.run_task(functions=(MapFunction(lambda batch: batch.slice(1 // 0)),))
    assert task.failures == [raised.value], "not that of the sink"
    assert task.events == ["begin_task", "closed"]
    assert "Cannot close the sink." in caplog.text


def test_an_error_of_the_close_is_one_of_the_task(task: TaskRun) -> None:
    task.close_errors = [OSError("disk")]
    with pytest.raises(OSError, match="disk"):
        task.run_task()
    assert task.failures == task.close_errors


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_deleted_records_fail_the_task_unless_they_may_be_lost(task: TaskRun, fail_on_data_loss: bool) -> None:
    task.delete_records(ONE, 4)
    task.epochs = [(11, EpochRequest(4, stop=True))]
    if fail_on_data_loss:
        with pytest.raises(DataLossError):
            task.run_task()
    else:
        task.run_task(fetch=FetchSettings(fail_on_data_loss=False))
        assert sorted(task.values) == sorted([*records(4, 10), *records(5, 10)])
        assert [sum(each.values()) for each in task.reports[0].skipped_offsets.values()] == [4]
