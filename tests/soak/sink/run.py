"""Runs one query that writes to Kafka: injects the planned faults, runs it to its end, and checks the output."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from tests.soak.driver import Driver, wait_for_orphans
from tests.soak.processes import executor_of, executors, kill, wait_until_ended
from tests.soak.results import last_batch
from tests.soak.sink.breakpoints import Breakpoint
from tests.soak.sink.hook.sitecustomize import STEPS
from tests.soak.sink.plan import SPARKS_COMMIT
from tests.soak.sink.results import open_transactions, read_topic, sink_faults
from tests.soak.stream_run import SoakError
from tests.soak.writer import Writer, create_topic, read_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.soak.sink.brokers import Brokers
    from tests.soak.sink.plan import Plan, Round

APP = Path(__file__).with_name("app.py")
PARTITIONS = 3  # of each topic
_PER_BATCH = 300
_PER_BATCH_AT_THE_END = 5_000
_DEADLINE = 180.0  # seconds for each wait; starting Spark on a busy machine takes longest
_ZOMBIE_TIMEOUT = 150.0  # seconds; a task notices the end of its driver when it reports to it
_BEFORE_FENCING = ("committing", "before InitProducerId")  # a process resumed there acquires the transactional id
_CLUSTER = "local-cluster[2,1,512]"


@dataclass
class Outcome:
    faults: Counter[str] = field(default_factory=Counter)
    drivers: int = 0  # killed
    fenced: int = 0  # drivers fenced by a process of an earlier driver
    records: int = 0
    batches: int = 0
    duplicates: int = 0
    aborted: int = 0  # records of aborted transactions


class SinkRun:
    def __init__(
        self, plan: Plan, servers: str, folder: Path, brokers: Brokers | None, report: Callable[[str], None]
    ) -> None:
        folder.mkdir(parents=True)
        self._plan = plan
        self._servers = servers
        self._folder = folder
        self._brokers = brokers
        self._report = report
        self._name = f"sink-{uuid.uuid4().hex[:8]}"
        self._source, self._target = f"{self._name}.source", f"{self._name}.target"
        self._breakpoint = Breakpoint(folder / "breakpoint")
        self._driver: Driver | None = None
        self._master = plan.master
        self._orphans: list[psutil.Process] = []
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Inject all faults, run to the end, and check the output; raise ``SoakError`` for any violation."""
        self._create_topics()
        started_at = time.monotonic()
        try:
            with Writer(self._servers, [self._source], self._plan.rate) as writer:
                for number, each in enumerate(self._plan.rounds):
                    self._round(each)
                    self._outcome.faults[f"{each.fault}, {each.step or 'at random'}"] += 1
                    where = f"{each.fault}, {each.step or 'at random'}; batch {self._done()}"
                    self._report(f"  {number + 1}: {where}, {time.monotonic() - started_at:.0f} s")
                written = writer.close()
            self._kill_driver()
            self._finish()
            self._check(written)
        finally:
            self._breakpoint.release()
            self._kill_driver()
            left = wait_for_orphans(self._orphans)
            if left:
                self._report(f"  processes {left} outlived their driver and were killed")
        return self._outcome

    def _create_topics(self) -> None:
        replicas = 1 if self._brokers is None else 3
        for topic in (self._source, self._target):
            create_topic(self._servers, topic, PARTITIONS, replicas)

    def _options(self, *, master: str, max_offsets: int) -> dict[str, Any]:
        source = {
            "kafka.bootstrap.servers": self._servers,
            "subscribe": self._source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(max_offsets),
        }
        sink = {
            "kafka.bootstrap.servers": self._servers,
            "topic": self._target,
            "kafka.compression.type": self._plan.codec,
            "kafka.batch.size": "1000",  # so that a task has several record batches for each partition
        }
        if self._plan.delivery == "exactly-once":
            sink |= self._exactly_once()
        return {"source": source, "sink": sink, "master": master, "shuffled": self._plan.shuffled}

    def _exactly_once(self) -> dict[str, str]:
        options = {
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": self._name,
            "sinkStateTopic": f"{self._name}.sink-state",
        }
        if self._plan.staging == "messages":
            return options
        return {**options, "stagingLocation": (self._folder / "staging").as_uri(), "stagingThreshold": "1000"}

    def _start(self, master: str | None = None) -> Driver:
        master = master or self._plan.master
        options = self._options(master=master, max_offsets=_PER_BATCH)
        self._driver = Driver(self._folder, options, app=APP, environment=self._breakpoint.environment)
        self._master = master
        return self._driver

    def _round(self, planned: Round) -> None:
        """Inject one fault, into the running driver or a new one."""
        before = self._done()
        if planned.fault == "executor" and self._master != _CLUSTER:
            self._kill_driver()
        if planned.batches == 0:
            self._arm(planned)
        driver = self._driver or self._start(_CLUSTER if planned.fault == "executor" else None)
        if planned.batches:
            self._await(lambda: self._done() >= before + planned.batches, "batches")
            self._arm(planned)
        held = self._reach(planned)
        try:
            continues = self._inject_fault(planned, driver, held)
        finally:
            self._breakpoint.release()
        if continues:
            self._progress(f"after the fault ({planned.fault}, {planned.step})")

    def _arm(self, planned: Round) -> None:
        if planned.step in STEPS:
            self._breakpoint.arm(planned.step, skip=planned.skip, outlives=planned.fault == "zombie")

    def _reach(self, planned: Round) -> int | None:
        """Wait for the moment of the fault; return the suspended process."""
        if planned.step is None:
            time.sleep(planned.delay)
            return None
        if planned.step == SPARKS_COMMIT:
            done = self._done()
            self._await(lambda: self._done() > done, "Spark's commit")
            return None
        self._await(lambda: self._breakpoint.held is not None, planned.step)
        return self._breakpoint.held

    def _inject_fault(self, planned: Round, driver: Driver, held: int | None) -> bool:
        """Inject the fault; return whether the query must continue."""
        assert driver.alive, driver.log_tail()
        if planned.fault == "driver":
            self._kill_driver()
            if held is not None:
                kill([psutil.Process(held)] if psutil.pid_exists(held) else [])
            return False
        if planned.fault == "zombie":
            assert held is not None
            self._zombie(planned, held)
            return True
        if planned.fault == "process":
            return self._kill_process(planned, driver, held)
        if planned.fault == "executor":
            self._kill_executor(driver, held)
        else:
            assert self._brokers is not None
            if planned.fault == "broker":
                self._brokers.restart(planned.broker, clean=planned.clean)
            else:
                self._brokers.move_leaders()
        return True

    def _zombie(self, planned: Round, held: int) -> None:
        """Kill the driver, run another one, and then resume the suspended process."""
        zombie = psutil.Process(held)
        self._kill_driver()
        self._start()
        self._progress("of the new driver")
        assert zombie.is_running(), "the suspended process has ended"
        self._breakpoint.release()
        if wait_until_ended([zombie], _ZOMBIE_TIMEOUT):
            raise SoakError(f"a process of a killed driver still runs after {_ZOMBIE_TIMEOUT:.0f} s")
        if planned.step in _BEFORE_FENCING and self._plan.delivery == "exactly-once":
            self._restart_if_fenced()

    def _restart_if_fenced(self) -> None:
        """A zombie that acquires the transactional id is rejected later, but aborts the batch of the new driver."""
        driver, done = self._driver, self._done()
        assert driver is not None
        deadline = time.monotonic() + _DEADLINE
        while driver.alive and self._done() == done and time.monotonic() < deadline:
            time.sleep(0.01)
        if not driver.alive:
            if "FencedError" not in driver.log_tail():
                raise SoakError(f"the query ended unexpectedly:\n{driver.log_tail()}")
            self._outcome.fenced += 1
            self._start()

    def _kill_process(self, planned: Round, driver: Driver, held: int | None) -> bool:
        """Kill the suspended process, or a task worker; return whether the query must continue."""
        if held is None:
            self._await(driver.kill_task_worker, "a task worker")
            return True
        kill([psutil.Process(held)])
        if planned.step is None or STEPS[planned.step].where == "task":
            return True
        try:
            code = driver.wait(_DEADLINE)
        except subprocess.TimeoutExpired:
            raise SoakError(
                f"the query continued or hung when its commit step was killed:\n{driver.log_tail()}"
            ) from None
        if code == 0:
            raise SoakError("the query ended without an error when its commit step was killed")
        self._driver = None
        return False

    def _kill_executor(self, driver: Driver, held: int | None) -> None:
        if held is None:
            self._await(lambda: kill(executors(driver.pid)[:1]) == 1, "an executor")
            return
        executor = executor_of(held)
        assert executor is not None, "the suspended process has no executor"
        kill([executor])

    def _finish(self) -> None:
        options = self._options(master=self._plan.master, max_offsets=_PER_BATCH_AT_THE_END)
        self._driver = driver = Driver(self._folder, options, app=APP, to_the_end=True)
        try:
            code = driver.wait(2 * _DEADLINE)
        except subprocess.TimeoutExpired:
            raise SoakError(f"the query does not end:\n{driver.log_tail()}") from None
        if code != 0:
            raise SoakError(f"the query failed, exit code {code}:\n{driver.log_tail()}")

    def _check(self, written: int) -> None:
        originals = read_log(self._servers, self._source, PARTITIONS)
        if sorted(int(each.value) for each in originals) != list(range(written)):
            raise SoakError("the source does not have each written record once; this is not an error of the sink")
        copied = read_topic(self._servers, self._target, PARTITIONS)
        problems = open_transactions(self._servers, self._target, PARTITIONS)
        problems += sink_faults(copied, originals, self._plan.delivery, ordered=not self._plan.shuffled)
        if problems:
            raise SoakError("; ".join(problems))
        everything = read_topic(self._servers, self._target, PARTITIONS, "read_uncommitted")
        outcome = self._outcome
        outcome.records, outcome.batches = len(originals), last_batch(self._folder, "commits") + 1
        outcome.duplicates, outcome.aborted = len(copied) - len(originals), len(everything) - len(copied)

    def _kill_driver(self) -> None:
        if self._driver is not None:
            self._outcome.drivers += self._driver.alive
            self._driver.kill()
            self._orphans += self._driver.orphans
            self._driver = None

    def _done(self) -> int:
        return last_batch(self._folder, "commits")

    def _progress(self, what: str) -> None:
        done = self._done()
        self._await(lambda: self._done() > done, f"a batch {what}")

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
