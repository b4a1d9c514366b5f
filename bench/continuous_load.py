"""The load for the latency benchmark: produces and consumes numbered records with librdkafka.

Both ends are in one process, so they share a clock. The process does nothing else.
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

_TICK = 0.001  # seconds between bursts
_TIMEOUT = 60.0  # seconds until the first and the last record must have arrived
_WAIT = 30.0
_NUMBER = slice(0, 12)  # bytes of the value


@dataclass(frozen=True, slots=True)
class Pace:
    """How many records are sent, and which of them count."""

    rate: int = 1000  # records per second
    warm_up: float = 5.0  # seconds after the first arrival that do not count
    seconds: float = 20.0  # that count
    value_bytes: int = 100


def measure(clients: Clients, source: str, target: str, pace: Pace) -> Latencies:
    """Produce to one topic until enough records have arrived in another, and return their latencies."""
    sender = _Sender(clients.bootstrap_servers, source, pace)
    with _Receiver(clients.bootstrap_servers, target) as receiver:
        sender.start()
        try:
            receiver.until(lambda: bool(receiver.received), "no record arrived")
            receiver.during(pace.warm_up)
            first = sender.count
            receiver.during(pace.seconds)
        finally:
            sender.stop()
        numbers = range(first, sender.count)
        receiver.until(lambda: receiver.received.keys() >= set(numbers[-1:]), "the last record did not arrive")
        receiver.until(lambda: all(number in receiver.received for number in numbers), "records are missing")
    if len(numbers) < 0.9 * pace.rate * pace.seconds:
        raise BenchError(
            f"{len(numbers)} records were sent in {pace.seconds:g} s: this machine is too slow for this rate"
        )
    latencies = [(receiver.received[number] - sender.sent[number]) / 1e6 for number in numbers]
    return Latencies.of(latencies, sum(number in receiver.duplicates for number in numbers))


class _Sender:
    """Produces at a constant rate in its own thread."""

    def __init__(self, bootstrap_servers: str, topic: str, pace: Pace) -> None:
        from confluent_kafka import Producer

        self.sent: list[int] = []  # times in nanoseconds, by number
        self._topic, self._pace = topic, pace
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "socket.nagle.disable": True, "log_level": 0}
        )
        self._stopping = threading.Event()
        self._failures: list[str] = []
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)

    @property
    def count(self) -> int:
        """How many records were sent."""
        return len(self.sent)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, and wait for the acknowledgements."""
        self._stopping.set()
        self._thread.join(_WAIT)
        left = self._producer.flush(_WAIT)
        if left or self._failures:
            raise BenchError(f"{left + len(self._failures)} records were not acknowledged: {self._failures[:1]}")

    def _run(self) -> None:
        padding = b"x" * (self._pace.value_bytes - 12)
        started_at = time.monotonic()
        while not self._stopping.wait(_TICK):
            while len(self.sent) < (time.monotonic() - started_at) * self._pace.rate:
                number = len(self.sent)
                self.sent.append(time.monotonic_ns())
                value = b"%012d" % number + padding
                self._producer.produce(self._topic, value, partition=number % PARTITIONS, on_delivery=self._on_delivery)
            self._producer.poll(0)

    def _on_delivery(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failures.append(str(error))


class _Receiver:
    """Consumes committed records from the current end of a topic."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self.received: dict[int, int] = {}  # times of the first arrival in nanoseconds, by number
        self.duplicates: set[int] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "bench",  # required, although nothing is committed
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
        """Consume for some time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._receive()

    def until(self, condition: Any, failure: str) -> None:
        """Consume until a condition holds."""
        deadline = time.monotonic() + _TIMEOUT
        while not condition():
            if time.monotonic() > deadline:
                raise BenchError(f"{failure} within {_TIMEOUT:.0f} s")
            self.during(0.05)

    def _end(self, partition: TopicPartition) -> int:
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + _WAIT
        while True:
            try:
                return int(self._consumer.get_watermark_offsets(partition, timeout=_WAIT)[1])
            except KafkaException as error:  # the leaders of a new topic are not ready yet
                if time.monotonic() > deadline:
                    raise BenchError(f"{partition}: {error}") from None
                time.sleep(0.1)

    def _receive(self) -> None:
        message = self._consumer.poll(0.05)
        if message is None:
            return
        now = time.monotonic_ns()
        if message.error() is not None:
            raise BenchError(f"cannot read the output: {message.error()}")
        number = int(message.value()[_NUMBER])
        if number in self.received:
            self.duplicates.add(number)
        else:
            self.received[number] = now


def create_topics(bootstrap_servers: str, names: Sequence[str]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    config = {"file.delete.delay.ms": "1000"}  # the default of a minute would fill the disk
    for created in admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config) for name in names]).values():
        created.result(_WAIT)


def delete_topics(bootstrap_servers: str, names: Sequence[str]) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for deleted in admin.delete_topics(list(names)).values():
        deleted.result(_WAIT)
