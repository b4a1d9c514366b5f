"""The exactly-once sink under faults, crashes, zombie drivers and two queries: the rows of each batch exactly once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.coordinator_events import draw_coordinator_event
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.simulation.drawing import (
    READ_APIS,
    draw_aimed_crash,
    draw_events,
    draw_spread_faults,
    draw_transactional_cluster,
)
from tests.simulation.environment import Environment
from tests.simulation.errors import ViolationError
from tests.simulation.faults import CRASHES, PAUSES
from tests.simulation.history import Event, Plan
from tests.simulation.oracle import READ_COMMITTED
from tests.simulation.scenarios.sink_stand_in import STATE_TOPIC, TARGET, SinkQuery

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.simulation.history import Size
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scheduler import World

NAME = "exactly_once"
SHRINKABLE = {"batch_count": 1, "queries": 1, "pauses": (), "speculated": (), "extra_drivers": ()}
SAFE_EVENTS = (
    "expand_topic",
    "elect_leader",
    "lose_leader",
    "stick_follower",
    "stop_broker",
    "isolate_broker",
    "stick_image",
    "pause_broker",
    "throttle_broker",
    "compact_log",
)
"""Events that remove no acknowledged record."""
_APIS = (
    *READ_APIS,
    "FindCoordinator",
    "InitProducerId",
    "AddPartitionsToTxn",
    "Produce",
    "EndTxn",
    "CreateTopics",
    "DescribeConfigs",
)
_STATE_CONFIGS = {"cleanup.policy": "compact"}
_STEPS = ("plan", "tasks", "commit", "commit log")
_LIVENESS_SECONDS = 2_000.0  # after the faults have stopped


def draw(rng: random.Random, size: Size) -> Plan:
    long = size == "long"
    partitions = rng.randint(1, 3)
    batches = rng.randint(20, 60) if long else rng.choice((1, 1, 1, 2, 2, 3))
    seconds = rng.choice((0.5, 3.0, 20.0)) * (20 if long else 1)
    requests = 1000 if long else 50
    restart_seconds = rng.choice((0.01, 0.5, 5.0))
    queries = 2 if rng.random() < 0.2 else 1
    cluster = draw_transactional_cluster(rng)
    parameters = {
        **cluster,
        "partitions": partitions,
        "batches": [[rng.randrange(partitions) for _ in range(rng.choice((0, 1, 2, 4)))] for _ in range(batches)],
        "batch_count": batches,
        "parallelism": [rng.randint(1, 2) for _ in range(rng.randint(1, 2))],
        "queries": queries,
        "shares_prefix": queries > 1 and rng.random() < 0.3,
        "state_exists": rng.random() < 0.8,
        "restart_seconds": restart_seconds,
        "pauses": [
            [rng.randrange(2), rng.randrange(batches), rng.choice(_STEPS), rng.choice((0.01, 1.0, 30.0))]
            for _ in range(rng.choice((0, 0, 0, 1, 2)))
        ],
        "speculated": [batch for batch in range(batches) if rng.random() < 0.1],
        "extra_drivers": [round(rng.random() * seconds, 3)] if rng.random() < 0.15 else [],
        "request_timeout_ms": rng.choice((2_000, 30_000)),
        "api_timeout_ms": rng.choice((10_000, 60_000)),
        "delivery_timeout_ms": rng.choice((15_000, 120_000)),
        "transaction_timeout_ms": rng.choice((20_000, 60_000, 300_000)),
        "batch_bytes": rng.choice((120, 524_288)),
    }
    topics = {TARGET: partitions, STATE_TOPIC: 1}
    apis = [each for each in _APIS if each != "AddPartitionsToTxn" or cluster["cluster"]["transaction_version"] < 2]
    events = draw_events(rng, topics, seconds=seconds, requests=requests, long=long, kinds=SAFE_EVENTS, apis=apis)
    events = tuple(each for each in events if each.kind != "compact_log" or each.args["topic"] == STATE_TOPIC)
    events = tuple(each for each in events if each.kind != "expand_topic" or each.args["topic"] == TARGET)
    if rng.random() < 0.2:
        kind = "move_transaction_coordinators"
        events += (Event(kind, rng.random() * seconds, args=draw_coordinator_event(rng, kind, "", seconds)),)
    count, occurrences = (rng.randint(20, 60), batches) if long else (rng.choice((0, 1, 2, 3)), 3)
    events += tuple(draw_spread_faults(rng, apis, count=count, occurrences=occurrences))
    events += _draw_process_events(rng, apis, requests, long)
    return Plan(NAME, parameters, events, quiet_after=seconds)


def run(world: World, plan: Plan) -> None:
    environment = Environment(world, plan)
    parameters = plan.parameters
    cluster = environment.cluster
    cluster.create_topic(TARGET, parameters["partitions"])
    if parameters["state_exists"]:
        cluster.create_topic(STATE_TOPIC, 1, configs=_STATE_CONFIGS)
    queries = [
        SinkQuery(environment, name, {**parameters, "prefix": "p-a" if parameters["shares_prefix"] else f"p-{name}"})
        for name in ("a", "b")[: parameters["queries"]]
    ]
    for query in queries:
        query.start_driver()
        for seconds in parameters["extra_drivers"]:
            world.at(environment.started_at + seconds, query.start_driver)
    environment.network.on_pause = partial(_replace_paused, queries)
    supervisor = environment.process("supervisor")
    watch = supervisor.spawn("watch", lambda: _wait_until_done(environment, supervisor, queries))
    world.run([watch])
    environment.raise_errors()
    world.run_for(20.0)
    check_rows(environment, queries)
    _check_nothing_hangs(environment)
    for query in queries:
        if query.notes:
            raise ViolationError(query.notes[0])


def _replace_paused(queries: Sequence[SinkQuery], process: SimulatedProcess) -> None:
    for query in queries:
        query.paused(process)


def check_rows(environment: Environment, queries: Sequence[SinkQuery]) -> None:
    """Check that readers with read_committed get the rows of each batch exactly once, in the order of the batches."""
    topic = environment.cluster.topics[TARGET]
    truths = [environment.oracle.truth((TARGET, index)) for index in range(len(topic.partitions))]
    visible = [[entry.value for entry in truth.records(0, 1 << 60, READ_COMMITTED, 1e9)] for truth in truths]
    for query in queries:
        for batch in range(len(query.batches)):
            rows = query.rows(batch)
            counts = [visible[partition].count(value) for value, partition in rows]
            is_committed = batch in query.commit_log
            if any(count > 1 for count in counts):
                raise ViolationError(f"rows of a batch are duplicated: batch {batch} of {query.name}, copies {counts}")
            if 0 in counts and 1 in counts:
                raise ViolationError(f"a batch is visible in part: batch {batch} of {query.name}, copies {counts}")
            if is_committed and 0 in counts:
                raise ViolationError(f"rows of a committed batch are lost: batch {batch} of {query.name}")
    for index, values in enumerate(visible):
        for query in queries:
            expected = [
                value
                for batch in range(len(query.batches))
                for value, partition in query.rows(batch)
                if partition == index
            ]
            ranks = [expected.index(value) for value in values if value in expected]
            if ranks != sorted(ranks):
                raise ViolationError(f"the rows of {query.name} in partition {index} are in another order: {values}")
        if unknown := set(values) - {value for query in queries for value in _all_values(query)}:
            raise ViolationError(f"partition {index} has rows that no task wrote: {sorted(map(str, unknown))}")


def _wait_until_done(environment: Environment, supervisor: Any, queries: Sequence[SinkQuery]) -> None:
    world = environment.world
    while not all(query.is_done for query in queries):
        if world.now > environment.quiet_at + _LIVENESS_SECONDS:
            undone = {query.name: len(query.commit_log) for query in queries if not query.is_done}
            if environment.plan.parameters["shares_prefix"]:
                raise ViolationError(f"two queries with one prefix fence each other: committed batches {undone}")
            raise ViolationError(f"queries are not done though no fault is left: committed batches {undone}")
        supervisor.sleep(1.0)
    # Late requests, paused drivers and open transactions end.
    last_pause = max((each[3] for each in environment.plan.parameters["pauses"]), default=0.0)
    timeout = environment.plan.parameters["transaction_timeout_ms"] / 1000
    supervisor.sleep(max(0.0, environment.quiet_at - world.now) + 80.0 + last_pause + timeout)


def _check_nothing_hangs(environment: Environment) -> None:
    coordinator = TransactionCoordinator.of(environment.cluster)
    if coordinator.ongoing:
        raise ViolationError(f"transactions are open at the end: {coordinator.ongoing}")
    topic = environment.cluster.topics[TARGET]
    for name, count in ((TARGET, len(topic.partitions)), (STATE_TOPIC, 1)):
        for index in range(count if name in environment.cluster.topics else 0):
            truth = environment.oracle.truth((name, index))
            if truth.end_offset(READ_COMMITTED) < truth.high_watermark():
                raise ViolationError(f"a hanging transaction blocks readers of {name}-{index}")


def _all_values(query: SinkQuery) -> list[bytes]:
    return [value for batch in range(len(query.batches)) for value, _ in query.rows(batch)]


def _draw_process_events(rng: random.Random, apis: Sequence[str], requests: int, long: bool) -> tuple[Event, ...]:
    """Draw crashes of the processes that send some requests, and pauses, after which a zombie wakes."""
    scale = 8 if long else 1
    crashes = rng.choice((0, 0, 1, 2)) * scale
    pauses = rng.choice((0, 0, 0, 1, 2)) * scale
    seconds = (0.02, 1.0, 30.0)
    return (
        *(
            Event(rng.choice(CRASHES), request=rng.randrange(requests))
            if rng.random() < 0.6
            else draw_aimed_crash(rng, apis, long=long)
            for _ in range(crashes)
        ),
        *(
            Event(PAUSES[0], request=rng.randrange(requests), args={"seconds": rng.choice(seconds)})
            for _ in range(pauses)
        ),
    )
