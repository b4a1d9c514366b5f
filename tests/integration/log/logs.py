"""What the tests of logs share: logs at a cluster, or led through an unclean network, and what they hand out."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.integration.waiting import wait_until
from tests.integration.writing import cluster

from pyspark_kafka_direct.log import KafkaBasedLog
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.settings.fetch import FetchSettings
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.writing.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from tests.proxy import Network

    from pyspark_kafka_direct.log import LogRecord

FETCH, LIST_OFFSETS, METADATA = 1, 2, 3
"""API keys, for a network that decides by them."""

PATIENCE = 120.0
"""Seconds that only a hang takes."""


class Recorder:
    """Takes the records of a log.

    Attributes:
        records: All of them, in the order in which they came.
    """

    def __init__(self) -> None:
        self.records: list[LogRecord] = []

    def __call__(self, record: LogRecord) -> None:
        self.records.append(record)

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.records if record.partition == partition]

    def offsets(self, partition: int = 0) -> list[int]:
        return [record.offset for record in self.records if record.partition == partition]


def params(servers: str, **more: object) -> dict[str, object]:
    """Parameters of a log; names have underscores for dots."""
    return {"bootstrap.servers": servers} | {name.replace("_", "."): value for name, value in more.items()}


@contextmanager
def through(network: Network, servers: str, topic: str, **options: Any) -> Iterator[KafkaBasedLog]:
    """A log that is led through a network."""
    log = behind(network, servers, topic, **options)
    try:
        log.start()
        yield log
    finally:
        log.stop(10)


def behind(network: Network, servers: str, topic: str, **options: Any) -> KafkaBasedLog:
    """One that is not started."""
    place = cluster(servers, network.pool())
    outbox = Outbox(place, ProduceSettings())
    return KafkaBasedLog.with_clients(topic, cluster=place, fetch=FetchSettings(), outbox=outbox, **options)


def done(future: Future[Any]) -> Any:
    """Wait for what is asked."""
    return future.result(PATIENCE)


def threads_of(topic: str) -> list[threading.Thread]:
    """The threads of logs of a topic."""
    return [thread for thread in threading.enumerate() if topic in thread.name]


def wait_for_no_thread(topic: str) -> None:
    wait_until(lambda: not threads_of(topic), "the thread's end")


def tp(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)
