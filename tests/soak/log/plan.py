"""What happens in a soak run of the log, all of it following from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Deed: TypeAlias = Literal["kill writer", "restart table", "move leaders", "stop broker", "kill broker"]
Kind: TypeAlias = Literal["log", "table", "transactions"]

KINDS: tuple[Kind, ...] = ("log", "transactions", "table", "transactions", "log")
"""How writers write, in turn: by a KafkaBasedLog, by a KafkaTable, by librdkafka in transactions."""

_WEIGHTS: dict[Deed, int] = {
    "kill writer": 4, "restart table": 2, "move leaders": 2, "stop broker": 1, "kill broker": 2,
}  # fmt: skip
_BROKERS = 3


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is done.

    Attributes:
        deed: What.
        target: To which writer, table or broker (from 1 on).
        pause: Seconds before.
    """

    deed: Deed
    target: int
    pause: float


def kind_of(writer: int) -> Kind:
    """How a writer writes."""
    return KINDS[writer % len(KINDS)]


def plan(seed: int, writers: int, tables: int) -> Iterator[Step]:
    """Draw one step after another, without end."""
    draw = random.Random(seed)
    while True:
        (deed,) = draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        if deed == "kill writer":
            target = draw.randrange(writers)
        elif deed == "restart table":
            target = draw.randrange(tables)
        else:
            target = draw.randint(1, _BROKERS)
        yield Step(deed, target, draw.uniform(1, 5))
