"""The data source on clusters, where executors are other processes with their own Python environments."""

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
from tests.integration.standalone import PACKAGE, SMALL_EXECUTORS

import pyspark_kafka_direct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_kafka_direct.broker import EmbeddedKafka

RECORDS = 5_000
READS_WITHOUT_SPARK = """
import sys
import pyspark_kafka_direct
from pyspark_kafka_direct.records import IMPLEMENTATION

servers, topic = sys.argv[1:]
source = pyspark_kafka_direct.DefaultSource({"kafka.bootstrap.servers": servers, "subscribe": topic})
reader = source.reader(source.schema())
print(pyspark_kafka_direct.__file__, IMPLEMENTATION)
for partition in reader.partitions():
    for batch in reader.read(partition):
        print(*map(bytes.decode, batch["value"].to_pylist()))
"""

# Dependencies on executors; Spark provides PySpark.
DEPENDENCIES = ("pyarrow", "google_crc32c", "cryptography", "cffi", "_cffi_backend", "numpy")
# Parts of them that are large and not needed.
EXCLUDED = ("libarrow_flight*", "libarrow_s3*", "include", "tests", "__pycache__")


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka, make_topic: Callable[..., str]) -> str:
    name = make_topic(partitions=4)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(name, str(number).encode(), partition=number % 4)
    assert producer.flush(30) == 0
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
        files = _check(make_spark(settings, master=standalone), kafka, topic, inspect="files")
    assert all("/work-127.0.0." in file and "/environment/" in file for file in files), files


def test_an_archive_of_the_package_decodes_in_python(
    kafka: EmbeddedKafka, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python does not import native code from a zip."""
    monkeypatch.chdir(tmp_path)
    archive = _archive_of_the_package()
    command = [sys.executable, "-c", READS_WITHOUT_SPARK, kafka.bootstrap_servers, topic]
    environment = {**os.environ, "PYTHONPATH": archive}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    file, decoder, *values = done.stdout.split()
    assert file.startswith(archive)
    assert decoder == "python"
    assert sorted(map(int, values)) == list(range(RECORDS))


@pytest.mark.soak  # the test of an archive and test_an_archive_of_the_package_decodes_in_python do the same
def test_py_files_contain_no_native_code_so_decoding_uses_python(
    make_spark: Any,
    kafka: EmbeddedKafka,
    topic: str,
    standalone: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = _environment(tmp_path / "bare", with_package=False)
    monkeypatch.chdir(tmp_path)
    archive = _archive_of_the_package()
    with _interpreter(make_spark, monkeypatch, str(bare / "bin" / "python")):
        spark = make_spark(SMALL_EXECUTORS, master=standalone)
        spark.sparkContext.addPyFile(archive)
        # Spark finds data sources only in installed packages, which this one is not.
        spark.dataSource.register(pyspark_kafka_direct.DefaultSource)
        assert _check(spark, kafka, topic, inspect="decoders") == {"python"}


def _archive_of_the_package() -> str:
    """Make the zip in the current folder, as the documentation says."""
    namespace: dict[str, Any] = {}
    [recipe] = [block.text for block in fenced("docs/deployment.md") if "make_archive" in block.text]
    exec(recipe, namespace)
    return str(namespace["archive"])


@contextlib.contextmanager
def _interpreter(make_spark: Any, monkeypatch: pytest.MonkeyPatch, python: str) -> Iterator[None]:
    """Restart the JVM, because Spark reads the path of the interpreter from the environment once."""
    make_spark.stop_jvm()
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    yield
    make_spark.stop_jvm()


def _check(spark: SparkSession, kafka: EmbeddedKafka, topic: str, inspect: str) -> set[str]:
    df = (
        spark.read.format("kafka-direct")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    assert sorted(int(row.value) for row in df.select("value").collect()) == list(range(RECORDS))
    return _inspect_executors(spark, df, inspect)


def _inspect_executors(spark: SparkSession, df: DataFrame, inspect: str) -> set[str]:
    def describe(_: Any) -> Iterator[str]:

        import pyspark_kafka_direct
        from pyspark_kafka_direct import records

        yield {"files": pyspark_kafka_direct.__file__, "decoders": records.IMPLEMENTATION}[inspect]

    return set(spark.sparkContext.parallelize(range(8), 8).mapPartitions(describe).collect())


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
