"""The evidence of data loss: reports of brokers, leader epochs, empty responses, and where a log begins and ends."""

from __future__ import annotations

import contextlib
from uuid import UUID

import pytest

from pyspark_kafka_direct.errors import DataLossError, TopicNotFoundError, TopicRecreatedError, TruncatedError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.data_loss import (
    AbsenceEvidence,
    EpochFloors,
    GapDecision,
    LeaderLogState,
    Presence,
    TopicReport,
    are_lower_ends_confirmed,
    check_fixed_end_offsets,
    check_latest_offsets,
    evaluate_gap,
    find_lost_partitions,
    has_later_leader,
    loss_cause,
    out_of_range_error,
    reread_offset,
    resume_offset,
    topic_error,
)
from pyspark_kafka_direct.planning.loss_errors import DataLossCause, truncated_error

TP = TopicPartition("t", 3)
ID, NEW_ID, OTHER_ID = UUID(int=1), UUID(int=2), UUID(int=3)

UNKNOWN_TOPIC = TopicReport(1)
HAS_PARTITION = TopicReport(1, ID, {3: 5})
FEWER_PARTITIONS = TopicReport(1, ID, {0: 5})
RECREATED = TopicReport(1, NEW_ID, {3: 0})


class TestAbsence:
    def test_it_is_confirmed_after_five_seconds(self) -> None:
        evidence = AbsenceEvidence(TP, ID)
        assert evidence.add([UNKNOWN_TOPIC], 100.0) is Presence.UNCONFIRMED
        assert evidence.add([UNKNOWN_TOPIC], 104.9) is Presence.UNCONFIRMED
        assert evidence.add([UNKNOWN_TOPIC], 105.0) is Presence.ABSENT

    def test_a_broker_that_has_the_partition_restarts_the_time(self) -> None:
        evidence = AbsenceEvidence(TP, ID)
        assert evidence.add([UNKNOWN_TOPIC], 0.0) is Presence.UNCONFIRMED
        assert evidence.add([UNKNOWN_TOPIC, HAS_PARTITION], 4.0) is Presence.PRESENT
        assert evidence.add([UNKNOWN_TOPIC], 8.0) is Presence.UNCONFIRMED
        assert evidence.add([UNKNOWN_TOPIC], 12.9) is Presence.UNCONFIRMED
        assert evidence.add([UNKNOWN_TOPIC], 13.0) is Presence.ABSENT

    def test_reports_that_differ_restart_the_time(self) -> None:
        evidence = AbsenceEvidence(TP, ID)
        assert evidence.add([UNKNOWN_TOPIC], 0.0) is Presence.UNCONFIRMED
        assert evidence.add([UNKNOWN_TOPIC, RECREATED], 6.0) is Presence.UNCONFIRMED
        assert evidence.add([RECREATED, RECREATED], 7.0) is Presence.UNCONFIRMED
        assert evidence.add([RECREATED, RECREATED], 11.9) is Presence.UNCONFIRMED
        assert evidence.add([RECREATED, RECREATED], 12.0) is Presence.RECREATED
        assert evidence.new_topic_id == NEW_ID

    def test_a_time_in_which_no_broker_responds_does_not_count(self) -> None:
        evidence = AbsenceEvidence(TP, ID)
        for now in (0.0, 6.0, 12.0):
            assert evidence.add([UNKNOWN_TOPIC], now) is Presence.UNCONFIRMED
            assert evidence.add([], now + 1) is Presence.UNCONFIRMED
        assert evidence.add([UNKNOWN_TOPIC], 14.0) is Presence.UNCONFIRMED
        assert evidence.add([UNKNOWN_TOPIC], 19.0) is Presence.ABSENT

    def test_another_new_topic_id_restarts_the_time(self) -> None:
        evidence = AbsenceEvidence(TP, ID)
        evidence.add([RECREATED], 0.0)
        again = TopicReport(1, OTHER_ID, {3: 0})
        assert evidence.add([again], 6.0) is Presence.UNCONFIRMED
        assert evidence.new_topic_id is None
        assert evidence.add([again], 11.0) is Presence.RECREATED
        assert evidence.new_topic_id == OTHER_ID

    @pytest.mark.parametrize(
        ("report", "known_id", "presence"),
        [
            (FEWER_PARTITIONS, ID, Presence.ABSENT),
            (FEWER_PARTITIONS, None, Presence.ABSENT),
            (TopicReport(1, NEW_ID, {0: 0}), ID, Presence.RECREATED),
            (TopicReport(1, None, {0: 0}), ID, Presence.ABSENT),
            (TopicReport(1, None, {3: 0}), ID, Presence.PRESENT),
            (RECREATED, None, Presence.PRESENT),
            (HAS_PARTITION, ID, Presence.PRESENT),
            (TopicReport(1, error_code=29), ID, Presence.PRESENT),
        ],
    )
    def test_reports(self, report: TopicReport, known_id: UUID | None, presence: Presence) -> None:
        evidence = AbsenceEvidence(TP, known_id)
        evidence.add(iter([report]), 0.0)
        assert evidence.add(iter([report]), 5.0) is presence


class TestEpochFloors:
    @pytest.mark.parametrize(("floor", "epoch", "stale"), [(1, 0, True), (1, 1, False), (1, 2, False), (1, -1, False)])
    def test_lower_epochs_are_stale(self, floor: int, epoch: int, stale: bool) -> None:
        floors = EpochFloors()
        floors.raise_to(TP, ID, floor)
        assert floors.is_stale(TP, ID, epoch) is stale
        assert not floors.is_stale(TP, None, epoch), "without topic ids, it may be a recreated topic"
        assert not floors.is_stale(TP, NEW_ID, epoch)
        assert not floors.is_stale(TopicPartition("t", 4), ID, epoch)

    def test_epoch_zero_is_a_floor(self) -> None:
        floors = EpochFloors(capacity=1)
        floors.raise_to(TP, ID, 7)
        floors.raise_to(TopicPartition("t", 4), ID, 0)
        assert not floors.is_stale(TP, ID, 5), "evicted"

    @pytest.mark.parametrize(("topic_id", "epoch"), [(ID, -1), (None, 5), (None, -1)])
    def test_unknown_epochs_and_topic_ids_evict_no_floor(self, topic_id: UUID | None, epoch: int) -> None:
        floors = EpochFloors(capacity=1)
        floors.raise_to(TP, ID, 7)
        floors.raise_to(TopicPartition("t", 4), topic_id, epoch)
        assert floors.is_stale(TP, ID, 6)

    def test_an_evicted_floor_takes_its_time_along(self) -> None:
        floors = EpochFloors(capacity=1)
        floors.raise_to(TP, ID, 7)
        assert floors.track_stale(TP, ID, 5, 100.0) == 100.0
        floors.raise_to(TopicPartition("t", 4), ID, 7)
        floors.raise_to(TP, ID, 7)
        assert floors.track_stale(TP, ID, 5, 200.0) == 200.0

    def test_a_floor_is_never_lowered_by_an_epoch(self) -> None:
        floors = EpochFloors()
        for epoch in (7, 5, -1):
            floors.raise_to(TP, ID, epoch)
        assert floors.is_stale(TP, ID, 6)

    def test_the_time_without_newer_epochs(self) -> None:
        floors = EpochFloors()
        floors.raise_to(TP, ID, 7)
        floors.raise_to(TopicPartition("t", 4), ID, 7)
        floors.track_stale(TopicPartition("t", 4), ID, 5, 90.0)
        assert not floors.has_only_stale(TP)
        assert floors.track_stale(TP, ID, 5, 100.0) == 100.0
        assert floors.has_only_stale(TP)
        assert floors.track_stale(TP, ID, 6, 110.0) == 100.0
        assert floors.track_stale(TP, None, 6, 110.0) is None
        assert floors.track_stale(TP, ID, 7, 120.0) is None
        assert floors.track_stale(TP, ID, 5, 130.0) == 130.0, "the newer epoch restarts the time"
        floors.drop(TP, ID)
        assert not floors.is_stale(TP, ID, 5)
        floors.raise_to(TP, ID, 7)
        assert floors.track_stale(TP, ID, 5, 140.0) == 140.0, "dropped with its floor"

    @pytest.mark.parametrize(
        ("epochs", "brokers", "highest"),
        [
            ([5, 6], 3, 6),
            ([5], 3, None),
            ([5], 1, 5),
            ([5, 6], 5, None),
            ([5, 6, 4], 5, 6),
            ([5, 6, 4], 100, 6),
            ([5, 7], 3, None),
            ([5, -1], 3, None),
            ([], 0, None),
        ],
    )
    def test_a_majority_of_the_witnesses_can_lower_a_floor(
        self, epochs: list[int], brokers: int, highest: int | None
    ) -> None:
        floors = EpochFloors()
        floors.raise_to(TP, ID, 7)
        reports = [TopicReport(index, ID, {3: epoch}) for index, epoch in enumerate(epochs)]
        assert floors.highest_if_all_stale(TP, ID, reports, brokers) == highest

    @pytest.mark.parametrize("report", [UNKNOWN_TOPIC, RECREATED, FEWER_PARTITIONS])
    def test_a_witness_without_the_partition_does_not_lower_a_floor(self, report: TopicReport) -> None:
        floors = EpochFloors()
        floors.raise_to(TP, ID, 7)
        assert floors.highest_if_all_stale(TP, ID, [HAS_PARTITION, HAS_PARTITION], 3) == 5
        assert floors.highest_if_all_stale(TP, ID, [HAS_PARTITION, report], 3) is None


@pytest.mark.parametrize(
    ("local_log_start", "seconds", "decision"),
    [
        (99, 5.0, GapDecision.GAP),
        (100, 5.0, GapDecision.GAP),
        (100, 4.9, GapDecision.RETRY),
        (101, 5.0, GapDecision.RETRY),
        (101, 1e6, GapDecision.RETRY),
        (None, 59.9, GapDecision.RETRY),
        (None, 60.0, GapDecision.UNKNOWN),
    ],
)
def test_empty_responses_at_offset_100(local_log_start: int | None, seconds: float, decision: GapDecision) -> None:
    assert evaluate_gap(100, local_log_start, seconds) is decision


@pytest.mark.parametrize("served_by_leader", [True, False])
def test_a_log_that_ends_before_records_that_were_read_was_truncated(served_by_leader: bool) -> None:
    log = LeaderLogState(10, 20)
    assert "resume at the log start 10" in out_of_range_error(TP, 9, log, served_by_leader=served_by_leader).message
    error = out_of_range_error(TP, 21, log, served_by_leader=served_by_leader)
    assert isinstance(error, TruncatedError) is served_by_leader


@pytest.mark.parametrize(
    ("responses", "max_attempts", "confirmed"),
    [(1, 1, False), (2, 1, True), (2, 2, True), (2, 3, False), (3, 3, True), (29, 30, False), (30, 30, True)],
)
def test_how_many_responses_confirm_a_lower_end(responses: int, max_attempts: int, confirmed: bool) -> None:
    assert are_lower_ends_confirmed(responses, max_attempts) is confirmed


@pytest.mark.parametrize(
    ("end", "may_be_stale", "responses", "unconfirmed"),
    [(99, True, 4, True), (99, True, 5, False), (99, False, 0, False), (100, True, 0, False)],
)
def test_how_many_responses_of_an_old_leader_confirm_its_end(
    end: int, may_be_stale: bool, responses: int, unconfirmed: bool
) -> None:
    log = LeaderLogState(0, end)
    assert log.is_end_unconfirmed(100, end_may_be_stale=may_be_stale, responses=responses) is unconfirmed


def test_lost_partitions_are_missing_or_recreated() -> None:
    others = [TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("c", 0)]
    removed = TopicPartition("t", 7)  # the recreated topic has fewer partitions
    known_ids = {TP: ID, removed: ID, others[0]: OTHER_ID}
    lost = find_lost_partitions(
        iter([TP, removed, *others]), known_ids, {TP, others[0], others[1]}, {"t": NEW_ID, "a": OTHER_ID}
    )
    assert lost.recreated == {TP: NEW_ID, removed: NEW_ID}
    assert lost.missing == {others[2]}


@pytest.mark.parametrize(
    ("end", "fixed", "latest"),
    [
        ({3: 5, 4: 5}, "", ""),
        ({3: 0, 4: 5}, "", ""),
        ({3: 5}, "MISMATCHED_TOPIC_PARTITIONS", ""),
        ({3: 5, 4: 5, 5: 0}, "MISMATCHED_TOPIC_PARTITIONS", ""),
        ({3: 5, 4: 5, 6: 0}, "MISMATCHED_TOPIC_PARTITIONS", "LOST_TOPIC_PARTITIONS"),
        ({3: 5, 4: 6}, "THAN_PREFETCHED", ""),
        ({3: 5, 4: 7}, "THAN_PREFETCHED", "THAN_LATEST"),
    ],
)
def test_which_ends_a_query_with_fixed_ends_rejects(end: dict[int, int], fixed: str, latest: str) -> None:
    """The fixed ends are 5, and partition 4 ends at 6 now; partition 5 is new."""
    ends = {TopicPartition("t", partition): offset for partition, offset in end.items()}
    for check, known, words in (
        (check_fixed_end_offsets, {3: 5, 4: 5}, fixed),
        (check_latest_offsets, {3: 5, 4: 6, 5: 1}, latest),
    ):
        with pytest.raises(DataLossError, match=words) if words else contextlib.nullcontext():
            check(ends, {TopicPartition("t", partition): offset for partition, offset in known.items()})


@pytest.mark.parametrize(
    ("report", "known_id", "expected"),
    [
        (UNKNOWN_TOPIC, ID, (TopicNotFoundError, "no longer exists")),
        (UNKNOWN_TOPIC, None, (TopicNotFoundError, "no longer exists")),
        (RECREATED, ID, (TopicRecreatedError, f"its id is {NEW_ID}, not {ID}")),
        (TopicReport(1, NEW_ID, {0: 0}), ID, (TopicRecreatedError, f"its id is {NEW_ID}, not {ID}")),
        (FEWER_PARTITIONS, ID, (TopicNotFoundError, "no such partition; it has 1")),
        (HAS_PARTITION, ID, None),
        (HAS_PARTITION, None, None),
        (TopicReport(1, None, {3: 0}), ID, None),
        (TopicReport(1, None, {3: 0}), None, None),
    ],
)
def test_what_one_report_says_of_a_partition(
    report: TopicReport, known_id: UUID | None, expected: tuple[type[TopicNotFoundError], str] | None
) -> None:
    error = topic_error(TP, known_id, report)
    if expected is None:
        assert error is None
        return
    error_type, message = expected
    assert type(error) is error_type
    assert message in error.message
    assert (error.topic, error.partition) == TP
    if isinstance(error, TopicRecreatedError):
        assert error.topic_id == report.topic_id


@pytest.mark.parametrize(
    ("epoch", "reports", "expected"),
    [
        (4, [(ID, {3: 5})], True),
        (4, [(ID, {3: 4}), (ID, {3: 5})], True),
        (0, [(ID, {3: 1})], True),
        (-1, [(ID, {3: 5})], False),
        (5, [(ID, {3: 5})], False),
        (4, [(ID, {0: 5})], False),
        (4, [(NEW_ID, {3: 5})], False),
        (4, [(ID, None)], False),
        (4, [], False),
    ],
)
def test_a_later_leader_is_one_of_the_same_topic_and_partition(
    epoch: int, reports: list[tuple[UUID, dict[int, int] | None]], expected: bool
) -> None:
    found = [TopicReport(node, topic_id, epochs) for node, (topic_id, epochs) in enumerate(reports)]
    assert has_later_leader({TP: epoch}, ID, found) is expected
    assert has_later_leader({TopicPartition("t", 9): 4, TP: epoch}, ID, found) is expected, "of any partition"


UNPROVEN_GAP = DataLossError("a gap")
UNPROVEN_GAP.resume_offset = 77
OUT_OF_RANGE = DataLossError("out of range")


@pytest.mark.parametrize(
    ("error", "position", "offset", "cause"),
    [
        (TopicRecreatedError("t"), 15, 10, DataLossCause.RECREATED),
        (TopicNotFoundError("t"), 15, 15, DataLossCause.DELETED),
        (UNPROVEN_GAP, 15, 77, DataLossCause.UNPROVEN_GAP),
        (TruncatedError("t"), 15, 15, DataLossCause.TRUNCATED),
        (TruncatedError("t"), 25, 20, DataLossCause.TRUNCATED),
        (TruncatedError("t"), 5, 10, DataLossCause.TRUNCATED),
        (OUT_OF_RANGE, 9, 10, DataLossCause.AGED_OUT),
        (OUT_OF_RANGE, 10, 10, None),
        (OUT_OF_RANGE, 20, 20, None),
        (OUT_OF_RANGE, 21, 20, DataLossCause.BEYOND_END),
    ],
)
def test_where_reading_resumes_after_a_loss_and_why(
    error: DataLossError | TopicNotFoundError, position: int, offset: int, cause: DataLossCause | None
) -> None:
    """In a log of the offsets 10 to 19."""
    assert resume_offset(error, position, 10, 20) == offset
    assert loss_cause(error, position, 10, 20) is cause


@pytest.mark.parametrize(
    ("error", "position", "offset"),
    [(UNPROVEN_GAP, 25, None), (OUT_OF_RANGE, 9, None), (OUT_OF_RANGE, 20, None), (OUT_OF_RANGE, 21, 10)],
)
def test_from_where_a_copy_is_read_again(error: DataLossError, position: int, offset: int | None) -> None:
    assert reread_offset(error, position, 10, 20) == offset


@pytest.mark.parametrize(
    ("truncated_to", "expected"),
    [
        (9, "the records read from there up to offset 10 are no longer in it"),
        (10, "it is not known which of the records before offset 10"),
        (11, "it is not known which of the records before offset 10"),
    ],
)
def test_which_records_a_truncation_removed(truncated_to: int, expected: str) -> None:
    error = truncated_error(TP, 10, truncated_to)
    assert expected in error.message
    assert error.truncated_to == truncated_to
