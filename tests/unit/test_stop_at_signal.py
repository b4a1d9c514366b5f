"""``stop_at_signal`` with real signals."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pyspark_kafka_direct import OptionError, stop_at_signal

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
query.ended.wait(60)
print("end")
"""


def test_the_first_signal_stops_once_in_a_thread() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", APPLICATION], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "stopped with 1 2 False\nend\n"), ended.stderr


SEVERAL = """
import os, signal, threading
from pyspark_kafka_direct import stop_at_signal

class Query:
    def __init__(self, name, failures=0):
        self.name, self.failures, self.ended = name, failures, threading.Event()
    def stop(self):
        print("stop", self.name, flush=True)
        self.failures -= 1
        if self.failures >= 0:
            raise RuntimeError("not now")
        self.ended.set()

queries = [Query("first", failures=1), Query("second"), Query("third")]
for each in [*queries, queries[1]]:
    stop_at_signal(each)
while not all(each.ended.wait(0.1) for each in queries):
    os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_stop_that_failed_is_retried_at_the_next_signal() -> None:
    ended = subprocess.run([sys.executable, "-c", SEVERAL], capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout.splitlines() == ["stop second", "stop third", "stop first", "stop first"], ended.stderr
    assert ended.stderr.count("failed to stop; the next signal retries") == 1
    assert "RuntimeError: not now" in ended.stderr


ENDED = """
import gc, os, signal, threading, weakref
from pyspark_kafka_direct import stop_at_signal

class Query:
    def __init__(self, name):
        self.name, self.isActive = name, True
    def stop(self):
        print("stop", self.name, flush=True)

class WithoutJvm:
    def __init__(self):
        self.stopped = threading.Event()
    @property
    def isActive(self):
        raise ConnectionError
    def stop(self):
        print("stop without JVM", flush=True)
        self.stopped.set()

without_jvm = WithoutJvm()
stop_at_signal(without_jvm)
queries = []
for number in range(100):
    query = Query(number)
    stop_at_signal(query)
    queries.append(weakref.ref(query))
    query.isActive = number == 70
del query
gc.collect()
print(sum(each() is not None for each in queries))
os.kill(os.getpid(), signal.SIGTERM)
without_jvm.stopped.wait(60)
"""


def test_queries_that_have_ended_are_forgotten() -> None:
    """An application may start a query every minute, for weeks."""
    ended = subprocess.run([sys.executable, "-c", ENDED], capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout.splitlines() == ["2", "stop 99", "stop 70", "stop without JVM"], ended.stderr


def test_an_object_without_stop_is_rejected() -> None:
    with pytest.raises(OptionError, match="with a method stop"):
        stop_at_signal(7)  # type: ignore[arg-type]
