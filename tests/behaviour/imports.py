"""The record of imports: the modules that are loaded after importing the package, planning a batch and reading it.

``data/imports.json`` lists, for each step, our modules (without the package name) and other top-level packages, without
the standard library. The last two steps need a broker.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from tests.behaviour.differences import DATA, Differences

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = DATA / "imports.json"

ROWS = 5

PACKAGE, PLAN, READ = "import the package", "plan a batch", "read a range"

Record = dict[str, dict[str, list[str]]]
"""Step to ``ours`` and ``others`` to names."""

_TIMEOUT_S = 600

# Codecs and checksums that kafka-python imports if they are installed, and a name that compiled modules register.
_EXCLUDED = frozenset({"cramjam", "crc32c", "lz4", "snappy", "xxhash", "zstandard", "cython_runtime"})
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


def package_imports() -> Record:
    return {PACKAGE: _run("import pyspark_kafka_direct", "")[1]}


def produce_records(bootstrap_servers: str, topic: str) -> dict[str, str]:
    """Produce ``ROWS`` records to a topic and return the options of a batch that reads them."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(ROWS):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(_TIMEOUT_S) == 0
    return {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic}


def batch_imports(options: Mapping[str, str]) -> tuple[Record, int]:
    """Plan and read a batch, each in a new interpreter; also return the number of rows."""
    pickled, planning_imports = _run("import json\n" + _PLAN, json.dumps(dict(options)))
    rows, reading_imports = _run(_READ, pickled)
    return {PLAN: planning_imports, READ: reading_imports}, int(rows)


def write(record: Record) -> None:
    """Replace the given steps in the file."""
    FILE.write_text(json.dumps({**_recorded(), **record}, indent=1) + "\n", "utf-8")


def compare(record: Record) -> Differences:
    recorded = _recorded()
    differences: Differences = {}
    for step, groups in record.items():
        for group, names in groups.items():
            before = set(recorded.get(step, {}).get(group, ()))
            differences.update({f"{step}, {name}": "not imported before" for name in set(names) - before})
            differences.update({f"{step}, {name}": "no longer imported" for name in before - set(names)})
    return dict(sorted(differences.items()))


def _recorded() -> Record:
    recorded: Record = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    return recorded


def _run(script: str, stdin: str) -> tuple[str, dict[str, list[str]]]:
    """Return the output of the script, and its imports."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
    completed = subprocess.run(
        [sys.executable, "-c", _BEFORE + script + _AFTER],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        env=environment,
        cwd=_ROOT,
    )
    assert completed.returncode == 0, completed.stderr
    output, _, modules = completed.stdout.rpartition("|")
    return output, _grouped(json.loads(modules))


def _grouped(modules: list[str]) -> dict[str, list[str]]:
    package = "pyspark_kafka_direct"
    ours = [name.removeprefix(f"{package}.") for name in modules if name.partition(".")[0] == package]
    packages = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names) - {package} - _EXCLUDED
    return {"ours": ours, "others": sorted(name for name in packages if not name.startswith("_"))}
