"""The life of one query that writes: killed as planned, started again from its checkpoint, run to its end, checked."""

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
from tests.soak.processes import executor_of, executors, kill, wait_until_gone
from tests.soak.query import SoakError
from tests.soak.results import last_batch
from tests.soak.sink.hold import Hold
from tests.soak.sink.hook.sitecustomize import STEPS
from tests.soak.sink.plan import SPARKS_COMMIT
from tests.soak.sink.results import open_transactions, read_topic, sink_faults
from tests.soak.writer import Writer, create_topic, read_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.soak.sink.brokers import Brokers
    from tests.soak.sink.plan import Plan, Round

APP = Path(__file__).with_name("app.py")
PARTITIONS = 3  # of the source's topic, and of the sink's
_RATE = 150  # records a second
_PER_BATCH = 300
_PER_BATCH_AT_THE_END = 5_000
_DEADLINE = 180.0  # seconds for anything to happen; starting Spark on a busy machine is the longest
_ZOMBIES_END_WITHIN = 150.0  # seconds; a task notices when it reports that its driver is gone
_TAKES_OVER = ("committing", "before InitProducerId")  # what is held there goes on to take the transactional id over
_LOCAL, _CLUSTER = "local[2,4]", "local-cluster[2,1,512]"


@dataclass
class Outcome:
    """How it went.

    Attributes:
        deeds: What was done, by deed and step.
        drivers: How many drivers were killed.
        fenced: How many drivers were fenced by a process of a driver before.
        records: How many records were copied.
        batches: In how many batches.
        doubles: Copies beyond the first of each record; none with exactly-once.
        aborted: Records of transactions that were not committed.
    """

    deeds: Counter[str] = field(default_factory=Counter)
    drivers: int = 0
    fenced: int = 0
    records: int = 0
    batches: int = 0
    doubles: int = 0
    aborted: int = 0


class SinkRun:
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
        self._servers = servers
        self._folder = folder
        self._brokers = brokers
        self._say = say
        self._name = f"sink-{uuid.uuid4().hex[:8]}"
        self._source, self._target = f"{self._name}.source", f"{self._name}.target"
        self._hold = Hold(folder / "hold")
        self._driver: Driver | None = None
        self._master = _LOCAL
        self._orphans: list[psutil.Process] = []
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Do what is planned, run to the end, check.

        Raises:
            SoakError: A record is missing, or there twice, or the query failed without having been hurt.
        """
        self._create_topics()
        began = time.monotonic()
        try:
            with Writer(self._servers, [self._source], _RATE) as writer:
                for number, each in enumerate(self._plan.rounds):
                    self._round(each)
                    self._outcome.deeds[f"{each.deed}, {each.step or 'at random'}"] += 1
                    where = f"{each.deed}, {each.step or 'at random'}; batch {self._done()}"
                    self._say(f"  {number + 1}: {where}, {time.monotonic() - began:.0f} s")
                written = writer.close()
            self._kill_driver()
            self._finish()
            self._check(written)
        finally:
            self._hold.release()
            self._kill_driver()
            left = wait_for_orphans(self._orphans)
            if left:
                self._say(f"  processes {left} outlived their driver and were killed")
        return self._outcome

    def _create_topics(self) -> None:
        replicas = 1 if self._brokers is None else 3
        for topic in (self._source, self._target, *([self._staging] if self._plan.staging == "topic" else [])):
            create_topic(self._servers, topic, PARTITIONS, replicas)

    @property
    def _staging(self) -> str:
        return f"{self._name}.staging"

    def _options(self, *, master: str, at_once: int) -> dict[str, Any]:
        source = {
            "kafka.bootstrap.servers": self._servers,
            "subscribe": self._source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(at_once),
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
            "delivery": "exactly-once",
            "transactionalIdPrefix": self._name,
            "markerTopic": f"{self._name}.markers",
        }
        if self._plan.staging == "messages":
            return options
        location = f"topic:{self._staging}" if self._plan.staging == "topic" else (self._folder / "staging").as_uri()
        return {**options, "stagingLocation": location, "stagingThreshold": "1000"}

    def _start(self, master: str = _LOCAL) -> Driver:
        options = self._options(master=master, at_once=_PER_BATCH)
        self._driver = Driver(self._folder, options, app=APP, environment=self._hold.environment)
        self._master = master
        return self._driver

    def _round(self, planned: Round) -> None:
        """Do one deed, to the driver that runs or to a new one."""
        before = self._done()
        if planned.deed == "executor" and self._master != _CLUSTER:
            self._kill_driver()
        if planned.batches == 0:
            self._arm(planned)
        driver = self._driver or self._start(_CLUSTER if planned.deed == "executor" else _LOCAL)
        if planned.batches:
            self._await(lambda: self._done() >= before + planned.batches, "batches")
            self._arm(planned)
        held = self._reach(planned)
        try:
            lives_on = self._strike(planned, driver, held)
        finally:
            self._hold.release()
        if lives_on:
            self._progress(f"after the deed ({planned.deed}, {planned.step})")

    def _arm(self, planned: Round) -> None:
        if planned.step in STEPS:
            self._hold.arm(planned.step, skip=planned.skip, outlives=planned.deed == "zombie")

    def _reach(self, planned: Round) -> int | None:
        """Wait for the moment; returns the process that is held."""
        if planned.step is None:
            time.sleep(planned.delay)
            return None
        if planned.step == SPARKS_COMMIT:
            done = self._done()
            self._await(lambda: self._done() > done, "Spark's commit")
            return None
        self._await(lambda: self._hold.held is not None, planned.step)
        return self._hold.held

    def _strike(self, planned: Round, driver: Driver, held: int | None) -> bool:
        """Do the deed; tells whether the query must live on."""
        assert driver.alive, driver.last_words()
        if planned.deed == "driver":
            self._kill_driver()
            if held is not None:
                kill([psutil.Process(held)] if psutil.pid_exists(held) else [])
            return False
        if planned.deed == "zombie":
            assert held is not None
            self._zombie(planned, held)
            return True
        if planned.deed == "process":
            return self._kill_process(planned, driver, held)
        if planned.deed == "executor":
            self._kill_executor(driver, held)
        else:
            assert self._brokers is not None
            if planned.deed == "broker":
                self._brokers.restart(planned.broker, clean=planned.clean)
            else:
                self._brokers.move_leaders()
        return True

    def _zombie(self, planned: Round, held: int) -> None:
        """Kill the driver, let another one work, and then let the process go on that was held."""
        zombie = psutil.Process(held)
        self._kill_driver()
        self._start()
        self._progress("of the new driver")
        assert zombie.is_running(), "the process that was held is gone"
        self._hold.release()
        if wait_until_gone([zombie], _ZOMBIES_END_WITHIN):
            raise SoakError(f"a process of a driver that was killed still runs after {_ZOMBIES_END_WITHIN:.0f} s")
        if planned.step in _TAKES_OVER and self._plan.delivery == "exactly-once":
            self._go_on_if_fenced()

    def _go_on_if_fenced(self) -> None:
        """A zombie that takes the transactional id over is refused then, and ends the batch that is being sent."""
        driver, done = self._driver, self._done()
        assert driver is not None
        deadline = time.monotonic() + _DEADLINE
        while driver.alive and self._done() == done and time.monotonic() < deadline:
            time.sleep(0.01)
        if not driver.alive:
            if "FencedError" not in driver.last_words():
                raise SoakError(f"the query ended by itself:\n{driver.last_words()}")
            self._outcome.fenced += 1
            self._start()

    def _kill_process(self, planned: Round, driver: Driver, held: int | None) -> bool:
        """Kill the process that is held, or some task worker."""
        if held is None:
            self._await(driver.kill_task_worker, "a task worker")
            return True
        kill([psutil.Process(held)])
        if planned.step is None or STEPS[planned.step].where == "task":
            return True
        try:
            code = driver.wait(_DEADLINE)
        except subprocess.TimeoutExpired:
            raise SoakError(f"the query went on, or hung, when its commit step died:\n{driver.last_words()}") from None
        if code == 0:
            raise SoakError("the query ended without an error when its commit step died")
        self._driver = None
        return False

    def _kill_executor(self, driver: Driver, held: int | None) -> None:
        if held is None:
            self._await(lambda: kill(executors(driver.pid)[:1]) == 1, "an executor")
            return
        executor = executor_of(held)
        assert executor is not None, "the process that is held has no executor"
        kill([executor])

    def _finish(self) -> None:
        options = self._options(master=_LOCAL, at_once=_PER_BATCH_AT_THE_END)
        self._driver = driver = Driver(self._folder, options, app=APP, to_the_end=True)
        try:
            code = driver.wait(2 * _DEADLINE)
        except subprocess.TimeoutExpired:
            raise SoakError(f"the query does not come to its end:\n{driver.last_words()}") from None
        if code != 0:
            raise SoakError(f"the query failed, exit code {code}:\n{driver.last_words()}")

    def _check(self, written: int) -> None:
        originals = read_log(self._servers, self._source, PARTITIONS)
        if sorted(int(each.value) for each in originals) != list(range(written)):
            raise SoakError("the source does not hold what was written, each record once; not the sink's fault")
        copied = read_topic(self._servers, self._target, PARTITIONS)
        found = open_transactions(self._servers, self._target, PARTITIONS)
        found += sink_faults(copied, originals, self._plan.delivery, ordered=not self._plan.shuffled)
        if found:
            raise SoakError("; ".join(found))
        everything = read_topic(self._servers, self._target, PARTITIONS, "read_uncommitted")
        outcome = self._outcome
        outcome.records, outcome.batches = len(originals), last_batch(self._folder, "commits") + 1
        outcome.doubles, outcome.aborted = len(copied) - len(originals), len(everything) - len(copied)

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
