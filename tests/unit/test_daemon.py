"""The daemon has imported all modules that its workers need."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from pyspark_kafka_direct.daemon import clear_zip_importers

PLAN_AND_READ = """
import os, pickle, sys
from pyspark import cloudpickle
from pyspark_kafka_direct.daemon import preload_modules

preload_modules()
threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else None
print(threads, os.environ.get("JE_ARROW_MALLOC_CONF"))
before = set(sys.modules)

from pyspark_kafka_direct import OffsetRange
from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.consumer.range_task import RangeTask
from pyspark_kafka_direct.datasource.partition_reader import KafkaInputPartition
from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider

options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "kafkaConsumer.pollTimeoutMs": "300"}
source = KafkaSourceProvider(options | {"kafka.default.api.timeout.ms": "300", "kafka.request.timeout.ms": "200"})
reader = source.reader(source.schema())
try:
    reader.partitions()
except KafkaDirectError:
    print("planned")
reader = pickle.loads(cloudpickle.dumps(reader))
try:
    list(reader.read(KafkaInputPartition(RangeTask(OffsetRange("t", 0, 0, 10)))))
except KafkaDirectError:
    print("read")
print(sorted(set(sys.modules) - before))
"""

RANDOM_NUMBERS = """
import os, sys
import numpy.random, random
import pyspark.daemon
from pyspark_kafka_direct.daemon import main

def manager():
    for _ in range(2):
        if os.fork() == 0:
            print(numpy.random.random(), random.random(), flush=True)
            os._exit(0)
        os.wait()

pyspark.daemon.manager = manager
main()
"""


def python(code: str, *, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    command, variables = [sys.executable, "-c", code], os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=check, env=variables)


@pytest.fixture(scope="module")
def planned_and_read() -> list[str]:
    """The lines of a process that preloads, plans and reads."""
    run = python(PLAN_AND_READ, OPENBLAS_NUM_THREADS="1")
    return run.stdout.splitlines() or [run.stderr]


def test_a_worker_that_plans_and_reads_imports_no_further_module(planned_and_read: list[str]) -> None:
    assert planned_and_read[1:] == ["planned", "read", "[]"]


def test_a_failing_import_fails_where_it_is_needed() -> None:
    """All Python workers come from the daemon, including those of jobs that do not use this package."""
    code = (
        "from pyspark_kafka_direct.daemon import preload_modules\nimport sys\npreload_modules()\n"
        "print('pyspark.worker' in sys.modules)\nimport pyspark_kafka_direct.records"
    )
    run = python(f"import sys\nsys.modules['pyspark_kafka_direct.records._native'] = None\n{code}", check=False)
    assert run.stdout == "True\n", run.stderr
    assert "KernelMissingError: The native kernel of pyspark-kafka-direct cannot be loaded" in run.stderr


def test_workers_do_not_read_archives_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("__init__", "one", "two"):
            file.writestr(f"in_an_archive/{name}.py", f"NAME = {name!r}")
    monkeypatch.setattr(sys, "path", [str(archive), *sys.path])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    assert importlib.import_module("in_an_archive.one").NAME == "one"
    assert any(isinstance(each, zipimporter) for each in sys.path_importer_cache.values())
    clear_zip_importers()
    assert not any(isinstance(each, zipimporter) for each in sys.path_importer_cache.values())
    importlib.invalidate_caches()
    assert importlib.import_module("in_an_archive.two").NAME == "two"


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted as Linux does")
def test_there_is_no_thread_that_a_fork_would_lose(planned_and_read: list[str]) -> None:
    """Except for those of OpenBLAS, which stops them itself."""
    assert planned_and_read[0] == "1 None"


def test_each_worker_has_its_own_random_numbers() -> None:
    """Before NumPy 2, the import of PyArrow seeds it, which is before the fork."""
    run = python(RANDOM_NUMBERS)
    (first, second), (first_of_python, second_of_python) = zip(
        *(line.split() for line in run.stdout.splitlines()), strict=True
    )
    assert first != second
    assert first_of_python != second_of_python
