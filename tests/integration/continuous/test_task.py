"""The task of a continuous query: from the real broker to the real broker, led by the real coordinator."""

from __future__ import annotations

import logging
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.integration.continuous.runs import PATIENCE, Run, to_kafka
from tests.integration.read_back import consume, values
from tests.integration.transactions import transaction, transactional
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.continuous._plain_sink import batch_function, plain_sink
from pyspark_kafka_direct.errors import ColumnError, DataLossError, OptionError, RunFailedError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.continuous.sink import TaskInfo


class Notes:
    """A sink that keeps what it is told.

    Attributes:
        calls: Each ``write`` with its values, each ``flush`` with its epoch, and ``close``.
    """

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.calls.append(batch.column("value").to_pylist())

    def flush(self, epoch: int) -> None:
        self.calls.append(epoch)

    def close(self) -> None:
        self.calls.append("closed")

    @property
    def values(self) -> list[bytes]:
        return [value for call in self.calls if isinstance(call, list) for value in call]


def at(topic: str, *offsets: int) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for partition, offset in enumerate(offsets)}


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def texts(found: list[bytes]) -> list[str]:
    return sorted(value.decode() for value in found)


class TestReadingAndWriting:
    def test_all_that_is_there_and_comes_is_written(self, bench: Workbench) -> None:
        source, target = bench.make_topic(partitions=3), bench.make_topic(partitions=2)
        bench.write(source, numbers(0, 500), partition=0)
        bench.write(source, numbers(500, 100), partition=2)
        with Run(bench, at(source, 0, 0, 90), to_kafka(bench, target), tasks=2).start() as run:
            run.until_at(at(source, 500, 0, 100))
            assert len(values(bench.bootstrap_servers, target)) == 510  # acknowledged before they are reported
            bench.write(source, numbers(1000, 50), partition=1)
            run.until_at(at(source, 500, 50, 100))
            last = run.stop()
        assert values(bench.bootstrap_servers, target) == texts(
            [*numbers(0, 500), *numbers(590, 10), *numbers(1000, 50)]
        )
        assert (last.last, last.rows, last.offsets) == (True, 0, at(source, 500, 50, 100))
        assert sum(each.rows for each in run.epochs) == sum(each.rows_read for each in run.epochs) == 560
        assert sum(each.bytes for each in run.epochs) > 560

    def test_the_function_makes_of_batches_what_it_likes(self, bench: Workbench) -> None:
        """The names and types of columns may change from call to call, and any record may be left out."""
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

        with Run(bench, at(source, 0), to_kafka(bench, None), function=function, columns=("value",)).start() as run:
            for first in range(0, 40, 10):
                bench.write(source, numbers(first, 10))
                run.until_at(at(source, first + 10))
            run.stop()
        assert {tuple(names) for names in calls} == {("value",)}
        assert len(calls) >= 4
        odd = [number for number in range(40) if number % 2]
        assert values(bench.bootstrap_servers, target) == sorted(str(each) for each in odd if each % 3)
        assert values(bench.bootstrap_servers, other) == sorted(str(each) for each in odd if not each % 3)
        assert (sum(each.rows for each in run.epochs), sum(each.rows_read for each in run.epochs)) == (20, 40)

    @pytest.mark.parametrize("dropped", [lambda batch: None, lambda batch: batch.slice(0, 0)], ids=["None", "no rows"])
    def test_positions_move_though_all_is_filtered_out(
        self, bench: Workbench, dropped: Callable[[pa.RecordBatch], pa.RecordBatch | None]
    ) -> None:
        source, notes = bench.make_topic(), Notes()
        bench.write(source, numbers(0, 20))
        with Run(bench, at(source, 0), plain_sink(lambda _: notes), function=dropped).start() as run:
            run.until_at(at(source, 20))
            run.stop()
        assert notes.values == []
        assert (sum(each.rows for each in run.epochs), sum(each.rows_read for each in run.epochs)) == (0, 20)

    def test_all_columns_of_a_record(self, bench: Workbench) -> None:
        """Keys, headers, timestamps and partitions go on as they came; the option ``topic`` wins over the column."""
        source, target = bench.make_topic(partitions=2), bench.make_topic(partitions=2)
        producer = bench.producer()
        for number in range(4):
            headers = [("h", b"%d" % number)] if number % 2 else None
            producer.produce(
                source, b"v%d" % number, b"k", number % 2, timestamp=1_700_000_000_000 + number, headers=headers
            )
        producer.flush(60)
        columns = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
        sink = to_kafka(bench, target, stampBatch="true")
        with Run(bench, at(source, 0, 0), sink, columns=columns).start() as run:
            run.until_at(at(source, 2, 2))
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
        assert {int(dict(each.headers)["spark.batch.id"] or b"") for each in found} <= {
            each.epoch for each in run.epochs if each.rows
        }

    def test_control_records_and_aborted_ones_are_passed_over(self, bench: Workbench) -> None:
        source, notes = bench.make_topic(), Notes()
        producer = transactional(bench, source)
        transaction(producer, source, numbers(0, 3))
        producer.commit_transaction(30)
        transaction(producer, source, numbers(3, 3))
        producer.abort_transaction(30)
        committed = {"isolation_level": "read_committed"}
        with Run(bench, at(source, 0), plain_sink(lambda _: notes), kafka=committed).start() as run:
            run.until_at(at(source, 8))
            transaction(producer, source, numbers(6, 3))
            time.sleep(0.3)
            assert run.positions == at(source, 8)  # it is open
            producer.commit_transaction(30)
            run.until_at(at(source, 12))
            run.stop()
        assert notes.values == [*numbers(0, 3), *numbers(6, 3)]

    def test_holes_of_compaction(self, bench: Workbench) -> None:
        source, notes = (
            bench.make_topic(cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01),
            Notes(),
        )
        producer = bench.producer()
        for number in range(40):
            producer.produce(source, b"%d" % number, b"key", 0)
            producer.flush(60)
        time.sleep(0.2)
        producer.produce(source, b"last", b"other", 0)
        producer.flush(60)

        def compacted() -> bool:
            return len(consume(bench.bootstrap_servers, source)) < 41

        wait_until(compacted, "compaction")
        with Run(bench, at(source, 0), plain_sink(lambda _: notes)).start() as run:
            run.until_at(at(source, 41))
            run.stop()
        assert notes.values[-1] == b"last"
        assert len(notes.values) < 41


class TestMarks:
    def test_an_idle_task_answers_at_once(self, bench: Workbench) -> None:
        """It waits for records half a second, and longer for its sink; marks come every 5 ms."""
        source = bench.make_topic()
        with Run(bench, at(source, 0), to_kafka(bench, source), interval=0.005).start() as run:
            run.until(lambda: len(run.epochs) > 3)
            first, began = len(run.epochs), time.monotonic()
            run.until(lambda: len(run.epochs) >= first + 100)
            took = time.monotonic() - began
        assert took < 5, "more than 50 ms from one mark to the next"

    def test_marks_under_load(self, bench: Workbench) -> None:
        """A poll brings a batch of each partition, and each takes the function long; a mark waits for one of them."""
        source, notes = bench.make_topic(partitions=30), Notes()
        for partition in range(30):
            bench.write(source, numbers(0, 2), partition=partition)

        def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
            time.sleep(0.05)
            return batch

        with Run(bench, at(source, *[0] * 30), plain_sink(lambda _: notes), function=slow).start() as run:
            run.until_at(at(source, *[2] * 30))
            run.stop()
        moving = [each for each in run.epochs if each.rows]
        assert len(moving) >= 10
        assert max(each.rows for each in moving) <= 8
        assert len(notes.values) == 60
        for before, after in zip(run.epochs, run.epochs[1:], strict=False):
            moved = sum(after.offsets.values()) - sum(before.offsets.values())
            assert moved == after.rows

    def test_rows_are_flushed_before_they_are_reported(self, bench: Workbench) -> None:
        source, notes = bench.make_topic(), Notes()
        with Run(bench, at(source, 0), plain_sink(lambda _: notes), interval=0.01).start() as run:
            for number in range(30):
                bench.write(source, numbers(number, 1))
            run.until_at(at(source, 30))
            run.stop()
        assert notes.calls[-2:] == [run.epochs[-1].epoch, "closed"]
        seen, ends = 0, iter(run.epochs)
        for call in notes.calls[:-1]:
            if isinstance(call, list):
                seen += len(call)
            else:
                epoch = next(ends)
                assert (epoch.epoch, epoch.offsets) == (call, at(source, seen))

    def test_a_silent_driver_is_taken_for_dead(self, bench: Workbench) -> None:
        source = bench.make_topic()
        with Run(bench, at(source, 0), to_kafka(bench, source), interval=600).start_driver() as run:
            run.start_task(0, mark_timeout=0.3).join(PATIENCE)
            assert isinstance(run.failures[0], RunFailedError)
            assert "For 0.3 s the query's driver has marked no epoch" in str(run.failures[0])

    def test_a_driver_that_hangs_up(self, bench: Workbench) -> None:
        source, notes = bench.make_topic(), Notes()
        with Run(bench, at(source, 0), plain_sink(lambda _: notes), interval=600).start() as run:
            run.until(lambda: run.coordinator.started)
            began = time.monotonic()
            run.coordinator.abort(KeyError("the driver dies"))
            run.join()
            assert time.monotonic() - began < 20
        assert "has hung up" in str(run.failures[0])
        assert notes.calls in ([], ["closed"])  # it may have been on its way

    def test_a_second_attempt_ends_the_run(self, bench: Workbench) -> None:
        source = bench.make_topic()
        with Run(bench, at(source, 0), to_kafka(bench, source)).start_driver() as run:
            run.start_task(0, attempt=1)
            assert "attempt 1" in str(run.failure(RunFailedError))


def nothing_until(free: threading.Event) -> Any:
    def wait(_: object) -> None:
        free.wait(PATIENCE)

    return wait


def broken(error: Exception) -> Any:
    def fail(*_: object) -> Any:
        raise error

    return fail


class TestFailures:
    def test_in_the_function(self, bench: Workbench) -> None:
        source, notes = bench.make_topic(), Notes()
        bench.write(source, numbers(0, 5))

        def divide(batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch.slice(1 // (batch.num_rows - 5))

        with Run(bench, at(source, 0), plain_sink(lambda _: notes), function=divide).start() as run:
            error = run.failure(RunFailedError)
            run.join()
        assert error.cause == "ZeroDivisionError"
        assert "in divide\n    return batch.slice(1 // (batch.num_rows - 5))" in str(error)
        assert isinstance(run.failures[0], ZeroDivisionError)
        assert notes.calls[-1] == "closed"
        assert not run.epochs or run.positions == at(source, 0)

    @pytest.mark.parametrize("method", ["write", "flush", "close"])
    def test_in_the_sink(self, bench: Workbench, method: str) -> None:
        source, notes = bench.make_topic(), Notes()
        bench.write(source, numbers(0, 5))
        setattr(notes, method, broken(OSError(f"no {method}")))
        with Run(bench, at(source, 0), plain_sink(lambda _: notes)).start() as run:
            if method == "close":
                run.until_at(at(source, 5))
                run.coordinator.stop()
            else:
                assert f"failed with OSError: no {method}" in str(run.failure(RunFailedError))
            run.join()
            assert str(run.failures[0]) == f"no {method}"

    def test_closing_does_not_hide_what_failed_before(self, bench: Workbench) -> None:
        source, notes = bench.make_topic(), Notes()
        bench.write(source, numbers(0, 5))
        notes.write = broken(OSError("first"))  # type: ignore[method-assign]
        notes.close = broken(OSError("second"))  # type: ignore[method-assign]
        with Run(bench, at(source, 0), plain_sink(lambda _: notes)).start() as run:
            assert "OSError: first" in str(run.failure(RunFailedError))

    @pytest.mark.parametrize("made", [1, [], pa.table({"value": ["x"]})], ids=["number", "list", "table"])
    def test_what_the_function_returns_is_no_batch(self, bench: Workbench, made: object) -> None:
        source = bench.make_topic()
        bench.write(source, numbers(0, 5))
        with Run(bench, at(source, 0), to_kafka(bench, source), function=lambda _: made).start() as run:
            error = run.failure(RunFailedError)
            run.join()
        assert error.cause == "OptionError"
        assert "it must return a pyarrow.RecordBatch, or None" in str(error)
        assert isinstance(run.failures[0], OptionError)

    def test_columns_that_cannot_be_written(self, bench: Workbench) -> None:
        source, target = bench.make_topic(), bench.make_topic()
        bench.write(source, numbers(0, 5))
        with Run(bench, at(source, 0), to_kafka(bench, target), columns=("key",)).start() as run:
            assert "Required attribute 'value' not found" in str(run.failure(RunFailedError))
            run.join()
        assert isinstance(run.failures[0], ColumnError)

    def test_a_topic_that_does_not_exist(self, bench: Workbench) -> None:
        source = bench.make_topic()
        bench.write(source, numbers(0, 5))
        with Run(bench, at(source, 0), to_kafka(bench, "nowhere")).start() as run:
            assert "topic 'nowhere' does not exist" in str(run.failure(RunFailedError))

    def test_a_sink_that_hangs(self, bench: Workbench) -> None:
        source, notes, free = bench.make_topic(), Notes(), threading.Event()
        notes.flush = nothing_until(free)  # type: ignore[method-assign]
        with Run(bench, at(source, 0), plain_sink(lambda _: notes), report=0.3).start() as run:
            assert "have not reported epoch 0 within 0.3 s: task 0" in str(run.failure(RunFailedError))
            free.set()
            run.join()
        assert "has hung up" in str(run.failures[0])
        assert notes.calls == ["closed"]

    def test_a_process_that_is_killed(self, bench: Workbench, tmp_path: Path) -> None:
        source, target = bench.make_topic(), bench.make_topic()
        bench.write(source, numbers(0, 100))
        with Run(bench, at(source, 0), to_kafka(bench, target), function=lambda batch: batch).start_driver() as run:
            process = run.start_process(0, tmp_path)
            try:
                run.until_at(at(source, 100))
                process.send_signal(signal.SIGKILL)
                began = time.monotonic()
                assert "was lost: its process has ended" in str(run.failure(RunFailedError))
                assert time.monotonic() - began < 5
            finally:
                process.kill()
                process.communicate()
        assert values(bench.bootstrap_servers, target) == texts(numbers(0, 100))

    def test_a_process_does_not_outlive_its_driver(self, bench: Workbench, tmp_path: Path) -> None:
        source = bench.make_topic()
        with Run(bench, at(source, 0), to_kafka(bench, source), interval=600).start_driver() as run:
            process = run.start_process(0, tmp_path)
            try:
                run.until(lambda: run.coordinator.started)
                run.coordinator.abort(KeyError("the driver dies"))
                _, told = process.communicate(timeout=PATIENCE)
            finally:
                process.kill()
        assert process.returncode == 1
        assert "has hung up" in told


class TestLoss:
    def test_it_fails_where_records_have_aged_out(self, bench: Workbench) -> None:
        source, notes = bench.make_topic(), Notes()
        bench.write(source, numbers(0, 50))
        bench.delete_records(source, 20)
        with Run(bench, at(source, 10), plain_sink(lambda _: notes)).start() as run:
            error = run.failure(RunFailedError)
            run.join()
        assert error.cause == "DataLossError"
        assert "offsets [10, 20) are gone" in str(error)
        assert "Set failOnDataLoss=false" in str(error)
        assert isinstance(run.failures[0], DataLossError)
        assert notes.values == []

    def test_it_goes_on_at_the_start(self, bench: Workbench, caplog: pytest.LogCaptureFixture) -> None:
        source, notes = bench.make_topic(), Notes()
        bench.write(source, numbers(0, 50))
        bench.delete_records(source, 20)
        with caplog.at_level(logging.WARNING, "pyspark_kafka_direct"):
            sink = plain_sink(lambda _: notes)
            with Run(bench, at(source, 10), sink, fail_on_data_loss=False).start() as run:
                run.until_at(at(source, 50))
                run.stop()
        assert notes.values == numbers(20, 30)
        (warning,) = [each for each in caplog.messages if "data loss" in each]
        assert "offsets [10, 20) are gone" in warning
        assert f"Reading goes on at offset 20 of {source}-0" in warning

    def test_it_goes_on_at_the_end_where_the_start_lies_beyond_it(self, bench: Workbench) -> None:
        source, notes = bench.make_topic(), Notes()
        bench.write(source, numbers(0, 50))
        with Run(bench, at(source, 90), plain_sink(lambda _: notes), fail_on_data_loss=False).start() as run:
            run.until_at(at(source, 50))
            bench.write(source, numbers(50, 5))
            run.until_at(at(source, 55))
            run.stop()
        assert notes.values == numbers(50, 5)

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_topic_that_is_created_again(self, bench: Workbench, fails: bool) -> None:
        source, notes = bench.make_topic(), Notes()
        bench.write(source, numbers(0, 50))
        with Run(bench, at(source, 0), plain_sink(lambda _: notes), fail_on_data_loss=fails).start() as run:
            run.until_at(at(source, 50))
            bench.recreate_topic(source)
            bench.write(source, numbers(1000, 5))
            if fails:
                error = run.failure(RunFailedError)
                assert error.cause == "DataLossError"
                assert "deleted" in str(error)
            else:
                run.until_at(at(source, 5))
                run.stop()
                assert notes.values == [*numbers(0, 50), *numbers(1000, 5)]

    def test_others_are_read_on_where_a_topic_is_gone(self, bench: Workbench, caplog: pytest.LogCaptureFixture) -> None:
        gone, stays, notes = bench.make_topic(), bench.make_topic(), Notes()
        starts = at(gone, 0) | at(stays, 0)
        with Run(bench, starts, plain_sink(lambda _: notes), fail_on_data_loss=False).start() as run:
            bench.write(gone, numbers(0, 5))
            run.until_at(at(gone, 5) | at(stays, 0))
            bench.delete_topic(gone)
            wait_until(lambda: any("Reading goes on without" in each for each in caplog.messages), "the warning")
            bench.write(stays, numbers(5, 5))
            run.until_at(at(gone, 5) | at(stays, 5))
            run.stop()
        assert notes.values == numbers(0, 10)


class TestSinksOfUsers:
    def test_one_is_made_for_each_task(self, bench: Workbench) -> None:
        source = bench.make_topic(partitions=2)
        bench.write(source, numbers(0, 5), partition=0)
        bench.write(source, numbers(5, 5), partition=1)
        made: dict[int, tuple[TaskInfo, Notes]] = {}

        def make(task: TaskInfo) -> Notes:
            made[task.task] = (task, Notes())
            return made[task.task][1]

        with Run(bench, at(source, 0, 0), plain_sink(make), tasks=2).start() as run:
            run.until_at(at(source, 5, 5))
            run.stop()
        for number in range(2):
            task, notes = made[number]
            assert (task.query_id, task.run_id, task.epoch) == ("query-1", "run-1", 0)
            assert task.partitions == (TopicPartition(source, number),)
            assert notes.values == numbers(5 * number, 5)
            assert [call for call in notes.calls if isinstance(call, int)] == [each.epoch for each in run.epochs]

    def test_a_function_is_called_with_batches_and_epochs(self, bench: Workbench) -> None:
        source = bench.make_topic()
        calls: list[tuple[int, int]] = []

        def take(batch: pa.RecordBatch, epoch: int) -> None:
            calls.append((batch.num_rows, epoch))

        with Run(bench, at(source, 0), batch_function(take)).start() as run:
            bench.write(source, numbers(0, 5))
            run.until_at(at(source, 5))
            bench.write(source, numbers(5, 7))
            run.until_at(at(source, 12))
            run.stop()
        rows = {each.epoch: each.rows for each in run.epochs if each.rows}
        told = [epoch for _, epoch in calls]
        assert told == sorted(told)
        # An epoch in which nothing moved leaves its number to the next one, which is told that of the one after then.
        assert {*told} <= {*rows, *(epoch + 1 for epoch in rows)}
        assert sum(rows.values()) == sum(rows for rows, _ in calls) == 12
