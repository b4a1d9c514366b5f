"""Python processes of Spark import PySpark from where it has bytecode, and keep what else they are told."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from tests.shards.python import import_quickly, path_of_workers
from tests.shards.workers.sitecustomize import without_archives

if TYPE_CHECKING:
    import pytest


def test_archives_are_left_out_where_pyspark_is_installed_around_them() -> None:
    kept = ["", "/usr/lib/python311.zip", "/site", "/elsewhere/pyspark/python/lib/pyspark.zip"]
    left_out = ["/site/pyspark/python/lib/pyspark.zip", "/site/pyspark/python/lib/py4j-0.10-src.zip"]
    assert without_archives(left_out + kept) == kept


def test_a_process_with_sparks_archives_imports_the_installed_files(monkeypatch: pytest.MonkeyPatch) -> None:
    archives = sorted((Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"))
    assert len(archives) == 2
    monkeypatch.setenv("PYTHONPATH", "/given")
    import_quickly()
    path = os.pathsep.join([*map(str, archives), os.environ["PYTHONPATH"]])
    program = "import sys, py4j, pyspark; print(py4j.__file__, pyspark.__file__, '/given' in sys.path)"
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    py4j_file, pyspark_file, given = said.stdout.split()
    installed = Path(sysconfig.get_paths()["purelib"])
    assert Path(py4j_file).is_relative_to(installed / "py4j")
    assert Path(pyspark_file) == installed / "pyspark" / "__init__.py"
    assert given == "True"


def test_the_path_of_executors_keeps_what_is_given() -> None:
    folder = path_of_workers("")
    assert Path(folder, "sitecustomize.py").exists()
    assert path_of_workers("/given").split(os.pathsep) == [folder, "/given"]
