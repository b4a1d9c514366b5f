"""Flights written into a topic at a steady pace, in the order of their time."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from _flights import Record

_TICK_S = 0.1
_ACKNOWLEDGED_S = 30


class Replay:
    """Writes records on a thread of its own, between ``start`` and the end of its ``with`` block.

    What was written in one tick is acknowledged before the next begins. So no partition gets ahead of another by more
    than a tick, however slow the broker: a bound on disorder, which the watermark of a query needs.

    Args:
        bootstrap_servers: Of the Kafka.
        topic: It must exist.
        records: In the order to write them.
        rate: Records per second.
    """

    def __init__(self, bootstrap_servers: str, topic: str, records: Sequence[Record], rate: int) -> None:
        from confluent_kafka import Producer

        self.total = len(records)
        self._records = records
        self._topic = topic
        self._rate = rate
        # Quiet, for it may outlive the broker by a moment; what it can't write is told below.
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
            self._thread.join(_ACKNOWLEDGED_S)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def written(self) -> int:
        """How many records the broker has acknowledged.

        Raises:
            RuntimeError: It did not take one.
        """
        if self._failure is not None:
            raise RuntimeError(f"the replay into topic {self._topic} ended") from self._failure
        return self._written

    def write(self, records: Sequence[Record]) -> None:
        """Write these now.

        Raises:
            RuntimeError: The broker did not take all of them.
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
        left = self._producer.flush(_ACKNOWLEDGED_S)
        if left or failures:
            raise RuntimeError(f"{left + len(failures)} records were not acknowledged by the broker: {failures[:1]}")
        self._written += len(records)

    def _run(self) -> None:
        began = time.monotonic()
        try:
            while self._written < self.total and not self._stopping.wait(_TICK_S):
                due = int((time.monotonic() - began) * self._rate)
                # After a stall it catches up in steps of a quarter of a second's records, no larger: see above.
                self.write(self._records[self._written : min(due, self._written + self._rate // 4)])
        except BaseException as error:
            self._failure = error
