"""Short starts for the Python processes of Spark, of which the tests have hundreds."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDER = Path(__file__).with_name("workers")


def import_quickly() -> None:
    """Let the Python processes that this one and its children start import PySpark with bytecode."""
    os.environ["PYTHONPATH"] = path_of_workers(os.environ.get("PYTHONPATH", ""))


def path_of_workers(given: str) -> str:
    """Return a ``PYTHONPATH`` with which Python processes of Spark import PySpark with bytecode, and what is given."""
    return os.pathsep.join(filter(None, [str(_FOLDER), given]))
