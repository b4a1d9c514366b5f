"""A query that has seen enough (``show``, ``limit``) ends its tasks early; that shall not look like a crash.

Spark then closes its side of the socket to the Python worker. The worker notices when it next writes a batch, closes
our generator, and dies of the broken pipe with a stack trace on the console, although nothing is wrong.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

T = TypeVar("T")


def quiet_early_end(batches: Iterator[T]) -> Generator[T]:
    """Hands the batches on; if the worker closes this generator before its end, the worker's last words are muted.

    The process is lost to Spark either way: after a failed write a Python worker is never used again.
    """
    try:
        yield from batches
    except GeneratorExit:
        if _in_spark_worker():
            _mute_standard_error()
        raise


def _in_spark_worker() -> bool:
    from pyspark import TaskContext

    return TaskContext.get() is not None


def _mute_standard_error() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
