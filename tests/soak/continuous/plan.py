"""What happens in a soak of continuous queries, all of it following from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.soak.sink.plan import Delivery

Deed: TypeAlias = Literal["worker", "executor", "driver", "stall", "broker", "leaders"]

DEEDS: tuple[Deed, ...] = get_args(Deed)
ROUNDS_OF_A_QUERY = 10
LONGEST_EPOCH_MS = 1000

_WEIGHTS: dict[Deed, int] = {"worker": 4, "executor": 3, "driver": 3, "stall": 2, "broker": 2, "leaders": 1}
_EPOCHS_MS: dict[Delivery, tuple[int, ...]] = {
    "at-least-once": (LONGEST_EPOCH_MS,),
    "exactly-once": (100, LONGEST_EPOCH_MS),
}


@dataclass(frozen=True, slots=True)
class Round:
    """One deed, to a query that runs.

    Attributes:
        deed: A Python worker, an executor or the driver is killed; a worker is held for a while; a broker is restarted;
            all leaders move.
        delay: Seconds to the deed, from when an epoch was committed.
        hold: Seconds that a worker is held.
        broker: Which one is restarted.
        clean: Whether it may hand over before.
    """

    deed: Deed
    delay: float = 0.6
    hold: float = 1.0
    broker: int = 1
    clean: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The life of one query.

    Attributes:
        seed: All follows from it.
        delivery: What the query promises.
        rounds: One after the other; then it runs until all is copied.
        cluster: Whether there are executors, rather than the driver alone.
        epoch_ms: How long an epoch lasts.
    """

    seed: int
    delivery: Delivery
    rounds: tuple[Round, ...]
    cluster: bool = False
    epoch_ms: int = LONGEST_EPOCH_MS


def plan_query(seed: int, rounds: int, delivery: Delivery) -> Plan:
    """Draw a query. Of seeds that follow one another, two have executors and two have none."""
    draw = random.Random(seed)
    cluster = seed // 2 % 2 == 1
    possible = [deed for deed in DEEDS if cluster or deed != "executor"]
    chosen = draw.choices(possible, [_WEIGHTS[deed] for deed in possible], k=rounds)
    return Plan(
        seed,
        delivery,
        tuple(_draw(draw, deed) for deed in chosen),
        cluster=cluster,
        epoch_ms=draw.choice(_EPOCHS_MS[delivery]),
    )


def plan_run(seed: int, rounds: int, deliveries: Sequence[Delivery]) -> list[Plan]:
    """Divide the rounds over queries, whose seeds follow one another; deliveries come in turn."""
    plans: list[Plan] = []
    while rounds > 0:
        share = min(rounds, ROUNDS_OF_A_QUERY)
        number = seed + len(plans)
        plans.append(plan_query(number, share, deliveries[number % len(deliveries)]))
        rounds -= share
    return plans


def _draw(draw: random.Random, deed: Deed) -> Round:
    return Round(
        deed,
        delay=draw.uniform(0, 2.0),
        # Some shorter than the deadline of an epoch, some longer.
        hold=draw.choice((draw.uniform(0.2, 2.0), draw.uniform(8.0, 12.0))),
        broker=draw.randint(1, 3),
        clean=draw.random() < 0.3,
    )
