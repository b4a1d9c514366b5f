"""Spark sessions for the tests that need one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.stream_queries import Stream, produce
from tests.lanes.assignment import lane_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.broker import EmbeddedKafka

# Every JVM of the tests lives for seconds or a few minutes, and there are a hundred of them: the second compiler and a
# collector with threads of its own cost half of the CPU time of a broker's start, and a third of Spark's.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ["JAVA_TOOL_OPTIONS"] = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {_JVM}".strip()

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class SparkSessions:
    """Makes Spark sessions and keeps the last: a process can have one ``SparkContext`` at a time.

    A session with the same settings is used again, for the first one of a process takes about 15 seconds. Jars have to
    be known when the JVM starts, so other jars mean another JVM.
    """

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self._session: SparkSession | None = None
        self._made_with: object = None
        self._jvm_jars: tuple[str, ...] = ()

    def __call__(
        self, conf: Mapping[str, str] | None = None, *, master: str = "local[2]", jars: Sequence[Path] = ()
    ) -> SparkSession:
        """Return a session with these settings; the one before, if it had others, is stopped."""
        from pyspark.sql import SparkSession

        names = tuple(str(jar) for jar in jars)
        wanted = (dict(conf or {}), master, names)
        if self._session is not None and self._made_with == wanted and self._alive():
            return self._session
        self.stop()
        if names != self._jvm_jars:
            self.stop_jvm()
        settings = {**_DEFAULTS, "spark.sql.warehouse.dir": str(self._warehouse), **(conf or {})}
        if names:
            settings["spark.jars"] = ",".join(names)
        builder = SparkSession.builder.master(master).appName("tests")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self._session = builder.getOrCreate()
        self._session.sparkContext.setLogLevel("ERROR")
        self._made_with, self._jvm_jars = wanted, names
        return self._session

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
            gateway.proc.wait(120)
            SparkContext._gateway = None
            SparkContext._jvm = None
        self._jvm_jars = ()

    def _alive(self) -> bool:
        return self._session is not None and self._session.sparkContext._jsc is not None


@pytest.fixture(autouse=True)
def _no_spark_in_the_plain_lane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make Spark fail to start in a test that is in the lane for tests without it."""
    if lane_of(request.node) == "plain":
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--a-test-that-starts-spark-is-marked-spark_app")


@pytest.fixture(scope="session")
def make_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSessions]:
    """``make_spark({"spark.some.setting": "x"}, master="local-cluster[2,1,1024]", jars=[...])`` for special settings.

    It stops the session there was: do not mix it with ``spark`` in one module.
    """
    before = {name: os.environ.get(name) for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP")}
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    sessions = SparkSessions(tmp_path_factory.mktemp("warehouse"))
    yield sessions
    sessions.stop_jvm()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture(scope="module")
def spark(make_spark: SparkSessions) -> SparkSession:
    """A plain local session with no jars, the same for all modules as long as no special one came between."""
    return make_spark()


@pytest.fixture
def stream(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[Callable[..., Stream]]:
    """Makes queries that are stopped at the end."""
    made: list[Stream] = []

    def make(**options: str) -> Stream:
        folder = tmp_path / str(len(made))
        made.append(Stream(spark, kafka.bootstrap_servers, folder, options))
        return made[-1]

    yield make
    for each in made:
        if each.query is not None:
            each.query.stop()


@pytest.fixture
def put(kafka: EmbeddedKafka) -> Callable[..., None]:
    """Writes values to a topic: ``put(topic, [1, 2, 3], partition=0)``."""

    def put(topic: str, values: Any, **more: Any) -> None:
        produce(kafka.bootstrap_servers, topic, values, **more)

    return put
