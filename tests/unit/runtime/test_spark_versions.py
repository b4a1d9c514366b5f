"""What versions of Spark have, played with the PySpark that is here: names are taken out of it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql.pandas import types
from pyspark.sql.types import StructField, StructType, TimestampType

from pyspark_kafka_direct.errors import SparkVersionError
from pyspark_kafka_direct.runtime.spark_versions import (
    arrow_schema_in_utc,
    checkpointing,
    require_spark,
    spark_features,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LATER = {
    "4.2": "sys.modules['pyspark.sql.streaming.datasource'] = None",
    "4.1": "del datasource.Filter, datasource.EqualTo, datasource.DataSourceStreamArrowWriter",
}
"""What takes out of PySpark what a version brought."""


def played(version: str, program: str) -> str:
    """What a program prints in a process that has no more of PySpark than the version."""
    missing = [taken for brought, taken in LATER.items() if brought > version]
    begin = ["import sys, pyspark.sql.streaming", "from pyspark.sql import datasource", *missing]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*begin, program])], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


READERS_AND_WRITERS = """
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
"""


@pytest.mark.parametrize(
    ("version", "stream_reader"),
    [("4.0", "OlderStreamReader"), ("4.1", "OlderStreamReader"), ("4.2", "KafkaStreamReader")],
)
def test_readers_and_writers_are_made_on_each_version(version: str, stream_reader: str) -> None:
    """Spark 4.0 hands Arrow batches to any ``DataSourceArrowWriter``, so writers of streams have to be one there."""
    assert played(version, READERS_AND_WRITERS).splitlines() == [
        "FilteringBatchReader",
        stream_reader,
        "KafkaBatchWriter",
        "KafkaStreamWriter True True",
    ]


@pytest.mark.parametrize(("version", "told"), [("4.0", True), ("4.1", False)])
def test_who_pushes_filters_down_is_told_where_nothing_is_pushed(version: str, told: bool) -> None:
    program = "import logging\nlogging.basicConfig(stream=sys.stdout)\n" + READERS_AND_WRITERS
    assert ("pushDownFilters does nothing here" in played(version, program)) is told


@pytest.mark.parametrize("version", ["4.0", "4.1"])
def test_every_door_can_be_imported(version: str) -> None:
    rooms = ("direct", "continuous", "log", "monitor._listener", "daemon", "structured.foreach_batch")
    program = "".join(f"import pyspark_kafka_direct.{room}\n" for room in rooms)
    assert played(version, program) == ""


@pytest.fixture
def fresh() -> Iterator[None]:
    spark_features.cache_clear()
    yield
    spark_features.cache_clear()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("version", ["3.5.6", "2.4"])
def test_a_spark_that_is_too_old_is_told_plainly(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    with pytest.raises(SparkVersionError, match=rf"needs PySpark 4\.0 or newer, and this is {version}"):
        spark_features()


@pytest.mark.parametrize("version", ["4.0.0", "4.1.0.dev0", "10.0.1"])
def test_a_spark_that_is_new_enough(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    assert require_spark("The test") == version


def test_without_pyspark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", cast("Any", None))
    with pytest.raises(SparkVersionError, match=r'The test needs PySpark .* "pyspark-kafka-direct\[spark\]"'):
        require_spark("The test")


def test_a_pyspark_that_lacks_something_says_so_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyspark.py").write_text("import py4j_that_is_not_there")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pyspark")
    with pytest.raises(ModuleNotFoundError, match="py4j_that_is_not_there") as error:
        require_spark("The test")
    assert not isinstance(error.value, SparkVersionError)


@pytest.mark.parametrize(
    ("door", "named"),
    [
        ("from pyspark_kafka_direct import DefaultSource", "The data source kafka-direct"),
        ("from pyspark_kafka_direct import enable", "The monitor"),
        ("import pyspark_kafka_direct.direct", "The direct stream"),
        ("import pyspark_kafka_direct.continuous", "The continuous runner"),
    ],
)
@pytest.mark.parametrize("version", ["none", "3.5.6"])
def test_a_door_says_what_it_needs_and_what_needs_no_spark_works(door: str, named: str, version: str) -> None:
    here = (
        "sys.modules['pyspark'] = None" if version == "none" else f"import pyspark; pyspark.__version__ = {version!r}"
    )
    lines = ["import sys", here, "from pyspark_kafka_direct import error_of, stop_at_signal, TopicPartition"]
    lines += ["from pyspark_kafka_direct.log import KafkaBasedLog"] if version == "none" else []
    lines += ["from pyspark_kafka_direct.errors import SparkVersionError", "try:", f"    {door}"]
    lines += ["except SparkVersionError as error:", "    print(error)"]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.startswith(f"{named} needs PySpark 4.0 or newer"), done.stderr


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
    """What py4j makes of any name."""

    def __getattr__(self, name: str) -> Any:
        return JavaPackage()

    def __call__(self) -> None:
        raise TypeError("'JavaPackage' object is not callable")


class JavaClass:
    pass


def test_the_classes_of_checkpoints_are_found_where_they_are() -> None:
    old: Any = JavaPackage()
    old.org = org = JavaPackage()
    for name in ("apache", "spark", "sql", "execution", "streaming"):
        setattr(org, name, JavaPackage())
        org = getattr(org, name)
    assert checkpointing(old) is org
    org.checkpointing = JavaPackage()
    org.checkpointing.CheckpointFileManager = JavaClass()
    assert checkpointing(old) is org.checkpointing
