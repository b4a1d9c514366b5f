"""The topics that are read: their values, and loading them.

Values look like what topics usually hold, small JSON objects, so that a codec has to work and gains what it gains in
life. They are the same for every codec of one size. Keys are null and there are no headers, as with Kafka's own
performance tool.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = {100: "100 B", 1024: "1 KiB", 10240: "10 KiB"}
CODECS = ("none", "lz4", "zstd", "snappy")

_LOAD_DEADLINE = 600.0  # seconds for one topic
_BATCH_BYTES = 128 * 1024  # of a record batch before compression
_WORDS = ("order", "late", "gift", "returned", "express", "first", "online", "store", "partner", "loyal", "mobile")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic to load and read.

    Attributes:
        value_bytes: Length of every value.
        codec: As Kafka's ``compression.type`` has it.
        records: To be read, in all partitions together, spread evenly.
        padding: Further records in each partition that nobody is to read. A consumer that reads up to the very end of
            a log has asked for more by then, and Spark's JVM connector waits for that answer (``fetch.max.wait.ms``,
            half a second) before it ends. That is a fixed cost, measured by itself, and no part of a throughput.
    """

    value_bytes: int
    codec: str
    records: int
    partitions: int = 2
    padding: int = 1000
    purpose: str = "bench"

    def __post_init__(self) -> None:
        if self.records % self.partitions:
            raise BenchError(f"{self.records} records cannot be spread evenly over {self.partitions} partitions")

    @property
    def name(self) -> str:
        """The topic's name at the broker."""
        return f"{self.purpose}-{self.value_bytes}-{self.codec}"

    @property
    def label(self) -> str:
        """The topic as the report names it."""
        return f"{SIZES.get(self.value_bytes, f'{self.value_bytes} B')} {self.codec}"

    @property
    def until_offset(self) -> int:
        """Where reading ends in each partition."""
        return self.records // self.partitions

    @property
    def end_offset(self) -> int:
        """Where the log of each partition ends."""
        return self.until_offset + self.padding

    @property
    def total_bytes(self) -> int:
        """Length of all values to be read, uncompressed."""
        return self.records * self.value_bytes


def values(value_bytes: int, count: int, seed: int = 1) -> list[bytes]:
    """Return ``count`` JSON objects of exactly ``value_bytes`` bytes each, the same ones for the same seed."""
    source = random.Random(seed)
    return [_value(value_bytes, source) for _ in range(count)]


def load(topics: Sequence[Topic], bootstrap_servers: str) -> dict[str, float]:
    """Create the topics and fill them; return the seconds each took, by topic name.

    Raises:
        BenchError: A broker did not take all records, or took some twice.
    """
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    created = admin.create_topics([NewTopic(topic.name, topic.partitions, 1) for topic in topics])
    for future in created.values():
        future.result(timeout=60)
    took = {}
    for topic in topics:
        started = time.monotonic()
        _fill(topic, bootstrap_servers)
        took[topic.name] = time.monotonic() - started
    return took


def _value(value_bytes: int, source: random.Random) -> bytes:
    end = '"}'
    text = (
        f'{{"id":{source.randrange(10**9)},"user":"u{source.randrange(5000)}","event":"{source.choice(_EVENTS)}"'
        f',"ts":{1_700_000_000_000 + source.randrange(10**9)}'
    )
    while True:
        item = f',"item{source.randrange(10)}":{{"sku":{source.randrange(10**6)},"price":{source.random() * 500:.2f}}}'
        if len(text) + len(item) + len(',"note":"') + len(end) > value_bytes:
            break
        text += item
    text += ',"note":"'
    while len(text) + len(end) < value_bytes:
        text += source.choice(_WORDS) + " "
    return (text[: value_bytes - len(end)] + end).encode()


_EVENTS = ("view", "click", "buy", "cart")


def _fill(topic: Topic, bootstrap_servers: str) -> None:
    from confluent_kafka import Producer

    deadline = time.monotonic() + _LOAD_DEADLINE
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,  # no record twice, and the batches a modern Java producer writes by default
            "compression.type": topic.codec,
            "linger.ms": 20,
            "batch.size": _BATCH_BYTES,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 256 * 1024,
            "log_level": 0,
        }
    )
    pool = values(topic.value_bytes, max(1000, min(10_000, 16_000_000 // topic.value_bytes)))
    for first in range(0, topic.end_offset, len(pool)):
        chosen = pool[: min(len(pool), topic.end_offset - first)]
        for partition in range(topic.partitions):
            _send(producer, topic, partition, chosen, deadline)
    if producer.flush(max(1.0, deadline - time.monotonic())):
        raise BenchError(f"{topic.name}: the broker did not take all records within {_LOAD_DEADLINE:.0f} s")
    _check(topic, bootstrap_servers)


def _send(producer: Any, topic: Topic, partition: int, chosen: Sequence[bytes], deadline: float) -> None:
    left = [{"value": value} for value in chosen]
    while left:
        if time.monotonic() > deadline:
            raise BenchError(f"{topic.name}: loading took longer than {_LOAD_DEADLINE:.0f} s")
        try:
            taken = producer.produce_batch(topic.name, left, partition=partition)
        except BufferError:  # the queue is full before the first one
            taken = 0
        left = left[taken:]
        producer.poll(0.05 if left else 0)


def _check(topic: Topic, bootstrap_servers: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "bench-check", "log_level": 0})
    try:
        for partition in range(topic.partitions):
            found = consumer.get_watermark_offsets(TopicPartition(topic.name, partition), timeout=30)
            if found != (0, topic.end_offset):
                raise BenchError(f"{topic.name}-{partition} holds offsets {found}, not 0 to {topic.end_offset}")
    finally:
        consumer.close()
