"""The loop of a task with a fake consumer, driver and sink."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pyarrow as pa
import pytest

from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.consumer.partition_consumer import PolledBatch
from pyspark_kafka_direct.continuous.batch_size import BatchSize
from pyspark_kafka_direct.continuous.continuous_epochs import EpochReport
from pyspark_kafka_direct.continuous.continuous_task import Losses, TaskLoop
from pyspark_kafka_direct.continuous.control_messages import EpochRequest
from pyspark_kafka_direct.errors import DataLossError, OptionError, QueryRunError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.payloads.payload_decoder import PayloadDecoder
from pyspark_kafka_direct.planning.loss_errors import DataLossCause

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer
    from pyspark_kafka_direct.continuous.continuous_sink import SinkWriter
    from pyspark_kafka_direct.continuous.continuous_task import DataLossHandler
    from pyspark_kafka_direct.continuous.control_socket import TaskChannel

ONE, TWO, THREE = (TopicPartition("t", number) for number in range(3))
STOP = EpochRequest(9, stop=True)


def polled(partition: TopicPartition, *offsets: int) -> PolledBatch:
    values = [b"%d" % offset for offset in offsets]
    return PolledBatch(partition, pa.record_batch({"value": pa.array(values), "offset": pa.array(offsets, pa.int64())}))


class FakeTaskEnvironment(RealSystem):
    """A manual clock, and the consumer, channel, sink and data loss handler of a task."""

    def __init__(self, *polls: Any, epoch_requests: Mapping[int, EpochRequest] | None = None) -> None:
        self.now = 100.0
        self.polls = deque(polls)  # results of poll(), or functions that return them or raise
        self.epoch_requests = dict(epoch_requests or {})  # by the number of the call of receive()
        self.receive_calls = 0
        self.lease_expires_at = math.inf
        self.calls: list[Any] = []  # of sink, data loss handler and driver
        self.waited_for: Collection[int] = ()
        self.positions: dict[TopicPartition, int] = dict.fromkeys((ONE, TWO, THREE), 0)
        self.loss = Losses()  # at the next error
        self.losses = Losses()  # that are not reported
        self.reported_topic_ids: list[Mapping[TopicPartition, UUID] | None] = []

    def monotonic(self) -> float:
        return self.now

    # The consumer.
    def poll(self, seconds: float, wake: Collection[int] = ()) -> list[PolledBatch]:
        self.waited_for = wake
        if not self.polls:
            self.now += seconds
            return []
        found = self.polls.popleft()
        if callable(found):
            found = found()
        for partition, rows in found:
            self.positions[partition] = rows.column("offset")[-1].as_py() + 1
        return cast("list[PolledBatch]", found)

    # The channel.
    def fileno(self) -> int:
        return 7

    def receive(self) -> list[EpochRequest]:
        self.receive_calls += 1
        request = self.epoch_requests.pop(self.receive_calls, None)
        if request is None and not self.polls and not self.epoch_requests:
            request = STOP
        return [] if request is None else [request]

    def check_lease(self) -> None:
        if self.now >= self.lease_expires_at:
            raise QueryRunError("the lease is over")

    def report(self, report: EpochReport, deadline: Deadline) -> None:
        assert deadline.system is self
        self.calls.append(report)

    # The sink.
    def stored_positions(self) -> Mapping[TopicPartition, int]:
        return {}

    def write(self, batch: pa.RecordBatch) -> None:
        self.calls.append(batch)

    def end_epoch(
        self,
        epoch: int,
        positions: Mapping[TopicPartition, int],
        recreated_topic_ids: Mapping[TopicPartition, UUID] | None = None,
    ) -> None:
        self.now += 0.25
        self.calls.append((epoch, positions))
        self.reported_topic_ids.append(recreated_topic_ids)

    def descriptors(self) -> Collection[int]:
        return (8, 9)

    def run_once(self) -> None:
        self.calls.append("run_once")

    def close(self) -> None:
        raise AssertionError("the caller closes the sink")

    # The data loss handler.
    def handle(self, error: Exception) -> None:
        self.calls.append(error)
        self.losses = self.loss
        self.positions.update(self.loss.reset_positions)

    def take_losses(self) -> Losses:
        losses, self.losses = self.losses, Losses()
        return losses

    def run_loop(
        self,
        function: Callable[[pa.RecordBatch], Any] | None = None,
        columns: Collection[str] = ("value",),
        heartbeat_timeout: float = 60.0,
        end_offsets: Mapping[TopicPartition, int] | None = None,
        batch_size: BatchSize | None = None,
        decoder: PayloadDecoder | None = None,
    ) -> None:
        TaskLoop(
            cast("PartitionConsumer", self),
            cast("TaskChannel", self),
            cast("SinkWriter", self),
            function=function,
            columns=tuple(columns),
            data_loss_handler=cast("DataLossHandler", self),
            heartbeat_timeout=heartbeat_timeout,
            system=self,
            end_offsets=end_offsets or {},
            batch_size=batch_size,
            decoder=decoder,
        ).run()

    @property
    def reports(self) -> list[EpochReport]:
        return [each for each in self.calls if isinstance(each, EpochReport)]

    @property
    def written(self) -> list[Any]:
        return [each.to_pydict() for each in self.calls if isinstance(each, pa.RecordBatch)]


def slow_function(environment: FakeTaskEnvironment, seconds: float) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        environment.now += seconds
        return batch

    return function


def test_it_waits_for_records_the_driver_and_the_sink() -> None:
    environment = FakeTaskEnvironment()
    environment.run_loop()
    assert set(environment.waited_for) == {7, 8, 9}


@pytest.mark.parametrize("columns", [("value",), ("value", "offset"), ("offset", "value")])
def test_rows_have_the_selected_columns(columns: tuple[str, ...]) -> None:
    environment = FakeTaskEnvironment([polled(ONE, 3, 4)])
    environment.run_loop(columns=columns)
    (written,) = environment.written
    assert written == {"value": [b"3", b"4"], "offset": [3, 4]} if "offset" in columns else {"value": [b"3", b"4"]}


def test_a_planned_epoch_is_read_to_its_end_and_flushed_once() -> None:
    environment = FakeTaskEnvironment(
        [polled(ONE, 0, 1)], [polled(ONE, 2, 4), polled(TWO, 7)], epoch_requests={1: EpochRequest(9, stop=False)}
    )
    environment.run_loop(end_offsets={ONE: 3, TWO: 5, THREE: 0})
    assert environment.written == [{"value": [b"0", b"1"]}, {"value": [b"2"]}]
    assert [each.offsets for each in environment.reports] == [
        {ONE: 2, TWO: 0, THREE: 0},
        {ONE: 3, TWO: 5, THREE: 0},
    ]
    assert [each for each in environment.calls if isinstance(each, tuple)] == [(9, {ONE: 3, TWO: 5, THREE: 0})]


def test_an_epoch_is_flushed_and_then_reported() -> None:
    environment = FakeTaskEnvironment(
        [polled(ONE, 0, 1), polled(TWO, 5)], [polled(ONE, 2)], epoch_requests={1: EpochRequest(4, stop=False)}
    )
    environment.run_loop(function=lambda batch: None if batch.num_rows == 1 else batch)
    first = {ONE: 2, TWO: 6, THREE: 0}
    sizes = [polled(ONE, 0, 1).rows.nbytes, polled(ONE, 2).rows.nbytes]  # for parts of a batch, too
    assert environment.calls[1:4] == [
        "run_once",
        (4, first),
        EpochReport(4, first, 2, sizes[0] + sizes[1], pytest.approx(250.0), 3, {}),  # type: ignore[arg-type]
    ]
    flush_ms: Any = pytest.approx(250.0)
    assert environment.reports[1] == EpochReport(9, {ONE: 3, TWO: 6, THREE: 0}, 0, sizes[1], flush_ms, 1, {})
    assert environment.polls == deque()


def test_a_request_between_the_batches_of_a_poll() -> None:
    """The report has what is written so far, not everything that the poll returned."""
    batches = [polled(ONE, 0, 1), polled(TWO, 0), polled(ONE, 2), polled(THREE, 0)]
    environment = FakeTaskEnvironment(batches, epoch_requests={2: EpochRequest(4, stop=False), 4: STOP})
    environment.run_loop(function=slow_function(environment, 0.01))
    assert [dict(each.offsets) for each in environment.reports] == [
        {ONE: 2, TWO: 1, THREE: 0},
        {ONE: 3, TWO: 1, THREE: 1},
    ]
    assert [each.rows for each in environment.reports] == [3, 2]


def test_a_request_while_a_slow_function_has_a_backlog() -> None:
    """The function took 7.4 ms for each of 8,192 rows, so that the epoch timed out after each restart."""
    environment = FakeTaskEnvironment([polled(ONE, *range(8192))], epoch_requests={2: EpochRequest(4, stop=False)})

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        environment.now += 0.0074 * batch.num_rows
        return batch

    environment.run_loop(function=function)
    first, last = environment.reports
    assert 0 < first.offsets[ONE] < last.offsets[ONE] < 1000
    assert (first.rows_read, last.rows_read) == (first.offsets[ONE], last.offsets[ONE] - first.offsets[ONE])
    assert environment.now - 100 < 5


def test_a_backlog_is_written_in_order() -> None:
    environment = FakeTaskEnvironment([polled(ONE, *range(8192))])
    environment.run_loop()
    sizes = [len(each["value"]) for each in environment.written]
    assert sizes == [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16]
    assert [row for each in environment.written for row in each["value"]] == [b"%d" % row for row in range(8192)]
    assert environment.reports[0].offsets[ONE] == 8192


def test_a_rate_limit_applies_between_the_ends_of_epochs() -> None:
    environment = FakeTaskEnvironment([polled(ONE, *range(100))], epoch_requests={15: EpochRequest(4, stop=False)})

    def wait_ready(to_read: Collection[int], to_write: Collection[int], seconds: float) -> set[int]:
        assert set(to_read) == {7, 8, 9}
        environment.now += seconds
        return set()

    environment.wait_ready = wait_ready  # type: ignore[method-assign]
    environment.run_loop(batch_size=BatchSize(8192, 50.0))
    first, last = environment.reports
    assert 0 < first.offsets[ONE] < last.offsets[ONE]
    assert max(len(each["value"]) for each in environment.written) == 5
    assert last.offsets[ONE] <= 5 + 50.0 * (environment.now - 100)


def test_a_fast_function_is_not_interrupted_by_checks() -> None:
    environment = FakeTaskEnvironment([polled(ONE, number) for number in range(100)])
    environment.run_loop()
    assert environment.receive_calls == 1
    assert environment.calls.count("run_once") == 1


def test_the_sink_runs_while_the_function_is_slow() -> None:
    environment = FakeTaskEnvironment([polled(ONE, number) for number in range(10)], epoch_requests={11: STOP})
    environment.run_loop(function=slow_function(environment, 0.002))
    assert environment.calls.count("run_once") >= 10


def test_a_stop_request_skips_the_remaining_batches() -> None:
    environment = FakeTaskEnvironment([polled(ONE, 0), polled(ONE, 1), polled(ONE, 2)], epoch_requests={1: STOP})
    environment.run_loop(function=slow_function(environment, 0.01))
    (report,) = environment.reports
    assert report.offsets == {ONE: 1, TWO: 0, THREE: 0}
    assert environment.written == [{"value": [b"0"]}]


def test_positions_move_without_rows() -> None:
    environment = FakeTaskEnvironment()

    def control_records() -> list[PolledBatch]:
        environment.positions[TWO] = 17
        return []

    environment.polls.append(control_records)
    environment.run_loop()
    assert environment.reports[-1].offsets == {ONE: 0, TWO: 17, THREE: 0}


def test_positions_do_not_move_back_before_skipped_records() -> None:
    environment = FakeTaskEnvironment(epoch_requests={1: EpochRequest(4, stop=False), 3: EpochRequest(5, stop=False)})

    def control_records() -> list[PolledBatch]:
        environment.positions[TWO] = 17
        return []

    environment.polls.extend([control_records, [polled(ONE, 0), polled(ONE, 1), polled(TWO, 20)]])
    environment.run_loop(function=slow_function(environment, 0.01))
    assert [each.offsets[TWO] for each in environment.reports] == [17, 17, 21]


def test_a_loss_moves_positions_and_is_reported() -> None:
    environment = FakeTaskEnvironment([polled(ONE, 0, 1, 2)], epoch_requests={1: EpochRequest(4, stop=False)})

    def lose_records() -> list[PolledBatch]:
        raise error

    error = DataLossError("lost")
    environment.polls.extend([lose_records, [polled(ONE, 0), polled(TWO, 0)]])
    environment.loss = Losses({ONE: 0}, {ONE: UUID(int=7)}, {DataLossCause.AGED_OUT: {ONE: 4}})
    environment.run_loop()
    assert error in environment.calls
    assert [dict(each.offsets) for each in environment.reports] == [
        {ONE: 3, TWO: 0, THREE: 0},
        {ONE: 1, TWO: 1, THREE: 0},
    ]
    assert [each.reset_positions for each in environment.reports] == [{}, {ONE: 0}]
    assert [each.recreated_topic_ids for each in environment.reports] == [{}, {ONE: UUID(int=7)}]
    assert [each.skipped_offsets for each in environment.reports] == [{}, {DataLossCause.AGED_OUT: {ONE: 4}}]
    assert environment.reported_topic_ids == [{}, {ONE: UUID(int=7)}], "the sink receives them, too"


def test_a_request_after_a_loss_reports_the_new_position() -> None:
    environment = FakeTaskEnvironment([polled(ONE, 50)], epoch_requests={3: EpochRequest(4, stop=False)})

    def lose_records() -> list[PolledBatch]:
        raise DataLossError("lost")

    environment.polls.extend([lose_records, [polled(TWO, 0), polled(ONE, 3)]])
    environment.loss = Losses({ONE: 3})
    environment.run_loop(function=slow_function(environment, 0.01))
    assert environment.reports[0].offsets == {ONE: 3, TWO: 1, THREE: 0}


def test_a_task_without_a_lease_writes_nothing() -> None:
    environment = FakeTaskEnvironment([polled(ONE, 0)], epoch_requests={1: STOP})
    environment.lease_expires_at = 105.0
    with pytest.raises(QueryRunError, match="the lease is over"):
        environment.run_loop(function=slow_function(environment, 6))
    assert not [each for each in environment.calls if isinstance(each, pa.RecordBatch | EpochReport)]


def test_a_task_without_a_lease_does_not_flush() -> None:
    environment = FakeTaskEnvironment([polled(ONE, 0)], epoch_requests={1: STOP})

    def run_once() -> None:
        environment.lease_expires_at = environment.now

    environment.run_once = run_once  # type: ignore[method-assign]
    with pytest.raises(QueryRunError, match="the lease is over"):
        environment.run_loop()
    assert environment.reports == []


def test_an_idle_task_ends_with_its_lease() -> None:
    environment = FakeTaskEnvironment(epoch_requests={10_000: STOP})
    environment.lease_expires_at = 105.0
    with pytest.raises(QueryRunError, match="the lease is over"):
        environment.run_loop()
    assert environment.now == pytest.approx(105.1, abs=0.15)


@pytest.mark.parametrize("result", [3, "rows", [], pa.table({"value": ["x"]})], ids=["number", "text", "list", "table"])
def test_results_that_are_not_batches_are_rejected(result: object) -> None:
    environment = FakeTaskEnvironment([polled(ONE, 0)])
    with pytest.raises(OptionError, match=r"The query's function returned a .*\. It must return a pyarrow.RecordBatch"):
        environment.run_loop(function=lambda _: result)
    assert environment.written == []


def test_empty_batches_are_not_written() -> None:
    environment = FakeTaskEnvironment([polled(ONE, 0)])
    environment.run_loop(function=lambda batch: batch.slice(1))
    assert environment.written == []
    assert (environment.reports[0].rows, environment.reports[0].rows_read, environment.reports[0].offsets[ONE]) == (
        0,
        1,
        1,
    )


def test_an_error_of_the_function_ends_the_task() -> None:
    environment = FakeTaskEnvironment([polled(ONE, 0)])
    with pytest.raises(ZeroDivisionError):
        environment.run_loop(function=lambda batch: batch.slice(1 // 0))
    assert environment.reports == []


def test_values_are_decoded_before_the_function(caplog: pytest.LogCaptureFixture) -> None:
    settings = PayloadSettings(value=SidePayload("value", "json"), mode="DROPMALFORMED")
    decoder = PayloadDecoder(settings, ("value",), pa.schema({"value": pa.struct({"n": pa.int32()})}))

    def records(partition: TopicPartition, first_offset: int, *values: bytes) -> PolledBatch:
        offsets = pa.array(range(first_offset, first_offset + len(values)), pa.int64())
        return PolledBatch(partition, pa.record_batch({"value": pa.array(values), "offset": offsets}))

    environment = FakeTaskEnvironment(
        [records(ONE, 0, b'{"n":1}', b"{", b'{"n":2}'), records(TWO, 5, b"[]")], [records(ONE, 3, b'{"n":3}')]
    )
    seen: list[int] = []

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.num_rows)
        return batch

    environment.run_loop(function, decoder=decoder)
    assert seen == [2, 1], "a batch whose records are all dropped is not passed on"
    assert [row["value"] for row in environment.written] == [[{"n": 1}, {"n": 2}], [{"n": 3}]]
    (report,) = environment.reports
    assert (report.offsets[ONE], report.offsets[TWO]) == (4, 6)
    assert report.malformed_records == {ONE: 1, TWO: 1}
    assert "t-0: 1 malformed records were dropped" in caplog.text
    assert "t-1: 1 malformed records were dropped" in caplog.text
    assert report.schema_errors == {}


def test_records_whose_schema_cannot_be_used_are_reported_with_the_epoch(caplog: pytest.LogCaptureFixture) -> None:
    avro = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
    settings = PayloadSettings(value=SidePayload("value", "avro", schema=avro, framing="confluent", schema_id=7))
    decoder = PayloadDecoder(settings, ("value",), pa.schema({"value": pa.struct({"n": pa.int32()})}))
    good, other = b"\0\0\0\0\7\2", b"\0\0\0\0\x08\2"
    batches = [
        PolledBatch(partition, pa.record_batch({"value": pa.array(values), "offset": pa.array(range(len(values)))}))
        for partition, values in ((ONE, [good, other, other]), (TWO, [other]))
    ]
    environment = FakeTaskEnvironment(batches)
    environment.run_loop(lambda batch: batch, decoder=decoder)
    (report,) = environment.reports
    assert (report.malformed_records, report.schema_errors) == ({}, {ONE: 2, TWO: 1})
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith("t, values: 3 values, which may be valid, were read as null (mode=PERMISSIVE)")
