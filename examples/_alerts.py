"""Input and output of continuous_flights.py: produces departures, consumes alerts and shows their latency."""

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

_POLL_INTERVAL_S = 0.005  # one request for each flight would overload a broker that has just started
_TIMEOUT_S = 30.0
_ROW_INTERVAL_S = 1.0
_SHOWN_ALERTS = 8
_BAR_WIDTH = 40
_RECENT_ALERTS = 500  # in the histogram
_BOUNDS_MS = (1, 2, 3, 5, 10, 20, 50)
_BOLD, _RED, _DIM, _OFF, _CLEAR = "\033[1m", "\033[31m", "\033[2m", "\033[0m", "\033[K"


class Alert(NamedTuple):
    """A late flight, and the milliseconds from its departure to its alert."""

    number: int
    flight: str
    route: str
    minutes: int
    milliseconds: float


class DepartureProducer:
    """Produces flights at a constant rate; ``number`` in the value is the index of the flight."""

    def __init__(self, servers: str, topic: str, records: Sequence[Record], rate: int) -> None:
        from confluent_kafka import Producer

        self.sent: list[float] = []  # times, by number
        self._values = [record.value[:-1] + b', "number": %d}' % number for number, record in enumerate(records)]
        self._keys = [record.key for record in records]
        self._topic, self._rate = topic, rate
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "log_level": 2})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="departures", daemon=True)

    def __enter__(self) -> DepartureProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_TIMEOUT_S)

    def start(self) -> None:
        """Start producing."""
        self._thread.start()

    @property
    def count(self) -> int:
        """The number of produced flights."""
        return len(self.sent)

    @property
    def ended(self) -> bool:
        """Whether all flights are acknowledged."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        started = time.monotonic()
        while self.count < len(self._values) and not self._stopping.wait(_POLL_INTERVAL_S):
            due = min(int((time.monotonic() - started) * self._rate), len(self._values))
            for number in range(self.count, due):
                self.sent.append(time.monotonic())
                self._producer.produce(self._topic, self._values[number], self._keys[number])
            self._producer.poll(0)
        self._producer.flush(_TIMEOUT_S)


class AlertConsumer:
    """Consumes alerts as they arrive."""

    def __init__(self, servers: str, topic: str, departures: DepartureProducer) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self.alerts: list[Alert] = []
        self._departures = departures
        self._consumer = Consumer({"bootstrap.servers": servers, "group.id": "watcher", "enable.auto.commit": False})
        partitions = self._consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])

    def __enter__(self) -> AlertConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def poll(self, seconds: float) -> None:
        """Consume alerts for some time."""
        end = time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0:
            message = self._consumer.poll(remaining)
            if message is None:
                return
            if message.error() is not None:
                raise RuntimeError(f"cannot read alerts: {message.error()}")
            self.alerts.append(self._alert(json.loads(message.value())))

    def _alert(self, flight: dict[str, Any]) -> Alert:
        milliseconds = (time.monotonic() - self._departures.sent[flight["number"]]) * 1000
        name, route = f"{flight['carrier']} {flight['flight']}", f"{flight['origin']} → {flight['dest']}"
        return Alert(flight["number"], name, route, flight["dep_delay"], milliseconds)


class AlertBoard:
    """Shows the progress: a live board on a terminal, otherwise one row per second."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._lines = 0
        self._started = self._next_row = time.monotonic()
        self._shown = 0  # alerts in earlier rows
        self._is_terminal = sys.stdout.isatty()

    def show(self, departed: int, alerts: Sequence[Alert], epoch: int) -> None:
        """Update the board if an update is due."""
        if self._is_terminal:
            self._draw(departed, alerts, epoch)
        elif time.monotonic() >= self._next_row:
            self._next_row += _ROW_INTERVAL_S
            self._row(departed, alerts, epoch)

    def end(self, departed: int, alerts: Sequence[Alert], epoch: int) -> None:
        """Show the final state and a summary."""
        if self._is_terminal:
            self._draw(departed, alerts, epoch)
        else:
            self._row(departed, alerts, epoch)
        self._steps.say(
            f"From departure to alert, {len(alerts):,} flights: "
            + _latency_summary([each.milliseconds for each in alerts])
        )

    def _row(self, departed: int, alerts: Sequence[Alert], epoch: int) -> None:
        new = [each.milliseconds for each in alerts[self._shown :]]
        self._shown = len(alerts)
        elapsed = time.monotonic() - self._started
        self._steps.say(
            f"{elapsed:5.1f} s  {departed:>7,} departed  {len(alerts):>6,} alerts  epoch {epoch:>3}  "
            f"{_latency_summary(new)}"
        )

    def _draw(self, departed: int, alerts: Sequence[Alert], epoch: int) -> None:
        elapsed = time.monotonic() - self._started
        lines = [
            f"{_BOLD}{departed:>7,} departed  {len(alerts):>6,} late  epoch {epoch:>3}{_OFF}  {elapsed:5.1f} s",
            "",
        ]
        latest = list(alerts[-_SHOWN_ALERTS:])[::-1]
        lines += [
            f"  {each.flight:<8} {each.route:<10} {_RED}{each.minutes:>5} min late{_OFF}"
            f"   {_DIM}alert after{_OFF} {each.milliseconds:6.1f} ms"
            for each in latest
        ]
        lines += [""] * (_SHOWN_ALERTS - len(latest) + 1)
        recent = [each.milliseconds for each in alerts[-_RECENT_ALERTS:]]
        lines += [f"{_BOLD}departure to alert{_OFF}  {_latency_summary(recent)}", *_histogram(recent)]
        up = f"\033[{self._lines}A" if self._lines else ""
        sys.stdout.write(up + "".join(f"      {line}{_CLEAR}\n" for line in lines))
        sys.stdout.flush()
        self._lines = len(lines)


def _latency_summary(milliseconds: Sequence[float]) -> str:
    if not milliseconds:
        return "no alerts"
    ordered = sorted(milliseconds)
    median, longest = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99))
    return f"half within {median:.1f} ms, 99 % within {longest:.1f} ms"


def _histogram(milliseconds: Sequence[float]) -> list[str]:
    bounds = (0, *_BOUNDS_MS)
    counts = [
        sum(low <= each < high for each in milliseconds)
        for low, high in zip(bounds, (*_BOUNDS_MS, float("inf")), strict=True)
    ]
    names = [f"below {high} ms" for high in _BOUNDS_MS] + [f"{_BOUNDS_MS[-1]} ms or more"]
    longest = max(1, *counts)
    return [
        f"  {name:>14} {'█' * round(_BAR_WIDTH * count / longest):<{_BAR_WIDTH}} {count:>4}"
        for name, count in zip(names, counts, strict=True)
    ]
