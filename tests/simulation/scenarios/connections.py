"""Connections, pool, metadata and groups: deadlines are kept, nothing leaks, and users of one pool do not mix.

Several threads of one process send requests with two kinds of settings over one pool. The settings differ in their
client id, which stands for credentials: a connection is only used with the settings that opened it.
"""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.drawing import (
    GROUP_APIS,
    MAX_REPEATS,
    READ_APIS,
    draw_aimed_crash,
    draw_cluster,
    draw_coordinator_events,
    draw_events,
    draw_log,
    draw_spread_faults,
)
from tests.simulation.environment import Environment
from tests.simulation.errors import ViolationError
from tests.simulation.history import Event, Plan
from tests.simulation.scenarios.connection_calls import FROM_ANY_BROKER, GROUP, READS, TOPICS, Calls
from tests.simulation.scenarios.connection_calm import Calm, draw_calm
from tests.simulation.scenarios.connection_operations import Operations
from tests.simulation.scenarios.connection_truth import BROKER_CONFIGS
from tests.simulation.scenarios.several_topics import create_topics, draw_place, draw_topics, partition_counts

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from tests.simulation.history import Size
    from tests.simulation.scheduler import World

NAME = "connections"
SHRINKABLE = {"threads": 1, "calls": 1, "topics": 1, "log": (), "calm": ()}
_CALLS = (
    "metadata",
    "offsets",
    "all_topics",
    "local_start",
    "commit",
    "committed",
    "create_topic",
    "describe_topic",
    "leaders",
    "confirm",
)
_RARE_CALLS = (
    "timestamps",
    "bounds",
    "leader",
    "check_leader",
    "open_transactions",
    "groups",
    "describe_broker",
)
_APIS_OF_ANY_BROKER = ("Metadata", "DescribeConfigs")
_MAX_IDLE_PER_BROKER = 4
_HELD_SECONDS = 50.0  # for which a call may hold a connection while it waits for other brokers
_DEAD_ADDRESS: Final = "10.9.0.1"
_VERSIONS: Final = {
    "Metadata": (4, 13),
    "ListOffsets": (2, 11),
    "FindCoordinator": (1, 6),
    "OffsetFetch": (2, 9),
    "OffsetCommit": (3, 9),
    "CreateTopics": (4, 7),
    "DescribeConfigs": (1, 4),
    "ListGroups": (1, 5),
    "ApiVersions": (0, 4),
}
_LONG_TIMEOUT_MS = 60_000  # of calls, longer than any throttle times
_MIN_FAILOVER_MS = 10_000  # the shortest default.api.timeout.ms within which another coordinator is found


def draw(rng: random.Random, size: Size) -> Plan:
    long = size == "long"
    cluster = draw_cluster(rng)
    topics = draw_topics(rng)
    counts = partition_counts(TOPICS, topics)
    seconds = rng.choice((1.0, 10.0, 60.0)) * (5 if long else 1)
    threads = rng.choice((1, 1, 2, 3, 7))  # more than the pool retains for each broker
    calls = rng.randint(60, 120) if long else rng.randint(2, 6)
    parameters = {
        **cluster,
        **topics,
        "log": draw_log(rng, batches=3),
        "threads": threads,
        "calls": calls,
        "call_list": [[_draw_call(rng, counts, seconds / calls) for _ in range(calls)] for _ in range(threads)],
        "api_timeout_ms": rng.choice((3_000, 15_000, 60_000)),
        "request_timeout_ms": rng.choice((1_000, 30_000)),
        "max_idle_ms": rng.choice((500, 540_000)),
    }
    requests = 1500 if long else 50
    apis = (*READ_APIS[:3], *GROUP_APIS, "CreateTopics", "DescribeConfigs")
    events = draw_events(rng, counts, seconds=seconds, requests=requests, long=long, apis=apis)
    own_apis = [each for each in apis if each not in READ_APIS]
    own_apis += ["OffsetFetch", "OffsetCommit", "CreateTopics"]  # operations fail seldom after their faults
    count, occurrences = (rng.randint(40, 80), 100) if long else (rng.choice((0, 4, 8, 14)), 4)
    events += tuple(draw_spread_faults(rng, own_apis, count=count, occurrences=occurrences))
    groups = [f"{GROUP}-{number}" for number in range(threads)]
    events += draw_coordinator_events(rng, groups, seconds=seconds, long=long, kinds=("move_group_coordinators",))
    if rng.random() < 0.3:
        events += (draw_aimed_crash(rng, own_apis, long=long),)
    parameters["reconnect_max_ms"] = rng.choice((1_000, 30_000))  # the longest pause before a connect
    _draw_clients(rng, parameters)
    if any(event.kind == "reuse_address" for event in events):  # a client without the check accepts another cluster
        parameters["settings"].pop("metadata_cluster_check_enable", None)
    if any(event.args.get("forever") for event in events):  # the bootstrap servers may return no metadata
        parameters.pop("bootstrap_servers", None)
    if rng.random() < 0.04:
        repeats = rng.choice((1, 3, MAX_REPEATS))
        args = {"api": "Metadata", "occurrence": rng.randrange(3), "repeats": repeats, "draw": 0, "of_topics": True}
        events += (Event("error", args=args),)
    if rng.random() < 0.03:
        api = rng.choice(
            ("Metadata", "ListOffsets", "FindCoordinator", "OffsetFetch", "DescribeConfigs", "ApiVersions")
        )
        events += (Event("garble_response", args={"api": api, "occurrence": rng.randrange(4), "repeats": 1}),)
    parameters["close_after"] = round(rng.choice((0.003, 0.02)) * rng.random(), 4)  # of calls, in seconds
    if cluster["brokers"] > 1 and not long and rng.random() < 0.03:
        seconds = 10.0
        events = _draw_lower_epochs(rng, parameters, counts, seconds)
    elif not long and rng.random() < 0.05:
        seconds, count = 20.0, 0
        events = rng.choice((_draw_frozen_brokers, _draw_long_throttles))(rng, parameters)
    return Plan(NAME, parameters, events, quiet_after=max(seconds, 5.0 * count))


def _draw_clients(rng: random.Random, parameters: dict[str, Any]) -> None:
    """Draw settings of the clients, the versions of the brokers, and the operations on the healthy cluster."""
    cluster = parameters["cluster"]
    cluster["broker_configs"] = BROKER_CONFIGS
    if rng.random() < 0.05:  # the default.replication.factor is too high for the brokers
        cluster["replication_factor"] = parameters["brokers"] + 1
    if rng.random() < 0.3:
        versions = cluster.setdefault("newest_versions", {})
        for api, (oldest, newest) in _VERSIONS.items():
            if rng.random() < 0.3:
                versions[api] = rng.randint(oldest, newest)
    if rng.random() < 0.4:
        parameters["bootstrap_servers"] = rng.randint(1, parameters["brokers"])
    settings: dict[str, Any] = {}
    if rng.random() < 0.3:
        settings["metadata_max_age_ms"] = 1_000
    if rng.random() < 0.2:
        settings["metadata_cluster_check_enable"] = False
    if rng.random() < 0.3:
        settings["connect_timeout_ms"] = 1_000
    parameters["settings"] = settings
    if rng.random() < 0.05:
        parameters |= {"retries": rng.randint(0, 3), "retry_interval": rng.choice((0.0, 0.01, 0.5))}
    if rng.random() < 0.1:
        parameters["dead_address"] = {
            "is_silent": rng.random() < 0.5,
            "is_name": rng.random() < 0.5,
            "failures": rng.choice((0, 1, 3)),  # of the resolver
        }
    parameters["calm"] = draw_calm(rng)


def _resolve(environment: Environment) -> None:
    """Let each host have two addresses, the first of which is dead; names may need the resolver."""
    drawn = environment.plan.parameters.get("dead_address")
    if drawn is None:
        return
    if drawn["is_silent"]:
        environment.network.silent_addresses.add(_DEAD_ADDRESS)

    failures = [socket.EAI_AGAIN] * drawn["failures"]

    def resolve(host: str, flags: int) -> list[str]:
        if drawn["is_name"] and flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if drawn["is_name"] and failures:
            raise socket.gaierror(failures.pop(), "Temporary failure in name resolution")
        return [_DEAD_ADDRESS, host]

    environment.network.on_resolve = resolve


def _draw_lower_epochs(
    rng: random.Random, parameters: dict[str, Any], counts: Mapping[str, int], seconds: float
) -> tuple[Event, ...]:
    """Let clients that know late leader epochs of a topic use it after it was recreated; return the changes."""
    parameters["cluster"] |= {"topic_ids": True, "leader_epochs": True, "replication_factor": parameters["brokers"]}
    for calls in parameters["call_list"]:
        for number, call in enumerate(calls):
            pause = round(0.6 * seconds * rng.random(), 3) if number < 3 else call["pause"]
            call |= {"kind": rng.choice(READS), "pause": pause, "user": 0, "fresh_client": False}
    topic = rng.choice(tuple(counts))
    elections = [
        Event("elect_leader", at=at, args={"topic": topic, "partition": index, "choice": rng.randrange(3)})
        for at in (0.1, 0.2)
        for index in range(counts[topic])
    ]
    recreated = {"topic": topic, "partitions": counts[topic], "seconds": 0.0}
    return (*elections, Event("recreate_topic", at=round(seconds * (0.2 + 0.6 * rng.random()), 3), args=recreated))


def _draw_frozen_brokers(rng: random.Random, parameters: dict[str, Any]) -> tuple[Event, ...]:
    """Freeze some brokers, but not all, while clients with a short deadline send requests that any broker serves."""
    parameters |= {"brokers": 3, "api_timeout_ms": 3_000, "request_timeout_ms": 30_000}
    parameters["cluster"] |= {"metadata_lag": 0.0}
    _call_any_broker(rng, parameters)
    frozen = rng.sample(range(3), rng.randint(1, 2))
    return tuple(
        Event("pause_broker", at=round(rng.random(), 3), args={"broker": broker, "seconds": 60.0}) for broker in frozen
    )


def _draw_long_throttles(rng: random.Random, parameters: dict[str, Any]) -> tuple[Event, ...]:
    """Let the only broker respond with throttle times that are not shorter than the request timeout."""
    parameters |= {"brokers": 1, "api_timeout_ms": 60_000, "request_timeout_ms": 1_000}
    parameters["cluster"] |= {"metadata_lag": 0.0}
    _call_any_broker(rng, parameters)
    events = []
    for _ in range(rng.randint(1, 3)):
        args = {"api": rng.choice(("ApiVersions", "Metadata", "Metadata")), "occurrence": rng.randrange(4)}
        events.append(Event("throttle", args={**args, "repeats": 1, "ms": rng.choice((1_000, 1_500, 8_000))}))
    return tuple(events)


def _call_any_broker(rng: random.Random, parameters: dict[str, Any]) -> None:
    """Replace the calls by those that any broker serves, of clients that know all of them."""
    for name in ("bootstrap_servers", "dead_address", "retries", "retry_interval"):
        parameters.pop(name, None)
    parameters["settings"].pop("connect_timeout_ms", None)
    versions = parameters["cluster"].get("newest_versions", {})
    if "ApiVersions" in versions:  # an error in version 0 has no throttle time
        versions["ApiVersions"] = max(versions["ApiVersions"], 3)
    for calls in parameters["call_list"]:
        for call in calls:
            call |= {"kind": rng.choice(FROM_ANY_BROKER), "pause": round(2.0 * rng.random(), 3)}


def run(world: World, plan: Plan) -> None:
    environment = Environment(world, plan)
    operations = Operations(environment)
    with operations.opened():
        _run(environment, operations)


def _run(environment: Environment, operations: Operations) -> None:
    world, plan = environment.world, environment.plan
    parameters = plan.parameters
    for number, topic in enumerate(create_topics(environment, TOPICS)):
        environment.cluster.topics[topic].configs["retention.ms"] = str(number + 1)
    _resolve(environment)
    driver = environment.process("driver")
    calls = Calls(environment, operations)
    environment.network.on_request = calls.check_request
    threads = [
        driver.spawn(f"thread {number}", partial(calls.run, driver, number)) for number in range(parameters["threads"])
    ]
    world.run(threads)
    _check_abandoned(environment)
    if not driver.dead and not world.errors:
        calm = Calm(environment, operations, tuple(calls.counts), driver)
        world.run([driver.spawn("calm", lambda: calm.run(calls.users()))])
    # The only broker that returns metadata may be the one that is down.
    needs_bootstrap = any(broker.rebootstrap_until > world.now for broker in environment.cluster.brokers.values())
    has_time = parameters["api_timeout_ms"] >= _MIN_FAILOVER_MS and not needs_bootstrap
    has_time = has_time and "retries" not in parameters
    if not driver.dead and not world.errors and parameters["brokers"] > 1 and has_time:
        world.run([driver.spawn("failover", partial(calls.check_failover, driver))])
    environment.raise_errors()
    environment.check_client_ids()
    environment.check_timeouts()
    idle_seconds = parameters["max_idle_ms"] / 1000 + _HELD_SECONDS
    if environment.network.longest_idle > idle_seconds:
        raise ViolationError(f"a connection is used after {environment.network.longest_idle:.1f} s without a request")
    if calls.violations:
        raise ViolationError(calls.violations[0])
    idle = environment.network.open_connections(driver)
    for (client_id, broker), count in sorted(idle.items()):
        if count > _MAX_IDLE_PER_BROKER:
            raise ViolationError(f"{count} connections of {client_id} to broker {broker} are open after all calls")
    environment.check_released([driver])
    if not driver.dead:
        tasks = [driver.spawn(f"last call {number}", partial(calls.call_at_the_end, driver)) for number in range(3)]
        world.run([*tasks, driver.spawn("close", partial(_close_pool, environment, driver))])
        environment.raise_errors()
        if remaining := environment.network.open_connections(driver):
            raise ViolationError(f"connections are open after their pool was closed: {sorted(remaining.items())}")


def _check_abandoned(environment: Environment) -> None:
    """Check that no request times out because of a throttle time: the broker responds afterwards (KIP-219)."""
    plan = environment.plan
    is_throttled = {event.kind for event in plan.events} <= {"throttle"}
    if not is_throttled or plan.parameters["brokers"] > 1 or plan.parameters["api_timeout_ms"] < _LONG_TIMEOUT_MS:
        return
    found = [api for api in environment.network.abandoned_requests if api in _APIS_OF_ANY_BROKER]
    if found:
        raise ViolationError(f"the only broker delays requests of a throttled client, and they time out: {found}")


def _close_pool(environment: Environment, driver: Any) -> None:
    driver.sleep(environment.plan.parameters.get("close_after", 0.0))
    environment.pool(driver).close()


def _draw_call(rng: random.Random, counts: Mapping[str, int], pause: float) -> dict[str, Any]:
    return {
        "kind": rng.choice(_CALLS if rng.random() < 0.75 else _RARE_CALLS),
        "pause": round(rng.random() * 2 * pause, 3),
        "user": rng.randrange(2),
        "places": [draw_place(rng, counts) for _ in range(rng.choice((1, 1, 2, 4)))],
        "fresh_client": rng.random() < 0.3,
        "newest": rng.random() < 0.3,  # also the last partitions that all brokers know
    }
