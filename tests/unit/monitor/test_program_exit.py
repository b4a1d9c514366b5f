"""A program that calls ``enable(spark)`` over Spark Connect ends without ``spark.stop()``."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Spark Connect calls listeners in a thread that is not a daemon and that ends when the last one is removed.
PROGRAM = """
import sys, threading

import pyspark_kafka_direct


class Manager:
    def __init__(self):
        self.removed = threading.Event()
        self.listeners = []

    def addListener(self, listener):
        self.listeners.append(listener)
        threading.Thread(target=self.removed.wait).start()

    def removeListener(self, listener):
        assert not session.is_stopped, "Spark would warn"
        assert threading.current_thread().daemon
        self.listeners.remove(listener)
        print("removed", flush=True)
        self.removed.set()
        if "fails" in sys.argv:
            raise OSError("the server does not respond")


class Session:
    session_id = "s"
    is_stopped = False
    streams = Manager()


session = Session()
assert pyspark_kafka_direct.enable(session) is pyspark_kafka_direct.enable(session)
if "stopped" in sys.argv:
    session.is_stopped = True
    session.streams.removed.set()  # as a stopped session does
print("end", flush=True)
if "raises" in sys.argv:
    raise SystemExit(3)
"""


@pytest.mark.parametrize(
    ("how", "code", "printed"),
    [
        ("returns", 0, ["end", "removed"]),
        ("raises", 3, ["end", "removed"]),
        ("fails", 0, ["end", "removed"]),
        ("stopped", 0, ["end"]),
    ],
)
def test_a_program_without_stop_ends(how: str, code: int, printed: list[str]) -> None:
    command = [sys.executable, "-c", PROGRAM, how]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout.split(), run.stderr) == (code, printed, "")
