"""Keep a query that has seen enough (``show``, ``limit``) from looking like a crash when it ends its tasks early.

Spark then closes its side of the socket to the Python worker. The worker notices when it next writes, at the latest
when it flushes its last words. Then PySpark's daemon prints the broken pipe as a stack trace on the console, although
nothing is wrong and the process is about to end.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

from pyspark_kafka_direct.runtime._daemon import daemon_module


def allow_early_end() -> None:
    """Keep PySpark's daemon, in this worker process only, from printing the stack trace of a closed socket.

    Everything else that the daemon has to say is printed as ever. Does nothing outside a worker of the daemon.
    """
    daemon = daemon_module()
    if daemon is not None and not isinstance(getattr(daemon, "traceback", None), _SocketsMayClose):
        daemon.traceback = _SocketsMayClose()  # type: ignore[attr-defined]


class _SocketsMayClose:
    """The module ``traceback`` as the daemon sees it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self) -> None:
        if not isinstance(sys.exception(), (BrokenPipeError, ConnectionResetError)):
            traceback.print_exc()
