"""Decides whether a batch is sent, was already sent, or must be rejected, from the sink state record of the last batch.

The record is written in the same transaction as its batch, so it exists if and only if the batch does. It is read after
all earlier writers with the same transactional id were fenced. Three kinds of writes have records:

- ``stream``: the micro-batches of a streaming query, which follow one another without a gap;
- ``foreach``: batch writes within a query's ``foreachBatch``; the function may skip batches;
- ``job``: separate batch writes, each with its own transactional id.

Records have the ticket of their write. A driver gets a ticket when it plans a batch, so tickets have the order in which
drivers planned. A driver that resumes late finds a record with a newer ticket, and must not continue.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeGuard

from pyspark_kafka_direct.errors import TransactionStateError

WriteKind: TypeAlias = Literal["stream", "foreach", "job"]

WRITE_KINDS: Final[tuple[WriteKind, ...]] = ("stream", "foreach", "job")

_VERSION = 1


class Ticket(NamedTuple):
    """The position of a record that a driver appended to the sink state topic when it planned a batch."""

    topic_id: str  # empty before Kafka 2.8
    offset: int

    def is_newer_than(self, other: Ticket) -> bool:
        """Return whether this ticket is the newer one; those of a recreated topic cannot be compared."""
        return self.topic_id == other.topic_id and self.offset > other.offset


@dataclass(frozen=True, slots=True)
class SinkState:
    """The last batch that was sent with a transactional id."""

    kind: WriteKind
    query: str  # the id that the query's checkpoint keeps; for "job" the job's name
    run: str  # for "job" the same as query
    batch: int  # the batch id; 0 for "job"
    ticket: Ticket
    digest: str | None = None  # of the checkpoint's offsets entry, identifies the content; None for "job"

    def to_json(self) -> str:
        """Serialize as JSON: equal states always give the same string."""
        fields = {
            "version": _VERSION,
            "kind": self.kind,
            "query": self.query,
            "run": self.run,
            "batch": self.batch,
            "ticket": list(self.ticket),
            "digest": self.digest,
        }
        return json.dumps(fields, separators=(",", ":"))

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
    run: str
    batch: int
    ticket: Ticket
    digest: str | None = None
    is_named: bool = True  # False: a job without a name, which leaves no record
    rewound: int = 0  # batches directly before this one that ``checkpoint rewind`` has added: a sink need not have them

    @classmethod
    def of_job(cls, job: str, ticket: Ticket, *, named: bool = True) -> BatchAttempt:
        """Return the attempt of a batch job.

        Args:
            job: The unique id or name of the job.
            ticket: The ticket of the write.
            named: Whether it is a name, which may be submitted again.
        """
        return cls(kind="job", query=job, run=job, batch=0, ticket=ticket, is_named=named)

    def state(self) -> SinkState:
        """Return the state after this batch."""
        return SinkState(self.kind, self.query, self.run, self.batch, self.ticket, self.digest)


class CommitBatch(NamedTuple):
    """Send the batch, with ``BatchAttempt.state`` as the new sink state."""


class SkipBatch(NamedTuple):
    """The batch was already sent."""


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


def decide_before_fencing(
    state: SinkState, attempt: BatchAttempt, reset_token: str | None = None
) -> RejectBatch | None:
    """Return the rejection of a batch whose driver must not fence the writer of the state, or ``None``."""
    if _belongs_to_another(state, attempt):
        token = reset_token_for(state, attempt)
        return None if reset_token == token else RejectBatch(_another_query_reason(state, attempt), token)
    if state.ticket.is_newer_than(attempt.ticket):
        return RejectBatch(_superseded_reason(state, attempt), token=None)  # the newer driver must not be fenced
    return None


def decide_commit(state: SinkState | None, attempt: BatchAttempt, reset_token: str | None = None) -> CommitDecision:
    """Decide what to do with a batch.

    ``state`` is ``None`` if the transactional id has never committed a batch. ``reset_token`` is the user's
    ``resetTransactionState``, the token of an earlier rejection.
    """
    token = reset_token_for(state, attempt)
    decision = _decide_without_state(attempt, token) if state is None else _decide(state, attempt, token, reset_token)
    if isinstance(decision, RejectBatch) and decision.token is not None and reset_token == token:
        return CommitBatch()
    return decision


def reset_token_for(state: SinkState | None, attempt: BatchAttempt) -> str:
    """Return the token that allows a rejected batch to be sent: a hash of the state, query and batch id."""
    state_json = None if state is None else state.to_json()
    rejected_case = json.dumps([state_json, attempt.query, attempt.batch])
    return hashlib.sha256(rejected_case.encode()).hexdigest()[:16]


def _decide_without_state(attempt: BatchAttempt, token: str) -> CommitDecision:
    if attempt.kind == "job" or attempt.batch == 0:
        return CommitBatch()
    return RejectBatch(_no_state_reason(attempt), token)


def _decide(state: SinkState, attempt: BatchAttempt, token: str, reset_token: str | None) -> CommitDecision:
    if (rejection := decide_before_fencing(state, attempt, reset_token)) is not None:
        return rejection
    if _belongs_to_another(state, attempt):
        return CommitBatch()  # the reset token allows it
    if attempt.batch == state.batch:
        return _decide_replay(state, attempt, token)
    may_skip_batches = attempt.kind == "foreach"
    # The query itself may have run the first of the batches that ``checkpoint rewind`` has added.
    if attempt.batch - attempt.rewound <= state.batch + 1 <= attempt.batch or (
        may_skip_batches and attempt.batch > state.batch
    ):
        return CommitBatch()
    return RejectBatch(_gap_reason(state, attempt), token)


def _belongs_to_another(state: SinkState, attempt: BatchAttempt) -> bool:
    """Return whether the last batch was one of another query or job; a query and a job may have the same name."""
    return state.query != attempt.query or (state.kind == "job") != (attempt.kind == "job")


def _decide_replay(state: SinkState, attempt: BatchAttempt, token: str) -> CommitDecision:
    """Decide on a batch with the recorded batch id: a replay, other content, or a second write in ``foreachBatch``."""
    if state.digest != attempt.digest:
        return RejectBatch(_other_content_reason(state, attempt), token)
    if attempt.kind == "foreach" and attempt.run == state.run and attempt.ticket != state.ticket:
        # Without a token, because it would be valid again after the second write.
        return RejectBatch(second_write_reason(attempt.batch), token=None)
    return SkipBatch()


def _superseded_reason(state: SinkState, attempt: BatchAttempt) -> str:
    return (
        f"{_described(attempt)} of run {attempt.run} is not sent: run {state.run}, which planned later, has superseded "
        f"this run and sent {_described(state)}. Two drivers run the same query: an old one is still alive, or it was "
        "started twice. This run cannot continue; the other one does."
    )


def _no_state_reason(attempt: BatchAttempt) -> str:
    return (
        f"batch {attempt.batch} of query {attempt.query} is to be sent, but there is no sink state record of an "
        "earlier batch. The query may have written at-least-once, or with another transactionalIdPrefix or "
        "sinkStateTopic; or its foreachBatch function has written no earlier batch; or the sink state topic was "
        f"deleted or lost its records. Batch {attempt.batch} itself may already have been sent."
    )


def _another_query_reason(state: SinkState, attempt: BatchAttempt) -> str:
    return (
        f"{_described(attempt)} is to be sent, but the last one sent is {_described(state)}. Another query uses this "
        "transactionalIdPrefix and needs its own; or this is the same query with a new checkpoint, which restarts and "
        "may send records again."
    )


def _described(write: SinkState | BatchAttempt) -> str:
    return f"batch job {write.query}" if write.kind == "job" else f"batch {write.batch} of query {write.query}"


def _other_content_reason(state: SinkState, attempt: BatchAttempt) -> str:
    return (
        f"batch {attempt.batch} of query {attempt.query} was already sent (run {state.run}) with other content: the "
        f"digest of the checkpoint's offsets was {state.digest} and is {attempt.digest} now. The checkpoint may have "
        "been copied so that two queries resume from it, or restored from a backup, or entries of its offsets folder "
        "were deleted. Some records may be in both batches."
    )


def second_write_reason(batch: int) -> str:
    """Return why a run of a query may not write a batch again."""
    return (
        f"batch {batch} was already sent by this run. foreachBatch may write each batch once per "
        "transactionalIdPrefix: use another prefix for the second write."
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
    kind, query, run, batch, digest = (fields.get(name) for name in ("kind", "query", "run", "batch", "digest"))
    if kind not in WRITE_KINDS:
        raise ValueError(f"kind is {kind!r}")
    if not isinstance(query, str):
        raise ValueError(f"query is {query!r}")
    if not isinstance(run, str):
        raise ValueError(f"run is {run!r}")
    if not _is_offset(batch):
        raise ValueError(f"batch is {batch!r}")
    if digest is not None and not isinstance(digest, str):
        raise ValueError(f"digest is {digest!r}")
    return SinkState(kind, query, run, batch, _ticket_from_field(fields.get("ticket")), digest)


def _ticket_from_field(field: Any) -> Ticket:
    match field:
        case [str(topic_id), offset] if _is_offset(offset):
            return Ticket(topic_id, offset)
    raise ValueError(f"ticket is {field!r}")


def _is_offset(number: Any) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
