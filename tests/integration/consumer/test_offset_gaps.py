"""Offsets without a record to return: compaction gaps, transaction markers, aborted and uncommitted records.

None of them is data loss, and none of them blocks a read.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.integration.open_transactions import COMMITTED, new_transactional_producer, write_open_transaction
from tests.integration.topics import wait_until_stable

from pyspark_kafka_direct.errors import BrokerTimeoutError

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench

VISIBLE = {0, 1, 2, 3, 4, 10, 11}
MARKERS = {5, 9, 12, 15}
ABORTED = {6, 7, 8, 13, 14}


def test_read_committed_returns_committed_records(bench: Workbench, mixed: str) -> None:
    for first in range(17):
        for until in range(first, 17):
            read = bench.read(mixed, first, until, kafka=COMMITTED)
            wanted = set(range(first, until))
            assert read.offsets == sorted(wanted & VISIBLE), (first, until)
            counts = read.counts
            assert (counts.records, counts.aborted, counts.control, counts.gaps, counts.lost, counts.retries) == (
                len(wanted & VISIBLE),
                len(wanted & ABORTED),
                len(wanted & MARKERS),
                0,
                0,
                0,
            ), (first, until)
    assert all(value.startswith((b"plain", b"committed")) for value in bench.read(mixed, 0, 16, kafka=COMMITTED).values)


def test_read_uncommitted_returns_aborted_records_too(bench: Workbench, mixed: str) -> None:
    for first in range(17):
        read = bench.read(mixed, first, 16)
        assert read.offsets == [offset for offset in range(first, 16) if offset not in MARKERS], first
        assert (read.counts.aborted, read.counts.retries) == (0, 0)


def test_transactions_that_overlap(bench: Workbench) -> None:
    """Two producers write in turn, one commits, one aborts; fetches are as small as possible."""
    topic = bench.make_topic()
    good, bad = new_transactional_producer(bench, topic), new_transactional_producer(bench, topic)
    good.begin_transaction()
    bad.begin_transaction()
    for number in range(40):
        producer, name = (good, b"good") if number % 2 else (bad, b"bad")
        producer.produce(topic, name, partition=0)
        assert producer.flush(300) == 0
    bad.abort_transaction(600)
    good.commit_transaction(600)
    wait_until_stable(bench.bootstrap_servers, topic, 42)
    for first in (0, 1, 2, 17):
        read = bench.read(topic, first, 42, kafka=COMMITTED | {"max.partition.fetch.bytes": 1})
        assert read.offsets == [offset for offset in range(first, 40) if offset % 2]
        assert set(read.values) == {b"good"}
        assert read.counts.fetches == 42 - first


def test_only_aborted_records_give_nothing(bench: Workbench) -> None:
    topic = bench.make_topic()
    producer = new_transactional_producer(bench, topic)
    write_open_transaction(producer, topic, [b"a"] * 50)
    producer.abort_transaction(600)
    wait_until_stable(bench.bootstrap_servers, topic, 51)
    read = bench.read(topic, 0, 51, kafka=COMMITTED)
    assert (read.batches, read.counts.aborted, read.counts.control, read.counts.retries) == ([], 50, 1, 0)


def test_an_open_transaction_is_waited_for(bench: Workbench) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"before"])
    producer = new_transactional_producer(bench, topic)
    write_open_transaction(producer, topic, [b"in", b"in"])
    bench.write(topic, [b"after"])
    batches = bench.open(bench.request(topic, 0, 4), **COMMITTED)
    assert next(batches).column("value").to_pylist() == [b"before"]
    producer.commit_transaction(600)
    rest = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert rest == [b"in", b"in", b"after"]


def test_transaction_that_stays_open_fails_the_read_after_the_timeout(bench: Workbench) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"before"])
    producer = new_transactional_producer(bench, topic)
    write_open_transaction(producer, topic, [b"in"])
    bench.write(topic, [b"after"])
    batches = bench.open(bench.request(topic, 0, 3, poll_timeout=5.0), **COMMITTED)
    assert next(batches).column("value").to_pylist() == [b"before"]
    started = time.monotonic()
    with pytest.raises(
        BrokerTimeoutError, match=r"5 s \(option kafkaConsumer\.pollTimeoutMs\).*transaction is open.*offset 1"
    ) as caught:
        next(batches)
    assert time.monotonic() - started > 4.9
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 1)
    producer.abort_transaction(600)
    assert bench.read(topic, 0, 3).values == [b"before", b"in", b"after"]


def test_compaction_gaps_are_only_counted(bench: Workbench, compacted: str) -> None:
    end = bench.end(compacted)
    complete = bench.read(compacted, 0, end)
    remaining_offsets = complete.offsets
    assert remaining_offsets == sorted(set(remaining_offsets))
    assert len(remaining_offsets) < 200
    assert complete.values == [b"value-%d" % offset for offset in remaining_offsets]
    assert (complete.counts.gaps, complete.counts.lost, complete.counts.retries) == (end - len(remaining_offsets), 0, 0)
    for first, until in [(0, 100), (1, 50), (50, 51), (293, 300), (300, 599), (301, 601), (599, end), (end - 1, end)]:
        read = bench.read(compacted, first, until)
        assert read.offsets == [offset for offset in remaining_offsets if first <= offset < until], (first, until)
        assert (read.counts.gaps, read.counts.lost) == (until - first - len(read.offsets), 0), (first, until)


def test_range_that_is_one_gap_is_empty(bench: Workbench, compacted: str) -> None:
    read = bench.read(compacted, 10, 250)
    assert (read.batches, read.counts.gaps, read.counts.retries) == ([], 240, 0)
    assert read.counts.fetches <= 2
