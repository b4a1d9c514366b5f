"""What the loop does with answers that the real broker of the integration tests does not give, or not on demand."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from tests.unit.reading.scripted import TOPIC_ID, Place, answer, count, records

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    DataLossError,
    ProtocolError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.planning.loss import LogState
from pyspark_kafka_direct.reading import _fetch_loop
from pyspark_kafka_direct.reading.counts import ReadCounts
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.fetch import EpochEnd, FetchedPartition

REST = records(10, 50)
SILENCE = [answer()] * 10_000


@pytest.fixture
def counts() -> ReadCounts:
    return ReadCounts()


def test_what_follows_is_asked_for_before_it_is_needed(counts: ReadCounts) -> None:
    place = Place(records(10, 30), records(30, 60))
    assert count(place, counts) == 40
    assert place.asked == [10, 30]  # and nothing beyond the range
    assert (counts.fetches, counts.retries, place.told) == (2, 0, [])


@pytest.mark.parametrize(
    ("settings", "first", "following"),
    [
        ({}, 256 << 10, 4 << 20),
        ({"max_partition_fetch_bytes": "1000"}, 1000, 1000),
        ({"fetch_min_bytes": "1000000"}, 1_000_000, 4 << 20),
        ({"fetch_min_bytes": "9000000"}, 4 << 20, 4 << 20),
    ],
    ids=["defaults", "small-fetches", "large-minimum", "minimum-above-the-most"],
)
def test_the_first_fetch_is_small_until_there_are_records(
    counts: ReadCounts, settings: dict[str, Any], first: int, following: int
) -> None:
    moved = answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    place = Place(moved, records(10, 20), records(20, 30), records(30, 60))
    assert count(place, counts, **settings) == 40
    assert place.sizes == [first, first, following, following]


def test_trouble_is_tried_again_after_a_look_for_the_leader(counts: ReadCounts) -> None:
    moved = answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    place = Place(moved, BrokerUnreachableError("gone"), REST)
    assert count(place, counts) == 40
    assert (place.told, counts.retries) == (["drop", "drop"], 2)


def test_what_is_final_is_raised(counts: ReadCounts) -> None:
    with pytest.raises(AuthorizationError):
        count(Place(answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)), counts)
    assert counts.retries == 0


@pytest.mark.parametrize("code", [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE])
def test_a_follower_in_trouble_is_left_for_the_leader(counts: ReadCounts, code: int) -> None:
    place = Place(answer(preferred_read_replica=7), answer(code), REST)
    place.log = LogState(40, 100, TOPIC_ID)  # what the leader would say; nobody asks before the leader is fetched from
    assert count(place, counts) == 40
    assert (place.told, counts.lost) == (["prefer 7", "leader"], 0)


def test_a_quota_is_waited_for(counts: ReadCounts) -> None:
    assert count(Place(answer(high_watermark=-1, throttle_ms=100), REST), counts) == 40
    assert (counts.throttled, counts.retries) == (1, 0)


def test_an_offset_that_is_out_of_range_and_then_is_not_is_asked_for_again(counts: ReadCounts) -> None:
    assert count(Place(answer(ErrorCode.OFFSET_OUT_OF_RANGE), REST), counts) == 40
    assert (counts.retries, counts.lost) == (1, 0)


def test_what_the_leader_no_longer_has_is_lost(counts: ReadCounts) -> None:
    place = Place(answer(ErrorCode.OFFSET_OUT_OF_RANGE), records(30, 50))
    place.log = LogState(30, 100, TOPIC_ID)
    assert count(place, counts, fail=False) == 20
    assert (counts.retries, counts.lost) == (0, 20)


def test_a_leader_that_is_slow_to_find_its_records_loses_none(counts: ReadCounts) -> None:
    """As brokers are that keep old records in slow storage: they answer with nothing, and then with records."""
    assert (
        count(Place(records(10, 20), *[answer()] * 20, records(20, 30), *[answer()] * 20, records(30, 50)), counts)
        == 40
    )
    assert (counts.holes, counts.unproven, counts.lost, counts.retries) == (0, 0, 0, 40)


def test_a_hole_at_the_end_is_believed_after_half_of_the_patience(
    counts: ReadCounts, caplog: pytest.LogCaptureFixture
) -> None:
    started = time.monotonic()
    assert count(Place(records(10, 20), *SILENCE), counts, poll_timeout=2) == 10
    assert time.monotonic() - started >= 1
    assert (counts.holes, counts.unproven, counts.lost) == (30, 30, 0)
    assert re.search(r"\[20, 50\) of flights-3 are taken for a hole .* for 1\.\d s its leader broker", caplog.text)


def test_a_hole_ends_where_read_committed_has_to_stop(counts: ReadCounts) -> None:
    place = Place(records(45, 50))
    place.silent_before = 45
    place.silence = answer(last_stable_offset=45)
    assert count(place, counts, poll_timeout=2, isolation_level="read_committed") == 5
    assert counts.holes == counts.unproven == 35


def test_a_hole_that_was_passed_leaves_the_whole_patience_for_what_follows(counts: ReadCounts) -> None:
    """As where an open transaction ends between two of them."""
    place = Place(*SILENCE)
    place.silence = answer(last_stable_offset=30)
    place.silent_before = 30
    assert count(place, counts, poll_timeout=2, isolation_level="read_committed") == 0
    assert counts.holes == counts.unproven == 40


def test_records_in_tiered_storage_are_no_hole(counts: ReadCounts) -> None:
    """A broker that fetches them from there (KIP-405) answers with nothing until it has them."""
    place = Place(*SILENCE)
    place.first_local = 30
    with pytest.raises(BrokerTimeoutError, match="sends no records, although its log goes on to offset 100"):
        count(place, counts, poll_timeout=0.5)
    assert counts.holes == 0


def test_silence_that_trouble_interrupts_begins_anew(counts: ReadCounts) -> None:
    interrupted: list[FetchedPartition | Exception] = [answer(), BrokerUnreachableError("gone")]
    with pytest.raises(BrokerTimeoutError):
        count(Place(*interrupted * 5_000), counts, poll_timeout=0.5)
    assert counts.holes == 0


class Elected(Place):
    """A leader that is silent for most of the time that it takes to be believed; after that another one."""

    began_at = elected_at = 0.0

    def answer(self, deadline: object) -> FetchedPartition:
        fetched = super().answer(deadline)
        self.began_at = self.began_at or time.monotonic()
        if self.elected_at or time.monotonic() - self.began_at < 0.9:
            return fetched
        self.elected_at = time.monotonic()
        return answer(high_watermark=10)


def test_silence_of_a_leader_does_not_count_for_the_next(
    counts: ReadCounts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one knows its end late, so its log is looked at; it has been silent since then only."""
    monkeypatch.setattr(_fetch_loop, "_SILENCE_TO_BELIEVE", 0.02)
    place = Elected(*SILENCE)
    assert count(place, counts, poll_timeout=60) == 0
    (told,) = re.findall(r"for (\d+\.\d) s its leader", caplog.text)
    assert 1.2 <= float(told) <= time.monotonic() - place.elected_at + 0.1


def test_a_new_look_at_the_leader_says_what_was_read(counts: ReadCounts) -> None:
    """So that it can tell if its log is another one; who has just sent the batch need not look."""
    place = Place(records(10, 20, epoch=4), records(20, 30, epoch=5), BrokerUnreachableError("gone"), records(30, 50))
    assert count(place, counts) == 40
    assert list(zip(place.asked, place.epochs, strict=True)) == [(10, -1), (20, -1), (30, -1), (30, 5)]


def test_what_was_read_of_a_log_that_was_cut_is_loss(counts: ReadCounts) -> None:
    script = (records(10, 30), BrokerUnreachableError("gone"), answer(diverging_epoch=EpochEnd(2, 25)))
    with pytest.raises(DataLossError, match=r"log cut back.*\[25, 30\) of flights-3.*read the range again") as caught:
        count(Place(*script))
    assert caught.value.offset == 30
    # What is there now begins before what is wanted, and is read from there on, each offset once.
    place = Place(*script, records(27, 50))
    assert count(place, counts, fail=False) == 40
    assert (counts.lost, place.asked[-1], place.epochs[-2:]) == (5, 30, [3, -1])


@pytest.mark.parametrize("fail", [True, False])
def test_a_cut_that_nobody_asked_about_is_nonsense(counts: ReadCounts, fail: bool) -> None:
    """A broker that says so in each answer would be asked for ever, as each cut is progress."""
    cut = answer(diverging_epoch=EpochEnd(2, 5))
    with pytest.raises(ProtocolError, match="was not told what that is"):
        count(Place(cut), counts, fail=fail)
    assert counts.lost == 0
    with pytest.raises(ProtocolError):
        count(Place(records(10, 30), BrokerUnreachableError("gone"), cut, cut), counts, fail=False)
    assert counts.lost == 20


def test_a_follower_that_is_behind_tells_nothing_of_a_cut() -> None:
    place = Place(answer(preferred_read_replica=7), answer(diverging_epoch=EpochEnd(3, 10)), REST)
    assert count(place) == 40
    assert place.told == ["prefer 7", "leader"]


def test_offsets_that_were_skipped_have_no_epoch() -> None:
    """Their batch is not the one that was read last: its epoch would look like a cut."""
    place = Place(
        records(10, 20), answer(ErrorCode.OFFSET_OUT_OF_RANGE), BrokerUnreachableError("gone"), records(40, 50)
    )
    place.log = LogState(40, 100, TOPIC_ID)
    assert count(place, fail=False) == 20
    assert place.epochs == [-1, -1, -1, -1]


def test_an_epoch_that_the_broker_has_forgotten_is_not_named_for_ever(counts: ReadCounts) -> None:
    """Kafka calls the offset out of range then, though its log has it (``Partition.readRecords``)."""
    forgotten = [answer(ErrorCode.OFFSET_OUT_OF_RANGE)] * 5
    place = Place(records(10, 30), BrokerUnreachableError("gone"), *forgotten, records(30, 50))
    assert count(place, counts) == 40
    assert place.epochs == [-1, -1, 3, 3, 3, 3, 3, -1]
    assert counts.lost == 0


def test_an_old_leader_that_was_just_elected_may_not_know_its_end(counts: ReadCounts) -> None:
    """From Kafka 2.2 on it says so (KIP-207); before, it tells a lower one."""
    behind = [answer(high_watermark=25)] * 5
    place = Place(records(10, 30), BrokerUnreachableError("gone"), *behind, records(30, 50))
    place.log, place.end_may_lag = LogState(0, 25, TOPIC_ID), True
    assert count(place, counts) == 40
    place = Place(records(10, 30), BrokerUnreachableError("gone"), *behind, answer(high_watermark=25))
    place.log, place.end_may_lag = LogState(0, 25, TOPIC_ID), True
    with pytest.raises(DataLossError, match="beyond the end"):
        count(place, counts)
    place = Place(records(10, 30), answer(high_watermark=25))
    place.log = LogState(0, 25, TOPIC_ID)
    with pytest.raises(DataLossError, match="beyond the end"):
        count(place, counts)


def test_a_topic_is_gone_when_that_is_said_five_times_in_a_row(counts: ReadCounts) -> None:
    unknown = TopicNotFoundError("unknown")
    there = BrokerUnreachableError("it is there, but has no leader")
    assert count(Place(*[unknown] * 4, there, *[unknown] * 4, REST), counts) == 40
    with pytest.raises(DataLossError, match="deleted"):
        count(Place(*[unknown] * 4, there, *[unknown] * 5))


def test_patience_ends_with_the_last_trouble(counts: ReadCounts) -> None:
    trouble = BrokerUnreachableError("nobody is at home.", broker="other:9092")
    with pytest.raises(BrokerTimeoutError, match=r"0.2 s \(option kafkaConsumer.*nobody is at home") as caught:
        count(Place(*[trouble] * 1000), counts, poll_timeout=0.2)
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == ("flights", 3, "other:9092")
