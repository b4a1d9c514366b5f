"""Writes numbered records while the query is killed, and reads back with another client what the log then holds."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confluent_kafka import Message

_PAUSE = 0.05  # seconds
_KEYS = 50
_DEADLINE = 120.0


class Logged(NamedTuple):
    """A record as the log has it."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    timestamp: int  # milliseconds


class Writer:
    """Writes at a steady rate until it is closed. Each record is acknowledged and is in a log once (KIP-98).

    Args:
        servers: Bootstrap servers.
        topics: Where to, in turn; keys decide on the partition. Each record is a number, and no two are the same.
        rate: Records a second.
    """

    def __init__(self, servers: str, topics: Sequence[str], rate: int) -> None:
        self._topics = list(topics)
        self._changing = threading.Lock()
        self._at_a_time = max(1, round(rate * _PAUSE))
        self._servers = servers
        self._producer = self._connect()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._failures: list[str] = []
        self._written = 0
        self._acknowledged = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_DEADLINE)

    def close(self) -> int:
        """Stop, wait until all is acknowledged, and tell how many records that were.

        Raises:
            AssertionError: A record was not acknowledged: the run says nothing then.
        """
        self.__exit__()
        left = self._producer.flush(_DEADLINE)
        assert not self._failures, f"records were not written: {self._failures[:3]}"
        assert left == 0, f"{left} records were not acknowledged within {_DEADLINE:.0f} s"
        assert self._acknowledged == self._written
        return self._written

    def add(self, topic: str) -> None:
        """Write to this one too."""
        with self._changing:
            self._topics.append(topic)

    def remove(self, topic: str) -> None:
        """Write to this one no more; all that was written is in its log.

        A new producer goes on: should the topic come back, the sequence numbers of the old one, by which a broker knows
        what was sent twice, mean nothing to the new log.
        """
        with self._changing:
            self._topics.remove(topic)
            assert self._producer.flush(_DEADLINE) == 0
            self._producer = self._connect()

    @property
    def acknowledged(self) -> int:
        """How many records are known to be in the log."""
        return self._acknowledged

    def _connect(self) -> Producer:
        return Producer({
            "bootstrap.servers": self._servers,
            "enable.idempotence": True,
            "message.timeout.ms": int(_DEADLINE * 1000),
            "reconnect.backoff.max.ms": 500,
        }, logger=quiet())  # fmt: skip

    def _run(self) -> None:
        while not self._ended.is_set():
            with self._changing:
                for _ in range(self._at_a_time):
                    number = self._written
                    topic = self._topics[number % len(self._topics)]
                    key = b"key-%d" % (number // len(self._topics) % _KEYS)
                    self._producer.produce(topic, str(number).encode(), key, on_delivery=self._delivered)
                    self._written += 1
            self._producer.poll(0)
            self._ended.wait(_PAUSE)

    def _delivered(self, error: Any, _: Message) -> None:
        if error is not None:
            self._failures.append(str(error))
        else:
            self._acknowledged += 1


def create_topic(
    servers: str, topic: str, partitions: int, replicas: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Create it, with a client that is gone afterwards: a broker that dies later is no trouble of its."""
    admin = AdminClient({"bootstrap.servers": servers}, logger=quiet())
    deadline = time.monotonic() + _DEADLINE
    while True:
        try:
            wanted = NewTopic(topic, partitions, replicas, config=dict(config or {}))
            admin.create_topics([wanted], operation_timeout=30)[topic].result(30)
            return
        except KafkaException:  # one of this name may still be on its way out
            assert time.monotonic() < deadline, f"{topic} could not be created"
            time.sleep(0.2)


def delete_topic(servers: str, topic: str) -> None:
    """Delete it."""
    admin = AdminClient({"bootstrap.servers": servers}, logger=quiet())  # has to live until the answer is there
    admin.delete_topics([topic])[topic].result(30)


def read_log(servers: str, topic: str, partitions: int) -> list[Logged]:
    """All records of a topic, read with librdkafka.

    Raises:
        AssertionError: They could not be read in time.
    """
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "soak", "enable.auto.commit": False}, logger=quiet())
    try:
        places = [Place(topic, partition, 0) for partition in range(partitions)]
        ends = {place.partition: consumer.get_watermark_offsets(place, timeout=30)[1] for place in places}
        consumer.assign(places)
        read: list[Logged] = []
        while len(read) < sum(ends.values()):  # no compaction, no transactions: every offset is a record
            # No more than there are, as it waits for so many.
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
    """A broker that is down is part of the plan; librdkafka would print a line for each try to connect."""
    logger = logging.getLogger("tests.soak.librdkafka")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return logger
