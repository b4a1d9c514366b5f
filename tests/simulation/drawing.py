"""How scenarios draw clusters, logs and faults."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cluster.coordinator_events import COORDINATOR_EVENT_KINDS, draw_coordinator_event
from tests.simulation.cluster.events import EVENT_KINDS, draw_event
from tests.simulation.cluster.transactions import EXHAUSTED_EPOCH
from tests.simulation.faults import CONNECT_FAULTS, CRASHES, REQUEST_FAULTS, RETRIABLE_ERRORS, draw_fault
from tests.simulation.history import Event

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Mapping, Sequence

READ_APIS: Final = ("ApiVersions", "Metadata", "ListOffsets", "Fetch")
"""Requests of every reader."""
GROUP_APIS: Final = ("FindCoordinator", "OffsetFetch", "OffsetCommit")
MAX_REPEATS: Final = 300
"""How often a fault is repeated that ends with the faults of the history."""

THEMES: Final[Sequence[tuple[str, ...]]] = (
    ("tier_log", "lose_tiered_storage"),
    ("isolate_broker", "elect_leader", "stick_image"),
    ("stick_follower", "isolate_broker", "elect_unclean_leader"),
    ("stick_follower", "elect_unclean_leader"),
    ("delete_topic", "create_topic", "stick_image"),
    ("stick_image", "recreate_topic", "isolate_broker"),
    ("delete_records", "expire_records", "elect_leader"),
    ("throttle_broker", "elect_leader"),
    ("compact_log", "throttle_broker"),
    ("stop_broker", "pause_broker"),
    ("reuse_address", "stop_broker"),
    ("require_rebootstrap", "elect_leader"),
    ("stick_image", "require_rebootstrap", "expand_topic"),
    ("compact_log", "elect_leader"),
    ("stick_image", "expand_topic"),
    ("stick_image", "recreate_topic"),
    ("stick_image", "elect_leader"),
    ("stick_follower", "stick_follower", "elect_unclean_leader"),
    ("tier_log", "lose_tiered_storage", "throttle_broker"),
    ("withhold_records", "throttle_broker"),
)
"""Kinds of events that find more together, in an order in which they do."""

_LASTING: Final = (
    "reuse_address",
    "require_rebootstrap",
    "isolate_broker",
    "stick_image",
    "stick_follower",
    "stop_broker",
    "lose_tiered_storage",
)
_FAULTS_WITHOUT_ERROR: Final = tuple(each for each in REQUEST_FAULTS if each != "error")
_WEAK_FAULTS: Final = ("delay_response", "split_response", "throttle")  # after which operations seldom fail
_FATAL_FAULTS: Final = ("lose_request", "lose_response", "stall_response")
_OLD_CLUSTERS: Final[Sequence[Mapping[str, Any]]] = (
    {"topic_ids": False},
    {"topic_ids": False, "leader_epochs": False, "earliest_local": False},
    {"earliest_local": False},
)


WITHOUT_REUSE: Final = tuple(kind for kind in EVENT_KINDS if kind != "reuse_address")
"""Events of processes that restart: a new one does not know its cluster, and may reach the other one first."""


def draw_cluster(rng: random.Random, *, brokers: int | None = None) -> dict[str, Any]:
    """Draw the parameters ``brokers`` and ``cluster`` of an environment."""
    brokers = rng.choice((1, 2, 3, 3)) if brokers is None else brokers
    settings: dict[str, Any] = {
        "transaction_version": rng.choice((0, 2)),
        "replication_factor": rng.randint(1, brokers),
        "metadata_lag": rng.choice((0.0, 0.0, 0.02, 1.0)),
        "replication_delay": rng.choice((0.0, 0.0, 0.01, 0.3)),
    }
    if rng.random() < 0.25:
        settings |= rng.choice(_OLD_CLUSTERS)
    if rng.random() < 0.5:
        settings["newest_versions"] = {"ApiVersions": 4}  # before Kafka 4.4, brokers do not check what clients expect
    return {"brokers": brokers, "cluster": settings}


def draw_transactional_cluster(rng: random.Random) -> dict[str, Any]:
    """Draw a cluster with transactions; before topic ids there was no transaction.version 2."""
    cluster = draw_cluster(rng)
    settings = cluster["cluster"]
    if not settings.get("topic_ids", True):
        settings["transaction_version"] = 0
    if rng.random() < 0.2:  # transactions exhaust the epochs of a producer id
        settings["first_epoch"] = EXHAUSTED_EPOCH - rng.randrange(4)
    return cluster


def draw_log(rng: random.Random, *, batches: int, transactions: bool | None = None) -> list[dict[str, Any]]:
    """Draw the batches of a topic's partitions; some are transactional."""
    transactional_share = rng.choice((0.0, 0.0, 0.6)) if transactions is None else 0.6 * transactions
    keys = rng.choice((0, 0, 3))
    return [
        {
            "partition": rng.randrange(4),
            "records": rng.choice((1, 1, 2, 5, 20)),
            "keys": keys,
            "producer": rng.randrange(3),
            "transaction": rng.choice(("commit", "abort", "open")) if rng.random() < transactional_share else None,
        }
        for _ in range(batches)
    ]


def draw_appends(rng: random.Random, *, batches: int, seconds: float) -> list[dict[str, Any]]:
    """Draw batches that are appended within some seconds of the history's start."""
    log = draw_log(rng, batches=batches)
    times = sorted(round(rng.random() * seconds, 3) for _ in log)
    return [{**batch, "at": at} for batch, at in zip(log, times, strict=True)]


def draw_events(
    rng: random.Random,
    topics: Mapping[str, int],
    *,
    seconds: float,
    requests: int,
    long: bool,
    kinds: Collection[str] | None = None,
    apis: Sequence[str] = READ_APIS,
    themed: float = 0.5,
) -> tuple[Event, ...]:
    """Draw changes of the cluster, and faults of single requests and connects.

    Each history has only some kinds, so that rare combinations of two events happen often (swarm testing).

    Args:
        rng: The source of the plan.
        topics: Numbers of partitions.
        seconds: The history's length.
        requests: About how many requests a history has.
        long: Whether it is a long history.
        kinds: The kinds of cluster events that the scenario allows; all if None.
        apis: The requests that the scenario sends: faults are aimed at them.
        themed: How likely the kinds are those of a theme.
    """
    kinds = tuple(EVENT_KINDS) if kinds is None else tuple(kinds)
    scale = 10 if long else 1
    events = _draw_cluster_events(rng, topics, kinds, seconds, scale, themed)
    faults = rng.sample(REQUEST_FAULTS, rng.randint(0, 4))
    for _ in range(rng.randint(0, 3) * scale if faults else 0):
        fault = draw_fault(rng, faults)
        # Most short histories have fewer requests than the longest ones.
        last = requests if long else rng.choice((10, 20, requests))
        events.append(Event(fault.kind, request=rng.randrange(last), args=fault.arguments))
    for _ in range(rng.choice((0, 1, 1, 2, 3)) * scale):
        events += draw_aimed_fault(rng, apis, long=long)
    connects = rng.randint(1, 3) if rng.random() < 0.2 else 0
    events += [Event(rng.choice(CONNECT_FAULTS), request=rng.randrange(6 * scale)) for _ in range(connects)]
    return tuple(sorted(events, key=_order))


def reader_apis(groups: Sequence[str]) -> Sequence[str]:
    """Return the requests of readers that commit offsets for groups, if there are any."""
    return (*READ_APIS, *GROUP_APIS) if groups else READ_APIS


def draw_reader_events(
    rng: random.Random,
    topics: Mapping[str, int],
    groups: Sequence[str],
    *,
    seconds: float,
    long: bool,
    kinds: Collection[str] = WITHOUT_REUSE,
    coordinator_kinds: Collection[str] | None = None,
) -> tuple[Event, ...]:
    """Draw the events of readers that commit offsets for groups, if there are any."""
    requests = 1500 if long else 60
    apis = reader_apis(groups)
    events = draw_events(rng, topics, seconds=seconds, requests=requests, long=long, kinds=kinds, apis=apis)
    if groups:
        events += draw_coordinator_events(rng, groups, seconds=seconds, long=long, kinds=coordinator_kinds)
    return events


def draw_aimed_fault(rng: random.Random, apis: Sequence[str], *, long: bool) -> list[Event]:
    """Draw a fault of the n-th request of an API; sometimes every retry fails too, until the faults stop."""
    api = rng.choice(tuple(apis))
    occurrence = rng.choice((0, 0, 1, 2, rng.randrange(300 if long else 8)))
    fault = draw_fault(rng, REQUEST_FAULTS if api in RETRIABLE_ERRORS else _FAULTS_WITHOUT_ERROR)
    events = [Event(fault.kind, args={**fault.arguments, "api": api, "occurrence": occurrence, "repeats": 1})]
    if rng.random() < (0.5 if fault.kind in _WEAK_FAULTS else 0.3):
        again = draw_fault(rng, (fault.kind, *_FATAL_FAULTS))
        events.append(
            Event(
                again.kind,
                args={
                    **again.arguments,
                    "api": api,
                    "occurrence": occurrence + 1,
                    "repeats": rng.choice((1, 3, MAX_REPEATS)),
                },
            )
        )
    return events


def draw_spread_faults(rng: random.Random, apis: Sequence[str], *, count: int, occurrences: int) -> list[Event]:
    """Draw faults of any of the first requests of each API, so that rare requests have as many as frequent ones.

    Some have consequences for the next requests of the process too, so that operations fail after any fault.
    """
    events = []
    for _ in range(count):
        api = rng.choice(tuple(apis))
        fault = draw_fault(rng, REQUEST_FAULTS if api in RETRIABLE_ERRORS else _FAULTS_WITHOUT_ERROR)
        args = {**fault.arguments, "api": api, "occurrence": rng.randrange(occurrences), "repeats": 1}
        if rng.random() < 0.5:
            args["following"] = [rng.choice(_FATAL_FAULTS), rng.choice((1, 3, 10))]
        events.append(Event(fault.kind, args=args))
    return events


def draw_aimed_crash(rng: random.Random, apis: Sequence[str], *, long: bool) -> Event:
    """Draw a crash of the process that sends the n-th request of an API."""
    occurrence = rng.choice((0, 0, 1, 2, rng.randrange(300 if long else 8)))
    args = {"api": rng.choice(tuple(apis)), "occurrence": occurrence, "repeats": 1}
    return Event(rng.choice(CRASHES), args=args)


def draw_late_request(rng: random.Random, apis: Sequence[str], before: Sequence[str], *, occurrences: int) -> Event:
    """Draw a request that the broker handles just before a later one is sent; its sender has retried it meanwhile."""
    args = {
        "api": rng.choice(tuple(apis)),
        "occurrence": rng.randrange(occurrences),
        "repeats": 1,
        "before_next": [rng.choice(tuple(before)), rng.randint(0, 2)],  # 0: the next one of the API
    }
    return Event("late_request", args=args)


def draw_change_between_requests(
    rng: random.Random,
    kind: str,
    topics: Mapping[str, int],
    apis: Sequence[str],
    *,
    occurrences: int,
    seconds: float,
) -> Event:
    """Draw a change of the cluster just before one of the first requests of an API is sent."""
    args = {
        "api": rng.choice(tuple(apis)),
        "occurrence": rng.randrange(occurrences),
        "repeats": 1,
        "change": kind,
        "args": draw_event(rng, kind, topics, seconds),
    }
    return Event("change_before_request", args=args)


def draw_outdated_broker(rng: random.Random, partitions: Mapping[str, int], seconds: float) -> list[Event]:
    """Draw a broker whose metadata, or whose log as a leader, is outdated for most of the history."""
    topic = rng.choice(tuple(partitions))
    outdated = Event(
        rng.choice(("stick_image", "isolate_broker")),
        at=round(0.2 * seconds * rng.random(), 3),
        args={"broker": rng.randrange(3), "seconds": seconds},
    )
    assert outdated.at is not None
    change = Event(
        rng.choice(("expand_topic", "elect_leader", "recreate_topic")), at=round(outdated.at + 0.1 * seconds, 3)
    )
    match change.kind:
        case "expand_topic":
            arguments: dict[str, Any] = {"topic": topic, "count": 1}
        case "elect_leader":
            arguments = {"topic": topic, "partition": rng.randrange(partitions[topic]), "choice": rng.randrange(3)}
        case _:
            arguments = {"topic": topic, "partitions": partitions[topic], "seconds": 0.0}
    return [outdated, Event(change.kind, at=change.at, args=arguments)]


def draw_coordinator_events(
    rng: random.Random, groups: Sequence[str], *, seconds: float, long: bool, kinds: Collection[str] | None = None
) -> tuple[Event, ...]:
    """Draw changes of coordinators and groups, for half of the histories."""
    kinds = tuple(COORDINATOR_EVENT_KINDS) if kinds is None else tuple(kinds)
    events = []
    for _ in range(rng.choice((0, 0, 1, 2)) * (10 if long else 1)):
        kind = rng.choice(kinds)
        args = draw_coordinator_event(rng, kind, rng.choice(tuple(groups)), seconds)
        events.append(Event(kind, at=round(seconds * rng.random(), 3), args=args))
    return tuple(sorted(events, key=_order))


def _draw_cluster_events(
    rng: random.Random, topics: Mapping[str, int], kinds: Sequence[str], seconds: float, scale: int, themed: float
) -> list[Event]:
    """Draw the enabled kinds, a random sample or a theme, and events of these kinds."""
    themes = [theme for theme in THEMES if set(theme) <= set(kinds)]
    if themes and rng.random() < themed:
        enabled: Sequence[str] = rng.choice(themes)
        count = rng.randint(2, 5)
    else:
        enabled = rng.sample(kinds, rng.randint(0, min(4, len(kinds))))
        count = rng.randint(0, 4) if enabled else 0
    drawn = [rng.choice(enabled) for _ in range(count * scale)]
    if drawn and len(enabled) <= len(drawn) and enabled in themes:
        drawn[: len(enabled)] = enabled  # each kind of a theme happens
    # The events of a theme are close to each other, or spread over the history.
    first, span = (rng.random(), rng.choice((0.05, 0.3))) if rng.random() < 0.4 and scale == 1 else (0.0, 1.0)
    times = [seconds * min(1.0, first + span * rng.random()) for _ in drawn]
    if enabled in themes and scale == 1:
        times.sort()  # in the order of the theme
    events = [
        Event(kind, at=round(at, 3), args=draw_event(rng, kind, topics, seconds))
        for kind, at in zip(drawn, times, strict=True)
    ]
    return _connected(rng, events) if enabled in themes else events


def _connected(rng: random.Random, events: Sequence[Event]) -> list[Event]:
    """Let the events of a theme often happen to one partition, and their states last until all have happened."""
    changes: list[dict[str, Any]] = [{} for _ in events]
    partitions = [event.args for event in events if "partition" in event.args]
    if partitions and rng.random() < 0.7:
        target = {name: partitions[0][name] for name in ("topic", "partition")}
        for event, change in zip(events, changes, strict=True):
            if "partition" in event.args:
                change |= target
    if rng.random() < 0.7:
        end = max(event.at or 0.0 for event in events) + rng.choice((0.1, 1.0, 10.0))
        for event, change in zip(events, changes, strict=True):
            if event.kind in _LASTING:
                change["seconds"] = round(max(event.args["seconds"], end - (event.at or 0.0)), 3)
    return [replace(event, args={**event.args, **change}) for event, change in zip(events, changes, strict=True)]


def _order(event: Event) -> tuple[int, float, int]:
    place = 0 if event.at is not None else 1 if event.request is not None else 2
    return (place, event.at or 0.0, event.request or 0)
