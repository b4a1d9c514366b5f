"""Which package may import which (docs/architecture.md), no import cycles, and files that stay small."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
PACKAGE = "pyspark_kafka_direct"
SOURCE = ROOT / "src" / PACKAGE
MAX_LINES = 600

PURE = frozenset({"_version", "errors", "offsets", "atomic_file", "planning", "options"})
PROTOCOL = PURE | {"protocol"}
CLIENT_AND_RECORDS = PROTOCOL | {"client", "records"}
BELOW_SPARK = CLIENT_AND_RECORDS | {"consumer", "producer"}
PAYLOADS = frozenset({"payloads", "payloads.registry", "payloads.spark"})
BELOW_APIS = BELOW_SPARK | PAYLOADS | {"spark"}
APIS = ("datasource", "direct", "continuous", "log", "monitor")

ALLOWED_PACKAGES: dict[str, frozenset[str]] = {
    "_version": frozenset(),
    "errors": frozenset(),
    "offsets": frozenset({"errors"}),
    "atomic_file": frozenset(),
    "options": frozenset({"errors", "offsets"}),
    "planning": frozenset({"errors", "offsets", "options"}),
    "protocol": PURE,
    "client": PROTOCOL,
    "records": PURE,
    "payloads.registry": PROTOCOL | {"client"},
    "payloads": PURE | {"records", "payloads.registry"},
    "payloads.spark": PURE | {"records", "payloads.registry", "payloads"},
    "consumer": CLIENT_AND_RECORDS,
    # An exactly-once write reads the last sink state record before it continues.
    "producer": CLIENT_AND_RECORDS | {"consumer"},
    "arrow": BELOW_SPARK | {"payloads", "payloads.registry"},
    "spark": BELOW_SPARK | PAYLOADS,
    **dict.fromkeys(APIS, BELOW_APIS),
    "broker": frozenset({"errors"}),
    "cli": BELOW_APIS | {*APIS, "arrow", "broker"},
    "daemon": frozenset(),
    "functions": BELOW_APIS,
    # The package itself: names of the pure packages at once, everything else lazily (tested below).
    "__init__": BELOW_APIS | {*APIS, "arrow"},
}
"""Package, or a part with separate rules, to the packages that it may import, apart from itself."""

ALLOWED_LIBRARIES: dict[str, frozenset[str]] = {
    "kafka": frozenset(),
    "confluent_kafka": frozenset(),
    "pyarrow": frozenset(
        {"records", "payloads", "payloads.spark", "consumer", "producer", "arrow", "spark", *APIS, "cli", "functions"}
    ),
    # broker/ resolves Kafka's jars with the Ivy that PySpark ships.
    "pyspark": frozenset({"payloads.spark", "spark", *APIS, "broker", "cli", "daemon", "functions"}),
    "py4j": frozenset({*APIS, "broker", "cli"}),
}
"""Heavy library to the packages that may import it."""


def package_of(file: Path) -> str:
    if file == SOURCE / "broker" / "__main__.py":  # a program: it also makes topics, and writes a sample to one
        return "cli"
    return layer_of(file.relative_to(SOURCE).with_suffix("").parts)


def layer_of(parts: tuple[str, ...]) -> str:
    """The package of a module below our own, or its part that has separate rules."""
    part = ".".join(parts[:2])
    return part if part in ALLOWED_PACKAGES else parts[0]


@functools.cache  # two tests parse each file
def imports(source: str, package: str) -> tuple[tuple[str, str | None], ...]:
    """What a file imports, also within functions and for type checking: modules, and names from modules."""
    return tuple(_imports(ast.parse(source), package))


def _imports(tree: ast.Module, package: str) -> Iterator[tuple[str, str | None]]:
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((module, alias.name) for alias in node.names)


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements, at every depth, and what contains statements."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.expr):
            yield node
            yield from _statements(node)


def imported(source: str, package: str) -> set[str]:
    """Absolute names of all modules a file may import; some of them may be names in a module."""
    pairs = set(imports(source, package))
    return {module for module, _ in pairs} | {f"{module}.{name}" for module, name in pairs if name is not None}


def violations(package_name: str, source: str, package: str) -> list[str]:
    found = []
    for name in sorted(imported(source, package)):
        parts = name.split(".")
        if parts[0] in ALLOWED_LIBRARIES and package_name not in ALLOWED_LIBRARIES[parts[0]]:
            found.append(f"{package_name} imports {name}")
        if parts[0] == PACKAGE and len(parts) > 1:
            target = layer_of(tuple(parts[1:]))
            if target in ALLOWED_PACKAGES and target != package_name and target not in ALLOWED_PACKAGES[package_name]:
                found.append(f"{package_name} imports {name}")
    return found


def source_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("file", source_files(), ids=lambda file: str(file.relative_to(SOURCE)))
def test_packages_import_only_what_is_below_them(file: Path) -> None:
    package_name = package_of(file)
    assert package_name in ALLOWED_PACKAGES, (
        f"{package_name} is a new package: add its allowed imports here and to docs/architecture.md"
    )
    package = ".".join([PACKAGE, *file.relative_to(SOURCE).parts[:-1]])
    assert violations(package_name, file.read_text(encoding="utf-8"), package) == []


@pytest.mark.parametrize(
    ("package_name", "line"),
    [
        ("planning", "import pyarrow as pa"),
        ("planning", f"from {PACKAGE}.client import pool"),
        ("planning", f"from {PACKAGE} import client"),
        ("planning", "from ..records import COLUMNS"),
        ("planning", "def f():\n    import kafka.protocol"),
        ("errors", f"from {PACKAGE}.offsets import OffsetRange"),
        ("offsets", f"from {PACKAGE}.planning import ranges"),
        ("options", f"from {PACKAGE}.planning.offset_range_calculator import split_ranges"),
        ("options", f"from {PACKAGE}.client import pool"),
        ("options", f"from {PACKAGE} import records"),
        ("client", f"from {PACKAGE}.records import COLUMNS"),
        ("client", "import pyspark"),
        ("client", f"from {PACKAGE}.payloads.registry import registry_client"),
        ("payloads.registry", "import pyarrow"),
        ("payloads.registry", f"from {PACKAGE}.records import COLUMNS"),
        ("payloads.registry", f"from {PACKAGE}.payloads.framing import HEADER_NAMES"),
        ("protocol", f"from {PACKAGE}.client import connection"),
        ("records", f"from {PACKAGE}.protocol import codec"),
        ("client", "import pyarrow"),
        ("client", "import kafka.protocol"),
        ("records", f"from {PACKAGE}.client import pool"),
        ("records", "from kafka.record import x"),
        ("records", f"from {PACKAGE}.payloads.decoded_values import DecodedValues"),
        ("options", f"from {PACKAGE}.payloads.avro import schema"),
        ("payloads", f"from {PACKAGE}.client import pool"),
        ("payloads", f"from {PACKAGE}.payloads.spark import payload_schema"),
        ("payloads", "from pyspark.sql import SparkSession"),
        ("payloads.spark", f"from {PACKAGE}.spark.spark_versions import spark_features"),
        ("consumer", f"from {PACKAGE}.payloads import payload_decoder"),
        ("consumer", "from pyspark.sql import SparkSession"),
        ("consumer", f"from {PACKAGE}.datasource import batch"),
        ("consumer", f"from {PACKAGE}.spark import worker"),
        ("arrow", f"from {PACKAGE}.spark.loss_channel import x"),
        ("arrow", f"from {PACKAGE}.payloads.spark import payload_schema"),
        ("arrow", "import pyspark"),
        ("spark", f"from {PACKAGE}.arrow import reader"),
        ("spark", f"from {PACKAGE}.direct import KafkaUtils"),
        ("datasource", f"from {PACKAGE}.direct import KafkaUtils"),
        ("direct", f"from {PACKAGE}.log import KafkaTable"),
        ("log", f"from {PACKAGE}.datasource import sink"),
        ("log", "from kafka import KafkaConsumer"),
        ("continuous", f"from {PACKAGE}.datasource import sink"),
        ("continuous", f"from {PACKAGE}.log.log_topic import x"),
        ("datasource", f"from {PACKAGE}.continuous import x"),
        ("spark", f"from {PACKAGE}.continuous import x"),
        ("monitor", "import kafka"),
        ("broker", f"from {PACKAGE}.client import pool"),
        ("cli", "import confluent_kafka"),
    ],
)
def test_a_forbidden_import_is_found(package_name: str, line: str) -> None:
    assert violations(package_name, line, f"{PACKAGE}.{package_name}") != []


@pytest.mark.parametrize(
    ("package_name", "line"),
    [
        ("planning", f"from {PACKAGE}.errors import OptionError"),
        ("planning", "from . import ranges"),
        ("planning", f"from {PACKAGE}.options.security_settings import Secret"),
        ("client", f"from {PACKAGE}.options.security_settings import Secret"),
        ("consumer", f"from {PACKAGE}.client import pool\nfrom {PACKAGE}.records import COLUMNS\nimport pyarrow"),
        ("datasource", f"from {PACKAGE}.consumer import fetcher\nimport pyspark"),
        ("payloads", f"from {PACKAGE}.payloads.registry import registry_client\nimport pyarrow"),
        ("payloads.spark", f"from {PACKAGE}.payloads.avro import schema\nimport pyspark"),
        ("spark", f"from {PACKAGE}.options.read_options import ReadOptions"),
        (
            "continuous",
            f"from {PACKAGE}.planning.continuous_epochs import x\nfrom {PACKAGE}.client.system import System\n"
            f"from {PACKAGE}.consumer.partition_consumer import PartitionConsumer\nfrom {PACKAGE}.spark import worker\n"
            "import pyspark, pyarrow, py4j",
        ),
        (
            "log",
            f"from {PACKAGE}.consumer.partition_consumer import PartitionConsumer\n"
            f"from {PACKAGE}.producer.async_producer import AsyncProducer\nimport pyarrow",
        ),
    ],
)
def test_an_allowed_import_passes(package_name: str, line: str) -> None:
    assert violations(package_name, line, f"{PACKAGE}.{package_name}") == []


def all_modules() -> dict[str, tuple[str, str]]:
    """Module to the package that its relative imports start from, and its source."""
    found = {}
    for file in [*source_files(), *SOURCE.rglob("*.pyi")]:
        parts = [PACKAGE, *file.relative_to(SOURCE).parts[:-1]]
        name = parts if file.name == "__init__.py" else [*parts, file.stem]
        found[".".join(name)] = (".".join(parts), file.read_text(encoding="utf-8"))
    return found


def import_graph(modules: Mapping[str, tuple[str, str]]) -> dict[str, set[str]]:
    """Module to the modules that it imports: at once, within functions, or for type checking only.

    ``from a import b`` is an import of ``a.b`` where that is a module, else one of ``a``. To import ``a.b.c`` runs
    ``a`` and ``a.b`` too, so these count as well; not where the importer is inside of them, for then they run already.
    """
    graph: dict[str, set[str]] = {}
    for importer, (package, source) in modules.items():
        graph[importer] = set()
        for module, name in imports(source, package):
            target = f"{module}.{name}" if f"{module}.{name}" in modules else module
            parts = target.split(".")
            above = {".".join(parts[:length]) for length in range(1, len(parts))}
            graph[importer] |= {target} | {each for each in above if not f"{importer}.".startswith(f"{each}.")}
        graph[importer] &= modules.keys() - {importer}
    return graph


def import_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that reach one another (strongly connected components), each group sorted."""
    reached = {name: reachable(graph, name) for name in graph}
    groups = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph}
    return sorted(sorted(group) for group in groups if group)


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        new = graph[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def test_there_are_no_import_cycles() -> None:
    assert import_cycles(import_graph(all_modules())) == []


@pytest.mark.parametrize(
    ("sources", "cycle"),
    [
        ({"p.a": "import p.b", "p.b": "import p.a"}, ["p.a", "p.b"]),
        ({"p.a": "def f():\n    from p import b", "p.b": "from p.a import x"}, ["p.a", "p.b"]),
        (
            {"p.a": "if x:\n    from . import b", "p.b": "from p import c", "p.c": "from .a import x"},
            ["p.a", "p.b", "p.c"],
        ),
        ({"p": "import p.a", "p.a": "from p import x"}, ["p", "p.a"]),
        ({"p.r": "import p.b", "p.r.a": "", "p.b": "import p.r.a"}, ["p.b", "p.r"]),
    ],
)
def test_a_cycle_is_found(sources: dict[str, str], cycle: list[str]) -> None:
    assert import_cycles(import_graph({name: ("p", source) for name, source in sources.items()})) == [cycle]


@pytest.mark.parametrize(
    "sources",
    [
        {"p.a": "import p.b, p.c", "p.b": "import p.c", "p.c": "import sys"},
        # A package imports its files, which import one another; others import the package.
        {"p": "", "p.r": "import p.r.a", "p.r.a": "from p.r.b import x", "p.r.b": "", "p.c": "from p.r import x"},
    ],
)
def test_imports_without_a_cycle_pass(sources: dict[str, str]) -> None:
    assert import_cycles(import_graph({name: ("p", source) for name, source in sources.items()})) == []


def rust_modules() -> dict[str, str]:
    """Each module of the kernel by its path, such as ``json.column``, and its source."""
    root = ROOT / "rust" / "kernel" / "src"
    files = {file: file.relative_to(root).with_suffix("") for file in root.rglob("*.rs")}
    return {
        ".".join(path.parts): file.read_text("utf-8") for file, path in files.items() if path.name not in ("mod", "lib")
    }


def rust_graph(modules: Mapping[str, str]) -> dict[str, set[str]]:
    """Module to the modules of its folder that it uses."""
    graph: dict[str, set[str]] = {}
    for module, source in modules.items():
        folder = module.rpartition(".")[0]
        used = re.findall(r"\bsuper::(\w+)", source.partition("#[cfg(test)]")[0])
        graph[module] = {f"{folder}.{name}".removeprefix(".") for name in used} & modules.keys() - {module}
    return graph


def test_modules_of_the_kernel_have_no_cycles() -> None:
    assert import_cycles(rust_graph(rust_modules())) == []
    found = rust_graph({"json.a": "use super::b::B;", "json.b": "super::a::f()", "b": ""})
    assert import_cycles(found) == [["json.a", "json.b"]]


@pytest.mark.parametrize(
    "module",
    ["", ".errors", ".offsets", ".options.read_options", ".planning.batch_planner", ".options.topic_pattern"],
)
def test_importing_is_cheap(module: str) -> None:
    """Spark imports the package at a session's first look for a data source."""
    heavy = ["pyspark", "py4j", "pyarrow", "kafka", "cryptography", "confluent_kafka", "numpy", "pandas", "ssl"]
    code = f"import sys, {PACKAGE}{module}; print([name for name in {[*heavy, 'regex']} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == "[]"


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == __version__


@pytest.mark.parametrize("module", ["settings", "registry_settings", "security_settings"])
def test_typed_settings_import_little(module: str) -> None:
    """They are unpickled in every Python worker."""
    name = f"{PACKAGE}.options.{module}"
    code = f"import sys, {PACKAGE}.errors; old = set(sys.modules); import {name}; print(*set(sys.modules) - old)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    modules = {name for name in done.stdout.split() if name.startswith(PACKAGE)}
    assert modules <= {f"{PACKAGE}.options", name, f"{PACKAGE}.options.security_settings"}


def test_files_stay_small() -> None:
    folders = ["src", "tests", "bench", "examples", "rust"]
    files = [file for folder in folders for kind in ("*.py", "*.rs") for file in (ROOT / folder).rglob(kind)]
    files = [file for file in files if "target" not in file.relative_to(ROOT).parts]
    sizes = {str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    assert {file: size for file, size in sizes.items() if size > MAX_LINES} == {}


def test_everything_public_is_importable_without_fork() -> None:
    """Windows has none; `fcntl` and `resource` are absent there too."""
    code = (
        "import os, random, sys\n"  # this `random` needs `os.register_at_fork`
        "del os.register_at_fork\n"
        "sys.modules['fcntl'] = sys.modules['resource'] = None\n"
        "from pyspark_kafka_direct import *\n"
        "import pyspark_kafka_direct.broker, pyspark_kafka_direct.direct, pyspark_kafka_direct.log\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
