"""The warm daemon has imported all that its workers need of this package."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from pyspark_kafka_direct.daemon import forget_archives

PROGRAM = """
import pickle, sys
from pyspark import cloudpickle
from pyspark_kafka_direct.daemon import import_needed

import_needed()
before = set(sys.modules)

from pyspark_kafka_direct import OffsetRange
from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.runtime.range_task import RangeTask
from pyspark_kafka_direct.structured._range import RangePartition
from pyspark_kafka_direct.structured.source import KafkaDirectSource

options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "kafkaConsumer.pollTimeoutMs": "300"}
source = KafkaDirectSource(options | {"kafka.default.api.timeout.ms": "300", "kafka.request.timeout.ms": "200"})
reader = source.reader(source.schema())
try:
    reader.partitions()
except KafkaDirectError:
    print("planned")
reader = pickle.loads(cloudpickle.dumps(reader))
try:
    list(reader.read(RangePartition(RangeTask(OffsetRange("t", 0, 0, 10)))))
except KafkaDirectError:
    print("read")
print(sorted(set(sys.modules) - before))
"""

CHANCE = """
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
    command, given = [sys.executable, "-c", code], os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=check, env=given)


def test_a_worker_that_plans_and_reads_imports_nothing_more() -> None:
    run = python(PROGRAM)
    assert run.stdout.splitlines() == ["planned", "read", "[]"], run.stderr


def test_what_cannot_be_imported_fails_where_it_is_needed() -> None:
    """All Python workers come from the daemon, also those of jobs that do without this package."""
    code = (
        "from pyspark_kafka_direct.daemon import import_needed\nimport sys\nimport_needed()\n"
        "print('pyspark.worker' in sys.modules)\nimport pyspark_kafka_direct.records"
    )
    run = python(code, check=False, PYSPARK_KAFKA_DIRECT_DECODER="none")
    assert run.stdout == "True\n", run.stderr
    assert "OptionError: PYSPARK_KAFKA_DIRECT_DECODER must be" in run.stderr


def test_archives_are_not_read_again_by_each_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("__init__", "one", "two"):
            file.writestr(f"in_an_archive/{name}.py", f"NAME = {name!r}")
    monkeypatch.setattr(sys, "path", [str(archive), *sys.path])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    assert importlib.import_module("in_an_archive.one").NAME == "one"
    assert any(isinstance(each, zipimporter) for each in sys.path_importer_cache.values())
    forget_archives()
    assert not any(isinstance(each, zipimporter) for each in sys.path_importer_cache.values())
    importlib.invalidate_caches()
    assert importlib.import_module("in_an_archive.two").NAME == "two"


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted as Linux does")
def test_no_thread_is_there_to_be_lost_in_a_fork() -> None:
    """But for those of OpenBLAS, which sees to them itself."""
    code = (
        "import os\nfrom pyspark_kafka_direct.daemon import import_needed\n"
        "import_needed()\nprint(len(os.listdir('/proc/self/task')), os.environ.get('JE_ARROW_MALLOC_CONF'))"
    )
    run = python(code, OPENBLAS_NUM_THREADS="1")
    assert run.stdout == "1 None\n"


def test_each_worker_draws_random_numbers_of_its_own() -> None:
    """NumPy before 2 is seeded when PyArrow is imported, which is before the fork."""
    run = python(CHANCE)
    (one, other), (of_python, others) = zip(*(line.split() for line in run.stdout.splitlines()), strict=True)
    assert one != other
    assert of_python != others
