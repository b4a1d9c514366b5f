"""Who may import whom: the arrows of docs/architecture.md, no circles, and files that stay small."""

from __future__ import annotations

import ast
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
MOST_LINES = 600

PURE = frozenset({"_version", "errors", "offsets", "planning", "settings"})
JOINED = PURE | {"wire", "records"}
BELOW = JOINED | {"reading", "writing"}
FLOOR = BELOW | {"runtime"}
ON_TOP = ("structured", "direct", "continuous", "log", "monitor")

ARROWS: dict[str, frozenset[str]] = {
    "_version": frozenset(),
    "errors": frozenset(),
    "offsets": frozenset({"errors"}),
    "planning": frozenset({"errors", "offsets"}),
    "settings": frozenset({"errors", "offsets", "planning"}),
    "wire": PURE,
    "records": PURE,
    "reading": JOINED,
    # What was written last is read back before an exactly-once write goes on.
    "writing": JOINED | {"reading"},
    "runtime": BELOW,
    **dict.fromkeys(ON_TOP, FLOOR),
    "broker": frozenset({"errors"}),
    "cli": FLOOR | {*ON_TOP, "broker"},
    "daemon": frozenset(),
    # The package's face: names of the pure rooms at once, everything else when it is asked for (tested below).
    "__init__": FLOOR | {*ON_TOP},
}
"""Room to the rooms it may import, apart from itself."""

LIBRARIES: dict[str, frozenset[str]] = {
    "kafka": frozenset(),
    "confluent_kafka": frozenset(),
    "pyarrow": frozenset({"records", "reading", "writing", "runtime", *ON_TOP, "cli"}),
    # broker/ resolves Kafka's jars with the Ivy that PySpark ships.
    "pyspark": frozenset({"runtime", *ON_TOP, "broker", "cli", "daemon"}),
    "py4j": frozenset({*ON_TOP, "broker", "cli"}),
}
"""Heavy library to the rooms that may import it."""


def room_of(file: Path) -> str:
    if file == SOURCE / "broker" / "__main__.py":  # a program: it also makes topics, and writes a sample to one
        return "cli"
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(source: str, package: str) -> Iterator[tuple[str, str | None]]:
    """What a file imports, also within functions and for type checking: modules, and names from modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((module, alias.name) for alias in node.names)


def imported(source: str, package: str) -> set[str]:
    """Absolute names of all modules a file may import; some of them may be names in a module."""
    pairs = set(imports(source, package))
    return {module for module, _ in pairs} | {f"{module}.{name}" for module, name in pairs if name is not None}


def violations(room: str, source: str, package: str) -> list[str]:
    found = []
    for name in sorted(imported(source, package)):
        parts = name.split(".")
        if parts[0] in LIBRARIES and room not in LIBRARIES[parts[0]]:
            found.append(f"{room} imports {name}")
        if parts[0] == PACKAGE and len(parts) > 1:
            target = parts[1]
            if target in ARROWS and target != room and target not in ARROWS[room]:
                found.append(f"{room} imports {name}")
    return found


def source_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("file", source_files(), ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_follow_the_arrows(file: Path) -> None:
    room = room_of(file)
    assert room in ARROWS, f"{room} is a new room: draw its arrows here and in docs/architecture.md"
    package = ".".join([PACKAGE, *file.relative_to(SOURCE).parts[:-1]])
    assert violations(room, file.read_text(encoding="utf-8"), package) == []


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("planning", "import pyarrow as pa"),
        ("planning", f"from {PACKAGE}.wire import pool"),
        ("planning", f"from {PACKAGE} import wire"),
        ("planning", "from ..records import COLUMNS"),
        ("planning", "def f():\n    import kafka.protocol"),
        ("errors", f"from {PACKAGE}.offsets import OffsetRange"),
        ("offsets", f"from {PACKAGE}.planning import ranges"),
        ("planning", f"from {PACKAGE}.settings.secret import Secret"),
        ("settings", f"from {PACKAGE}.wire import pool"),
        ("settings", f"from {PACKAGE} import records"),
        ("wire", f"from {PACKAGE}.records import COLUMNS"),
        ("wire", "import pyspark"),
        ("wire", "import pyarrow"),
        ("wire", "import kafka.protocol"),
        ("records", f"from {PACKAGE}.wire import pool"),
        ("records", "from kafka.record import x"),
        ("reading", "from pyspark.sql import SparkSession"),
        ("reading", f"from {PACKAGE}.structured import batch"),
        ("reading", f"from {PACKAGE}.runtime import worker"),
        ("runtime", f"from {PACKAGE}.direct import KafkaUtils"),
        ("structured", f"from {PACKAGE}.direct import KafkaUtils"),
        ("direct", f"from {PACKAGE}.log import KafkaTable"),
        ("log", f"from {PACKAGE}.structured import sink"),
        ("log", "from kafka import KafkaConsumer"),
        ("continuous", f"from {PACKAGE}.structured import sink"),
        ("continuous", f"from {PACKAGE}.log._batches import x"),
        ("structured", f"from {PACKAGE}.continuous import x"),
        ("runtime", f"from {PACKAGE}.continuous import x"),
        ("monitor", "import kafka"),
        ("broker", f"from {PACKAGE}.wire import pool"),
        ("cli", "import confluent_kafka"),
    ],
)
def test_a_forbidden_import_would_be_seen(room: str, line: str) -> None:
    assert violations(room, line, f"{PACKAGE}.{room}") != []


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("planning", f"from {PACKAGE}.errors import OptionError"),
        ("planning", "from . import ranges"),
        ("settings", f"from {PACKAGE}.planning.ranges import split"),
        ("wire", f"from {PACKAGE}.settings.secret import Secret"),
        ("reading", f"from {PACKAGE}.wire import pool\nfrom {PACKAGE}.records import COLUMNS\nimport pyarrow"),
        ("structured", f"from {PACKAGE}.reading import range_reader\nimport pyspark"),
        ("runtime", f"from {PACKAGE}.settings.source import ReadOptions"),
        (
            "continuous",
            f"from {PACKAGE}.planning.epochs import assign\nfrom {PACKAGE}.wire.system import System\n"
            f"from {PACKAGE}.reading.tail import Tail\nfrom {PACKAGE}.runtime import worker\n"
            "import pyspark, pyarrow, py4j",
        ),
        (
            "log",
            f"from {PACKAGE}.reading.tail import Tail\nfrom {PACKAGE}.writing.outbox import Outbox\nimport pyarrow",
        ),
    ],
)
def test_an_allowed_import_passes(room: str, line: str) -> None:
    assert violations(room, line, f"{PACKAGE}.{room}") == []


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


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
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


def test_no_files_import_one_another() -> None:
    assert circles(import_graph(all_modules())) == []


@pytest.mark.parametrize(
    ("sources", "circle"),
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
def test_a_circle_would_be_seen(sources: dict[str, str], circle: list[str]) -> None:
    assert circles(import_graph({name: ("p", source) for name, source in sources.items()})) == [circle]


@pytest.mark.parametrize(
    "sources",
    [
        {"p.a": "import p.b, p.c", "p.b": "import p.c", "p.c": "import sys"},
        # A room's face imports the files in it, which import one another; others import the face.
        {"p": "", "p.r": "import p.r.a", "p.r.a": "from p.r.b import x", "p.r.b": "", "p.c": "from p.r import x"},
    ],
)
def test_imports_without_a_circle_pass(sources: dict[str, str]) -> None:
    assert circles(import_graph({name: ("p", source) for name, source in sources.items()})) == []


@pytest.mark.parametrize(
    "module", ["", ".errors", ".offsets", ".settings.source", ".planning.batch", ".planning.patterns"]
)
def test_importing_is_cheap(module: str) -> None:
    """Spark imports the package at a session's first look for a data source."""
    heavy = ["pyspark", "py4j", "pyarrow", "kafka", "cryptography", "confluent_kafka", "numpy", "pandas", "ssl"]
    code = f"import sys, {PACKAGE}{module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_version_is_written_alike() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == __version__


@pytest.mark.parametrize("module", ["connection", "fetch", "secret", "security"])
def test_typed_settings_stand_alone(module: str) -> None:
    """They travel to every Python worker."""
    neighbours = [f"{PACKAGE}.settings.{name}" for name in ("secret", "security")]
    names = imported((SOURCE / "settings" / f"{module}.py").read_text(encoding="utf-8"), f"{PACKAGE}.settings")
    ours = {name for name in names if name.startswith(PACKAGE)}
    assert {name for name in ours if not name.startswith((*neighbours, f"{PACKAGE}.errors"))} == set()


def test_files_stay_small() -> None:
    folders = ["src", "tests", "bench", "examples", "rust"]
    files = [file for folder in folders for kind in ("*.py", "*.rs") for file in (ROOT / folder).rglob(kind)]
    files = [file for file in files if "target" not in file.relative_to(ROOT).parts]
    sizes = {str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    assert {file: size for file, size in sizes.items() if size > MOST_LINES} == {}
