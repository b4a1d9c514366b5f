"""Long-lived connections are replaced after certificates have changed, without a failed request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.consumer.polling import ONE, ConsumerCluster, offsets
from tests.unit.producer.producer_cluster import PARTITION, ProducerCluster, batch

from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.consumer.fetch_channel import ReadReplica
from pyspark_kafka_direct.options.settings import FetchSettings

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def change_certificates(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the connections that are open when it is called have earlier certificates (``test_changed_certificates``)."""
    opened: list[Connection] = []
    outdated: list[Connection] = []
    create = Connection.__init__

    def create_and_list(connection: Connection, *args: Any, **fields: Any) -> None:
        create(connection, *args, **fields)
        opened.append(connection)

    monkeypatch.setattr(Connection, "__init__", create_and_list)
    is_outdated = property(lambda connection: any(connection is each for each in outdated))
    monkeypatch.setattr(Connection, "certificates_changed", is_outdated)
    return lambda: outdated.extend(opened)


def test_a_producer_connects_again_when_no_response_is_due(change_certificates: Callable[[], None]) -> None:
    with ProducerCluster() as cluster:
        cluster.delay_responses(1.0)
        producer = cluster.producer()
        producer.send("t", batch())
        producer.flush()
        connects = cluster.network.connect_count
        for number in range(6):
            producer.send("t", batch())
            if number == 2:
                change_certificates()
        written = producer.flush()
        assert written[PARTITION].records == 60
        assert [sequence for _, sequence in cluster.producer_states()] == [0, 10, 20, 30, 40, 50, 60]
        assert cluster.network.connect_count == connects + 1
        assert cluster.sent("Produce") == 7, "no request failed"
        assert [each >= 2 for each in cluster.produce_times] == [False] * 4 + [True] * 3, "after the last response"


def test_a_producer_that_was_idle_connects_again(change_certificates: Callable[[], None]) -> None:
    with ProducerCluster(partitions=1) as cluster:
        producer = cluster.async_producer()
        assert producer.send("t", b"k", b"one").result(20).offset == 0
        connects = cluster.network.connect_count
        change_certificates()
        assert producer.send("t", b"k", b"two").result(20).offset == 1
        assert producer.send("t", b"k", b"three").result(20).offset == 2
        assert connects < cluster.network.connect_count <= connects + 2  # another one for metadata


def test_a_consumer_connects_again_between_fetches(change_certificates: Callable[[], None]) -> None:
    with ConsumerCluster() as cluster, cluster.consumer() as consumer:
        cluster.append(ONE, 3)
        assert offsets(consumer.poll(1)) == {ONE: [0, 1, 2]}
        connects = cluster.network.connect_count
        change_certificates()
        for end in (4, 5, 6):
            cluster.append(ONE, 1)
            assert offsets(consumer.poll(10)) == {ONE: [end - 1]}
        assert consumer.transient_errors == {}
        assert connects < cluster.network.connect_count <= connects + 2


def test_a_task_that_reads_a_range_connects_again_between_fetches(change_certificates: Callable[[], None]) -> None:
    with ConsumerCluster() as cluster:
        cluster.append(ONE, 3)
        client = cluster.client()
        replica = ReadReplica(client.settings, FetchSettings(), ONE, cluster.topic_id(ONE.topic), pool=client.pool)
        replica.send_fetch(0, 100, client.deadline())
        change_certificates()
        replica.send_fetch(0, 100, client.deadline())  # in flight already
        first = replica.receive_fetch(client.deadline())
        content = bytes(first.records)
        connects = cluster.network.connect_count
        replica.send_fetch(1, 100, client.deadline())
        assert bytes(first.records) == content, "the caller still decodes them"
        assert bytes(replica.receive_fetch(client.deadline()).records)
        assert connects < cluster.network.connect_count <= connects + 2
        replica.release()
