"""Spare Python workers the walk through what is never garbage.

PySpark's daemon has a worker collect garbage after every task. Modules, classes and functions, some fifty thousand
objects, are walked each time, in memory that the task has driven out of the caches. After tasks of 130 ms for a million
small records, that took 20 ms of processor time.
"""

from __future__ import annotations

import functools
import gc

from pyspark_kafka_direct.runtime._daemon import in_daemons_worker


def spare_collections() -> None:
    """Take what exists now out of all later garbage collections; once a process, and only in a worker of the daemon.

    Called when the first work is done, so that all imports are. Reference counts free objects as ever. Only cycles of
    objects that exist now stay until the process ends, were they to become garbage.
    """
    if in_daemons_worker():
        _freeze_once()


@functools.cache
def _freeze_once() -> None:
    gc.freeze()
