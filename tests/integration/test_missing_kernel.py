"""A session whose Python has the package without its native kernel; see also ``tests/unit/test_missing_kernel.py``."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.missing_kernel import copy_without_kernel
from tests.shards.python import path_of_workers

from pyspark_kafka_direct.broker.probe import free_ports

if TYPE_CHECKING:
    from pathlib import Path

# Spark looks for data sources in all packages whose names begin with pyspark_, so one that fails would hide the others.
OTHER = """
from pyspark.sql.datasource import DataSource, DataSourceReader

class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "other"

    def schema(self):
        return "value int"

    def reader(self, schema):
        return Reader()

class Reader(DataSourceReader):
    def read(self, partition):
        yield (7,)
"""
APPLICATION = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
print("csv", spark.read.format("csv").load(sys.argv[1]).collect())
print("other", spark.read.format("other").load().collect())
try:
    spark.read.format("kafka-direct").option("subscribe", "t").load()
except Exception as error:
    print("error", str(error).splitlines())
"""


@pytest.mark.spark_app
def test_other_sources_work_and_this_one_says_what_to_install(tmp_path: Path) -> None:
    packages = copy_without_kernel(tmp_path / "packages")
    (packages / "pyspark_other").mkdir()
    (packages / "pyspark_other" / "__init__.py").write_text(OTHER)
    data = tmp_path / "data.csv"
    data.write_text("5\n")
    environment = {**os.environ, "PYTHONPATH": path_of_workers(str(packages))}
    command = [sys.executable, "-c", APPLICATION, str(data)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert run.returncode == 0, run.stderr
    csv, other, error = run.stdout.splitlines()
    assert csv == "csv [Row(_c0='5')]"
    assert other == "other [Row(value=7)]"
    assert "The native kernel of pyspark-kafka-direct cannot be loaded" in error
    assert "install the wheel for this platform" in error
    assert "--archives" in error


def test_the_broker_starts(tmp_path: Path) -> None:
    [port] = free_ports(1)
    environment = {**os.environ, "PYTHONPATH": str(copy_without_kernel(tmp_path))}
    command = [sys.executable, "-m", "pyspark_kafka_direct.broker", "--port", str(port)]
    # Tests may run in the background, where interrupts are ignored.
    enable_interrupts = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=enable_interrupts
    ) as broker:
        assert broker.stdout is not None
        started = broker.stdout.readline()
        broker.send_signal(signal.SIGINT)
        assert broker.wait(600) == 0
    assert started == f"127.0.0.1:{port}\n"
