"""Shortens the start of Spark's Python processes; the tests start hundreds of them."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDER = Path(__file__).with_name("workers")


def import_quickly() -> None:
    """Make Python processes that this process and its children start import PySpark with bytecode."""
    os.environ["PYTHONPATH"] = path_of_workers(os.environ.get("PYTHONPATH", ""))


def path_of_workers(given: str) -> str:
    """Return the given ``PYTHONPATH``, extended so that Spark's Python processes import PySpark with bytecode."""
    return os.pathsep.join(filter(None, [str(_FOLDER), given]))
