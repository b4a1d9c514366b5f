"""The producer with a real broker; records are read back by another client."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests import kafka_python
from tests.integration.producer_rows import (
    batches,
    by_key,
    cluster,
    numbered_rows,
    read_back,
    rows_by_key,
)
from tests.integration.waiting import wait_until
from tests.pooled_connections import pooled_connection

from pyspark_kafka_direct.client.connection_pool import POOL, ConnectionPool
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.producer_ids import request_producer_id
from pyspark_kafka_direct.errors import InvalidRecordError, RecordTooLargeError, TopicNotFoundError
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.batch_producer import AssignedProducerId, BatchProducer, WrittenRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import MakeTopic
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.client.cluster_client import ClusterClient

IDEMPOTENT = ProducerSettings()


@pytest.fixture
def pool() -> Iterator[ConnectionPool]:
    """A pool as in a new process."""
    fresh = ConnectionPool()
    yield fresh
    fresh.close()


def write(
    client: ClusterClient, topic: str, rows: Any, partitions: int = 1, how: ProducerSettings = IDEMPOTENT, **more: Any
) -> Any:
    """Write rows as one task does."""
    producer = BatchProducer(client, how)
    try:
        for batch in batches(topic, rows, partitions, codec=how.codec, **more):
            producer.send(topic, batch)
        return producer.flush()
    finally:
        producer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", [-1, 1])
def test_written_records_are_reported_and_readable(
    kafka: EmbeddedKafka, make_topic: MakeTopic, codec: Any, acks: Any
) -> None:
    topic = make_topic(3)
    rows = numbered_rows(5_000)
    written = write(cluster(kafka.bootstrap_servers), topic, rows, 3, ProducerSettings(acks, codec=codec))
    records = read_back(kafka.bootstrap_servers, topic, 3)
    assert by_key(records) == rows_by_key(rows)
    ends = {number: sum(record.partition == number for record in records) for number in range(3)}
    assert {
        each.partition: (metadata.first_offset, metadata.next_offset, metadata.records)
        for each, metadata in written.items()
    } == {number: (0, end, end) for number, end in ends.items()}
    assert all(metadata.bytes > 61 for metadata in written.values())


def test_each_flush_reports_the_records_since_the_last_one(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    producer = BatchProducer(cluster(kafka.bootstrap_servers), IDEMPOTENT)
    (one,) = batches(topic, [(b"k", b"1"), (b"k", b"2")])
    (two,) = batches(topic, [(b"k", b"3")])
    size = len(two.data)
    producer.send(topic, one)
    assert producer.flush().keys() == {TopicPartition(topic, 0)}
    assert producer.flush() == {}
    producer.send(topic, two)
    assert producer.flush() == {TopicPartition(topic, 0): WrittenRange(2, 3, 1, size)}
    producer.close()


def test_tasks_of_a_worker_share_a_producer_id(
    kafka: EmbeddedKafka, make_topic: MakeTopic, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(1)
    client = cluster(kafka.bootstrap_servers, pool)
    requests: list[object] = []

    def counting(*given: Any) -> Any:
        requests.append(given)
        return request_producer_id(*given)

    monkeypatch.setattr("pyspark_kafka_direct.producer.producer_id_manager.request_producer_id", counting)
    for first in range(0, 900, 300):
        write(client, topic, numbered_rows(300, first=first))
    assert len(requests) == 1
    # Concurrent tasks never share one, and a failed task does not return its own.
    both = [BatchProducer(client, IDEMPOTENT) for _ in range(2)]
    for producer in both:
        for batch in batches(topic, numbered_rows(10, first=900)):
            producer.send(topic, batch)
        producer.flush()
    assert len(requests) == 2
    both[0].close()
    with pytest.raises(TopicNotFoundError):
        write(client, f"{topic}-missing", numbered_rows(1))
    for batch in batches(topic, numbered_rows(1)):
        both[1].send(topic, batch)
    both[1].close()  # without flush: whether it was written is unknown
    write(client, topic, numbered_rows(10, first=910))
    assert len(requests) == 2
    values = [record.value for record in read_back(kafka.bootstrap_servers, topic)]
    assert [int(value) for value in values if value != b"0"][:899] == list(range(1, 900))


def test_two_hundred_partitions_in_bounded_memory(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(200)
    settings = replace(IDEMPOTENT, buffer_bytes=1 << 20)
    rows = [(b"%d" % number, bytes(2_000)) for number in range(5_000)]  # 10 MB
    producer = BatchProducer(cluster(kafka.bootstrap_servers), settings)
    most = 0
    for batch in batches(topic, rows, 200):
        producer.send(topic, batch)
        most = max(most, producer.unacknowledged_bytes)
    written = producer.flush()
    producer.close()
    assert 1 << 19 < most <= 1 << 20
    assert len(written) == 200
    assert sum(metadata.records for metadata in written.values()) == 5_000
    assert sum(metadata.next_offset - metadata.first_offset for metadata in written.values()) == 5_000
    ends = cluster(kafka.bootstrap_servers).offsets({TopicPartition(topic, number): LATEST for number in range(200)})
    assert sum(ends.values()) == 5_000


def test_a_batch_larger_than_the_buffer_is_sent_alone(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    settings = replace(IDEMPOTENT, buffer_bytes=1_000, max_request_bytes=1_000)
    rows = [(None, bytes(5_000)), *numbered_rows(500), (None, bytes(5_000))]
    write(cluster(kafka.bootstrap_servers), topic, rows, 2, settings)
    assert len(read_back(kafka.bootstrap_servers, topic, 2)) == 502


def test_batches_too_large_for_the_topic_are_split(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(2, max_message_bytes=3_000)
    rows = numbered_rows(8_000)
    write(cluster(kafka.bootstrap_servers), topic, rows, 2, batch_bytes=20_000)
    assert by_key(read_back(kafka.bootstrap_servers, topic, 2)) == rows_by_key(rows)


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_record_too_large_for_the_topic_is_named(kafka: EmbeddedKafka, make_topic: MakeTopic, acks: Any) -> None:
    topic = make_topic(1, max_message_bytes=3_000)
    rows = [*numbered_rows(20), (b"large", bytes(4_000)), *numbered_rows(20)]
    with pytest.raises(
        RecordTooLargeError, match=r"the key b'large', has 40\d\d bytes .*max\.message\.bytes"
    ) as caught:
        write(cluster(kafka.bootstrap_servers), topic, rows, how=ProducerSettings(acks), batch_bytes=20_000)
    assert (caught.value.topic, caught.value.partition) == (topic, 0)


def test_a_timestamp_that_the_topic_rejects_is_named(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1, message_timestamp_after_max_ms=1_000)
    rows = numbered_rows(30)
    times = [1_700_000_000_000] * 30
    times[17] = 4_000_000_000_000
    with pytest.raises(InvalidRecordError, match=r"record 18 of a batch of 30, which has the key b'key-17'") as caught:
        write(cluster(kafka.bootstrap_servers), topic, rows, timestamps=times)
    assert "4000000000000" in caught.value.message
    assert "INVALID_TIMESTAMP" in caught.value.message
    assert "message.timestamp.after.max.ms" in caught.value.message
    assert (caught.value.topic, caught.value.partition) == (topic, 0)


def test_a_record_without_a_key_in_a_compacted_topic_is_named(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1, cleanup_policy="compact")
    rows = [*numbered_rows(3), (None, b"no key"), *numbered_rows(3), (None, b"no key")]
    with pytest.raises(
        InvalidRecordError, match=r"record 4 of a batch of 8 \(and 1 more\), which has no key.*requires keys"
    ):
        write(cluster(kafka.bootstrap_servers), topic, rows)


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_a_missing_topic_is_rejected_soon_and_not_created(kafka: EmbeddedKafka, acks: Any) -> None:
    topic = f"missing-{uuid.uuid4().hex[:6]}"
    client = cluster(kafka.bootstrap_servers)
    started_at = time.monotonic()
    with pytest.raises(TopicNotFoundError, match="does not exist") as caught:
        write(client, topic, numbered_rows(3), how=ProducerSettings(acks, delivery_timeout_ms=600_000))
    assert time.monotonic() - started_at < 120
    assert caught.value.topic == topic
    assert topic not in client.all_topics()


def test_a_missing_partition_is_rejected(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    (batch,) = batches(topic, [(b"k", b"v")])
    producer = BatchProducer(cluster(kafka.bootstrap_servers), IDEMPOTENT)
    producer.send(topic, batch._replace(partition=7))
    with pytest.raises(TopicNotFoundError, match="no such partition; it has 2") as caught:
        producer.flush()
    assert (caught.value.topic, caught.value.partition) == (topic, 7)
    with pytest.raises(TopicNotFoundError):
        producer.flush()  # the error is permanent
    producer.close()


def test_a_topic_that_is_deleted_ends_the_write(bench: Workbench, kafka: EmbeddedKafka) -> None:
    topic = bench.make_topic(1)
    producer = BatchProducer(cluster(kafka.bootstrap_servers), IDEMPOTENT)
    for batch in batches(topic, numbered_rows(100)):
        producer.send(topic, batch)
    producer.flush()
    bench.admin.delete_topics([topic])[topic].result(600)

    def keep_writing() -> None:
        while True:
            for batch in batches(topic, numbered_rows(100)):
                producer.send(topic, batch)
            producer.flush()

    with pytest.raises(TopicNotFoundError):
        keep_writing()
    producer.close()


def test_records_without_acknowledgement(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    rows = numbered_rows(3_000)
    written = write(cluster(kafka.bootstrap_servers), topic, rows, 3, ProducerSettings(0))
    assert sum(metadata.records for metadata in written.values()) == 3_000
    assert {(metadata.first_offset, metadata.next_offset) for metadata in written.values()} == {(-1, -1)}
    wait_until(lambda: len(read_back(kafka.bootstrap_servers, topic, 3)) == 3_000)
    assert by_key(read_back(kafka.bootstrap_servers, topic, 3)) == rows_by_key(rows)


def test_deleted_records_do_not_invalidate_the_producer_id(
    bench: Workbench, kafka: EmbeddedKafka, pool: ConnectionPool
) -> None:
    """The records of a producer id are deleted, and with them perhaps the broker's producer state."""
    topic = bench.make_topic(1, segment_bytes=1 << 20)
    client = cluster(kafka.bootstrap_servers, pool)
    for first in range(0, 3_000, 1_000):
        write(client, topic, numbered_rows(1_000, first=first))
        bench.delete_records(topic, first + 1_000)
    write(client, topic, numbered_rows(1_000, first=3_000))
    assert [int(record.value) for record in read_back(kafka.bootstrap_servers, topic)] == list(range(3_000, 4_000))


def test_a_producer_with_unexpected_sequence_numbers_gets_the_next_epoch(
    kafka: EmbeddedKafka, make_topic: MakeTopic, pool: ConnectionPool
) -> None:
    """Another producer used our id and epoch: the broker rejects our sequence numbers."""
    topic = make_topic(1)
    client = cluster(kafka.bootstrap_servers, pool)
    write(client, topic, numbered_rows(500))
    idle = pool.idle_producers.acquire((client.settings, client.cluster_id))
    assert idle is not None
    before = idle.producer
    (tp,) = idle.sequences
    idle.sequences[tp] = idle.sequences[tp]._replace(sequence=123_456)
    pool.idle_producers.release((client.settings, client.cluster_id), idle)
    write(client, topic, numbered_rows(500, first=500))
    assert [int(record.value) for record in read_back(kafka.bootstrap_servers, topic)] == list(range(1_000))
    assert idle.sequences[tp] == (before._replace(epoch=before.epoch + 1), 500)


def test_an_old_epoch_is_replaced(kafka: EmbeddedKafka, make_topic: MakeTopic, pool: ConnectionPool) -> None:
    topic = make_topic(1)
    client = cluster(kafka.bootstrap_servers, pool)
    write(client, topic, numbered_rows(500))
    idle = pool.idle_producers.acquire((client.settings, client.cluster_id))
    assert idle is not None
    other = BatchProducer(client, IDEMPOTENT, AssignedProducerId(idle.producer.id, idle.producer.epoch + 1))
    for batch in batches(topic, numbered_rows(10, first=500)):
        other.send(topic, batch)
    other.flush()
    other.close()
    pool.idle_producers.release((client.settings, client.cluster_id), idle)
    write(client, topic, numbered_rows(490, first=510))
    assert [int(record.value) for record in read_back(kafka.bootstrap_servers, topic)] == list(range(1_000))


def test_a_throttled_producer_waits_and_loses_nothing(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    client_id = f"slow-{uuid.uuid4().hex[:6]}"
    client = cluster(kafka.bootstrap_servers, client_id=client_id)
    client.topics([topic])
    node = next(iter(client.nodes.values()))
    with pooled_connection(POOL, client.settings, node.host, node.port, Deadline.after(600)) as connection:
        limit_rate(connection, client_id, 32_000)
    rows = [(b"%d" % (number % 10), b"%0100d" % number) for number in range(4_000)]  # 400 kB
    started_at = time.monotonic()
    write(client, topic, rows, 2, replace(IDEMPOTENT, max_request_bytes=20_000))
    assert time.monotonic() - started_at > 2
    assert by_key(read_back(kafka.bootstrap_servers, topic, 2)) == rows_by_key(rows)


def limit_rate(connection: Any, client: str, bytes_per_second: float) -> None:
    from kafka.protocol.admin import AlterClientQuotasRequest

    entry = AlterClientQuotasRequest.EntryData
    limit = entry(
        entity=[entry.EntityData(entity_type="client-id", entity_name=client)],
        ops=[entry.OpData(key="producer_byte_rate", value=float(bytes_per_second), remove=False)],
    )
    request = AlterClientQuotasRequest(entries=[limit], validate_only=False)
    response = kafka_python.ask(connection, request, Deadline.after(600))
    assert [result.error_code for result in response.entries] == [0]


def test_several_producers_at_once(kafka: EmbeddedKafka, make_topic: MakeTopic, pool: ConnectionPool) -> None:
    """Threads of a driver; each acquires its own producer id."""
    topic = make_topic(4)
    client = cluster(kafka.bootstrap_servers, pool)
    failures: list[BaseException] = []

    def poll(number: int) -> None:
        try:
            for task in range(5):
                rows = [(b"%d" % number, b"%d" % value) for value in range(task * 300, task * 300 + 300)]
                write(client, topic, rows, 4)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=poll, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert failures == []
    assert by_key(read_back(kafka.bootstrap_servers, topic, 4)) == {
        b"%d" % number: [b"%d" % value for value in range(1_500)] for number in range(4)
    }
