"""Sending, skipping or rejecting a batch: every history that lost or duplicated records, and generated ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from pyspark_kafka_direct.errors import TransactionStateError
from pyspark_kafka_direct.planning.commit_decision import (
    BatchAttempt,
    CommitBatch,
    RejectBatch,
    SinkState,
    SkipBatch,
    Ticket,
    decide_before_fencing,
    decide_commit,
    reset_token_for,
)

Q = "query-1"


def ticket(offset: int) -> Ticket:
    return Ticket("topic id", offset)


def attempt(batch: int, run: str = "a", digest: str | None = "d", planned: int = 100, **more: Any) -> BatchAttempt:
    return BatchAttempt(more.pop("kind", "stream"), more.pop("query", Q), run, batch, ticket(planned), digest)


def state(batch: int, run: str = "a", digest: str | None = "d", planned: int = 50, **more: Any) -> SinkState:
    return SinkState(more.pop("kind", "stream"), more.pop("query", Q), run, batch, ticket(planned), digest)


def sent(previous: SinkState | None, now: BatchAttempt, token: str | None = None) -> SinkState:
    assert decide_commit(previous, now, token) == CommitBatch()
    if previous is not None:
        assert decide_before_fencing(previous, now, token) is None
    return now.state()


def rejected(previous: SinkState | None, now: BatchAttempt, token: str | None = None) -> RejectBatch:
    decision = decide_commit(previous, now, token)
    assert isinstance(decision, RejectBatch), decision
    return decision


def test_batches_of_one_run_follow_one_another() -> None:
    last = None
    for batch in range(5):
        last = sent(last, attempt(batch, digest=str(batch), planned=batch))
        assert last == state(batch, digest=str(batch), planned=batch)


def test_a_batch_replayed_after_a_restart_is_skipped() -> None:
    assert decide_commit(state(7, "a"), attempt(7, "b")) == SkipBatch()
    assert decide_before_fencing(state(7, "a"), attempt(7, "b")) is None
    assert sent(state(7, "a"), attempt(8, "b")) == state(8, "b", planned=100)


def test_a_batch_that_is_committed_twice_is_skipped() -> None:
    for kind in ("stream", "foreach"):
        now = attempt(7, kind=kind)
        assert decide_commit(now.state(), now) == SkipBatch()


def test_a_restored_backup_of_the_checkpoint_is_rejected_and_not_skipped() -> None:
    """A checkpoint restored at batch 100 with a sink state of batch 180 skipped 81 batches of new ranges."""
    reason = rejected(state(180, "a"), attempt(100, "b")).reason
    assert "batch 100 " in reason
    assert "batch 180." in reason
    assert "restored from a backup" in reason
    assert "batches 100 to 180 were already sent" in reason


def test_a_copied_checkpoint_does_not_skip_the_batch_of_the_other_one() -> None:
    """Two drivers resumed from one checkpoint, and each skipped the other's different batch."""
    first = sent(state(4, "a"), attempt(5, "b", "b's ranges"))
    rejection = rejected(first, attempt(5, "c", "c's ranges"))
    assert "batch 5 of query query-1 was already sent (run b)" in rejection.reason
    assert "b's ranges" in rejection.reason
    assert "c's ranges" in rejection.reason
    assert "copied" in rejection.reason


def test_a_superseded_run_fails_permanently() -> None:
    superseded = state(7, "b", planned=60)
    for now in (attempt(7, planned=59), attempt(8, planned=59)):  # of a driver that planned earlier, and hung
        rejection = rejected(superseded, now, reset_token_for(superseded, now))
        assert rejection.token is None
        assert "run b, which planned later, has superseded this run and sent batch 7" in rejection.reason
        assert "This run cannot continue" in str(rejection.error("p.sink"))
        assert "resetTransactionState" not in str(rejection.error("p.sink"))
        assert decide_before_fencing(superseded, now) == rejection


def test_a_run_that_planned_later_continues_after_another_run_sent_its_batch() -> None:
    assert decide_commit(state(7, "b", planned=60), attempt(7, "a", planned=61)) == SkipBatch()
    assert sent(state(7, "b", planned=60), attempt(8, "a", planned=70)).run == "a"


def test_tickets_of_a_recreated_topic_are_not_compared() -> None:
    other = Ticket("other id", 1_000)
    assert not other.is_newer_than(ticket(1))
    assert not ticket(1_000).is_newer_than(other)
    assert ticket(2).is_newer_than(ticket(1))
    assert not ticket(1).is_newer_than(ticket(1))
    assert decide_commit(replace(state(7, "b"), ticket=other), attempt(8, "a")) == CommitBatch()


@pytest.mark.parametrize("batch", [0, 6, 9])
def test_only_another_query_or_a_newer_ticket_rejects_before_fencing(batch: int) -> None:
    """The record may be that of the batch before: control records follow after the response to EndTxn."""
    assert decide_before_fencing(state(7), attempt(batch, "b")) is None
    assert decide_before_fencing(state(7), attempt(batch, "b", query="query-2")) is not None


@pytest.mark.parametrize(("recorded", "now"), [(None, "d"), ("d", None)])
def test_a_batch_without_a_digest_is_not_taken_for_a_rerun(recorded: str | None, now: str | None) -> None:
    assert "with other content" in rejected(state(7, "a", recorded), attempt(7, "b", now)).reason


def test_a_query_that_was_at_least_once_before_is_rejected() -> None:
    rejection = rejected(None, attempt(12))
    assert (
        "batch 12 of query query-1 is to be sent, but there is no sink state record of an earlier" in rejection.reason
    )
    assert "written at-least-once" in rejection.reason


def test_a_gap_between_batches_is_rejected() -> None:
    """At-least-once for a while, or the sink state topic restored from a backup."""
    rejection = rejected(state(7, "a"), attempt(10, "b"))
    assert "the last one sent is batch 7" in rejection.reason
    assert "batches 8 to 9" in rejection.reason


@pytest.mark.parametrize(("recorded", "is_accepted"), [(6, False), (7, True), (8, True), (9, True), (10, False)])
def test_the_query_may_have_run_some_of_the_batches_of_rewinds(recorded: int, is_accepted: bool) -> None:
    now = replace(attempt(10, run="b"), rewound=2)  # batches 8 and 9
    decision = decide_commit(state(recorded, digest="other"), now, None)
    assert isinstance(decision, CommitBatch if is_accepted else RejectBatch)


def test_deleted_log_entries_are_rejected() -> None:
    """Without the newest entries of both logs, Spark plans batch 7 again with a sink state of batch 8."""
    assert "logs were deleted" in rejected(state(8, "a"), attempt(7, "b")).reason


@pytest.mark.parametrize("batch", [0, 7, 8])
def test_another_query_with_the_prefix_is_rejected(batch: int) -> None:
    rejection = rejected(state(7, "a"), attempt(batch, "b", query="query-2"))
    assert "batch 7 of query query-1" in rejection.reason
    assert f"batch {batch} of query query-2" in rejection.reason
    assert "needs its own" in rejection.reason


def test_a_new_checkpoint_is_rejected_unless_the_token_allows_it() -> None:
    rejection = rejected(state(7, "a"), attempt(0, "b", query="query-2"))
    assert "new checkpoint" in rejection.reason
    after = sent(state(7, "a"), attempt(0, "b", query="query-2"), rejection.token)
    assert after == state(0, "b", query="query-2", planned=100)
    # The first query is another one now.
    assert "needs its own" in rejected(after, attempt(8, "a", planned=110)).reason


def test_the_error_contains_the_token_and_how_to_use_it() -> None:
    rejection = rejected(state(180, "a"), attempt(100, "b"))
    error = rejection.error("p.sink")
    assert isinstance(error, TransactionStateError)
    assert f"set resetTransactionState to {rejection.token}" in str(error)
    assert "'p.sink'" in str(error)


def test_a_token_that_stays_in_the_code_has_no_further_effect() -> None:
    """With a permanent resetTransactionState=true, two queries alternated with one prefix."""
    previous, now = state(180, "a"), attempt(100, "b")
    token = rejected(previous, now).token
    after = sent(previous, now, token)
    assert sent(after, attempt(101, "b", planned=101), token) == state(101, "b", planned=101)
    assert decide_commit(after, attempt(100, "c"), token) == SkipBatch()
    # Another query, another batch, another sink state: rejected again.
    assert rejected(after, attempt(0, "x", query="query-2"), token).token != token
    assert rejected(previous, attempt(99, "b"), token).token != token
    assert rejected(state(181, "a"), now, token).token != token
    assert rejected(None, now, token).token != token


def test_a_token_for_a_missing_state_is_valid_for_a_missing_state_only() -> None:
    token = rejected(None, attempt(12)).token
    after = sent(None, attempt(12), token)
    assert decide_commit(after, attempt(12, "b"), token) == SkipBatch()
    assert rejected(None, attempt(13), token).token != token


def test_a_token_allows_a_batch_id_that_was_sent_with_other_ranges() -> None:
    previous, now = state(5, "b", digest="x"), attempt(5, "c", "y")
    assert sent(previous, now, rejected(previous, now).token) == state(5, "c", digest="y", planned=100)


class TestForeachBatch:
    """Batch writes in foreachBatch, which Spark may replay."""

    def test_gaps_are_allowed(self) -> None:
        first = sent(None, attempt(0, kind="foreach"))
        assert sent(first, attempt(9, kind="foreach", planned=101)).batch == 9

    def test_a_later_batch_without_a_record_is_rejected(self) -> None:
        """A changed topic or prefix wrote the replayed batch again, because no record counted as nothing sent."""
        now = attempt(5, kind="foreach")
        rejection = rejected(None, now)
        assert "batch 5 of query query-1 is to be sent, but there is no sink state record" in rejection.reason
        assert sent(None, now, rejection.token) == now.state()

    def test_a_replay_is_skipped(self) -> None:
        assert decide_commit(state(3, kind="foreach"), attempt(3, "b", kind="foreach")) == SkipBatch()

    def test_a_second_write_of_one_batch_is_rejected(self) -> None:
        first = sent(None, attempt(0, kind="foreach"))
        assert "once per transactionalIdPrefix" in rejected(first, attempt(0, kind="foreach", planned=101)).reason

    def test_an_earlier_batch_is_rejected(self) -> None:
        assert "restored" in rejected(state(9, kind="foreach"), attempt(3, "b", kind="foreach")).reason

    def test_another_query_is_rejected(self) -> None:
        now = attempt(8, "b", kind="foreach", query="query-2")
        assert "needs its own" in rejected(state(7, kind="foreach"), now).reason

    def test_a_query_may_change_to_foreach_batch_and_back(self) -> None:
        after = sent(state(7), attempt(8, "b", kind="foreach"))
        assert sent(after, attempt(9, "c", planned=101)) == state(9, "c", planned=101)


class TestJobs:
    """Each batch job has its own record."""

    def test_a_job_that_is_submitted_again_is_skipped(self) -> None:
        first = sent(None, BatchAttempt.of_job("monday", ticket(1)))
        assert (first.query, first.run, first.batch) == ("monday", "monday", 0)
        assert decide_commit(first, BatchAttempt.of_job("monday", ticket(2))) == SkipBatch()

    def test_a_job_that_hung_is_superseded(self) -> None:
        first = sent(None, BatchAttempt.of_job("monday", ticket(2)))
        assert rejected(first, BatchAttempt.of_job("monday", ticket(1))).token is None

    def test_a_query_cannot_use_the_record_of_a_job(self) -> None:
        first = sent(None, BatchAttempt.of_job("monday", ticket(1)))
        assert "batch job monday" in rejected(first, attempt(0)).reason
        # Not even a query with the job's name.
        assert "batch job monday" in rejected(first, attempt(0, query="monday")).reason
        assert (
            "batch 7 of query monday"
            in rejected(state(7, query="monday"), BatchAttempt.of_job("monday", ticket(99))).reason
        )


tickets = st.builds(Ticket, st.sampled_from(["id-1", "id-2"]), st.integers(0, 5))
states = st.builds(
    SinkState,
    st.sampled_from(["stream", "foreach", "job"]),
    st.text(max_size=5),
    st.text(max_size=5),
    st.integers(0, 2**40),
    st.builds(Ticket, st.text(max_size=5), st.integers(0, 2**40)),
    st.none() | st.text(max_size=5),
)
attempts = st.builds(BatchAttempt.of_job, st.sampled_from(["job-1", "job-2"]), tickets) | st.builds(
    BatchAttempt,
    st.sampled_from(["stream", "foreach"]),
    st.sampled_from([Q, "other"]),
    st.sampled_from("abc"),
    st.integers(0, 4),
    tickets,
    st.none() | st.sampled_from("xy"),
)
optional_states = st.none() | attempts.map(BatchAttempt.state)


@given(states)
def test_states_survive_json(wanted: SinkState) -> None:
    assert SinkState.from_json(wanted.to_json()) == wanted
    assert SinkState.from_json(wanted.to_json().encode()) == wanted


GOOD: dict[str, Any] = {"version": 1, "kind": "stream", "query": "q", "batch": 1, "digest": None, "run": "a"}
GOOD["ticket"] = ["topic id", 3]


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
        {"run": None},
        {"ticket": None},
        {"ticket": ["topic id"]},
        {"ticket": [3, "topic id"]},
        {"ticket": ["topic id", -1]},
    ],
)
def test_an_invalid_state_is_an_error(change: dict[str, Any]) -> None:
    assert SinkState.from_json(json.dumps(GOOD)) == SinkState("stream", "q", "a", 1, ticket(3))
    with pytest.raises(TransactionStateError, match=f"cannot be read: .*{next(iter(change))} is"):
        SinkState.from_json(json.dumps(GOOD | change))


@pytest.mark.parametrize("text", [b"", b"\xff", b"[]", b"5", b"null", b"{", b"[" * 100_000])
def test_other_bytes_are_an_error_and_not_a_missing_state(text: bytes) -> None:
    with pytest.raises(TransactionStateError, match="cannot be read"):
        SinkState.from_json(text)


@given(optional_states, attempts)
def test_a_batch_that_was_sent_is_skipped_when_it_is_replayed(previous: SinkState | None, now: BatchAttempt) -> None:
    if not isinstance(decide_commit(previous, now), CommitBatch):
        return
    again = replace(now, run=now.query if now.kind == "job" else "later", ticket=now.ticket._replace(offset=10))
    assert isinstance(decide_commit(now.state(), again), SkipBatch)


@given(optional_states, attempts)
def test_a_token_allows_a_rejected_batch_once(previous: SinkState | None, now: BatchAttempt) -> None:
    decision = decide_commit(previous, now)
    if not isinstance(decision, RejectBatch) or decision.token is None:
        assert (
            decide_commit(previous, now, reset_token_for(previous, now)) == decision
        )  # an unneeded token has no effect
        return
    after = sent(previous, now, decision.token)
    assert not isinstance(decide_commit(after, now, decision.token), CommitBatch)


class Histories(RuleBasedStateMachine):
    """Drivers of one query that start, die or are wrongly assumed dead, with one checkpoint, in any order.

    Each step is one atomic commit of one driver, as the transactional id ensures. The checkpoint's entry of a batch is
    written before its commit and never changes; a driver resumes from the checkpoint when it starts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state: SinkState | None = None
        self.topic: list[int] = []
        self.committed = -1  # Spark's commit log
        self.drivers: dict[str, tuple[int, int]] = {}  # the next batch of each, and its ticket
        self.started = 0
        self.tickets = 0

    @rule()
    def start(self) -> None:
        self.started += 1
        self.plan(f"run-{self.started}", self.committed + 1)

    def plan(self, run: str, batch: int) -> None:
        self.tickets += 1
        self.drivers[run] = (batch, self.tickets)

    @precondition(lambda self: self.drivers)
    @rule(data=st.data(), dies=st.booleans())
    def commit(self, data: st.DataObject, dies: bool) -> None:
        run = data.draw(st.sampled_from(sorted(self.drivers)))
        batch, planned = self.drivers[run]
        now = attempt(batch, run, f"offsets of {batch}", planned)
        decision = decide_commit(self.state, now)
        if isinstance(decision, RejectBatch):
            assert decision.token is None or batch <= self.state.batch  # type: ignore[union-attr]
            # The newest driver is never rejected, so the query continues.
            assert planned < self.state.ticket.offset or batch <= self.committed  # type: ignore[union-attr]
            del self.drivers[run]
            return
        if isinstance(decision, CommitBatch):
            self.topic.append(batch)
            self.state = now.state()
        if dies or batch <= self.committed:  # before Spark's own commit, or in it, as the batch has an entry
            del self.drivers[run]
        else:
            self.committed = batch
            self.plan(run, batch + 1)

    @invariant()
    def every_batch_is_there_once(self) -> None:
        assert self.topic == list(range(len(self.topic)))
        assert self.committed < len(self.topic)


def test_histories_neither_lose_nor_duplicate_batches() -> None:
    run_state_machine_as_test(Histories)
