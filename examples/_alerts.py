"""Both ends of continuous_flights.py: departures go into a topic, alerts come out of another and are shown."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from _flights import Record
    from _steps import Steps

_TICK_S = 0.005  # a request for each flight would keep a broker that has just started busy
_WAIT_S = 30.0
_ROW_S = 1.0
_LATEST = 8  # alerts on the board
_BAR = 40
_RECENT = 500  # alerts whose latencies are drawn
_BOUNDS_MS = (1, 2, 3, 5, 10, 20, 50)
_BOLD, _RED, _DIM, _OFF, _CLEAR = "\033[1m", "\033[31m", "\033[2m", "\033[0m", "\033[K"


class Alert(NamedTuple):
    """A flight that is late, and how long after its departure we knew."""

    number: int
    flight: str
    route: str
    minutes: int
    milliseconds: float


class Departures:
    """Sends flights at a steady pace, each at its moment; ``number`` in the value is its place.

    Args:
        servers: Of the Kafka.
        topic: It must exist.
        records: The flights.
        rate: Of them a second.
    """

    def __init__(self, servers: str, topic: str, records: Sequence[Record], rate: int) -> None:
        from confluent_kafka import Producer

        self.sent: list[float] = []
        """When, by number."""
        self._values = [record.value[:-1] + b', "number": %d}' % number for number, record in enumerate(records)]
        self._keys = [record.key for record in records]
        self._topic, self._rate = topic, rate
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "log_level": 2})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="departures", daemon=True)

    def __enter__(self) -> Departures:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_WAIT_S)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def count(self) -> int:
        """How many have departed."""
        return len(self.sent)

    @property
    def ended(self) -> bool:
        """Whether all have, and the broker has them."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        began = time.monotonic()
        while self.count < len(self._values) and not self._stopping.wait(_TICK_S):
            due = min(int((time.monotonic() - began) * self._rate), len(self._values))
            for number in range(self.count, due):
                self.sent.append(time.monotonic())
                self._producer.produce(self._topic, self._values[number], self._keys[number])
            self._producer.poll(0)
        self._producer.flush(_WAIT_S)


class Watcher:
    """Reads alerts as they come.

    Args:
        servers: Of the Kafka.
        topic: Of the alerts.
        departures: Knows when each flight departed.
    """

    def __init__(self, servers: str, topic: str, departures: Departures) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self.alerts: list[Alert] = []
        self._departures = departures
        self._consumer = Consumer({"bootstrap.servers": servers, "group.id": "watcher", "enable.auto.commit": False})
        partitions = self._consumer.list_topics(topic, timeout=_WAIT_S).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def poll(self, seconds: float) -> None:
        """Take what comes for so long.

        Raises:
            RuntimeError: The broker has trouble.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            message = self._consumer.poll(left)
            if message is None:
                return
            if message.error() is not None:
                raise RuntimeError(f"reading alerts: {message.error()}")
            self.alerts.append(self._alert(json.loads(message.value())))

    def _alert(self, flight: dict[str, Any]) -> Alert:
        milliseconds = (time.monotonic() - self._departures.sent[flight["number"]]) * 1000
        name, route = f"{flight['carrier']} {flight['flight']}", f"{flight['origin']} → {flight['dest']}"
        return Alert(flight["number"], name, route, flight["dep_delay"], milliseconds)


class Board:
    """Shows what happens: on a terminal a board that is alive, otherwise a row a second.

    Args:
        steps: Where to tell of it.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._lines = 0
        self._began = self._next_row = time.monotonic()
        self._shown = 0  # alerts in rows so far
        self._live = sys.stdout.isatty()

    def show(self, departed: int, alerts: Sequence[Alert], epoch: int) -> None:
        """Draw it anew, if it is time to."""
        if self._live:
            self._draw(departed, alerts, epoch)
        elif time.monotonic() >= self._next_row:
            self._next_row += _ROW_S
            self._row(departed, alerts, epoch)

    def end(self, departed: int, alerts: Sequence[Alert], epoch: int) -> None:
        """Draw it for the last time, and sum up."""
        if self._live:
            self._draw(departed, alerts, epoch)
        else:
            self._row(departed, alerts, epoch)
        self._steps.say(
            f"From departure to alert, all {len(alerts):,}: {_told([each.milliseconds for each in alerts])}"
        )

    def _row(self, departed: int, alerts: Sequence[Alert], epoch: int) -> None:
        new = [each.milliseconds for each in alerts[self._shown :]]
        self._shown = len(alerts)
        passed = time.monotonic() - self._began
        self._steps.say(
            f"{passed:5.1f} s  {departed:>7,} departed  {len(alerts):>6,} alerts  epoch {epoch:>3}  {_told(new)}"
        )

    def _draw(self, departed: int, alerts: Sequence[Alert], epoch: int) -> None:
        passed = time.monotonic() - self._began
        lines = [
            f"{_BOLD}{departed:>7,} departed  {len(alerts):>6,} late  epoch {epoch:>3}{_OFF}  {passed:5.1f} s",
            "",
        ]
        latest = list(alerts[-_LATEST:])[::-1]
        lines += [
            f"  {each.flight:<8} {each.route:<10} {_RED}{each.minutes:>5} min late{_OFF}"
            f"   {_DIM}told after{_OFF} {each.milliseconds:6.1f} ms"
            for each in latest
        ]
        lines += [""] * (_LATEST - len(latest) + 1)
        recent = [each.milliseconds for each in alerts[-_RECENT:]]
        lines += [f"{_BOLD}departure to alert{_OFF}  {_told(recent)}", *_histogram(recent)]
        up = f"\033[{self._lines}A" if self._lines else ""
        sys.stdout.write(up + "".join(f"      {line}{_CLEAR}\n" for line in lines))
        sys.stdout.flush()
        self._lines = len(lines)


def _told(milliseconds: Sequence[float]) -> str:
    if not milliseconds:
        return "nobody is late"
    ordered = sorted(milliseconds)
    half, most = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99))
    return f"half within {half:.1f} ms, 99 % within {most:.1f} ms"


def _histogram(milliseconds: Sequence[float]) -> list[str]:
    bounds = (0, *_BOUNDS_MS)
    counts = [
        sum(low <= each < high for each in milliseconds)
        for low, high in zip(bounds, (*_BOUNDS_MS, float("inf")), strict=True)
    ]
    names = [f"below {high} ms" for high in _BOUNDS_MS] + [f"{_BOUNDS_MS[-1]} ms or more"]
    most = max(1, *counts)
    return [
        f"  {name:>14} {'█' * round(_BAR * count / most):<{_BAR}} {count:>4}"
        for name, count in zip(names, counts, strict=True)
    ]
