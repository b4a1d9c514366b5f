"""The files of a query's checkpoint, read and written like Spark does: by its ``CheckpointFileManager``.

So ``hdfs:`` and object stores work as they do for Spark, with the same settings
(``spark.sql.streaming.checkpointFileManagerClass``) and guarantees: a file becomes visible completely or not at all,
and an existing file is not replaced. If two processes create a file at the same moment, the file system decides
whether one of them fails: HDFS guarantees it, while a local disk, and S3 without conditional writes, only check before.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from pyspark_kafka_direct.client.deadline import Backoff
from pyspark_kafka_direct.errors import InvalidOffsetsError, KafkaDirectError, OptionError
from pyspark_kafka_direct.producer.file_systems import mask_secrets
from pyspark_kafka_direct.spark.spark_versions import checkpointing_package

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.client.system import System

_log = logging.getLogger("pyspark_kafka_direct.spark")

_T = TypeVar("_T")

_RETRIES: Final = 4
_BACKOFF: Final = Backoff(0.1, 1.0)
_FILE_EXISTS: Final = "org.apache.hadoop.fs.FileAlreadyExistsException"

OFFSET_LOG_V1: Final = "v1"
OFFSET_LOG_V2: Final = "v2"
NO_OFFSET: Final = "-"
FENCING_LOG_FOLDER: Final = "transactions"  # of continuous queries
REWOUND_CONF: Final = "pyspark_kafka_direct.rewound"
"""A name in ``conf`` of an entry that ``kafka-direct checkpoint rewind`` has added; Spark ignores it."""


class CheckpointFileManager(Protocol):
    """Reads and writes the files of a checkpoint. ``CheckpointFiles`` is the implementation."""

    def path(self, name: str) -> str:
        """Return the full name of a file for messages, without the password of a URI."""

    def read(self, name: str) -> str | None:
        """Return the content of a file, or ``None`` if it does not exist."""

    def exists(self, name: str) -> bool:
        """Return whether a file or folder exists."""

    def list_names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder."""

    def mkdirs(self, name: str) -> None:
        """Create a folder and its parents if they do not exist."""

    def create(self, name: str, text: str) -> bool:
        """Write a new file; return ``False`` if it exists."""

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""


class CheckpointFiles:
    """The files of one checkpoint, by names such as ``offsets/7``."""

    def __init__(self, spark: SparkSession, checkpoint: str, caller: str) -> None:
        jvm: Any = getattr(spark, "_jvm", None)
        if jvm is None:
            raise OptionError(f"{caller} needs Spark's JVM on the driver, and is not supported over Spark Connect.")
        self._root = checkpoint.rstrip("/")
        # Looked up only once, because each name in a Java package costs py4j a round trip.
        self._path_class = jvm.org.apache.hadoop.fs.Path
        self._to_string = jvm.org.apache.commons.io.IOUtils.toString
        session: Any = spark
        conf = session._jsparkSession.sessionState().newHadoopConf()
        self._manager = checkpointing_package(jvm).CheckpointFileManager.create(
            self._path_class(self._root or "/"), conf
        )

    def path(self, name: str) -> str:
        return mask_secrets(f"{self._root}/{name}", self._root)

    def read(self, name: str) -> str | None:
        """Return the content of a file, or ``None`` if it does not exist."""
        path = self._hadoop_path(name)
        if not self._manager.exists(path):
            return None
        stream = self._manager.open(path)
        try:
            return str(self._to_string(stream, "UTF-8"))
        finally:
            stream.close()

    def exists(self, name: str) -> bool:
        return bool(self._manager.exists(self._hadoop_path(name)))

    def list_names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, which may be missing."""
        path = self._hadoop_path(folder)
        if not self._manager.exists(path):
            return []
        return [str(status.getPath().getName()) for status in self._manager.list(path) if status.isFile()]

    def mkdirs(self, name: str) -> None:
        self._manager.mkdirs(self._hadoop_path(name))

    def create(self, name: str, text: str) -> bool:
        """Create a file in an existing folder; return false if the file exists."""
        path, stream = self._hadoop_path(name), None
        overwrite = False
        try:
            stream = self._manager.createAtomic(path, overwrite)
            stream.write(text.encode())
            stream.close()  # the file becomes visible
        except BaseException as error:
            if stream is not None:
                stream.cancel()
            # Hadoop throws the same exception if the folder is a file, so the file may not exist.
            if _is_file_exists_error(error) and self._manager.exists(path):
                return False
            raise
        return True

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        self._manager.delete(self._hadoop_path(name))

    def _hadoop_path(self, name: str) -> Any:
        return self._path_class(f"{self._root}/{name}")


class RetryingFiles:
    """Repeats operations that fail, four times in about 1.5 seconds."""

    def __init__(self, files: CheckpointFileManager, system: System) -> None:
        self._files = files
        self._system = system

    def path(self, name: str) -> str:
        return self._files.path(name)

    def read(self, name: str) -> str | None:
        return self._retry(lambda: self._files.read(name))

    def exists(self, name: str) -> bool:
        return self._retry(lambda: self._files.exists(name))

    def list_names(self, folder: str) -> list[str]:
        return self._retry(lambda: self._files.list_names(folder))

    def mkdirs(self, name: str) -> None:
        self._retry(lambda: self._files.mkdirs(name))

    def create(self, name: str, text: str, check: Callable[[], None] = lambda: None) -> bool:
        """Write a new file; return ``False`` if another one exists. ``check`` runs before each attempt.

        If the response to a rename was lost, a repeated one reports that the file exists, so the content decides.
        """
        return self._retry(lambda: self._files.create(name, text), check) or self.read(name) == text

    def delete(self, name: str) -> None:
        self._retry(lambda: self._files.delete(name))

    def _retry(self, operation: Callable[[], _T], check: Callable[[], None] = lambda: None) -> _T:
        """Repeat an operation after errors of the file system; an error of ``check`` ends the retries."""
        for tries in range(_RETRIES):
            check()
            try:
                return operation()
            except KafkaDirectError:
                raise
            except Exception as error:
                _log.warning(
                    "An operation on the checkpoint %s failed, and is repeated: %s", self._files.path(""), error
                )
            self._system.sleep(_BACKOFF.pause(tries, self._system))
        check()
        return operation()  # an error of the last attempt is raised


@dataclass(frozen=True, slots=True)
class OffsetSeq:
    """An entry of the offset log, like Spark's ``OffsetSeq``."""

    #     <checkpoint>/offsets/7      v1
    #                                 {"batchWatermarkMs":0,"batchTimestampMs":1795346400000,...}
    #                                 {"flights":{"0":123,"1":98}}
    #
    # After the first two lines there is one for each source, ``-`` if it has no offset; in ``v2`` after its name and a
    # colon. Sources other than Kafka write other JSON.
    version: str
    metadata: str
    sources: tuple[str | None, ...]  # without the names of v2
    names: tuple[str, ...] = ()  # of the sources; v1 has none

    @property
    def names_or_numbers(self) -> tuple[str, ...]:
        """The names of the sources, or their numbers from 0."""
        return self.names or tuple(map(str, range(len(self.sources))))


def parse_offset_seq(entry: str, location: str) -> OffsetSeq:
    """Parse an entry of the offset log; ``location`` is for errors."""
    version, *lines = entry.split("\n")
    if version not in (OFFSET_LOG_V1, OFFSET_LOG_V2):
        raise InvalidOffsetsError(
            f"{location} has version {version!r}, but only {OFFSET_LOG_V1} and {OFFSET_LOG_V2} are supported: leave "
            "spark.sql.streaming.offsetLog.formatVersion unchanged"
        )
    offsets, names = lines[1:], []
    if version == OFFSET_LOG_V2:
        names = [line.partition(":")[0] for line in offsets]
        offsets = [line.partition(":")[2] for line in offsets]
    sources = tuple(None if line == NO_OFFSET else line for line in offsets)
    return OffsetSeq(version, lines[0] if lines else "", sources, tuple(names))


def _is_file_exists_error(error: BaseException) -> bool:
    """Return whether a Java exception has the class that reports an existing file, or a subclass of it."""
    java_exception = getattr(error, "java_exception", None)
    java_class = None if java_exception is None else java_exception.getClass()
    while java_class is not None:
        if java_class.getName() == _FILE_EXISTS:
            return True
        java_class = java_class.getSuperclass()
    return False
