"""The faults in a soak of the log. All of them follow from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Fault: TypeAlias = Literal["kill writer", "restart table", "move leaders", "stop broker", "kill broker"]
Kind: TypeAlias = Literal["log", "table", "transactions"]

KINDS: tuple[Kind, ...] = (
    "log",
    "transactions",
    "table",
    "transactions",
    "log",
)  # of consecutive writers; transactions use librdkafka

_WEIGHTS: dict[Fault, int] = {
    "kill writer": 4, "restart table": 2, "move leaders": 2, "stop broker": 1, "kill broker": 2,
}  # fmt: skip
_BROKERS = 3


@dataclass(frozen=True, slots=True)
class Step:
    fault: Fault
    target: int  # number of the writer or table, or broker id
    pause: float  # seconds before


def kind_of(writer: int) -> Kind:
    return KINDS[writer % len(KINDS)]


def plan(seed: int, writers: int, tables: int) -> Iterator[Step]:
    """Yield an endless sequence of steps."""
    draw = random.Random(seed)
    while True:
        (fault,) = draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        if fault == "kill writer":
            target = draw.randrange(writers)
        elif fault == "restart table":
            target = draw.randrange(tables)
        else:
            target = draw.randint(1, _BROKERS)
        yield Step(fault, target, draw.uniform(1, 5))
