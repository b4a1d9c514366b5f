"""The record of imports: what a process has imported when the package is, when a batch is planned, when it is read.

``data/imports.json`` has two lists for each: our modules, without the package's name, and the top-level packages of
others. What belongs to Python itself, or is there in an empty interpreter, is left out. The last two need a broker.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from tests.behaviour.store import DATA, Differences

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = DATA / "imports.json"

ROWS = 5

PACKAGE, PLAN, READ = "import the package", "plan a batch", "read a range"

Record = dict[str, dict[str, list[str]]]
"""What is done, to ``ours`` and ``others``, to names."""

_SECONDS = 240

# Codecs and checksums that kafka-python takes where they are installed; and a name that compiled modules enter.
_LEFT_OUT = frozenset({"cramjam", "crc32c", "lz4", "snappy", "xxhash", "zstandard", "cython_runtime"})
_ROOT = Path(__file__).parents[2]

_BEFORE = "import sys; before = set(sys.modules)\n"
_AFTER = """
import json
print("|" + json.dumps(sorted(set(sys.modules) - before)))
"""
_PLAN = """
import pickle
from pyspark_kafka_direct import DefaultSource
options = json.loads(sys.stdin.read())
source = DefaultSource(options)
reader = source.reader(source.schema())
partitions = reader.partitions()
print(pickle.dumps((reader, partitions)).hex(), end="")
"""
_READ = """
import pickle
reader, partitions = pickle.loads(bytes.fromhex(sys.stdin.read()))
print(sum(batch.num_rows for partition in partitions for batch in reader.read(partition)), end="")
"""


def of_package() -> Record:
    """Without a broker."""
    return {PACKAGE: _run("import pyspark_kafka_direct", "")[1]}


def prepare(bootstrap_servers: str, topic: str) -> dict[str, str]:
    """Write ``ROWS`` records to a topic.

    Returns:
        Options of a batch that reads them.
    """
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(ROWS):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(_SECONDS) == 0
    return {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic}


def of_batch(options: Mapping[str, str]) -> tuple[Record, int]:
    """Plan and read a batch, each in a fresh interpreter.

    Args:
        options: Of the data source.

    Returns:
        What was imported, and how many rows were read.
    """
    work, planned = _run("import json\n" + _PLAN, json.dumps(dict(options)))
    rows, read = _run(_READ, work)
    return {PLAN: planned, READ: read}, int(rows)


def write(found: Record) -> None:
    """Record these, and leave the others."""
    FILE.write_text(json.dumps({**_recorded(), **found}, indent=1) + "\n", "utf-8")


def compare(found: Record) -> Differences:
    """What is imported now and was not, and the reverse."""
    recorded = _recorded()
    differences: Differences = {}
    for what, kinds in found.items():
        for kind, names in kinds.items():
            before = set(recorded.get(what, {}).get(kind, ()))
            differences.update({f"{what}, {name}": "not imported before" for name in set(names) - before})
            differences.update({f"{what}, {name}": "no longer imported" for name in before - set(names)})
    return dict(sorted(differences.items()))


def _recorded() -> Record:
    recorded: Record = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    return recorded


def _run(script: str, given: str) -> tuple[str, dict[str, list[str]]]:
    """What the script printed, and what it imported."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-c", _BEFORE + script + _AFTER],
        input=given,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        env=environment,
        cwd=_ROOT,
    )
    assert done.returncode == 0, done.stderr
    printed, _, modules = done.stdout.rpartition("|")
    return printed, _sorted(json.loads(modules))


def _sorted(modules: list[str]) -> dict[str, list[str]]:
    package = "pyspark_kafka_direct"
    ours = [name.removeprefix(f"{package}.") for name in modules if name.partition(".")[0] == package]
    tops = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names) - {package} - _LEFT_OUT
    return {"ours": ours, "others": sorted(name for name in tops if not name.startswith("_"))}
