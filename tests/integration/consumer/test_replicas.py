"""Three brokers: leaders that move while they are read, and reads from the follower in the same rack (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.consumer.leader_moves import NODES, address, move

from pyspark_kafka_direct.client.cluster_client import Node, PartitionLeader
from pyspark_kafka_direct.consumer.range_task import ReadCounts
from pyspark_kafka_direct.errors import DataLossError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka

BATCHES, BATCH_SIZE = 10, 10
COUNT = BATCHES * BATCH_SIZE
ONE_BATCH: dict[str, Any] = {"max_partition_fetch_bytes": 1}


@pytest.fixture(scope="module")
def bench(three_brokers: EmbeddedKafka, workbench_for: Callable[[EmbeddedKafka], Workbench]) -> Workbench:
    return workbench_for(three_brokers)


def fill(bench: Workbench, topic: str, partition: int = 0) -> None:
    starts = range(0, COUNT, BATCH_SIZE)
    batches = ([b"value-%d" % offset for offset in range(start, start + BATCH_SIZE)] for start in starts)
    bench.write(topic, *batches, partition=partition)


def test_moved_leader_is_followed(bench: Workbench) -> None:
    """To another broker and back; the old leader has no replica."""
    topic = bench.make_topic(replication=1)
    fill(bench, topic)
    first = bench.leader(topic)
    second = next(node for node in NODES if node != first)
    counts = ReadCounts()
    batches = bench.open(bench.request(topic, 0, COUNT), counts, **ONE_BATCH)
    offsets = next(batches).column("offset").to_pylist()
    move(bench, topic, [second])
    for _ in range(3):
        offsets += next(batches).column("offset").to_pylist()
    move(bench, topic, [first])
    offsets += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(COUNT))
    assert counts.brokers == [address(bench, first), address(bench, second)]
    assert counts.retries > 0
    assert (counts.records, counts.lost, counts.gaps) == (COUNT, 0, 0)


def test_planned_leader_is_fetched_without_metadata_request(bench: Workbench) -> None:
    """Even the bootstrap server need not be reachable."""
    topic = bench.make_topic(replication=3)
    fill(bench, topic)
    request = bench.request(topic, 0, COUNT, leader=bench.known_leader(topic))
    read = bench.run(request, bootstrap_servers="127.0.0.1:1")
    assert read.offsets == list(range(COUNT))
    assert read.counts.brokers == [address(bench, bench.leader(topic))]


@pytest.mark.parametrize("stays_follower", [False, True])
def test_former_leader_rejects_the_fetch(bench: Workbench, stays_follower: bool) -> None:
    topic = bench.make_topic(replication=1)
    fill(bench, topic)
    request = bench.request(topic, 0, COUNT, leader=bench.known_leader(topic))
    first = bench.leader(topic)
    others = [node for node in NODES if node != first]
    move(bench, topic, [others[0], first] if stays_follower else others[:1])
    read = bench.run(request)
    assert read.offsets == list(range(COUNT))
    assert read.counts.brokers == [address(bench, first), address(bench, bench.leader(topic))]


def test_unreachable_planned_leader_is_replaced(bench: Workbench) -> None:
    topic = bench.make_topic(replication=3)
    fill(bench, topic)
    unreachable = PartitionLeader(Node(9, "127.0.0.1", 1), 0)
    read = bench.run(bench.request(topic, 0, COUNT, leader=unreachable))
    assert read.offsets == list(range(COUNT))
    assert (read.counts.retries, read.counts.brokers) == (1, [address(bench, bench.leader(topic))])


def test_follower_in_the_same_rack_is_used(bench: Workbench) -> None:
    topic = bench.make_topic(replication=3)
    fill(bench, topic)
    leader = bench.leader(topic)
    for node in NODES:
        read = bench.read(topic, 0, COUNT, kafka={"client.rack": f"rack-{node}", "max.partition.fetch.bytes": 1})
        assert read.offsets == list(range(COUNT))
        servers = [leader] if node == leader else [leader, node]
        assert read.counts.brokers == [address(bench, server) for server in servers]
    read = bench.read(topic, 0, COUNT, kafka={"client.rack": "rack-nowhere"})
    assert read.counts.brokers == [address(bench, leader)]


def test_lagging_follower_loses_no_records(bench: Workbench) -> None:
    """The follower learns the new high watermark up to half a second late."""
    topic = bench.make_topic(replication=3)
    node = next(node for node in NODES if node != bench.leader(topic))
    topic_id = bench.topic_id(topic)
    for number in range(20):
        bench.write(topic, [b"value-%d" % number])
        read = bench.read(topic, number, number + 1, topic_id=topic_id, kafka={"client.rack": f"rack-{node}"})
        assert read.values == [b"value-%d" % number]
        assert read.counts.lost == 0


def test_only_the_leader_reports_data_loss(bench: Workbench) -> None:
    topic = bench.make_topic(replication=3)
    fill(bench, topic)
    leader = bench.leader(topic)
    node = next(node for node in NODES if node != leader)
    bench.delete_records(topic, 35)
    rack = {"client.rack": f"rack-{node}"}
    read = bench.read(topic, 20, 150, fail_on_data_loss=False, kafka=rack)
    assert read.offsets == list(range(35, COUNT))
    assert read.counts.lost == 15 + 50


@pytest.mark.soak
def test_log_truncated_under_its_readers(
    three_brokers: EmbeddedKafka, bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    """Unclean election: a replica with only ten records becomes the leader, and others are written."""
    topic = bench.make_topic(replication=2, unclean_leader_election_enable="true", min_insync_replicas=1)
    bench.write(topic, [b"old"] * 10)
    leader = bench.leader(topic)
    lagging = next(node for node in bench.replicas(topic) if node != leader)
    three_brokers.stop_broker(lagging)
    bench.write(topic, *[[b"old"] * 5] * 4)
    requests = [bench.request(topic, 0, 30, fail_on_data_loss=fail) for fail in (True, False)]
    strict, lenient = ReadCounts(), ReadCounts()
    failing = bench.open(requests[0], strict, **ONE_BATCH)
    continuing = bench.open(requests[1], lenient, **ONE_BATCH)
    rows = []
    for _ in range(2):  # offsets 0 to 14; the response with 15 to 19 may be in flight
        next(failing)
        rows += next(continuing).to_pylist()
    three_brokers.kill_broker(leader)
    try:
        three_brokers.start_broker(lagging)
        bench.wait_until(lambda: bench.leader(topic) == lagging, "an unclean election")
        bench.write(topic, *[[b"new"] * 5] * 4)
        with pytest.raises(
            DataLossError, match=r"data loss \(log truncated\).*offsets \[10, (15|20)\).*truncated to offset 10"
        ):
            list(failing)
        with caplog.at_level("WARNING", logger="pyspark_kafka_direct.consumer"):
            rows += [row for batch in continuing for row in batch.to_pylist()]
    finally:
        three_brokers.start_broker(leader)
    read_before = [row["value"] for row in rows].index(b"new")
    assert read_before in (15, 20)
    assert [row["offset"] for row in rows] == list(range(30))
    assert [row["value"] for row in rows[read_before:]] == [b"new"] * (30 - read_before)
    assert lenient.lost == read_before - 10
    assert "log truncated" in caplog.text
    assert bench.count(requests[0]) == 30  # a new read is complete, and has only new records from 10 on


@pytest.mark.soak
def test_broker_failure_during_reads(three_brokers: EmbeddedKafka, bench: Workbench) -> None:
    """One read uses the broker as the leader, one as the follower in its rack. Neither loses or repeats records."""
    topic = bench.make_topic(partitions=6, replication=3)
    leaders = {partition: bench.leader(topic, partition) for partition in range(6)}
    failing_broker = leaders[0]
    followed = next(partition for partition, leader in leaders.items() if leader != failing_broker)
    offsets: dict[int, list[int]] = {}
    reads = {}
    for partition, rack in ((0, ""), (followed, f"rack-{failing_broker}")):
        fill(bench, topic, partition)
        counts = ReadCounts()
        batches = bench.open(bench.request(topic, 0, COUNT, partition=partition), counts, client_rack=rack, **ONE_BATCH)
        offsets[partition] = next(batches).column("offset").to_pylist()
        assert counts.brokers[-1] == address(bench, failing_broker)
        reads[partition] = (batches, counts)
    three_brokers.kill_broker(failing_broker)
    for partition, (batches, counts) in reads.items():
        offsets[partition] += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
        assert offsets[partition] == list(range(COUNT))
        assert (counts.records, counts.lost, counts.gaps) == (COUNT, 0, 0)
        assert counts.retries > 0
    assert reads[followed][1].brokers == [address(bench, leaders[followed]), address(bench, failing_broker)]
    assert len(reads[0][1].brokers) == 2
