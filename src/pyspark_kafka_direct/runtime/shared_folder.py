"""The folder where the listener of ``enable(spark)`` and the planners of queries leave each other small files.

They are two processes on the driver's host, and nothing but Spark's own folder for the application's files is known to
both. Files and no sockets: nothing to authenticate, since the folder is private to the application's user; nothing to
wait for; and all is gone with the application.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "pyspark-kafka-direct"
"""Its name within the folder that Spark keeps on the driver for its application."""


def make_folder(spark: SparkSession) -> Path | None:
    """Make the folder, or find it; ``None`` where the session has no JVM at hand (Spark Connect)."""
    if getattr(spark, "_jsparkSession", None) is None:
        return None
    from pyspark import SparkFiles

    folder = Path(SparkFiles.getRootDirectory(), FOLDER)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def find_folder(root: Path | None = None) -> Path | None:
    """Return the folder, in the process that plans a query; ``None``: ``enable(spark)`` was not called.

    Args:
        root: Spark's folder for the application's files on the driver. A session with files of its own has one within
            that.
    """
    if root is None:
        from pyspark import SparkFiles

        root = Path(SparkFiles.getRootDirectory())
    return next((place / FOLDER for place in (root, root.parent) if (place / FOLDER).is_dir()), None)


def write_text(file: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or what was there before."""
    unfinished = file.with_name(f"{file.name}.{uuid.uuid4().hex}.new")
    try:
        unfinished.write_text(text)
        os.replace(unfinished, file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
