"""Writes numbered records during a soak, and reads topics with librdkafka."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confluent_kafka import Message

_PAUSE = 0.05  # seconds
_KEYS = 50
_DEADLINE = 120.0


class Logged(NamedTuple):
    """A record in a topic."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    timestamp: int  # milliseconds


class Writer:
    """Writes unique numbers at a constant rate until it is closed. Each record is written once (KIP-98)."""

    def __init__(self, servers: str, topics: Sequence[str], rate: int) -> None:
        self._topics = list(topics)
        self._lock = threading.Lock()
        self._records_per_burst = max(1, round(rate * _PAUSE))
        self._servers = servers
        self._producer = self._connect()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._failures: list[str] = []
        self._written = 0
        self._places: dict[int, str] = {}  # of acknowledged records

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_DEADLINE)

    def close(self) -> int:
        """Stop, wait until all records are acknowledged, and return their number."""
        self.__exit__()
        left = self._producer.flush(_DEADLINE)
        assert not self._failures, f"records were not written: {self._failures[:3]}"
        assert left == 0, f"{left} records were not acknowledged within {_DEADLINE:.0f} s"
        assert self.acknowledged == self._written
        return self._written

    def add(self, topic: str) -> None:
        with self._lock:
            self._topics.append(topic)

    def remove(self, topic: str) -> None:
        """Stop writing to a topic; all written records are acknowledged.

        A new producer continues, because the sequence numbers of the old one do not apply to a recreated topic.
        """
        with self._lock:
            self._topics.remove(topic)
            assert self._producer.flush(_DEADLINE) == 0
            self._producer = self._connect()

    @property
    def acknowledged(self) -> int:
        return len(self._places)

    def place(self, number: int) -> str:
        """Return where a number was written, such as ``topic-0 at offset 3``."""
        return self._places[number]

    def _connect(self) -> Producer:
        return Producer({
            "bootstrap.servers": self._servers,
            "enable.idempotence": True,
            "message.timeout.ms": int(_DEADLINE * 1000),
            "reconnect.backoff.max.ms": 500,
        }, logger=quiet())  # fmt: skip

    def _run(self) -> None:
        while not self._ended.is_set():
            with self._lock:
                for _ in range(self._records_per_burst):
                    number = self._written
                    topic = self._topics[number % len(self._topics)]
                    key = b"key-%d" % (number // len(self._topics) % _KEYS)
                    self._producer.produce(topic, str(number).encode(), key, on_delivery=self._delivered)
                    self._written += 1
            self._producer.poll(0)
            self._ended.wait(_PAUSE)

    def _delivered(self, error: Any, record: Message) -> None:
        if error is not None:
            self._failures.append(str(error))
        else:
            place = f"{record.topic()}-{record.partition()} at offset {record.offset()}"
            self._places[int(record.value() or b"")] = place


def create_topic(
    servers: str, topic: str, partitions: int, replicas: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Create a topic with a temporary client, which is not affected by later broker kills."""
    admin = AdminClient({"bootstrap.servers": servers}, logger=quiet())
    deadline = time.monotonic() + _DEADLINE
    while True:
        try:
            new_topic = NewTopic(topic, partitions, replicas, config=dict(config or {}))
            admin.create_topics([new_topic], operation_timeout=30)[topic].result(30)
            return
        except KafkaException:  # the deletion of a topic of this name may be in progress
            assert time.monotonic() < deadline, f"{topic} could not be created"
            time.sleep(0.2)


def add_partition(servers: str, topic: str, partitions: int) -> None:
    """Add one partition to those of a topic."""
    admin = AdminClient({"bootstrap.servers": servers}, logger=quiet())
    admin.create_partitions([NewPartitions(topic, partitions + 1)], operation_timeout=30)[topic].result(60)


def delete_topic(servers: str, topic: str) -> None:
    """Delete a topic, and wait until the broker knows it.

    The controller responds first. A producer that still gets metadata of the old topic writes records that are lost.
    """
    admin = AdminClient({"bootstrap.servers": servers}, logger=quiet())  # must exist until the response arrives
    admin.delete_topics([topic])[topic].result(30)
    deadline = time.monotonic() + _DEADLINE
    while topic in admin.list_topics(timeout=30).topics:
        assert time.monotonic() < deadline, f"{topic} could not be deleted"
        time.sleep(0.02)


def read_log(servers: str, topic: str, partitions: int) -> list[Logged]:
    """Return all records of a topic, read with librdkafka."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "soak", "enable.auto.commit": False}, logger=quiet())
    try:
        assigned = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        ends = {each.partition: consumer.get_watermark_offsets(each, timeout=30)[1] for each in assigned}
        consumer.assign(assigned)
        read: list[Logged] = []
        while len(read) < sum(ends.values()):  # no compaction and no transactions: every offset has a record
            # At most the remaining number, because consume() waits until it has all of them.
            messages = consumer.consume(min(1000, sum(ends.values()) - len(read)), timeout=30)
            assert messages, f"{len(read)} of {sum(ends.values())} records of {topic} could be read"
            for message in messages:
                assert message.error() is None, message.error()
                read.append(
                    Logged(
                        topic,
                        message.partition(),
                        message.offset(),
                        message.key(),
                        message.value(),
                        message.timestamp()[1],
                    )
                )
        return read
    finally:
        consumer.close()


def quiet() -> logging.Logger:
    """Return a logger that drops librdkafka's lines about stopped brokers."""
    logger = logging.getLogger("tests.soak.librdkafka")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return logger
