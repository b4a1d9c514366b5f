"""Three brokers: leaders that move while they are read, and reading from the follower in our rack (KIP-392)."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.direct.generations import Generations
from tests.integration.reading.replicas import NODES, address, move

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.direct import ConsumerStrategies
from pyspark_kafka_direct.errors import DataLossError
from pyspark_kafka_direct.reading.counts import ReadCounts
from pyspark_kafka_direct.reading.range_counter import count_range
from pyspark_kafka_direct.wire.cluster import Node, PartitionLeader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.workbench import Workbench

BATCHES, BATCH_SIZE = 10, 10
COUNT = BATCHES * BATCH_SIZE
ONE_BATCH: dict[str, Any] = {"max_partition_fetch_bytes": 1}


@pytest.fixture(scope="module")
def three() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(3, reuse_running=False) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def bench(three: EmbeddedKafka, workbench_for: Callable[[EmbeddedKafka], Workbench]) -> Workbench:
    return workbench_for(three)


def fill(bench: Workbench, topic: str, partition: int = 0) -> None:
    starts = range(0, COUNT, BATCH_SIZE)
    batches = ([b"value-%d" % offset for offset in range(start, start + BATCH_SIZE)] for start in starts)
    bench.write(topic, *batches, partition=partition)


def test_a_leader_that_moves(bench: Workbench) -> None:
    """To another broker and back again, while the old leader keeps no replica."""
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
    assert (counts.records, counts.lost, counts.holes) == (COUNT, 0, 0)


def test_the_planned_leader_is_asked_at_once(bench: Workbench) -> None:
    """Without looking it up: the bootstrap server need not even be there."""
    topic = bench.make_topic(replication=3)
    fill(bench, topic)
    request = bench.request(topic, 0, COUNT, leader=bench.known_leader(topic))
    read = bench.run(request, bootstrap_servers="127.0.0.1:1")
    assert read.offsets == list(range(COUNT))
    assert read.counts.brokers == [address(bench, bench.leader(topic))]


@pytest.mark.parametrize("stays", [False, True])
def test_a_planned_leader_that_leads_no_more_refuses(bench: Workbench, stays: bool) -> None:
    topic = bench.make_topic(replication=1)
    fill(bench, topic)
    request = bench.request(topic, 0, COUNT, leader=bench.known_leader(topic))
    first = bench.leader(topic)
    others = [node for node in NODES if node != first]
    move(bench, topic, [others[0], first] if stays else others[:1])
    read = bench.run(request)
    assert read.offsets == list(range(COUNT))
    assert read.counts.brokers == [address(bench, first), address(bench, bench.leader(topic))]


def test_a_planned_leader_that_is_not_there_is_looked_up(bench: Workbench) -> None:
    topic = bench.make_topic(replication=3)
    fill(bench, topic)
    nobody = PartitionLeader(Node(9, "127.0.0.1", 1), 0)
    read = bench.run(bench.request(topic, 0, COUNT, leader=nobody))
    assert read.offsets == list(range(COUNT))
    assert (read.counts.retries, read.counts.brokers) == (1, [address(bench, bench.leader(topic))])


def test_the_follower_in_our_rack_serves(bench: Workbench) -> None:
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


def test_a_follower_that_is_behind_loses_nothing(bench: Workbench) -> None:
    """Read at once what was written just now: the follower does not know yet that it is committed, and must not make us
    wait until it does (half a second)."""
    topic = bench.make_topic(replication=3)
    node = next(node for node in NODES if node != bench.leader(topic))
    request = bench.request(topic, 0, 1)
    waits = []
    for number in range(20):
        bench.write(topic, [b"value-%d" % number])
        read = bench.read(topic, number, number + 1, topic_id=request.topic_id, kafka={"client.rack": f"rack-{node}"})
        assert read.values == [b"value-%d" % number]
        assert read.counts.lost == 0
        waits.append(read.counts.wait_seconds)
    assert statistics.median(waits) < 0.2, waits  # a busy machine may be slow now and then


def test_loss_is_for_the_leader_to_tell(bench: Workbench) -> None:
    topic = bench.make_topic(replication=3)
    fill(bench, topic)
    leader = bench.leader(topic)
    node = next(node for node in NODES if node != leader)
    bench.delete_records(topic, 35)
    rack = {"client.rack": f"rack-{node}"}
    read = bench.read(topic, 20, 150, fail_on_data_loss=False, kafka=rack)
    assert read.offsets == list(range(35, COUNT))
    assert read.counts.lost == 15 + 50


def test_a_log_that_is_cut_under_its_readers(
    three: EmbeddedKafka, bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    """An unclean election: a replica that has seen ten records only becomes the leader, and others are written."""
    topic = bench.make_topic(replication=2, unclean_leader_election_enable="true", min_insync_replicas=1)
    bench.write(topic, [b"old"] * 10)
    leading = bench.leader(topic)
    behind = next(node for node in bench.replicas(topic) if node != leading)
    three.stop_broker(behind)
    bench.write(topic, *[[b"old"] * 5] * 4)
    requests = [bench.request(topic, 0, 30, fail_on_data_loss=fail) for fail in (True, False)]
    strict, lenient = ReadCounts(), ReadCounts()
    failing = bench.open(requests[0], strict, **ONE_BATCH)
    going_on = bench.open(requests[1], lenient, **ONE_BATCH)
    rows = []
    for _ in range(2):  # offsets 0 to 14, and the answer with 15 to 19 may be under way
        next(failing)
        rows += next(going_on).to_pylist()
    three.kill_broker(leading)
    try:
        three.start_broker(behind)
        bench.wait_until(lambda: bench.leader(topic) == behind, "an unclean election", 120)
        bench.write(topic, *[[b"new"] * 5] * 4)
        with pytest.raises(
            DataLossError, match=r"data loss \(log cut back\).*offsets \[10, (15|20)\).*cut at offset 10"
        ):
            list(failing)
        with caplog.at_level("WARNING", logger="pyspark_kafka_direct.reading"):
            rows += [row for batch in going_on for row in batch.to_pylist()]
    finally:
        three.start_broker(leading)
    read_before = [row["value"] for row in rows].index(b"new")
    assert read_before in (15, 20)
    assert [row["offset"] for row in rows] == list(range(30))
    assert [row["value"] for row in rows[read_before:]] == [b"new"] * (30 - read_before)
    assert lenient.lost == read_before - 10
    assert "log cut back" in caplog.text
    assert count_range(*bench.settings(), requests[0]) == 30  # read anew it is whole, and only new from 10 on


def test_a_direct_stream_whose_log_is_cut(three: EmbeddedKafka, bench: Workbench) -> None:
    """It fails whatever failOnDataLoss says, until the log is as long again: that is then not noticed."""
    topic = bench.make_topic(replication=2, unclean_leader_election_enable="true", min_insync_replicas=1)
    bench.write(topic, [b"old"] * 10)
    leading = bench.leader(topic)
    behind = next(node for node in bench.replicas(topic) if node != leading)
    three.stop_broker(behind)
    bench.write(topic, [b"old"] * 20)
    base = {"bootstrap.servers": bench.bootstrap_servers, "auto.offset.reset": "earliest"}
    streams = [
        Generations(ConsumerStrategies.Subscribe([topic], {**base, "failOnDataLoss": fail})) for fail in (True, False)
    ]
    for each in streams:
        assert [(span.from_offset, span.until_offset) for span in each.batch(1000)] == [(0, 30)]
    three.kill_broker(leading)
    try:
        three.start_broker(behind)
        bench.wait_until(lambda: bench.leader(topic) == behind, "an unclean election", 120)
        for each in streams:
            with pytest.raises(DataLossError, match=rf"{topic}-0's offset was changed from 30 to 10") as failure:
                each.batch(2000)
            assert (failure.value.topic, failure.value.partition) == (topic, 0)
        bench.write(topic, [b"new"] * 25)
        for each in streams:
            assert [(span.from_offset, span.until_offset) for span in each.batch(3000)] == [(30, 35)]
    finally:
        three.start_broker(leading)


def test_a_broker_that_dies_under_its_readers(three: EmbeddedKafka, bench: Workbench) -> None:
    """One reads from it as the leader, one as the follower in its rack. Nothing is lost, nothing comes twice."""
    topic = bench.make_topic(partitions=6, replication=3)
    leaders = {partition: bench.leader(topic, partition) for partition in range(6)}
    dying = leaders[0]
    followed = next(partition for partition, leader in leaders.items() if leader != dying)
    taken: dict[int, list[int]] = {}
    reads = {}
    for partition, rack in ((0, ""), (followed, f"rack-{dying}")):
        fill(bench, topic, partition)
        counts = ReadCounts()
        batches = bench.open(bench.request(topic, 0, COUNT, partition=partition), counts, client_rack=rack, **ONE_BATCH)
        taken[partition] = next(batches).column("offset").to_pylist()
        assert counts.brokers[-1] == address(bench, dying)
        reads[partition] = (batches, counts)
    three.kill_broker(dying)
    for partition, (batches, counts) in reads.items():
        taken[partition] += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
        assert taken[partition] == list(range(COUNT))
        assert (counts.records, counts.lost, counts.holes) == (COUNT, 0, 0)
        assert counts.retries > 0
    assert reads[followed][1].brokers == [address(bench, leaders[followed]), address(bench, dying)]
    assert len(reads[0][1].brokers) == 2
