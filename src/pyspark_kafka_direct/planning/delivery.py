"""Whether a batch has to be sent, was sent already, or must not be: decided by the marker of what was sent last.

A marker is written in the same transaction as the batch that it names, so it is there if and only if the batch is. It
is read after all earlier writers of its transactional id have been fenced.

Three kinds of writes have markers:

- ``stream``: the micro-batches of a streaming query, which follow one another without a gap;
- ``foreach``: batch writes within a query's ``foreachBatch``; the function may leave batches out;
- ``job``: batch writes of their own, which follow one another in any order, each under its own id.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from pyspark_kafka_direct.errors import DeliveryRefusedError

Kind: TypeAlias = Literal["stream", "foreach", "job"]

KINDS: Final[tuple[Kind, ...]] = ("stream", "foreach", "job")

REMEMBERED_RUNS: Final = 50
"""How many runs a marker lists; for batch jobs, how many jobs that have a name."""

_NAMELESS: Final = "\0"
"""What the id of a job without a name begins with; no option can hold it."""

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Marker:
    """What was sent last under a transactional id.

    Attributes:
        kind: What wrote it.
        query: The streaming query's id, which its checkpoint keeps; for ``job`` the job's id.
        batch: The batch's number; 0 for ``job``.
        runs: Ids of the last runs that wrote under the transactional id, the newest last. For ``job`` the ids of jobs.
        digest: What tells one batch of this number from another: a digest of the checkpoint's ``offsets`` entry.
            ``None`` where that could not be read.
    """

    kind: Kind
    query: str
    batch: int
    runs: tuple[str, ...]
    digest: str | None = None

    @property
    def run(self) -> str:
        """The run that wrote it."""
        return self.runs[-1]

    def to_json(self) -> str:
        """Write it as JSON: always the same text for the same marker."""
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
    def from_json(cls, text: str | bytes) -> Marker:
        """Read what ``to_json`` wrote.

        Raises:
            DeliveryRefusedError: It is something else: nobody knows then what was sent.
        """
        try:
            return _marker_of(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise DeliveryRefusedError(
                f"The marker of what was sent last cannot be read: {error}. A newer version of this package may have "
                "written it, or something else writes to the topic of markers."
            ) from None


@dataclass(frozen=True, slots=True)
class Attempt:
    """A batch that is about to be sent.

    Attributes:
        kind: What writes it.
        query: See ``Marker``.
        run: The run of the query; for ``job`` the job's id.
        batch: See ``Marker``.
        digest: See ``Marker``.
    """

    kind: Kind
    query: str
    run: str
    batch: int = 0
    digest: str | None = None

    @classmethod
    def of_job(cls, job: str, *, named: bool = True) -> Attempt:
        """Return the attempt of a batch job.

        Args:
            job: What no other job has.
            named: Whether it may be submitted again, by that name; else it is remembered until the next one only.
        """
        name = job if named else _NAMELESS + job
        return cls("job", name, name)


@dataclass(frozen=True, slots=True)
class Send:
    """Send the batch, with this marker.

    Attributes:
        marker: The marker that belongs to the batch.
    """

    marker: Marker


@dataclass(frozen=True, slots=True)
class Skip:
    """The batch was sent already.

    Attributes:
        renewed: A marker to write all the same, so that the run that goes on supersedes those before it; ``None`` where
            the marker names this run already.
    """

    renewed: Marker | None


@dataclass(frozen=True, slots=True)
class Refuse:
    """Neither sending nor skipping is known to be right.

    Attributes:
        reason: What does not fit, with the numbers, and what may have happened.
        token: What ``resetDelivery`` has to be for the batch to be sent all the same; ``None`` where nothing helps.
    """

    reason: str
    token: str | None

    def error(self, transactional_id: str) -> DeliveryRefusedError:
        """Return the error that says so.

        Args:
            transactional_id: Under which the batch would have been sent.
        """
        advice = ""
        if self.token is not None:
            advice = (
                " Nothing was sent. If this batch is to be sent all the same, and to be what later ones follow, set "
                f"resetDelivery to {self.token}; that holds for this one case only."
            )
        return DeliveryRefusedError(f"Exactly-once delivery under {transactional_id!r}: {self.reason}{advice}")


Decision: TypeAlias = Send | Skip | Refuse


def decide(marker: Marker | None, attempt: Attempt, reset_token: str | None = None) -> Decision:
    """Decide what to do with a batch.

    Args:
        marker: What was sent last under the transactional id; ``None`` if nothing ever was, which is known for sure.
        attempt: The batch.
        reset_token: What the user gave as ``resetDelivery``: the token of a refusal. It counts while it matches.
    """
    if marker is not None and attempt.run in marker.runs[:-1] and attempt.kind != "job":
        return Refuse(_superseded(marker, attempt), None)
    token = token_for(marker, attempt)
    decision = _by_kind(marker, attempt, token)
    if isinstance(decision, Refuse) and decision.token is not None and reset_token == token:
        return Send(_next(marker, attempt))
    return decision


def token_for(marker: Marker | None, attempt: Attempt) -> str:
    """Return the token that lets one refused batch be sent: it changes with the marker, the query and the batch."""
    found = None if marker is None else marker.to_json()
    case = json.dumps([found, attempt.query, attempt.batch])
    return hashlib.sha256(case.encode()).hexdigest()[:16]


def _by_kind(marker: Marker | None, attempt: Attempt, token: str) -> Decision:
    if attempt.kind == "job":
        return _of_job(marker, attempt, token)
    if marker is None:
        if attempt.kind == "foreach" or attempt.batch == 0:
            return Send(_next(None, attempt))
        return Refuse(_no_marker(attempt), token)
    if marker.kind == "job" or marker.query != attempt.query:
        return Refuse(_another_query(marker, attempt), token)
    if attempt.batch == marker.batch:
        return _again(marker, attempt, token)
    if attempt.batch == marker.batch + 1 or (attempt.kind == "foreach" and attempt.batch > marker.batch):
        return Send(_next(marker, attempt))
    return Refuse(_gap(marker, attempt), token)


def _of_job(marker: Marker | None, attempt: Attempt, token: str) -> Decision:
    if marker is None:
        return Send(_next(None, attempt))
    if marker.kind != "job":
        return Refuse(_another_query(marker, attempt), token)
    return Skip(None) if attempt.query in marker.runs else Send(_next(marker, attempt))


def _again(marker: Marker, attempt: Attempt, token: str) -> Decision:
    """Decide on a batch with the number of the marker: a replay, unless something tells otherwise."""
    if None not in (marker.digest, attempt.digest) and marker.digest != attempt.digest:
        return Refuse(_other_content(marker, attempt), token)
    if attempt.run != marker.run:
        digest = attempt.digest or marker.digest
        return Skip(replace(marker, kind=attempt.kind, runs=_runs(marker, attempt), digest=digest))
    if attempt.kind == "foreach":
        return Refuse(_second_write(attempt), None)  # the same marker again would make a token work twice
    return Skip(None)


def _next(marker: Marker | None, attempt: Attempt) -> Marker:
    return Marker(attempt.kind, attempt.query, attempt.batch, _runs(marker, attempt), attempt.digest)


def _runs(marker: Marker | None, attempt: Attempt) -> tuple[str, ...]:
    """Return the runs up to this one. Those of another query stay: theirs are superseded too."""
    before = () if marker is None else marker.runs
    kept = (run for run in before if run != attempt.run and not run.startswith(_NAMELESS))
    return (*kept, attempt.run)[-REMEMBERED_RUNS:]


def _superseded(marker: Marker, attempt: Attempt) -> str:
    return (
        f"batch {attempt.batch} of run {attempt.run} was not sent, because run {marker.run} has taken over and has "
        f"sent batch {marker.batch}. Two drivers write the same query: one that was thought dead, or one "
        "started twice. This run cannot go on; the other does."
    )


def _no_marker(attempt: Attempt) -> str:
    return (
        f"batch {attempt.batch} of query {attempt.query} is to be sent, and there is no marker of batch "
        f"{attempt.batch - 1}. The query may have written at-least-once before, or under another transactionalIdPrefix "
        "or markerTopic; or the topic of markers was deleted, or lost its records. Batch "
        f"{attempt.batch} itself may have been sent already."
    )


def _another_query(marker: Marker, attempt: Attempt) -> str:
    return (
        f"{_named(attempt)} is to be sent, and what was sent last is {_named(marker)}. Another query uses this "
        "transactionalIdPrefix, and needs one of its own; or this is the same query with a new checkpoint, which "
        "begins anew and may repeat what was sent."
    )


def _named(what: Marker | Attempt) -> str:
    if what.kind != "job":
        return f"batch {what.batch} of query {what.query}"
    return "a batch job without a name" if what.query.startswith(_NAMELESS) else f"batch job {what.query}"


def _other_content(marker: Marker, attempt: Attempt) -> str:
    return (
        f"batch {attempt.batch} of query {attempt.query} was sent already (run {marker.run}), and it was another "
        f"batch: the checkpoint's offsets had the digest {marker.digest}, and now have {attempt.digest}. The "
        "checkpoint may have been copied and two queries go on from it, or restored from a backup, or entries of its "
        "offsets folder were deleted. Of the two batches some records may be the same."
    )


def _second_write(attempt: Attempt) -> str:
    return (
        f"batch {attempt.batch} of query {attempt.query} was sent already by this run. foreachBatch may write each "
        "batch once under one transactionalIdPrefix: give the second write a prefix of its own."
    )


def _gap(marker: Marker, attempt: Attempt) -> str:
    if attempt.batch < marker.batch:
        happened = (
            "The checkpoint may have been restored from a backup, or the newest entries of its logs were deleted. Then "
            f"batches {attempt.batch} to {marker.batch} were sent already, though perhaps cut otherwise."
        )
    else:
        missing = f"{marker.batch + 1} to {attempt.batch - 1}"
        happened = (
            "The query may have written at-least-once, or elsewhere, meanwhile, or the topic of markers was restored "
            f"from a backup. Of batches {missing} nobody knows here whether they were sent."
        )
    return (
        f"batch {attempt.batch} of query {attempt.query} is to be sent, and what was sent last is batch "
        f"{marker.batch}. {happened}"
    )


def _marker_of(fields: Any) -> Marker:
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    if fields.get("version") != _VERSION:
        raise ValueError(f"its version is {fields.get('version')!r}, and {_VERSION} is known")
    kind, query, batch, digest = (fields.get(name) for name in ("kind", "query", "batch", "digest"))
    runs = fields.get("runs")
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}")
    if not isinstance(query, str):
        raise ValueError(f"query is {query!r}")
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 0:
        raise ValueError(f"batch is {batch!r}")
    if not isinstance(runs, list) or not runs or not all(isinstance(run, str) for run in runs):
        raise ValueError(f"runs is {runs!r}")
    if digest is not None and not isinstance(digest, str):
        raise ValueError(f"digest is {digest!r}")
    return Marker(kind, query, batch, tuple(runs), digest)
