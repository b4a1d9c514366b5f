"""What happens in a soak of the sink: what is killed, and at which step, all of it following from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, TypeAlias

Delivery: TypeAlias = Literal["at-least-once", "exactly-once"]
Deed: TypeAlias = Literal["driver", "process", "executor", "zombie", "broker", "leaders"]
Staging: TypeAlias = Literal["messages", "files", "topic"]
Case: TypeAlias = tuple[str | None, Deed]

ROUNDS_OF_A_QUERY = 10
SPARKS_COMMIT = "Spark's commit"
"""Just after the commit log has a batch; seen from outside."""

_MANY: tuple[str, ...] = ("sending", "staging", "sending in the transaction")  # a process comes there several times
_CODECS = ("none", "lz4", "zstd", "snappy")
_STAGINGS: tuple[Staging, ...] = ("messages", "files", "topic")
_PROCESSES: tuple[Deed, ...] = ("driver", "process", "zombie")
_ON_EXECUTORS: tuple[Deed, ...] = (*_PROCESSES, "executor")
_BROKERS: tuple[Deed, ...] = ("broker", "leaders")

# What may be done at which step; ``None`` is a moment at random.
_AT_RANDOM: dict[str | None, tuple[Deed, ...]] = {
    None: ("driver", "driver", "process", "executor", *_BROKERS),
    SPARKS_COMMIT: ("driver",),
    "committing": _PROCESSES,
    "committed": _PROCESSES,
}
_CASES: dict[Delivery, dict[str | None, tuple[Deed, ...]]] = {
    "at-least-once": {
        **_AT_RANDOM,
        "sending": (*_ON_EXECUTORS, *_BROKERS),
        "sent": (*_ON_EXECUTORS, *_BROKERS),
        "acknowledged": _ON_EXECUTORS,
        "written": _ON_EXECUTORS,
    },
    "exactly-once": {
        **_AT_RANDOM,
        "staging": _ON_EXECUTORS,
        "staged": _ON_EXECUTORS,
        "before InitProducerId": _PROCESSES,
        "after InitProducerId": (*_PROCESSES, *_BROKERS),
        "marker read": _PROCESSES,
        "sending in the transaction": (*_PROCESSES, *_BROKERS),
        "before the marker": _PROCESSES,
        "after the marker": _PROCESSES,
        "before EndTxn": (*_PROCESSES, *_BROKERS),
        "after EndTxn": _PROCESSES,
    },
}


@dataclass(frozen=True, slots=True)
class Round:
    """One deed. Where it is not the end of the driver, the same one goes on in the next round.

    Attributes:
        step: Where a process is held for it; ``None``: a random moment.
        deed: What is done: the driver, the held process (or some task worker), or the executor above it is killed; the
            driver is killed and the held process goes on later, beside a new driver; a broker is restarted; all leaders
            move.
        batches: How many batches to let the query finish first.
        skip: How often a process may come to the step before it is held.
        delay: Seconds to the deed where there is no step.
        broker: Which one is restarted.
        clean: Whether it may hand over before.
    """

    step: str | None
    deed: Deed
    batches: int = 0
    skip: int = 0
    delay: float = 0.0
    broker: int = 1
    clean: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The life of one query.

    Attributes:
        seed: All follows from it.
        delivery: What the sink promises.
        rounds: One after the other; then it runs to its end.
        codec: How the sink compresses.
        staging: Where records wait for the transaction, with exactly-once.
        shuffled: Whether rows move between tasks; then they come in any order.
    """

    seed: int
    delivery: Delivery
    rounds: tuple[Round, ...]
    codec: str = "none"
    staging: Staging = "messages"
    shuffled: bool = False


def cases(delivery: Delivery) -> list[Case]:
    """All that may happen, in an order that is mixed and always the same."""
    found = [(step, deed) for step, deeds in _CASES[delivery].items() for deed in deeds]
    random.Random(0).shuffle(found)
    return found


def plan_query(seed: int, rounds: int, delivery: Delivery) -> Plan:
    """Draw a query; those of seeds that follow one another have all cases in turn."""
    draw = random.Random(seed)
    possible = cases(delivery)
    first = seed * ROUNDS_OF_A_QUERY
    drawn = tuple(_draw(draw, *possible[(first + number) % len(possible)]) for number in range(rounds))
    return Plan(
        seed,
        delivery,
        drawn,
        codec=_CODECS[seed % len(_CODECS)],
        staging=_STAGINGS[seed % len(_STAGINGS)],
        shuffled=seed % 2 == 1,
    )


def plan_run(seed: int, rounds: int, delivery: Delivery) -> list[Plan]:
    """Divide the rounds over queries, whose seeds follow one another."""
    plans: list[Plan] = []
    while rounds > 0:
        share = min(rounds, ROUNDS_OF_A_QUERY)
        plans.append(plan_query(seed + len(plans), share, delivery))
        rounds -= share
    return plans


def _draw(draw: random.Random, step: str | None, deed: Deed) -> Round:
    batches = draw.choice((0, 0, 1, 2))  # 0: in the batch that runs again, if there is one
    return Round(
        step,
        deed,
        batches=max(batches, 1) if step is None and deed != "driver" else batches,
        skip=draw.randrange(4) if step in _MANY else 0,
        # Without a batch to wait for, a moment of the driver's start.
        delay=draw.uniform(0, 10) if batches == 0 and deed == "driver" else draw.uniform(0, 1.0),
        broker=draw.randint(1, 3),
        clean=draw.random() < 0.3,
    )
