"""The differences between versions of Spark that this package depends on.

    4.0   the oldest supported version
    4.1   pushes filters to Python data sources, has a base class for stream writers that take Arrow batches, and has
          moved the classes that write checkpoints to another package
    4.2   passes the start of a batch and a read limit to stream readers, supports Trigger.AvailableNow there, and
          requests the latest offsets for progress reports

Features are detected, not derived from the version, because vendors backport them. docs/install.md describes
the effects for users.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import SparkVersionError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.datasource import DataSourceStreamWriter
    from pyspark.sql.types import DataType

MIN_SPARK_VERSION: Final = (4, 0)

_STREAMING_PACKAGE: Final = "org.apache.spark.sql.execution.streaming"
_PYTHON_MICRO_BATCH_STREAM: Final = "PythonMicroBatchStream"


@dataclass(frozen=True, slots=True)
class SparkFeatures:
    """The features of the installed PySpark."""

    version: str
    has_filter_pushdown: bool  # 4.1
    has_arrow_stream_writers: bool  # 4.1
    has_read_limits: bool  # 4.2


@functools.cache
def spark_features() -> SparkFeatures:
    """Return the features of the installed PySpark, or raise if it is missing or too old."""
    version = require_spark("This package")
    datasource = import_module("pyspark.sql.datasource")
    return SparkFeatures(
        version=version,
        has_filter_pushdown=hasattr(datasource, "Filter"),
        has_arrow_stream_writers=hasattr(datasource, "DataSourceStreamArrowWriter"),
        has_read_limits=_module_exists("pyspark.sql.streaming.datasource"),
    )


def require_spark(feature: str) -> str:
    """Return the version of PySpark, or raise if it is missing or too old; ``feature`` starts the message."""
    oldest = ".".join(map(str, MIN_SPARK_VERSION))
    try:
        version = str(import_module("pyspark").__version__)
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise  # PySpark is installed, but not a module that it imports
        raise SparkVersionError(
            f"{feature} needs PySpark {oldest} or newer, and this Python has none. Install the PySpark version of "
            'your cluster, or the newest with: pip install "pyspark-kafka-direct[spark]"'
        ) from None
    if _version_tuple(version) < MIN_SPARK_VERSION:
        raise SparkVersionError(
            f"{feature} needs PySpark {oldest} or newer, and this is {version}. Older versions do not support the "
            "Python data source API: use a newer Spark, or Spark's own connector."
        )
    return version


def arrow_stream_writer_class() -> type[DataSourceStreamWriter]:
    """Return the base class of stream writers that take Arrow batches."""
    datasource: Any = import_module("pyspark.sql.datasource")
    if spark_features().has_arrow_stream_writers:
        writer_class: type[DataSourceStreamWriter] = datasource.DataSourceStreamArrowWriter
        return writer_class

    # Spark 4.0 has no such class. It passes Arrow batches to each writer that is a DataSourceArrowWriter, the base
    # class for batches, even if it is also a stream writer.
    class StreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):  # type: ignore[misc]
        """A base class like that of Spark 4.1."""

    return StreamArrowWriter


def arrow_udf(function: Callable[[pa.Array], pa.Array], return_type: DataType) -> Callable[[Column | str], Column]:
    """Return a function on columns that calls ``function`` for each Arrow batch."""
    functions: Any = import_module("pyspark.sql.functions")
    if not hasattr(functions, "arrow_udf"):
        version = spark_features().version
        raise SparkVersionError(
            f"Arrow functions need PySpark 4.1 or newer, and this is {version}. Use Spark's function."
        )
    import pyarrow as pa

    # Spark takes the kind of the function from its annotations, and warns if it is named instead.
    function.__annotations__ = dict.fromkeys((*function.__annotations__, "return"), pa.Array)
    udf: Callable[[Column | str], Column] = functions.arrow_udf(function, return_type)
    return udf


def checkpointing_package(jvm: Any) -> Any:
    """Return the JVM package of the classes that write checkpoints."""
    streaming = functools.reduce(getattr, _STREAMING_PACKAGE.split("."), jvm)
    if not _is_package(streaming.checkpointing.CheckpointFileManager):  # since 4.1
        return streaming.checkpointing
    # The error names the class as in new versions, because one that lacks both is newer than this package.
    check_internal_class(streaming.CheckpointFileManager, f"{_STREAMING_PACKAGE}.checkpointing.CheckpointFileManager")
    return streaming


def check_internal_class(jvm_class: Any, name: str) -> None:
    """Raise unless py4j has found a class of Spark that is not a public API."""
    if _is_package(jvm_class):
        raise changed_spark_error(f"the class {name}")


def changed_spark_error(name: str) -> SparkVersionError:
    """Return the error for a part of Spark that is not a public API, and that this version lacks."""
    version = import_module("pyspark").__version__
    return SparkVersionError(
        f"This package uses {name} of Spark, which Spark {version} does not have. Use a version of Spark that was "
        "tested (docs/install.md), or a newer version of this package."
    )


def _is_package(name: Any) -> bool:
    return type(name).__name__ == "JavaPackage"  # which py4j returns for every name that it does not find


def reports_latest_offset(description: str) -> bool:
    """Return whether ``latestOffset`` in a progress report of this source is the end of the logs."""
    # Before 4.2 Spark reports the end of the batch there, and all Python streams have this description.
    return f"{_PYTHON_MICRO_BATCH_STREAM}@" not in description


def _module_exists(module: str) -> bool:
    try:
        import_module(module)
    except ModuleNotFoundError:
        return False
    return True


def _version_tuple(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
