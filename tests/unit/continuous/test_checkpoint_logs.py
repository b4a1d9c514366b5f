"""The logs in a fake file system: the order of writes, concurrent queries, and crashes at each write."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from tests.examples import examples
from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.continuous import checkpoint_logs
from pyspark_kafka_direct.continuous.checkpoint_log_format import OffsetLogEntry, parse_offset_entry
from pyspark_kafka_direct.continuous.checkpoint_logs import (
    CheckpointLogs,
    CheckpointState,
    RecoveryPlan,
    open_checkpoint_logs,
)
from pyspark_kafka_direct.continuous.checkpoint_recovery import recover_checkpoint, recover_logs
from pyspark_kafka_direct.continuous.continuous_sink import function_writer_factory
from pyspark_kafka_direct.continuous.sink_delivery import AtLeastOnceDelivery
from pyspark_kafka_direct.errors import CheckpointFencedError, OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.spark import checkpoint_files

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
START = {A: 0, B: 0}
CONF = {"spark.sql.shuffle.partitions": "3"}
DRIVERS = itertools.count()


class SimulatedCrashError(BaseException):
    """The driver crashes."""


class FakeFileManager:
    """The files of a checkpoint in a dictionary."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.folders: set[str] = set()
        self.changes: list[str] = []
        self.writes_until_crash: int | None = None

    def path(self, name: str) -> str:
        return f"disk:/{name}"

    def read(self, name: str) -> str | None:
        return self.files.get(name)

    def exists(self, name: str) -> bool:
        return name in self.files or any(each.startswith(f"{name}/") for each in self.files)

    def list_names(self, folder: str) -> list[str]:
        return [each.removeprefix(f"{folder}/") for each in self.files if each.startswith(f"{folder}/")]

    def mkdirs(self, name: str) -> None:
        self.folders.add(name)

    def create(self, name: str, text: str) -> bool:
        if name in self.files:
            return False
        folder = name.rpartition("/")[0]
        assert folder in ("", *self.folders) or self.exists(folder), "Spark creates files in existing folders only"
        self._record(f"+{name}")
        self.files[name] = text
        return True

    def delete(self, name: str) -> None:
        self._record(f"-{name}")
        self.files.pop(name, None)

    def _record(self, change: str) -> None:
        if self.writes_until_crash is not None:
            if self.writes_until_crash == 0:
                raise SimulatedCrashError
            self.writes_until_crash -= 1
        self.changes.append(change)


def open_logs_on(disk: FakeFileManager, retain: int = 100) -> CheckpointLogs:
    return CheckpointLogs(disk, lambda: CONF, retain, f"driver-{next(DRIVERS)}")


def prepare_at_least_once(logs: CheckpointLogs) -> CheckpointLogs:
    AtLeastOnceDelivery(function_writer_factory(print), logs).prepare("q", START, 1)
    return logs


def ends(disk: FakeFileManager, epoch: int) -> Mapping[TopicPartition, int]:
    return parse_offset_entry(disk.files[f"offsets/{epoch}"], "here").offsets


def run_micro_batch(disk: FakeFileManager) -> Mapping[TopicPartition, int]:
    """Where a micro-batch query starts its next batch, by ``MicroBatchExecution.populateStartOffsets``."""
    newest = max(int(name) for name in disk.list_names("offsets"))
    committed = max((int(name) for name in disk.list_names("commits")), default=-1)
    return ends(disk, newest if newest == committed else newest - 1)


def test_a_new_query() -> None:
    disk = FakeFileManager()
    logs = open_logs_on(disk)
    assert logs.recover(None, at_ms=1) == RecoveryPlan(None, 0)
    logs.commit_start(START, at_ms=2)
    logs.commit(1, {A: 3, B: 4}, at_ms=3)
    assert disk.changes == ["+offsets/0", "+commits/0", "+offsets/1", "+commits/1"]
    assert logs.offset_entry(0) == OffsetLogEntry(START, 2, 0, CONF, is_start=True)
    assert logs.offset_entry(1) == OffsetLogEntry({A: 3, B: 4}, 3, 0, CONF, is_output_written=True)
    assert logs.state() == CheckpointState(1, ())
    assert open_logs_on(disk).recover(None, at_ms=4) == RecoveryPlan({A: 3, B: 4}, 2)


def test_the_id_is_written_once() -> None:
    disk = FakeFileManager()
    assert open_logs_on(disk).query_id("one") == "one"
    assert open_logs_on(disk).query_id("two") == "one"
    assert disk.files["metadata"] == '{"id":"one"}'


def test_the_first_of_two_concurrent_ids_wins() -> None:
    """Another query writes the file after this one has checked that it is missing."""

    class Race(FakeFileManager):
        def create(self, name: str, text: str) -> bool:
            self.files.setdefault(name, '{"id":"first"}')
            return super().create(name, text)

    assert open_logs_on(Race()).query_id("second") == "first"


def test_settings_and_watermark_of_an_earlier_query_are_preserved() -> None:
    disk = FakeFileManager()
    disk.files = {
        "offsets/4": 'v1\n{"batchWatermarkMs":50,"batchTimestampMs":1,"conf":{"x":"y"}}\n{"t": {"0": 5}}',
        "commits/4": 'v1\n{"nextBatchWatermarkMs":60}',
    }
    logs = open_logs_on(disk)
    assert logs.recover(None, at_ms=1) == RecoveryPlan({A: 5}, 5)
    logs.commit(5, {A: 6}, at_ms=2)
    assert logs.offset_entry(5) == OffsetLogEntry({A: 6}, 2, 60, {"x": "y"}, is_output_written=True)
    assert json.loads(disk.files["commits/5"].split("\n")[1]) == {"nextBatchWatermarkMs": 60}


@pytest.mark.parametrize("existing", ["offsets/1", "commits/1"])
def test_a_second_query_on_one_checkpoint_ends(existing: str) -> None:
    disk = FakeFileManager()
    first = open_logs_on(disk)
    first.recover(None, at_ms=1)
    first.commit_start(START, at_ms=1)
    disk.files[existing] = "another's"
    with pytest.raises(
        CheckpointFencedError, match=f"disk:/{existing} already exists: another query writes to the same checkpoint"
    ):
        first.commit(1, START, at_ms=2)
    assert disk.files[existing] == "another's"


def test_a_suspended_driver_writes_nothing_after_its_successor() -> None:
    disk = FakeFileManager()
    suspended = open_logs_on(disk, retain=2)
    suspended.recover(None, at_ms=1)
    suspended.commit_start(START, at_ms=1)
    suspended.commit(1, {A: 1, B: 1}, at_ms=2)
    other = open_logs_on(disk, retain=2)
    for epoch in range(other.recover(None, at_ms=3).next_epoch, 10):
        other.commit(epoch, {A: epoch, B: epoch}, at_ms=epoch)
        other.purge(epoch)
    before = dict(disk.files)
    with pytest.raises(CheckpointFencedError, match="offsets/1 was deleted"):
        suspended.commit(2, {A: 2, B: 2}, at_ms=99)
    assert disk.files == before


@pytest.mark.parametrize(("last_file", "missing"), [("commits/0", "offsets/1"), ("offsets/1", "commits/1")])
def test_a_driver_that_wakes_after_another_has_replaced_it_writes_nothing(last_file: str, missing: str) -> None:
    class Suspending(FakeFileManager):
        def create(self, name: str, text: str) -> bool:
            is_created = super().create(name, text)
            if name == last_file:
                prepare_at_least_once(open_logs_on(self)).recover(None, 1)
            return is_created

    disk = Suspending()
    suspended = prepare_at_least_once(open_logs_on(disk))
    suspended.recover(None, 0)
    suspended.commit_start(START, 0)
    with pytest.raises(CheckpointFencedError, match="has taken control of the query"):
        suspended.commit(1, {A: 1, B: 1}, 2)
    assert missing not in disk.files


def test_a_planned_batch_never_changes() -> None:
    disk = FakeFileManager()
    first = open_logs_on(disk)
    first.recover(None, 0)
    first.commit_start(START, 0)
    disk.writes_until_crash = 1  # between offsets/1 and commits/1
    with pytest.raises(SimulatedCrashError):
        first.commit(1, {A: 1, B: 2}, 1)
    disk.writes_until_crash = None
    second = open_logs_on(disk)
    assert second.recover(None, 2) == RecoveryPlan(START, 1, planned_end={A: 1, B: 2})
    assert ends(disk, 1) == {A: 1, B: 2}
    first._write_commit(1)  # the first driver was suspended, and commits what it has written
    second.commit(1, {A: 1}, 3)
    assert ends(disk, 1) == {A: 1, B: 2}
    assert second.state() == CheckpointState(committed=1)


def test_transactions_beyond_a_planned_batch_are_the_next_one() -> None:
    disk = FakeFileManager()
    logs = open_logs_on(disk)
    logs.recover({}, 0)
    logs.commit_start(START, 0)
    logs.commit(1, {A: 1, B: 2}, 1)
    del disk.files["commits/1"]
    assert logs.recover({A: 3, B: 2}, 2) == RecoveryPlan({A: 3, B: 2}, 3, commit=1, write=2)
    assert (ends(disk, 1), ends(disk, 2)) == ({A: 1, B: 2}, {A: 3, B: 2})
    assert logs.state() == CheckpointState(committed=2)


def test_an_epoch_that_is_committed_during_the_recovery() -> None:
    disk = FakeFileManager()
    first, second = open_logs_on(disk), open_logs_on(disk)
    first.recover(None, at_ms=1)
    first.commit_start(START, at_ms=1)
    first._write_offsets(1, {A: 1, B: 1}, 2)
    state = second.state()
    assert state.uncommitted == (1,)
    first._write_commit(1)
    assert second.recover({A: 1, B: 1}, at_ms=3, state=state) == RecoveryPlan({A: 1, B: 1}, 2, commit=1)
    second.commit(2, {A: 2, B: 2}, at_ms=4)


@pytest.mark.parametrize("pause_before", ["offsets", "commits"])
def test_epochs_that_another_driver_commits_while_the_state_is_read(pause_before: str) -> None:
    class Race(FakeFileManager):
        pending = 0  # epochs that the other driver commits before the folder is listed

        def list_names(self, folder: str) -> list[str]:
            if folder == pause_before and self.pending:
                epochs, self.pending = self.pending, 0
                for epoch in range(1, epochs + 1):
                    other.commit(epoch, {A: epoch}, 0)
            return super().list_names(folder)

    disk = Race()
    logs, other = open_logs_on(disk), open_logs_on(disk)
    other.recover(None, 0)
    other.commit_start(START, 0)
    disk.pending = 2
    assert logs.state() == CheckpointState(committed=2)


def test_stateful_queries_are_rejected() -> None:
    disk = FakeFileManager()
    disk.files["state/0/0/1.delta"] = ""
    with pytest.raises(OptionError, match="disk:/state shows that the query of this checkpoint is stateful"):
        open_logs_on(disk)


def test_a_deleted_entry() -> None:
    with pytest.raises(CheckpointFencedError, match="disk:/offsets/3 was deleted"):
        open_logs_on(FakeFileManager()).offset_entry(3)


def test_old_epochs_are_purged() -> None:
    disk = FakeFileManager()
    logs = open_logs_on(disk, retain=3)
    logs.recover(None, at_ms=1)
    logs.commit_start(START, at_ms=1)
    for epoch in range(1, 6):
        logs.commit(epoch, START, at_ms=epoch)
        logs.purge(epoch)
    assert [each for each in disk.changes if each[0] == "-"] == ["-offsets/0", "-commits/0", "-offsets/1", "-commits/1"]
    assert sorted(disk.files) == [f"{folder}/{epoch}" for folder in ("commits", "offsets") for epoch in range(2, 6)]
    again = open_logs_on(disk, retain=1)
    again.recover(None, at_ms=9)
    again.purge(5)
    assert sorted(disk.list_names("offsets")) == sorted(disk.list_names("commits")) == ["4", "5"]


class FakeTransactions:
    """The epoch and offset that the transactions of each task have committed."""

    def __init__(self) -> None:
        self.group: dict[TopicPartition, tuple[int, int]] = {}

    def offsets_ahead(self, state: CheckpointState) -> dict[TopicPartition, int]:
        return {tp: at for tp, (epoch, at) in self.group.items() if epoch >= state.next_epoch}

    def committed_offsets(self) -> dict[TopicPartition, int]:
        """The offset of the next record to write."""
        return {**START, **{tp: at for tp, (_, at) in self.group.items()}}


def run_exactly_once(
    disk: FakeFileManager, cluster: FakeTransactions, epochs: int, crash_after_tasks: int | None, lag: int
) -> None:
    """One run of a driver. In the last epoch, it crashes after ``crash_after_tasks`` tasks have committed.

    The logs are ``lag`` epochs behind the transactions until the query stops.
    """
    logs = open_logs_on(disk, retain=2)
    state = logs.state()
    recovery = logs.recover(cluster.offsets_ahead(state), at_ms=1, state=state)
    if recovery.start is None:
        logs.commit_start(START, at_ms=1)
        start, first = dict(START), 1
    else:
        assert recovery.start == cluster.committed_offsets(), "records would be lost or duplicated"
        assert run_micro_batch(disk) == recovery.start, "a micro-batch query would start elsewhere"
        start, first = dict(recovery.start), recovery.next_epoch
    uncommitted: list[tuple[int, dict[TopicPartition, int]]] = []
    for epoch in range(first, first + epochs):
        for count, tp in enumerate(start):
            if epoch == first + epochs - 1 and count == crash_after_tasks:
                raise SimulatedCrashError
            start[tp] += 1
            cluster.group[tp] = epoch, start[tp]
        uncommitted.append((epoch, dict(start)))
        while len(uncommitted) > (0 if epoch == first + epochs - 1 else lag):
            number, ends = uncommitted.pop(0)
            logs.commit(number, ends, at_ms=number)
            logs.purge(number)


@pytest.mark.parametrize("name", ["transactions/0", "offsets/0", "commits/0", "offsets/1", "commits/1"])
@pytest.mark.parametrize("outcome", ["fails", "fails after it was created", "reports that it exists"])
def test_an_operation_that_fails_once_is_repeated(name: str, outcome: str) -> None:
    """Hadoop repeats a rename whose response was lost, and then reports that the file exists."""

    class FlakyFileManager(FakeFileManager):
        has_failed = False

        def create(self, created: str, text: str) -> bool:
            if created != name or self.has_failed:
                return super().create(created, text)
            self.has_failed = True
            if outcome != "fails":
                super().create(created, text)
            if outcome == "reports that it exists":
                return False
            raise OSError("503 Slow Down")

    disk, time = FlakyFileManager(), FakeTimeSystem()
    logs = prepare_at_least_once(CheckpointLogs(disk, lambda: CONF, 100, "driver", time))
    logs.recover(None, at_ms=1)
    logs.commit_start(START, at_ms=1)
    logs.commit(1, {A: 1, B: 1}, at_ms=2)
    assert disk.has_failed
    assert logs.state() == CheckpointState(committed=1)
    assert time.now <= 1000.1


def test_an_operation_that_always_fails_is_an_error() -> None:
    class BrokenFileManager(FakeFileManager):
        def list_names(self, folder: str) -> list[str]:
            raise OSError("no such host")

    time = FakeTimeSystem()
    logs = CheckpointLogs(BrokenFileManager(), lambda: CONF, 100, "driver", time)
    with pytest.raises(OSError, match="no such host"):
        logs.state()
    assert time.now == pytest.approx(1001.5)


def test_a_driver_that_was_replaced_while_a_file_failed_writes_nothing() -> None:
    class ReplacedFileManager(FakeFileManager):
        def create(self, name: str, text: str) -> bool:
            if name == "offsets/1" and not self.writes_until_crash:
                self.writes_until_crash = 100
                prepare_at_least_once(open_logs_on(self))
                raise OSError("503 Slow Down")
            return super().create(name, text)

    disk = ReplacedFileManager()
    logs = prepare_at_least_once(CheckpointLogs(disk, lambda: CONF, 100, "driver", FakeTimeSystem()))
    logs.recover(None, at_ms=1)
    logs.commit_start(START, at_ms=1)
    with pytest.raises(CheckpointFencedError, match="has taken control of the query"):
        logs.commit(1, {A: 1, B: 1}, at_ms=2)
    assert "offsets/1" not in disk.files


class ConcurrentTransactions(FakeTransactions):
    """A fenced driver commits an epoch to the logs each time another driver has read them."""

    def __init__(self, logs: CheckpointLogs, epochs: int) -> None:
        super().__init__()
        self._logs = logs
        self._pending_epochs = iter(range(1, epochs + 1))
        self.group = {A: (epochs, epochs), B: (epochs, epochs)}

    def offsets_ahead(self, state: CheckpointState) -> dict[TopicPartition, int]:
        offsets_ahead = super().offsets_ahead(state)
        for epoch in self._pending_epochs:
            self._logs.commit(epoch, {A: epoch, B: epoch}, at_ms=2)
            break
        return offsets_ahead


@pytest.mark.parametrize("epochs", [1, 2, 4])
def test_epochs_that_a_fenced_driver_commits_during_the_recovery(epochs: int) -> None:
    disk = FakeFileManager()
    driver = open_logs_on(disk)
    driver.recover(None, at_ms=1)
    driver.commit_start(START, at_ms=1)
    delivery: Any = ConcurrentTransactions(driver, epochs)
    assert recover_logs(open_logs_on(disk), delivery, at_ms=3) == {A: epochs, B: epochs} == run_micro_batch(disk)
    assert ends(disk, epochs) == {A: epochs, B: epochs}
    assert sorted(disk.list_names("offsets")) == sorted(disk.list_names("commits"))


def test_too_many_concurrent_epochs_are_of_another_query() -> None:
    disk = FakeFileManager()
    driver = open_logs_on(disk)
    driver.recover(None, at_ms=1)
    driver.commit_start(START, at_ms=1)
    delivery: Any = ConcurrentTransactions(driver, 100)
    with pytest.raises(CheckpointFencedError, match="another query writes to the same checkpoint"):
        recover_logs(open_logs_on(disk), delivery, at_ms=3)


DRIVER_RUNS = st.lists(
    st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 1)), st.one_of(st.none(), st.integers(0, 12))),
    max_size=6,
)


@examples(100)
@given(DRIVER_RUNS, st.integers(0, 2))
def test_exactly_once_after_crashes_at_any_point(
    driver_runs: list[tuple[int, int | None, int | None]], lag: int
) -> None:
    disk, cluster = FakeFileManager(), FakeTransactions()
    for epochs, crash_after_tasks, writes in [*driver_runs, (1, None, None), (0, None, None)]:
        disk.writes_until_crash = writes
        try:
            run_exactly_once(disk, cluster, epochs, crash_after_tasks, lag)
        except SimulatedCrashError:
            continue


@examples(100)
@given(DRIVER_RUNS)
def test_at_least_once_after_crashes_at_any_point(driver_runs: list[tuple[int, int | None, int | None]]) -> None:
    """No record is lost, and no committed epoch is repeated."""
    disk = FakeFileManager()
    flushed, committed = 0, 0
    for epochs, _, writes in [*driver_runs, (1, None, None), (0, None, None)]:
        disk.writes_until_crash = writes
        try:
            logs = open_logs_on(disk, retain=2)
            recovery = logs.recover(None, at_ms=1)
            if recovery.start is None:
                logs.commit_start(START, at_ms=1)
                start, first = 0, 1
            else:
                start, first = recovery.start[A], recovery.next_epoch
                assert committed <= start <= flushed
                assert run_micro_batch(disk)[A] == start
                if recovery.planned_end is not None:  # a planned epoch keeps its end
                    assert recovery.planned_end == {A: start + 1, B: start + 1} == ends(disk, first)
                    epochs = max(epochs, 1)
            for epoch in range(first, first + epochs):
                start += 1
                flushed = max(flushed, start)
                logs.commit(epoch, {A: start, B: start}, at_ms=epoch)
                committed = start
                logs.purge(epoch)
        except SimulatedCrashError:
            continue
    assert disk.list_names("offsets")


class SparkWithCheckpoint:
    """A session with Spark's metadata of a new query, which has no value of one setting."""

    def __init__(self, **values: str) -> None:
        self.conf = self
        self.values = values
        conf = {"spark.sql.shuffle.partitions": "7", "stored": "by the query", "renamed": None, "unset": None}
        metadata = SimpleNamespace(json=lambda: json.dumps({"batchWatermarkMs": 0, "conf": conf}))
        self.sparkContext = None  # so the application has no delegation tokens
        self._jvm = object()
        self.package = SimpleNamespace(OffsetSeqMetadata=SimpleNamespace(apply=lambda *_: metadata))
        self._jsparkSession = SimpleNamespace(conf=lambda: None)

    def get(self, name: str, default: str | None = None) -> str | None:
        return {"renamed": "of the session", **self.values}.get(name, default)


@pytest.mark.parametrize(("values", "retained"), [({}, 6), ({"spark.sql.streaming.minBatchesToRetain": "3"}, 4)])
def test_a_checkpoint_has_the_settings_of_the_session(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], retained: int
) -> None:
    disk, spark = FakeFileManager(), SparkWithCheckpoint(**values)
    session: Any = spark
    opened: list[tuple[object, ...]] = []

    def open_files(*arguments: object) -> FakeFileManager:
        opened.append(arguments)
        return disk

    monkeypatch.setattr(checkpoint_logs, "CheckpointFiles", open_files)
    monkeypatch.setattr(checkpoint_logs, "checkpointing_package", lambda jvm: spark.package)
    logs = open_checkpoint_logs(session, "/c", FakeTimeSystem())
    assert opened == [(session, "/c", "a continuous query")]
    assert prepare_at_least_once(logs).recover(None, 1) == RecoveryPlan(None, 0)
    logs.commit_start(START, 0)
    for epoch in range(1, 6):
        logs.commit(epoch, START, epoch)
        logs.purge(epoch)
    conf = json.loads(disk.files["offsets/5"].split("\n")[1])["conf"]
    assert {name: value for name, value in conf.items() if not name.startswith("pyspark_kafka_direct.")} == {
        "spark.sql.shuffle.partitions": "7",
        "stored": "by the query",
        "renamed": "of the session",
    }
    assert sum(name.startswith("offsets/") for name in disk.files) == retained


def test_a_checkpoint_that_java_cannot_open(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = "s3x://key:se%2Fcret@b/c"

    def fail(*_: object) -> Any:
        gateway = SimpleNamespace(send_command=lambda command: "!xro1")
        error = Py4JJavaError("", SimpleNamespace(_target_id="o1", _gateway_client=gateway))
        error.java_exception = SimpleNamespace(toString=lambda: f"java.io.IOException: no file system for {checkpoint}")
        raise error

    monkeypatch.setattr(checkpoint_logs, "CheckpointFiles", fail)
    session: Any = SparkWithCheckpoint()
    with pytest.raises(OptionError) as caught:
        open_checkpoint_logs(session, checkpoint)
    shown = "s3x://key:***@b/c"
    assert caught.value.message == (
        f"Cannot use checkpointLocation {shown}: java.io.IOException: no file system for {shown}"
    )


def test_a_folder_without_a_query_cannot_be_recovered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_files, "CheckpointFiles", lambda *_: FakeFileManager())
    session: Any = SparkWithCheckpoint()
    options = {"kafka.bootstrap.servers": "b:1", "topic": "out", "transactionalIdPrefix": "p"}
    with pytest.raises(OptionError, match=r"^s3x://key:\*\*\*@b/c is not the checkpoint of a query$"):
        recover_checkpoint(session, "s3x://key:se%2Fcret@b/c", options)
