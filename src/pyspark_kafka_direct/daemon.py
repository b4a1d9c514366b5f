"""PySpark's daemon with all that a worker needs imported already: ``spark.python.daemon.module``.

Spark forks its Python workers from a daemon that has imported next to nothing, so each new worker imports PySpark's
worker, PyArrow and this package anew: 0.3 s of processor time. Spark ends a worker whose data it did not read to the
end, as with ``show`` and ``limit``, so the next query pays for a new one. With this module in place of PySpark's own
the daemon has imported them, and workers are forked ready::

    spark-submit --conf spark.python.daemon.module=pyspark_kafka_direct.daemon ...

The package must be installed where executors run: with one that comes by ``--py-files`` the daemon cannot start.

PySpark imports all of it after the fork, as PyArrow and NumPy start threads when they are imported, and those are not
in a forked process. Of the threads there are, OpenBLAS ends its own before a fork and starts them when it needs them;
that of Arrow's jemalloc is not started here.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Final
from zipimport import zipimporter

_JEMALLOC: Final = "JE_ARROW_MALLOC_CONF"

NEEDED: Final = (
    "encodings.idna",  # of any host name
    "pyarrow",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark_kafka_direct.records",
    "pyspark_kafka_direct.reading.range_reader",
    "pyspark_kafka_direct.reading.request",
    "pyspark_kafka_direct.runtime.range_task",
    "pyspark_kafka_direct.settings.sink",
    "pyspark_kafka_direct.settings.source",
    "pyspark_kafka_direct.structured.batch",
    "pyspark_kafka_direct.structured.sink",
    "pyspark_kafka_direct.structured.source",
)
"""The modules that are imported before the first fork."""


def main() -> None:
    """Import what workers need, and be PySpark's daemon."""
    import_needed()
    forget_archives()
    os.register_at_fork(after_in_child=seed_numpy)
    # What is there now is there in all workers: no collection has to walk it, and so to copy its pages.
    gc.collect()
    gc.freeze()
    from pyspark.daemon import manager

    manager()


def import_needed() -> None:
    """Import what workers need. What cannot be is left out, as without the daemon there would be no worker at all.

    This version of Spark may not have it, or it fails: then it fails again where it is needed, and is told there.
    """
    without_thread = _JEMALLOC not in os.environ
    if without_thread:
        os.environ[_JEMALLOC] = "background_thread:false"
    for name in NEEDED:
        with suppress(Exception):
            import_module(name)
    if without_thread:
        del os.environ[_JEMALLOC]


def forget_archives() -> None:
    """Forget the importers of archives, of which Python makes new ones where it needs them.

    Each new worker has Python forget what it knows of folders, as Spark may have put files there
    (``importlib.invalidate_caches``). Then each importer reads the table of its archive anew, and PySpark lies in an
    archive, with an importer for each of its packages: 15 times a table of thousands of files.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]


def seed_numpy() -> None:
    """Give a worker chance of its own: NumPy seeds ``numpy.random`` when it is imported, and Python's own at a fork.

    Before NumPy 2, importing PyArrow has imported it. Without this all workers would draw the same numbers.
    """
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()


if __name__ == "__main__":
    main()
