"""An environment without PySpark: this package, and what it requires, in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

import pyspark_kafka_direct

if TYPE_CHECKING:
    from collections.abc import Iterable

_ROOT = Path(__file__).parents[1]


def link_requirements(folder: Path, *more: str) -> None:
    """Make the folder contain this package, its required distributions, these too, and nothing else."""
    package = Path(pyspark_kafka_direct.__file__).parent
    (folder / package.name).symlink_to(package)
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    for name in _closure([*project["dependencies"], *more]):
        found = distribution(name)
        parts = {Path(file).parts[0] for file in found.files or ()}
        for part in parts - {"..", "__pycache__"}:
            (folder / part).symlink_to(Path(str(found.locate_file(part))))


def run(folder: Path, program: str) -> str:
    """Run a program that finds only the modules of the folder and of Python's library, and return its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    completed = subprocess.run(
        [sys.executable, "-S", "-W", "error", "-c", program],  # without site, which adds this environment's packages
        env=environment | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def _closure(requirements: Iterable[str]) -> set[str]:
    """Return the names of the distributions that these require, and of those that they require."""
    names: set[str] = set()
    waiting = [Requirement(each) for each in requirements]
    while waiting:
        requirement = waiting.pop()
        if requirement.name in names or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        names.add(requirement.name)
        waiting += map(Requirement, distribution(requirement.name).requires or ())
    return names
