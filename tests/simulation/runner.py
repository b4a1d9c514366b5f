"""Draws the history of a seed and runs it."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import random
import re
import time
import traceback
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from tests.simulation.errors import ProcessKilled
from tests.simulation.history import History
from tests.simulation.scheduler import World

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

    from tests.simulation.history import Codec, Plan, Size

SHARES: Final[Mapping[str, int]] = {
    "range_reads": 20,
    "endless_reads": 5,
    "micro_batches": 25,
    "direct_streams": 8,
    "connections": 15,
    "exactly_once": 8,
    "producers": 20,
    "shared_log": 5,
    "continuous": 5,
}
"""The modules of ``scenarios``, and how often each is drawn, in relation to the others."""
_LONG = 0.05  # the share of long histories
_KIO = 0.01  # the share of histories whose brokers use another implementation of the protocol
_KIND_LENGTH = 80  # characters of a message that belong to a failure's kind


class Scenario(Protocol):
    """A module of ``scenarios``.

    It may also have ``SHRINKABLE``, which maps numeric parameters to the smallest value that makes sense, and sequences
    to ``()`` if elements can be removed; and ``describe(plan)``, which returns sentences about the parameters.
    """

    NAME: str

    def draw(self, rng: random.Random, size: Size) -> Plan: ...

    def run(self, world: World, plan: Plan) -> None: ...


class Failure(NamedTuple):
    """How a history failed.

    Attributes:
        kind: The scenario, the exception's type and the part of the message that other seeds have too.
        message: The message.
        traceback: The traceback, with the message.
    """

    kind: str
    message: str
    traceback: str


class Outcome(NamedTuple):
    """The result of a history."""

    history: History
    failure: Failure | None
    requests: int
    seconds: float
    """Real time."""
    simulated_seconds: float
    trace: list[tuple[Any, ...]]
    coverage: Counter[tuple[str, str, str]]

    @property
    def digest(self) -> str:
        """A hash of the trace and the failure, equal for all runs of a history."""
        kind = None if self.failure is None else self.failure.kind
        return hashlib.blake2b(repr((self.trace, kind)).encode(), digest_size=12).hexdigest()


def run_seed(seed: int, scenario: str | None = None, size: Size | None = None) -> Outcome:
    """Draw and run the history of a seed."""
    return run_history(draw_history(seed, scenario, size))


def draw_history(seed: int, scenario: str | None = None, size: Size | None = None) -> History:
    """Draw the history of a seed; a given scenario or size does not change what else is drawn."""
    name, size = scenario or draw_scenario(seed), size or draw_size(seed)
    codec: Codec = "kio" if _rng(seed, "codec").random() < _KIO else "tables"
    plan = find_scenario(name).draw(_rng(seed, f"plan/{name}/{size}"), size)
    assert plan.scenario == name, f"{name} has drawn a plan of {plan.scenario}"
    return History(seed, size, codec, plan)


def run_history(history: History) -> Outcome:
    """Run a history."""
    scenario = find_scenario(history.scenario)
    world = World(history.seed, codec=history.codec)
    started_at, start = time.perf_counter(), world.now
    failure = None
    try:
        try:
            scenario.run(world, history.plan)
            world.storms.check()
        finally:
            simulated_seconds = world.now - start
            world.close()
    except (Exception, ProcessKilled) as error:
        failure = failure_of(history.scenario, error)
    seconds = time.perf_counter() - started_at
    return Outcome(history, failure, world.request_count, seconds, simulated_seconds, world.trace_lines, world.coverage)


def draw_scenario(seed: int) -> str:
    """Return the name of the scenario of a seed."""
    names = scenario_names()
    if not names:
        raise LookupError("there are no scenarios")
    return _rng(seed, "scenario").choices(names, [SHARES[name] for name in names])[0]


def draw_size(seed: int) -> Size:
    """Return the size of the history of a seed."""
    return "long" if _rng(seed, "size").random() < _LONG else "short"


def find_scenario(name: str) -> Scenario:
    """Return the scenario with a name; a name with a dot is that of a module anywhere."""
    if "." in name:
        return cast("Scenario", importlib.import_module(name))
    if name not in scenario_names():
        raise LookupError(f"no scenario {name}; there are: {', '.join(scenario_names())}")
    return cast("Scenario", importlib.import_module(_module(name)))


@cache
def scenario_names() -> list[str]:
    """Return the names of all scenarios, in the order of ``SHARES``."""
    return [name for name in SHARES if importlib.util.find_spec(_module(name)) is not None]


def failure_of(scenario: str, error: BaseException) -> Failure:
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    message = str(cause)
    text = "".join(traceback.format_exception(error))
    return Failure(f"{scenario}: {type(cause).__name__}: {stable_part(message)}".rstrip(" :"), message, text)


def stable_part(message: str) -> str:
    """Return the first line of a message without what differs between seeds: quoted strings and numbers."""
    first, *_ = message.strip().splitlines() or [""]
    unquoted = re.sub(r"""(?<!\w)('[^']*'|"[^"]*")(?!\w)""", "...", first)  # not the apostrophe of "isn't"
    return re.sub(r"\d+(\.\d+)?", "n", unquoted)[:_KIND_LENGTH].strip()


def _module(name: str) -> str:
    return f"tests.simulation.scenarios.{name}"


def _rng(seed: int, name: str) -> random.Random:
    return random.Random(f"{seed}/{name}")
