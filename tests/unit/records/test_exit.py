"""A process may exit while one of its threads encodes a batch."""

from __future__ import annotations

import subprocess
import sys

# Each child of this process exits while its thread exports a batch. Like pyarrow, the export is a function of C that
# needs the interpreter lock when Python ends the thread. Only the caller refers to it, and must not delete it then.
_SCRIPT = """
import os, sys, threading, time
from collections import deque
from functools import partial
from itertools import repeat

import pyarrow as pa

from pyspark_kafka_direct.records import RecordEncoder

class Export(partial):
    def __del__(self):
        pass

class Batch:
    schema = pa.schema([("value", pa.binary()), ("timestamp", pa.int64())])

    @property
    def __arrow_c_array__(self):
        running.set()
        return Export(deque, map(time.sleep, repeat(0.01)), 0)

class LongExit:
    def __del__(self, sleep=time.sleep):
        sleep(0.1)  # without the interpreter lock, so that the thread asks for it

children = []
while len(children) < 10 and (child := os.fork()):
    children.append(os.waitpid(child, 0)[1])
if child == 0:
    sys.last_value = LongExit()  # the first object that Python deletes
    running = threading.Event()
    encoder = RecordEncoder(topic="flights", partitions=2)
    threading.Thread(target=encoder.add, args=[Batch()], daemon=True).start()
    running.wait()
else:
    print(children)
"""


def test_a_thread_that_python_ends_does_not_end_the_process() -> None:
    command = [sys.executable, "-W", "ignore", "-c", _SCRIPT]  # Python warns of forks beside threads
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert (process.returncode, process.stdout, process.stderr) == (0, f"{[0] * 10}\n", "")
