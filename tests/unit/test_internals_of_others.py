"""The installed PySpark has the internal names that this package uses, and docs/architecture.md lists who uses them."""

from __future__ import annotations

import ast
import inspect
import re
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pyspark
import pyspark.daemon
import pytest

from pyspark_kafka_direct.daemon import PRELOADED_MODULES
from pyspark_kafka_direct.spark import stack_traces

pytestmark = pytest.mark.smoke

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "pyspark_kafka_direct"
JARS = ("spark-", "hadoop-client-api", "commons-io", "jackson-databind", "pickle-")

_PRIVATE_ATTRIBUTE = re.compile(r"_j(vm|sc|ssc|sparkSession|rdd|dstream|rdd_deserializer|df)|_gateway(_client)?")
_REFLECTION = frozenset({"getLocalProperty", "getDeclaredField", "getSimpleName", "org"})
_INTERNAL_MODULE = re.compile(
    r"pyspark\.(worker|daemon|serializers|util|cloudpickle|core\.rdd|streaming\.(util|dstream)|"
    r"sql\.(worker\.\w+|pandas\.types))"
)
_CLASS = re.compile(
    r"(org\.apache\.(spark|hadoop|kafka\.common\.replica|kafka\.metadata)|net\.razorvine)\.[.\w]+|kafka\.(tools\.\w+|Kafka)"
)

_ANY_INTERNAL = re.compile(
    "|".join(
        [rf"\.({'|'.join(_REFLECTION)})\b", *(each.pattern for each in (_PRIVATE_ATTRIBUTE, _INTERNAL_MODULE, _CLASS))]
    )
)

# Classes of the JVM, and their members, by the modules that use them. Scala keeps the names of fields and methods.
CLASSES = {
    "direct": """
        DStreamGraph: inputStreamNameAndID outputStreams addOutputStream getInputStreams getOutputStreams batchDuration
        JobScheduler: jobSets inputInfoTracker getPendingTimes jobGenerator
        JobGenerator: lastProcessedBatch
        JobSet: hasCompleted
        InputInfoTracker: reportInfo
        StreamInputInfo:
        Time: milliseconds
        ConstantInputDStream: rdd
        DStream: generatedRDDs checkpointData rememberDuration dependencies
        DStreamCheckpointData: currentCheckpointFiles
        JavaDStream: dstream
        JavaStreamingContext: ssc getState
        PythonDStream: callForeachRDD
        PythonRDD:
        PythonUtils: toSeq toScalaMap
        SimplePythonFunction:
        JavaRDD: fromRDD
        RDD: _sc id
        SparkContext: makeRDD newRddId
        SparkEnv: blockManager
        BlockManager: master blockManagerId
        BlockManagerMaster: getPeers
        BlockManagerId: BlockManagerId(
        Unpickler: loads
        ObjectMapper: readValue
    """,
    "monitor": """
        StreamingQueryWrapper: streamingQuery
        StreamExecution: logicalPlan analyzedPlan trigger
        StreamingDataSourceV2ScanRelation: relation stream
        StreamingRelationV2: extraOptions table
        ProcessingTimeTrigger:
        PythonMicroBatchStream:
        LiveListenerBus: waitUntilEmpty
    """,
    "checkpoints": """
        CheckpointFileManager: createAtomic open list mkdirs exists delete
        OffsetSeqMetadata: json
        SharedState: activeStreamingQueries
        StreamExecution: resolvedCheckpointRoot
        FileAlreadyExistsException:
        IOUtils: toString
    """,
    "local properties": """
        SparkContext$: spark.jobGroup.id
        StreamExecution$: sql.streaming.queryId
        MicroBatchExecution$: streaming.sql.batchId
        SQLExecution$: spark.sql.execution.id spark.sql.execution.root.id
    """,
    "embedded Kafka": """
        MavenUtils: loadIvySettings buildIvySettings resolveMavenCoordinates
    """,
}


@pytest.fixture(scope="module")
def classes() -> dict[str, list[tuple[Path, str]]]:
    """Return the jars and entries of the classes in Spark's jars, by simple name."""
    found: dict[str, list[tuple[Path, str]]] = {}
    for jar in sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar")):
        if jar.name.startswith(JARS):
            with zipfile.ZipFile(jar) as archive:
                for entry in archive.namelist():
                    found.setdefault(entry.removesuffix(".class").rpartition("/")[2], []).append((jar, entry))
    return found


@pytest.mark.parametrize("user", CLASSES)
def test_spark_has_the_classes_and_members(user: str, classes: dict[str, list[tuple[Path, str]]]) -> None:
    missing = []
    for line in CLASSES[user].strip().splitlines():
        name, members = line.strip().split(":")
        contents = [zipfile.ZipFile(jar).read(entry) for jar, entry in classes.get(name, ())]
        if not any(all(member.encode() in content for member in members.split()) for content in contents):
            missing.append(f"{name}: {[each for each in members.split() if each.encode() not in b''.join(contents)]}")
    assert not missing, f"Spark {pyspark.__version__} lacks classes or members that this package uses: {missing}"


def test_pyspark_has_the_modules_of_workers() -> None:
    for name in PRELOADED_MODULES:  # a module that is missing is skipped, and workers start more slowly
        import_module(name)


def test_the_daemon_passes_the_socket_of_a_worker() -> None:
    # Without this local variable, delays of TCP are not disabled.
    assert "sock" in inspect.signature(pyspark.daemon.worker).parameters
    assert not inspect.signature(pyspark.daemon.manager).parameters


@pytest.mark.parametrize(
    ("module", "known"),
    [
        ("pyspark.util", {"format_exception_only", "print_exception"}),
        ("pyspark.streaming.util", set()),
        ("pyspark.daemon", {"print_exc", "format_exc"}),
    ],
)
def test_pyspark_formats_errors_by_functions_that_are_replaced(module: str, known: set[str]) -> None:
    tree = ast.parse(inspect.getsource(import_module(module)))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "traceback"
    }
    replaced = {name for name in vars(stack_traces._ShortTraceback) if not name.startswith("_")}
    assert used, f"{module} no longer formats errors, so their stack traces are not hidden"
    assert used <= replaced | known, f"{module} formats errors by a function that this package does not replace"


def test_the_architecture_page_lists_the_modules_that_use_internals() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = page.partition("## Internals of Spark and Kafka\n")[2].partition("\n## ")[0]
    first_cells = "".join(re.findall(r"^\|(.+?)\|", table, re.MULTILINE))
    listed = set(re.findall(r"`([\w/]+\.py)`", first_cells))
    using = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if _uses_internals(path)}
    assert using <= listed
    assert all((SOURCE / name).is_file() for name in listed)


def _uses_internals(path: Path) -> bool:
    text = path.read_text("utf-8")
    return _ANY_INTERNAL.search(text) is not None and any(_is_internal(node) for node in ast.walk(ast.parse(text)))


def _is_internal(node: Any) -> bool:
    match node:
        case ast.Attribute(attr=name):
            return name in _REFLECTION or _PRIVATE_ATTRIBUTE.fullmatch(name) is not None
        case ast.ImportFrom(module=str(name)):
            return _INTERNAL_MODULE.fullmatch(name) is not None
        case ast.Constant(value=str(text)):
            return any(pattern.fullmatch(text) for pattern in (_INTERNAL_MODULE, _CLASS))
    return False
