"""One soak run of the log: writers and tables, what is done to them, and what comes out."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.soak.log.children import Child
from tests.soak.log.ledger import Ledger, newest
from tests.soak.log.plan import kind_of
from tests.soak.log.results import differences, early, latest, memory_faults, without
from tests.soak.log.tables import is_committed
from tests.soak.query import SoakError
from tests.soak.sink.results import open_transactions, read_topic
from tests.soak.writer import create_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.soak.log.plan import Step
    from tests.soak.log.results import Contents
    from tests.soak.sink.brokers import Brokers
    from tests.soak.sink.results import Isolation

PARTITIONS = 3
PROPERTIES = {"log.cleaner.backoff.ms": "2000"}
"""So that brokers look for something to compact every other second."""

_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "10000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "120000",  # longer than any table is behind
}
_PROCESSES = 2  # that keep tables
_DEADLINE = 180.0
_JUDGED = 240.0  # seconds after which memory has to be flat
_REBIRTH = 1.0  # seconds after which a writer that was killed comes back; starting takes it some more


@dataclass
class Outcome:
    """How it went.

    Attributes:
        deeds: What was done.
        checks: How often a table was read to its end and compared.
        slowest: Seconds that the slowest reading to the end took.
        restarts: How often a table was made anew.
        offsets: Of the log in the end.
        left: Records that compaction has left, those of aborted transactions among them.
        keys: Of the table in the end.
        memory: Bytes of each process that keeps tables, in the course of time.
        files: Open files of each in the beginning and in the end.
    """

    deeds: Counter[str] = field(default_factory=Counter)
    checks: int = 0
    slowest: float = 0.0
    restarts: int = 0
    offsets: int = 0
    left: int = 0
    keys: int = 0
    memory: list[list[int]] = field(default_factory=list)
    files: list[tuple[int, int]] = field(default_factory=list)


class LogRun:
    """Carries out a plan.

    Args:
        steps: What to do, one after another.
        brokers: The cluster.
        folder: Ledgers and logs go here.
        say: Told what happens, a line at a time.
        writers: How many.
        tables: How many.
    """

    def __init__(
        self,
        steps: Iterator[Step],
        brokers: Brokers,
        folder: Path,
        say: Callable[[str], None],
        *,
        writers: int = 10,
        tables: int = 10,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._steps, self._brokers, self._folder, self._say = steps, brokers, folder, say
        self._topic = f"log-{uuid.uuid4().hex[:8]}"
        self._paths = [folder / f"ledger-{number}" for number in range(writers)]
        self._ledgers = [Ledger(path) for path in self._paths]
        self._transactional = {number for number in range(writers) if kind_of(number) == "transactions"}
        self._shares = [list(range(first, tables, _PROCESSES)) for first in range(_PROCESSES)]
        self._writers: list[Child] = []
        self._keepers: list[Child] = []
        self._outcome = Outcome(memory=[[] for _ in range(_PROCESSES)])

    def run(self, seconds: float | None = None) -> Outcome:
        """Do what is planned, to its end or for so long, end everything, and compare.

        Raises:
            SoakError: A table lacked what it must have, or a process failed without having been hurt.
        """
        create_topic(self._brokers.servers, self._topic, PARTITIONS, 3, _COMPACTED)
        try:
            self._keepers = [self._start_keeper(number) for number in range(_PROCESSES)]
            self._writers = [self._start_writer(number) for number in range(len(self._ledgers))]
            self._await(lambda: all(any(ledger.acknowledged) for ledger in self._ledgers), "all writers write")
            self._await(lambda: all(keeper.last.get("checks") for keeper in self._keepers), "all tables are read")
            files = [keeper.files() for keeper in self._keepers]
            self._outcome.memory = [[] for _ in self._keepers]
            began = time.monotonic()
            for step in self._steps:
                self._watch(step.pause)
                if seconds is not None and time.monotonic() - began > seconds:
                    break
                self._do(step)
                self._say(f"  {time.monotonic() - began:4.0f} s: {step.deed} {step.target}; {self._state()}")
            self._judge_memory(time.monotonic() - began)
            self._outcome.files = list(zip(files, (keeper.files() for keeper in self._keepers), strict=True))
            self._finish()
        finally:
            for child in self._writers + self._keepers:
                if child.alive:
                    child.kill()
        return self._outcome

    def _judge_memory(self, seconds: float) -> None:
        faults = [fault for samples in self._outcome.memory for fault in memory_faults(samples)]
        if seconds >= _JUDGED and faults:
            raise SoakError("\n".join(faults))

    def _start_writer(self, number: int) -> Child:
        told = {
            "servers": self._brokers.servers,
            "topic": self._topic,
            "number": number,
            "kind": kind_of(number),
            "ledger": str(self._paths[number]),
        }
        return Child("tests.soak.log.writer", told, self._folder / f"writer-{number}.log")

    def _start_keeper(self, number: int) -> Child:
        told = {
            "servers": self._brokers.servers,
            "topic": self._topic,
            "tables": self._shares[number],
            "ledgers": [str(path) for path in self._paths],
            "transactional": sorted(self._transactional),
        }
        return Child("tests.soak.log.tables", told, self._folder / f"tables-{number}.log")

    def _do(self, step: Step) -> None:
        if step.deed == "kill writer":
            self._writers[step.target].kill()
            self._watch(_REBIRTH, without=step.target)
            self._writers[step.target] = self._start_writer(step.target)
        elif step.deed == "restart table":
            self._keepers[step.target % _PROCESSES].tell(f"restart {step.target}")
        elif step.deed == "move leaders":
            self._brokers.move_leaders()
        else:
            self._brokers.restart(step.target, clean=step.deed == "stop broker")
        self._outcome.deeds[step.deed] += 1

    def _watch(self, seconds: float, without: int | None = None) -> None:
        """Look after all processes for so long.

        Raises:
            SoakError: One of them has ended, or has found something.
        """
        until = time.monotonic() + seconds
        while True:
            for number, writer in enumerate(self._writers):
                if not writer.alive and number != without:
                    raise SoakError(f"writer {number} ({kind_of(number)}) ended by itself:\n{writer.last_words()}")
            for number, keeper in enumerate(self._keepers):
                if not keeper.alive:
                    raise SoakError(f"a process with tables ended by itself:\n{keeper.last_words()}")
                if keeper.last.get("faults"):
                    raise SoakError("\n".join(keeper.last["faults"]))
                self._outcome.memory[number].append(keeper.memory())
            if time.monotonic() >= until:
                return
            time.sleep(min(0.5, until - time.monotonic()))

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _DEADLINE
        while not condition():
            self._watch(0.2)
            if time.monotonic() > deadline:
                raise SoakError(f"{what}: not within {_DEADLINE:.0f} s")

    def _finish(self) -> None:
        for writer in self._writers:
            writer.ask_to_end()
        for number, writer in enumerate(self._writers):
            if code := writer.end():
                raise SoakError(f"writer {number} ({kind_of(number)}) failed, exit code {code}:\n{writer.last_words()}")
        self._writers = []
        self._await(
            lambda: not open_transactions(self._brokers.servers, self._topic, PARTITIONS), "no transaction open"
        )
        contents: dict[int, Contents] = {}
        summaries = []
        paths = [self._folder / f"tables-{number}.json" for number in range(_PROCESSES)]
        for keeper, path in zip(self._keepers, paths, strict=True):
            keeper.tell(f"finish {path}")
        for keeper, path in zip(self._keepers, paths, strict=True):
            if code := keeper.end():
                raise SoakError(f"a process with tables failed, exit code {code}:\n{keeper.last_words()}")
            found = json.loads(path.read_text())
            for table, pairs in found["contents"].items():
                contents[int(table)] = {key.encode(): value.encode() for key, value in pairs.items()}
            summaries.append(found["summary"])
        if faults := [fault for each in summaries for fault in each["faults"]] + self._faults(contents):
            raise SoakError("\n".join(faults))
        outcome = self._outcome
        outcome.checks = sum(each["checks"] for each in summaries)
        outcome.slowest = max(each["slowest"] for each in summaries)
        outcome.restarts = sum(each["restarts"] for each in summaries)

    def _faults(self, contents: dict[int, Contents]) -> list[str]:
        """Compare all tables with the topic, as librdkafka reads it."""
        committed, everything = self._read("read_committed"), self._read("read_uncommitted")
        acknowledged, sent = newest(self._ledgers)
        faults = early(acknowledged, committed, sent, self._transactional)
        named = {number: f"table {number}" for number in contents}
        of_committed = {name: contents[number] for number, name in named.items() if is_committed(number)}
        faults += differences(of_committed, committed, "all writers")
        # What was aborted is in these tables, and compaction has taken some of it out of the topic.
        others = {
            name: without(contents[number], self._transactional)
            for number, name in named.items()
            if not is_committed(number)
        }
        faults += differences(others, without(everything, self._transactional), "writers without transactions")
        self._outcome.keys = len(committed)
        return faults

    def _read(self, isolation: Isolation) -> dict[bytes, bytes]:
        records = read_topic(self._brokers.servers, self._topic, PARTITIONS, isolation)
        ends = {each.partition: each.offset + 1 for each in records}
        self._outcome.offsets, self._outcome.left = sum(ends.values()), len(records)
        return latest((each.key, each.value) for each in records)

    def _state(self) -> str:
        checks = sum(keeper.last.get("checks", 0) for keeper in self._keepers)
        slowest = max(keeper.last.get("slowest", 0.0) for keeper in self._keepers)
        memory = " and ".join(f"{samples[-1] >> 20}" for samples in self._outcome.memory if samples)
        return f"{checks} times read to the end, {slowest:.1f} s at most, {memory} MiB"
