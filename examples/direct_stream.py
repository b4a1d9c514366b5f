"""A direct stream over real flights, killed on its way and started again: nothing is missing, nothing comes twice.

    python examples/direct_stream.py                  about a minute; --flights 3000 for less

It starts a Kafka of its own. The application is _direct_app.py.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import _flights
from _replay import Replay
from _steps import Steps
from pyspark_kafka_direct.broker import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

APP = Path(__file__).with_name("_direct_app.py")
TOPIC, GROUP = "flights", "delays"
PARTITIONS = 4
RATE = 1_000  # flights per second
DOWN_S = 3.0
PATIENCE_S = 240.0


@dataclass(frozen=True, slots=True)
class Batch:
    """What the application wrote of a batch.

    Attributes:
        ranges: Partition, first offset, offset behind the last.
        delays: By carrier: flights, how many departed, and the sum of their delays in minutes.
        process: The process that wrote it.
    """

    ranges: list[tuple[int, int, int]]
    delays: dict[str, list[int]]
    process: int

    @property
    def records(self) -> int:
        """How many it has."""
        return sum(until - begin for _, begin, until in self.ranges)


class App:
    """One life of the application."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._log = folder / "app.log"
        with self._log.open("ab") as log:
            # A group of its own, so that Python and the JVM die at the same moment.
            self._process = subprocess.Popen(
                [sys.executable, str(APP), servers, TOPIC, GROUP, str(folder)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def watch(self, done: Callable[[], bool]) -> None:
        """Wait until something has come true, or the application has ended.

        Raises:
            RuntimeError: It ended first, or it takes too long.
        """
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            if self._process.poll() is not None:
                raise RuntimeError(f"the application has ended:\n{self._log.read_text()[-4000:]}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"not after {PATIENCE_S:.0f} s:\n{self._log.read_text()[-4000:]}")
            time.sleep(0.1)

    def wait(self) -> int:
        """Wait until it has ended by itself; returns its exit code."""
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        """``kill -9``, if it still runs."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)


def main(flights: int) -> int:
    """Run it; returns 1 if what was read is not what was written."""
    steps = Steps(5)
    records = list(islice(_flights.flights(), flights))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with steps.step("Starting Apache Kafka"):
            kafka = EmbeddedKafka(reuse_running=False).start()
        try:
            _flights.create(kafka.bootstrap_servers, TOPIC, PARTITIONS)
            with Replay(kafka.bootstrap_servers, TOPIC, records, RATE) as replay:
                batches = _read(steps, kafka.bootstrap_servers, folder, replay)
            with steps.step("Comparing what was read with what was written"):
                committed = committed_offsets(kafka.bootstrap_servers)
                right = compare(steps, batches, records, committed)
        finally:
            kafka.close()
    print(f"\n{steps.summary()}", flush=True)
    return 0 if right else 1


def _read(steps: Steps, servers: str, folder: Path, replay: Replay) -> dict[int, Batch]:
    app = None
    try:
        with steps.step(f"Reading {replay.total:,} flights while they are written, {RATE:,} a second"):
            app = App(servers, folder)
            replay.start()
            app.watch(lambda: sum(batch.records for batch in read_batches(folder).values()) >= replay.total // 4)
            app.kill()
            first = read_batches(folder)
            read = sum(batch.records for batch in first.values())
            steps.say(f"{read:,} are read, {replay.written:,} written: the application is killed (kill -9).")
        with steps.step(f"Leaving it down for {DOWN_S:.0f} s, while flights go on"):
            time.sleep(DOWN_S)
        with steps.step("Starting it again; it goes on from its checkpoint"):
            app = App(servers, folder)
            app.watch(lambda: sum(batch.records for batch in read_batches(folder).values()) >= replay.total)
            (folder / "stop").touch()
            if app.wait() != 0:
                raise RuntimeError(f"the application failed:\n{(folder / 'app.log').read_text()[-4000:]}")
            batches = read_batches(folder)
            again = [moment for moment in first if batches[moment].process != first[moment].process]
            same = all(batches[moment].ranges == first[moment].ranges for moment in again)
            steps.say(f"{len(first)} batches before the kill, {len(batches) - len(first)} after it.")
            steps.say(f"Run again, for Spark did not know they were done: {len(again)}; same offsets: {same}.")
    finally:
        if app is not None:
            app.kill()
    return batches


def read_batches(folder: Path) -> dict[int, Batch]:
    """Read the batches so far, by their time."""
    found = {}
    for file in sorted((folder / "batches").glob("*.json")):
        batch = json.loads(file.read_text())
        found[int(file.stem)] = Batch([tuple(each) for each in batch["ranges"]], batch["delays"], batch["process"])
    return found


def compare(
    steps: Steps, batches: dict[int, Batch], records: Sequence[_flights.Record], committed: dict[int, int]
) -> bool:
    """Whether every flight was read, once."""
    ends: dict[int, int] = defaultdict(int)
    gaps = 0
    for _, batch in sorted(batches.items()):
        for partition, begin, until in batch.ranges:
            gaps += begin != ends[partition]
            ends[partition] = until
    read, written = _sum(batches), _expected(records)
    for carrier, (flights, departed, minutes) in sorted(read.items()):
        steps.say(f"{carrier}  {flights:>7,} flights, {minutes / max(departed, 1):+5.1f} min")
    right = read == written and gaps == 0
    total = sum(flights for flights, _, _ in read.values())
    steps.say(f"{total:,} flights read of {len(records):,}, {gaps} gaps: {'all equal' if right else 'NOT EQUAL'}")
    shown = committed == dict(ends)
    steps.say(f"Group {GROUP} shows the end of every partition: {'yes' if shown else f'NO, {committed}'}")
    return right and shown


def committed_offsets(servers: str) -> dict[int, int]:
    """Return the committed offsets, as tools for consumer groups see them."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    try:
        asked = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        return {each.partition: each.offset for each in consumer.committed(asked, timeout=30)}
    finally:
        consumer.close()


def _sum(batches: dict[int, Batch]) -> dict[str, tuple[int, int, int]]:
    sums: dict[str, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for batch in batches.values():
        for carrier, (flights, departed, minutes) in batch.delays.items():
            before = sums[carrier]
            sums[carrier] = before[0] + flights, before[1] + departed, before[2] + minutes
    return dict(sums)


def _expected(records: Sequence[_flights.Record]) -> dict[str, tuple[int, int, int]]:
    sums: dict[str, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for record in records:
        minutes = json.loads(record.value)["dep_delay"]
        before = sums[record.key.decode()]
        sums[record.key.decode()] = before[0] + 1, before[1] + (minutes is not None), before[2] + (minutes or 0)
    return dict(sums)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flights", type=int, default=20_000, help="how many (default 20,000)")
    sys.exit(main(parser.parse_args().flights))
