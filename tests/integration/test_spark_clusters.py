"""The data source on clusters, where executors are other processes with their own Python environments."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.integration.standalone import PACKAGE, SMALL_EXECUTORS

import pyspark_kafka_direct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.broker import EmbeddedKafka

RECORDS = 5_000

# Dependencies on executors; Spark provides PySpark.
DEPENDENCIES = ("pyarrow", "cryptography", "cffi", "_cffi_backend", "numpy")
# Parts of them that are large and not needed.
EXCLUDED = ("libarrow_flight*", "libarrow_s3*", "include", "tests", "__pycache__")


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka, make_topic: Callable[..., str]) -> str:
    name = make_topic(partitions=4)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(name, str(number).encode(), partition=number % 4)
    assert producer.flush(300) == 0
    return name


@pytest.mark.spark_app
def test_executors_get_the_package_from_an_archive(
    make_spark: Any,
    kafka: EmbeddedKafka,
    topic: str,
    standalone: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = _environment(tmp_path / "environment", with_package=True)
    archive = tmp_path / "environment.tar.gz"  # like the output of `venv-pack`
    with tarfile.open(archive, "w:gz", compresslevel=0) as tar:
        tar.add(environment, arcname=".")
    # The planner on the driver uses the same interpreter path, so the environment has the same name there.
    monkeypatch.chdir(tmp_path)
    with _interpreter(make_spark, monkeypatch, "./environment/bin/python"):
        settings = {**SMALL_EXECUTORS, "spark.archives": f"{archive}#environment", "spark.cores.max": "1"}
        files = _check(make_spark(settings, master=standalone), kafka, topic)
    assert all("/work-127.0.0." in file and "/environment/" in file for file in files), files


@contextlib.contextmanager
def _interpreter(make_spark: Any, monkeypatch: pytest.MonkeyPatch, python: str) -> Iterator[None]:
    """Restart the JVM, because Spark reads the path of the interpreter from the environment once."""
    make_spark.stop_jvm()
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    yield
    make_spark.stop_jvm()


def _check(spark: SparkSession, kafka: EmbeddedKafka, topic: str) -> set[str]:
    df = (
        spark.read.format("kafka-direct")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    assert sorted(int(row.value) for row in df.select("value").collect()) == list(range(RECORDS))
    return _files_of_executors(spark)


def _files_of_executors(spark: SparkSession) -> set[str]:
    def file(_: Any) -> Iterator[str]:

        yield pyspark_kafka_direct.__file__

    return set(spark.sparkContext.parallelize(range(8), 8).mapPartitions(file).collect())


def _environment(folder: Path, *, with_package: bool) -> Path:
    """Create a Python environment with copies of the dependencies, and optionally of the package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    target = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    source = Path(sysconfig.get_paths()["purelib"])
    for entry in source.iterdir():
        if entry.name.split(".")[0] in DEPENDENCIES:
            if entry.is_dir():
                shutil.copytree(entry, target / entry.name, ignore=shutil.ignore_patterns(*EXCLUDED))
            else:
                shutil.copy2(entry, target / entry.name)
    if with_package:
        shutil.copytree(PACKAGE, target / PACKAGE.name)
    return folder
