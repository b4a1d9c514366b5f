"""Which blocked partitions are reported, and when the high watermarks are requested for it."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.examples import seeds

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.open_transactions import (
    CHECK_INTERVAL,
    MAX_BLOCKED,
    REPORT_AFTER,
    BlockedPartition,
    BlockedPartitions,
    OpenTransaction,
    describe_blocked,
)

if TYPE_CHECKING:
    import random

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def test_the_first_check_reports_blocked_partitions_once() -> None:
    blocked = BlockedPartitions()
    assert blocked.update({T0: 10, T1: 7}, {T0: 511, T1: 7}, 100.0) == [BlockedPartition(T0, 10, 511, 100.0)]
    for now in range(105, 200, 5):
        assert blocked.update({T0: 10, T1: 7}, {T0: 600, T1: 7}, float(now)) == []


def test_later_a_transaction_is_reported_when_it_has_blocked_for_a_while() -> None:
    blocked = BlockedPartitions()
    assert blocked.update({T0: 10}, {T0: 10}, 100.0) == []
    assert blocked.update({T0: 12}, {T0: 20}, 105.0) == []
    assert blocked.update({T0: 15}, {T0: 30}, 110.0) == [], "the end has moved"
    assert blocked.update({T0: 15}, {T0: 30}, 115.0) == []
    assert blocked.update({T0: 15}, {T0: 40}, 120.0) == [BlockedPartition(T0, 15, 40, 110.0)]
    assert blocked.update({T0: 40}, {T0: 40}, 125.0) == []
    for now, expected in ((130.0, []), (135.0, []), (140.0, [BlockedPartition(T0, 45, 50, 130.0)])):
        assert blocked.update({T0: 45}, {T0: 50}, now) == expected, "another transaction"


@pytest.mark.parametrize("interval", [CHECK_INTERVAL, 60.0, 3600.0])
def test_short_transactions_are_not_reported_however_rare_the_checks_are(interval: float) -> None:
    """A writer of exactly-once output nearly always has one open, for example between two checkpoints of Flink."""
    blocked = BlockedPartitions()
    assert blocked.update({T0: 10}, {T0: 10}, 0.0) == []
    for number in range(1, 20):
        offset = 10 + 5 * number
        assert blocked.update({T0: offset}, {T0: offset + 3}, number * interval) == []
    now = 20 * max(interval, REPORT_AFTER)
    assert blocked.update({T0: 105}, {T0: 200}, now) == [BlockedPartition(T0, 105, 200, 19 * interval)]


def test_partitions_of_deleted_topics_are_forgotten() -> None:
    """A pattern may select a topic of each hour, for years."""
    blocked = BlockedPartitions()
    first = {TopicPartition(f"hour-{number:05}", 0): 5 for number in range(MAX_BLOCKED)}
    assert len(blocked.update(first, dict.fromkeys(first, 9), 100.0)) == MAX_BLOCKED
    assert blocked.update(first, dict.fromkeys(first, 9), 200.0) == [], "all are remembered"
    for number in range(10):
        assert blocked.update({TopicPartition("later", number): 5}, {TopicPartition("later", number): 9}, 300.0) == []
    assert len(blocked._blocked) == MAX_BLOCKED
    reached = dict.fromkeys(first, 9)
    assert blocked.update(reached, reached, 400.0) == []
    assert len(blocked._blocked) == 10, "nothing is remembered of partitions that are not blocked"


def test_missing_high_watermarks_report_nothing() -> None:
    blocked = BlockedPartitions()
    assert blocked.update({T0: 9}, {T0: 9}, -5.0) == []
    assert blocked.update({T0: 10}, {}, 0.0) == []
    assert blocked.update({T0: 10}, {T0: 20}, 5.0) == []
    assert blocked.update({T0: 10}, {}, 10.0) == []
    assert blocked.update({T0: 10}, {T0: 20}, 15.0) == [BlockedPartition(T0, 10, 20, 5.0)]


def test_the_first_check_with_high_watermarks_reports_at_once() -> None:
    blocked = BlockedPartitions()
    assert blocked.update({T0: 10}, {}, 0.0) == []
    assert blocked.update({T0: 10}, {T0: 20}, 5.0) == [BlockedPartition(T0, 10, 20, 5.0)]


def test_when_high_watermarks_are_requested() -> None:
    blocked = BlockedPartitions()
    assert blocked.is_check_due(0.0)
    blocked.update({T0: 10}, {T0: 10}, 0.0)
    assert not blocked.is_check_due(CHECK_INTERVAL - 0.01)
    assert blocked.is_check_due(CHECK_INTERVAL)


def test_each_transaction_is_reported_at_most_once_and_every_long_one_is() -> None:
    @seeds(200)
    def check(source: random.Random) -> None:
        check_random_history(source)

    check()


def check_random_history(source: random.Random) -> None:
    blocked, now, stable, end = BlockedPartitions(), 0.0, 0, 0
    reports: Counter[int] = Counter()
    first_seen: dict[int, float] = {}
    for _ in range(source.randrange(2, 60)):
        now += source.choice([CHECK_INTERVAL, CHECK_INTERVAL + 1, 2 * REPORT_AFTER])
        end += source.randrange(3)
        if source.random() < 0.3:
            stable = source.randint(stable, end)
        for each in blocked.update({T0: stable}, {T0: end}, now):
            assert (each.last_stable_offset, each.high_watermark) == (stable, end)
            reports[stable] += 1
        if stable < end:
            first_seen.setdefault(stable, now)
            if now - first_seen[stable] >= REPORT_AFTER:
                assert reports[stable] == 1
    assert all(count == 1 for count in reports.values())


@pytest.mark.parametrize(
    ("transactions", "producer"),
    [
        ({}, ""),
        ({T0: ()}, ""),
        ({T0: (OpenTransaction(9, 0, 20),)}, ""),
        (
            {T0: (OpenTransaction(9, 0, 20), OpenTransaction(7, 3, 10))},
            " by producer id 7 (epoch 3)",
        ),
    ],
)
def test_the_warning(transactions: dict[TopicPartition, tuple[OpenTransaction, ...]], producer: str) -> None:
    message = describe_blocked([BlockedPartition(T0, 10, 511, 100.0)], transactions, 1_795_254_310.0)
    assert (
        f"t-0 is blocked since 2026-11-21 09:46:50 UTC{producer}: 501 offsets from 10 on cannot be read yet." in message
    )
    assert "isolation.level=read_committed" in message
    assert "kafka-transactions.sh" in message


def test_the_warning_names_the_producers_of_each_partition() -> None:
    partitions = [TopicPartition(topic, number) for topic in "tu" for number in range(2)]
    for listed in itertools.permutations(partitions, 3):
        blocked = [BlockedPartition(tp, 10, 11 + index, 0.0) for index, tp in enumerate(listed)]
        transactions = {tp: (OpenTransaction(7 + index, index, 10),) for index, tp in enumerate(listed)}
        del transactions[listed[1]]
        message = describe_blocked(blocked, transactions, 0.0)
        since = "is blocked since 1970-01-01 00:00:00 UTC"
        assert f"{listed[0]} {since} by producer id 7 (epoch 0): 1 offsets" in message
        assert f"{listed[1]} {since}: 2 offsets" in message
        assert f"{listed[2]} {since} by producer id 9 (epoch 2): 3 offsets" in message


def test_the_warning_lists_a_few_partitions() -> None:
    blocked = [BlockedPartition(TopicPartition("t", number), 1, 2, 0.0) for number in range(12)]
    message = describe_blocked(blocked, {}, 0.0)
    assert message.count("is blocked since") == 3
    assert "and 9 more" in message
    assert len(message) < 600
