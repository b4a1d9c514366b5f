"""Runs one soak of the log: writers, tables and faults, and checks the tables."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.soak.log.child_processes import ChildProcess
from tests.soak.log.plan import kind_of
from tests.soak.log.results import differences, latest, memory_faults, stale_keys, without_writers
from tests.soak.log.sent_records import SentRecords, newest
from tests.soak.log.tables import is_committed
from tests.soak.sink.results import open_transactions, read_topic
from tests.soak.stream_run import SoakError
from tests.soak.writer import create_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.soak.log.plan import Step
    from tests.soak.log.results import Contents
    from tests.soak.sink.brokers import Brokers
    from tests.soak.sink.results import Isolation

PARTITIONS = 3
PROPERTIES = {"log.cleaner.backoff.ms": "2000"}  # compact frequently

_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "10000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "120000",  # longer than the lag of any table
}
_TABLE_PROCESSES = 2
_DEADLINE = 180.0
_MEMORY_CHECK_AFTER = 240.0  # seconds: shorter runs are not checked
_WRITER_RESTART_DELAY = 1.0  # seconds between the kill of a writer and its restart


@dataclass
class Outcome:
    faults: Counter[str] = field(default_factory=Counter)
    checks: int = 0
    slowest: float = 0.0  # seconds of the longest read to the end
    restarts: int = 0  # of tables
    offsets: int = 0  # of the topic at the end
    retained: int = 0  # records after compaction, including aborted ones
    keys: int = 0
    memory: list[list[int]] = field(default_factory=list)  # bytes over time, of each process with tables
    files: list[tuple[int, int]] = field(default_factory=list)  # open files at the start and at the end


class LogRun:
    def __init__(
        self,
        steps: Iterator[Step],
        brokers: Brokers,
        folder: Path,
        report: Callable[[str], None],
        *,
        writers: int = 10,
        tables: int = 10,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._steps, self._brokers, self._folder, self._report = steps, brokers, folder, report
        self._topic = f"log-{uuid.uuid4().hex[:8]}"
        self._paths = [folder / f"sent-{number}" for number in range(writers)]
        self._sent_records = [SentRecords(path) for path in self._paths]
        self._transactional = {number for number in range(writers) if kind_of(number) == "transactions"}
        self._tables_by_process = [list(range(first, tables, _TABLE_PROCESSES)) for first in range(_TABLE_PROCESSES)]
        self._writers: list[ChildProcess] = []
        self._table_processes: list[ChildProcess] = []
        self._outcome = Outcome(memory=[[] for _ in range(_TABLE_PROCESSES)])

    def run(self, seconds: float | None = None) -> Outcome:
        """Inject the planned faults, all of them or for some time, stop all processes, and check the tables."""
        create_topic(self._brokers.servers, self._topic, PARTITIONS, 3, _COMPACTED)
        try:
            self._table_processes = [self._start_tables(number) for number in range(_TABLE_PROCESSES)]
            self._writers = [self._start_writer(number) for number in range(len(self._sent_records))]
            self._await(lambda: all(any(each.acknowledged) for each in self._sent_records), "records of all writers")
            self._await(
                lambda: all(process.last.get("checks") for process in self._table_processes),
                "the first read of all tables",
            )
            files = [process.files() for process in self._table_processes]
            self._outcome.memory = [[] for _ in self._table_processes]
            started_at = time.monotonic()
            for step in self._steps:
                self._watch(step.pause)
                if seconds is not None and time.monotonic() - started_at > seconds:
                    break
                self._do(step)
                self._report(f"  {time.monotonic() - started_at:4.0f} s: {step.fault} {step.target}; {self._state()}")
            self._check_memory(time.monotonic() - started_at)
            self._outcome.files = list(zip(files, (process.files() for process in self._table_processes), strict=True))
            self._finish()
        finally:
            for child in self._writers + self._table_processes:
                if child.alive:
                    child.kill()
        return self._outcome

    def _check_memory(self, seconds: float) -> None:
        faults = [fault for samples in self._outcome.memory for fault in memory_faults(samples)]
        if seconds >= _MEMORY_CHECK_AFTER and faults:
            raise SoakError("\n".join(faults))

    def _start_writer(self, number: int) -> ChildProcess:
        arguments = {
            "servers": self._brokers.servers,
            "topic": self._topic,
            "number": number,
            "kind": kind_of(number),
            "sent_records": str(self._paths[number]),
        }
        return ChildProcess("tests.soak.log.writer", arguments, self._folder / f"writer-{number}.log")

    def _start_tables(self, number: int) -> ChildProcess:
        arguments = {
            "servers": self._brokers.servers,
            "topic": self._topic,
            "tables": self._tables_by_process[number],
            "sent_records": [str(path) for path in self._paths],
            "transactional": sorted(self._transactional),
        }
        return ChildProcess("tests.soak.log.tables", arguments, self._folder / f"tables-{number}.log")

    def _do(self, step: Step) -> None:
        if step.fault == "kill writer":
            self._writers[step.target].kill()
            self._watch(_WRITER_RESTART_DELAY, without=step.target)
            self._writers[step.target] = self._start_writer(step.target)
        elif step.fault == "restart table":
            self._table_processes[step.target % _TABLE_PROCESSES].send_line(f"restart {step.target}")
        elif step.fault == "move leaders":
            self._brokers.move_leaders()
        else:
            self._brokers.restart(step.target, clean=step.fault == "stop broker")
        self._outcome.faults[step.fault] += 1

    def _watch(self, seconds: float, without: int | None = None) -> None:
        """Monitor all processes for some time."""
        end = time.monotonic() + seconds
        while True:
            for number, writer in enumerate(self._writers):
                if not writer.alive and number != without:
                    raise SoakError(f"writer {number} ({kind_of(number)}) ended unexpectedly:\n{writer.log_tail()}")
            for number, process in enumerate(self._table_processes):
                if not process.alive:
                    raise SoakError(f"a process with tables ended unexpectedly:\n{process.log_tail()}")
                if process.last.get("faults"):
                    raise SoakError("\n".join(process.last["faults"]))
                self._outcome.memory[number].append(process.memory())
            if time.monotonic() >= end:
                return
            time.sleep(min(0.5, end - time.monotonic()))

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _DEADLINE
        while not condition():
            self._watch(0.2)
            if time.monotonic() > deadline:
                raise SoakError(f"{what}: not within {_DEADLINE:.0f} s")

    def _finish(self) -> None:
        for writer in self._writers:
            writer.request_stop()
        for number, writer in enumerate(self._writers):
            if code := writer.end():
                raise SoakError(f"writer {number} ({kind_of(number)}) failed, exit code {code}:\n{writer.log_tail()}")
        self._writers = []
        self._await(
            lambda: not open_transactions(self._brokers.servers, self._topic, PARTITIONS), "no transaction open"
        )
        contents: dict[int, Contents] = {}
        summaries = []
        paths = [self._folder / f"tables-{number}.json" for number in range(_TABLE_PROCESSES)]
        for process, path in zip(self._table_processes, paths, strict=True):
            process.send_line(f"finish {path}")
        for process, path in zip(self._table_processes, paths, strict=True):
            if code := process.end():
                raise SoakError(f"a process with tables failed, exit code {code}:\n{process.log_tail()}")
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
        acknowledged, sent = newest(self._sent_records)
        faults = stale_keys(acknowledged, committed, sent, self._transactional)
        table_names = {number: f"table {number}" for number in contents}
        of_committed = {name: contents[number] for number, name in table_names.items() if is_committed(number)}
        faults += differences(of_committed, committed, "all writers")
        # These tables have aborted records, of which compaction has removed some from the topic.
        others = {
            name: without_writers(contents[number], self._transactional)
            for number, name in table_names.items()
            if not is_committed(number)
        }
        faults += differences(others, without_writers(everything, self._transactional), "writers without transactions")
        self._outcome.keys = len(committed)
        return faults

    def _read(self, isolation: Isolation) -> dict[bytes, bytes]:
        records = read_topic(self._brokers.servers, self._topic, PARTITIONS, isolation)
        ends = {each.partition: each.offset + 1 for each in records}
        self._outcome.offsets, self._outcome.retained = sum(ends.values()), len(records)
        return latest((each.key, each.value) for each in records)

    def _state(self) -> str:
        checks = sum(process.last.get("checks", 0) for process in self._table_processes)
        slowest = max(process.last.get("slowest", 0.0) for process in self._table_processes)
        memory = " and ".join(f"{samples[-1] >> 20}" for samples in self._outcome.memory if samples)
        return f"{checks} reads to the end, {slowest:.1f} s at most, {memory} MiB"
