"""Sending, skipping or refusing a batch: every history that lost or doubled records, and made-up ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from pyspark_kafka_direct.errors import DeliveryRefusedError
from pyspark_kafka_direct.planning.delivery import (
    REMEMBERED_RUNS,
    Attempt,
    Marker,
    Refuse,
    Send,
    Skip,
    decide,
    token_for,
)

Q = "query-1"


def attempt(batch: int, run: str = "a", digest: str | None = "d", **more: Any) -> Attempt:
    return Attempt(more.pop("kind", "stream"), more.pop("query", Q), run, batch, digest)


def marker(batch: int, *runs: str, digest: str | None = "d", **more: Any) -> Marker:
    return Marker(more.pop("kind", "stream"), more.pop("query", Q), batch, runs or ("a",), digest)


def sent(before: Marker | None, now: Attempt, token: str | None = None) -> Marker:
    decision = decide(before, now, token)
    assert isinstance(decision, Send), decision
    return decision.marker


def refused(before: Marker | None, now: Attempt, token: str | None = None) -> Refuse:
    decision = decide(before, now, token)
    assert isinstance(decision, Refuse), decision
    return decision


def test_batches_of_one_run_follow_one_another() -> None:
    last = None
    for batch in range(5):
        last = sent(last, attempt(batch, digest=str(batch)))
        assert last == marker(batch, "a", digest=str(batch))


def test_a_batch_that_is_replayed_after_a_restart_is_skipped_and_the_marker_is_renewed() -> None:
    decision = decide(marker(7, "a"), attempt(7, "b"))
    assert decision == Skip(marker(7, "a", "b"))
    assert sent(marker(7, "a", "b"), attempt(8, "b")) == marker(8, "a", "b")


def test_a_batch_whose_commit_is_asked_for_twice_is_skipped() -> None:
    assert decide(marker(7, "a"), attempt(7, "a")) == Skip(None)


def test_a_restart_that_replays_a_batch_which_was_not_sent_sends_it() -> None:
    assert sent(marker(7, "a"), attempt(8, "b")) == marker(8, "a", "b")


def test_a_backup_of_the_checkpoint_is_refused_and_not_skipped() -> None:
    """A checkpoint restored at batch 100 under a marker of 180 skipped 81 batches of new ranges."""
    reason = refused(marker(180, "a"), attempt(100, "b")).reason
    assert "batch 100 " in reason
    assert "batch 180." in reason
    assert "restored from a backup" in reason
    assert "batches 100 to 180 were sent already" in reason


def test_a_copied_checkpoint_does_not_skip_the_other_ones_batch() -> None:
    """Two drivers went on from one checkpoint, and each skipped the other's different batch."""
    first = sent(marker(4, "a"), attempt(5, "b", "b's ranges"))
    found = refused(first, attempt(5, "c", "c's ranges"))
    assert "batch 5 of query query-1 was sent already (run b)" in found.reason
    assert "b's ranges" in found.reason
    assert "c's ranges" in found.reason
    assert "copied" in found.reason


def test_of_a_copied_checkpoint_the_run_that_was_overtaken_fails_for_good() -> None:
    overtaken = marker(6, "a", "b")
    found = refused(overtaken, attempt(7, "a"))
    assert found.token is None
    assert "run b has taken over and has sent batch 6" in found.reason
    assert "This run cannot go on" in str(found.error("p.sink"))
    assert "resetDelivery" not in str(found.error("p.sink"))
    # Not even a token of its own making helps, and not the batch that would be next.
    assert refused(overtaken, attempt(7, "a"), token_for(overtaken, attempt(7, "a"))).token is None
    assert refused(overtaken, attempt(6, "a")).token is None


def test_where_the_offsets_cannot_be_read_the_number_of_the_batch_decides() -> None:
    unreadable = marker(7, "a", digest=None)
    assert decide(unreadable, attempt(7, "b", None)) == Skip(marker(7, "a", "b", digest=None))
    assert decide(unreadable, attempt(7, "b", "d")) == Skip(marker(7, "a", "b", digest="d"))
    assert decide(marker(7, "a"), attempt(7, "b", None)) == Skip(marker(7, "a", "b"))


def test_a_query_that_was_at_least_once_before_is_refused() -> None:
    found = refused(None, attempt(12))
    assert "batch 12 of query query-1 is to be sent, and there is no marker of batch 11" in found.reason
    assert "at-least-once before" in found.reason


def test_batches_that_were_left_out_are_refused() -> None:
    """At-least-once for a while, or the topic of markers restored from a backup."""
    found = refused(marker(7, "a"), attempt(10, "b"))
    assert "what was sent last is batch 7" in found.reason
    assert "batches 8 to 9" in found.reason


def test_deleted_log_entries_are_refused() -> None:
    """With the newest entries of both logs gone, Spark plans batch 7 anew under a marker of 8."""
    assert "logs were deleted" in refused(marker(8, "a"), attempt(7, "b")).reason


@pytest.mark.parametrize("batch", [0, 7, 8])
def test_another_query_under_the_prefix_is_refused(batch: int) -> None:
    found = refused(marker(7, "a"), attempt(batch, "b", query="query-2"))
    assert "batch 7 of query query-1" in found.reason
    assert f"batch {batch} of query query-2" in found.reason
    assert "needs one of its own" in found.reason


def test_a_new_checkpoint_is_refused_until_it_is_asked_for() -> None:
    found = refused(marker(7, "a"), attempt(0, "b", query="query-2"))
    assert "new checkpoint" in found.reason
    after = sent(marker(7, "a"), attempt(0, "b", query="query-2"), found.token)
    assert after == Marker("stream", "query-2", 0, ("a", "b"), "d")
    # The run before is superseded, though it belongs to another query.
    assert refused(after, attempt(8, "a")).token is None


def test_the_token_is_told_with_how_to_use_it() -> None:
    found = refused(marker(180, "a"), attempt(100, "b"))
    error = found.error("p.sink")
    assert isinstance(error, DeliveryRefusedError)
    assert f"set resetDelivery to {found.token}" in str(error)
    assert "'p.sink'" in str(error)


def test_a_token_left_in_the_code_does_no_harm() -> None:
    """With a standing resetDelivery=true two queries alternated under one prefix."""
    before, now = marker(180, "a"), attempt(100, "b")
    token = refused(before, now).token
    after = sent(before, now, token)
    assert sent(after, attempt(101, "b"), token) == marker(101, "a", "b")
    assert decide(after, attempt(100, "c"), token) == Skip(marker(100, "a", "b", "c"))
    # Another query, another batch, another marker: refused again.
    assert refused(after, attempt(0, "x", query="query-2"), token).token != token
    assert refused(before, attempt(99, "b"), token).token != token
    assert refused(marker(181, "a"), now, token).token != token
    assert refused(None, now, token).token != token


def test_a_token_of_no_marker_holds_for_no_marker_only() -> None:
    token = refused(None, attempt(12)).token
    after = sent(None, attempt(12), token)
    assert decide(after, attempt(12, "b"), token) == Skip(marker(12, "a", "b"))
    assert refused(None, attempt(13), token).token != token


def test_a_token_sends_a_batch_whose_number_was_sent_with_other_ranges() -> None:
    before, now = marker(5, "b", digest="x"), attempt(5, "c", "y")
    assert sent(before, now, refused(before, now).token) == marker(5, "b", "c", digest="y")


def test_the_runs_are_bounded_and_each_is_listed_once() -> None:
    last = sent(None, attempt(0, "run-0"))
    for batch in range(1, 120):
        last = sent(last, attempt(batch, f"run-{batch // 2}"))
    assert last.runs == tuple(f"run-{number}" for number in range(60 - REMEMBERED_RUNS, 60))


class TestForeachBatch:
    """A batch write that Spark replays."""

    def test_gaps_are_allowed(self) -> None:
        first = sent(None, attempt(3, kind="foreach"))
        assert sent(first, attempt(9, kind="foreach")).batch == 9

    def test_a_replay_is_skipped(self) -> None:
        before = marker(3, "a", kind="foreach")
        assert decide(before, attempt(3, "b", kind="foreach")) == Skip(marker(3, "a", "b", kind="foreach"))

    def test_a_second_write_of_one_batch_is_refused(self) -> None:
        first = sent(None, attempt(3, kind="foreach"))
        assert "once under one transactionalIdPrefix" in refused(first, attempt(3, kind="foreach")).reason
        # Also in the replay, where the first write was skipped.
        renewed = decide(first, attempt(3, "b", kind="foreach"))
        assert isinstance(renewed, Skip)
        assert renewed.renewed is not None
        assert "once under one" in refused(renewed.renewed, attempt(3, "b", kind="foreach")).reason

    def test_going_back_is_refused(self) -> None:
        assert "restored" in refused(marker(9, "a", kind="foreach"), attempt(3, "b", kind="foreach")).reason

    def test_another_query_is_refused(self) -> None:
        now = attempt(8, "b", kind="foreach", query="query-2")
        assert "needs one of its own" in refused(marker(7, "a", kind="foreach"), now).reason

    def test_a_query_may_change_to_it_and_back(self) -> None:
        after = sent(marker(7, "a"), attempt(8, "b", kind="foreach"))
        assert sent(after, attempt(9, "c")) == marker(9, "a", "b", "c")


class TestJobs:
    """Batch jobs under one prefix follow one another in any order."""

    def test_another_job_is_sent(self) -> None:
        first = sent(None, Attempt.of_job("monday"))
        assert first.batch == 0
        assert sent(first, Attempt.of_job("tuesday")).runs == ("monday", "tuesday")

    def test_a_job_that_is_submitted_again_is_skipped(self) -> None:
        first = sent(None, Attempt.of_job("monday"))
        assert decide(first, Attempt.of_job("monday")) == Skip(None)
        second = sent(first, Attempt.of_job("tuesday"))
        assert decide(second, Attempt.of_job("monday")) == Skip(None)

    def test_jobs_without_a_name_push_no_name_out(self) -> None:
        found = sent(None, Attempt.of_job("monday"))
        for number in range(2 * REMEMBERED_RUNS):
            nameless = Attempt.of_job(f"{number}", named=False)
            found = sent(found, nameless)
            assert decide(found, nameless) == Skip(None)  # as after an end that was not confirmed
        assert len(found.runs) == 2
        assert decide(found, Attempt.of_job("monday")) == Skip(None)
        assert "what was sent last is a batch job without a name" in refused(found, attempt(0)).reason

    def test_a_job_does_not_take_the_prefix_of_a_query(self) -> None:
        found = refused(marker(7, "a"), Attempt.of_job("monday"))
        assert "batch 7 of query query-1" in found.reason

    def test_a_query_does_not_take_the_prefix_of_jobs(self) -> None:
        first = sent(None, Attempt.of_job("monday"))
        assert "batch job monday" in refused(first, attempt(0)).reason
        assert "batch job monday" in refused(first, attempt(0, kind="foreach")).reason
        # Not even one that has the job's name.
        assert "batch job monday" in refused(first, attempt(0, query="monday")).reason


markers = st.builds(
    Marker,
    st.sampled_from(["stream", "foreach", "job"]),
    st.text(max_size=5),
    st.integers(0, 2**40),
    st.lists(st.text(max_size=5), min_size=1, max_size=60).map(tuple),
    st.none() | st.text(max_size=5),
)
attempts = st.builds(Attempt.of_job, st.sampled_from(["job-1", "job-2"])) | st.builds(
    Attempt,
    st.sampled_from(["stream", "foreach"]),
    st.sampled_from([Q, "other"]),
    st.sampled_from("abc"),
    st.integers(0, 4),
    st.none() | st.sampled_from("xy"),
)
job_markers = st.lists(st.sampled_from(["job-1", "job-2", "job-3"]), min_size=1, unique=True).map(
    lambda jobs: Marker("job", jobs[-1], 0, tuple(jobs))
)
query_markers = st.builds(
    Marker,
    st.sampled_from(["stream", "foreach"]),
    st.sampled_from([Q, "other"]),
    st.integers(0, 4),
    st.lists(st.sampled_from("abc"), min_size=1, unique=True).map(tuple),
    st.none() | st.sampled_from("xy"),
)
found_markers = st.none() | job_markers | query_markers


@given(markers)
def test_markers_survive_json(wanted: Marker) -> None:
    assert Marker.from_json(wanted.to_json()) == wanted
    assert Marker.from_json(wanted.to_json().encode()) == wanted


GOOD: dict[str, Any] = {"version": 1, "kind": "stream", "query": "q", "batch": 1, "digest": None, "runs": ["a"]}


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": None},
        {"kind": "other"},
        {"query": None},
        {"batch": "1"},
        {"batch": True},
        {"batch": -1},
        {"digest": 5},
        {"runs": []},
        {"runs": [1]},
        {"runs": "a"},
    ],
)
def test_a_marker_that_cannot_be_understood_is_an_error(change: dict[str, Any]) -> None:
    assert Marker.from_json(json.dumps(GOOD)) == Marker("stream", "q", 1, ("a",))
    with pytest.raises(DeliveryRefusedError, match=f"cannot be read: .*{next(iter(change))} is"):
        Marker.from_json(json.dumps(GOOD | change))


@pytest.mark.parametrize("text", [b"", b"\xff", b"[]", b"5", b"null", b"{", b"[" * 100_000])
def test_other_bytes_are_no_marker_and_not_no_marker(text: bytes) -> None:
    with pytest.raises(DeliveryRefusedError, match="cannot be read"):
        Marker.from_json(text)


@given(found_markers, attempts)
def test_what_is_sent_is_skipped_when_it_is_replayed(before: Marker | None, now: Attempt) -> None:
    decision = decide(before, now)
    if not isinstance(decision, Send):
        return
    again = replace(now, run=now.query if now.kind == "job" else "later")
    assert isinstance(decide(decision.marker, again), Skip)


@given(found_markers, attempts)
def test_a_token_turns_a_refusal_into_sending_once(before: Marker | None, now: Attempt) -> None:
    decision = decide(before, now)
    if not isinstance(decision, Refuse) or decision.token is None:
        assert decide(before, now, token_for(before, now)) == decision  # where it is not needed it changes nothing
        return
    after = sent(before, now, decision.token)
    assert not isinstance(decide(after, now, decision.token), Send)


class Histories(RuleBasedStateMachine):
    """Drivers of one query that come, die and are thought dead, on one checkpoint, in any order.

    Each step is one commit of one driver, whole, as the transactional id sees to. The checkpoint's entry of a batch is
    written before its commit and never changes; a driver goes on where the checkpoint says when it starts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.marker: Marker | None = None
        self.topic: list[int] = []
        self.committed = -1  # Spark's commit log
        self.drivers: dict[str, int] = {}  # the next batch of each
        self.started = 0

    @rule()
    def start(self) -> None:
        self.started += 1
        self.drivers[f"run-{self.started}"] = self.committed + 1

    @precondition(lambda self: self.drivers)
    @rule(data=st.data(), dies=st.booleans())
    def commit(self, data: st.DataObject, dies: bool) -> None:
        run = data.draw(st.sampled_from(sorted(self.drivers)))
        batch = self.drivers[run]
        decision = decide(self.marker, attempt(batch, run, f"offsets of {batch}"))
        if isinstance(decision, Refuse):
            assert decision.token is None or batch <= self.marker.batch  # type: ignore[union-attr]
            del self.drivers[run]
            return
        if isinstance(decision, Send):
            self.topic.append(batch)
            self.marker = decision.marker
        else:
            self.marker = decision.renewed or self.marker
        if dies:  # before Spark's own commit
            del self.drivers[run]
        else:
            self.committed = max(self.committed, batch)
            self.drivers[run] = batch + 1

    @invariant()
    def every_batch_is_there_once(self) -> None:
        assert self.topic == list(range(len(self.topic)))
        assert self.committed < len(self.topic)


def test_histories_neither_lose_nor_double() -> None:
    run_state_machine_as_test(Histories)
