"""What happens in a soak run: which kills, at which moments, all of it following from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, TypeAlias

Start: TypeAlias = Literal["latest", "earliest", "timestamp"]
Extra: TypeAlias = Literal["none", "task worker", "planner", "broker"]
Moment: TypeAlias = Literal["before batch 0", "in batch 0", "later"]

STARTS: tuple[Start, ...] = ("latest", "earliest", "timestamp")
ROUNDS_OF_A_QUERY = 5
_DELETING = 0.5  # of the queries see a topic deleted
_FIRST_MOMENTS: tuple[Moment, ...] = ("in batch 0", "in batch 0", "before batch 0")


@dataclass(frozen=True, slots=True)
class Round:
    """One life of the driver. It ends with ``kill -9``.

    Attributes:
        moment: When it is killed: ``later`` is after ``batches`` more batches.
        batches: How many batches to let it finish first.
        delay: Seconds from then to the kill.
        extra: What is killed before, at the time at which else the driver would be.
        extra_delay: Seconds from that to the end of the driver.
    """

    moment: Moment
    batches: int
    delay: float
    extra: Extra
    extra_delay: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The life of one query.

    Attributes:
        seed: All follows from it.
        start: Where the query starts.
        rounds: Kills, one after the other; then it runs to its end.
        grows: The round in which another topic of the pattern is created; ``None``: none is.
        deletes: The round in which a topic is deleted and created anew, with ``failOnDataLoss=false``; ``None``: none.
    """

    seed: int
    start: Start
    rounds: tuple[Round, ...]
    grows: int | None = None
    deletes: int | None = None


def plan_query(seed: int, rounds: int, *, brokers_may_die: bool) -> Plan:
    """Draw the kills of a query."""
    draw = random.Random(seed)
    drawn = [_draw_first(draw)] + [_draw_later(draw, brokers_may_die) for _ in range(rounds - 1)]
    # Not in the first round: what is to be there exactly follows from the topics that there are in batch 0.
    changes = [draw.randrange(1, rounds) if rounds > 1 else None for _ in range(2)]
    deletes = changes[1] if draw.random() < _DELETING else None  # the others have failOnDataLoss=true
    return Plan(seed, STARTS[seed % len(STARTS)], tuple(drawn), grows=changes[0], deletes=deletes)


def plan_run(seed: int, rounds: int) -> list[Plan]:
    """Divide the rounds over queries, whose seeds follow one another."""
    plans: list[Plan] = []
    while rounds > 0:
        share = min(rounds, ROUNDS_OF_A_QUERY)
        plans.append(plan_query(seed + len(plans), share, brokers_may_die=True))
        rounds -= share
    return plans


def _draw_first(draw: random.Random) -> Round:
    moment = draw.choice(_FIRST_MOMENTS)
    # A first batch takes some tenths of a second; what comes before it, a second or two.
    return Round(moment, 0, draw.uniform(0, 0.4) if moment == "in batch 0" else draw.uniform(0, 1.5), "none", 0.0)


def _draw_later(draw: random.Random, brokers_may_die: bool) -> Round:
    extras: list[Extra] = ["none", "none", "none", "task worker", "task worker", "planner"]
    if brokers_may_die:
        extras += ["broker"]
    return Round("later", draw.randint(0, 3), draw.uniform(0, 1.0), draw.choice(extras), draw.uniform(0, 2))
