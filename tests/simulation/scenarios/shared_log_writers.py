"""The tables that write as the single writer of a shared log: what they were told, and what readers must see of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cluster.coordinator_events import draw_coordinator_event
from tests.simulation.drawing import draw_aimed_crash, draw_spread_faults
from tests.simulation.errors import ViolationError
from tests.simulation.faults import PAUSES
from tests.simulation.history import Event
from tests.simulation.scenarios.exactly_once import SAFE_EVENTS

from pyspark_kafka_direct.errors import OutcomeUnknownError

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from tests.simulation.environment import Environment
    from tests.simulation.scenarios.shared_log_checks import TopicTruth

TRANSACTIONAL_ID: Final = "writer"
KEY_PREFIX: Final = b"w"
"""Keys with it are written by single writers only."""

_SAFE_EVENTS: Final = tuple(event for event in SAFE_EVENTS if event != "expand_topic")
"""Events that remove no acknowledged record and add no partition."""


def draw_single_writers(
    rng: random.Random, parameters: dict[str, Any], events: Sequence[Event], *, seconds: float, long: bool
) -> tuple[dict[str, Any], tuple[Event, ...]]:
    """Return a plan in which several tables claim one transactional id, one after the other or at once."""
    members = [
        {
            **member,
            "transactional": number == 0 or rng.random() < 0.7,
            "at": member["at"] if number == 0 else round(rng.random() * seconds, 3),
        }
        for number, member in enumerate((*parameters["members"], rng.choice(parameters["members"])))
    ]
    for member in members:
        if member["transactional"]:
            member |= {"table": True, "committed": True}
    cluster = dict(parameters["cluster"])
    if not cluster.get("topic_ids", True) or rng.random() < 0.3:
        cluster["transaction_version"] = 0
    if rng.random() < 0.8:
        events = [each for each in events if each.at is None or each.kind in _SAFE_EVENTS]
    apis = ["FindCoordinator", "InitProducerId", "Produce", "EndTxn"]
    apis += ["AddPartitionsToTxn"] if cluster["transaction_version"] < 2 else []
    events = [*events, *draw_spread_faults(rng, apis, count=rng.choice((0, 0, 1, 3)), occurrences=6)]
    if rng.random() < 0.6:  # a record may be read before its writer has the response
        late = {"api": "EndTxn", "occurrence": rng.randrange(4), "repeats": 1, "seconds": rng.choice((0.02, 0.5, 5.0))}
        events.append(Event("delay_response", args=late))
    scale = 8 if long else 1
    events += [draw_aimed_crash(rng, apis, long=long) for _ in range(rng.choice((0, 0, 1, 1, 2)) * scale)]
    if rng.random() < 0.3:
        pause = {"api": rng.choice(apis), "occurrence": rng.randrange(6), "repeats": 1}
        events.append(Event(PAUSES[0], args={**pause, "seconds": rng.choice((0.02, 1.0, 40.0))}))
    if rng.random() < 0.2:
        kind = "move_transaction_coordinators"
        events.append(
            Event(kind, round(rng.random() * seconds, 3), args=draw_coordinator_event(rng, kind, "", seconds))
        )
    changes = {
        "members": members,
        "cluster": cluster,
        **{name: without_open_transactions(parameters[name]) for name in ("log", "append_list")},
        "restart_seconds": rng.choice((0.0, 0.5)),
    }
    return {**parameters, **changes}, tuple(events)


def without_open_transactions(batches: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return batches after which no start of a table waits for the end of the faults."""
    return [
        {**each, "transaction": "commit" if each["transaction"] == "open" else each["transaction"]} for each in batches
    ]


class Claim:
    """One start of a table with the transactional id."""

    def __init__(self, name: str, began_at: float) -> None:
        self.name = name
        self.began_at = began_at
        self.start_ended_at: float | None = None  # None: it is in flight
        self.has_started = False
        self.writes: list[Write] = []

    def precedes(self, other: Claim) -> bool:
        """Return whether it had the transactional id before another claim began."""
        return self.has_started and self.start_ended_at is not None and self.start_ended_at < other.began_at


class Write:
    """One call of a table that writes."""

    def __init__(self, records: Mapping[bytes, bytes | None], began_at: float) -> None:
        self.records = dict(records)
        self.began_at = began_at
        self.offsets: Mapping[int, int] | None = None  # the last one of each partition; None: not acknowledged
        self.error: BaseException | None = None
        self.ended_at = began_at

    @property
    def values(self) -> list[bytes]:
        return [value for value in self.records.values() if value is not None]

    @property
    def may_be_committed(self) -> bool:
        """Whether neither the call nor the end of its process says that nothing is visible."""
        return self.error is None or isinstance(self.error, OutcomeUnknownError) or "not confirmed" in str(self.error)


class SingleWriters:
    """All claims of the transactional id, with their writes."""

    def __init__(self, environment: Environment, truth: TopicTruth) -> None:
        self.environment = environment
        self.truth = truth
        self.claims: list[Claim] = []
        self.sends: list[Any] = []  # of all logs
        self.batches = 0  # of another program, after the faults
        self.expired_at: list[float] = []  # when brokers deleted the transactional id

    def begin(self, name: str) -> Claim:
        claim = Claim(name, self.environment.world.now)
        self.claims.append(claim)
        return claim

    def check_start(self, claim: Claim, values: Mapping[bytes, bytes]) -> None:
        """Check that a table has everything that earlier writers committed, if no other claim was in flight."""
        others = [each for each in self.claims if each is not claim]
        overlap = any(each.start_ended_at is None or each.start_ended_at >= claim.began_at for each in others)
        if overlap or self.truth.was_changed:
            return
        log_starts = {index: truth.log_start() for index, truth in self.truth.partitions(self.truth.generation)}
        newest: dict[bytes, tuple[bytes | None, bool]] = {}
        for index, entry, _ in self.truth.committed():
            if entry.key is not None and entry.key.startswith(KEY_PREFIX):
                newest[entry.key] = (entry.value, entry.offset < log_starts[index])
        for key, (value, has_expired) in newest.items():
            if values.get(key) != value and not has_expired:
                raise ViolationError(
                    f"a single writer starts without what an earlier one wrote: {values.get(key)!r} for {key!r}, "
                    f"not {value!r}"
                )

    def check(self) -> None:
        """Check all writes after the last late request has arrived."""
        if not self.claims or self.truth.was_changed:
            return
        found: dict[bytes | None, list[tuple[int, int, float]]] = {}
        for partition, entry, at in self.truth.committed():
            found.setdefault(entry.value, []).append((partition, entry.offset, at))
        for claim in self.claims:
            for write in claim.writes:
                self._check_write(claim, write, [found.get(value, []) for value in write.values])

    def check_last(self, name: str) -> None:
        """Check that a table that claims the id after all others can write."""
        for write in (write for claim in self.claims if claim.name == name for write in claim.writes):
            if write.error is not None:
                raise ViolationError(f"a write fails though no fault is left: {write.error!r}") from write.error

    def _has_fenced(self, other: Claim, write: Write) -> bool:
        """Return whether a table that claims the id later ends the claim of a write.

        If brokers have deleted the id meanwhile, nothing but the writes of that table shows its claim.
        """
        assert other.start_ended_at is not None
        has_expired = any(other.start_ended_at < at <= write.began_at for at in self.expired_at)
        return other.has_started and not (has_expired and not any(each.may_be_committed for each in other.writes))

    def _check_write(self, claim: Claim, write: Write, found: list[list[tuple[int, int, float]]]) -> None:
        described = f"{write.values} of {claim.name}: {found}, {write.error!r}"
        counts = [len(each) for each in found]
        if max(counts, default=0) > 1:
            raise ViolationError(f"records of a single writer are duplicated: {described}")
        if len(set(counts)) > 1:
            raise ViolationError(f"a write of a single writer is visible in part: {described}")
        if write.offsets is not None:
            if 0 in counts:
                raise ViolationError(f"an acknowledged write of a single writer is lost: {described}")
            if any(offset > write.offsets.get(partition, -1) for ((partition, offset, _),) in found):
                raise ViolationError(f"a write of a single writer is not at its offsets {write.offsets}: {described}")
        if 1 in counts and not write.may_be_committed:
            raise ViolationError(f"a write of a single writer is visible though it has failed: {described}")
        visible_at = max((at for ((_, _, at),) in found), default=0.0) if 1 in counts else 0.0
        fencing = [other for other in self.claims if claim.precedes(other) and self._has_fenced(other, write)]
        if not fencing and write.error is not None and self.expired_at and not self.environment.plan.events:
            in_flight = [each for each in self.claims if each is not claim and each.began_at <= write.ended_at]
            if not in_flight:
                raise ViolationError(f"a write fails because its transactional id was idle: {described}")
        for other in fencing:
            assert other.start_ended_at is not None
            if visible_at > other.start_ended_at:
                raise ViolationError(f"a write became visible after {other.name} had fenced its writer: {described}")
            if write.offsets is not None and write.began_at > other.start_ended_at:
                raise ViolationError(f"a write of a fenced writer is acknowledged: {described}")
