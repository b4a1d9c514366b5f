"""The life of one continuous query: hurt as planned, started again from its checkpoint, run to its end, checked."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from tests.soak.continuous.results import Window, unexpected_doubles
from tests.soak.driver import Driver
from tests.soak.processes import executors, kill, task_workers, wait_until_gone
from tests.soak.query import SoakError
from tests.soak.results import ends_of, last_batch
from tests.soak.sink.results import open_transactions, read_topic, sink_faults
from tests.soak.writer import Writer, create_topic, quiet, read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.soak.continuous.plan import Plan, Round
    from tests.soak.sink.brokers import Brokers
    from tests.soak.sink.plan import Delivery

APP = Path(__file__).with_name("app.py")
PARTITIONS = 3  # of the source's topic, and of the target's; one task has two
EPOCH_TIMEOUT = 5  # seconds
_RATE = 400  # records a second
_DEADLINE = 180.0  # seconds for anything to happen; starting Spark on a busy machine is the longest
_ORPHANS_END_WITHIN = 20.0  # seconds; tasks notice at once that their driver is gone
_EPOCHS = 2  # that show that a query works: the first one may have been under way before
_MANY = 1000  # restarts that the brokers of this soak may cause
_LOCAL, _CLUSTER = "local[2]", "local-cluster[2,1,512]"


@dataclass
class Outcome:
    """How it went.

    Attributes:
        deeds: What was done.
        records: How many records were copied.
        epochs: In how many epochs.
        doubles: Copies beyond the first of each record; none with exactly-once.
        aborted: Records of transactions that were not committed.
        slowest: Seconds from a deed until the query worked again, by deed.
    """

    deeds: Counter[str] = field(default_factory=Counter)
    records: int = 0
    epochs: int = 0
    doubles: int = 0
    aborted: int = 0
    slowest: dict[str, float] = field(default_factory=dict)


class ContinuousRun:
    """Carries out a plan.

    Args:
        plan: What to do.
        servers: Bootstrap servers.
        folder: Checkpoint and logs go here.
        brokers: What can be done to the brokers; ``None``: nothing, and the plan has nothing of the kind.
        say: Told what happens, a line at a time.
    """

    def __init__(
        self, plan: Plan, servers: str, folder: Path, brokers: Brokers | None, say: Callable[[str], None]
    ) -> None:
        folder.mkdir(parents=True)
        self._plan = plan
        self._folder = folder
        self._brokers = brokers
        self._say = say
        self._copy = Copy(plan.delivery, servers, plan.epoch_ms, replicas=1 if brokers is None else 3)
        self._driver: Driver | None = None
        self._windows: list[Window] = []
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Do what is planned, run to the end, check.

        Raises:
            SoakError: A record is missing, or there again though its epoch was committed; or the query failed for good,
                or a process outlived its driver.
        """
        copy = self._copy
        copy.create_topics()
        began = time.monotonic()
        try:
            with Writer(copy.servers, [copy.source], _RATE) as writer:
                self._start()
                self._progress("of the first driver", 1)
                for number, each in enumerate(self._plan.rounds):
                    took = self._round(each)
                    self._outcome.deeds[each.deed] += 1
                    self._outcome.slowest[each.deed] = max(took, self._outcome.slowest.get(each.deed, 0))
                    passed = time.monotonic() - began
                    self._say(
                        f"  {number + 1}: {each.deed}, works after {took:.1f} s; epoch {self._done()}, {passed:.0f} s"
                    )
                written = writer.close()
            self._finish()
            outcome = self._outcome
            outcome.records = written
            outcome.epochs = self._done() + 1
            outcome.doubles, outcome.aborted = copy.check(written, self._windows)
        finally:
            if self._driver is not None:
                self._driver.kill()
                kill(self._driver.orphans)
        return self._outcome

    def _start(self) -> Driver:
        master = _CLUSTER if self._plan.cluster else _LOCAL
        self._driver = Driver(self._folder, self._copy.options(master), app=APP)
        return self._driver

    def _round(self, planned: Round) -> float:
        """Do one deed, and wait until the query works again; returns the seconds that took."""
        self._progress("before the deed", 1)
        time.sleep(planned.delay)
        before = self._committed()
        began = time.monotonic()
        self._strike(planned)
        self._progress(f"after the deed ({planned.deed})", _EPOCHS)
        took = time.monotonic() - began
        times = _MANY if planned.deed in ("broker", "leaders") else 1
        self._windows.append(Window(before, self._copy.ends(), times))
        return took

    def _strike(self, planned: Round) -> None:
        driver = self._driver
        assert driver is not None
        assert driver.alive, driver.last_words()
        if planned.deed == "driver":
            self._kill_driver(driver)
        elif planned.deed == "worker":
            self._await(driver.kill_task_worker, "a task worker")
        elif planned.deed == "executor":
            self._await(lambda: kill(executors(driver.pid)[:1]) == 1, "an executor")
        elif planned.deed == "stall":
            self._stall(driver, planned.hold)
        else:
            assert self._brokers is not None
            if planned.deed == "broker":
                self._brokers.restart(planned.broker, clean=planned.clean)
            else:
                self._brokers.move_leaders()

    def _kill_driver(self, driver: Driver) -> None:
        """Kill the driver, start another one at once, and see that what belonged to the first one ends by itself."""
        if self._plan.cluster:
            orphans = _kill_alone(driver)
        else:
            driver.kill()
            orphans = driver.orphans
        self._start()
        left = wait_until_gone(orphans, _ORPHANS_END_WITHIN)
        if left:
            told = [_described(each) for each in left]
            kill(left)
            raise SoakError(f"{_ORPHANS_END_WITHIN:.0f} s after their driver's death these still ran: {told}")

    def _stall(self, driver: Driver, seconds: float) -> None:
        """Hold a worker, as a machine that stands still would."""
        self._await(lambda: bool(task_workers(driver.pid)), "a task worker")
        worker = task_workers(driver.pid)[0]
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.suspend()
            time.sleep(seconds)
            worker.resume()

    def _finish(self) -> None:
        """Wait until all is copied and committed, and stop the query."""
        ends = self._copy.ends()
        self._await(lambda: self._committed() == ends, "all to be committed")
        (self._folder / "stop").touch()
        driver = self._driver
        assert driver is not None
        try:
            code = driver.wait(_DEADLINE)
        except subprocess.TimeoutExpired:
            raise SoakError(f"the query does not stop:\n{driver.last_words()}") from None
        if code != 0:
            raise SoakError(f"the query failed, exit code {code}:\n{driver.last_words()}")

    def _done(self) -> int:
        return last_batch(self._folder, "commits")

    def _committed(self) -> Mapping[int, int]:
        return committed(self._folder)

    def _progress(self, what: str, epochs: int) -> None:
        done = self._done()
        self._await(lambda: self._done() >= done + epochs, f"epochs {what}")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        """Wait while the driver runs.

        Raises:
            SoakError: It ended, or it did not happen in time.
        """
        driver = self._driver
        assert driver is not None
        deadline = time.monotonic() + _DEADLINE
        while not condition():
            if not driver.alive:
                raise SoakError(f"waiting for {what}: the query ended by itself:\n{driver.last_words()}")
            if time.monotonic() > deadline:
                raise SoakError(f"{what}: not within {_DEADLINE:.0f} s\n{driver.last_words()}")
            time.sleep(0.005)


class Copy:
    """A topic and its copy, and what the query that makes it is told.

    Args:
        delivery: What the query promises.
        servers: Bootstrap servers.
        epoch_ms: How long an epoch lasts.
        replicas: Of the topics.
    """

    def __init__(self, delivery: Delivery, servers: str, epoch_ms: int, replicas: int = 1) -> None:
        self.servers = servers
        self._delivery = delivery
        self._epoch_ms = epoch_ms
        self._replicas = replicas
        self._name = f"continuous-{uuid.uuid4().hex[:8]}"
        self.source, self.target = f"{self._name}.source", f"{self._name}.target"

    def create_topics(self) -> None:
        """Create them, empty."""
        for topic in (self.source, self.target):
            create_topic(self.servers, topic, PARTITIONS, self._replicas)

    def options(self, master: str) -> dict[str, Any]:
        """What the application is told."""
        # Small record batches, so that some are sent before an epoch ends.
        sink = {"kafka.batch.size": "1000"}
        if self._delivery == "exactly-once":
            sink |= {"delivery": self._delivery, "transactionalIdPrefix": self._name}
        return {
            "master": master,
            "source": {
                "kafka.bootstrap.servers": self.servers,
                "subscribe": self.source,
                "startingOffsets": "earliest",
            },
            "topic": self.target,
            "sink": sink,
            "start": {
                "epochInterval": f"{self._epoch_ms} milliseconds",
                "tasksMax": 2,
                "epochTimeout": EPOCH_TIMEOUT,
                "maxRestarts": _MANY,
            },
        }

    def ends(self) -> dict[int, int]:
        """Where the source ends, by partition."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "soak"}, logger=quiet())
        try:
            places = [TopicPartition(self.source, partition) for partition in range(PARTITIONS)]
            return {place.partition: consumer.get_watermark_offsets(place, timeout=60)[1] for place in places}
        finally:
            consumer.close()

    def check(self, written: int, windows: list[Window]) -> tuple[int, int]:
        """Compare both topics; returns how many copies are doubles, and how many records were aborted.

        Raises:
            SoakError: They differ in another way than they may.
        """
        originals = read_log(self.servers, self.source, PARTITIONS)
        if sorted(int(each.value) for each in originals) != list(range(written)):
            raise SoakError("the source does not hold what was written, each record once; not the query's fault")
        found = open_transactions(self.servers, self.target, PARTITIONS)
        copied = read_topic(self.servers, self.target, PARTITIONS)
        found += sink_faults(copied, originals, self._delivery, ordered=True)
        found += unexpected_doubles(copied, originals, windows)
        if found:
            raise SoakError("; ".join(found))
        everything = read_topic(self.servers, self.target, PARTITIONS, "read_uncommitted")
        return len(copied) - len(originals), len(everything) - len(copied)


def committed(folder: Path) -> Mapping[int, int]:
    """The next offset to read by partition, of the last epoch that a checkpoint has committed."""
    offsets = ends_of(folder, last_batch(folder, "commits")) or {}
    return {partition: offset for (_, partition), offset in offsets.items()}


def _kill_alone(driver: Driver) -> list[psutil.Process]:
    """``kill -9`` Python and the JVM of the driver, not its executors: on a cluster these are elsewhere.

    Returns all that lived below them.
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


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return str(process.pid)
