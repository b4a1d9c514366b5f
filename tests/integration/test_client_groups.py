"""Committed offsets of groups, against a real coordinator."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from tests.integration.groups import commit
from tests.integration.topics import Admin
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.errors import BrokerError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka


def group(servers: str, name: str, **more: str) -> ConsumerGroup:
    return ConsumerGroup(ClusterClient(parse_client_params({"bootstrap.servers": servers, **more}).connection), name)


def listed_by_admin_client(servers: str, name: str) -> dict[tuple[str, int], int]:
    """Return what kafka-consumer-groups and similar tools show."""
    admin = AdminClient({"bootstrap.servers": servers})
    response = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result(600)
    return {(tp.topic, tp.partition): tp.offset for tp in response.topic_partitions}


def test_commits_are_visible_to_other_clients(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    first, second = make_topic(3), make_topic(1)
    tps = [TopicPartition(first, number) for number in range(3)] + [TopicPartition(second, 0)]
    name = f"group-{first}"
    our_group = group(kafka.bootstrap_servers, name)
    assert our_group.committed(tps) == {}
    our_group.commit({tps[0]: 5, tps[2]: 0, tps[3]: 1 << 40})
    assert our_group.committed(tps) == {tps[0]: 5, tps[2]: 0, tps[3]: 1 << 40}
    our_group.commit({tps[0]: 4})
    assert group(kafka.bootstrap_servers, name).committed(tps[:1]) == {tps[0]: 4}, "backwards too"
    assert listed_by_admin_client(kafka.bootstrap_servers, name) == {(first, 0): 4, (first, 2): 0, (second, 0): 1 << 40}


def test_offsets_that_a_consumer_committed_are_read(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    commit(kafka.bootstrap_servers, f"group-{topic}", topic, 7)
    tp = TopicPartition(topic, 0)
    assert group(kafka.bootstrap_servers, f"group-{topic}").committed([tp]) == {tp: 7}


def test_kafka_deletes_committed_offsets_with_their_topic(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    # So metadata of an offset, such as the topic's id, cannot show later that the topic was recreated.
    topic, other = make_topic(1), make_topic(1)
    tps = [TopicPartition(topic, 0), TopicPartition(other, 0)]
    our_group = group(kafka.bootstrap_servers, f"group-{topic}")
    our_group.commit(dict.fromkeys(tps, 5))
    Admin(kafka.bootstrap_servers).recreate(topic, 1)
    deadline = time.monotonic() + 600
    while (committed := our_group.committed(tps)) != {tps[1]: 5}:
        assert time.monotonic() < deadline, committed
        time.sleep(0.1)


def test_group_with_members_rejects_outside_commits(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    member: Any = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"group-{topic}"})
    try:
        member.subscribe([topic])
        deadline = time.monotonic() + 600
        while not member.assignment():
            member.poll(0.1)
            assert time.monotonic() < deadline
        with pytest.raises(BrokerError, match="has active members"):
            group(kafka.bootstrap_servers, f"group-{topic}").commit({TopicPartition(topic, 0): 1})
    finally:
        member.close()
