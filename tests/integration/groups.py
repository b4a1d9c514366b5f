"""What a consumer group has committed, as other tools see it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
_TIMEOUT = 600  # seconds


def committed(servers: str, group: str, topic: str) -> dict[int, int]:
    """Committed offsets by partition; partitions without one are left out.

    A consumer is asked and not librdkafka's admin client, which crashes the process when a coordinator answers that it
    is none: a broker's first group finds its coordinator just starting.
    """

    def ask(consumer: Consumer) -> dict[int, int]:
        numbers = consumer.list_topics(topic, timeout=600).topics[topic].partitions
        found = consumer.committed([TopicPartition(topic, number) for number in numbers], timeout=600)
        return {each.partition: each.offset for each in found if each.offset >= 0}

    return _by_a_consumer(servers, group, ask)


def commit(servers: str, group: str, topic: str, offset: int) -> None:
    """Commit an offset of partition 0, as a consumer does, until the group's coordinator is there."""
    _by_a_consumer(
        servers,
        group,
        lambda consumer: consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False),
    )


def groups_named_after(servers: str, topic: str) -> list[str]:
    """The groups that the broker knows whose name has the topic's in it."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    deadline = time.monotonic() + _TIMEOUT
    while (found := admin.list_consumer_groups(request_timeout=600).result(600)).errors:  # coordinators start
        assert time.monotonic() < deadline, found.errors
        time.sleep(0.1)
    return sorted(group.group_id for group in found.valid if topic in group.group_id)


def _by_a_consumer(servers: str, group: str, call: Callable[[Consumer], _T]) -> _T:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    deadline = time.monotonic() + _TIMEOUT
    try:
        while True:
            try:
                return call(consumer)
            except KafkaException:
                assert time.monotonic() < deadline
                time.sleep(0.1)
    finally:
        consumer.close()
