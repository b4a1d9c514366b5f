"""A cluster that answers by a script: error codes and metadata that a real broker gives only at rare moments."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from tests.unit.wire.scripted import PARTITION, TOPIC, TOPIC_ID, VERSIONS, Broker, then

from pyspark_kafka_direct.errors import (
    BrokerUnreachableError,
    ProtocolError,
    TopicNotFoundError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.offsets import EARLIEST, LATEST
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.metadata import PartitionMetadata, TopicMetadata, newest
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
    POOL.clear()


@pytest.fixture
def other() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def latest(cluster: Cluster) -> int:
    return cluster.offsets({PARTITION: LATEST})[PARTITION]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
def test_passing_errors_of_a_partition_are_retried_with_fresh_metadata(broker: Broker, code: int) -> None:
    codes = then(code, code)
    broker.offsets = lambda _: (codes(), 42)
    assert latest(Cluster(broker.settings)) == 42
    assert broker.asked == {"Metadata": 3, "ListOffsets": 3}


def test_lasting_errors_of_a_partition_are_not_retried(broker: Broker) -> None:
    broker.offsets = lambda _: (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, -1)
    with pytest.raises(UnsupportedBrokerError, match="read it by offsets") as caught:
        latest(Cluster(broker.settings))
    assert (caught.value.topic, caught.value.partition) == PARTITION
    assert caught.value.broker == f"127.0.0.1:{broker.port}"
    assert broker.asked["ListOffsets"] == 1


def test_passing_errors_that_last_are_given_up_after_the_retries(broker: Broker) -> None:
    broker.offsets = lambda _: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    with pytest.raises(BrokerUnreachableError, match="NOT_LEADER_OR_FOLLOWER while listing offsets"):
        latest(Cluster(broker.settings, retries=2))
    assert broker.asked["ListOffsets"] == 3


def test_passing_errors_that_last_are_given_up_at_the_deadline(broker: Broker) -> None:
    broker.offsets = lambda _: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    started = time.monotonic()
    with pytest.raises(TopicNotFoundError):  # which takes a first answer within that time
        latest(Cluster(replace(broker.settings, default_api_timeout_ms=2000)))
    assert time.monotonic() - started < 30


def test_the_new_leader_is_asked_after_a_move(broker: Broker, other: Broker) -> None:
    other.offsets = lambda epoch: (0 if epoch == 6 else ErrorCode.UNKNOWN_LEADER_EPOCH, 99)
    cluster = Cluster(broker.settings)
    assert latest(cluster) == 42
    broker.leaders = [(2, other), (1, broker)]
    broker.offsets = lambda _: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    broker.epoch = 6
    assert latest(cluster) == 99


def test_a_dead_leader_is_replaced(broker: Broker) -> None:
    with Broker() as doomed:
        broker.leaders = [(2, doomed), (1, broker)]
        cluster = Cluster(broker.settings)
        assert latest(cluster) == 42
    POOL.clear()
    elected = then(2, 2, finally_=1)
    seen: list[int] = []

    def error() -> int:
        seen.append(elected())
        broker.leaders.sort(key=lambda entry: entry[0] != seen[-1])
        return 0

    broker.error = error
    assert latest(cluster) == 42
    assert broker.asked["ListOffsets"] == 1


def test_a_leader_out_of_reach_is_explained_by_its_advertised_address(broker: Broker) -> None:
    with Broker() as gone:
        pass
    broker.leaders = [(2, gone), (1, broker)]
    with pytest.raises(BrokerUnreachableError, match=r"broker 2 advertises \(its advertised\.listeners\)") as caught:
        latest(Cluster(broker.settings, retries=0))
    assert caught.value.broker == f"127.0.0.1:{gone.port}"


def test_a_partition_left_out_of_the_answer_is_an_error(broker: Broker) -> None:
    broker.forgetful = True
    with pytest.raises(ProtocolError, match="lacks a partition") as caught:
        latest(Cluster(broker.settings))
    assert (caught.value.topic, caught.value.partition) == PARTITION


def test_the_end_follows_the_isolation_level_of_the_question(broker: Broker) -> None:
    """One cluster, and one connection, for both."""
    broker.stable = 40
    cluster = Cluster(broker.settings)
    ends = [
        cluster.offsets({PARTITION: LATEST}, isolation_level=level)[PARTITION]
        for level in ("read_committed", "read_uncommitted")
    ]
    assert ends == [40, 42]
    assert latest(cluster) == 42
    assert broker.connections == 1


@pytest.mark.parametrize("position", [EARLIEST, LATEST])
def test_no_log_starts_or_ends_at_minus_one(broker: Broker, position: int) -> None:
    offsets = then(-1, -1, finally_=42)
    broker.offsets = lambda _: (0, offsets())
    assert Cluster(broker.settings).offsets({PARTITION: position}) == {PARTITION: 42}
    broker.offsets = lambda _: (0, -1)
    with pytest.raises(BrokerUnreachableError, match="OFFSET_NOT_AVAILABLE while listing offsets"):
        Cluster(broker.settings, retries=1).offsets({PARTITION: position})
    assert Cluster(broker.settings).offsets({PARTITION: 1000}) == {PARTITION: -1}, "no record is that new"


def test_a_topic_whose_leader_is_being_elected_is_asked_for_again(broker: Broker) -> None:
    broker.topic_error = then(ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE)
    assert TOPIC in Cluster(broker.settings).topics([TOPIC])
    assert broker.asked["Metadata"] == 3


def test_brokers_that_belong_to_the_past_are_forgotten(broker: Broker, other: Broker) -> None:
    # The known broker says that it is history (KIP-1102): the bootstrap servers are asked instead.
    broker.leaders = [(2, other)]
    other.error = lambda: ErrorCode.REBOOTSTRAP_REQUIRED
    cluster = Cluster(broker.settings)
    cluster.topics([TOPIC])
    assert set(cluster.nodes) == {2}
    broker.leaders = [(1, broker)]
    cluster.topics([TOPIC])
    assert other.asked["Metadata"] == 1
    assert set(cluster.nodes) == {1}


def test_a_broker_that_lags_behind_is_not_believed(broker: Broker, other: Broker) -> None:
    cluster = Cluster(broker.settings)
    assert cluster.partition(PARTITION).leader_epoch == 5
    for each in (broker, other):
        each.epoch, each.leaders = 4, [(2, other), (1, broker)]
    assert cluster.topics([TOPIC])[TOPIC].partitions[0] == PartitionMetadata(0, 1, 5, (1, 2), (1,))
    assert cluster.leader(PARTITION).id == 1
    broker.epoch = other.epoch = 6
    assert cluster.topics([TOPIC])[TOPIC].partitions[0].leader == 2


@pytest.mark.parametrize(("version", "named"), [(7, -1), (8, -1), (9, 5), (13, 5)])
def test_an_old_broker_is_not_believed_about_epochs(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, version: int, named: int
) -> None:
    """Before 2.4 it may tell an outdated one, with which the leader refuses all requests (KAFKA-9212)."""
    monkeypatch.setitem(VERSIONS, 3, (0, version))
    broker.offsets = lambda epoch: (0 if epoch == named else ErrorCode.FENCED_LEADER_EPOCH, 42)
    assert latest(Cluster(broker.settings, retries=1)) == 42


def test_another_broker_answers_when_one_is_doubted(broker: Broker, other: Broker) -> None:
    broker.leaders = other.leaders = [(1, broker), (2, other)]
    cluster = Cluster(broker.settings)
    cluster.topics([TOPIC])
    answered = []
    for _ in range(4):
        before = broker.asked["Metadata"]
        cluster.topics([TOPIC])
        cluster.topics([TOPIC])
        answered.append(broker.asked["Metadata"] - before)
        cluster.ask_another()
    assert sorted(answered[:2]) == [0, 2], "the same broker, until it is doubted"
    assert answered[2:] == answered[:2], "and then in turn"


def test_of_each_partition_the_highest_epoch_counts() -> None:
    def topic(topic_id: UUID, *epochs: int) -> TopicMetadata:
        return TopicMetadata(
            TOPIC, topic_id, False, {number: PartitionMetadata(number, 1, epoch) for number, epoch in enumerate(epochs)}
        )

    def epochs(metadata: TopicMetadata) -> list[int]:
        return [partition.leader_epoch for partition in metadata.partitions.values()]

    assert epochs(newest(None, topic(TOPIC_ID, 1, 2))) == [1, 2]
    assert epochs(newest(topic(TOPIC_ID, 3, 1), topic(TOPIC_ID, 2, 2))) == [3, 2]
    assert epochs(newest(topic(TOPIC_ID, 3), topic(TOPIC_ID, 2, 2))) == [3, 2]
    assert epochs(newest(topic(TOPIC_ID, 3, 9), topic(TOPIC_ID, 4))) == [4]
    assert epochs(newest(topic(TOPIC_ID, 9), topic(UUID(int=8), 0))) == [0]  # created anew: epochs begin again


def test_a_cluster_is_reached_without_asking_about_a_topic(broker: Broker) -> None:
    cluster = Cluster(broker.settings)
    assert cluster.nodes == {}
    cluster.reach()
    assert list(cluster.nodes) == [1]
    assert broker.asked == {"Metadata": 1}


def test_a_cluster_that_is_not_there_is_given_up_soon() -> None:
    settings = ConnectionSettings((("127.0.0.1", 1),), connect_timeout_ms=50, reconnect_backoff_max_ms=50)
    began = time.monotonic()
    with pytest.raises(BrokerUnreachableError):
        Cluster(settings).reach()
    assert time.monotonic() - began < 10
