"""Each Python process of the integration tests runs this at its start; ``tests.shards.python`` puts it on the path.

Spark's Python processes import PySpark from archives, which contain no bytecode: each process compiles its imports for
more than half a second. If the archives are part of an installed PySpark, the same files exist with bytecode.

The process of a streaming source is replaced by one that has the imports, if ``tests.shards.source_runners`` runs.
"""

from __future__ import annotations

import os
import sys

_SERVER = "TESTS_SOURCE_RUNNERS"
_MODULE = "pyspark.sql.streaming.python_streaming_source_runner"


def without_archives(places: list[str]) -> list[str]:
    """Return the paths without ``X/pyspark/python/lib/*.zip`` if ``X`` is one of the paths."""
    kept = []
    for place in places:
        installed_in, inside, _ = place.partition("/pyspark/python/lib/")
        if not (inside and installed_in in places):
            kept.append(place)
    return kept


def replace_process(address: str) -> None:
    """Let a forked process do the work of this one, and exit when it has ended; return if there is no server."""
    import json
    import socket

    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(address)
        except OSError:
            return
        socket.send_fds(connection, [b"-"], [0, 1, 2])
        folder = os.getcwd()
        # Python adds the folder to the path after this module, because of -m.
        request = {"folder": folder, "environment": dict(os.environ), "path": [folder, *sys.path]}
        connection.sendall(json.dumps(request).encode() + b"\n")
        connection.recv(1)  # returns when the other process has ended
    os._exit(0)


sys.path[:] = without_archives(sys.path)
if _SERVER in os.environ and sys.orig_argv[-2:] == ["-m", _MODULE]:
    replace_process(os.environ[_SERVER])
