"""Features of Spark versions, simulated by removing names from the installed PySpark."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql.pandas import types
from pyspark.sql.types import StructField, StructType, TimestampType

from pyspark_kafka_direct.errors import SparkVersionError
from pyspark_kafka_direct.payloads.spark.arrow_types import arrow_schema_in_utc
from pyspark_kafka_direct.spark.spark_versions import checkpointing_package, require_spark, spark_features

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REMOVALS = {
    "4.2": "sys.modules['pyspark.sql.streaming.datasource'] = None",
    "4.1": "del datasource.Filter, datasource.EqualTo, datasource.DataSourceStreamArrowWriter",
}
"""Statements that remove the features that a version added."""


@functools.cache
def run_with_version(version: str, program: str) -> str:
    """Return the output of a program with the features of a PySpark version."""
    removals = [removal for added_in, removal in REMOVALS.items() if added_in > version]
    setup = ["import sys, pyspark.sql.streaming", "from pyspark.sql import datasource", *removals]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*setup, program])], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


READERS_AND_WRITERS = """
import logging
logging.basicConfig(stream=sys.stdout)
from pyspark_kafka_direct import DefaultSource
from pyspark.sql.types import StructType
options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "topic": "t", "pushDownFilters": "true"}
batch = DefaultSource(options)
print(type(batch.reader(batch.schema())).__name__)
del options["pushDownFilters"]
print(type(DefaultSource(options).streamReader(batch.schema())).__name__)
writer = DefaultSource({k: options[k] for k in ("kafka.bootstrap.servers", "topic")})
schema = StructType().add("value", "binary")
print(type(writer.writer(schema, False)).__name__)
stream = writer.streamWriter(schema, False)
takes_arrow = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceArrowWriter)
print(type(stream).__name__, isinstance(stream, takes_arrow), isinstance(stream, datasource.DataSourceStreamWriter))
import pyspark_kafka_direct.direct, pyspark_kafka_direct.continuous, pyspark_kafka_direct.log
import pyspark_kafka_direct.monitor.enable_monitor, pyspark_kafka_direct.daemon
import pyspark_kafka_direct.datasource.foreach_batch
print("all imported")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "stream_reader"),
    [("4.0", "LegacyKafkaMicroBatchStream"), ("4.1", "LegacyKafkaMicroBatchStream"), ("4.2", "KafkaMicroBatchStream")],
)
def test_readers_and_writers_of_each_version(version: str, stream_reader: str) -> None:
    """Spark 4.0 passes Arrow batches to every ``DataSourceArrowWriter``, so stream writers have to be one there."""
    lines = run_with_version(version, READERS_AND_WRITERS).splitlines()
    assert [line for line in lines if not line.startswith("WARNING:")] == [
        "FilterPushdownBatchReader",
        stream_reader,
        "KafkaBatchWriter",
        "KafkaStreamWriter True True",
        "all imported",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("version", "warns"), [("4.0", True), ("4.1", False)])
def test_filter_pushdown_without_support_is_a_warning(version: str, warns: bool) -> None:
    assert ("pushDownFilters has no effect" in run_with_version(version, READERS_AND_WRITERS)) is warns


@pytest.fixture
def no_cached_features() -> Iterator[None]:
    spark_features.cache_clear()
    yield
    spark_features.cache_clear()


@pytest.mark.usefixtures("no_cached_features")
@pytest.mark.parametrize("version", ["3.5.6", "2.4"])
def test_a_version_that_is_too_old_is_an_error(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    with pytest.raises(SparkVersionError, match=rf"needs PySpark 4\.0 or newer, and this is {version}"):
        spark_features()


@pytest.mark.parametrize("version", ["4.0.0", "4.1.0.dev0", "10.0.1"])
def test_supported_versions(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    assert require_spark("The test") == version


def test_without_pyspark_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", cast("Any", None))
    with pytest.raises(SparkVersionError, match=r'The test needs PySpark .* "pyspark-kafka-direct\[spark\]"'):
        require_spark("The test")


def test_a_missing_dependency_of_pyspark_is_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyspark.py").write_text("import py4j_that_is_not_there")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pyspark")
    with pytest.raises(ModuleNotFoundError, match="py4j_that_is_not_there") as error:
        require_spark("The test")
    assert not isinstance(error.value, SparkVersionError)


FEATURES = {
    "from pyspark_kafka_direct import DefaultSource": "The data source kafka-direct",
    "from pyspark_kafka_direct import enable": "The monitor",
    "import pyspark_kafka_direct.direct": "The direct stream",
    "import pyspark_kafka_direct.continuous": "A continuous query",
}

IN_A_PROCESS_EACH = """
import os, traceback
from pyspark_kafka_direct.errors import SparkVersionError
for statement in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            exec(statement)
            print("no error", flush=True)
        except SparkVersionError as error:
            print(error, flush=True)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
"""


@functools.cache
def errors_without_spark(version: str) -> dict[str, str]:
    """Return the error of each statement of ``FEATURES`` with no PySpark, or with a version that is too old."""
    setup = (
        "sys.modules['pyspark'] = None" if version == "none" else f"import pyspark; pyspark.__version__ = {version!r}"
    )
    lines = ["import sys", setup, "from pyspark_kafka_direct import error_of, stop_at_signal, TopicPartition"]
    lines += ["from pyspark_kafka_direct.log import KafkaBasedLog"] if version == "none" else []
    command = [sys.executable, "-c", "\n".join([*lines, IN_A_PROCESS_EACH]), *FEATURES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    errors = done.stdout.splitlines()
    assert len(errors) == len(FEATURES), done.stderr
    return dict(zip(FEATURES, errors, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("import_statement", "feature"), FEATURES.items())
@pytest.mark.parametrize("version", ["none", "3.5.6"])
def test_an_api_needs_spark_and_other_imports_do_not(import_statement: str, feature: str, version: str) -> None:
    error = errors_without_spark(version)[import_statement]
    assert error.startswith(f"{feature} needs PySpark 4.0 or newer")


@pytest.mark.parametrize("version", ["4.1", "4.2"])
def test_timestamps_are_in_utc_on_each_version(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``to_arrow_schema`` has no keyword ``timezone`` before 4.2."""
    convert = types.to_arrow_schema
    if version < "4.2":
        monkeypatch.setattr(
            types, "to_arrow_schema", lambda schema, timestamp_utc=True: convert(schema, timezone="UTC")
        )
    schema = arrow_schema_in_utc(StructType([StructField("Timestamp", TimestampType(), False)]))
    assert str(schema.field("Timestamp")) == "pyarrow.Field<Timestamp: timestamp[us, tz=UTC] not null>"


class JavaPackage:
    """The value of any name in py4j."""

    def __getattr__(self, name: str) -> Any:
        return JavaPackage()

    def __call__(self) -> None:
        raise TypeError("'JavaPackage' object is not callable")


class JavaClass:
    pass


def test_the_package_of_checkpoint_classes_in_old_and_new_versions() -> None:
    jvm: Any = JavaPackage()
    org: Any = JavaPackage()
    jvm.org = org
    for name in ("apache", "spark", "sql", "execution", "streaming"):
        setattr(org, name, JavaPackage())
        org = getattr(org, name)
    with pytest.raises(
        SparkVersionError, match=r"uses the class org.*\.CheckpointFileManager of Spark, which Spark \d"
    ):
        checkpointing_package(jvm)
    org.CheckpointFileManager = JavaClass()
    assert checkpointing_package(jvm) is org
    org.checkpointing = JavaPackage()
    org.checkpointing.CheckpointFileManager = JavaClass()
    assert checkpointing_package(jvm) is org.checkpointing
