"""The faults in a soak of continuous queries. All of them follow from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

# The guarantees of the sink, and a sink of the user that stores rows and positions in one transaction of a database.
Delivery: TypeAlias = Literal["at-least-once", "exactly-once", "database"]
Fault: TypeAlias = Literal["worker", "executor", "driver", "second driver", "stall", "broker", "leaders", "partition"]

FAULTS: tuple[Fault, ...] = get_args(Fault)
ENDS_DRIVER: tuple[Fault, ...] = ("driver", "second driver")
ROUNDS_OF_A_QUERY = 10
MAX_EPOCH_MS = 1000

_WEIGHTS: dict[Fault, int] = {
    "worker": 4, "executor": 3, "driver": 3, "second driver": 2, "stall": 2, "broker": 2, "leaders": 1, "partition": 1,
}  # fmt: skip
_MAX_ROUNDS_PER_MINUTE = 30
_EPOCHS_MS: dict[Delivery, tuple[int, ...]] = {
    "at-least-once": (MAX_EPOCH_MS,),
    "exactly-once": (100, MAX_EPOCH_MS),
    "database": (MAX_EPOCH_MS,),
}


@dataclass(frozen=True, slots=True)
class Round:
    """One fault, injected into a running query: a worker, an executor or the driver is killed; a second driver starts
    with the checkpoint; a worker is suspended for a while; a broker restarts; all leaders move; or the source gets a
    partition.
    """

    fault: Fault
    delay: float = 0.6  # seconds from a committed epoch to the fault
    stall: float = 1.0  # seconds for which a worker is suspended
    broker: int = 1
    clean: bool = False  # whether the broker shuts down in a controlled way


@dataclass(frozen=True, slots=True)
class Plan:
    """One query. After all rounds, it runs until everything is copied.

    With ``seconds`` its rounds end then. Its last driver lives for two thirds of the time, and its memory is checked.
    """

    seed: int
    delivery: Delivery
    rounds: tuple[Round, ...]
    cluster: bool = False  # whether there are executors
    epoch_ms: int = MAX_EPOCH_MS
    seconds: float | None = None


def plan_long_query(seed: int, minutes: float, delivery: Delivery) -> Plan:
    rounds = round(minutes * _MAX_ROUNDS_PER_MINUTE)
    return replace(plan_query(seed, rounds, delivery), cluster=True, seconds=60 * minutes)


def plan_query(seed: int, rounds: int, delivery: Delivery) -> Plan:
    """Draw a query. Of consecutive seeds, two have executors and two have none."""
    draw = random.Random(seed)
    cluster = seed // 2 % 2 == 1
    possible = [fault for fault in FAULTS if cluster or fault != "executor"]
    chosen = draw.choices(possible, [_WEIGHTS[fault] for fault in possible], k=rounds)
    return Plan(
        seed,
        delivery,
        tuple(_draw(draw, fault) for fault in chosen),
        cluster=cluster,
        epoch_ms=draw.choice(_EPOCHS_MS[delivery]),
    )


def plan_run(seed: int, rounds: int, deliveries: Sequence[Delivery]) -> list[Plan]:
    """Divide the rounds over queries with consecutive seeds and alternating deliveries."""
    plans: list[Plan] = []
    while rounds > 0:
        share = min(rounds, ROUNDS_OF_A_QUERY)
        number = seed + len(plans)
        plans.append(plan_query(number, share, deliveries[number % len(deliveries)]))
        rounds -= share
    return plans


def _draw(draw: random.Random, fault: Fault) -> Round:
    return Round(
        fault,
        delay=draw.uniform(0, 2.0),
        # Some are shorter than epochTimeout, some longer.
        stall=draw.choice((draw.uniform(0.2, 2.0), draw.uniform(8.0, 12.0))),
        broker=draw.randint(1, 3),
        clean=draw.random() < 0.3,
    )
