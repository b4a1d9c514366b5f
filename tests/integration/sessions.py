"""Spark sessions of pytest's process."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import pyspark
from tests.shards import source_runners
from tests.shards.jvm import executor_options
from tests.shards.python import path_of_workers

from pyspark_kafka_direct.direct.streaming_context import cache_jvm_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

# The newest connector of each release line; some later PySpark releases have none.
_CONNECTORS = {"4.0": "4.0.4", "4.1": "4.1.3"}
_CONNECTOR = _CONNECTORS.get(".".join(pyspark.__version__.split(".")[:2]), "4.2.0")
SPARK_JARS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{_CONNECTOR}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",  # 4.2.0's is not published
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
    "org.apache.spark:spark-avro_2.13:4.0.1",  # 4.2.0's is not published
)

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # By default an idle query asks its source for new data 100 times a second, which takes a sixth of a core.
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A busy machine is slow, not wrong.
    "spark.network.timeout": "600s",
    "spark.python.authenticate.socketTimeout": "600s",
}
_MASTER = "local[2]"
_WARM_DAEMON = {"spark.python.daemon.module": "tests.shards.worker_daemon"}
# Generating and compiling Java for each query takes longer than it saves for a few rows. Sessions with other jars, in
# other processes and for other versions of Spark generate code as usual.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_PYTHONPATH = "spark.executorEnv.PYTHONPATH"
# PySpark and continuous queries resolve these for each error and each query. Each time, the JVM searches all of Spark's
# jars.
_JVM_NAMES = (
    "PythonErrorUtils",
    "SparkConf",
    "functions",
    "java.lang.Runtime",
    "org.apache.commons.io.IOUtils",
    "org.apache.hadoop.fs.Path",
)


class SparkSessions:
    """Makes Spark sessions and keeps the last: a process can have one ``SparkContext`` at a time.

    A session with the same settings is used again, for the first one of a process takes about 15 seconds. Jars can be
    added to a JVM, but not removed: a session with fewer jars than the one before has another JVM.

    Args:
        warehouse: The folder of tables.
        warm: Whether workers come from ``tests.shards.worker_daemon``, and the processes of streaming sources from
            ``tests.shards.source_runners``. This saves half of the CPU time of Python in a query. Local sessions
            without jars also interpret expressions, which saves a twelfth of the CPU time of the JVM.
    """

    def __init__(self, warehouse: Path, *, warm: bool = False) -> None:
        self._warehouse = warehouse
        self._warm = warm
        self._session: SparkSession | None = None
        self._made_with: object = None
        self._jvm_jars: tuple[str, ...] = ()
        self._source_runners: source_runners.SourceRunners | None = None

    def __call__(
        self, conf: Mapping[str, str] | None = None, *, master: str = _MASTER, jars: Sequence[Path] = ()
    ) -> SparkSession:
        """Return a session with these settings; the one before, if it had others, is stopped."""
        from pyspark.sql import SparkSession

        names = tuple(str(jar) for jar in jars)
        wanted = (dict(conf or {}), master, names)
        if self._session is not None and self._made_with == wanted and self._alive():
            return self._session
        self.stop()
        if not set(self._jvm_jars) <= set(names):
            self.stop_jvm()
        # The default one starts readlink several times for each file of a checkpoint. Queries that are killed have it.
        manager = f"{_checkpointing()}.FileSystemBasedCheckpointFileManager"
        settings = {**_DEFAULTS, "spark.sql.streaming.checkpointFileManagerClass": manager}
        settings |= {"spark.sql.warehouse.dir": str(self._warehouse), **(conf or {})}
        if self._warm and master.startswith("local["):
            settings = {**_WARM_DAEMON, **({} if names else _INTERPRETED), **settings}
        if not master.startswith("local["):
            # Executors have an environment of their own.
            settings.setdefault("spark.executor.extraJavaOptions", executor_options())
            settings[_PYTHONPATH] = path_of_workers(settings.get(_PYTHONPATH, ""))
        if names:
            settings["spark.jars"] = ",".join(names)
        builder = SparkSession.builder.master(master).appName("tests")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self._start_source_runners()
        self._add_to_jvm([jar for jar in names if jar not in self._jvm_jars])
        self._session = builder.getOrCreate()
        _hide_source_runners()
        self._session.sparkContext.setLogLevel("ERROR")
        cache_jvm_names(self._session._jvm)
        cache_jvm_names(self._session._jvm, (*_JVM_NAMES, f"{_checkpointing()}.CheckpointFileManager"))
        self._made_with, self._jvm_jars = wanted, names
        return self._session

    def start_jvm(self) -> None:
        """Start the JVM, if there is none, for a test in whose process the code under test makes a session.

        Spark's settings of a first session would be the defaults of all later ones in the JVM.
        """
        from pyspark import SparkContext

        self._start_source_runners()
        SparkContext._ensure_initialized()
        _hide_source_runners()

    def stop(self) -> None:
        """Stop the session, if there is one."""
        if self._session is not None:
            self._session.stop()
            self._session = None

    def stop_jvm(self) -> None:
        """Stop the JVM under it as well."""
        from pyspark import SparkContext

        self.stop()
        gateway = SparkContext._gateway
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()  # the JVM ends with its standard input
            gateway.proc.wait(600)
            SparkContext._gateway = None
            SparkContext._jvm = None
        if self._source_runners is not None:
            self._source_runners.stop()
            self._source_runners = None
        self._jvm_jars = ()

    @staticmethod
    def _add_to_jvm(jars: Sequence[str]) -> None:
        """Add jars to the class loader of a running JVM, as spark-submit does with ``spark.jars`` when one starts."""
        from pyspark import SparkContext

        jvm: Any = SparkContext._jvm
        if jvm is not None:
            loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
            for jar in jars:
                loader.addURL(jvm.java.io.File(jar).toURI().toURL())

    def _start_source_runners(self) -> None:
        """Start the server, and name it in the environment that a new JVM inherits."""
        if self._warm and source_runners.supported():
            if self._source_runners is None:
                self._source_runners = source_runners.SourceRunners()
            os.environ.update(self._source_runners.environment)

    def _alive(self) -> bool:
        return self._session is not None and self._session.sparkContext._jsc is not None


@contextlib.contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Change a setting of a session, and restore it at the end."""
    before = spark.conf.getAll.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def _hide_source_runners() -> None:
    """Remove their server from the environment, which other processes inherit."""
    for variable in (source_runners.VARIABLE, source_runners.PYTHON_VARIABLE):
        os.environ.pop(variable, None)


def _checkpointing() -> str:
    """The package of the classes that write checkpoints, in the PySpark that is here."""
    from pyspark_kafka_direct.spark.spark_versions import spark_features

    streaming = "org.apache.spark.sql.execution.streaming"
    return f"{streaming}.checkpointing" if spark_features().has_arrow_stream_writers else streaming
