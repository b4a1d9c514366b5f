"""The warm daemon has imported all that its workers need of this package."""

from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING
from zipimport import zipimporter

from pyspark_kafka_direct.daemon import forget_archives

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

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


def test_a_worker_that_plans_and_reads_imports_nothing_more() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert run.stdout.splitlines() == ["planned", "read", "[]"], run.stderr


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
