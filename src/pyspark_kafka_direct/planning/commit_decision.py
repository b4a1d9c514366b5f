"""Decides whether a batch is sent, was already sent, or must be rejected, from the sink state record of the last batch.

The record is written in the same transaction as its batch, so it exists if and only if the batch does. It is read after
all earlier writers with the same transactional id were fenced. Three kinds of writes have records:

- ``stream``: the micro-batches of a streaming query, which follow one another without a gap;
- ``foreach``: batch writes within a query's ``foreachBatch``; the function may skip batches;
- ``job``: separate batch writes in any order, each with its own id.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from pyspark_kafka_direct.errors import TransactionStateError

WriteKind: TypeAlias = Literal["stream", "foreach", "job"]

WRITE_KINDS: Final[tuple[WriteKind, ...]] = ("stream", "foreach", "job")

MAX_RECORDED_RUNS: Final = 50  # runs, or named batch jobs, that a sink state lists

_UNNAMED_PREFIX: Final = "\0"  # of the id of a job without a name; no option value can contain it

_VERSION = 1


@dataclass(frozen=True, slots=True)
class SinkState:
    """The last batch that was sent with a transactional id."""

    kind: WriteKind
    query: str  # the id that the query's checkpoint keeps; for "job" the job's id
    batch: int  # the batch id; 0 for "job"
    runs: tuple[str, ...]  # ids of the last runs with this transactional id, the newest last; for "job" ids of jobs
    digest: str | None = None  # of the checkpoint's offsets entry, identifies the content; None if it is unreadable

    @property
    def run(self) -> str:
        """The id of the run that wrote it."""
        return self.runs[-1]

    def to_json(self) -> str:
        """Serialize as JSON: equal states always give the same string."""
        fields = {
            "version": _VERSION,
            "kind": self.kind,
            "query": self.query,
            "batch": self.batch,
            "digest": self.digest,
            "runs": list(self.runs),
        }
        return json.dumps(fields, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> SinkState:
        """Parse the output of ``to_json``; raise ``TransactionStateError`` for anything else."""
        try:
            return _state_from_fields(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise TransactionStateError(
                f"The sink state record of the last batch cannot be read: {error}. A newer version of this package "
                "may have written it, or another program writes to the sink state topic."
            ) from None


@dataclass(frozen=True, slots=True)
class BatchAttempt:
    """A batch that is about to be sent; the fields are those of ``SinkState``."""

    kind: WriteKind
    query: str
    run: str  # for "job" the job's id
    batch: int = 0
    digest: str | None = None

    @classmethod
    def of_job(cls, job: str, *, named: bool = True) -> BatchAttempt:
        """Return the attempt of a batch job.

        Args:
            job: The unique id or name of the job.
            named: Whether it is a name, which may be submitted again. An id is recorded only until the next job.
        """
        name = job if named else _UNNAMED_PREFIX + job
        return cls("job", name, name)


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """Send the batch with this sink state."""

    state: SinkState


@dataclass(frozen=True, slots=True)
class SkipBatch:
    """The batch was already sent."""

    updated_state: SinkState | None  # to write, so that this run supersedes earlier ones; None if nothing changes


@dataclass(frozen=True, slots=True)
class RejectBatch:
    """Fail the write, because neither sending nor skipping the batch is known to be correct."""

    reason: str
    token: str | None  # the value of resetTransactionState that allows this batch; None if none does

    def error(self, transactional_id: str) -> TransactionStateError:
        """Return the error to raise."""
        advice = ""
        if self.token is not None:
            advice = (
                " Nothing was sent. To send this batch anyway and let later batches follow it, set "
                f"resetTransactionState to {self.token}; this token is valid for this batch only."
            )
        return TransactionStateError(
            f"Exactly-once delivery with transactional id {transactional_id!r}: {self.reason}{advice}"
        )


CommitDecision: TypeAlias = CommitBatch | SkipBatch | RejectBatch


def decide_commit(state: SinkState | None, attempt: BatchAttempt, reset_token: str | None = None) -> CommitDecision:
    """Decide what to do with a batch.

    ``state`` is ``None`` if the transactional id has never committed a batch. ``reset_token`` is the user's
    ``resetTransactionState``, the token of an earlier rejection.
    """
    if state is not None and attempt.run in state.runs[:-1] and attempt.kind != "job":
        return RejectBatch(_superseded_reason(state, attempt), None)
    token = reset_token_for(state, attempt)
    decision = _decide_by_kind(state, attempt, token)
    if isinstance(decision, RejectBatch) and decision.token is not None and reset_token == token:
        return CommitBatch(_next_state(state, attempt))
    return decision


def reset_token_for(state: SinkState | None, attempt: BatchAttempt) -> str:
    """Return the token that allows a rejected batch to be sent: a hash of the state, query and batch id."""
    state_json = None if state is None else state.to_json()
    rejected_case = json.dumps([state_json, attempt.query, attempt.batch])
    return hashlib.sha256(rejected_case.encode()).hexdigest()[:16]


def _decide_by_kind(state: SinkState | None, attempt: BatchAttempt, token: str) -> CommitDecision:
    if attempt.kind == "job":
        return _decide_job(state, attempt, token)
    if state is None:
        if attempt.kind == "foreach" or attempt.batch == 0:
            return CommitBatch(_next_state(None, attempt))
        return RejectBatch(_no_state_reason(attempt), token)
    if state.kind == "job" or state.query != attempt.query:
        return RejectBatch(_another_query_reason(state, attempt), token)
    if attempt.batch == state.batch:
        return _decide_replay(state, attempt, token)
    if attempt.batch == state.batch + 1 or (attempt.kind == "foreach" and attempt.batch > state.batch):
        return CommitBatch(_next_state(state, attempt))
    return RejectBatch(_gap_reason(state, attempt), token)


def _decide_job(state: SinkState | None, attempt: BatchAttempt, token: str) -> CommitDecision:
    if state is None:
        return CommitBatch(_next_state(None, attempt))
    if state.kind != "job":
        return RejectBatch(_another_query_reason(state, attempt), token)
    return SkipBatch(None) if attempt.query in state.runs else CommitBatch(_next_state(state, attempt))


def _decide_replay(state: SinkState, attempt: BatchAttempt, token: str) -> CommitDecision:
    """Decide on a batch with the recorded batch id: it is a replay unless the digest or the run contradicts that."""
    if None not in (state.digest, attempt.digest) and state.digest != attempt.digest:
        return RejectBatch(_other_content_reason(state, attempt), token)
    if attempt.run != state.run:
        digest = attempt.digest or state.digest
        return SkipBatch(replace(state, kind=attempt.kind, runs=_recorded_runs(state, attempt), digest=digest))
    if attempt.kind == "foreach":
        return RejectBatch(
            _second_write_reason(attempt), None
        )  # no token, because it would be valid again after the second write
    return SkipBatch(None)


def _next_state(state: SinkState | None, attempt: BatchAttempt) -> SinkState:
    return SinkState(attempt.kind, attempt.query, attempt.batch, _recorded_runs(state, attempt), attempt.digest)


def _recorded_runs(state: SinkState | None, attempt: BatchAttempt) -> tuple[str, ...]:
    """Return the runs up to this one, including superseded runs of other queries."""
    earlier_runs = () if state is None else state.runs
    retained = (run for run in earlier_runs if run != attempt.run and not run.startswith(_UNNAMED_PREFIX))
    return (*retained, attempt.run)[-MAX_RECORDED_RUNS:]


def _superseded_reason(state: SinkState, attempt: BatchAttempt) -> str:
    return (
        f"batch {attempt.batch} of run {attempt.run} was not sent, because run {state.run} fenced it and sent batch "
        f"{state.batch}. Two drivers run the same query: an old one is still alive, or it was started twice. "
        "This run cannot continue; the other one does."
    )


def _no_state_reason(attempt: BatchAttempt) -> str:
    return (
        f"batch {attempt.batch} of query {attempt.query} is to be sent, but there is no sink state record of batch "
        f"{attempt.batch - 1}. Earlier the query may have written at-least-once, or with another transactionalIdPrefix "
        "or sinkStateTopic; or the sink state topic was deleted or lost its records. Batch "
        f"{attempt.batch} itself may already have been sent."
    )


def _another_query_reason(state: SinkState, attempt: BatchAttempt) -> str:
    return (
        f"{_described(attempt)} is to be sent, but the last one sent is {_described(state)}. Another query uses this "
        "transactionalIdPrefix and needs its own; or this is the same query with a new checkpoint, which restarts and "
        "may send records again."
    )


def _described(write: SinkState | BatchAttempt) -> str:
    if write.kind != "job":
        return f"batch {write.batch} of query {write.query}"
    return "a batch job without a name" if write.query.startswith(_UNNAMED_PREFIX) else f"batch job {write.query}"


def _other_content_reason(state: SinkState, attempt: BatchAttempt) -> str:
    return (
        f"batch {attempt.batch} of query {attempt.query} was already sent (run {state.run}) with other content: the "
        f"digest of the checkpoint's offsets was {state.digest} and is {attempt.digest} now. The checkpoint may have "
        "been copied so that two queries resume from it, or restored from a backup, or entries of its offsets folder "
        "were deleted. Some records may be in both batches."
    )


def _second_write_reason(attempt: BatchAttempt) -> str:
    return (
        f"batch {attempt.batch} of query {attempt.query} was already sent by this run. foreachBatch may write each "
        "batch once per transactionalIdPrefix: use another prefix for the second write."
    )


def _gap_reason(state: SinkState, attempt: BatchAttempt) -> str:
    if attempt.batch < state.batch:
        explanation = (
            "The checkpoint may have been restored from a backup, or the newest entries of its logs were deleted. Then "
            f"batches {attempt.batch} to {state.batch} were already sent, possibly with other boundaries."
        )
    else:
        missing = f"{state.batch + 1} to {attempt.batch - 1}"
        explanation = (
            "In between, the query may have written at-least-once or elsewhere, or the sink state topic was restored "
            f"from a backup. Whether batches {missing} were sent is unknown."
        )
    return (
        f"batch {attempt.batch} of query {attempt.query} is to be sent, but the last one sent is batch "
        f"{state.batch}. {explanation}"
    )


def _state_from_fields(fields: Any) -> SinkState:
    if not isinstance(fields, dict):
        raise ValueError("it is not a JSON object")
    if fields.get("version") != _VERSION:
        raise ValueError(f"its version is {fields.get('version')!r}, this release reads version {_VERSION}")
    kind, query, batch, digest = (fields.get(name) for name in ("kind", "query", "batch", "digest"))
    runs = fields.get("runs")
    if kind not in WRITE_KINDS:
        raise ValueError(f"kind is {kind!r}")
    if not isinstance(query, str):
        raise ValueError(f"query is {query!r}")
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 0:
        raise ValueError(f"batch is {batch!r}")
    if not isinstance(runs, list) or not runs or not all(isinstance(run, str) for run in runs):
        raise ValueError(f"runs is {runs!r}")
    if digest is not None and not isinstance(digest, str):
        raise ValueError(f"digest is {digest!r}")
    return SinkState(kind, query, batch, tuple(runs), digest)
