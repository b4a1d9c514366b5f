"""Writes flights to a topic at a constant rate, in the order of their time."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import _flights
from pyspark_kafka_direct.cli.sample_flights import TopicWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

_POLL_INTERVAL_S = 0.1
_ACK_TIMEOUT_S = 30


class Replay:
    """Writes records on its own thread, between ``start`` and the end of its ``with`` block.

    The records of one interval are acknowledged before the next ones are sent. So no partition gets ahead of another by
    more than an interval, even if the broker is slow. This limits disorder, as the watermark of a query requires.

    Args:
        bootstrap_servers: The brokers.
        topic: The topic, which must exist.
        records: The records, in the order in which to write them.
        rate: Records per second.
    """

    def __init__(self, bootstrap_servers: str, topic: str, records: Sequence[_flights.Record], rate: int) -> None:
        self.total = len(records)
        self._records = records
        self._rate = rate
        self._topic = topic
        self._writer = TopicWriter(bootstrap_servers, topic)
        self._written = 0
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)

    def __enter__(self) -> Replay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_ACK_TIMEOUT_S)
        self._writer.close()

    def start(self) -> None:
        """Start to write."""
        self._thread.start()

    @property
    def written(self) -> int:
        """The number of records that the broker has acknowledged.

        Raises:
            RuntimeError: The broker did not acknowledge a record.
        """
        if self._failure is not None:
            raise RuntimeError(f"the replay to topic {self._topic} failed") from self._failure
        return self._written

    def write(self, records: Sequence[_flights.Record]) -> None:
        """Write these records now, and wait until they are acknowledged."""
        if records:
            _flights.write(self._writer, records)
        self._written += len(records)

    def _run(self) -> None:
        started = time.monotonic()
        try:
            while self._written < self.total and not self._stopping.wait(_POLL_INTERVAL_S):
                due = int((time.monotonic() - started) * self._rate)
                # After a delay it catches up in steps of at most a quarter of a second's records, to limit disorder.
                self.write(self._records[self._written : min(due, self._written + self._rate // 4)])
        except BaseException as error:
            self._failure = error
