"""A scenario without a cluster, for the tests of the tools: events with bad arguments break its promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation.errors import ViolationError
from tests.simulation.history import Event, Plan

if TYPE_CHECKING:
    import random

    from tests.simulation.history import Size
    from tests.simulation.scheduler import World

NAME: Final = "tests.simulation.toy_scenario"
SHRINKABLE: Final = {"records": 3, "delay": 0.5, "reads": ()}
REQUESTS: Final = ("Metadata", "Fetch", "Produce")
_REQUEST_SECONDS = 0.25


def draw(rng: random.Random, size: Size) -> Plan:
    count = 12 if size == "short" else 120
    events = [Event("mark", request=rng.randrange(count), args={"value": rng.randrange(40)}) for _ in range(count)]
    elections = [Event("elect", at=rng.randrange(count) * _REQUEST_SECONDS) for _ in range(3)]
    return Plan(NAME, {"requests": count, "records": 100, "delay": 8.0}, (*events, *elections), 10.0)


def run(world: World, plan: Plan) -> None:
    """Fail if two marks of 30 or more are left, or end in another way if a mark is exactly 39."""
    bad = 0
    by_request: dict[int, list[Event]] = {}
    for event in plan.events:
        if event.request is not None:
            by_request.setdefault(event.request, []).append(event)
        elif event.at is not None:
            world.at(1000.0 + event.at, world.trace, "election")
    for number in range(plan.parameters["requests"]):
        world.run_for(_REQUEST_SECONDS)
        world.request_count += 1
        name = REQUESTS[number % len(REQUESTS)]
        world.trace("request", number, "driver", 1, name, 3)
        for event in by_request.get(number, ()):
            world.trace("fault", number, event.kind, name)
            world.coverage[event.kind, name, "completed"] += 1
            value = event.args["value"]
            bad += value >= 30
            if value == 39 and plan.parameters["records"] >= 50:
                raise ValueError(f"39 of topic 'events-{world.seed}' at offset {number}")
        if bad >= 2:
            raise ViolationError(f"{bad} bad marks after {number + 1} requests\nwith details")
