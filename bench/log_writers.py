"""Writing records one by one into a compacted topic: by this package's log and table, by confluent-kafka, and by Java.

Each way waits until all records are acknowledged, and gets a report of each. All are idempotent, with ``acks=all``.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.log_java import JAVA_SEND, java_send
from bench.log_peers import key_of
from bench.measure import Sample, sample
from bench.summary import CONFLUENT
from bench.topics import values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from bench.client_peers import Clients
    from bench.topics import Topic
    from pyspark_kafka_direct.log import RecordMetadata

PUT = "KafkaTable.put, a future of each"
SEND = "KafkaBasedLog.send with a callback"
PRODUCE = f"{CONFLUENT}, produce with a callback"
WRITE_WAYS = (PUT, SEND, JAVA_SEND, PRODUCE)

_DEADLINE = 300.0  # seconds for one run
_DIFFERENT = 10_000  # values
_MOST_FUTURES = 20_000  # that are kept


def write(clients: Clients, way: str, topic: Topic) -> Sample:
    """Write as many records as the topic is to have, and say what it cost.

    Raises:
        BenchError: A broker did not take all records.
    """
    acknowledged, cost = sample(lambda: _WAYS[way](clients.bootstrap_servers, topic), clients.broker_pid)
    if acknowledged != topic.records:
        raise BenchError(f"{way} into {topic.name}: {acknowledged} records were acknowledged, not {topic.records}")
    return cost


class _Callback:
    """Counts the records that were acknowledged."""

    def __init__(self, records: int) -> None:
        self.acknowledged = 0
        self.all = threading.Event()
        self._left = records

    def on_delivery(self, error: object, _: object) -> None:
        """Note a record's outcome."""
        self.acknowledged += error is None
        self._left -= 1
        if not self._left:
            self.all.set()


def _put(bootstrap_servers: str, topic: Topic) -> int:
    from pyspark_kafka_direct.log import KafkaTable

    pool = values(topic.value_bytes, _DIFFERENT)
    acknowledged = 0
    futures: deque[Future[RecordMetadata]] = deque()
    with KafkaTable(topic.name, {"bootstrap.servers": bootstrap_servers}) as table:
        for number in range(topic.records):
            futures.append(table.put(key_of(number), pool[number % _DIFFERENT]))
            if len(futures) > _MOST_FUTURES:
                acknowledged += futures.popleft().result(_DEADLINE).offset >= 0
        acknowledged += sum(future.result(_DEADLINE).offset >= 0 for future in futures)
    return acknowledged


def _send(bootstrap_servers: str, topic: Topic) -> int:
    from pyspark_kafka_direct.log import KafkaBasedLog

    pool = values(topic.value_bytes, _DIFFERENT)
    callback = _Callback(topic.records)

    def sent(metadata: object, error: object) -> None:
        callback.on_delivery(error, metadata)

    with KafkaBasedLog(topic.name, {"bootstrap.servers": bootstrap_servers}) as log:
        for number in range(topic.records):
            log.send(key_of(number), pool[number % _DIFFERENT], sent)
        callback.all.wait(_DEADLINE)
    return callback.acknowledged


def _produce(bootstrap_servers: str, topic: Topic) -> int:
    pool = values(topic.value_bytes, _DIFFERENT)
    records = ((key_of(number), pool[number % _DIFFERENT]) for number in range(topic.records))
    return produce_all(bootstrap_servers, topic, records)


def produce_all(bootstrap_servers: str, topic: Topic, records: Iterable[tuple[bytes, bytes]]) -> int:
    """Produce the keys and values with confluent-kafka, and return how many records were acknowledged."""
    from confluent_kafka import Producer

    callback = _Callback(topic.records)
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers,
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "queue.buffering.max.messages": 500_000,
        "log_level": 0,
    }
    producer = Producer(settings)
    for key, value in records:
        while True:
            try:
                producer.produce(topic.name, value, key, on_delivery=callback.on_delivery)
                break
            except BufferError:  # the queue is full
                producer.poll(0.05)
        producer.poll(0)
    producer.flush(_DEADLINE)
    return callback.acknowledged


_WAYS: dict[str, Callable[[str, Topic], int]] = {
    PUT: _put,
    SEND: _send,
    JAVA_SEND: java_send,
    PRODUCE: _produce,
}
