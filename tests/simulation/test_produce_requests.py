"""Produce: acknowledgements, replication, outdated leaders, and verifications that take time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.cluster import produce_requests
from tests.simulation.cluster.cluster import ClusterSettings, SimulatedCluster
from tests.simulation.cluster.events import apply_event
from tests.simulation.cluster.produced_batches import read_batch_headers
from tests.simulation.cluster.replies import Delayed
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.simulation.coordinator_cases import producer_batch
from tests.simulation.direct_calls import DirectCalls
from tests.simulation.scheduler import World

from pyspark_kafka_direct.protocol import messages

if TYPE_CHECKING:
    from tests.simulation.cluster.topics import SimulatedPartition

PLAIN = producer_batch(attributes=0)


def cluster_of(world: World, brokers: int = 3, **settings: Any) -> tuple[SimulatedCluster, SimulatedPartition]:
    settings.setdefault("replication_factor", min(brokers, 2))
    cluster = SimulatedCluster(world, brokers=brokers, settings=ClusterSettings(**settings))
    topic = cluster.create_topic("topic", 1)
    assert topic is not None
    return cluster, topic.partitions[0]


def request_of(
    records: bytes = PLAIN, *, acks: int = -1, timeout_ms: int = 2_000, transactional_id: str | None = None
) -> dict[str, Any]:
    data = [{"name": "topic", "partition_data": [{"index": 0, "records": records}]}]
    return {"transactional_id": transactional_id, "acks": acks, "timeout_ms": timeout_ms, "topic_data": data}


def produce(
    world: World, cluster: SimulatedCluster, broker_id: int, records: bytes = PLAIN, *, version: int = 12, **more: Any
) -> Any:
    """Return the response of the partition, and of the whole request."""
    response = DirectCalls(world, cluster, broker_id)(messages.PRODUCE, version, request_of(records, **more))
    return None if response is None else (response.responses[0].partition_responses[0], response)


def values_of(partition: SimulatedPartition, broker_id: int) -> list[bytes | None]:
    return [value for batch in partition.replicas[broker_id].batches for value in batch.values]


def test_all_replicas_acknowledge_with_the_high_watermark() -> None:
    world = World(1)
    cluster, partition = cluster_of(world, replication_delay=0.5)
    started = world.now
    found, _ = produce(world, cluster, partition.leader)
    assert (found.error_code, found.base_offset) == (0, 0)
    assert partition.leader_log is not None
    assert partition.leader_log.high_watermark == 1
    assert world.now > started


def test_the_leader_alone_acknowledges_at_once() -> None:
    world = World(1)
    cluster, partition = cluster_of(world, replication_delay=0.5)
    started = world.now
    found, _ = produce(world, cluster, partition.leader, acks=1)
    assert (found.error_code, found.base_offset, world.now) == (0, 0, started)
    assert partition.leader_log is not None
    assert partition.leader_log.high_watermark == 0


def test_no_acknowledgement() -> None:
    world = World(1)
    cluster, partition = cluster_of(world)
    assert produce(world, cluster, partition.leader, acks=0) is None
    assert values_of(partition, partition.leader) == [b"v"]


def test_a_request_times_out_although_its_records_are_appended() -> None:
    world = World(1)
    cluster, partition = cluster_of(world)
    follower = next(each for each in partition.replicas if each != partition.leader)
    partition.stuck[follower] = world.now + 100
    started = world.now
    found, _ = produce(world, cluster, partition.leader)
    assert (found.error_code, found.base_offset) == (7, 0)
    assert 2 <= world.now - started < 2.1
    assert values_of(partition, partition.leader) == [b"v"]


def test_another_broker_names_the_leader() -> None:
    world = World(1)
    cluster, partition = cluster_of(world)
    other = next(each for each in cluster.brokers if each != partition.leader)
    found, response = produce(world, cluster, other)
    assert (found.error_code, found.base_offset) == (6, -1)
    assert found.current_leader == (partition.leader, 0)
    assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [
        (partition.leader, f"broker-{partition.leader}", 9092)
    ]
    found, response = produce(world, cluster, other, version=9)
    assert (found.error_code, found.current_leader) == (6, (-1, -1))


def test_too_few_replicas_in_sync() -> None:
    world = World(1)
    cluster, partition = cluster_of(world, min_in_sync_replicas=2)
    partition.in_sync_replicas = [partition.leader]
    cluster.publish()
    assert produce(world, cluster, partition.leader)[0].error_code == 19
    assert values_of(partition, partition.leader) == []
    assert produce(world, cluster, partition.leader, acks=1)[0].error_code == 0


def test_a_replica_leaves_before_the_acknowledgement() -> None:
    world = World(1)
    cluster, partition = cluster_of(world, min_in_sync_replicas=2)
    follower = next(each for each in partition.replicas if each != partition.leader)
    partition.stuck[follower] = world.now + 100

    def leave() -> None:
        partition.in_sync_replicas.remove(follower)
        cluster.publish()
        cluster.replicate(partition)

    world.after(1, leave)
    found, _ = produce(world, cluster, partition.leader)
    assert (found.error_code, found.base_offset) == (20, 0)
    assert values_of(partition, partition.leader) == [b"v"]


def test_a_leader_that_is_deposed_while_a_request_waits() -> None:
    world = World(1)
    cluster, partition = cluster_of(world)
    former = partition.leader
    follower = next(each for each in partition.replicas if each != former)
    partition.stuck[follower] = world.now + 100
    world.after(1, cluster.elect, partition, follower)
    found, _ = produce(world, cluster, former)
    assert (found.error_code, found.current_leader) == (6, (follower, 1))
    assert values_of(partition, follower) == []


def test_an_isolated_leader_acknowledges_records_that_are_truncated() -> None:
    world = World(1)
    cluster, partition = cluster_of(world)
    former = partition.leader
    cluster.brokers[former].isolated_until = world.now + 10
    cluster.fence(former)
    assert partition.leader != former
    assert produce(world, cluster, former, acks=1)[0].error_code == 0
    assert produce(world, cluster, former)[0].error_code == 7
    assert values_of(partition, former) == [b"v", b"v"]
    assert produce(world, cluster, partition.leader, producer_batch((b"w",), attributes=0))[0].error_code == 0
    world.run_for(11)
    cluster.brokers[former].apply_image(cluster.image)
    cluster.unfence(former)
    world.run_for(1)
    assert values_of(partition, former) == [b"w"]


def test_a_deposed_leader_waits_for_in_sync_replicas_that_it_has_added() -> None:
    """Its image lacks them, but a leader adds in-sync replicas itself."""
    world = World(1)
    cluster, partition = cluster_of(world)
    leader = partition.leader
    follower = next(each for each in partition.replicas if each != leader)
    cluster.brokers[follower].isolated_until = world.now + 10
    cluster.fence(follower)
    cluster.elect(partition, leader)
    cluster.brokers[leader].image_stuck_until = world.now + 1_000
    world.run_for(11)
    cluster.brokers[follower].apply_image(cluster.image)
    cluster.unfence(follower)
    assert partition.in_sync_replicas == [leader, follower]
    assert cluster.brokers[leader].image.topics["topic"].partitions[0].in_sync_replicas == (leader,)
    cluster.elect(partition, follower)
    found, _ = produce(world, cluster, leader)
    assert found.error_code == 7


def test_a_leader_that_was_elected_again_stays_in_its_epoch_when_it_is_deposed() -> None:
    world = World(1)
    cluster, partition = cluster_of(world, replication_factor=1)
    leader = partition.leader
    cluster.brokers[leader].image_stuck_until = world.now + 1_000
    cluster.elect(partition, leader)
    assert produce(world, cluster, leader)[0].error_code == 0
    cluster.brokers[leader].isolated_until = world.now + 10
    cluster.fence(leader)
    produce(world, cluster, leader, acks=1)
    assert partition.replicas[leader].latest_epoch == 1


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_verification_may_take_time(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    monkeypatch.setattr(produce_requests, "ASYNCHRONOUS_SHARE", share)
    world = World(1)
    cluster, partition = cluster_of(world)
    transactions = TransactionCoordinator.of(cluster)
    _, *producer = transactions.init_producer_id("id", 60_000)
    records = producer_batch((b"v",), producer[0], producer[1], 0)
    started = world.now
    found, _ = produce(world, cluster, partition.leader, records, transactional_id="id")
    assert (found.error_code, found.base_offset) == (0, 0)
    assert (world.now > started) == bool(share)


def test_a_transaction_ends_between_verification_and_append(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_requests, "ASYNCHRONOUS_SHARE", 1.0)
    monkeypatch.setattr(TransactionCoordinator, "marker_seconds", (0.0, 0.0005))
    world = World(1)
    cluster, partition = cluster_of(world)
    transactions = TransactionCoordinator.of(cluster)
    _, *producer = transactions.init_producer_id("id", 60_000)
    records = producer_batch((b"v",), producer[0], producer[1], 0)
    broker = cluster.brokers[partition.leader]
    values = request_of(records, transactional_id="id")
    request = _as_received(12, values)
    reply = broker.handle("Produce", 12, request, "client")
    assert isinstance(reply, Delayed)
    assert transactions.end("id", (producer[0], producer[1]), commit=True, bumps_epoch=True).error_code == 0
    world.run_for(0.05)
    response = reply.poll()
    assert response is not None
    assert response["responses"][0]["partition_responses"][0]["error_code"] in (47, 48)
    assert values_of(partition, partition.leader) != [b"v"]


def test_a_leader_that_is_isolated_cannot_verify() -> None:
    world = World(1)
    cluster, partition = cluster_of(world)
    transactions = TransactionCoordinator.of(cluster)
    _, *producer = transactions.init_producer_id("id", 60_000)
    cluster.brokers[partition.leader].isolated_until = world.now + 1
    records = producer_batch((b"v",), producer[0], producer[1], 0)
    found, _ = produce(world, cluster, partition.leader, records, transactional_id="id")
    assert found.error_code == 19
    assert found.error_message.endswith("Underlying error: NETWORK_EXCEPTION")


def test_compressed_batches_are_parsed() -> None:
    from tests.unit.records.batches import CODECS, compress

    world = World(1)
    cluster, partition = cluster_of(world, brokers=1)
    plain = PLAIN[61:]
    for codec, number in CODECS.items():
        records = producer_batch(attributes=number, records=compress(codec, plain))
        assert produce(world, cluster, 1, records)[0].error_code == 0, codec
    assert values_of(partition, 1) == [b"v"] * len(CODECS)


def test_headers_of_incomplete_batches_are_ignored() -> None:
    assert [header.record_count for header in read_batch_headers(PLAIN + PLAIN)] == [1, 1]
    assert len(read_batch_headers(PLAIN + PLAIN[:-1])) == 1
    assert read_batch_headers(PLAIN[:60]) == []
    for damaged in (b"\xff" * 100, PLAIN + b"\0" * 20, PLAIN[:16] + b"\x03" + PLAIN[17:]):
        with pytest.raises(ValueError, match="a batch"):
            read_batch_headers(damaged)


def _as_received(version: int, values: dict[str, Any]) -> Any:
    from tests.simulation import wire

    return wire.decode_request(messages.encode(messages.PRODUCE, version, 1, b"client", values)).values


@pytest.mark.parametrize("rejects", [False, True])
def test_old_brokers_reject_later_batches_of_a_producer_that_they_have_forgotten(rejects: bool) -> None:
    world = World(1)
    cluster, _ = cluster_of(world, brokers=1, rejects_unknown_producers=rejects)
    produce(world, cluster, 1, producer_batch(producer_id=7, epoch=0, sequence=0, attributes=0))
    apply_event(cluster, "forget_producers", {"topic": "topic", "partition": 0})
    found, _ = produce(world, cluster, 1, producer_batch(producer_id=7, epoch=0, sequence=1, attributes=0))
    assert found.error_code == (59 if rejects else 0)
    found, _ = produce(world, cluster, 1, producer_batch(producer_id=7, epoch=1, sequence=0, attributes=0))
    assert found.error_code == 0
