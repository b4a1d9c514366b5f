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


def test_an_object_without_stop_is_rejected() -> None:
    with pytest.raises(OptionError, match="with a method stop"):
        stop_at_signal(7)  # type: ignore[arg-type]
