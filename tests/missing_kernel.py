"""A copy of the package without its native kernel, as on a platform that no wheel fits."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyspark_kafka_direct


def copy_without_kernel(folder: Path) -> Path:
    """Return the folder for ``PYTHONPATH``."""
    package = Path(pyspark_kafka_direct.__file__).parent
    shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("_native*.so", "__pycache__"))
    return folder
