"""Loading a topic into a dictionary, the latest value of each key: by this package's two ways, by Python's clients, and
by Kafka Connect's class in Java.

All read to the end that the topic has when they begin, in one process, with the clients' defaults; one way has those of
librdkafka's settings that make it fastest here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.log_java import JAVA_LOAD, java_load
from bench.measure import Sample, sample
from bench.summary import CONFLUENT, KAFKA_PYTHON
from bench.topics import values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench.client_peers import Clients
    from bench.topics import Topic

TABLE = "KafkaTable"
LOG = "KafkaBasedLog, on_record into a dict"
TUNED = f"{CONFLUENT}, tuned"
WAYS = (TABLE, LOG, JAVA_LOAD, TUNED, CONFLUENT, KAFKA_PYTHON)

# Larger queues, and a short pause when they are full: a second by default, which is most of the time of a load.
_TUNING = {"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 262_144, "fetch.queue.backoff.ms": 5}

_DEADLINE = 300.0  # seconds for one run, and for filling the topic
_POLL = 5.0
_AT_ONCE = 10_000
_DIFFERENT = 10_000  # values


def create(topic: Topic, bootstrap_servers: str, cleanup_policy: str = "compact") -> None:
    """Create the topic, compacted by default."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    wanted = NewTopic(topic.name, topic.partitions, 1, config={"cleanup.policy": cleanup_policy})
    admin.create_topics([wanted])[topic.name].result(60)


def fill(topic: Topic, bootstrap_servers: str) -> None:
    """Create the topic, and write one record of each key.

    Raises:
        BenchError: A broker did not take all records.
    """
    from confluent_kafka import Producer

    create(topic, bootstrap_servers)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "compression.type": topic.codec,
            "linger.ms": 20,
            "batch.size": 128 * 1024,
            "queue.buffering.max.messages": 500_000,
            "log_level": 0,
        }
    )
    pool = values(topic.value_bytes, _DIFFERENT)
    for number in range(topic.records):
        while True:
            try:
                producer.produce(topic.name, pool[number % _DIFFERENT], key_of(number))
                break
            except BufferError:  # the queue is full
                producer.poll(0.05)
    if producer.flush(_DEADLINE):
        raise BenchError(f"{topic.name}: the broker did not take all records within {_DEADLINE:.0f} s")


def key_of(number: int) -> bytes:
    """Return a key."""
    return b"key-%08d" % number


def load(clients: Clients, way: str, topic: Topic) -> Sample:
    """Load the topic that way and say what it cost.

    Raises:
        BenchError: The dictionary is not what was written.
    """
    if way == JAVA_LOAD:
        count, cost = sample(lambda: java_load(clients.bootstrap_servers, topic), clients.broker_pid)
        if count != topic.records:
            raise BenchError(f"{way} from {topic.name}: got {count} keys, not {topic.records}")
        return cost
    found, cost = sample(lambda: _WAYS[way](clients.bootstrap_servers, topic), clients.broker_pid)
    if len(found) != topic.records or key_of(topic.records - 1) not in found:
        raise BenchError(f"{way} from {topic.name}: got {len(found)} keys, not {topic.records}")
    return cost


def _table(bootstrap_servers: str, topic: Topic) -> dict[bytes, bytes]:
    from pyspark_kafka_direct.log import KafkaTable

    with KafkaTable(topic.name, {"bootstrap.servers": bootstrap_servers}, read_only=True) as table:
        return table.raw_snapshot()


def _log(bootstrap_servers: str, topic: Topic) -> dict[bytes, bytes]:
    from pyspark_kafka_direct.log import KafkaBasedLog, LogRecord

    found: dict[Any, bytes] = {}

    def apply(record: LogRecord) -> None:
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value

    params = {"bootstrap.servers": bootstrap_servers}
    with KafkaBasedLog(topic.name, params, on_record=apply, read_only=True):
        return found


def _tuned(bootstrap_servers: str, topic: Topic) -> dict[bytes, bytes]:
    return _confluent(bootstrap_servers, topic, _TUNING)


def _confluent(bootstrap_servers: str, topic: Topic, tuning: Mapping[str, int] | None = None) -> dict[bytes, bytes]:
    from confluent_kafka import Consumer, TopicPartition

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "bench",  # asked for, though nothing is committed
        "enable.auto.commit": False,
        "check.crcs": True,
        "log_level": 0,
        **(tuning or {}),
    }
    consumer = Consumer(settings)
    found: dict[bytes, bytes] = {}
    try:
        places = [TopicPartition(topic.name, partition, 0) for partition in range(topic.partitions)]
        ends = {place.partition: consumer.get_watermark_offsets(place, timeout=_POLL)[1] for place in places}
        consumer.assign(places)
        deadline = time.monotonic() + _DEADLINE
        left = {partition for partition, end in ends.items() if end > 0}
        while left:
            _check(deadline, topic)
            for message in consumer.consume(_AT_ONCE, 0.1):
                if message.error() is not None:
                    raise BenchError(f"{CONFLUENT} from {topic.name}: {message.error()}")
                value = message.value()
                if value is None:
                    found.pop(message.key(), None)
                else:
                    found[message.key()] = value
                if message.offset() + 1 >= ends[message.partition()]:
                    left.discard(message.partition())
        return found
    finally:
        consumer.close()


def _kafka_python(bootstrap_servers: str, topic: Topic) -> dict[bytes, bytes]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=None, enable_auto_commit=False)
    found: dict[bytes, bytes] = {}
    try:
        partitions = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        deadline = time.monotonic() + _DEADLINE
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            _check(deadline, topic)
            for records in consumer.poll(timeout_ms=int(_POLL * 1000), max_records=_AT_ONCE).values():
                for record in records:
                    if record.value is None:
                        found.pop(record.key, None)
                    else:
                        found[record.key] = record.value
        return found
    finally:
        consumer.close()


def _check(deadline: float, topic: Topic) -> None:
    if time.monotonic() > deadline:
        raise BenchError(f"{topic.name} was not loaded within {_DEADLINE:.0f} s")


_WAYS: dict[str, Callable[[str, Topic], dict[bytes, bytes]]] = {
    TABLE: _table,
    LOG: _log,
    TUNED: _tuned,
    CONFLUENT: _confluent,
    KAFKA_PYTHON: _kafka_python,
}
