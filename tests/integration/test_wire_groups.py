"""Committed offsets of groups, against a real coordinator."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from tests.integration.groups import commit
from tests.integration.topics import Admin

from pyspark_kafka_direct.errors import BrokerError, TransientBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.groups import Group

if TYPE_CHECKING:
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka


def group(servers: str, name: str, **more: str) -> Group:
    return Group(Cluster(connection_settings({"bootstrap.servers": servers, **more}).connection), name)


def seen_by_tools(servers: str, name: str) -> dict[tuple[str, int], int]:
    """What kafka-consumer-groups and its like show."""
    admin = AdminClient({"bootstrap.servers": servers})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result(60)
    return {(tp.topic, tp.partition): tp.offset for tp in answer.topic_partitions}


def test_commits_are_read_back_and_seen_by_others(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    first, second = make_topic(3), make_topic(1)
    tps = [TopicPartition(first, number) for number in range(3)] + [TopicPartition(second, 0)]
    name = f"group-{first}"
    ours = group(kafka.bootstrap_servers, name)
    assert ours.committed(tps) == {}
    ours.commit({tps[0]: 5, tps[2]: 0, tps[3]: 1 << 40})
    assert ours.committed(tps) == {tps[0]: 5, tps[2]: 0, tps[3]: 1 << 40}
    ours.commit({tps[0]: 4})
    assert group(kafka.bootstrap_servers, name).committed(tps[:1]) == {tps[0]: 4}, "backwards too"
    assert seen_by_tools(kafka.bootstrap_servers, name) == {(first, 0): 4, (first, 2): 0, (second, 0): 1 << 40}


def test_offsets_that_a_consumer_committed_are_read(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    commit(kafka.bootstrap_servers, f"group-{topic}", topic, 7)
    tp = TopicPartition(topic, 0)
    assert group(kafka.bootstrap_servers, f"group-{topic}").committed([tp]) == {tp: 7}


def test_kafka_forgets_committed_offsets_with_their_topic(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    # So nothing that is kept beside an offset, as a topic's id, can tell later that the topic is another one.
    topic, other = make_topic(1), make_topic(1)
    tps = [TopicPartition(topic, 0), TopicPartition(other, 0)]
    ours = group(kafka.bootstrap_servers, f"group-{topic}")
    ours.commit(dict.fromkeys(tps, 5))
    Admin(kafka.bootstrap_servers).recreate(topic, 1)
    deadline = time.monotonic() + 60
    while (found := ours.committed(tps)) != {tps[1]: 5}:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def test_nothing_is_asked_for_nothing() -> None:
    assert group("127.0.0.1:1", "g").committed([]) == {}
    group("127.0.0.1:1", "g").commit({})


def test_a_group_with_members_takes_no_commits_from_outside(kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    member: Any = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"group-{topic}"})
    try:
        member.subscribe([topic])
        deadline = time.monotonic() + 60
        while not member.assignment():
            member.poll(0.1)
            assert time.monotonic() < deadline
        with pytest.raises(BrokerError, match="has members"):
            group(kafka.bootstrap_servers, f"group-{topic}").commit({TopicPartition(topic, 0): 1})
    finally:
        member.close()


def test_nobody_there_is_an_error_in_time() -> None:
    began = time.monotonic()
    ours = group("127.0.0.1:1", "g", **{"default.api.timeout.ms": "1000"})
    with pytest.raises(TransientBrokerError):
        ours.committed([TopicPartition("t", 0)])
    assert time.monotonic() - began < 50, "by default brokers are asked for 60 s"
