"""``Fetcher`` with responses that a real broker does not return, or not on demand."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from tests.unit.consumer.scripted_replica import (
    TOPIC_ID,
    ScriptedReplica,
    count,
    records,
    response,
)

from pyspark_kafka_direct.consumer.fetch_channel import EpochEndOffset, FetchResponsePartition, LeaderIdAndEpoch
from pyspark_kafka_direct.consumer.range_task import ReadCounts
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    DataLossError,
    ProtocolError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.planning.data_loss import LeaderLogState, TopicReport
from pyspark_kafka_direct.planning.loss_errors import DataLossCause
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

REST = records(10, 50)
EMPTY_RESPONSES = [response()] * 10_000


@pytest.fixture
def counts() -> ReadCounts:
    return ReadCounts()


def test_next_fetch_is_sent_ahead(counts: ReadCounts) -> None:
    replica = ScriptedReplica(records(10, 30), records(30, 60))
    assert count(replica, counts) == 40
    assert replica.fetched_offsets == [10, 30]  # and nothing beyond the range
    assert (counts.fetches, counts.retries, replica.calls) == (2, 0, [])


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
def test_first_fetch_is_small_until_records_arrive(
    counts: ReadCounts, settings: dict[str, Any], first: int, following: int
) -> None:
    moved = response(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    replica = ScriptedReplica(moved, records(10, 20), records(20, 30), records(30, 60))
    assert count(replica, counts, **settings) == 40
    assert replica.sizes == [first, first, following, following]


def test_transient_errors_are_retried_after_a_metadata_refresh(counts: ReadCounts) -> None:
    moved = response(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    replica = ScriptedReplica(moved, BrokerUnreachableError("disconnected"), REST)
    assert count(replica, counts) == 40
    assert (replica.calls, counts.retries) == (["release", "release"], 2)


def test_a_later_leader_epoch_in_a_response_is_confirmed(counts: ReadCounts) -> None:
    """KIP-951; the epoch of one broker is no evidence."""
    moved = response(ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=LeaderIdAndEpoch(2, 9))
    replica = ScriptedReplica(moved, response(ErrorCode.NOT_LEADER_OR_FOLLOWER), REST)
    assert count(replica, counts) == 40
    assert replica.confirmed_epochs == [9]


def test_fatal_error_is_raised(counts: ReadCounts) -> None:
    with pytest.raises(AuthorizationError):
        count(ScriptedReplica(response(ErrorCode.TOPIC_AUTHORIZATION_FAILED)), counts)
    assert counts.retries == 0


@pytest.mark.parametrize("code", [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE])
def test_failing_follower_is_replaced_by_the_leader(counts: ReadCounts, code: int) -> None:
    replica = ScriptedReplica(response(preferred_read_replica=7), response(code), REST)
    replica.log = LeaderLogState(40, 100, TOPIC_ID)  # must not be queried before the leader is fetched from
    assert count(replica, counts) == 40
    assert (replica.calls, counts.lost) == (["replica 7", "leader"], 0)


def test_a_follower_cannot_send_the_client_to_another_follower(counts: ReadCounts) -> None:
    """Two followers that name each other would be fetched from in turn, without a pause."""
    replica = ScriptedReplica(response(preferred_read_replica=7), response(preferred_read_replica=8), REST)
    assert count(replica, counts) == 40
    assert (replica.calls, counts.retries) == (["replica 7", "leader"], 1)


def test_throttled_fetch_is_repeated_without_backoff(counts: ReadCounts) -> None:
    assert count(ScriptedReplica(response(high_watermark=-1, throttle_ms=100), REST), counts) == 40
    assert (counts.throttled, counts.retries) == (1, 0)


def test_the_time_without_data_restarts_after_a_metadata_refresh(counts: ReadCounts) -> None:
    """Five seconds prove an offset gap; the responses before the refresh may come from a deposed leader."""
    moved = response(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    replica = ScriptedReplica(*[response()] * 4, moved, *[response()] * 4, REST)
    replica.response_seconds = 1.0
    assert count(replica, counts) == 40
    assert counts.gaps == 0


def test_out_of_range_offset_in_the_log_is_fetched_again(counts: ReadCounts) -> None:
    assert count(ScriptedReplica(response(ErrorCode.OFFSET_OUT_OF_RANGE), REST), counts) == 40
    assert (counts.retries, counts.lost) == (1, 0)


def test_expired_offsets_are_counted_as_lost(counts: ReadCounts) -> None:
    replica = ScriptedReplica(response(ErrorCode.OFFSET_OUT_OF_RANGE), records(30, 50))
    replica.log = LeaderLogState(30, 100, TOPIC_ID)
    assert count(replica, counts, fail=False) == 20
    assert (counts.retries, counts.lost) == (0, 20)
    assert counts.skipped == {DataLossCause.AGED_OUT: 20}


def test_slow_leader_loses_no_records(counts: ReadCounts) -> None:
    """Brokers with slow storage respond without records at first."""
    assert (
        count(
            ScriptedReplica(records(10, 20), *[response()] * 20, records(20, 30), *[response()] * 20, records(30, 50)),
            counts,
        )
        == 40
    )
    assert (counts.gaps, counts.unproven_gaps, counts.lost, counts.retries) == (0, 0, 0, 40)


@pytest.mark.parametrize("poll_timeout", [10.0, 120.0])
def test_a_gap_is_proven_if_the_local_log_begins_before_it(counts: ReadCounts, poll_timeout: float) -> None:
    """The time does not depend on the poll timeout."""
    replica = ScriptedReplica(records(10, 20), *EMPTY_RESPONSES)
    started = replica.system.now
    assert count(replica, counts, poll_timeout=poll_timeout) == 10
    assert 5 <= replica.system.now - started < 6
    assert (counts.gaps, counts.unproven_gaps, counts.lost) == (30, 0, 0)


def test_without_a_local_log_start_empty_responses_are_no_gap(
    counts: ReadCounts, caplog: pytest.LogCaptureFixture
) -> None:
    """A range of 50 records ended successfully without them, even with ``failOnDataLoss=true``."""
    replica = ScriptedReplica(records(10, 20), *EMPTY_RESPONSES)
    replica.first_local_offset = None
    started = replica.system.now
    with pytest.raises(DataLossError, match=r"records not returned.* for 60 s .*offset 20 on.* slow storage") as caught:
        count(replica, counts, poll_timeout=120)
    assert (caught.value.offset, caught.value.resume_offset) == (20, 100)
    assert 60 <= replica.system.now - started < 61
    replica = ScriptedReplica(records(10, 20), *EMPTY_RESPONSES)
    replica.first_local_offset = None
    assert count(replica, counts, poll_timeout=120, fail=False) == 10
    assert (counts.gaps, counts.unproven_gaps) == (30, 30)
    assert counts.skipped == {DataLossCause.UNPROVEN_GAP: 30}
    assert "Offsets [20, 50) are skipped (failOnDataLoss=false)" in caplog.text


def test_throttled_responses_prove_no_gap(counts: ReadCounts) -> None:
    replica = ScriptedReplica(records(10, 20), *[response(throttle_ms=5)] * 2000)
    replica.first_local_offset = None
    replica.response_seconds = 0.1
    with pytest.raises(BrokerTimeoutError):
        count(replica, counts, poll_timeout=100)
    assert counts.gaps == 0
    assert counts.throttled > 900


def test_throttled_time_between_empty_responses_proves_no_gap(counts: ReadCounts) -> None:
    replica = ScriptedReplica(
        records(10, 20), response(), *[response(throttle_ms=100)] * 600, response(), records(20, 50)
    )
    replica.first_local_offset = None
    replica.response_seconds = 0.1
    assert count(replica, counts, poll_timeout=100, fail=False) == 40
    assert (counts.throttled, counts.gaps) == (600, 0)


def test_a_slow_response_proves_no_gap(counts: ReadCounts) -> None:
    """What counts is when the leader was asked, not when its response arrived."""
    replica = ScriptedReplica(records(10, 20), response(), response(), records(20, 50))
    replica.response_seconds = 6.0
    assert count(replica, counts, poll_timeout=100) == 40
    assert counts.gaps == 0


def test_gap_ends_at_the_last_stable_offset(counts: ReadCounts) -> None:
    replica = ScriptedReplica(records(45, 50))
    replica.empty_before = 45
    replica.empty_response = response(last_stable_offset=45)
    assert count(replica, counts, isolation_level="read_committed") == 5
    assert counts.gaps == 35


def test_skipped_gap_resets_the_poll_timeout(counts: ReadCounts) -> None:
    """An open transaction ends between two gaps."""
    replica = ScriptedReplica(*EMPTY_RESPONSES)
    replica.empty_response = response(last_stable_offset=30)
    replica.empty_before = 30
    start = replica.system.now
    assert count(replica, counts, poll_timeout=7, isolation_level="read_committed") == 0
    assert counts.gaps == 40
    assert replica.system.now - start > 10, "five seconds for each"


@pytest.mark.parametrize("local_log_start", [0, None])
def test_a_deposed_leader_proves_no_gap(counts: ReadCounts, local_log_start: int | None) -> None:
    replica = ScriptedReplica(records(10, 20), *[response()] * 9_000)
    replica.first_local_offset, replica.is_deposed = local_log_start, True
    with pytest.raises(BrokerTimeoutError):
        count(replica, counts, fail=False, poll_timeout=80)
    assert counts.gaps == 0
    assert "release" in replica.calls, "metadata is refreshed"


def test_records_in_tiered_storage_are_no_gap(counts: ReadCounts) -> None:
    """A broker that fetches them from there (KIP-405) responds without records at first."""
    replica = ScriptedReplica(*EMPTY_RESPONSES)
    replica.first_local_offset = 30
    with pytest.raises(BrokerTimeoutError, match="returns no records, although its log ends at offset 100"):
        count(replica, counts, poll_timeout=0.5)
    assert counts.gaps == 0


def test_transient_error_restarts_the_time_without_data(counts: ReadCounts) -> None:
    interrupted: list[FetchResponsePartition | Exception] = [response(), BrokerUnreachableError("disconnected")]
    with pytest.raises(BrokerTimeoutError):
        count(ScriptedReplica(*interrupted * 5_000), counts, poll_timeout=0.5)
    assert counts.gaps == 0


def test_time_without_data_of_a_leader_does_not_count_for_the_next(counts: ReadCounts) -> None:
    """A new leader learns its end late, so its log is queried; the time without data starts then."""
    replica = ScriptedReplica(*[response()] * 400, response(high_watermark=10), *EMPTY_RESPONSES)
    started = replica.system.now
    assert count(replica, counts, poll_timeout=60) == 0
    assert 9 <= replica.system.now - started < 10


def test_first_fetch_after_a_metadata_refresh_sends_the_last_fetched_epoch(counts: ReadCounts) -> None:
    """So that the new leader can detect a divergence; a leader that just returned the batch need not."""
    replica = ScriptedReplica(
        records(10, 20, epoch=4), records(20, 30, epoch=5), BrokerUnreachableError("disconnected"), records(30, 50)
    )
    assert count(replica, counts) == 40
    assert list(zip(replica.fetched_offsets, replica.epochs, strict=True)) == [(10, -1), (20, -1), (30, -1), (30, 5)]


def test_truncation_below_the_position_is_data_loss(counts: ReadCounts) -> None:
    script = (records(10, 30), BrokerUnreachableError("disconnected"), response(diverging_epoch=EpochEndOffset(2, 25)))
    with pytest.raises(DataLossError, match=r"log truncated.*\[25, 30\) of flights-3.*read the range again") as caught:
        count(ScriptedReplica(*script))
    assert caught.value.offset == 30
    # The new batch starts before the position; offsets from the position on are read, each once.
    replica = ScriptedReplica(*script, records(27, 50))
    assert count(replica, counts, fail=False) == 40
    assert (counts.lost, replica.fetched_offsets[-1], replica.epochs[-2:]) == (5, 30, [3, -1])
    assert counts.skipped == {DataLossCause.TRUNCATED: 0}, "they were read"


@pytest.mark.parametrize("fail", [True, False])
def test_unrequested_divergence_is_a_protocol_error(counts: ReadCounts, fail: bool) -> None:
    """Else a broker that always responds so would be fetched forever, because each truncation is progress."""
    diverging = response(diverging_epoch=EpochEndOffset(2, 5))
    with pytest.raises(ProtocolError, match="named no epoch to compare"):
        count(ScriptedReplica(diverging), counts, fail=fail)
    assert counts.lost == 0
    with pytest.raises(ProtocolError):
        count(
            ScriptedReplica(records(10, 30), BrokerUnreachableError("disconnected"), diverging, diverging),
            counts,
            fail=False,
        )
    assert counts.lost == 20


def test_divergence_from_a_follower_is_ignored() -> None:
    replica = ScriptedReplica(response(preferred_read_replica=7), response(diverging_epoch=EpochEndOffset(3, 10)), REST)
    assert count(replica) == 40
    assert replica.calls == ["replica 7", "leader"]


def test_skipped_offsets_reset_the_last_fetched_epoch() -> None:
    """The last fetched epoch is not that of the skipped batch, and would look like a truncation."""
    replica = ScriptedReplica(
        records(10, 20),
        response(ErrorCode.OFFSET_OUT_OF_RANGE),
        BrokerUnreachableError("disconnected"),
        records(40, 50),
    )
    replica.log = LeaderLogState(40, 100, TOPIC_ID)
    assert count(replica, fail=False) == 20
    assert replica.epochs == [-1, -1, -1, -1]


def test_epoch_that_the_broker_lost_is_no_longer_sent(counts: ReadCounts) -> None:
    """Kafka returns OFFSET_OUT_OF_RANGE then, although the log contains it (``Partition.readRecords``)."""
    forgotten = [response(ErrorCode.OFFSET_OUT_OF_RANGE)] * 5
    replica = ScriptedReplica(records(10, 30), BrokerUnreachableError("disconnected"), *forgotten, records(30, 50))
    assert count(replica, counts) == 40
    assert replica.epochs == [-1, -1, 3, 3, 3, 3, 3, -1]
    assert counts.lost == 0


@pytest.mark.parametrize("end", [25, 30])
def test_stale_end_of_a_newly_elected_old_leader_is_retried(counts: ReadCounts, end: int) -> None:
    """From Kafka 2.2 on it returns an error (KIP-207); before, a lower end."""
    behind = [response(high_watermark=25)] * 5
    replica = ScriptedReplica(records(10, 30), BrokerUnreachableError("disconnected"), *behind, records(30, 50))
    replica.log, replica.end_may_be_stale = LeaderLogState(0, end, TOPIC_ID), True
    assert count(replica, counts) == 40
    assert counts.retries == 1 + len(behind)
    replica = ScriptedReplica(
        records(10, 30), BrokerUnreachableError("disconnected"), *behind, response(high_watermark=25)
    )
    replica.log, replica.end_may_be_stale = LeaderLogState(0, 25, TOPIC_ID), True
    with pytest.raises(DataLossError, match="beyond the end"):
        count(replica, counts)
    replica = ScriptedReplica(*[response(high_watermark=5)] * 6)
    replica.log, replica.end_may_be_stale = LeaderLogState(0, 5, TOPIC_ID), True
    with pytest.raises(DataLossError, match="beyond the end"):
        count(replica, counts)
    replica = ScriptedReplica(records(10, 30), response(high_watermark=25))
    replica.log = LeaderLogState(0, 25, TOPIC_ID)
    with pytest.raises(DataLossError, match="beyond the end"):
        count(replica, counts)


UNKNOWN = TopicNotFoundError("unknown")
THIS, OTHER = (TopicReport(1, topic_id, {3: 5}) for topic_id in (TOPIC_ID, UUID(int=9)))


def test_one_broker_that_lags_deletes_no_range(counts: ReadCounts) -> None:
    """Five responses of one broker did, within 1.5 s."""
    replica = ScriptedReplica(*[UNKNOWN] * 500, REST)
    replica.reports = lambda: THIS
    assert count(replica, counts) == 40
    assert counts.lost == 0


@pytest.mark.parametrize(("report", "cause"), [(TopicReport(1), "deleted"), (OTHER, "recreated")])
def test_a_missing_topic_is_lost_once_brokers_have_confirmed_it(
    counts: ReadCounts, report: TopicReport, cause: str
) -> None:
    replica = ScriptedReplica(*[UNKNOWN] * 2000)
    replica.reports = lambda: report
    started = replica.system.now
    with pytest.raises(DataLossError, match=cause):
        count(replica, counts)
    assert 5 <= replica.system.now - started < 6
    replica = ScriptedReplica(*[UNKNOWN] * 2000)
    replica.reports = lambda: report
    assert count(replica, counts, fail=False) == 0
    assert counts.lost == 40


def test_evidence_of_absence_is_dropped_when_metadata_has_the_partition(counts: ReadCounts) -> None:
    """One miss now and one after five seconds are not five seconds without the partition."""
    unreachable = BrokerUnreachableError("no leader")
    replica = ScriptedReplica(UNKNOWN, *[unreachable] * 600, UNKNOWN, REST)
    replica.reports = lambda: TopicReport(1)
    assert count(replica, counts) == 40
    assert counts.lost == 0


def test_a_missing_topic_is_confirmed_again_after_it_was_fetched(counts: ReadCounts) -> None:
    """Brokers that restart omit topics for a moment; meanwhile an open transaction ends the readable log."""
    waiting = [response(last_stable_offset=10)] * 2_000
    replica = ScriptedReplica(UNKNOWN, *waiting, UNKNOWN, REST)
    assert count(replica, counts, fail=False, poll_timeout=60, isolation_level="read_committed") == 40
    assert counts.lost == 0


def test_unreachable_witnesses_confirm_nothing(counts: ReadCounts) -> None:
    def unreachable() -> TopicReport:
        raise BrokerUnreachableError("no broker")

    replica = ScriptedReplica(*[UNKNOWN] * 4000)
    replica.reports = unreachable
    with pytest.raises(BrokerTimeoutError, match="no broker"):
        count(replica, counts, fail=False)
    assert counts.lost == 0


def test_a_truncation_reported_by_a_deposed_leader_is_not_accepted(counts: ReadCounts) -> None:
    divergence = response(diverging_epoch=EpochEndOffset(2, 25))
    replica = ScriptedReplica(records(10, 30), BrokerUnreachableError("disconnected"), divergence, records(30, 50))
    replica.is_deposed = True
    assert count(replica, counts) == 40
    assert counts.lost == 0


def test_poll_timeout_reports_the_last_error(counts: ReadCounts) -> None:
    unreachable = BrokerUnreachableError("the broker is down.", broker="other:9092")
    with pytest.raises(BrokerTimeoutError, match=r"0.2 s \(option kafkaConsumer.*the broker is down") as caught:
        count(ScriptedReplica(*[unreachable] * 1000), counts, poll_timeout=0.2)
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == ("flights", 3, "other:9092")
