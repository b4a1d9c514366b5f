"""The task of a continuous query, with real brokers and a real coordinator."""

from __future__ import annotations

import logging
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.integration.continuous.threaded_runs import TIMEOUT, ThreadedRun, to_kafka
from tests.integration.open_transactions import new_transactional_producer, write_open_transaction
from tests.integration.read_back import consume, values
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.continuous import continuous_task
from pyspark_kafka_direct.continuous.continuous_sink import custom_writer_factory, function_writer_factory
from pyspark_kafka_direct.continuous.map_function import MapFunction
from pyspark_kafka_direct.errors import ColumnError, DataLossError, OptionError, QueryRunError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.continuous.continuous_sink import TaskInfo


class RecordingSink:
    """A sink that records its calls: the values of ``write``, the positions of ``flush``, and ``close``."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.calls.append(batch.column("value").to_pylist())

    def flush(self, positions: Mapping[TopicPartition, int]) -> None:
        self.calls.append(dict(positions))

    def close(self) -> None:
        self.calls.append("closed")

    @property
    def values(self) -> list[bytes]:
        return [value for call in self.calls if isinstance(call, list) for value in call]


def offsets_of(topic: str, *offsets: int) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for partition, offset in enumerate(offsets)}


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def sorted_strings(found: list[bytes]) -> list[str]:
    return sorted(value.decode() for value in found)


class TestReadingAndWriting:
    def test_existing_and_new_records_are_written(self, bench: Workbench) -> None:
        source, target = bench.make_topic(partitions=3), bench.make_topic(partitions=2)
        bench.write(source, numbers(0, 500), partition=0)
        bench.write(source, numbers(500, 100), partition=2)
        with ThreadedRun(bench, offsets_of(source, 0, 0, 90), to_kafka(bench, target), tasks=2).start() as run:
            run.until_at(offsets_of(source, 500, 0, 100))
            assert len(values(bench.bootstrap_servers, target)) == 510  # acknowledged before the report
            bench.write(source, numbers(1000, 50), partition=1)
            run.until_at(offsets_of(source, 500, 50, 100))
            last = run.stop()
        assert values(bench.bootstrap_servers, target) == sorted_strings(
            [*numbers(0, 500), *numbers(590, 10), *numbers(1000, 50)]
        )
        assert (last.last, last.rows, last.offsets) == (True, 0, offsets_of(source, 500, 50, 100))
        assert sum(each.rows for each in run.epochs) == sum(each.rows_read for each in run.epochs) == 560
        assert sum(each.bytes for each in run.epochs) > 560

    def test_the_function_may_change_columns_and_drop_records(self, bench: Workbench) -> None:
        """The names and types of columns may change from call to call, and any record may be dropped."""
        source, target, other = bench.make_topic(), bench.make_topic(), bench.make_topic()
        calls: list[list[str]] = []

        def function(batch: pa.RecordBatch) -> pa.RecordBatch | None:
            calls.append(batch.schema.names)
            found = [value.decode() for value in batch.column("value").to_pylist() if int(value) % 2]
            topics = pa.array([target if int(value) % 3 else other for value in found], pa.large_string())
            if len(calls) % 2:
                return pa.record_batch({"topic": topics, "value": pa.array(found), "offset": pa.array(found)})
            kept = pa.array([value.encode() for value in found], pa.large_binary())
            return pa.record_batch({"more": pa.nulls(len(kept)), "value": kept, "topic": topics})

        with ThreadedRun(
            bench, offsets_of(source, 0), to_kafka(bench, None), function=function, columns=("value",)
        ).start() as run:
            for first in range(0, 40, 10):
                bench.write(source, numbers(first, 10))
                run.until_at(offsets_of(source, first + 10))
            run.stop()
        assert {tuple(names) for names in calls} == {("value",)}
        assert len(calls) >= 4
        odd = [number for number in range(40) if number % 2]
        assert values(bench.bootstrap_servers, target) == sorted(str(each) for each in odd if each % 3)
        assert values(bench.bootstrap_servers, other) == sorted(str(each) for each in odd if not each % 3)
        assert (sum(each.rows for each in run.epochs), sum(each.rows_read for each in run.epochs)) == (20, 40)

    @pytest.mark.parametrize("dropped", [lambda batch: None, lambda batch: batch.slice(0, 0)], ids=["None", "no rows"])
    def test_positions_move_although_all_records_are_dropped(
        self, bench: Workbench, dropped: Callable[[pa.RecordBatch], pa.RecordBatch | None]
    ) -> None:
        source, sink = bench.make_topic(), RecordingSink()
        bench.write(source, numbers(0, 20))
        with ThreadedRun(
            bench, offsets_of(source, 0), custom_writer_factory(lambda _: sink), function=dropped
        ).start() as run:
            run.until_at(offsets_of(source, 20))
            run.stop()
        assert sink.values == []
        assert (sum(each.rows for each in run.epochs), sum(each.rows_read for each in run.epochs)) == (0, 20)

    def test_all_columns_of_a_record(self, bench: Workbench) -> None:
        """Keys, headers, timestamps and partitions are preserved; the option ``topic`` overrides the column."""
        source, target = bench.make_topic(partitions=2), bench.make_topic(partitions=2)
        producer = bench.producer()
        for number in range(4):
            headers = [("h", b"%d" % number)] if number % 2 else None
            producer.produce(
                source, b"v%d" % number, b"k", number % 2, timestamp=1_700_000_000_000 + number, headers=headers
            )
        producer.flush(300)
        columns = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
        sink = to_kafka(bench, target, stampBatch="true")
        with ThreadedRun(bench, offsets_of(source, 0, 0), sink, columns=columns).start() as run:
            run.until_at(offsets_of(source, 2, 2))
            run.stop()
        found = consume(bench.bootstrap_servers, target)
        assert [(each.partition, each.key, each.value, each.timestamp - 1_700_000_000_000) for each in found] == [
            (0, b"k", b"v0", 0),
            (0, b"k", b"v2", 2),
            (1, b"k", b"v1", 1),
            (1, b"k", b"v3", 3),
        ]
        assert [dict(each.headers).get("h") for each in found] == [None, None, b"1", b"3"]
        assert {dict(each.headers)["spark.query.id"] for each in found} == {b"query-1"}
        # The number of an epoch without records is used again, but the records that follow have the next number.
        numbers = {number for each in run.epochs if each.rows for number in (each.epoch, each.epoch + 1)}
        assert {int(dict(each.headers)["spark.batch.id"] or b"") for each in found} <= numbers

    def test_control_records_and_aborted_records_are_skipped(self, bench: Workbench) -> None:
        source, sink = bench.make_topic(), RecordingSink()
        producer = new_transactional_producer(bench, source)
        write_open_transaction(producer, source, numbers(0, 3))
        producer.commit_transaction(600)
        write_open_transaction(producer, source, numbers(3, 3))
        producer.abort_transaction(600)
        committed = {"isolation_level": "read_committed"}
        with ThreadedRun(
            bench, offsets_of(source, 0), custom_writer_factory(lambda _: sink), kafka=committed
        ).start() as run:
            run.until_at(offsets_of(source, 8))
            write_open_transaction(producer, source, numbers(6, 3))
            time.sleep(0.3)
            assert run.positions == offsets_of(source, 8)  # the transaction is open
            producer.commit_transaction(600)
            run.until_at(offsets_of(source, 12))
            run.stop()
        assert sink.values == [*numbers(0, 3), *numbers(6, 3)]

    def test_offset_gaps_of_compaction(self, bench: Workbench) -> None:
        source, sink = (
            bench.make_topic(cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01),
            RecordingSink(),
        )
        producer = bench.producer()
        for number in range(40):
            producer.produce(source, b"%d" % number, b"key", 0)
            producer.flush(300)
        time.sleep(0.2)
        producer.produce(source, b"last", b"other", 0)
        producer.flush(300)

        def compacted() -> bool:
            return len(consume(bench.bootstrap_servers, source)) < 41

        wait_until(compacted, "compaction")
        with ThreadedRun(bench, offsets_of(source, 0), custom_writer_factory(lambda _: sink)).start() as run:
            run.until_at(offsets_of(source, 41))
            run.stop()
        assert sink.values[-1] == b"last"
        assert len(sink.values) < 41


class TestEpochRequests:
    def test_an_idle_task_responds_at_once(self, bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
        """A wait for records ends when a request arrives, every 5 ms; without a request it takes an hour."""
        monkeypatch.setattr(continuous_task, "_MAX_POLL_SECONDS", 3600.0)
        source = bench.make_topic()
        with ThreadedRun(bench, offsets_of(source, 0), to_kafka(bench, source), interval=0.005).start() as run:
            run.until(lambda: len(run.epochs) > 3)
            first = len(run.epochs)
            run.until(lambda: len(run.epochs) >= first + 100)
            assert run.failures == {}

    def test_requests_under_load(self, bench: Workbench) -> None:
        """A poll returns a batch of each partition, and the function is slow. A request waits for one call."""
        source, sink = bench.make_topic(partitions=30), RecordingSink()
        for partition in range(30):
            bench.write(source, numbers(0, 2), partition=partition)

        def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
            time.sleep(0.05)
            return batch

        with ThreadedRun(
            bench, offsets_of(source, *[0] * 30), custom_writer_factory(lambda _: sink), function=slow
        ).start() as run:
            run.until_at(offsets_of(source, *[2] * 30))
            run.stop()
        moving = [each for each in run.epochs if each.rows]
        assert len(moving) >= 10
        assert max(each.rows for each in moving) <= 8
        assert len(sink.values) == 60
        for before, after in zip(run.epochs, run.epochs[1:], strict=False):
            moved = sum(after.offsets.values()) - sum(before.offsets.values())
            assert moved == after.rows

    def test_rows_are_flushed_before_they_are_reported(self, bench: Workbench) -> None:
        source, sink = bench.make_topic(), RecordingSink()
        with ThreadedRun(
            bench, offsets_of(source, 0), custom_writer_factory(lambda _: sink), interval=0.01
        ).start() as run:
            for number in range(30):
                bench.write(source, numbers(number, 1))
            run.until_at(offsets_of(source, 30))
            run.stop()
        assert sink.calls[-2:] == [run.epochs[-1].offsets, "closed"]
        written, epochs = 0, iter(run.epochs)
        for call in sink.calls[:-1]:
            if isinstance(call, list):
                written += len(call)
            else:
                epoch = next(epochs)
                assert epoch.offsets == call == offsets_of(source, written)

    def test_a_silent_driver_is_considered_dead(self, bench: Workbench) -> None:
        source = bench.make_topic()
        with ThreadedRun(bench, offsets_of(source, 0), to_kafka(bench, source), interval=600).start_driver() as run:
            run.coordinator._handle_message = lambda *_: None  # type: ignore[method-assign]
            run.start_task(0, heartbeat_timeout=0.3).join(TIMEOUT)
            assert isinstance(run.failures[0], QueryRunError)
            assert "The query's driver did not respond to a heartbeat for 0.3 s" in str(run.failures[0])

    def test_a_driver_that_closes_the_connection(self, bench: Workbench) -> None:
        source, sink = bench.make_topic(), RecordingSink()
        with ThreadedRun(
            bench, offsets_of(source, 0), custom_writer_factory(lambda _: sink), interval=600
        ).start() as run:
            run.until(lambda: run.coordinator.started)
            aborted_at = time.monotonic()
            run.coordinator.abort(KeyError("the driver crashes"))
            run.join()
            assert time.monotonic() - aborted_at < 120  # the heartbeat timeout is longer
        assert "closed the connection" in str(run.failures[0])
        assert sink.calls in ([], ["closed"])  # depends on whether the sink was created

    def test_a_second_attempt_ends_the_run(self, bench: Workbench) -> None:
        source = bench.make_topic()
        with ThreadedRun(bench, offsets_of(source, 0), to_kafka(bench, source)).start_driver() as run:
            run.start_task(0, attempt=1)
            assert "attempt 1" in str(run.failure(QueryRunError))


def block_until(released: threading.Event) -> Any:
    def wait(_: object) -> None:
        released.wait(TIMEOUT)

    return wait


def failing(error: Exception) -> Any:
    def fail(*_: object) -> Any:
        raise error

    return fail


class TestFailures:
    def test_in_the_function(self, bench: Workbench) -> None:
        source, sink = bench.make_topic(), RecordingSink()
        bench.write(source, numbers(0, 5))

        def divide(batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch.slice(1 // (batch.num_rows - 5))

        with ThreadedRun(
            bench, offsets_of(source, 0), custom_writer_factory(lambda _: sink), function=divide
        ).start() as run:
            error = run.failure(QueryRunError)
            run.join()
        assert error.cause_class == "ZeroDivisionError"
        assert "in divide\n    return batch.slice(1 // (batch.num_rows - 5))" in str(error)
        assert isinstance(run.failures[0], ZeroDivisionError)
        assert sink.calls[-1] == "closed"
        assert not run.epochs or run.positions == offsets_of(source, 0)

    @pytest.mark.parametrize("method", ["write", "flush", "close"])
    def test_in_the_sink(self, bench: Workbench, method: str) -> None:
        source, sink = bench.make_topic(), RecordingSink()
        bench.write(source, numbers(0, 5))
        setattr(sink, method, failing(OSError(f"no {method}")))
        with ThreadedRun(bench, offsets_of(source, 0), custom_writer_factory(lambda _: sink)).start() as run:
            if method == "close":
                run.until_at(offsets_of(source, 5))
                run.coordinator.stop()
            else:
                assert f"failed with OSError: no {method}" in str(run.failure(QueryRunError))
            run.join()
            assert str(run.failures[0]) == f"no {method}"

    def test_an_error_of_close_does_not_hide_an_earlier_error(self, bench: Workbench) -> None:
        source, sink = bench.make_topic(), RecordingSink()
        bench.write(source, numbers(0, 5))
        sink.write = failing(OSError("first"))  # type: ignore[method-assign]
        sink.close = failing(OSError("second"))  # type: ignore[method-assign]
        with ThreadedRun(bench, offsets_of(source, 0), custom_writer_factory(lambda _: sink)).start() as run:
            assert "OSError: first" in str(run.failure(QueryRunError))

    @pytest.mark.parametrize("result", [1, [], pa.table({"value": ["x"]})], ids=["number", "list", "table"])
    def test_a_function_result_that_is_not_a_batch(self, bench: Workbench, result: object) -> None:
        source = bench.make_topic()
        bench.write(source, numbers(0, 5))
        with ThreadedRun(
            bench, offsets_of(source, 0), to_kafka(bench, source), function=lambda _: result
        ).start() as run:
            error = run.failure(QueryRunError)
            run.join()
        assert error.cause_class == "OptionError"
        assert "It must return a pyarrow.RecordBatch, or None" in str(error)
        assert isinstance(run.failures[0], OptionError)

    def test_missing_columns(self, bench: Workbench) -> None:
        source, target = bench.make_topic(), bench.make_topic()
        bench.write(source, numbers(0, 5))
        with ThreadedRun(bench, offsets_of(source, 0), to_kafka(bench, target), columns=("key",)).start() as run:
            assert "Required attribute 'value' not found" in str(run.failure(QueryRunError))
            run.join()
        assert isinstance(run.failures[0], ColumnError)

    def test_a_topic_that_does_not_exist(self, bench: Workbench) -> None:
        source = bench.make_topic()
        bench.write(source, numbers(0, 5))
        with ThreadedRun(bench, offsets_of(source, 0), to_kafka(bench, "missing-topic")).start() as run:
            assert "Topic 'missing-topic' does not exist" in str(run.failure(QueryRunError))

    def test_a_sink_that_hangs(self, bench: Workbench) -> None:
        source, sink, released = bench.make_topic(), RecordingSink(), threading.Event()
        sink.flush = block_until(released)  # type: ignore[method-assign]
        with ThreadedRun(
            bench, offsets_of(source, 0), custom_writer_factory(lambda _: sink), report=0.3
        ).start() as run:
            assert "did not report epoch 0 within 0.3 s: task 0" in str(run.failure(QueryRunError))
            released.set()
            run.join()
        assert "closed the connection" in str(run.failures[0])
        assert sink.calls == ["closed"]

    def test_a_process_that_is_killed(self, bench: Workbench, tmp_path: Path) -> None:
        source, target = bench.make_topic(), bench.make_topic()
        bench.write(source, numbers(0, 100))
        with ThreadedRun(
            bench, offsets_of(source, 0), to_kafka(bench, target), function=lambda batch: batch
        ).start_driver() as run:
            process = run.start_process(0, tmp_path)
            try:
                run.until_at(offsets_of(source, 100))
                process.send_signal(signal.SIGKILL)
                killed_at = time.monotonic()
                assert "was lost: its process ended" in str(run.failure(QueryRunError))
                assert time.monotonic() - killed_at < 120  # the heartbeat timeout is longer
            finally:
                process.kill()
                process.communicate()
        assert values(bench.bootstrap_servers, target) == sorted_strings(numbers(0, 100))

    def test_a_process_does_not_outlive_its_driver(self, bench: Workbench, tmp_path: Path) -> None:
        source = bench.make_topic()
        with ThreadedRun(bench, offsets_of(source, 0), to_kafka(bench, source), interval=600).start_driver() as run:
            process = run.start_process(0, tmp_path)
            try:
                run.until(lambda: run.coordinator.started)
                run.coordinator.abort(KeyError("the driver crashes"))
                _, errors = process.communicate(timeout=TIMEOUT)
            finally:
                process.kill()
        assert process.returncode == 1
        assert "closed the connection" in errors


class TestLoss:
    def test_it_fails_if_records_have_expired(self, bench: Workbench) -> None:
        source, sink = bench.make_topic(), RecordingSink()
        bench.write(source, numbers(0, 50))
        bench.delete_records(source, 20)
        with ThreadedRun(bench, offsets_of(source, 10), custom_writer_factory(lambda _: sink)).start() as run:
            error = run.failure(QueryRunError)
            run.join()
        assert error.cause_class == "DataLossError"
        assert "offsets [10, 20) were deleted" in str(error)
        assert "To skip them, set failOnDataLoss=false" in str(error)
        assert isinstance(run.failures[0], DataLossError)
        assert sink.values == []

    def test_it_resumes_at_the_start(self, bench: Workbench, caplog: pytest.LogCaptureFixture) -> None:
        source, sink = bench.make_topic(), RecordingSink()
        bench.write(source, numbers(0, 50))
        bench.delete_records(source, 20)
        with caplog.at_level(logging.WARNING, "pyspark_kafka_direct"):
            factory = custom_writer_factory(lambda _: sink)
            with ThreadedRun(bench, offsets_of(source, 10), factory, fail_on_data_loss=False).start() as run:
                run.until_at(offsets_of(source, 50))
                run.stop()
        assert sink.values == numbers(20, 30)
        (warning,) = [each for each in caplog.messages if "data loss" in each]
        assert "offsets [10, 20) were deleted" in warning
        assert f"Reading resumes at offset 20 of {source}-0" in warning

    def test_it_resumes_at_the_end_if_the_start_is_beyond_it(self, bench: Workbench) -> None:
        source, sink = bench.make_topic(), RecordingSink()
        bench.write(source, numbers(0, 50))
        with ThreadedRun(
            bench, offsets_of(source, 90), custom_writer_factory(lambda _: sink), fail_on_data_loss=False
        ).start() as run:
            run.until_at(offsets_of(source, 50))
            bench.write(source, numbers(50, 5))
            run.until_at(offsets_of(source, 55))
            run.stop()
        assert sink.values == numbers(50, 5)

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_recreated_topic(self, bench: Workbench, fails: bool) -> None:
        source, sink = bench.make_topic(), RecordingSink()
        bench.write(source, numbers(0, 50))
        with ThreadedRun(
            bench, offsets_of(source, 0), custom_writer_factory(lambda _: sink), fail_on_data_loss=fails
        ).start() as run:
            run.until_at(offsets_of(source, 50))
            bench.recreate_topic(source)
            bench.write(source, numbers(1000, 5))
            if fails:
                error = run.failure(QueryRunError)
                assert error.cause_class == "DataLossError"
                assert "deleted" in str(error)
            else:
                run.until_at(offsets_of(source, 5))
                run.stop()
                assert sink.values == [*numbers(0, 50), *numbers(1000, 5)]

    def test_other_topics_are_read_if_one_is_deleted(self, bench: Workbench, caplog: pytest.LogCaptureFixture) -> None:
        deleted, remaining, sink = bench.make_topic(), bench.make_topic(), RecordingSink()
        starts = offsets_of(deleted, 0) | offsets_of(remaining, 0)
        with ThreadedRun(bench, starts, custom_writer_factory(lambda _: sink), fail_on_data_loss=False).start() as run:
            bench.write(deleted, numbers(0, 5))
            run.until_at(offsets_of(deleted, 5) | offsets_of(remaining, 0))
            bench.delete_topic(deleted)
            wait_until(lambda: any("Reading continues without" in each for each in caplog.messages), "the warning")
            bench.write(remaining, numbers(5, 5))
            run.until_at(offsets_of(deleted, 5) | offsets_of(remaining, 5))
            run.stop()
        assert sink.values == numbers(0, 10)


class TestCustomSinks:
    def test_each_task_has_its_own_sink(self, bench: Workbench) -> None:
        source = bench.make_topic(partitions=2)
        bench.write(source, numbers(0, 5), partition=0)
        bench.write(source, numbers(5, 5), partition=1)
        created: dict[int, tuple[TaskInfo, RecordingSink]] = {}

        def make(task: TaskInfo) -> RecordingSink:
            created[task.task] = (task, RecordingSink())
            return created[task.task][1]

        with ThreadedRun(bench, offsets_of(source, 0, 0), custom_writer_factory(make), tasks=2).start() as run:
            run.until_at(offsets_of(source, 5, 5))
            run.stop()
        for number in range(2):
            task, sink = created[number]
            assert (task.query_id, task.run_id) == ("query-1", "run-1")
            assert task.partitions == (TopicPartition(source, number),)
            assert sink.values == numbers(5 * number, 5)
            assert len([call for call in sink.calls if isinstance(call, dict)]) == len(run.epochs)

    def test_a_function_receives_batches(self, bench: Workbench) -> None:
        source = bench.make_topic()
        calls: list[int] = []

        def record_call(batch: pa.RecordBatch) -> None:
            calls.append(batch.num_rows)

        with ThreadedRun(bench, offsets_of(source, 0), function_writer_factory(record_call)).start() as run:
            bench.write(source, numbers(0, 5))
            run.until_at(offsets_of(source, 5))
            bench.write(source, numbers(5, 7))
            run.until_at(offsets_of(source, 12))
            run.stop()
        assert sum(each.rows for each in run.epochs) == sum(calls) == 12

    def test_the_smallest_max_rows_limits_batches(self, bench: Workbench) -> None:
        source, calls = bench.make_topic(), []

        def record_size(batch: pa.RecordBatch) -> pa.RecordBatch:
            calls.append(batch.num_rows)
            return batch

        bench.write(source, numbers(0, 20))
        functions = (MapFunction(record_size, max_rows=7), MapFunction(record_size, max_rows=3))
        sink = RecordingSink()
        with ThreadedRun(
            bench, offsets_of(source, 0), custom_writer_factory(lambda _: sink), functions=functions
        ).start() as run:
            run.until_at(offsets_of(source, 20))
            run.stop()
        assert sink.values == numbers(0, 20)
        assert max(calls) == 3

    @pytest.mark.parametrize("stored", [3, 0, 9], ids=["ahead", "behind", "at the end"])
    def test_a_task_starts_at_the_positions_that_its_sink_has_stored(self, bench: Workbench, stored: int) -> None:
        """The offsets of the checkpoint may lie before them, after a crash, or behind, if the sink was restored."""
        source = bench.make_topic()
        bench.write(source, numbers(0, 9))
        sink = RecordingSink()
        sink.stored_positions = lambda: {  # type: ignore[attr-defined]
            TopicPartition(source, 0): stored,
            TopicPartition("other", 0): 77,
        }
        with ThreadedRun(bench, offsets_of(source, 2), custom_writer_factory(lambda _: sink)).start() as run:
            run.until_at(offsets_of(source, 9))
            run.stop()
        assert sink.values == numbers(stored, 9 - stored)

    @pytest.mark.parametrize("stored", [2, 4, 6], ids=["behind", "at the end", "ahead"])
    def test_a_planned_epoch_does_not_move_stored_positions_back(self, bench: Workbench, stored: int) -> None:
        """A sink may have stored the epoch after the planned one before the driver died."""
        source = bench.make_topic()
        bench.write(source, numbers(0, 9))
        sink = RecordingSink()
        sink.stored_positions = lambda: offsets_of(source, stored)  # type: ignore[attr-defined]
        with ThreadedRun(
            bench, offsets_of(source, 0), custom_writer_factory(lambda _: sink), end_offsets=offsets_of(source, 4)
        ).start() as run:
            run.until(lambda: bool(run.epochs))
            run.join()
        assert (run.error, run.failures, run.positions) == (None, {}, offsets_of(source, 4))
        assert sink.values == numbers(stored, max(4 - stored, 0))
        assert sink.calls[-2:] == [offsets_of(source, max(stored, 4)), "closed"]

    def test_a_slow_setup_delays_the_run_and_does_not_end_it(self, bench: Workbench) -> None:
        source, sink, released = bench.make_topic(), RecordingSink(), threading.Event()
        bench.write(source, numbers(0, 5))

        def load_model() -> bytes:
            assert released.wait(TIMEOUT)
            return b"!"

        def apply_model(batch: pa.RecordBatch, model: bytes) -> pa.RecordBatch:
            return pa.record_batch({"value": [value + model for value in batch.column("value").to_pylist()]})

        with ThreadedRun(
            bench,
            offsets_of(source, 0),
            custom_writer_factory(lambda _: sink),
            functions=(MapFunction(apply_model, load_model),),
            heartbeat_timeout=3,
        ).start() as run:
            assert not released.wait(5)  # longer than the lease of a task that has started
            assert not run.coordinator.started
            released.set()
            run.until_at(offsets_of(source, 5))
            run.stop()
        assert sink.values == [value + b"!" for value in numbers(0, 5)]
