"""A cluster that responds by a script: error codes and metadata that a real broker sends only at rare moments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from tests.unit.client.fake_broker import (
    PARTITION,
    TOPIC,
    TOPIC_ID,
    VERSIONS,
    FakeBroker,
    error_sequence,
)
from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection_pool import POOL, ConnectionPool
from pyspark_kafka_direct.client.leader_requests import EARLIEST_LOCAL
from pyspark_kafka_direct.client.metadata import PartitionMetadata
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    ProtocolError,
    TopicNotFoundError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.options.settings import ConnectionSettings
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.client.connection import BrokerIdentity
    from pyspark_kafka_direct.client.deadline import Deadline


@pytest.fixture
def system() -> FakeTimeSystem:
    return FakeTimeSystem()


@pytest.fixture
def pool(system: FakeTimeSystem) -> Iterator[ConnectionPool]:
    pool = ConnectionPool(system)
    yield pool
    pool.close()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker
    POOL.clear()


@pytest.fixture
def other() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


def latest(cluster: ClusterClient) -> int:
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
def test_retriable_partition_errors_are_retried_with_new_metadata(broker: FakeBroker, code: int) -> None:
    codes = error_sequence(code, code)
    broker.offsets = lambda _: (codes(), 42)
    assert latest(ClusterClient(broker.settings)) == 42
    assert broker.request_counts == {"Metadata": 3, "ListOffsets": 3}


def test_fatal_partition_errors_are_not_retried(broker: FakeBroker) -> None:
    broker.offsets = lambda _: (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, -1)
    with pytest.raises(UnsupportedBrokerError, match="read the topic by offsets") as caught:
        latest(ClusterClient(broker.settings))
    assert (caught.value.topic, caught.value.partition) == PARTITION
    assert caught.value.broker == f"127.0.0.1:{broker.port}"
    assert broker.request_counts["ListOffsets"] == 1


def test_retriable_errors_raise_after_the_retries(broker: FakeBroker) -> None:
    broker.offsets = lambda _: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    with pytest.raises(BrokerUnreachableError, match="NOT_LEADER_OR_FOLLOWER while listing offsets"):
        latest(ClusterClient(broker.settings, retries=2))
    assert broker.request_counts["ListOffsets"] == 3


def test_retriable_errors_raise_at_the_deadline(
    broker: FakeBroker, system: FakeTimeSystem, pool: ConnectionPool
) -> None:
    broker.offsets = lambda _: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    settings = replace(broker.settings, default_api_timeout_ms=2000, retry_backoff_ms=100, retry_backoff_max_ms=100)
    with pytest.raises(TopicNotFoundError):
        latest(ClusterClient(settings, pool=pool))
    assert 2 < sum(system.slept) < 20, "brokers have to confirm that the topic does not exist"


def test_new_leader_is_called_after_a_move(broker: FakeBroker, other: FakeBroker) -> None:
    other.offsets = lambda epoch: (0 if epoch == 6 else ErrorCode.UNKNOWN_LEADER_EPOCH, 99)
    cluster = ClusterClient(broker.settings)
    assert latest(cluster) == 42
    broker.leaders = [(2, other), (1, broker)]
    broker.offsets = lambda _: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    broker.epoch = 6
    assert latest(cluster) == 99


def test_dead_leader_is_replaced(broker: FakeBroker) -> None:
    with FakeBroker() as stopped_broker:
        broker.leaders = [(2, stopped_broker), (1, broker)]
        cluster = ClusterClient(broker.settings)
        assert latest(cluster) == 42
    POOL.clear()
    elected = error_sequence(2, 2, finally_=1)
    leaders_returned: list[int] = []

    def error() -> int:
        leaders_returned.append(elected())
        broker.leaders.sort(key=lambda entry: entry[0] != leaders_returned[-1])
        return 0

    broker.error = error
    assert latest(cluster) == 42
    assert broker.request_counts["ListOffsets"] == 1


def test_unreachable_leader_error_names_its_advertised_address(broker: FakeBroker) -> None:
    with FakeBroker() as stopped_broker:
        pass
    broker.leaders = [(2, stopped_broker), (1, broker)]
    with pytest.raises(BrokerUnreachableError, match="Broker 2 advertises this address") as caught:
        latest(ClusterClient(broker.settings, retries=0))
    assert caught.value.broker == f"127.0.0.1:{stopped_broker.port}"


def test_partition_missing_in_response_raises(broker: FakeBroker) -> None:
    broker.omits_partitions = True
    with pytest.raises(ProtocolError, match="lacks a partition") as caught:
        latest(ClusterClient(broker.settings))
    assert (caught.value.topic, caught.value.partition) == PARTITION


def test_end_offset_follows_isolation_level_of_request(broker: FakeBroker) -> None:
    """Both levels share one client and one connection."""
    broker.stable = 40
    cluster = ClusterClient(broker.settings)
    ends = [
        cluster.offsets({PARTITION: LATEST}, isolation_level=level)[PARTITION]
        for level in ("read_committed", "read_uncommitted")
    ]
    assert ends == [40, 42]
    assert latest(cluster) == 42
    assert broker.connections == 1


@pytest.mark.parametrize("position", [EARLIEST, LATEST, EARLIEST_LOCAL])
def test_log_start_and_end_of_minus_one_are_retried(broker: FakeBroker, position: int) -> None:
    offsets = error_sequence(-1, -1, finally_=42)
    broker.offsets = lambda _: (0, offsets())
    assert ClusterClient(broker.settings).offsets({PARTITION: position}) == {PARTITION: 42}
    broker.offsets = lambda _: (0, -1)
    with pytest.raises(BrokerUnreachableError, match="OFFSET_NOT_AVAILABLE while listing offsets"):
        ClusterClient(broker.settings, retries=1).offsets({PARTITION: position})
    assert ClusterClient(broker.settings).offsets({PARTITION: 1000}) == {PARTITION: -1}, "no record has this timestamp"


def test_metadata_is_retried_during_leader_election(broker: FakeBroker) -> None:
    broker.topic_error = error_sequence(ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE)
    assert TOPIC in ClusterClient(broker.settings).topics([TOPIC])
    assert broker.request_counts["Metadata"] == 3


def test_rebootstrap_forgets_known_brokers(broker: FakeBroker, other: FakeBroker) -> None:
    # The known broker requests a rebootstrap (KIP-1102), so the client calls the bootstrap servers.
    broker.leaders = [(2, other)]
    other.error = lambda: ErrorCode.REBOOTSTRAP_REQUIRED
    cluster = ClusterClient(broker.settings)
    cluster.topics([TOPIC])
    assert set(cluster.nodes) == {2}
    broker.leaders = [(1, broker)]
    cluster.topics([TOPIC])
    assert other.request_counts["Metadata"] == 1
    assert set(cluster.nodes) == {1}


def test_outdated_metadata_is_ignored(broker: FakeBroker, other: FakeBroker) -> None:
    cluster = ClusterClient(broker.settings)
    assert cluster.partition(PARTITION).leader_epoch == 5
    for each in (broker, other):
        each.epoch, each.leaders = 4, [(2, other), (1, broker)]
    assert cluster.topics([TOPIC])[TOPIC].partitions[0] == PartitionMetadata(0, 1, 5, (1, 2), (1,))
    assert cluster.leader(PARTITION).id == 1
    broker.epoch = other.epoch = 6
    assert cluster.topics([TOPIC])[TOPIC].partitions[0].leader == 2


def test_metadata_that_lacks_a_partition_is_not_cached(broker: FakeBroker) -> None:
    """The broker may lag behind."""
    cluster = ClusterClient(broker.settings)
    added = TopicPartition(TOPIC, 1)
    with pytest.raises(TopicNotFoundError, match="it has 1"):
        cluster.leader(added)
    broker.partition_count = 2
    assert cluster.leader(added).id == 1
    assert cluster.partition(added).leader == 1
    assert broker.request_counts["Metadata"] == 2


@pytest.mark.parametrize(("version", "expected_epoch"), [(7, -1), (8, -1), (9, 5), (13, 5)])
def test_leader_epochs_of_old_brokers_are_ignored(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, version: int, expected_epoch: int
) -> None:
    """Before 2.4 they may be outdated; the leader then rejects all requests (KAFKA-9212)."""
    monkeypatch.setitem(VERSIONS, 3, (0, version))
    broker.offsets = lambda epoch: (0 if epoch == expected_epoch else ErrorCode.FENCED_LEADER_EPOCH, 42)
    assert latest(ClusterClient(broker.settings, retries=1)) == 42


def test_use_next_broker_changes_the_broker(broker: FakeBroker, other: FakeBroker) -> None:
    broker.leaders = other.leaders = [(1, broker), (2, other)]
    cluster = ClusterClient(broker.settings)
    cluster.topics([TOPIC])
    request_counts = []
    for _ in range(4):
        before = broker.request_counts["Metadata"]
        cluster.topics([TOPIC])
        cluster.topics([TOPIC])
        request_counts.append(broker.request_counts["Metadata"] - before)
        cluster.use_next_broker()
    assert sorted(request_counts[:2]) == [0, 2], "the same broker serves requests until use_next_broker"
    assert request_counts[2:] == request_counts[:2], "the brokers alternate"


def test_refresh_brokers_requests_no_topic(broker: FakeBroker) -> None:
    cluster = ClusterClient(broker.settings)
    assert cluster.nodes == {}
    cluster.refresh_brokers()
    assert list(cluster.nodes) == [1]
    assert broker.request_counts == {"Metadata": 1}


def test_unreachable_cluster_fails_early(system: FakeTimeSystem, pool: ConnectionPool) -> None:
    settings = ConnectionSettings((("127.0.0.1", 1),), reconnect_backoff_max_ms=50)
    with pytest.raises(BrokerUnreachableError):
        ClusterClient(settings, pool=pool).refresh_brokers()
    assert sum(system.slept) < 10, "default.api.timeout.ms is 60 s"


def test_cached_metadata_is_used_up_to_its_maximum_age(
    broker: FakeBroker, system: FakeTimeSystem, pool: ConnectionPool
) -> None:
    cluster = ClusterClient(replace(broker.settings, metadata_max_age_ms=8000), pool=pool)
    requests = []
    for seconds in (0, 8, 0.25):
        system.now += seconds
        assert cluster.leader(PARTITION).id == 1
        requests.append(broker.request_counts["Metadata"])
    assert requests == [1, 1, 2]


def test_the_topic_ids_of_cached_metadata_are_known_without_a_request(broker: FakeBroker) -> None:
    cluster = ClusterClient(broker.settings)
    assert cluster.known_topic_ids([TOPIC]) == {}
    cluster.topics([TOPIC])
    assert cluster.known_topic_ids([TOPIC, "other"]) == {TOPIC: TOPIC_ID}
    broker.topic_id = UUID(int=0)
    cluster.topics([TOPIC])
    assert cluster.known_topic_ids([TOPIC]) == {}, "brokers before Kafka 2.8 have none"
    assert broker.request_counts["Metadata"] == 2


def test_a_response_without_a_requested_topic_removes_it_from_the_cache(broker: FakeBroker) -> None:
    cluster = ClusterClient(broker.settings)
    cluster.topics([TOPIC])
    broker.topic_error = lambda: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.refresh_brokers()
    assert cluster.known_leaders([PARTITION]).keys() == {PARTITION}, "this request was for no topic"
    assert cluster.all_topics() == {}
    assert cluster.known_leaders([PARTITION]) == {}


def test_of_all_topics_only_required_ones_that_are_not_internal_raise_their_error(broker: FakeBroker) -> None:
    cluster = ClusterClient(broker.settings)
    broker.failing_topics = [(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, name[0] == "_") for name in ("orders", "__x")]
    assert cluster.all_topics().keys() == {TOPIC}
    assert cluster.all_topics(required=lambda name: name != "orders").keys() == {TOPIC}
    with pytest.raises(AuthorizationError) as caught:
        cluster.all_topics(required=lambda name: True)
    assert caught.value.topic == "orders"
    broker.topic_error = lambda: ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(AuthorizationError):
        cluster.topics([TOPIC])


def test_each_round_of_requests_leaves_brokers_more_time(
    broker: FakeBroker, system: FakeTimeSystem, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that does not respond gets a tenth of ``request.timeout.ms``, then twice as much; the last gets all."""
    limits: list[float] = []

    def fail(_: object, host: str, port: int, limit: Deadline, identity: BrokerIdentity) -> None:
        limits.append(round(limit.remaining(), 3))
        raise BrokerUnreachableError("frozen", broker=f"{host}:{port}")

    monkeypatch.setattr(pool, "acquire", fail)
    settings = replace(broker.settings, bootstrap_servers=(("a", 1), ("b", 1)), retry_backoff_ms=0)
    cluster = ClusterClient(settings, retries=2, pool=pool)
    with pytest.raises(BrokerUnreachableError):
        cluster.topics([TOPIC], deadline=cluster.deadline(300))
    assert limits == [3.0, 300.0, 6.0, 300.0, 12.0, 300.0]
    limits.clear()
    with pytest.raises(BrokerUnreachableError):
        cluster.call_any_broker(lambda *_: None, cluster.deadline(300))
    assert limits == [3.0, 300.0]
