"""``stop_at_signal`` with real signals."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct import OptionError, stop_at_signal

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)

APPLICATION = """
import os, signal, threading
from pyspark_kafka_direct import stop_at_signal

class Query:
    ended = threading.Event()
    def stop(self, *args):
        print("stopped with", *args, threading.current_thread() is threading.main_thread(), flush=True)
        self.ended.set()

query = Query()
stop_at_signal(query, 1, 2, signals=(signal.SIGTERM, signal.SIGUSR1))
for each in (signal.SIGUSR1, signal.SIGTERM):
    os.kill(os.getpid(), each)
query.ended.wait(120)
print("end")
"""


def test_the_first_signal_stops_once_in_a_thread() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", APPLICATION], capture_output=True, text=True, timeout=300, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "stopped with 1 2 False\nend\n"), ended.stderr


class Query:
    """Records its stops; the first ``failures`` of them fail."""

    def __init__(self, stops: list[str], name: str, failures: int = 0) -> None:
        self.isActive = True
        self._stops = stops
        self._name = name
        self._failures = failures
        self.ended = threading.Event()

    def stop(self) -> None:
        self._stops.append(self._name)
        self._failures -= 1
        if self._failures >= 0:
            raise RuntimeError("not now")
        self.ended.set()


class WithoutJvm(Query):
    @property
    def isActive(self) -> bool:
        raise ConnectionError

    @isActive.setter
    def isActive(self, value: bool) -> None:
        pass


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def wait_for_stops() -> None:
    """Wait until the threads that stop queries have ended."""
    for thread in threading.enumerate():
        if thread.name == "pyspark-kafka-direct-stop":
            thread.join(120)


def test_a_stop_that_failed_is_retried_at_the_next_signal(caplog: pytest.LogCaptureFixture) -> None:
    stops: list[str] = []
    queries = [Query(stops, "first", failures=1), Query(stops, "second"), Query(stops, "third")]
    for each in [*queries, queries[1]]:
        stop_at_signal(each)
    for expected in (["second", "third", "first"], ["second", "third", "first", "first"]):
        for _ in range(2):
            send(signal.SIGTERM)
            wait_for_stops()
            if stops == expected:
                break
        assert stops == expected
    send(signal.SIGTERM)
    wait_for_stops()
    assert len(stops) == 4, "all have stopped"
    (record,) = caplog.records
    assert "failed to stop; the next signal retries" in record.getMessage()
    assert record.exc_info is not None


@pytest.mark.parametrize(
    ("order", "stopped"), [(SIGNALS, (["both"], ["both", "second"])), (SIGNALS[::-1], (["second", "both"],) * 2)]
)
def test_each_signal_stops_its_queries(order: tuple[signal.Signals, ...], stopped: tuple[list[str], list[str]]) -> None:
    stops: list[str] = []
    stop_at_signal(Query(stops, "both"), signals=SIGNALS)
    stop_at_signal(Query(stops, "second"), signals=SIGNALS[1:])
    for number, expected in zip(order, stopped, strict=True):
        send(number)
        wait_for_stops()
        assert stops == expected


def test_queries_that_have_ended_are_forgotten() -> None:
    """An application may start a query every minute, for weeks."""
    stops: list[str] = []
    stop_at_signal(WithoutJvm(stops, "without JVM"))
    queries = []
    for number in range(100):
        query = Query(stops, str(number))
        stop_at_signal(query)
        queries.append(weakref.ref(query))
        query.isActive = number == 70
    del query
    gc.collect()
    assert sum(each() is not None for each in queries) == 2
    send(signal.SIGTERM)
    wait_for_stops()
    assert stops == ["99", "70", "without JVM"]


def test_an_object_without_stop_is_rejected() -> None:
    with pytest.raises(OptionError, match="with a method stop"):
        stop_at_signal(7)  # type: ignore[arg-type]
