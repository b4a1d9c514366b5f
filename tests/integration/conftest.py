"""Fixtures of integration tests: Spark sessions, streaming queries, the workbench, topics with gaps."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.open_transactions import new_transactional_producer, write_open_transaction
from tests.integration.sessions import SPARK_JARS, SparkSessions
from tests.integration.standalone import SHARED_SESSION, standalone_cluster
from tests.integration.stream_queries import Stream, produce
from tests.integration.topics import wait_until_stable
from tests.integration.workbench import Workbench
from tests.shards import source_runners
from tests.shards.assignment import shard_of
from tests.shards.brokers import FEW_THREADS, new_kafka, shared_broker
from tests.shards.jvm import start_quickly
from tests.shards.python import import_quickly

from pyspark_kafka_direct.broker.maven import jars
from pyspark_kafka_direct.options.spark_definitions import PAYLOAD_DECODERS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

start_quickly()
import_quickly()
# Spark's workers, also those of applications that tests start, have the Python of the tests and not that of the PATH.
os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
# The decoders of test_user_decoders.py; planners have the environment of Spark's JVM.
_DECODERS = ("Csv.of_two", "reversed_text", "too_short", "none")
os.environ[PAYLOAD_DECODERS_VARIABLE] = ",".join(
    ["missing_decoders:make", *(f"payload_decoders:{name}" for name in _DECODERS)]
)


@pytest.fixture(autouse=True)
def _no_spark_in_shards_without_it(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make Spark fail to start in a test that is in a shard for tests without it."""
    if shard_of(request.node) in ("cluster", "broker", "plain"):
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--a-test-that-starts-spark-is-marked-spark_app")


@pytest.fixture(autouse=True)
def _all_brokers_run(request: pytest.FixtureRequest) -> None:
    for cluster, nodes in (("three_brokers", (1, 2, 3)), ("stoppable_kafka", (1,))):
        if cluster in request.fixturenames:
            for node in nodes:
                request.getfixturevalue(cluster).start_broker(node)


@pytest.fixture(scope="session")
def kafka39() -> Iterator[EmbeddedKafka]:
    """One broker of Kafka 3.9 for all shards. As of ``kafka``: tests must not stop it or change it."""
    with shared_broker("3.9") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def secured_kafka() -> Iterator[EmbeddedKafka]:
    """One broker for all shards with all listeners, ACLs and short sessions; anonymous clients are super users.

    Tests use their own topics, and permissions for them.
    """
    with shared_broker("secured") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def three_brokers() -> Iterator[EmbeddedKafka]:
    """Three brokers for the whole run. A test may stop and kill them; before the next test they are started again."""
    properties = FEW_THREADS | {"default.replication.factor": "3", "min.insync.replicas": "2"}
    with new_kafka(brokers=3, security=["SSL"], properties=properties) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def stoppable_kafka() -> Iterator[EmbeddedKafka]:
    """One broker for the whole run, which enforces ACLs; anonymous clients are super users.

    A test may stop, kill and suspend it; before the next test it is started again.
    """
    # Sessions over TLS last three seconds, because tests read over their end.
    properties = FEW_THREADS | {"listener.name.sasl_ssl.plain.connections.max.reauth.ms": "3000"}
    with new_kafka(security=["SASL_PLAINTEXT", "SASL_SSL"], authorizer=True, properties=properties) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def make_spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSessions]:
    """``make_spark({"spark.some.setting": "x"}, master="local-cluster[2,1,1024]", jars=[...])`` for special settings.

    It stops the session there was: do not mix it with ``spark`` in one module.
    """
    # Without a shard, as for other versions of Spark, workers come from PySpark's daemon, as those of most users do.
    warm = request.config.getoption("--shard") is not None
    sessions = SparkSessions(tmp_path_factory.mktemp("warehouse"), warm=warm)
    yield sessions
    sessions.stop_jvm()


@pytest.fixture(scope="session")
def source_runner_variables(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Environment variables for Spark applications, so that their sources and planners are forked as in sessions.

    Not for a driver that is killed, because its source runners and planners would end with it.
    """
    if request.config.getoption("--shard") is None or not source_runners.supported():
        yield {}
        return
    server = source_runners.SourceRunners()
    yield server.environment
    server.stop()


@pytest.fixture(scope="module")
def spark(make_spark: SparkSessions) -> Iterator[SparkSession]:
    """A plain local session with no jars, the same for all modules as long as no special one came between.

    A module must leave its settings as they were.
    """
    session = make_spark()
    before = session.conf.getAll
    yield session
    assert session.conf.getAll == before


@pytest.fixture(scope="module")
def session(make_spark: SparkSessions) -> SparkSession:
    """A session with Spark's own Kafka connector and Avro functions, in a JVM that all modules with it share."""
    return make_spark({"spark.sql.session.timeZone": "UTC"}, jars=jars(SPARK_JARS, transitive=False))


@pytest.fixture(scope="session")
def standalone(make_spark: SparkSessions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone master with two workers, which do not inherit the environment of the driver."""
    with standalone_cluster(tmp_path_factory.mktemp("standalone")) as url:
        yield url
        make_spark.stop()  # before the master


@pytest.fixture(scope="module")
def two_executors(make_spark: SparkSessions, standalone: str) -> SparkSession:
    """A session with an executor on each of two hosts, the same for all modules as long as no other came between."""
    return make_spark(SHARED_SESSION, master=standalone)


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


@pytest.fixture(scope="session")
def workbench_for(topics_on: Callable[[str], MakeTopic]) -> Callable[[EmbeddedKafka], Workbench]:
    """A workbench at a cluster of the test's own."""
    return lambda kafka: Workbench(kafka.bootstrap_servers, topics_on(kafka.bootstrap_servers))


@pytest.fixture(scope="session")
def bench(kafka: EmbeddedKafka, make_topic: MakeTopic) -> Workbench:
    """The workbench at the broker that all tests share."""
    return Workbench(kafka.bootstrap_servers, make_topic)


@pytest.fixture(scope="module")
def mixed(bench: Workbench) -> str:
    """Plain 0-1, committed 2-4 and marker 5, aborted 6-8 and marker 9, plain 10, committed 11 and marker 12, and again
    aborted 13-14 and marker 15."""
    topic = bench.make_topic()
    producer = new_transactional_producer(bench, topic)
    bench.write(topic, [b"plain-0", b"plain-1"])
    write_open_transaction(producer, topic, [b"committed-2", b"committed-3", b"committed-4"])
    producer.commit_transaction(600)
    write_open_transaction(producer, topic, [b"aborted-6", b"aborted-7", b"aborted-8"])
    producer.abort_transaction(600)
    wait_until_stable(bench.bootstrap_servers, topic, 10)  # or else the marker may come after what others write
    bench.write(topic, [b"plain-10"])
    write_open_transaction(producer, topic, [b"committed-11"])
    producer.commit_transaction(600)
    write_open_transaction(producer, topic, [b"aborted-13", b"aborted-14"])
    producer.abort_transaction(600)
    wait_until_stable(bench.bootstrap_servers, topic, 16)
    return topic


@pytest.fixture(scope="module")
def compacted(bench: Workbench) -> str:
    """600 records of 8 keys, compacted by the real cleaner, and some newer ones, each of a key of its own."""
    topic = bench.make_topic(
        cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, segment_ms=100, delete_retention_ms=100
    )
    producer = bench.producer()
    for offset in range(600):
        producer.produce(topic, b"value-%d" % offset, b"key-%d" % (offset % 7 if offset < 300 else 7), partition=0)
        if offset % 20 == 19:
            assert producer.flush(300) == 0
    number = 600

    def cleaned() -> bool:
        # Appending rolls the active segment, which the cleaner never touches.
        nonlocal number
        if number < 700:
            producer.produce(topic, b"value-%d" % number, b"key-%d" % number, partition=0)
            assert producer.flush(300) == 0
            number += 1
        # The last of each key, and so nothing that the cleaner could take away while a test reads.
        return bench.read(topic, 0, 600).offsets == [*range(293, 300), 599]

    bench.wait_until(cleaned, "compacted")
    return topic
