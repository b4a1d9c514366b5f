"""Short starts for the Python processes of Spark, of which the tests have hundreds."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDER = Path(__file__).with_name("workers")


def import_quickly() -> None:
    """Let the Python processes that this one and its children start import PySpark with bytecode."""
    places = [str(_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(places)
