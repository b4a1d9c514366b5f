"""A topic that gets more partitions while a log reads it, on a simulated cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.log.log_cluster import TOPIC, LogCluster, outcome, tp

from pyspark_kafka_direct.errors import IllegalLogStateError
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.async_producer import AsyncProducer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.log import KafkaBasedLog


@pytest.fixture
def cluster() -> Iterator[LogCluster]:
    with LogCluster(1) as cluster:
        yield cluster


@pytest.fixture
def log(cluster: LogCluster) -> Iterator[KafkaBasedLog]:
    with cluster.log_of() as log:
        yield log


def add_partition(cluster: LogCluster, *, start: int = 0, end: int = 1) -> None:
    cluster.event("expand_topic", topic=TOPIC)
    cluster.append(tp(1), end)
    cluster.delete_records(tp(1), start)


def test_a_read_to_the_end_covers_partitions_that_were_added(cluster: LogCluster, log: KafkaBasedLog) -> None:
    cluster.append(tp(0), 2)
    add_partition(cluster, start=5, end=8)
    assert outcome(log.read_to_end()) is None
    assert (cluster.offsets(0), cluster.offsets(1)) == ([0, 1], [5, 6, 7])
    assert log.partition_count == 2


def test_added_partitions_are_found_without_a_read(cluster: LogCluster, log: KafkaBasedLog) -> None:
    add_partition(cluster)
    cluster.sleep(330)  # metadata.max.age.ms, and the longest poll
    assert cluster.offsets(1) == [0]


def test_partitions_that_are_not_selected_are_not_added(cluster: LogCluster) -> None:
    with cluster.log_of(partitions=lambda number: number == 0) as log:
        add_partition(cluster)
        requests = []
        for _ in range(2):
            cluster.requests.clear()
            log.read_to_end().result(60)
            requests.append(len([each for each in cluster.requests if each.api != "Fetch"]))
        assert log.positions == {tp(0): 0}
        assert requests[1] < requests[0], "the topic is described once"


def test_a_wait_for_an_added_partition_finds_it(cluster: LogCluster, log: KafkaBasedLog) -> None:
    add_partition(cluster, end=3)
    log.wait_for({1: 1}, 5)
    assert log.positions[tp(1)] >= 2


def test_a_wait_for_a_partition_that_no_broker_knows_fails(cluster: LogCluster, log: KafkaBasedLog) -> None:
    for _ in range(2):
        start = cluster.now
        with pytest.raises(ValueError, match="settings-7 is not read by this log; it reads settings-0"):
            log.wait_for({7: 2}, 60)
        assert 5 <= cluster.now - start < 10, "it may have been created since the last time"


def test_a_read_waits_for_a_partition_that_has_records_of_the_log(cluster: LogCluster) -> None:
    """The brokers that are asked do not know it yet, but its leader has acknowledged a record."""
    producer = AsyncProducer(cluster.client(), ProducerSettings())
    with cluster.log_of(replace(cluster.clients(), produce=None, producer=producer)) as log:
        with cluster.outdated(1, 2):
            add_partition(cluster, end=0)
            sent = [log.send_with_receipt(b"k%d" % number, b"v").result(60).partition for number in (3, 0, 1, 2)]
        read = log.read_to_end()
        cluster.sleep(3)
        assert not read.done()
        cluster.heal()
        read.result(10)
        assert sorted(number for number, _ in cluster.delivered) == sorted(sent)
        assert set(sent) == {0, 1}
        assert sent[0] == 0, "the first one that the log wrote to is known"


def test_each_partition_that_has_records_of_the_log_is_found(cluster: LogCluster) -> None:
    producer = AsyncProducer(cluster.client(), ProducerSettings())
    with cluster.log_of(replace(cluster.clients(), produce=None, producer=producer)) as log:
        for number in (1, 2):
            with cluster.outdated(1, 2):
                cluster.event("expand_topic", topic=TOPIC)
                keys = (b"%d" % each for each in range(100))
                while log.send_with_receipt(next(keys), b"v").result(60).partition != number:
                    pass
            read = log.read_to_end()
            cluster.sleep(3)
            assert not read.done()
            cluster.heal()
            read.result(10)
            assert cluster.offsets(number) == [0]
            cluster.sleep(301)  # the producer then requests metadata again


def test_a_broker_that_does_not_know_an_added_partition_is_not_believed(
    cluster: LogCluster, log: KafkaBasedLog
) -> None:
    with cluster.outdated(1):
        add_partition(cluster)
    read = log.read_to_end()
    cluster.sleep(60)
    assert read.done() is (cluster.offsets(1) == [0])
    cluster.heal()
    read.result(5)


def test_each_read_of_a_table_with_more_partitions_fails(cluster: LogCluster) -> None:
    with cluster.table_of() as table:
        add_partition(cluster)
        with pytest.raises(IllegalLogStateError, match="has 2 partitions, and the table was made for 1"):
            table.read_to_end().result(60)
        for _ in range(2):
            with pytest.raises(IllegalLogStateError, match="has 2 partitions"):
                table.log.read_to_end().result(60)
        requests = len(cluster.requests)
        for use in (table.snapshot, table.read_to_end, lambda: table.wait_for({0: 0}, 0)):
            with pytest.raises(IllegalLogStateError, match="has 2 partitions"):
                use()
        assert len(cluster.requests) == requests
        assert table.log.positions == {tp(0): 0}
        cluster.event("recreate_topic", topic=TOPIC, partitions=1)
        cluster.put(b"k", b"v")
        cluster.sleep(60)
        assert table.snapshot() == {b"k": b"v"}, "the new topic has one partition"


@pytest.mark.parametrize("partitions", [2, 3])
def test_a_table_whose_topic_is_recreated_may_have_another_number_of_partitions(
    cluster: LogCluster, partitions: int
) -> None:
    with cluster.table_of() as table:
        cluster.put(b"old", b"v")
        add_partition(cluster, end=0)
        with pytest.raises(IllegalLogStateError, match="has 2 partitions, and the table was made for 1"):
            table.read_to_end().result(60)
        cluster.event("recreate_topic", topic=TOPIC, partitions=partitions)
        cluster.put(b"k", b"v", partition=partitions - 1)
        cluster.sleep(60)
        assert table.snapshot() == {b"k": b"v"}
        table.read_to_end().result(60)
        cluster.event("expand_topic", topic=TOPIC)
        message = f"has {partitions + 1} partitions, and the table was made for {partitions}"
        with pytest.raises(IllegalLogStateError, match=message):
            table.read_to_end().result(60)


def test_create_defines_the_number_of_partitions_of_a_recreated_topic(cluster: LogCluster) -> None:
    with cluster.table_of(create={"partitions": 1}) as table:
        cluster.event("recreate_topic", topic=TOPIC, partitions=2)
        cluster.sleep(60)
        with pytest.raises(IllegalLogStateError, match="has 2 partitions, and the table was made for 1"):
            table.snapshot()
        cluster.event("recreate_topic", topic=TOPIC, partitions=1)
        cluster.put(b"k", b"v")
        cluster.sleep(60)
        assert table.snapshot() == {b"k": b"v"}
    with pytest.raises(IllegalLogStateError, match="has 1 partitions, and the table was made for 2"):
        cluster.table_of(create={"partitions": 2}).start()
