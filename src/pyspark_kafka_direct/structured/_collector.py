"""A small task must not pay for Python's garbage collector.

PySpark's daemon has each worker collect garbage after every task. With PySpark, PyArrow and this package imported, some
fifty thousand objects are looked at each time, 25 ms of processor time: ten times what it takes to read a small range.
None of them ever becomes garbage. ``gc.freeze`` takes them out of the collector's sight.
"""

from __future__ import annotations

import gc
import sys
from enum import Enum

_State = Enum("_State", "NEW USED FROZEN")
_state = _State.NEW


def spare_the_collector() -> None:
    """Called at the start of a task: freezes what is there when the second one of this worker process begins.

    Not at the first, for reading imports more; and then everything is there, and the daemon has just collected, so
    nothing is frozen that is garbage. Once only: a task leaves nothing behind that is worth it. Does nothing outside a
    worker of the daemon.
    """
    global _state
    if _state is _State.FROZEN or not in_daemon():
        return
    if _state is _State.USED:
        gc.freeze()
        _state = _State.FROZEN
    else:
        _state = _State.USED


def in_daemon() -> bool:
    """Whether this process is a worker that PySpark's daemon has forked."""
    return getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None) == "pyspark.daemon"
