"""Topic metadata, leaders and offsets: error codes and metadata that a real broker sends only at rare moments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.client.witness_cluster import advertise

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.leader_requests import EARLIEST_LOCAL
from pyspark_kafka_direct.client.metadata import PartitionMetadata
from pyspark_kafka_direct.client.producer_ids import request_producer_id
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    ProtocolError,
    TopicNotFoundError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, 0)


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    with UnitCluster({TOPIC: 1}) as cluster:
        cluster.append(PARTITION, 42)
        yield cluster


@pytest.fixture
def three() -> Iterator[UnitCluster]:
    """Brokers that are called in the order of their ids; the first one leads."""
    with UnitCluster({TOPIC: 1}, brokers=3, replication_factor=3) as cluster:
        cluster.pool.rotation = 0.0
        cluster.append(PARTITION, 42)
        yield cluster


def latest(client: ClusterClient) -> int:
    return client.offsets({PARTITION: LATEST})[PARTITION]


# Errors of partitions.


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
def test_retriable_partition_errors_are_retried_with_new_metadata(cluster: UnitCluster, code: int) -> None:
    cluster.fault("ListOffsets", "error", code=code, repeats=2)
    assert latest(cluster.client()) == 42
    assert (cluster.sent("Metadata"), cluster.sent("ListOffsets")) == (3, 3)


def test_fatal_partition_errors_are_not_retried(cluster: UnitCluster) -> None:
    cluster.every("ListOffsets", "error", code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    with pytest.raises(UnsupportedBrokerError, match="read the topic by offsets") as caught:
        latest(cluster.client())
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == (*PARTITION, "broker-1:9092")
    assert cluster.sent("ListOffsets") == 1


def test_retriable_errors_raise_after_the_retries(cluster: UnitCluster) -> None:
    cluster.every("ListOffsets", "error", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(BrokerUnreachableError, match="NOT_LEADER_OR_FOLLOWER while listing offsets"):
        latest(cluster.client(retries=2))
    assert cluster.sent("ListOffsets") == 3


def test_retriable_errors_raise_at_the_deadline(cluster: UnitCluster) -> None:
    cluster.every("ListOffsets", "error", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    started = cluster.now
    with pytest.raises(TopicNotFoundError):
        latest(cluster.client(default_api_timeout_ms=2000))
    assert 2 < cluster.now - started < 20, "brokers have to confirm that the topic does not exist"


def test_partition_missing_in_response_raises(cluster: UnitCluster) -> None:
    cluster.change("ListOffsets", lambda _, values: {**values, "topics": []})
    with pytest.raises(ProtocolError, match="lacks a partition") as caught:
        latest(cluster.client())
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == (*PARTITION, "broker-1:9092")


@pytest.mark.parametrize("position", [EARLIEST, LATEST, EARLIEST_LOCAL])
def test_log_start_and_end_of_minus_one_are_retried(cluster: UnitCluster, position: int) -> None:
    remaining = [1] * 2

    def without_offsets(_: int, values: dict[str, Any]) -> dict[str, Any]:
        if remaining:
            remaining.pop()
            values["topics"][0]["partitions"][0]["offset"] = -1
        return values

    cluster.change("ListOffsets", without_offsets)
    assert cluster.client().offsets({PARTITION: position}) == {PARTITION: 42 if position == LATEST else 0}
    assert cluster.sent("ListOffsets") == 3
    remaining += [1] * 2
    with pytest.raises(BrokerUnreachableError, match="OFFSET_NOT_AVAILABLE while listing offsets"):
        cluster.client(retries=1).offsets({PARTITION: position})
    assert cluster.client().offsets({PARTITION: 1 << 50}) == {PARTITION: -1}, "no record has this timestamp"


def test_end_offset_follows_isolation_level_of_request(cluster: UnitCluster) -> None:
    """Both levels share one client and one connection."""
    cluster.append(PARTITION, 2, producer_id=7)
    client = cluster.client()
    ends = [
        client.offsets({PARTITION: LATEST}, isolation_level=level)[PARTITION]
        for level in ("read_committed", "read_uncommitted")
    ]
    assert [*ends, latest(client)] == [42, 44, 44]
    assert cluster.open_connections == 1


# Leaders.


@pytest.mark.parametrize("is_dead", [False, True])
def test_new_leader_is_called_after_a_move(three: UnitCluster, is_dead: bool) -> None:
    client = three.client()
    assert latest(client) == 42
    if is_dead:
        three.event("stop_broker", broker=0, seconds=1000)
        assert latest(client) == 42
    else:
        three.elect(PARTITION, 2)
    three.append(PARTITION, 3)
    assert latest(client) == 45


@pytest.mark.parametrize(("version", "is_reliable"), [(11, True), (5, True), (4, False)])
def test_the_end_that_a_new_leader_reports_is_reliable_since_kafka_2_2(version: int, is_reliable: bool) -> None:
    with UnitCluster({TOPIC: 1}, newest_versions={"ListOffsets": version}) as cluster:
        client = cluster.client()
        assert client.has_reliable_end(PARTITION, client.deadline()) is is_reliable
        assert client.has_reliable_end(PARTITION, client.deadline()) is is_reliable
        assert cluster.network.connect_count == 1
        cluster.event("lose_leader", topic=TOPIC, partition=0, seconds=2.0)
        client.topics([TOPIC])
        assert not client.has_reliable_end(PARTITION, client.deadline())


def test_unreachable_leader_error_names_its_advertised_address(cluster: UnitCluster) -> None:
    advertise(cluster, 1)
    with pytest.raises(BrokerUnreachableError, match="Broker 1 advertises this address") as caught:
        latest(cluster.client(retries=0))
    assert caught.value.broker == "broker-1:1"


def test_only_an_address_that_is_no_bootstrap_server_has_advice_about_it(three: UnitCluster) -> None:
    client = ClusterClient(replace(three.client().settings, bootstrap_servers=(("broker-2", 9092),)), pool=three.pool)
    client.refresh_brokers()
    for number, node in client.nodes.items():
        three.event("stop_broker", broker=number - 1, seconds=1000)
        with pytest.raises(BrokerUnreachableError) as caught:
            client.connect(node, client.deadline(5))
        assert (f"Broker {number} advertises" in caught.value.message) is (number != 2)


@pytest.mark.parametrize(("version", "has_epoch"), [(7, False), (8, False), (9, True), (13, True)])
def test_leader_epochs_of_old_brokers_are_ignored(version: int, has_epoch: bool) -> None:
    """Before 2.4 they may be outdated; the leader then rejects all requests (KAFKA-9212)."""
    with UnitCluster({TOPIC: 1}, brokers=2, newest_versions={"Metadata": version}) as cluster:
        cluster.append(PARTITION, 42)
        assert latest(cluster.client()) == 42
        epoch = cluster.partition(PARTITION).epoch
        (request,) = cluster.received("ListOffsets")
        assert request.topics[0].partitions[0].current_leader_epoch == (epoch if has_epoch else -1)


# Metadata.


@pytest.mark.parametrize("seconds", [1.0, 20.0])
def test_metadata_is_retried_during_leader_election(cluster: UnitCluster, seconds: float) -> None:
    """Once a broker has responded, kafka.socket.connection.setup.timeout.ms no longer limits the time."""
    started = cluster.now
    cluster.event("deny_topic", topic=TOPIC, seconds=seconds, error_code=ErrorCode.LEADER_NOT_AVAILABLE)
    assert TOPIC in cluster.client().topics([TOPIC])
    assert cluster.sent("Metadata") > 2
    assert seconds < cluster.now - started < seconds + 2


@pytest.mark.parametrize("retries", [0, 2])
def test_errors_of_topics_use_up_retries(cluster: UnitCluster, retries: int) -> None:
    cluster.event("deny_topic", topic=TOPIC, seconds=1000, error_code=ErrorCode.LEADER_NOT_AVAILABLE)
    with pytest.raises(BrokerUnreachableError, match="LEADER_NOT_AVAILABLE while fetching metadata"):
        cluster.client(retries=retries).topics([TOPIC])
    assert cluster.sent("Metadata") == 1 + retries


def test_metadata_has_racks_and_offline_replicas(three: UnitCluster) -> None:
    def add(_: int, values: dict[str, Any]) -> dict[str, Any]:
        values["topics"][0]["is_internal"] = True
        values["topics"][0]["partitions"][0] |= {"isr_nodes": (1,), "offline_replicas": (3,)}
        return {**values, "brokers": [{**each, "rack": f"rack-{each['node_id']}"} for each in values["brokers"]]}

    three.change("Metadata", add)
    client = three.client()
    topic = client.topics([TOPIC])[TOPIC]
    partition = topic.partitions[0]
    assert topic.internal
    assert (partition.replicas, partition.in_sync_replicas, partition.offline_replicas) == ((2, 3, 1), (1,), (3,))
    assert [node.rack for node in client.nodes.values()] == ["rack-1", "rack-2", "rack-3"]


def test_a_broker_may_have_the_id_0(cluster: UnitCluster) -> None:
    def renumber(_: int, values: dict[str, Any]) -> dict[str, Any]:
        values["topics"][0]["partitions"][0] |= {"leader_id": 0, "replica_nodes": (0,), "isr_nodes": (0,)}
        return {**values, "brokers": [{**each, "node_id": 0} for each in values["brokers"]]}

    cluster.change("Metadata", renumber)
    client = cluster.client()
    assert (client.leader(PARTITION).id, client.known_replicas([PARTITION])) == (0, {0})
    assert client.known_leaders([PARTITION])[PARTITION].node.id == 0


def test_outdated_metadata_is_ignored(three: UnitCluster) -> None:
    client = three.client(first_broker=1)
    three.event("stick_image", broker=0, seconds=20)
    three.elect(PARTITION, 2)
    three.sleep(1)
    epoch = three.partition(PARTITION).epoch
    assert client.partition(PARTITION).leader_epoch == epoch
    assert client.topics([TOPIC])[TOPIC].partitions[0] == PartitionMetadata(0, 2, epoch, (2, 3, 1), (2, 3))
    assert client.leader(PARTITION).id == 2
    assert three.received_by("Metadata") == [1, 1, 0]
    three.sleep(20)
    three.elect(PARTITION, 3)
    assert client.topics([TOPIC])[TOPIC].partitions[0].leader == 3


def test_metadata_that_lacks_a_partition_is_not_cached(cluster: UnitCluster) -> None:
    """The broker may lag behind."""
    client, added = cluster.client(), TopicPartition(TOPIC, 1)
    with pytest.raises(TopicNotFoundError, match="it has 1"):
        client.leader(added)
    cluster.event("expand_topic", topic=TOPIC)
    assert client.leader(added).id == 1
    assert client.partition(added).leader == 1
    assert cluster.sent("Metadata") == 2
    cluster.event("expand_topic", topic=TOPIC)
    known = {PARTITION: 42, added: 0, TopicPartition(TOPIC, 2): 0}
    assert client.offsets(dict.fromkeys(known, LATEST)) == known
    assert cluster.sent("Metadata") == 3


def test_use_next_broker_changes_the_broker(three: UnitCluster) -> None:
    client = three.client()
    client.topics([TOPIC])
    counts = [three.received_by("Metadata")]
    for _ in range(4):
        client.topics([TOPIC])
        client.topics([TOPIC])
        counts.append(three.received_by("Metadata"))
        client.use_next_broker()
        client.use_next_broker()
    assert counts == [[1, 0, 0], [3, 0, 0], [3, 2, 0], [3, 2, 2], [5, 2, 2]]


def test_refresh_brokers_requests_no_topic(three: UnitCluster) -> None:
    client = three.client()
    assert client.nodes == {}
    client.refresh_brokers()
    assert list(client.nodes) == [1, 2, 3]
    assert [request.topics for request in three.received("Metadata")] == [()]


def test_unreachable_cluster_fails_early(cluster: UnitCluster) -> None:
    """Waiting does not repair a wrong address: default.api.timeout.ms is 60 s."""
    cluster.event("stop_broker", broker=0, seconds=1000)
    for call in (ClusterClient.refresh_brokers, ClusterClient.all_topics):
        started = cluster.now
        with pytest.raises(BrokerUnreachableError, match=r"^Cannot connect: "):
            call(cluster.client())
        assert cluster.now - started < 12


def test_cached_metadata_is_used_up_to_its_maximum_age(cluster: UnitCluster) -> None:
    client = cluster.client(metadata_max_age_ms=8000)
    requests = []
    for seconds in (0, 7.9, 0.25):
        cluster.sleep(seconds)
        assert client.leader(PARTITION).id == 1
        requests.append(cluster.sent("Metadata"))
    assert requests == [1, 1, 2]


@pytest.mark.parametrize("topic_ids", [True, False], ids=["with ids", "before Kafka 2.8"])
def test_the_topic_ids_of_cached_metadata_are_known_without_a_request(topic_ids: bool) -> None:
    with UnitCluster({TOPIC: 1, "trains": 1}, topic_ids=topic_ids) as cluster:
        client = cluster.client()
        assert client.known_topic_ids([TOPIC]) == {}
        client.topics([TOPIC, "trains"])
        ids = {name: cluster.topic_id(name) for name in (TOPIC, "trains")}
        assert client.known_topic_ids([TOPIC, "other", "trains"]) == (ids if topic_ids else {})
        assert cluster.sent("Metadata") == 1


def test_a_response_without_a_requested_topic_removes_it_from_the_cache(cluster: UnitCluster) -> None:
    client = cluster.client()
    client.topics([TOPIC])
    cluster.event("delete_topic", topic=TOPIC)
    client.refresh_brokers()
    assert client.known_leaders([PARTITION]).keys() == {PARTITION}, "this request was for no topic"
    assert client.all_topics() == {}
    assert client.known_leaders([PARTITION]) == {}


def test_of_all_topics_only_required_ones_that_are_not_internal_raise_their_error(cluster: UnitCluster) -> None:
    client = cluster.client()

    def with_failing_topics(_: int, values: dict[str, Any]) -> dict[str, Any]:
        failing = {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "partitions": []}
        names = ("__x", "orders")
        added = [{**values["topics"][0], **failing, "name": name, "is_internal": name[0] == "_"} for name in names]
        return {**values, "topics": [*values["topics"], *added]}

    cluster.change("Metadata", with_failing_topics)
    assert client.all_topics().keys() == {TOPIC}
    assert client.all_topics(required=lambda name: name != "orders").keys() == {TOPIC}
    with pytest.raises(AuthorizationError) as caught:
        client.all_topics(required=lambda name: True)
    assert caught.value.topic == "orders"
    cluster.change("Metadata", None)
    cluster.event("deny_topic", topic=TOPIC, seconds=100)
    with pytest.raises(AuthorizationError):
        client.topics([TOPIC])


def test_each_round_of_requests_leaves_brokers_more_time() -> None:
    """A broker that does not respond gets a tenth of ``request.timeout.ms``, then twice as much; the last gets all."""
    with UnitCluster({TOPIC: 1}, brokers=2, connection={"connect_timeout_ms": 300_000}) as cluster:
        client = cluster.client(retries=2, retry_backoff_ms=0, reconnect_backoff_ms=0)
        client.refresh_brokers()
        cluster.pool.clear()
        cluster.connect_limits.clear()
        cluster.connect_fault("refuse_connect", repeats=8)
        with pytest.raises(BrokerUnreachableError):
            client.topics([TOPIC], deadline=client.deadline(300))
        with pytest.raises(BrokerUnreachableError):
            client.call_any_broker(lambda *_: None, client.deadline(300))
        assert cluster.connect_limits == pytest.approx([3, 300, 6, 300, 12, 300, 3, 300], abs=0.6)
        cluster.connect_limits.clear()
        cluster.connect_fault("refuse_connect", repeats=5)
        request_producer_id(client, client.deadline(300))
        assert cluster.connect_limits == pytest.approx([3, 300, 6, 300, 12, 300], abs=0.6)
