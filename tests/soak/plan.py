"""The kills in a soak of a streaming query. All of them follow from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, TypeAlias

Start: TypeAlias = Literal["latest", "earliest", "timestamp"]
Extra: TypeAlias = Literal["none", "task worker", "planner", "broker"]
Moment: TypeAlias = Literal["before batch 0", "in batch 0", "later"]

STARTS: tuple[Start, ...] = ("latest", "earliest", "timestamp")
ROUNDS_OF_A_QUERY = 5
_DELETING = 0.5  # the fraction of queries with a deleted topic
_FIRST_MOMENTS: tuple[Moment, ...] = ("in batch 0", "in batch 0", "before batch 0")


@dataclass(frozen=True, slots=True)
class Round:
    """One run of the driver, which ends with ``kill -9``."""

    moment: Moment  # when the driver is killed; "later": after this number of batches
    batches: int
    delay: float  # seconds from that moment
    extra: Extra  # another process that is killed first
    extra_delay: float  # seconds from that kill to the end of the driver


@dataclass(frozen=True, slots=True)
class Plan:
    """One query. After all rounds, it runs to its end."""

    seed: int
    start: Start
    rounds: tuple[Round, ...]
    grows: int | None = None  # the round in which another topic of the pattern is created
    deletes: int | None = None  # the round in which a topic is deleted and recreated, with failOnDataLoss=false


def plan_query(seed: int, rounds: int, *, with_broker_kills: bool) -> Plan:
    draw = random.Random(seed)
    drawn = [_draw_first(draw)] + [_draw_later(draw, with_broker_kills) for _ in range(rounds - 1)]
    # Not in the first round: the expected records follow from the topics that exist in batch 0.
    changes = [draw.randrange(1, rounds) if rounds > 1 else None for _ in range(2)]
    deletes = changes[1] if draw.random() < _DELETING else None  # the others use failOnDataLoss=true
    return Plan(seed, STARTS[seed % len(STARTS)], tuple(drawn), grows=changes[0], deletes=deletes)


def plan_run(seed: int, rounds: int) -> list[Plan]:
    """Divide the rounds over queries with consecutive seeds."""
    plans: list[Plan] = []
    while rounds > 0:
        share = min(rounds, ROUNDS_OF_A_QUERY)
        plans.append(plan_query(seed + len(plans), share, with_broker_kills=True))
        rounds -= share
    return plans


def _draw_first(draw: random.Random) -> Round:
    moment = draw.choice(_FIRST_MOMENTS)
    # A first batch takes some tenths of a second, the start before it one or two seconds.
    return Round(moment, 0, draw.uniform(0, 0.4) if moment == "in batch 0" else draw.uniform(0, 1.5), "none", 0.0)


def _draw_later(draw: random.Random, with_broker_kills: bool) -> Round:
    extras: list[Extra] = ["none", "none", "none", "task worker", "task worker", "planner"]
    if with_broker_kills:
        extras += ["broker"]
    return Round("later", draw.randint(0, 3), draw.uniform(0, 1.0), draw.choice(extras), draw.uniform(0, 2))
