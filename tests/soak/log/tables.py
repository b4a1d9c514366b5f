"""A program: some of the tables, each read to its end again and again and compared with what writers know.

    python -m tests.soak.log.tables '{"servers": ..., "topic": ..., "tables": [0, 2, 4], "ledgers": [...], ...}'

It prints a line of JSON a second, what it has found so far. On standard input it is told ``restart 4``, or ``finish
PATH``: to compare once more, write what the tables hold into a file, and end.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.soak.log.ledger import Ledger, newest
from tests.soak.log.results import early

from pyspark_kafka_direct.log import KafkaBasedLog, KafkaTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.log import LogRecord

_DEADLINE = 120.0
_PAUSE = 0.3  # seconds between two comparisons of a table
_STOP = 30.0  # seconds that a stop may take
_UNCOMMITTED = (3, 4)  # of ten tables 3, 7 read uncommitted records too


def is_committed(table: int) -> bool:
    """Whether a table leaves out what is not committed."""
    return table % _UNCOMMITTED[1] != _UNCOMMITTED[0]


def main() -> None:
    """Do what is told."""
    told = json.loads(sys.argv[1])
    ledgers = [Ledger(Path(path)) for path in told["ledgers"]]
    followers = {number: _Follower(number, told, ledgers) for number in told["tables"]}
    for each in followers.values():
        each.start()
    threading.Thread(target=_report, args=(list(followers.values()),), daemon=True).start()
    for line in sys.stdin:
        word, target = line.split()
        if word == "restart":
            followers[int(target)].restart()
        else:
            contents = {number: each.finish() for number, each in followers.items()}
            found = {"contents": contents, "summary": _summary(list(followers.values()))}
            Path(target).write_text(json.dumps(found))
            break


class _Log:
    """A table that is made by hand, of a KafkaBasedLog that gives single records."""

    def __init__(self, topic: str, params: dict[str, object], faults: list[str]) -> None:
        self._values: dict[bytes, bytes] = {}
        self._faults = faults
        self._log = KafkaBasedLog(topic, params, on_record=self._apply, on_reset=self._is_reset, read_only=True)
        self.start, self.stop, self.read_to_end = self._log.start, self._log.stop, self._log.read_to_end

    def snapshot(self) -> dict[bytes, bytes]:
        return self._values.copy()

    def _apply(self, record: LogRecord) -> None:
        assert record.key is not None
        if record.value is None:
            self._values.pop(record.key, None)
        else:
            self._values[record.key] = record.value

    def _is_reset(self, error: KafkaDirectError) -> None:
        self._faults.append(f"no record was ever taken back, and yet: {error}")


class _Follower:
    """One table, which a thread compares with the ledgers.

    Attributes:
        checks: How often it was compared.
        slowest: Seconds that the longest of its readings to the end took.
        restarts: How often it was made anew.
        faults: What was wrong.
    """

    def __init__(self, number: int, told: dict[str, Any], ledgers: Sequence[Ledger]) -> None:
        self.checks, self.slowest, self.restarts = 0, 0.0, 0
        self.faults: list[str] = []
        self._number, self._told, self._ledgers = number, told, ledgers
        self._transactional = set(told["transactional"])
        self._busy = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._table: KafkaTable | _Log

    def start(self) -> None:
        self._open()
        self._thread.start()

    def restart(self) -> None:
        """Stop and make it anew, from the beginning of the topic."""
        with self._busy:
            self._close()
            self._open()
            self._check_quietly()  # it has read to the end; only this makes it sure
        self.restarts += 1

    def finish(self) -> dict[str, str]:
        """Compare once more; return the contents, as text."""
        self._ended.set()
        self._thread.join(2 * _DEADLINE)
        with self._busy:
            self._check_quietly()
            contents = self._table.snapshot()
            self._close()
        return {key.decode(): value.decode() for key, value in contents.items()}

    def _open(self) -> None:
        isolation = "read_committed" if is_committed(self._number) else "read_uncommitted"
        params: dict[str, object] = {"bootstrap.servers": self._told["servers"], "isolation.level": isolation}
        if self._number % 2 == 0:
            self._table = KafkaTable(self._told["topic"], params, read_only=True)
        else:
            self._table = _Log(self._told["topic"], params, self.faults)
        acknowledged, _ = newest(self._ledgers)
        self._table.start()
        self._compare(acknowledged)

    def _close(self) -> None:
        began = time.monotonic()
        self._table.stop(_STOP)
        if (took := time.monotonic() - began) > _STOP + 5:
            self.faults.append(f"table {self._number} took {took:.0f} s to stop")

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
        acknowledged, _ = newest(self._ledgers)
        began = time.monotonic()
        self._table.read_to_end().result(_DEADLINE)
        self.slowest = max(self.slowest, time.monotonic() - began)
        self._compare(acknowledged)
        self.checks += 1

    def _compare(self, acknowledged: Any) -> None:
        contents = self._table.snapshot()
        _, sent = newest(self._ledgers)
        committed = is_committed(self._number)
        found = early(acknowledged, contents, sent, self._transactional, committed=committed)
        self.faults += [f"table {self._number}: {each}" for each in found[:5]]


def _report(followers: Sequence[_Follower]) -> None:
    while True:
        sys.stdout.write(json.dumps(_summary(followers)) + "\n")
        sys.stdout.flush()
        time.sleep(1)


def _summary(followers: Sequence[_Follower]) -> dict[str, Any]:
    return {
        "checks": sum(each.checks for each in followers),
        "slowest": max(each.slowest for each in followers),
        "restarts": sum(each.restarts for each in followers),
        "faults": [fault for each in followers for fault in each.faults[:5]],
    }


if __name__ == "__main__":
    main()
