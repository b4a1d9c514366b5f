"""Whether this process is a Python worker of Spark, without importing Spark."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


_MODULES = {"pyspark.daemon": "__main__", "pyspark_kafka_direct.daemon": "pyspark.daemon"}
"""What a daemon's process was started as (``spark.python.daemon.module``), to where PySpark's daemon is in it."""


def in_daemons_worker() -> bool:
    """Tell whether this process was forked by PySpark's daemon, which keeps workers for later tasks."""
    return daemon_module() is not None


def daemon_module() -> ModuleType | None:
    """Return the module of PySpark's daemon that has forked this process, if one has."""
    started_as = getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None)
    return sys.modules[_MODULES[started_as]] if started_as in _MODULES else None


def socket_to_jvm() -> socket.socket | None:
    """Return the worker's socket, if this is called in a worker of the daemon, by its main thread.

    The daemon hands the socket to its function ``worker`` and keeps it nowhere else, so it is looked up in the frame of
    that call, which is under every task.
    """
    if not in_daemons_worker():
        return None
    frame = sys._getframe()
    while (caller := frame.f_back) is not None:
        frame = caller
        found = frame.f_locals.get("sock") if frame.f_code.co_name == "worker" else None
        if isinstance(found, socket.socket):
            return found
    return None
