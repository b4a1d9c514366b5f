"""PySpark's daemon with all modules that a worker needs already imported: ``spark.python.daemon.module``.

Spark forks its Python workers from a daemon that has imported very little, so each new worker imports PySpark's worker,
PyArrow and this package: 0.3 s of processor time. Spark ends a worker that did not read its data to the end, for
example with ``show`` and ``limit``, so the next query starts another worker. With this module, workers are forked from
a daemon that has already imported the modules::

    spark-submit --conf spark.python.daemon.module=pyspark_kafka_direct.daemon ...

The package must be installed on the executors: with ``--py-files`` the daemon cannot start.

PySpark imports after the fork because PyArrow and NumPy start threads when they are imported, and a forked process has
no threads of its parent. OpenBLAS stops its threads before a fork and restarts them on demand; the background thread of
Arrow's jemalloc is not started here.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Final
from zipimport import zipimporter

_JEMALLOC: Final = "JE_ARROW_MALLOC_CONF"  # the environment variable with options of Arrow's allocator

PRELOADED_MODULES: Final = (
    "encodings.idna",  # used for any host name
    "pyarrow",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark_kafka_direct.records",
    "pyspark_kafka_direct.consumer.client_rack",
    "pyspark_kafka_direct.consumer.fetcher",
    "pyspark_kafka_direct.consumer.range_task",
    "pyspark_kafka_direct.spark.range_task_reader",
    "pyspark_kafka_direct.spark.loss_channel",
    "pyspark_kafka_direct.spark.token_file",
    "pyspark_kafka_direct.options.sink_options",
    "pyspark_kafka_direct.options.read_options",
    "pyspark_kafka_direct.datasource.kafka_batch_reader",
    "pyspark_kafka_direct.datasource.writers",
    "pyspark_kafka_direct.payloads.spark.reader_schemas",
    "pyspark_kafka_direct.datasource.source_provider",
)


def main() -> None:
    """Import the modules that workers need, and run PySpark's daemon."""
    preload_modules()
    clear_zip_importers()
    os.register_at_fork(after_in_child=reseed_numpy)
    # Workers share the memory of these objects with the daemon, until a garbage collection writes to its pages. Frozen
    # objects are not collected, so their pages are not copied. Collect first: frozen garbage would never be freed.
    gc.collect()
    gc.freeze()
    from pyspark.daemon import manager  # its own imports are preloaded, so the order hardly matters

    manager()


def preload_modules() -> None:
    """Import the modules that workers need, and skip modules that cannot be imported.

    This version of Spark may not have a module, or its import may fail. A worker that needs the module then raises the
    import error. If this function raised it, Spark would have no worker at all.
    """
    is_jemalloc_configured = _JEMALLOC in os.environ  # by the user, whose options take precedence
    if not is_jemalloc_configured:
        os.environ[_JEMALLOC] = "background_thread:false"  # a forked worker would not have the thread
    for name in PRELOADED_MODULES:
        with suppress(Exception):
            import_module(name)
    if not is_jemalloc_configured:
        del os.environ[_JEMALLOC]  # Arrow has read it; programs that a worker starts need not inherit it


def clear_zip_importers() -> None:
    """Remove the cached importers of archives; Python creates new ones on demand.

    Each new worker calls ``importlib.invalidate_caches``, because Spark may have added files. After that call, each
    importer reads the table of its archive again. PySpark's archive has thousands of files and 15 importers, one for
    each package, so its table would be read 15 times.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]


def reseed_numpy() -> None:
    """Seed NumPy's random numbers after a fork, as Python does its own: otherwise all workers draw the same numbers.

    NumPy seeds ``numpy.random`` on import, and before NumPy 2 PyArrow's import includes it.
    """
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()


if __name__ == "__main__":
    main()
