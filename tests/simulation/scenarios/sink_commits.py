"""Commits of the exactly-once sink whose response is lost, and commits of old runs beside a newer one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.simulation.cluster.coordinator_events import COORDINATOR_EVENT_KINDS
from tests.simulation.cluster.events import EVENT_KINDS
from tests.simulation.drawing import MAX_REPEATS
from tests.simulation.errors import ViolationError
from tests.simulation.faults import PAUSES
from tests.simulation.history import Event
from tests.simulation.oracle import READ_COMMITTED

from pyspark_kafka_direct.errors import KafkaDirectError, OutcomeUnknownError, TransactionStateError

if TYPE_CHECKING:
    import random

    from tests.simulation.environment import Environment
    from tests.simulation.process import SimulatedProcess

TARGETS: Final = ("target", "dead-letters", "audit")
STATE_TOPIC: Final = "sink-state"
SECONDS: Final = 20.0
"""How long the faults of these histories last: a request can fail until its timeout."""
_CONCURRENT_TRANSACTIONS: Final = 51
_RETRIABLE: Final = (14, _CONCURRENT_TRANSACTIONS)  # with which a coordinator rejects EndTxn for a while
_FINAL: Final = (48, 53)  # INVALID_TXN_STATE, and TRANSACTIONAL_ID_AUTHORIZATION_FAILED after a change of ACLs


def draw_rejected_retry(rng: random.Random, batches: int) -> tuple[Event, ...]:
    """Draw an EndTxn that is applied without a response, and whose retries are rejected."""
    first = rng.randrange(batches)
    code = rng.choice((*_RETRIABLE, *_FINAL))
    repeats = MAX_REPEATS if code in _RETRIABLE else 1
    lost = {"api": "EndTxn", "occurrence": first, "repeats": 1}
    rejected = {"api": "EndTxn", "occurrence": first + 1, "repeats": repeats, "code": code}
    return Event("lose_response", args=lost), Event("error", args=rejected)


def draw_old_run(rng: random.Random, parameters: dict[str, Any]) -> tuple[Event, ...]:
    """Draw a run that commits an old batch while the transaction of a newer run is open.

    The newer run has committed this batch, and the coordinator delays the end of its next transaction.
    """
    parameters |= {
        "batches": [*parameters["batches"], [0], [0], [0]][-3:],
        "batch_count": 3,
        "queries": 1,
        "shares_prefix": False,
        "restart_seconds": 0.5,
        "pauses": [[0, 1, "commit", rng.choice((1.0, 1.5, 2.0, 3.0))]],
        "extra_drivers": [],
    }
    delay = {"api": "EndTxn", "occurrence": 2, "repeats": 40, "code": _CONCURRENT_TRANSACTIONS}
    return (Event("error", args=delay),)


def draw_open_transaction(rng: random.Random, parameters: dict[str, Any]) -> tuple[Event, ...]:
    """Draw a query that commits batches while the transaction of another one is open in the same sink state topic."""
    rows = parameters["batches"][0]
    parameters |= {
        "batches": [rows, [0], [0], [0]],
        "batch_count": 4,
        "queries": 2,
        "shares_prefix": False,
        "restart_seconds": 5.0,
        "pauses": [],
        "extra_drivers": [],
    }
    place = {"api": "a:EndTxn", "occurrence": rng.choice((0, 0, 1))}
    if rng.random() < 0.5:
        return (Event("error", args={**place, "repeats": 40, "code": _CONCURRENT_TRANSACTIONS}),)
    return (Event(PAUSES[0], args={**place, "repeats": 1, "seconds": rng.choice((3.0, 10.0))}),)


def is_calm(environment: Environment) -> bool:
    """Return whether no leader and no coordinator changes: one that was replaced may return an older state."""
    return not any(
        event.kind in EVENT_KINDS or event.kind in COORDINATOR_EVENT_KINDS for event in environment.plan.events
    )


class _State(NamedTuple):
    query: str
    ticket: int  # the offset


def check_denied_commits(environment: Environment, denied: set[int]) -> None:
    """Check that no commit is visible whose error was certain; ``denied`` has the tickets of these commits."""
    for state in _visible_states(environment):
        if state.ticket in denied:
            raise ViolationError(f"a commit failed for certain, but is visible: that with the ticket {state.ticket}")


def is_certain(error: KafkaDirectError) -> bool:
    """Return whether an error of a commit means that nothing was committed."""
    return not isinstance(error, OutcomeUnknownError | TransactionStateError)


class FencingCheck:
    """Checks that a run that a visible sink state rules out fences nobody. Create it just before the run commits."""

    def __init__(self, environment: Environment, process: SimulatedProcess, query: str, ticket: int) -> None:
        self._environment = environment
        self._process = process
        self._sent = len(environment.network.sent_requests)
        states = _visible_states(environment) if is_calm(environment) else []
        self._is_superseded = bool(states) and states[-1].query == query and states[-1].ticket > ticket

    def check(self) -> None:
        sent = self._environment.network.sent_requests[self._sent :]
        if self._is_superseded and (self._process.name, "InitProducerId") in sent:
            raise ViolationError(f"{self._process.name} fences a newer run, which the sink state shows")


def _visible_states(environment: Environment) -> list[_State]:
    """Return the sink state records that are committed now, the oldest first."""
    if STATE_TOPIC not in environment.cluster.topics:
        return []
    now, partition = environment.world.now, (STATE_TOPIC, 0)
    end = environment.oracle.truth(partition).end_offset(READ_COMMITTED, now)
    values = [value for _, value in environment.oracle.records(partition, 0, end, READ_COMMITTED, at=now)]
    fields = [json.loads(value) for value in values if value and value.startswith(b"{")]
    return [_State(each["query"], each["ticket"][1]) for each in fields]
