"""Writes flights to a topic at a constant rate, in the order of their time."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from _flights import Record

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

    def __init__(self, bootstrap_servers: str, topic: str, records: Sequence[Record], rate: int) -> None:
        from confluent_kafka import Producer

        self.total = len(records)
        self._records = records
        self._topic = topic
        self._rate = rate
        # Without log messages, because it may outlive the broker for a moment; errors are reported below.
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 5, "log_level": 2}
        )
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

    def write(self, records: Sequence[Record]) -> None:
        """Write these records now.

        Raises:
            RuntimeError: The broker did not acknowledge all of them.
        """
        failures: list[object] = []
        for record in records:
            self._producer.produce(
                self._topic,
                record.value,
                record.key,
                timestamp=record.timestamp,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        unacknowledged = self._producer.flush(_ACK_TIMEOUT_S)
        if unacknowledged or failures:
            raise RuntimeError(
                f"{unacknowledged + len(failures)} records were not acknowledged by the broker: {failures[:1]}"
            )
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
