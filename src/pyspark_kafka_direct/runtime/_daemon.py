"""Whether this process is a Python worker of Spark, without importing Spark."""

from __future__ import annotations

import socket
import sys


def in_daemons_worker() -> bool:
    """Tell whether this process was forked by PySpark's daemon, which keeps workers for later tasks."""
    return getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None) == "pyspark.daemon"


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
