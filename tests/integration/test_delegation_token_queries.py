"""Queries that log in with the application's delegation token, while it is renewed and replaced several times."""

from __future__ import annotations

import itertools
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.direct.streaming_contexts import BatchResults, direct_stream, streaming
from tests.integration.read_back import consume, values_of
from tests.integration.stream_queries import Stream, produce
from tests.integration.token_brokers import PERIOD, token_conf, token_kafka
from tests.integration.waiting import wait_until
from tests.logins import ALICE, jaas_text

from pyspark_kafka_direct import enable
from pyspark_kafka_direct.continuous import continuous_query
from pyspark_kafka_direct.direct import KafkaRDD, KafkaUtils, OffsetRange
from pyspark_kafka_direct.options.security_settings import TOKENS
from pyspark_kafka_direct.spark.token_file import token_clusters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.sessions import SparkSessions

    from pyspark_kafka_direct.broker import EmbeddedKafka

TOKENS_OF_A_TEST = 3  # a new one is created each half minute
INTERVAL = 4  # seconds between batches: several while a token is valid


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with token_kafka() as cluster:
        yield cluster


@pytest.fixture
def topic(kafka: EmbeddedKafka, topics_on: Callable[[str], MakeTopic]) -> Callable[[], str]:
    return lambda: topics_on(kafka.bootstrap_servers)(partitions=2)


class Writer:
    """Writes numbers, and records the tokens of the application meanwhile."""

    def __init__(self, kafka: EmbeddedKafka, topics: list[str], written: int = 0) -> None:
        self._servers = kafka.bootstrap_servers
        self._topics = topics
        self.written = written
        self.secrets: dict[int, tuple[str, str]] = {}  # id and HMAC by the number of the token

    def write(self) -> None:
        for topic in self._topics:
            produce(self._servers, topic, [self.written])
        self.written += 1
        (cluster, *_) = token_clusters()
        token = TOKENS.state(cluster.login).token
        if token is not None:
            assert token.expires_at > time.time() + 0.5
            self.secrets.setdefault(token.serial, (token.id.reveal(), token.hmac.reveal()))

    def write_over_tokens(self, step: Callable[[], object] = lambda: None) -> None:
        """Write until the application has used several tokens, and a while with the last one."""
        last_began: float | None = None
        while last_began is None or time.monotonic() < last_began + PERIOD / 2:
            self.write()
            step()
            time.sleep(1)
            if last_began is None and len(self.secrets) >= TOKENS_OF_A_TEST:
                last_began = time.monotonic()

    @property
    def values(self) -> list[str]:
        return sorted(map(str, range(self.written)))


def test_streams_and_sinks_on_executors(
    kafka: EmbeddedKafka, topic: Callable[[], str], make_spark: SparkSessions, tmp_path: Path
) -> None:
    """Executors get new tokens with each batch; neither checkpoint nor event log has a secret."""
    (tmp_path / "events").mkdir()
    events = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        "spark.eventLog.compress": "false",
    }
    # The executors are other processes, which cannot import the daemon of the tests that an earlier session has set.
    daemon = {"spark.python.daemon.module": "pyspark_kafka_direct.daemon"}
    spark = make_spark(token_conf(kafka) | events | daemon, master="local-cluster[1,3,1024]")
    source, copies, once = topic(), topic(), topic()
    _start_workers(spark, kafka, source)
    enable(spark)
    servers = kafka.listener("SASL_PLAINTEXT")
    read = Stream(spark, servers, tmp_path / "read", {"subscribe": source, "startingOffsets": "earliest"})
    read.start(processingTime=f"{INTERVAL} seconds")
    exactly_once = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "copy"}
    queries = [read.query, _copy(read, copies, tmp_path / "copies"), _copy(read, once, tmp_path / "once", exactly_once)]
    writer = Writer(kafka, [source], written=1)
    batch = spark.read.format("kafka-direct").option("kafka.bootstrap.servers", servers).option("subscribe", source)
    counts = []

    def count() -> None:
        for query in queries:
            assert query is not None
            assert query.exception() is None
        if writer.written % 6 == 0:
            counts.append((writer.written, batch.load().count()))

    writer.write_over_tokens(count)
    assert all(written == counted for written, counted in counts)
    read.wait_for(range(writer.written))
    for target in (copies, once):
        wait_until(lambda target=target: len(_values(kafka, target)) >= writer.written)  # type: ignore[misc]
        assert _values(kafka, target) == writer.values
    for query in queries:
        assert query is not None
        query.stop()
    assert len(read.batches) > 10
    plan = batch.load()._jdf.queryExecution().toString()
    spark.stop()
    outputs = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any("events" in name for name in outputs)
    assert any("commits" in name for name in outputs)
    secrets = [*itertools.chain.from_iterable(writer.secrets.values()), ALICE.password]
    for secret in secrets:
        assert secret not in plan
        assert not [name for name, content in outputs.items() if secret.encode() in content]


def test_direct_streams_and_continuous_queries_of_two_clusters(
    kafka: EmbeddedKafka, topic: Callable[[], str], make_spark: SparkSessions, tmp_path: Path
) -> None:
    """Without enable(spark): these have the application's configuration themselves."""
    # A JVM retains the properties of its first session, so the name of a cluster is that of the test above.
    plain, encrypted = kafka.listener("SASL_PLAINTEXT"), kafka.listener("SASL_SSL")
    conf = token_conf(kafka, "main", target_bootstrap_servers_regex=re.escape(plain))
    encrypted_conf = {"security_protocol": "SASL_SSL", "kafka_security_protocol": "SASL_PLAINTEXT"}
    conf |= token_conf(kafka, "tls", target_bootstrap_servers_regex=re.escape(encrypted), **encrypted_conf)
    spark = make_spark(conf, master="local[4]")
    sc = spark.sparkContext
    direct, continuous, copies = topic(), topic(), topic()
    ca = {"kafka.ssl.truststore.location": str(kafka.certificates.ca)}
    query = (
        continuous_query(spark)
        .read({"kafka.bootstrap.servers": plain, "subscribe": continuous, "startingOffsets": "earliest"})
        .select("value")
        .to_kafka(
            copies,
            {
                "kafka.bootstrap.servers": encrypted,
                **ca,
                "deliveryGuarantee": "exactly-once",
                "transactionalIdPrefix": "continuous",
            },
        )
        .start(checkpointLocation=str(tmp_path / "continuous"), discoveryInterval=0.5, taskStartTimeout=600)
    )
    writer = Writer(kafka, [direct, continuous])
    with streaming(sc, INTERVAL, str(tmp_path / "direct")) as ssc:
        stream = direct_stream(ssc, plain, direct, "direct-group")
        stream.foreachRDD(_collect)
        ssc.start()

        def read_ranges() -> None:
            assert query.exception() is None
            if writer.written % 6 == 0:
                ranges = [OffsetRange.create(direct, 0, 0, 1)]
                params = {"bootstrap.servers": encrypted, "ssl.truststore.location": str(kafka.certificates.ca)}
                assert KafkaUtils.createRDD(sc, params, ranges).count() == 1

        writer.write_over_tokens(read_ranges)
        _RESULTS.wait_for_elements(writer.written)
    assert sorted(_RESULTS.flat) == writer.values
    wait_until(lambda: len(_values(kafka, copies)) >= writer.written)
    assert _values(kafka, copies) == writer.values
    query.stop()
    outputs = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any("direct" in name for name in outputs)
    for secret in itertools.chain.from_iterable(writer.secrets.values()):
        assert not [name for name, content in outputs.items() if secret.encode() in content]


def test_a_login_of_the_query_takes_precedence(
    kafka: EmbeddedKafka, topic: Callable[[], str], make_spark: SparkSessions
) -> None:
    wrong = {"kafka_sasl_jaas_config": _jaas("wrong-password")}
    spark = make_spark(token_conf(kafka, **wrong))
    enable(spark)
    name = topic()
    produce(kafka.bootstrap_servers, name, range(3))
    without_login = {"kafka.bootstrap.servers": kafka.listener("SASL_PLAINTEXT"), "subscribe": name}
    login = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": _jaas(ALICE.password),
    }
    assert _count(spark, without_login | login) == 3
    with pytest.raises(Exception, match=r"no delegation token for spark\.kafka\.clusters\.main: The broker rejected"):
        _count(spark, without_login)


def _start_workers(spark: SparkSession, kafka: EmbeddedKafka, topic: str) -> None:
    """Read once: on a busy machine, the first tasks start later than tokens expire."""
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, "minPartitions": "3"}
    produce(kafka.bootstrap_servers, topic, [0])
    assert spark.read.format("kafka-direct").options(**options).load().repartition(3).count() == 1


_RESULTS = BatchResults()  # of the direct stream; Spark pickles functions of a stream into its checkpoint


def _collect(_: datetime, rdd: KafkaRDD) -> None:
    _RESULTS.add([record.value.decode() for record in rdd.collect()])


def _jaas(password: str) -> str:
    return jaas_text("PLAIN", ALICE, password=password)


def _count(spark: SparkSession, options: dict[str, str]) -> int:
    return spark.read.format("kafka-direct").options(**options).load().count()


def _copy(read: Stream, target: str, checkpoint: Path, options: dict[str, str] | None = None) -> Any:
    writer = read.load().select("value").writeStream.format("kafka-direct").options(**(options or {}))
    writer = writer.option("kafka.bootstrap.servers", read.servers).option("topic", target)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime=f"{INTERVAL} seconds").start()


def _values(kafka: EmbeddedKafka, topic: str) -> list[str]:
    return sorted(values_of(consume(kafka.bootstrap_servers, topic, "read_committed")))
