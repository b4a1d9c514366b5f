"""The files of a query's checkpoint, read and written as Spark does it: by its ``CheckpointFileManager``.

So ``hdfs:`` and object stores work wherever they work for Spark, with the same settings
(``spark.sql.streaming.checkpointFileManagerClass``) and the same promises: a file appears whole or not at all, and one
that is there is not replaced. How sure the latter is when two write at the same moment is up to the file system: HDFS
decides it, a local disk and S3 without conditional writes only look beforehand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.runtime.spark_versions import checkpointing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TAKEN: Final = "org.apache.hadoop.fs.FileAlreadyExistsException"


class CheckpointFiles:
    """The files of one checkpoint, by names such as ``offsets/7``.

    Args:
        spark: A session with a JVM at hand.
        checkpoint: The query's ``checkpointLocation``.
        user: What needs the files, for an error.

    Raises:
        OptionError: The session is one of Spark Connect.
    """

    def __init__(self, spark: SparkSession, checkpoint: str, user: str) -> None:
        jvm: Any = getattr(spark, "_jvm", None)
        if jvm is None:
            raise OptionError(f"{user} needs Spark's JVM on the driver, and does not work over Spark Connect.")
        self._root = checkpoint.rstrip("/")
        # Every name in a package costs py4j a round trip.
        self._path = jvm.org.apache.hadoop.fs.Path
        self._to_string = jvm.org.apache.commons.io.IOUtils.toString
        session: Any = spark
        conf = session._jsparkSession.sessionState().newHadoopConf()
        self._manager = checkpointing(jvm).CheckpointFileManager.create(self._path(self._root or "/"), conf)

    def place(self, name: str) -> str:
        """Return the full name of a file, for messages."""
        return f"{self._root}/{name}"

    def text(self, name: str) -> str | None:
        """Return what is in a file; ``None`` if there is no such file."""
        path = self._of(name)
        if not self._manager.exists(path):
            return None
        stream = self._manager.open(path)
        try:
            return str(self._to_string(stream, "UTF-8"))
        finally:
            stream.close()

    def exists(self, name: str) -> bool:
        """Tell whether there is a file or folder of this name."""
        return bool(self._manager.exists(self._of(name)))

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; none if there is no such folder."""
        path = self._of(folder)
        if not self._manager.exists(path):
            return []
        return [str(status.getPath().getName()) for status in self._manager.list(path) if status.isFile()]

    def make_folder(self, name: str) -> None:
        """Make a folder and those above it, where they are not there."""
        self._manager.mkdirs(self._of(name))

    def create(self, name: str, text: str) -> bool:
        """Write a new file; its folder must be there.

        Returns:
            Whether it was written; ``False`` if there is a file of this name, which then stays as it is.
        """
        path, stream = self._of(name), None
        try:
            stream = self._manager.createAtomic(path, False)
            stream.write(text.encode())
            stream.close()
        except BaseException as error:
            if stream is not None:
                stream.cancel()
            # Hadoop says the same where a file stands in the place of a folder.
            if _says_taken(error) and self._manager.exists(path):
                return False
            raise
        return True

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        self._manager.delete(self._of(name))

    def _of(self, name: str) -> Any:
        return self._path(self.place(name))


def _says_taken(error: BaseException) -> bool:
    """Tell whether Java says that the file is there already, whichever of its classes says so."""
    thrown = getattr(error, "java_exception", None)
    kind = None if thrown is None else thrown.getClass()
    while kind is not None:
        if kind.getName() == _TAKEN:
            return True
        kind = kind.getSuperclass()
    return False
