"""What follows from how far a log was read."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from tests.unit.log.log_cluster import tp

from pyspark_kafka_direct.log.log_state import LogState, Reading, SuspectedTruncation

READ = LogState(2, {tp(0): 1}, UUID(int=1), {tp(0): 7, tp(1): 3}, {tp(0): 5}, {tp(0): 9, tp(1): 4}, current_as_of=100.0)


@pytest.mark.parametrize(
    ("topic_id", "epoch", "expected"),
    [
        (UUID(int=1), 5, False),
        (UUID(int=1), 4, False),
        (UUID(int=1), -1, False),
        (None, 5, False),
        (UUID(int=2), -1, True),
        (UUID(int=1), 6, True),
    ],
    ids=["same", "earlier-leader", "unknown-leader", "unknown-topic", "other-topic", "later-leader"],
)
def test_a_record_of_another_topic_or_of_a_later_leader_may_be_missing(
    topic_id: UUID | None, epoch: int, expected: bool
) -> None:
    assert READ.may_lack(tp(0), topic_id, epoch) is expected
    assert READ.may_lack(tp(1), topic_id, epoch) is (topic_id == UUID(int=2)), "no epoch of it is known"


@pytest.mark.parametrize(
    ("topic_id", "epoch", "expected"),
    [
        (UUID(int=1), 6, True),
        (UUID(int=1), 7, False),
        (None, 7, False),
        (UUID(int=2), 7, True),
    ],
    ids=["same-leader", "later-leader", "unknown-topic", "other-topic"],
)
def test_a_leader_confirms_the_records_of_earlier_ones(topic_id: UUID | None, epoch: int, expected: bool) -> None:
    confirmed = replace(READ, confirmed_epochs={tp(0): 6, tp(1): -1})
    assert confirmed.is_confirmed(tp(0), topic_id, epoch) is expected
    assert confirmed.is_confirmed(tp(1), topic_id, epoch), "no epoch of it is known"


def test_a_table_that_is_loaded_again_has_delivered_nothing() -> None:
    reloading = READ.of_next_generation(reloads=True).with_positions({tp(0): 7})
    assert READ.has_delivered({tp(0): 7})
    assert not READ.has_delivered({tp(0): 8})
    assert not READ.has_delivered({tp(2): 1})
    assert not reloading.has_delivered({tp(0): 7})
    assert not reloading.of_next_generation().with_positions({tp(0): 7}).has_delivered({tp(0): 7})
    assert not reloading.with_reread(tp(1), 0).has_delivered({tp(0): 7})
    assert reloading.at_ends(200.0).has_delivered({tp(0): 7})


def test_a_log_is_current_as_of_its_last_ends_until_records_are_replaced() -> None:
    assert READ.at_ends(200.0).current_as_of == 200.0
    reloaded = READ.of_next_generation()
    assert reloaded == LogState(3, {tp(0): 1}, UUID(int=1), {}, {tp(0): 5})
    reread = READ.with_reread(tp(0), 4)
    assert reread == LogState(2, {tp(0): 2}, UUID(int=1), {tp(0): 4, tp(1): 3}, {tp(0): 5}, {tp(1): 4})


def test_records_that_are_read_again_are_another_reading_of_their_partition_only() -> None:
    reread = READ.with_reread(tp(1), 0)
    assert [reread.reading(tp(number)) for number in (0, 1)] == [READ.reading(tp(0)), Reading(2, 1)]
    reloaded = reread.of_next_generation()
    assert [reloaded.reading(tp(number)) for number in (0, 1)] == [Reading(3, 1), Reading(3, 1)]


@pytest.mark.parametrize(("offset", "expected"), [(6, True), (0, True), (7, False), (-1, False)])
def test_a_record_below_the_position_shows_that_the_log_was_truncated(offset: int, expected: bool) -> None:
    evidence = SuspectedTruncation(tp(0), offset, Reading(2, 1), 50.0) if expected else None
    assert READ.suspected_truncation(tp(0), offset, 50.0) == evidence
    assert READ.suspected_truncation(tp(2), 0, 50.0) is None
