"""Topics that go and come back while a test runs, and waiting for what becomes of them."""

from __future__ import annotations

import time

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.integration.waiting import wait_until
from tests.settings import parse_client_params

from pyspark_kafka_direct import offsets
from pyspark_kafka_direct.client.cluster_client import ClusterClient

_DEADLINE = 600  # seconds


class Admin:
    """Deletes, creates and grows, and waits until the broker has done so."""

    def __init__(self, servers: str) -> None:
        self._client = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def delete(self, topic: str) -> None:
        self._client.delete_topics([topic], operation_timeout=_DEADLINE)[topic].result(_DEADLINE)
        wait_until(lambda: topic not in self._client.list_topics(timeout=600).topics, f"{topic} deleted", _DEADLINE)

    def create(self, topic: str, partitions: int) -> None:
        deadline = time.monotonic() + _DEADLINE
        while True:
            try:
                self._client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(_DEADLINE)
                break
            except Exception:  # the deletion of its predecessor may still be in progress
                assert time.monotonic() < deadline
                time.sleep(0.1)
        self._await_partitions(topic, partitions)

    def grow(self, topic: str, partitions: int) -> None:
        self._client.create_partitions([NewPartitions(topic, partitions)])[topic].result(_DEADLINE)
        self._await_partitions(topic, partitions)

    def recreate(self, topic: str, partitions: int) -> None:
        self.delete(topic)
        self.create(topic, partitions)

    def delete_records(self, topic: str, before: int) -> None:
        tp = TopicPartition(topic, 0, before)
        next(iter(self._client.delete_records([tp]).values())).result(_DEADLINE)

    def _await_partitions(self, topic: str, partitions: int) -> None:
        def are_there() -> bool:
            found = self._client.list_topics(topic, timeout=600).topics[topic].partitions.values()
            return len(found) == partitions and all(each.leader >= 0 for each in found)

        wait_until(are_there, f"{partitions} partitions of {topic}", _DEADLINE)


def wait_until_stable(servers: str, topic: str, end: int) -> None:
    """Wait until the last stable offset of partition 0 is ``end``: markers come a moment after the answer."""
    settings = parse_client_params({"bootstrap.servers": servers}).connection
    partition = offsets.TopicPartition(topic, 0)
    wanted = {partition: offsets.LATEST}
    deadline = time.monotonic() + _DEADLINE
    while (seen := ClusterClient(settings).offsets(wanted, isolation_level="read_committed")[partition]) != end:
        assert time.monotonic() < deadline, f"the last stable offset is {seen}, not {end}, after {_DEADLINE} s"
        time.sleep(0.02)
