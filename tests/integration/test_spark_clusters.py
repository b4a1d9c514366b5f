"""The data source on real clusters: executors are other processes, with Python environments of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.documentation import fenced
from tests.integration.standalone import PACKAGE, SMALL, standalone_cluster

import pyspark_kafka_direct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_kafka_direct.broker import EmbeddedKafka

# Besides the session of pytest's process there are masters and workers, and its JVM is started anew for some tests.
pytestmark = pytest.mark.spark_app

RECORDS = 5_000

# What the package needs on an executor; PySpark itself comes with Spark.
DEPENDENCIES = ("pyarrow", "google_crc32c", "cryptography", "cffi", "_cffi_backend", "numpy")
# Of these what takes long to pack and unpack, and is not needed.
LEFT_OUT = ("libarrow_flight*", "libarrow_s3*", "include", "tests", "__pycache__")


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka, make_topic: Callable[..., str]) -> str:
    name = make_topic(partitions=4)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(name, str(number).encode(), partition=number % 4)
    assert producer.flush(30) == 0
    return name


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone master with two workers, which know nothing of the driver's environment."""
    with standalone_cluster(tmp_path_factory.mktemp("standalone"), ("127.0.0.2", "127.0.0.3")) as url:
        yield url


def test_local_cluster(make_spark: Any, kafka: EmbeddedKafka, topic: str) -> None:
    settings = {"spark.executorEnv.PYTHONPATH": str(PACKAGE.parent)}
    _check(make_spark(settings, master="local-cluster[2,1,1024]"), kafka, topic, where_from="files")


def test_standalone_master_with_two_workers(make_spark: Any, kafka: EmbeddedKafka, topic: str, standalone: str) -> None:
    settings = {
        **SMALL,
        "spark.executorEnv.PYTHONPATH": str(PACKAGE.parent),
        # So that both workers take part: nothing runs before there are two cores.
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "150s",
    }
    spark = make_spark(settings, master=standalone)
    hosts = _check(spark, kafka, topic, where_from="hosts")
    assert hosts == {"127.0.0.2", "127.0.0.3"}


def test_executors_get_the_package_by_an_archive(
    make_spark: Any,
    kafka: EmbeddedKafka,
    topic: str,
    standalone: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = _environment(tmp_path / "environment", with_package=True)
    archive = tmp_path / "environment.tar.gz"  # what `venv-pack` makes of an environment, without its download
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(environment, arcname=".")
    # The driver's planner runs the same interpreter path, so the environment lies there under the same name.
    monkeypatch.chdir(tmp_path)
    with _interpreter(make_spark, monkeypatch, "./environment/bin/python"):
        spark = make_spark({**SMALL, "spark.archives": f"{archive}#environment"}, master=standalone)
        files = _check(spark, kafka, topic, where_from="files")
    assert all("/work-127.0.0." in file and "/environment/" in file for file in files), files


def test_py_files_carry_no_native_code_so_decoding_is_in_python(
    make_spark: Any,
    kafka: EmbeddedKafka,
    topic: str,
    standalone: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = _environment(tmp_path / "bare", with_package=False)
    monkeypatch.chdir(tmp_path)
    made: dict[str, Any] = {}
    [recipe] = [block.text for block in fenced("docs/deployment.md") if "make_archive" in block.text]
    exec(recipe, made)
    with _interpreter(make_spark, monkeypatch, str(bare / "bin" / "python")):
        spark = make_spark(SMALL, master=standalone)
        spark.sparkContext.addPyFile(made["archive"])
        # Spark looks for sources in its environments only, and this one is in none of them.
        spark.dataSource.register(pyspark_kafka_direct.DefaultSource)
        assert _check(spark, kafka, topic, where_from="decoders") == {"python"}


@contextlib.contextmanager
def _interpreter(make_spark: Any, monkeypatch: pytest.MonkeyPatch, python: str) -> Iterator[None]:
    """A JVM of its own: Spark reads the interpreter's path from the environment, once."""
    make_spark.stop_jvm()
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    yield
    make_spark.stop_jvm()


def _check(spark: SparkSession, kafka: EmbeddedKafka, topic: str, where_from: str = "hosts") -> set[str]:
    df = (
        spark.read.format("kafka-direct")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    assert sorted(int(row.value) for row in df.select("value").collect()) == list(range(RECORDS))
    return _seen_by_executors(spark, df, where_from)


def _seen_by_executors(spark: SparkSession, df: DataFrame, what: str) -> set[str]:
    def look(_: Any) -> Iterator[str]:

        import pyspark_kafka_direct
        from pyspark_kafka_direct import records

        yield {
            "hosts": os.environ["SPARK_LOCAL_IP"],
            "files": pyspark_kafka_direct.__file__,
            "decoders": records.IMPLEMENTATION,
        }[what]

    return set(spark.sparkContext.parallelize(range(8), 8).mapPartitions(look).collect())


def _environment(folder: Path, *, with_package: bool) -> Path:
    """A Python environment with copies of the dependencies, and of the package if wanted."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    target = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    source = Path(sysconfig.get_paths()["purelib"])
    for entry in source.iterdir():
        if entry.name.split(".")[0] in DEPENDENCIES:
            if entry.is_dir():
                shutil.copytree(entry, target / entry.name, ignore=shutil.ignore_patterns(*LEFT_OUT))
            else:
                shutil.copy2(entry, target / entry.name)
    if with_package:
        shutil.copytree(PACKAGE, target / PACKAGE.name)
    return folder
