"""The program ``kafka-direct`` with the sources of this tree, in this process or in another one."""

from __future__ import annotations

import io
import logging
import sys
from contextlib import redirect_stderr, redirect_stdout
from subprocess import CompletedProcess
from typing import Final

from pyspark_kafka_direct.cli.main import main

PROGRAM: Final = "import sys; from pyspark_kafka_direct.cli.main import main; sys.exit(main())"
"""What the installed command runs."""

START: Final = [sys.executable, "-c", PROGRAM]
"""The beginning of a command line."""


def run(*arguments: str) -> CompletedProcess[str]:
    """Run a command in this process; return what ``subprocess.run`` would return.

    Signals, pipes, terminals and the end of the interpreter need another process: see ``START``.
    """
    output, errors = _stream(), _stream()
    # Without a handler, Python writes warnings to stderr. Pytest has added a handler, so that Python does not.
    handler = logging.StreamHandler(errors)
    handler.setLevel(logging.WARNING)
    package = logging.getLogger("pyspark_kafka_direct")
    package.addHandler(handler)
    try:
        with redirect_stdout(output), redirect_stderr(errors):
            code = _exit_code(arguments)
    finally:
        package.removeHandler(handler)
    return CompletedProcess(arguments, code, _written(output), _written(errors))


def _exit_code(arguments: tuple[str, ...]) -> int:
    try:
        return main(arguments)
    except SystemExit as ended:  # of argparse
        if not isinstance(ended.code, int):
            raise
        return ended.code


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    with stream:
        stream.seek(0)
        return stream.read()
