"""The load of the comparison of latencies, by librdkafka alone: numbered records go in and come out.

Both ends are in one process, so they have one clock. It has little to do, and nothing else runs in it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.continuous_summary import Latencies
from bench.errors import BenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import TopicPartition

    from bench.client_peers import Clients

PARTITIONS = 2

_TICK = 0.001  # seconds between looks at what is due
_PATIENCE = 60.0  # seconds until the first record, and the last one, must have come through
_WAIT = 30.0
_NUMBER = slice(0, 12)  # of the value


@dataclass(frozen=True, slots=True)
class Pace:
    """What is sent, and what of it counts.

    Attributes:
        rate: Records a second.
        warm_up: Seconds after the first record came through that do not count.
        seconds: That do.
        value_bytes: Length of a value.
    """

    rate: int = 1000
    warm_up: float = 5.0
    seconds: float = 20.0
    value_bytes: int = 100


def measure(clients: Clients, source: str, target: str, pace: Pace) -> Latencies:
    """Send records to one topic until enough of them have come out of another.

    Args:
        clients: Knows the broker.
        source: What the query reads.
        target: What it writes, with the values that it has read.
        pace: How fast and how long.

    Raises:
        BenchError: None came through in time, or not all.
    """
    sender = _Sender(clients.bootstrap_servers, source, pace)
    with _Receiver(clients.bootstrap_servers, target) as receiver:
        sender.start()
        try:
            receiver.until(lambda: bool(receiver.received), "no record came through")
            receiver.during(pace.warm_up)
            first = sender.count
            receiver.during(pace.seconds)
        finally:
            sender.stop()
        numbers = range(first, sender.count)
        receiver.until(lambda: receiver.received.keys() >= set(numbers[-1:]), "the last record did not come through")
        receiver.until(lambda: all(number in receiver.received for number in numbers), "records are missing")
    if len(numbers) < 0.9 * pace.rate * pace.seconds:
        raise BenchError(f"{len(numbers)} records were sent in {pace.seconds:g} s: this machine is too slow for that")
    taken = [(receiver.received[number] - sender.sent[number]) / 1e6 for number in numbers]
    return Latencies.of(taken, sum(number in receiver.doubles for number in numbers))


class _Sender:
    """Sends at a steady rate on a thread of its own."""

    def __init__(self, bootstrap_servers: str, topic: str, pace: Pace) -> None:
        from confluent_kafka import Producer

        self.sent: list[int] = []
        """When, in nanoseconds, by number."""
        self._topic, self._pace = topic, pace
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "socket.nagle.disable": True, "log_level": 0}
        )
        self._stopping = threading.Event()
        self._failures: list[str] = []
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)

    @property
    def count(self) -> int:
        """How many were sent."""
        return len(self.sent)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send no more.

        Raises:
            BenchError: The broker did not take all of them.
        """
        self._stopping.set()
        self._thread.join(_WAIT)
        left = self._producer.flush(_WAIT)
        if left or self._failures:
            raise BenchError(f"{left + len(self._failures)} records were not acknowledged: {self._failures[:1]}")

    def _run(self) -> None:
        padding = b"x" * (self._pace.value_bytes - 12)
        began = time.monotonic()
        while not self._stopping.wait(_TICK):
            while len(self.sent) < (time.monotonic() - began) * self._pace.rate:
                number = len(self.sent)
                self.sent.append(time.monotonic_ns())
                value = b"%012d" % number + padding
                self._producer.produce(self._topic, value, partition=number % PARTITIONS, on_delivery=self._told)
            self._producer.poll(0)

    def _told(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failures.append(str(error))


class _Receiver:
    """Reads what is committed from where the topic ends now."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self.received: dict[int, int] = {}
        """When each number came for the first time, in nanoseconds."""
        self.doubles: set[int] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "bench",  # asked for, though nothing is committed
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "socket.nagle.disable": True,
                "log_level": 0,
            }
        )
        self._consumer.assign(
            [TopicPartition(topic, number, self._end(TopicPartition(topic, number))) for number in range(PARTITIONS)]
        )

    def __enter__(self) -> _Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def during(self, seconds: float) -> None:
        """Receive for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._receive()

    def until(self, done: Any, otherwise: str) -> None:
        """Receive until it is done.

        Raises:
            BenchError: It takes too long.
        """
        deadline = time.monotonic() + _PATIENCE
        while not done():
            if time.monotonic() > deadline:
                raise BenchError(f"{otherwise} within {_PATIENCE:.0f} s")
            self.during(0.05)

    def _end(self, place: TopicPartition) -> int:
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + _WAIT
        while True:
            try:
                return int(self._consumer.get_watermark_offsets(place, timeout=_WAIT)[1])
            except KafkaException as error:  # a new topic: its leaders do not know yet
                if time.monotonic() > deadline:
                    raise BenchError(f"{place}: {error}") from None
                time.sleep(0.1)

    def _receive(self) -> None:
        message = self._consumer.poll(0.05)
        if message is None:
            return
        now = time.monotonic_ns()
        if message.error() is not None:
            raise BenchError(f"reading what came through: {message.error()}")
        number = int(message.value()[_NUMBER])
        if number in self.received:
            self.doubles.add(number)
        else:
            self.received[number] = now


def create_topics(bootstrap_servers: str, names: Sequence[str]) -> None:
    """Create topics."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    config = {"file.delete.delay.ms": "1000"}  # a minute by default, in which the disk fills
    for created in admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config) for name in names]).values():
        created.result(_WAIT)


def delete_topics(bootstrap_servers: str, names: Sequence[str]) -> None:
    """Delete topics."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for deleted in admin.delete_topics(list(names)).values():
        deleted.result(_WAIT)
