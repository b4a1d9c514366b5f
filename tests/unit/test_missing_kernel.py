"""Without the native kernel, other data sources work, and this one says what to install.

``tests/integration/test_missing_kernel.py`` does the same with Spark.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.missing_kernel import copy_without_kernel

if TYPE_CHECKING:
    from pathlib import Path

# Modules that no import of the kernel may break: Spark imports them in processes that use other data sources, too.
DISCOVERED = """
import sys
import pyspark_kafka_direct, pyspark_kafka_direct.daemon, pyspark_kafka_direct.errors
import pyspark_kafka_direct.broker.__main__
assert hasattr(pyspark_kafka_direct, "DefaultSource")
print(pyspark_kafka_direct.DefaultSource.name(), pyspark_kafka_direct.__file__)
pyspark_kafka_direct.daemon.preload_modules()
"""
FOUND = "import sys, pyspark_kafka_direct\npyspark_kafka_direct.DefaultSource"
CREATED = """
import pyspark_kafka_direct
try:
    pyspark_kafka_direct.DefaultSource({"subscribe": "t"})
except pyspark_kafka_direct.KernelMissingError as error:
    assert isinstance(error, ImportError)
    print(error)
"""


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_without_kernel(tmp_path_factory.mktemp("without_kernel"))


def test_spark_finds_the_data_source(package: Path) -> None:
    found = run(package, "-c", DISCOVERED)
    assert found.returncode == 0, found.stderr
    name, file = found.stdout.split()
    assert name == "kafka-direct"
    assert file.startswith(str(package))


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_a_source_is_an_error_that_says_what_to_install(package: Path, tmp_path: Path, packed: bool) -> None:
    path = package
    if packed:  # as with --py-files
        whole = shutil.make_archive(str(tmp_path / "package"), "zip", package)
        path = tmp_path / "package.zip"
        assert whole == str(path)
    created = run(path, "-c", CREATED)
    assert created.returncode == 0, created.stderr
    (line,) = created.stdout.splitlines()
    assert line.startswith("The native kernel of pyspark-kafka-direct cannot be loaded in CPython ")
    assert (
        f"on {platform.system()} {platform.machine()} (No module named 'pyspark_kafka_direct.records._native')" in line
    )
    assert "install the wheel for this platform" in line
    assert "--archives" in line


def test_the_broker_starts(package: Path) -> None:
    """Up to its arguments; a broker takes seconds."""
    started = run(package, "-m", "pyspark_kafka_direct.broker", "--help")
    assert started.returncode == 0, started.stderr
    assert "--topic" in started.stdout


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("sys.abiflags = 't'", "(a free-threaded build): use a build of Python with the GIL."),
        (
            "import types\nold = types.ModuleType('old')\n"
            "sys.modules['pyspark_kafka_direct.records._native'] = old\nold.INTERFACE_VERSION = 1",
            "(it was built from other sources than this package): install the package again.",
        ),
    ],
    ids=["free-threaded", "outdated"],
)
def test_a_kernel_that_does_not_fit(package: Path, before: str, message: str) -> None:
    created = run(package, "-c", f"{FOUND}\n{before}\n{CREATED}")
    assert created.returncode == 0, created.stderr
    assert created.stdout.strip().endswith(message)
