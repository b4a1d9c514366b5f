"""Kill examples/exactly_once_sqlite.py again and again, and compare its database: ``make soak-direct ROUNDS=30``."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.soak.driver import wait_for_orphans

from pyspark_kafka_direct.broker import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Callable

APP = Path(__file__).parents[2] / "examples" / "exactly_once_sqlite.py"

_PARTITIONS = 3
_ORIGINS = ("EWR", "JFK", "LGA")
_RECORDS_PER_TICK = 100
_TICK_S = 0.1
_PATIENCE_S = 300.0
_AT_ONCE = 0.25  # of the kills come whether or not the driver has stored anything yet
_START_S, _RUNNING_S = 15.0, 2.5  # the latest kill after a start, and after the first batch that a life has stored


@dataclass
class Outcome:
    """What a run has seen.

    Attributes:
        kills: How often the driver was killed before it had stored a batch in that life, and after.
        records: How many records there were at the end.
    """

    kills: Counter[str] = field(default_factory=Counter)
    records: int = 0


class ExactlyOnceRun:
    """One database, and a driver that is killed while records come in.

    Args:
        servers: Of the Kafka; the topic is made.
        folder: For the database and the log.
        seed: The moments of the kills follow from it.
        say: Is told what happens.
    """

    def __init__(self, servers: str, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self.database = folder / "delays.sqlite"
        self._servers = servers
        self._folder = folder
        self._draw = random.Random(seed)
        self._say = say
        self._topic = f"exactly-once-{uuid.uuid4().hex[:8]}"
        self._log = folder / "driver.log"

    def run(self, kills: int) -> Outcome:
        """Kill so often, then read to the end and compare.

        Raises:
            AssertionError: Something is missing or there twice, or a driver ended by itself or stored nothing in time.
        """
        admin = AdminClient({"bootstrap.servers": self._servers})
        admin.create_topics([NewTopic(self._topic, _PARTITIONS, 1)])[self._topic].result(30)
        outcome = Outcome()
        with Writer(self._servers, self._topic, self._draw.randrange(1 << 30)) as writer:
            for _ in range(kills):
                outcome.kills[self._life()] += 1
        outcome.records = sum(writer.ends.values())
        self._say(f"  {outcome.kills.total()} kills {dict(outcome.kills)}; {outcome.records} records; reading the rest")
        process = self._start()
        try:
            self._wait(process, lambda: sum(self._offsets().values()) >= outcome.records, "all records")
        finally:
            _kill(process)
        assert self._offsets() == dict(writer.ends)
        assert self._delays() == {origin: tuple(sums) for origin, sums in writer.sums.items()}
        return outcome

    def _life(self) -> str:
        """Start the driver and kill it; tells whether it had stored something."""
        before = self._offsets()
        at_once = self._draw.random() < _AT_ONCE
        delay = self._draw.uniform(0, _START_S if at_once else _RUNNING_S)
        process = self._start()
        try:
            if not at_once:
                self._wait(process, lambda: self._offsets() != before, "a batch")
            time.sleep(delay)
            assert process.poll() is None, self._last_words()
        finally:
            _kill(process)
        stored = sum(self._offsets().values())
        self._say(f"  killed at {stored} records stored, {sum(before.values())} before")
        return "running" if self._offsets() != before else "starting"

    def _start(self) -> subprocess.Popen[bytes]:
        temporary = self._folder / "tmp"
        temporary.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "TMPDIR": str(temporary),
            "SPARK_LOCAL_DIRS": str(temporary),
            # A life is short: what takes long to compile is not worth it.
            "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={temporary} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        with self._log.open("ab") as log:
            # A group of its own, so that Python and the JVM die at the same moment.
            return subprocess.Popen(
                [sys.executable, str(APP), self._servers, self._topic, str(self.database)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip

    def _wait(self, process: subprocess.Popen[bytes], done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not done():
            assert process.poll() is None, f"the driver has ended: {self._last_words()}"
            assert time.monotonic() < deadline, f"{what}: not after {_PATIENCE_S:.0f} s: {self._last_words()}"
            time.sleep(0.05)

    def _offsets(self) -> dict[int, int]:
        return {part: offset for part, offset in self._rows("SELECT part, next FROM offsets") if offset}

    def _delays(self) -> dict[str, tuple[int, ...]]:
        return {
            origin: tuple(sums) for origin, *sums in self._rows("SELECT origin, flights, departed, minutes FROM delays")
        }

    def _rows(self, query: str) -> list[Any]:
        if not self.database.exists():
            return []
        try:
            with closing(sqlite3.connect(self.database, timeout=30)) as connection:
                return connection.execute(query).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):  # the driver is making them, or died before it could
                return []
            raise

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]


class Writer(threading.Thread):
    """Writes flights, until the end of its ``with`` block.

    Attributes:
        ends: How many records each partition has.
        sums: What the database has to hold: flights, departed and minutes by origin.
    """

    def __init__(self, servers: str, topic: str, seed: int) -> None:
        super().__init__(name="writer", daemon=True)
        self.ends: Counter[int] = Counter()
        self.sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
        self._draw = random.Random(seed)
        self._stopping = threading.Event()
        self._failures: list[object] = []

    def __enter__(self) -> Writer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join(60)
        assert not self.is_alive()
        assert not self._failures, self._failures[0]

    def run(self) -> None:
        while not self._stopping.wait(_TICK_S) and not self._failures:
            for _ in range(_RECORDS_PER_TICK):
                self._write()
            if self._producer.flush(30):
                self._failures.append("not acknowledged after 30 s")

    def _write(self) -> None:
        origin, partition = self._draw.choice(_ORIGINS), self._draw.randrange(_PARTITIONS)
        delay = None if self._draw.random() < 0.1 else self._draw.randint(-30, 300)
        self._producer.produce(
            self._topic,
            json.dumps({"origin": origin, "dep_delay": delay}).encode(),
            partition=partition,
            on_delivery=lambda error, _: self._failures.append(error) if error else None,
        )
        self.ends[partition] += 1
        sums = self.sums[origin]
        sums[0] += 1
        sums[1] += delay is not None
        sums[2] += delay or 0


def _kill(process: subprocess.Popen[bytes]) -> None:
    """``kill -9`` the driver as one; what it leaves behind has to end by itself."""
    orphans: list[psutil.Process] = []
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGSTOP)  # so that it starts nothing while its processes are listed
        orphans = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
    left = wait_for_orphans(orphans)
    assert not left, f"they outlived the driver: {left}"


def main() -> int:
    """Run it; returns 1 if the database was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.direct", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="kills of the driver (default 30)")
    parser.add_argument("--seed", type=int, default=None, help="repeats a run's kills (default: random)")
    asked = parser.parse_args()
    seed = random.randrange(1_000_000) if asked.seed is None else asked.seed
    folder, began = Path(tempfile.mkdtemp(prefix="soak-direct-")), time.monotonic()
    print(f"{asked.rounds} kills, seed {seed}", flush=True)
    with EmbeddedKafka(reuse_running=False) as kafka:
        try:
            run = ExactlyOnceRun(kafka.bootstrap_servers, folder, seed, lambda line: print(line, flush=True))
            outcome = run.run(asked.rounds)
        except AssertionError as error:
            print(
                f"FAILED. Kept: {folder}. Again: make soak-direct ROUNDS={asked.rounds} SEED={seed}\n{error}",
                flush=True,
            )
            return 1
    shutil.rmtree(folder)
    print(
        f"exact after {outcome.kills.total()} kills {dict(outcome.kills)}: {outcome.records} records, each once; "
        f"{time.monotonic() - began:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
