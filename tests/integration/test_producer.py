"""The producer against a real broker, read back by a client that is not ours."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests import kafka_python
from tests.integration.waiting import wait_until
from tests.integration.writing import batches, by_key, cluster, numbered, read_back, rows_by_key
from tests.lending import lend

from pyspark_kafka_direct.errors import RecordRefusedError, RecordTooLargeError, TopicNotFoundError
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.pool import POOL, ConnectionPool
from pyspark_kafka_direct.wire.producer_ids import new_producer_id
from pyspark_kafka_direct.writing.producer import Identity, Producer, Written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import MakeTopic
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.wire.cluster import Cluster

IDEMPOTENT = ProduceSettings()


@pytest.fixture
def pool() -> Iterator[ConnectionPool]:
    """A pool as a fresh process has it."""
    fresh = ConnectionPool()
    yield fresh
    fresh.close()


def write(
    place: Cluster, topic: str, rows: Any, partitions: int = 1, how: ProduceSettings = IDEMPOTENT, **more: Any
) -> Any:
    """Write rows as one task does."""
    producer = Producer(place, how)
    try:
        for batch in batches(topic, rows, partitions, codec=how.codec, **more):
            producer.send(topic, batch)
        return producer.flush()
    finally:
        producer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", [-1, 1])
def test_what_is_written_is_told_and_there(kafka: EmbeddedKafka, make_topic: MakeTopic, codec: Any, acks: Any) -> None:
    topic = make_topic(3)
    rows = numbered(5_000)
    written = write(cluster(kafka.bootstrap_servers), topic, rows, 3, ProduceSettings(acks, codec=codec))
    records = read_back(kafka.bootstrap_servers, topic, 3)
    assert by_key(records) == rows_by_key(rows)
    ends = {number: sum(record.partition == number for record in records) for number in range(3)}
    assert {each.partition: (told.first_offset, told.next_offset, told.records) for each, told in written.items()} == {
        number: (0, end, end) for number, end in ends.items()
    }
    assert all(told.bytes > 61 for told in written.values())


def test_each_flush_tells_of_what_came_after_the_last(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    producer = Producer(cluster(kafka.bootstrap_servers), IDEMPOTENT)
    (one,) = batches(topic, [(b"k", b"1"), (b"k", b"2")])
    (two,) = batches(topic, [(b"k", b"3")])
    size = len(two.data)
    producer.send(topic, one)
    assert producer.flush().keys() == {TopicPartition(topic, 0)}
    assert producer.flush() == {}
    producer.send(topic, two)
    assert producer.flush() == {TopicPartition(topic, 0): Written(2, 3, 1, size)}
    producer.close()


def test_tasks_of_a_worker_share_a_producer_id(
    kafka: EmbeddedKafka, make_topic: MakeTopic, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(1)
    place = cluster(kafka.bootstrap_servers, pool)
    asked: list[object] = []

    def counting(*given: Any) -> Any:
        asked.append(given)
        return new_producer_id(*given)

    monkeypatch.setattr("pyspark_kafka_direct.writing._identity.new_producer_id", counting)
    for first in range(0, 900, 300):
        write(place, topic, numbered(300, first=first))
    assert len(asked) == 1
    # Two at once never share one, and a task that failed leaves none behind.
    both = [Producer(place, IDEMPOTENT) for _ in range(2)]
    for producer in both:
        for batch in batches(topic, numbered(10, first=900)):
            producer.send(topic, batch)
        producer.flush()
    assert len(asked) == 2
    both[0].close()
    with pytest.raises(TopicNotFoundError):
        write(place, f"{topic}-missing", numbered(1))
    for batch in batches(topic, numbered(1)):
        both[1].send(topic, batch)
    both[1].close()  # without flush: nobody knows whether it was written
    write(place, topic, numbered(10, first=910))
    assert len(asked) == 2
    values = [record.value for record in read_back(kafka.bootstrap_servers, topic)]
    assert [int(value) for value in values if value != b"0"][:899] == list(range(1, 900))


def test_a_thousand_partitions_in_bounded_memory(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1_000)
    settings = replace(IDEMPOTENT, buffer_bytes=1 << 20)
    rows = [(b"%d" % number, bytes(2_000)) for number in range(5_000)]  # 10 MB
    producer = Producer(cluster(kafka.bootstrap_servers), settings)
    most = 0
    for batch in batches(topic, rows, 1_000):
        producer.send(topic, batch)
        most = max(most, producer.unacknowledged_bytes)
    written = producer.flush()
    producer.close()
    assert 1 << 19 < most <= 1 << 20
    assert len(written) > 900
    assert sum(told.records for told in written.values()) == 5_000
    assert sum(told.next_offset - told.first_offset for told in written.values()) == 5_000
    ends = cluster(kafka.bootstrap_servers).offsets({TopicPartition(topic, number): LATEST for number in range(1_000)})
    assert sum(ends.values()) == 5_000


def test_a_batch_beyond_the_buffer_goes_alone(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    settings = replace(IDEMPOTENT, buffer_bytes=1_000, max_request_bytes=1_000)
    rows = [(None, bytes(5_000)), *numbered(500), (None, bytes(5_000))]
    write(cluster(kafka.bootstrap_servers), topic, rows, 2, settings)
    assert len(read_back(kafka.bootstrap_servers, topic, 2)) == 502


def test_batches_that_the_topic_does_not_allow_are_split(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(2, max_message_bytes=3_000)
    rows = numbered(8_000)
    write(cluster(kafka.bootstrap_servers), topic, rows, 2, batch_bytes=20_000)
    assert by_key(read_back(kafka.bootstrap_servers, topic, 2)) == rows_by_key(rows)


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_record_that_the_topic_does_not_allow_is_named(
    kafka: EmbeddedKafka, make_topic: MakeTopic, acks: Any
) -> None:
    topic = make_topic(1, max_message_bytes=3_000)
    rows = [*numbered(20), (b"large", bytes(4_000)), *numbered(20)]
    with pytest.raises(
        RecordTooLargeError, match=r"the key b'large', takes 40\d\d bytes .*max\.message\.bytes"
    ) as caught:
        write(cluster(kafka.bootstrap_servers), topic, rows, how=ProduceSettings(acks), batch_bytes=20_000)
    assert (caught.value.topic, caught.value.partition) == (topic, 0)


def test_a_timestamp_that_the_topic_does_not_allow_is_named(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1, message_timestamp_after_max_ms=1_000)
    rows = numbered(30)
    times = [1_700_000_000_000] * 30
    times[17] = 4_000_000_000_000
    with pytest.raises(RecordRefusedError, match=r"record 18 of a batch of 30, which has the key b'key-17'") as caught:
        write(cluster(kafka.bootstrap_servers), topic, rows, timestamps=times)
    assert "4000000000000" in caught.value.message
    assert "INVALID_TIMESTAMP" in caught.value.message
    assert "message.timestamp.after.max.ms" in caught.value.message
    assert (caught.value.topic, caught.value.partition) == (topic, 0)


def test_a_record_without_a_key_in_a_compacted_topic_is_named(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1, cleanup_policy="compact")
    rows = [*numbered(3), (None, b"no key"), *numbered(3), (None, b"no key")]
    with pytest.raises(
        RecordRefusedError, match=r"record 4 of a batch of 8 \(and 1 more\), which has no key.*without a key"
    ):
        write(cluster(kafka.bootstrap_servers), topic, rows)


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_a_topic_that_is_not_there_is_refused_soon_and_not_created(kafka: EmbeddedKafka, acks: Any) -> None:
    topic = f"missing-{uuid.uuid4().hex[:6]}"
    place = cluster(kafka.bootstrap_servers)
    began = time.monotonic()
    with pytest.raises(TopicNotFoundError, match="does not exist") as caught:
        write(place, topic, numbered(3), how=ProduceSettings(acks))
    assert time.monotonic() - began < 20
    assert caught.value.topic == topic
    assert topic not in place.all_topics()


def test_a_partition_that_the_topic_does_not_have_is_refused(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    (batch,) = batches(topic, [(b"k", b"v")])
    producer = Producer(cluster(kafka.bootstrap_servers), IDEMPOTENT)
    producer.send(topic, batch._replace(partition=7))
    with pytest.raises(TopicNotFoundError, match="no such partition; it has 2") as caught:
        producer.flush()
    assert (caught.value.topic, caught.value.partition) == (topic, 7)
    with pytest.raises(TopicNotFoundError):
        producer.flush()  # it stays so
    producer.close()


def test_a_topic_that_is_deleted_ends_the_write(bench: Workbench, kafka: EmbeddedKafka) -> None:
    topic = bench.make_topic(1)
    producer = Producer(cluster(kafka.bootstrap_servers), IDEMPOTENT)
    for batch in batches(topic, numbered(100)):
        producer.send(topic, batch)
    producer.flush()
    bench.admin.delete_topics([topic])[topic].result(30)

    def write_on() -> None:
        while True:
            for batch in batches(topic, numbered(100)):
                producer.send(topic, batch)
            producer.flush()

    with pytest.raises(TopicNotFoundError):
        write_on()
    producer.close()


def test_records_without_acknowledgement(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    rows = numbered(3_000)
    written = write(cluster(kafka.bootstrap_servers), topic, rows, 3, ProduceSettings(0))
    assert sum(told.records for told in written.values()) == 3_000
    assert {(told.first_offset, told.next_offset) for told in written.values()} == {(-1, -1)}
    wait_until(lambda: len(read_back(kafka.bootstrap_servers, topic, 3)) == 3_000)
    assert by_key(read_back(kafka.bootstrap_servers, topic, 3)) == rows_by_key(rows)


def test_a_log_that_lost_its_start_forgets_nobody(bench: Workbench, kafka: EmbeddedKafka, pool: ConnectionPool) -> None:
    """The records of a producer id are deleted, and with them, perhaps, what the broker knew of it."""
    topic = bench.make_topic(1, segment_bytes=1 << 20)
    place = cluster(kafka.bootstrap_servers, pool)
    for first in range(0, 3_000, 1_000):
        write(place, topic, numbered(1_000, first=first))
        bench.delete_records(topic, first + 1_000)
    write(place, topic, numbered(1_000, first=3_000))
    assert [int(record.value) for record in read_back(kafka.bootstrap_servers, topic)] == list(range(3_000, 4_000))


def test_a_producer_that_the_broker_does_not_know_as_we_do_takes_a_new_id(
    kafka: EmbeddedKafka, make_topic: MakeTopic, pool: ConnectionPool
) -> None:
    """Somebody went on with our id and epoch: the sequence numbers no longer fit, and the broker says so."""
    topic = make_topic(1)
    place = cluster(kafka.bootstrap_servers, pool)
    write(place, topic, numbered(500))
    idle = pool.producers.take((place.settings, place.cluster_id))
    assert idle is not None
    before = idle.newest
    (tp,) = idle.places
    idle.places[tp] = idle.places[tp]._replace(sequence=123_456)
    pool.producers.keep((place.settings, place.cluster_id), idle)
    write(place, topic, numbered(500, first=500))
    assert [int(record.value) for record in read_back(kafka.bootstrap_servers, topic)] == list(range(1_000))
    assert idle.newest != before
    assert idle.places[tp].producer == idle.newest
    assert idle.places[tp].sequence == 500


def test_an_epoch_that_is_over_is_replaced(kafka: EmbeddedKafka, make_topic: MakeTopic, pool: ConnectionPool) -> None:
    topic = make_topic(1)
    place = cluster(kafka.bootstrap_servers, pool)
    write(place, topic, numbered(500))
    idle = pool.producers.take((place.settings, place.cluster_id))
    assert idle is not None
    other = Producer(place, IDEMPOTENT, Identity(idle.newest.id, idle.newest.epoch + 1))
    for batch in batches(topic, numbered(10, first=500)):
        other.send(topic, batch)
    other.flush()
    other.close()
    pool.producers.keep((place.settings, place.cluster_id), idle)
    write(place, topic, numbered(490, first=510))
    assert [int(record.value) for record in read_back(kafka.bootstrap_servers, topic)] == list(range(1_000))


def test_a_throttled_producer_waits_and_loses_nothing(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    client = f"slow-{uuid.uuid4().hex[:6]}"
    place = cluster(kafka.bootstrap_servers, client_id=client)
    place.topics([topic])
    node = next(iter(place.nodes.values()))
    with lend(POOL, place.settings, node.host, node.port, Deadline.after(60)) as connection:
        limit_rate(connection, client, 32_000)
    rows = [(b"%d" % (number % 10), b"%0100d" % number) for number in range(4_000)]  # 400 kB
    began = time.monotonic()
    write(place, topic, rows, 2, replace(IDEMPOTENT, max_request_bytes=20_000))
    assert time.monotonic() - began > 2
    assert by_key(read_back(kafka.bootstrap_servers, topic, 2)) == rows_by_key(rows)


def limit_rate(connection: Any, client: str, bytes_per_second: float) -> None:
    from kafka.protocol.admin import AlterClientQuotasRequest

    entry = AlterClientQuotasRequest.EntryData
    limit = entry(
        entity=[entry.EntityData(entity_type="client-id", entity_name=client)],
        ops=[entry.OpData(key="producer_byte_rate", value=float(bytes_per_second), remove=False)],
    )
    request = AlterClientQuotasRequest(entries=[limit], validate_only=False)
    answer = kafka_python.ask(connection, request, Deadline.after(60))
    assert [result.error_code for result in answer.entries] == [0]


def test_several_producers_at_once(kafka: EmbeddedKafka, make_topic: MakeTopic, pool: ConnectionPool) -> None:
    """Threads of a driver; each lends an id of its own."""
    topic = make_topic(4)
    place = cluster(kafka.bootstrap_servers, pool)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for task in range(5):
                rows = [(b"%d" % number, b"%d" % value) for value in range(task * 300, task * 300 + 300)]
                write(place, topic, rows, 4)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    assert by_key(read_back(kafka.bootstrap_servers, topic, 4)) == {
        b"%d" % number: [b"%d" % value for value in range(1_500)] for number in range(4)
    }
