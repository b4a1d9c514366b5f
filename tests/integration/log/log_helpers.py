"""Helpers of the tests of logs: logs on a cluster or behind a faulty network, and a recorder of their records."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.integration.producer_rows import cluster
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.log import KafkaBasedLog
from pyspark_kafka_direct.log.log_clients import LogClients
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import FetchSettings, ProducerSettings
from pyspark_kafka_direct.producer.async_producer import AsyncProducer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from tests.proxy import Network

    from pyspark_kafka_direct.log import LogRecord

FETCH, LIST_OFFSETS, METADATA = 1, 2, 3
"""API keys of requests that a network may disturb."""

TIMEOUT = 600.0
"""Seconds after which a wait counts as hung."""


class Recorder:
    """Collects the records of a log in the order of their delivery."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []

    def __call__(self, record: LogRecord) -> None:
        self.records.append(record)

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.records if record.partition == partition]

    def offsets(self, partition: int = 0) -> list[int]:
        return [record.offset for record in self.records if record.partition == partition]


def params(servers: str, **more: object) -> dict[str, object]:
    """Return properties of a log; the names have underscores instead of dots."""
    return {"bootstrap.servers": servers} | {name.replace("_", "."): value for name, value in more.items()}


@contextmanager
def started_log(network: Network, servers: str, topic: str, **options: Any) -> Iterator[KafkaBasedLog]:
    """Start a log whose connections go through a network."""
    log = new_log(network, servers, topic, **options)
    try:
        log.start()
        yield log
    finally:
        log.stop(120)


def new_log(network: Network, servers: str, topic: str, **options: Any) -> KafkaBasedLog:
    """Return a log that is not started."""
    client = cluster(servers, network.pool())
    clients = LogClients(client, FetchSettings(), producer=AsyncProducer(client, ProducerSettings()))
    return KafkaBasedLog(topic, clients, **options)


def wait_result(future: Future[Any]) -> Any:
    return future.result(TIMEOUT)


def threads_of(topic: str) -> list[threading.Thread]:
    """Return the threads of logs of a topic."""
    return [thread for thread in threading.enumerate() if topic in thread.name]


def wait_for_no_thread(topic: str) -> None:
    wait_until(lambda: not threads_of(topic), "the thread's end")


def tp(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)
