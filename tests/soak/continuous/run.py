"""Runs one continuous query: injects the planned faults, lets it run to its end, and checks the output."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import time
import uuid
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from tests.soak.continuous.plan import ENDS_DRIVER
from tests.soak.continuous.results import ReplayWindow, unexpected_duplicates
from tests.soak.driver import Driver
from tests.soak.log.results import memory_faults
from tests.soak.processes import executors, jvm_of, kill, task_workers, wait_until_ended
from tests.soak.results import ends_of, last_batch
from tests.soak.sink.results import open_transactions, read_topic, sink_faults
from tests.soak.stream_run import SoakError
from tests.soak.writer import Logged, Writer, add_partition, create_topic, quiet, read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.soak.continuous.plan import Delivery, Plan, Round
    from tests.soak.sink.brokers import Brokers
    from tests.soak.sink.plan import Delivery as SinkDelivery

APP = Path(__file__).with_name("app.py")
PARTITIONS = 3  # of each topic at first; one task has two
EPOCH_TIMEOUT = 5  # seconds
_RATE = 400  # records per second
_DEADLINE = 180.0  # seconds for each wait; starting Spark on a busy machine takes longest
_ORPHAN_TIMEOUT = 20.0  # seconds; tasks notice the end of their driver at once
_EPOCHS = 2  # that prove a recovery: the first one may have started before the fault
_MAX_RESTARTS = 1000
_MORE_DESCRIPTORS = 16  # allowed growth: connections to brokers that restarted
_TABLES = """
    CREATE TABLE positions (topic TEXT, part INTEGER, next INTEGER, PRIMARY KEY (topic, part));
    CREATE TABLE records (key BLOB, value BLOB);
"""
_LOCAL, _CLUSTER = "local[2]", "local-cluster[2,1,512]"


@dataclass
class Outcome:
    faults: Counter[str] = field(default_factory=Counter)
    records: int = 0
    epochs: int = 0
    duplicates: int = 0
    aborted: int = 0  # records of aborted transactions
    slowest: dict[str, float] = field(default_factory=dict)  # seconds until the recovery, by fault
    partitions: int = PARTITIONS


class ContinuousSoakRun:
    def __init__(
        self, plan: Plan, servers: str, folder: Path, brokers: Brokers | None, report: Callable[[str], None]
    ) -> None:
        folder.mkdir(parents=True)
        self._plan = plan
        self._folder = folder
        self._brokers = brokers
        self._report = report
        self._copy_query = CopyQuery(
            plan.delivery, servers, plan.epoch_ms, folder, replicas=1 if brokers is None else 3
        )
        self._driver: Driver | None = None
        self._windows: list[ReplayWindow] = []
        self._outcome = Outcome()
        self.resources = Resources()  # of the last driver

    def run(self) -> Outcome:
        """Inject all faults, run to the end, and check the output; raise ``SoakError`` for any violation."""
        query = self._copy_query
        query.create_topics()
        started_at = time.monotonic()
        try:
            with Writer(query.servers, [query.source], _RATE) as writer:
                self._start()
                self._progress("of the first driver", 1)
                for number, each in enumerate(self._rounds(started_at)):
                    recovery_seconds = self._round(each)
                    self._outcome.faults[each.fault] += 1
                    self._outcome.slowest[each.fault] = max(recovery_seconds, self._outcome.slowest.get(each.fault, 0))
                    elapsed = time.monotonic() - started_at
                    self._report(
                        f"  {number + 1}: {each.fault}, recovered after {recovery_seconds:.1f} s; "
                        f"epoch {self._last_epoch()}, {elapsed:.0f} s"
                    )
                written = writer.close()
            self._finish()
            outcome = self._outcome
            outcome.records = written
            outcome.epochs = self._last_epoch() + 1
            outcome.partitions = query.source_partitions
            outcome.duplicates, outcome.aborted = query.check(written, self._windows)
            if self._plan.seconds is not None and (growth := self.resources.growth()):
                raise SoakError("; ".join(growth))
        finally:
            if self._driver is not None:
                self._driver.kill()
                kill(self._driver.orphans)
        return self._outcome

    def _rounds(self, started_at: float) -> Iterator[Round]:
        seconds = self._plan.seconds
        for each in self._plan.rounds:
            elapsed = time.monotonic() - started_at
            if seconds is None or (elapsed < seconds and (each.fault not in ENDS_DRIVER or elapsed < seconds / 3)):
                yield each

    def _start(self) -> None:
        master = _CLUSTER if self._plan.cluster else _LOCAL
        self._driver = Driver(self._folder, self._copy_query.options(master), app=APP)
        self.resources = Resources()

    def _round(self, planned: Round) -> float:
        """Inject one fault, and return the seconds until the query has recovered."""
        self._progress("before the fault", 1)
        time.sleep(planned.delay)
        before = self._committed()
        started_at = time.monotonic()
        self._inject_fault(planned)
        self._progress(f"after the fault ({planned.fault})", _EPOCHS)
        recovery_seconds = time.monotonic() - started_at
        assert self._driver is not None
        self.resources.measure(self._driver.pid)
        times = _MAX_RESTARTS if planned.fault in ("broker", "leaders") else 1
        self._windows.append(ReplayWindow(before, self._copy_query.end_offsets(), times))
        return recovery_seconds

    def _inject_fault(self, planned: Round) -> None:
        driver = self._driver
        assert driver is not None
        assert driver.alive, driver.log_tail()
        if planned.fault == "driver":
            self._kill_driver(driver)
        elif planned.fault == "second driver":
            self._start_second_driver(driver)
        elif planned.fault == "partition":
            self._copy_query.add_partition()
        elif planned.fault == "worker":
            self._await(driver.kill_task_worker, "a task worker")
        elif planned.fault == "executor":
            self._await(lambda: kill(executors(driver.pid)[:1]) == 1, "an executor")
        elif planned.fault == "stall":
            self._stall(driver, planned.stall)
        else:
            assert self._brokers is not None
            if planned.fault == "broker":
                self._brokers.restart(planned.broker, clean=planned.clean)
            else:
                self._brokers.move_leaders()

    def _kill_driver(self, driver: Driver) -> None:
        """Kill the driver, start another one at once, and check that the processes of the first one end."""
        if self._plan.cluster:
            orphans = _kill_alone(driver)
        else:
            driver.kill()
            orphans = driver.orphans
        self._start()
        _check_ended(orphans)

    def _start_second_driver(self, first: Driver) -> None:
        """Start a driver with the checkpoint of a running one, which must end with an error that says so."""
        processes = psutil.Process(first.pid).children(recursive=True)
        self._start()
        self._await(lambda: not first.alive, "the first driver ends")
        log = first.log_tail()
        if first.wait(0) == 0 or "CheckpointFencedError" not in log:
            raise SoakError(f"the first driver did not end because of the second one:\n{log}")
        _check_ended(processes)

    def _stall(self, driver: Driver, seconds: float) -> None:
        """Suspend a worker, as if its machine stalled."""
        self._await(lambda: bool(task_workers(driver.pid)), "a task worker")
        worker = task_workers(driver.pid)[0]
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.suspend()
            time.sleep(seconds)
            worker.resume()

    def _finish(self) -> None:
        """Wait until everything is copied and committed, and stop the query."""
        ends = self._copy_query.end_offsets()
        self._await(lambda: self._committed() == ends, "all offsets are committed")
        (self._folder / "stop").touch()
        driver = self._driver
        assert driver is not None
        try:
            code = driver.wait(_DEADLINE)
        except subprocess.TimeoutExpired:
            raise SoakError(f"the query does not stop:\n{driver.log_tail()}") from None
        if code != 0:
            raise SoakError(f"the query failed, exit code {code}:\n{driver.log_tail()}")

    def _last_epoch(self) -> int:
        return last_batch(self._folder, "commits")

    def _committed(self) -> Mapping[int, int]:
        return committed(self._folder)

    def _progress(self, what: str, epochs: int) -> None:
        done = self._last_epoch()
        self._await(lambda: self._last_epoch() >= done + epochs, f"epochs {what}")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition while the driver runs."""
        driver = self._driver
        assert driver is not None
        deadline = time.monotonic() + _DEADLINE
        while not condition():
            if not driver.alive:
                raise SoakError(f"waiting for {what}: the query ended unexpectedly:\n{driver.log_tail()}")
            if time.monotonic() > deadline:
                raise SoakError(f"{what}: not within {_DEADLINE:.0f} s\n{driver.log_tail()}")
            time.sleep(0.005)


@dataclass
class Resources:
    """Memory in bytes and descriptors of a driver's Python process and of its JVM, after each round."""

    memory: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    descriptors: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def measure(self, pid: int) -> None:
        for name, process in (("Python", psutil.Process(pid)), ("JVM", jvm_of(pid))):
            self.memory[name].append(process.memory_info().rss)
            self.descriptors[name].append(process.num_fds())

    def growth(self) -> list[str]:
        """Return what has grown between the second fifth of the time and the last one."""
        found = [f"the driver's Python: {fault}" for fault in memory_faults(self.memory["Python"])]
        for name, counts in self.descriptors.items():
            fifth = max(1, len(counts) // 5)
            before, after = max(counts[: 2 * fifth]), max(counts[-fifth:])
            if after > before + _MORE_DESCRIPTORS:
                found.append(f"the driver's {name}: {after} descriptors, {before} before")
        return found

    def summary(self) -> str:
        """Return the first and the last values."""
        return ", ".join(
            f"{name} {sizes[0] >> 20} to {sizes[-1] >> 20} MiB and {counts[0]} to {counts[-1]} descriptors"
            for (name, sizes), counts in zip(self.memory.items(), self.descriptors.values(), strict=True)
        )


class CopyQuery:
    """The topics and options of a query that copies a topic, and with delivery "database" the database."""

    def __init__(self, delivery: Delivery, servers: str, epoch_ms: int, folder: Path, replicas: int = 1) -> None:
        self.servers = servers
        self._delivery = delivery
        self._epoch_ms = epoch_ms
        self._replicas = replicas
        self._name = f"continuous-{uuid.uuid4().hex[:8]}"
        self.source, self.target = f"{self._name}.source", f"{self._name}.target"
        self.source_partitions = PARTITIONS
        self._database = folder / "records.sqlite" if delivery == "database" else None

    def create_topics(self) -> None:
        """Create the topics, and the tables of the database."""
        if self._database is not None:
            with closing(sqlite3.connect(self._database)) as connection:
                connection.executescript(_TABLES)
        for topic in (self.source, self.target):
            create_topic(self.servers, topic, PARTITIONS, self._replicas)

    def add_partition(self) -> None:
        add_partition(self.servers, self.source, self.source_partitions)
        self.source_partitions += 1

    def options(self, master: str) -> dict[str, Any]:
        # Small record batches: some are sent before the end of an epoch.
        sink = {"kafka.batch.size": "1000"}
        if self._delivery == "exactly-once":
            sink |= {"deliveryGuarantee": self._delivery, "transactionalIdPrefix": self._name}
        return {
            "master": master,
            "source": {
                "kafka.bootstrap.servers": self.servers,
                "subscribe": self.source,
                "startingOffsets": "earliest",
            },
            "topic": self.target,
            "sink": sink,
            "database": None if self._database is None else str(self._database),
            "start": {
                "epochInterval": f"{self._epoch_ms} milliseconds",
                "tasksMax": 2,
                "epochTimeout": EPOCH_TIMEOUT,
                "maxRestarts": _MAX_RESTARTS,
            },
        }

    def end_offsets(self) -> dict[int, int]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "soak"}, logger=quiet())
        try:
            partitions = [TopicPartition(self.source, number) for number in range(self.source_partitions)]
            return {each.partition: consumer.get_watermark_offsets(each, timeout=60)[1] for each in partitions}
        finally:
            consumer.close()

    def check(self, written: int, windows: list[ReplayWindow]) -> tuple[int, int]:
        """Compare both topics; return the numbers of duplicates and of aborted records."""
        originals = read_log(self.servers, self.source, self.source_partitions)
        if sorted(int(each.value) for each in originals) != list(range(written)):
            raise SoakError("the source does not have each written record once; this is not an error of the query")
        faults = open_transactions(self.servers, self.target, PARTITIONS)
        copied = read_topic(self.servers, self.target, PARTITIONS) if self._database is None else self._stored()
        guarantee: SinkDelivery = "at-least-once" if self._delivery == "at-least-once" else "exactly-once"
        faults += sink_faults(copied, originals, guarantee, ordered=True)
        faults += unexpected_duplicates(copied, originals, windows)
        if faults:
            raise SoakError("; ".join(faults))
        committed_only = copied if self._database is None else []
        everything = read_topic(self.servers, self.target, PARTITIONS, "read_uncommitted")
        return len(copied) - len(originals), len(everything) - len(committed_only)

    def _stored(self) -> list[Logged]:
        """Return the rows of the database, in the order in which they were stored."""
        assert self._database is not None
        with closing(sqlite3.connect(self._database)) as connection:
            rows = connection.execute("SELECT key, value FROM records ORDER BY rowid").fetchall()
        return [Logged(self.target, 0, number, key, value, 0) for number, (key, value) in enumerate(rows)]


def committed(folder: Path) -> Mapping[int, int]:
    """Return the next offset to read by partition, of the last committed epoch of a checkpoint."""
    offsets = ends_of(folder, last_batch(folder, "commits")) or {}
    return {partition: offset for (_, partition), offset in offsets.items()}


def _check_ended(orphans: list[psutil.Process]) -> None:
    left = wait_until_ended(orphans, _ORPHAN_TIMEOUT)
    if left:
        descriptions = [_describe(each) for each in left]
        kill(left)
        raise SoakError(
            f"{_ORPHAN_TIMEOUT:.0f} s after the end of their driver, these processes still ran: {descriptions}"
        )


def _kill_alone(driver: Driver) -> list[psutil.Process]:
    """``kill -9`` the driver's Python and JVM, but not the executors, which run elsewhere on a cluster; return all
    their child processes.
    """
    os.killpg(driver.pid, signal.SIGSTOP)
    python = psutil.Process(driver.pid)
    jvms = python.children()
    orphans = [each for each in python.children(recursive=True) if each not in jvms]
    kill([python, *jvms])
    for each in orphans:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.resume()
    driver.wait(30)
    return orphans


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return str(process.pid)
