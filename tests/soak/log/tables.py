"""A program: tables, each of which is repeatedly read to its end and compared with the records of the writers.

    python -m tests.soak.log.tables '{"servers": ..., "topic": ..., "tables": [0, 2, 4], "sent_records": [...], ...}'

It prints a line of JSON with its results each second. Commands on standard input are ``restart 4`` and ``finish
PATH``: compare a last time, write the contents of the tables to a file, and end.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.soak.log.results import stale_keys
from tests.soak.log.sent_records import SentRecords, newest

from pyspark_kafka_direct.log import KafkaBasedLog, KafkaTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.log import LogRecord

_DEADLINE = 120.0
_PAUSE = 0.3  # seconds between comparisons of a table
_STOP_TIMEOUT = 30.0
_UNCOMMITTED = (3, 4)  # remainder and divisor: of ten tables, 3 and 7 read uncommitted records


def is_committed(table: int) -> bool:
    """Return whether a table skips uncommitted records."""
    return table % _UNCOMMITTED[1] != _UNCOMMITTED[0]


def main() -> None:
    arguments = json.loads(sys.argv[1])
    sent_records = [SentRecords(Path(path)) for path in arguments["sent_records"]]
    tables = {number: _CheckedTable(number, arguments, sent_records) for number in arguments["tables"]}
    for each in tables.values():
        each.start()
    threading.Thread(target=_report, args=(list(tables.values()),), daemon=True).start()
    for line in sys.stdin:
        command, target = line.split()
        if command == "restart":
            tables[int(target)].restart()
        else:
            contents = {number: each.finish() for number, each in tables.items()}
            found = {"contents": contents, "summary": _summary(list(tables.values()))}
            Path(target).write_text(json.dumps(found))
            break


class _LogTable:
    """A table built from the single records of a KafkaBasedLog."""

    def __init__(self, topic: str, params: dict[str, object], faults: list[str]) -> None:
        self._values: dict[bytes, bytes] = {}
        self._faults = faults
        self._log = KafkaBasedLog(topic, params, on_record=self._apply, on_reset=self._report_reset, read_only=True)
        self.start, self.stop, self.read_to_end = self._log.start, self._log.stop, self._log.read_to_end

    def snapshot(self) -> dict[bytes, bytes]:
        return self._values.copy()

    def _apply(self, record: LogRecord) -> None:
        assert record.key is not None
        if record.value is None:
            self._values.pop(record.key, None)
        else:
            self._values[record.key] = record.value

    def _report_reset(self, error: KafkaDirectError) -> None:
        self._faults.append(f"no log was truncated, but the table was reset: {error}")


class _CheckedTable:
    """One table, which a thread compares with the records of the writers."""

    def __init__(self, number: int, arguments: dict[str, Any], sent_records: Sequence[SentRecords]) -> None:
        self.checks, self.slowest, self.restarts = 0, 0.0, 0  # slowest: seconds of the longest read to the end
        self.faults: list[str] = []
        self._number, self._arguments, self._sent_records = number, arguments, sent_records
        self._transactional = set(arguments["transactional"])
        self._busy = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._table: KafkaTable[bytes, bytes] | _LogTable

    def start(self) -> None:
        self._open()
        self._thread.start()

    def restart(self) -> None:
        """Recreate the table from the start of the topic."""
        with self._busy:
            self._close()
            self._open()
            self._check_quietly()  # start() has read to the end; confirm it
        self.restarts += 1

    def finish(self) -> dict[str, str]:
        """Compare a last time, and return the contents."""
        self._ended.set()
        self._thread.join(2 * _DEADLINE)
        with self._busy:
            self._check_quietly()
            contents = self._table.snapshot()
            self._close()
        return {key.decode(): value.decode() for key, value in contents.items()}

    def _open(self) -> None:
        isolation = "read_committed" if is_committed(self._number) else "read_uncommitted"
        params: dict[str, object] = {"bootstrap.servers": self._arguments["servers"], "isolation.level": isolation}
        if self._number % 2 == 0:
            self._table = KafkaTable(self._arguments["topic"], params, read_only=True)
        else:
            self._table = _LogTable(self._arguments["topic"], params, self.faults)
        acknowledged, _ = newest(self._sent_records)
        self._table.start()
        self._compare(acknowledged)

    def _close(self) -> None:
        started_at = time.monotonic()
        self._table.stop(_STOP_TIMEOUT)
        if (seconds := time.monotonic() - started_at) > _STOP_TIMEOUT + 5:
            self.faults.append(f"table {self._number} took {seconds:.0f} s to stop")

    def _run(self) -> None:
        while not self._ended.wait(_PAUSE):
            with self._busy:
                self._check_quietly()

    def _check_quietly(self) -> None:
        try:
            self._check()
        except Exception:
            self.faults.append(f"table {self._number}: {traceback.format_exc()}")

    def _check(self) -> None:
        acknowledged, _ = newest(self._sent_records)
        started_at = time.monotonic()
        self._table.read_to_end().result(_DEADLINE)
        self.slowest = max(self.slowest, time.monotonic() - started_at)
        self._compare(acknowledged)
        self.checks += 1

    def _compare(self, acknowledged: Any) -> None:
        contents = self._table.snapshot()
        _, sent = newest(self._sent_records)
        committed = is_committed(self._number)
        stale = stale_keys(acknowledged, contents, sent, self._transactional, committed=committed)
        self.faults += [f"table {self._number}: {each}" for each in stale[:5]]


def _report(tables: Sequence[_CheckedTable]) -> None:
    while True:
        sys.stdout.write(json.dumps(_summary(tables)) + "\n")
        sys.stdout.flush()
        time.sleep(1)


def _summary(tables: Sequence[_CheckedTable]) -> dict[str, Any]:
    return {
        "checks": sum(each.checks for each in tables),
        "slowest": max(each.slowest for each in tables),
        "restarts": sum(each.restarts for each in tables),
        "faults": [fault for each in tables for fault in each.faults[:5]],
    }


if __name__ == "__main__":
    main()
