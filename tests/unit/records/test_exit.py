"""A process may exit while one of its threads is in the kernel."""

from __future__ import annotations

import subprocess
import sys

# The kernel calls a function of a batch, which runs until Python ends the thread.
_SCRIPT = """
import threading
from pyspark_kafka_direct.records import _native

class Batch:
    def __arrow_c_array__(self, requested_schema=None):
        entered.set()
        while True:
            pass

entered = threading.Event()
encoder = _native.Encoder(1, 0, None, 1000, 1000, False, 0)
threading.Thread(target=encoder.add, args=(Batch(),), daemon=True).start()
entered.wait()
"""


def test_a_thread_that_python_ends_does_not_abort_the_process() -> None:
    process = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=False, timeout=600)
    assert (process.returncode, process.stderr) == (0, "")
