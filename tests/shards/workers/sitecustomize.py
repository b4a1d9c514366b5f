"""Each Python process of the integration tests runs this at its start; ``tests.shards.python`` puts it on the path.

Spark's Python processes import PySpark from archives, which contain no bytecode: each process compiles its imports for
more than half a second. If the archives are part of an installed PySpark, the same files exist with bytecode.

The process of a streaming source, and the daemon of planners, are replaced by processes that have the imports, if
``tests.shards.source_runners`` runs with the same Python. A process of another Python does its work itself.
"""

from __future__ import annotations

import os
import sys

_SERVER, _PYTHON_OF_SERVER = "TESTS_SOURCE_RUNNERS", "TESTS_SOURCE_RUNNERS_PYTHON"
_SOURCE_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
_DAEMON, _PLANNERS = "pyspark.daemon", "pyspark.sql.worker."


def without_archives(places: list[str]) -> list[str]:
    """Return the paths without ``X/pyspark/python/lib/*.zip`` if ``X`` is one of the paths."""
    kept = []
    for place in places:
        installed_in, inside, _ = place.partition("/pyspark/python/lib/")
        if not (inside and installed_in in places):
            kept.append(place)
    return kept


def this_python() -> str:
    """Return what identifies the interpreter and its installed packages."""
    return f"{sys.version} in {sys.prefix}"


def replaced_command(arguments: list[str]) -> list[str]:
    """Return the module and arguments of a process that another one replaces, or an empty list."""
    match arguments:
        case [_, "-m", module] if module == _SOURCE_RUNNER:
            return [module]
        case [_, "-m", module, planner] if module == _DAEMON and planner.startswith(_PLANNERS):
            return [module, planner]
    return []


def replace_process(address: str, command: list[str]) -> None:
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
        request = {"command": command, "folder": folder, "environment": dict(os.environ), "path": [folder, *sys.path]}
        connection.sendall(json.dumps(request).encode() + b"\n")
        connection.recv(1)  # returns when the other process has ended
    os._exit(0)


sys.path[:] = without_archives(sys.path)
if os.environ.get(_PYTHON_OF_SERVER) == this_python() and (command := replaced_command(sys.orig_argv)):
    replace_process(os.environ[_SERVER], command)
