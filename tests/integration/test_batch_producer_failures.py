"""The producer while leaders move and brokers die or stop, with three brokers."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.producer_rows import (
    batches,
    by_key,
    cluster,
    numbered_rows,
    read_back,
    rows_by_key,
)
from tests.integration.waiting import wait_until
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.batch_producer import BatchProducer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTopic
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka

    TopicsOn = Callable[[str], MakeTopic]

# On a busy machine, a broker restarts for minutes.
SMALL = ProducerSettings(max_request_bytes=20_000, buffer_bytes=100_000, delivery_timeout_ms=900_000)


class Writing:
    """Writes rows in a thread, a few at a time, until it is stopped."""

    def __init__(self, kafka: EmbeddedKafka, topic: str, settings: ProducerSettings) -> None:
        self.rows = 0
        self._error: BaseException | None = None
        self._place = cluster(kafka.bootstrap_servers)
        self._topic = topic
        self._settings = settings
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> list[tuple[bytes | None, bytes | None]]:
        """The rows that were written and acknowledged."""
        self._enough.set()
        self._thread.join(600)
        if self._error is not None:
            raise self._error
        return numbered_rows(self.rows)

    def _run(self) -> None:
        producer = BatchProducer(self._place, self._settings)
        try:
            while not self._enough.wait(0.2):  # what is written is read back
                for batch in batches(self._topic, numbered_rows(500, first=self.rows), 6):
                    producer.send(self._topic, batch)
                self.rows += 500
            producer.flush()
        except BaseException as error:
            self._error = error
        finally:
            producer.close()


def write_more(writing: Writing, rows: int = 1_000) -> None:
    """Wait until this many more rows were sent."""
    before = writing.rows
    wait_until(lambda: writing.rows >= before + rows or writing._error is not None, "rows written")


@pytest.mark.parametrize("end", ["kill_broker", pytest.param("stop_broker", marks=pytest.mark.soak)])
def test_a_broker_that_ends_and_restarts(three_brokers: EmbeddedKafka, topics_on: TopicsOn, end: str) -> None:
    """During writes, leaders move, connections break and metadata becomes stale."""
    topic = topics_on(three_brokers.bootstrap_servers)(6, replication=3, min_insync_replicas=2)
    writing = Writing(three_brokers, topic, SMALL)
    try:
        write_more(writing)
        getattr(three_brokers, end)(2)
        write_more(writing)
        three_brokers.start_broker(2)
        write_more(writing)
    finally:
        rows = writing.stop()
    assert len(rows) >= 3_000
    assert by_key(read_back(three_brokers.bootstrap_servers, topic, 6)) == rows_by_key(rows)


def test_without_acknowledgement_of_replicas_the_order_is_kept(
    three_brokers: EmbeddedKafka, workbench_for: Callable[[EmbeddedKafka], Workbench]
) -> None:
    bench = workbench_for(three_brokers)
    topic = bench.make_topic(6, replication=3)
    writing = Writing(three_brokers, topic, replace(SMALL, acks=1, idempotent=False))
    try:
        write_more(writing)
        for partition in range(6):
            bench.move_leader(topic, partition)
        write_more(writing)
    finally:
        rows = writing.stop()
    found = by_key(read_back(three_brokers.bootstrap_servers, topic, 6))
    # Retried records may be duplicates, and records that the next leader did not have are lost.
    for values in found.values():
        once = [int(value) for value in dict.fromkeys(values) if value is not None]
        assert once == sorted(once)
    assert sum(len(set(values)) for values in found.values()) > len(rows) // 2


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_over_tls(three_brokers: EmbeddedKafka, topics_on: TopicsOn, codec: Any) -> None:
    """TLS reads whole records, so responses may be buffered that the socket does not show."""
    topic = topics_on(three_brokers.bootstrap_servers)(6, replication=3)
    params = {
        "bootstrap.servers": three_brokers.listener("SSL"),
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(three_brokers.certificates.ca),
    }
    place = ClusterClient(parse_client_params(params).connection)
    rows = [(b"%d" % (number % 50), b"%0500d" % number) for number in range(20_000)]
    producer = BatchProducer(place, ProducerSettings(codec=codec))
    for batch in batches(topic, rows, 6, codec=codec, batch_bytes=50_000):
        producer.send(topic, batch)
    producer.flush()
    producer.close()
    assert by_key(read_back(three_brokers.bootstrap_servers, topic, 6)) == rows_by_key(rows)
