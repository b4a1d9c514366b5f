"""The faults in a soak of the sink, and the steps at which they occur. All of them follow from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Delivery: TypeAlias = Literal["at-least-once", "exactly-once"]
Fault: TypeAlias = Literal["driver", "process", "executor", "zombie", "broker", "leaders"]
Staging: TypeAlias = Literal["messages", "files"]
Case: TypeAlias = tuple[str | None, Fault]

ROUNDS_OF_A_QUERY = 10
KILLS_OF_A_QUERY = 50
SPARKS_COMMIT = "Spark's commit"  # just after the commit log has a batch, observed from outside

_REPEATED_STEPS: tuple[str, ...] = ("sending", "staging", "sending in the transaction")  # in one process
_CODECS = ("none", "lz4", "zstd", "snappy")
_STAGINGS: tuple[Staging, ...] = ("messages", "files")
_PROCESSES: tuple[Fault, ...] = ("driver", "process", "zombie")
_ON_EXECUTORS: tuple[Fault, ...] = (*_PROCESSES, "executor")
_BROKERS: tuple[Fault, ...] = ("broker", "leaders")

# The possible faults at each step; ``None`` is a random moment.
_AT_RANDOM: dict[str | None, tuple[Fault, ...]] = {
    None: ("driver", "driver", "process", "executor", *_BROKERS),
    SPARKS_COMMIT: ("driver",),
    "committing": _PROCESSES,
    "committed": _PROCESSES,
}
_CASES: dict[Delivery, dict[str | None, tuple[Fault, ...]]] = {
    "at-least-once": {
        **_AT_RANDOM,
        "sending": (*_ON_EXECUTORS, *_BROKERS),
        "sent": (*_ON_EXECUTORS, *_BROKERS),
        "acknowledged": _ON_EXECUTORS,
        "written": _ON_EXECUTORS,
    },
    "exactly-once": {
        **_AT_RANDOM,
        "before the ticket": _PROCESSES,
        "after the ticket": _PROCESSES,
        "staging": _ON_EXECUTORS,
        "staged": _ON_EXECUTORS,
        "before InitProducerId": _PROCESSES,
        "after InitProducerId": (*_PROCESSES, *_BROKERS),
        "sink state read before fencing": _PROCESSES,
        "sink state read": _PROCESSES,
        "sending in the transaction": (*_PROCESSES, *_BROKERS),
        "before the sink state": _PROCESSES,
        "after the sink state": _PROCESSES,
        "before EndTxn": (*_PROCESSES, *_BROKERS),
        "after EndTxn": _PROCESSES,
    },
}


@dataclass(frozen=True, slots=True)
class Round:
    """One fault. Unless it ends the driver, the same driver continues in the next round."""

    step: str | None  # at which a process is suspended; None: a random moment

    # driver, process, executor: killed, where "process" is the suspended process or a task worker, and "executor" its
    # executor. zombie: the driver is killed, and the suspended process resumes beside a new driver. broker: restarted.
    # leaders: all moved.
    fault: Fault
    batches: int = 0  # to complete first
    skip: int = 0  # how often a process may pass the step
    delay: float = 0.0  # seconds to a random moment
    broker: int = 1
    clean: bool = False  # whether the broker shuts down in a controlled way


@dataclass(frozen=True, slots=True)
class Plan:
    """One query. After all rounds, it runs to its end."""

    seed: int
    delivery: Delivery
    rounds: tuple[Round, ...]
    codec: str = "none"
    staging: Staging = "messages"  # where records are staged, with exactly-once
    shuffled: bool = False  # rows move between tasks, so records may be in any order
    master: str = "local[2,4]"  # unless an executor is killed
    rate: int = 150  # records per second that are written to the source


def cases(delivery: Delivery) -> list[Case]:
    """Return all combinations of steps and faults, in a fixed random order."""
    combinations = [(step, fault) for step, faults in _CASES[delivery].items() for fault in faults]
    random.Random(0).shuffle(combinations)
    return combinations


def plan_query(seed: int, rounds: int, delivery: Delivery) -> Plan:
    """Draw a query; consecutive seeds cover all cases."""
    draw = random.Random(seed)
    possible = cases(delivery)
    first = seed * ROUNDS_OF_A_QUERY
    drawn = tuple(_draw(draw, *possible[(first + number) % len(possible)]) for number in range(rounds))
    return _plan(seed, delivery, drawn)


def plan_kills(seed: int, rounds: int) -> Plan:
    """Draw an exactly-once query whose driver is killed in each round; all steps come equally often."""
    draw = random.Random(seed)
    possible = list(_CASES["exactly-once"])
    steps: list[str | None] = []
    while len(steps) < rounds:
        steps += draw.sample(possible, len(possible))
    drawn = tuple(_draw(draw, step, "driver") for step in steps[:rounds])
    # Most of the time, a driver starts: with one core and few records it is cheapest.
    return replace(_plan(seed, "exactly-once", drawn), master="local[1]", rate=50)


def plan_run(seed: int, rounds: int, delivery: Delivery, *, only_drivers: bool = False) -> list[Plan]:
    """Divide the rounds over queries with consecutive seeds."""
    plans: list[Plan] = []
    while rounds > 0:
        share = min(rounds, KILLS_OF_A_QUERY if only_drivers else ROUNDS_OF_A_QUERY)
        query = seed + len(plans)
        plans.append(plan_kills(query, share) if only_drivers else plan_query(query, share, delivery))
        rounds -= share
    return plans


def _plan(seed: int, delivery: Delivery, rounds: tuple[Round, ...]) -> Plan:
    return Plan(
        seed,
        delivery,
        rounds,
        codec=_CODECS[seed % len(_CODECS)],
        staging=_STAGINGS[seed // 2 % len(_STAGINGS)],
        shuffled=seed % 2 == 1,
    )


def _draw(draw: random.Random, step: str | None, fault: Fault) -> Round:
    batches = draw.choice((0, 0, 1, 2))  # 0: in a repeated batch, if there is one
    return Round(
        step,
        fault,
        batches=max(batches, 1) if step is None and fault != "driver" else batches,
        skip=draw.randrange(4) if step in _REPEATED_STEPS else 0,
        # Without a batch to wait for, a moment during the start of the driver.
        delay=draw.uniform(0, 10) if batches == 0 and fault == "driver" else draw.uniform(0, 1.0),
        broker=draw.randint(1, 3),
        clean=draw.random() < 0.3,
    )
