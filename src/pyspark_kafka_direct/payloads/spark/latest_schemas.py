"""The folder with the schemas that this application has found in registries.

Spark plans the micro-batches of a query in several processes. They share files in Spark's folder for the application's
files on the driver, which is private to the application's user, and which Spark deletes with the application.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pyspark_kafka_direct.payloads.latest_schemas import LatestSchemas

_FOLDER: Final = "pyspark-kafka-direct-schemas"


def _find_folder() -> Path | None:
    """Return the folder, or None in a process without Spark's folder, such as a client of Spark Connect."""
    try:
        from pyspark import SparkFiles  # a PySpark that is only a client of Spark Connect lacks it

        root = SparkFiles.getRootDirectory()
    except (AssertionError, ImportError, RuntimeError):  # AssertionError: this process has no SparkContext
        return None
    return Path(root, _FOLDER) if root else None


APPLICATION_SCHEMAS: Final = LatestSchemas(_find_folder)
