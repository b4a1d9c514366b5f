"""What each version of Spark has of what this package uses: the one place that knows.

    4.0   the oldest that works
    4.1   offers filters to Python sources, hands Arrow batches to writers of streams, and has moved the classes that
          write checkpoints to a package of their own
    4.2   tells the source of a stream where a batch begins and how much it may take, and tells it of
          Trigger.AvailableNow; asks it for the latest offsets that a progress report shows

It goes by what is there and not by the number: vendors put parts of later versions into theirs.
docs/spark-versions.md says what that means to users.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import SparkVersionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter
    from pyspark.sql.types import StructType

OLDEST: Final = (4, 0)

_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
_OLDER_STREAM: Final = "PythonMicroBatchStream"


@dataclass(frozen=True, slots=True)
class SparkFeatures:
    """What the PySpark of this process has.

    Attributes:
        version: Its version.
        pushed_filters: It offers filters to the readers of batches (4.1).
        arrow_stream_writers: It knows writers of streams that take Arrow batches (4.1).
        read_limits: It asks for the end of a micro-batch with its start and a limit (4.2).
    """

    version: str
    pushed_filters: bool
    arrow_stream_writers: bool
    read_limits: bool


@functools.cache
def spark_features() -> SparkFeatures:
    """Return what the PySpark of this process has.

    Raises:
        SparkVersionError: There is no PySpark, or it is too old.
    """
    version = require_spark("This package")
    datasource = import_module("pyspark.sql.datasource")
    return SparkFeatures(
        version=version,
        pushed_filters=hasattr(datasource, "Filter"),
        arrow_stream_writers=hasattr(datasource, "DataSourceStreamArrowWriter"),
        read_limits=_is_there("pyspark.sql.streaming.datasource"),
    )


def require_spark(user: str) -> str:
    """Return the version of PySpark.

    Args:
        user: What needs it, as an error begins.

    Raises:
        SparkVersionError: There is no PySpark, or it is too old.
    """
    oldest = ".".join(map(str, OLDEST))
    try:
        version = str(import_module("pyspark").__version__)
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        raise SparkVersionError(
            f"{user} needs PySpark {oldest} or newer, and this Python has none. Install the PySpark of your cluster's "
            'version, or the newest with: pip install "pyspark-kafka-direct[spark]"'
        ) from None
    if _numbers(version) < OLDEST:
        raise SparkVersionError(
            f"{user} needs PySpark {oldest} or newer, and this is {version}. Spark before {oldest} lacks what "
            "a source in Python needs: use a newer Spark, or Spark's own connector."
        )
    return version


def arrow_stream_writer() -> type[DataSourceStreamWriter]:
    """Return the class whose writers of streams are given Arrow batches."""
    datasource: Any = import_module("pyspark.sql.datasource")
    if spark_features().arrow_stream_writers:
        later: type[DataSourceStreamWriter] = datasource.DataSourceStreamArrowWriter
        return later

    class StreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):  # type: ignore[misc]
        """A writer of streams that Spark 4.0 takes for one of Arrow batches: it asks for the latter's class only."""

    return StreamArrowWriter


def arrow_schema_in_utc(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark takes rows of a schema; timestamps are in UTC."""
    convert: Any = import_module("pyspark.sql.pandas.types").to_arrow_schema
    # Before 4.2 there is no such keyword, and UTC is what it does.
    return convert(schema, timezone="UTC") if "timezone" in signature(convert).parameters else convert(schema)


def checkpointing(jvm: Any) -> Any:
    """Return the package of the JVM with the classes that write checkpoints.

    Args:
        jvm: The view of py4j.
    """
    streaming = functools.reduce(getattr, _STREAMING.split("."), jvm)
    moved = streaming.checkpointing
    # What py4j does not find it takes for a package.
    return streaming if type(moved.CheckpointFileManager).__name__ == "JavaPackage" else moved


def reports_latest(description: str) -> bool:
    """Tell whether the ``latestOffset`` of a progress report is where the logs end.

    Before 4.2 Spark reports the batch's own end there. All streams of sources in Python have the shortest name then;
    ours have another one since.

    Args:
        description: The source's, in the report.
    """
    return f"{_OLDER_STREAM}@" not in description


def _is_there(module: str) -> bool:
    try:
        import_module(module)
    except ModuleNotFoundError:
        return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
