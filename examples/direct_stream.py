"""A direct stream over flights that is killed and restarted: no flight is missing, and none is duplicated.

    python examples/direct_stream.py                  takes about a minute; --flights 3000 takes less

It starts a local Kafka broker. The application is _direct_app.py.
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
TIMEOUT_S = 240.0


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """The output of the application for a batch.

    Attributes:
        ranges: Partition, first offset, and end offset of each range.
        delays: By carrier: flights, departed flights, and the sum of their delays in minutes.
        process: The id of the process that wrote the output.
    """

    ranges: list[tuple[int, int, int]]
    delays: dict[str, list[int]]
    process: int

    @property
    def records(self) -> int:
        """The number of records in the batch."""
        return sum(until - start for _, start, until in self.ranges)


class AppProcess:
    """A process of the application."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._log = folder / "app.log"
        with self._log.open("ab") as log:
            # Its own process group, so that Python and the JVM are killed at the same time.
            self._process = subprocess.Popen(
                [sys.executable, str(APP), servers, TOPIC, GROUP, str(folder)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Wait until a condition is true.

        Raises:
            RuntimeError: The application ended first, or the wait timed out.
        """
        deadline = time.monotonic() + TIMEOUT_S
        while not done():
            if self._process.poll() is not None:
                raise RuntimeError(f"the application ended unexpectedly:\n{self._log.read_text()[-4000:]}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"timed out after {TIMEOUT_S:.0f} s:\n{self._log.read_text()[-4000:]}")
            time.sleep(0.1)

    def wait(self) -> int:
        """Wait until the application exits; returns its exit code."""
        return self._process.wait(TIMEOUT_S)

    def kill(self) -> None:
        """Kill it with ``kill -9`` if it is running."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)


def main(flights: int) -> int:
    """Run the example; returns 1 if the records read differ from the records written."""
    steps = Steps(5)
    records = list(islice(_flights.flights(), flights))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with steps.step("Starting Apache Kafka"):
            kafka = EmbeddedKafka().start()
        try:
            _flights.create(kafka.bootstrap_servers, TOPIC, PARTITIONS)
            with Replay(kafka.bootstrap_servers, TOPIC, records, RATE) as replay:
                batches = _read(steps, kafka.bootstrap_servers, folder, replay)
            with steps.step("Comparing the records read with the records written"):
                committed = committed_offsets(kafka.bootstrap_servers)
                correct = compare(steps, batches, records, committed)
        finally:
            kafka.close()
    print(f"\n{steps.summary()}", flush=True)
    return 0 if correct else 1


def _read(steps: Steps, servers: str, folder: Path, replay: Replay) -> dict[int, WrittenBatch]:
    app = None
    try:
        with steps.step(f"Reading {replay.total:,} flights while they are written, {RATE:,} per second"):
            app = AppProcess(servers, folder)
            replay.start()
            app.wait_until(lambda: sum(batch.records for batch in read_batches(folder).values()) >= replay.total // 4)
            app.kill()
            first = read_batches(folder)
            read = sum(batch.records for batch in first.values())
            steps.say(
                f"{read:,} flights are read, {replay.written:,} are written: the application is killed (kill -9)."
            )
        with steps.step(f"Waiting for {DOWN_S:.0f} s, while flights are written"):
            time.sleep(DOWN_S)
        with steps.step("Restarting the application from its checkpoint"):
            app = AppProcess(servers, folder)
            app.wait_until(lambda: sum(batch.records for batch in read_batches(folder).values()) >= replay.total)
            (folder / "stop").touch()
            if app.wait() != 0:
                raise RuntimeError(f"the application failed:\n{(folder / 'app.log').read_text()[-4000:]}")
            batches = read_batches(folder)
            rerun = [time_ms for time_ms in first if batches[time_ms].process != first[time_ms].process]
            same = all(batches[time_ms].ranges == first[time_ms].ranges for time_ms in rerun)
            steps.say(f"{len(first)} batches before the kill, {len(batches) - len(first)} after it.")
            steps.say(
                f"Batches that Spark ran again, because their completion was not recorded: {len(rerun)}; same offsets: "
                f"{same}."
            )
    finally:
        if app is not None:
            app.kill()
    return batches


def read_batches(folder: Path) -> dict[int, WrittenBatch]:
    """Return the batches so far, by their time in milliseconds."""
    batches = {}
    for file in sorted((folder / "batches").glob("*.json")):
        batch = json.loads(file.read_text())
        batches[int(file.stem)] = WrittenBatch(
            [tuple(each) for each in batch["ranges"]], batch["delays"], batch["process"]
        )
    return batches


def compare(
    steps: Steps, batches: dict[int, WrittenBatch], records: Sequence[_flights.Record], committed: dict[int, int]
) -> bool:
    """Return whether every flight was read exactly once, and committed."""
    ends: dict[int, int] = defaultdict(int)
    gaps = 0
    for _, batch in sorted(batches.items()):
        for partition, start, until in batch.ranges:
            gaps += start != ends[partition]
            ends[partition] = until
    read, written = _sum(batches), _expected(records)
    for carrier, (flights, departed, minutes) in sorted(read.items()):
        steps.say(f"{carrier}  {flights:>7,} flights, {minutes / max(departed, 1):+5.1f} min")
    correct = read == written and gaps == 0
    total = sum(flights for flights, _, _ in read.values())
    steps.say(f"{total:,} flights read of {len(records):,}, {gaps} gaps: {'all equal' if correct else 'NOT EQUAL'}")
    all_committed = committed == dict(ends)
    steps.say(
        f"Group {GROUP} has committed the end of every partition: {'yes' if all_committed else f'NO, {committed}'}"
    )
    return correct and all_committed


def committed_offsets(servers: str) -> dict[int, int]:
    """Return the committed offsets of the group."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    try:
        partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        return {each.partition: each.offset for each in consumer.committed(partitions, timeout=30)}
    finally:
        consumer.close()


def _sum(batches: dict[int, WrittenBatch]) -> dict[str, tuple[int, int, int]]:
    sums: dict[str, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for batch in batches.values():
        for carrier, (flights, departed, minutes) in batch.delays.items():
            total = sums[carrier]
            sums[carrier] = total[0] + flights, total[1] + departed, total[2] + minutes
    return dict(sums)


def _expected(records: Sequence[_flights.Record]) -> dict[str, tuple[int, int, int]]:
    sums: dict[str, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for record in records:
        minutes = json.loads(record.value)["dep_delay"]
        total = sums[record.key.decode()]
        sums[record.key.decode()] = total[0] + 1, total[1] + (minutes is not None), total[2] + (minutes or 0)
    return dict(sums)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flights", type=int, default=20_000, help="number of flights (default 20,000)")
    sys.exit(main(parser.parse_args().flights))
