"""The task that runs on an executor. Spark pickles it by value, so that it also runs where the package is missing.

Everything that it uses is in this module or in Python's standard library.
"""

from __future__ import annotations

import platform
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PACKAGE = "pyspark_kafka_direct"


def probe(tasks: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Report the Python of this executor, and the findings of the package if it is there."""
    for task in tasks:
        report: dict[str, Any] = {
            "time": time.time(),
            "python": platform.python_version(),
            "executable": sys.executable,
            "versions": {name: _version(name) for name in task["distributions"]},
        }
        try:
            from pyspark_kafka_direct._version import __version__
            from pyspark_kafka_direct.cli.doctor.checks import check_on_executor

            report["package"] = __version__
            report["findings"] = check_on_executor(task["settings"], task["wanted"], task["timeout"])
        except ImportError as error:
            report["import_error"] = f"{type(error).__name__}: {error}"
            report["package"] = _version_of_package()
        yield report


def _version(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:  # PySpark is a part of Spark there, or it is in an archive without metadata
        pass
    try:
        return str(__import__(distribution).__version__)
    except (ImportError, AttributeError):
        return None


def _version_of_package() -> str | None:
    """Return the version of a package that is too old to check itself; None if there is none."""
    try:
        return str(__import__(_PACKAGE).__version__)
    except (ImportError, AttributeError):
        return None
