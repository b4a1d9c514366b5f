"""Draws the histories of reads without an end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cluster.events import EVENT_KINDS, draw_event
from tests.simulation.drawing import draw_appends, draw_cluster, draw_events, draw_log
from tests.simulation.history import Event, Plan
from tests.simulation.scenarios.several_topics import all_places, draw_topics, partition_at, partition_counts

from pyspark_kafka_direct.records import COLUMNS

if TYPE_CHECKING:
    import random

    from tests.simulation.history import Size

TOPICS: Final = ("flights", "trains", "ships")
# The assigned partitions exist all the time, and are those of one cluster.
_KINDS: Final = tuple(
    kind
    for kind in EVENT_KINDS
    if kind not in ("create_topic", "delete_topic", "recreate_topic", "expand_topic", "reuse_address")
)
_STEPS: Final = ("poll", "poll", "poll", "poll", "sleep", "seek", "seek", "reopen", "wake", "assign")


def draw(rng: random.Random, size: Size) -> Plan:
    long = size == "long"
    cluster = draw_cluster(rng)
    cluster["cluster"].pop("earliest_local", None)  # without it, a gap is an error
    topics = draw_topics(rng)
    seconds = rng.choice((1.0, 5.0, 30.0)) * (4 if long else 1)
    focus = None if long else rng.choice((None, None, None, None, *_DRAWS))
    if focus is not None:
        topics["topics"], seconds = 1, 30.0
        cluster["brokers"] = cluster["cluster"]["replication_factor"] = 3
    counts = partition_counts(TOPICS, topics)
    steps = rng.randint(60, 150) if long else rng.randint(4, 25)
    kinds = _KINDS if focus is None else ()
    events = draw_events(rng, counts, seconds=seconds, requests=1500 if long else 60, long=long, kinds=kinds)
    has_topic_ids = cluster["cluster"].get("topic_ids", True) and rng.random() < 0.4
    if focus is None and has_topic_ids and rng.random() < 0.5:
        events += tuple(_draw_recreation(rng, counts, seconds) for _ in range(rng.randint(1, 2)))
    elif focus is None and not long and rng.random() < 0.2:  # so that each request and each second counts
        events = tuple(
            Event(kind, at=round(seconds * rng.random(), 3), args=draw_event(rng, kind, counts, seconds))
            for kind in rng.choices(_CALM_KINDS, k=rng.choice((0, 1, 3)))
        )
    if events and rng.random() < 0.3:
        events += _draw_rare_errors(rng)
    if rng.random() < 0.3:
        cluster["cluster"]["rolls_segments"] = True
    batches = rng.randint(5, 60) if long else rng.choice((0, 3, 8, 20))
    appends = draw_appends(rng, batches=rng.choice((0, 4, 40 if long else 8)), seconds=seconds)
    if focus is not None:
        more, times = _DRAWS[focus](rng, counts)
        (partition,) = {event.args["partition"] for event in more if "partition" in event.args}
        events += more
        if focus in ("slow responses", "leader again"):
            steps = 0  # so that it is read all the time
        appends += [
            {**batch, "partition": partition, "at": round(at, 3)}
            for batch, at in zip(draw_log(rng, batches=len(times)), times, strict=True)
        ]
    is_gap_below_transaction = focus == "slow checks" and any(event.kind == "compact_log" for event in events)
    if is_gap_below_transaction:
        transaction = {"records": 9, "keys": 0, "producer": 1, "transaction": "open"}
        appends.append({**transaction, "partition": partition, "at": round(min(times), 3)})
    step_list = [_draw_step(rng, 3 * seconds / max(steps, 1)) for _ in range(steps)]
    if focus in ("slow checks", "lacking metadata"):
        step_list = [{**step, "kind": rng.choice(("poll", "seek")), "first_fraction": 0.0} for step in step_list]
    parameters = {
        **cluster,
        **topics,
        "log": draw_log(rng, batches=batches),
        "append_list": sorted(appends, key=lambda each: each["at"]),
        "steps": step_list,
        "committed": is_gap_below_transaction or rng.random() < 0.4,
        "max_rows": rng.choice((1, 3, 32_768)),
        "max_bytes": rng.choice((1, 200, 4_194_304)),
        "fetch_bytes": rng.choice((150, 150, 4_194_304)),
        "fetch_max_bytes": rng.choice((200, 500, 52_428_800, 52_428_800)),  # of all partitions of a response
        "fetch_wait_ms": rng.choice((500, 500, 3_000)),
        "api_timeout_ms": rng.choice((2_000, 10_000, 60_000)),
        "request_timeout_ms": 30_000 if focus in _SLOW else rng.choice((1_000, 30_000)),
        "metadata_max_age_ms": 1_000 if focus in ("leader again", "lacking metadata") else rng.choice((1_000, 300_000)),
        "has_topic_ids": has_topic_ids,
        "assigned_later": rng.choice((0, 0, 1, 2)),  # partitions, of which at least one is assigned at first
        "columns": rng.choice((("offset", "value"), COLUMNS)),
    }
    return Plan("endless_reads", parameters, events, quiet_after=seconds)


def _draw_step(rng: random.Random, most_seconds: float) -> dict[str, Any]:
    return {
        "kind": rng.choice(_STEPS),
        "place": rng.randrange(9),
        "seconds": round(rng.choice((0.0, 0.1, 1.0)) * rng.random() * most_seconds, 3),
        "count": rng.choice((1, 1, 3, 20)),  # of polls
        "fraction": rng.choice((0.0, 1.0, rng.random(), rng.random())),  # of the log
        # Of another seek before, whose error is checked when the second one follows; None: there is no other one.
        "first_fraction": rng.choice((None, 0.0, 0.0, rng.random())),
    }


def _draw_returning_log(rng: random.Random, counts: dict[str, int]) -> tuple[tuple[Event, ...], list[float]]:
    """Draw a log that loses its end, and comes back with it after others have replaced it; and times of appends."""
    partition = _draw_partition(rng, counts)
    first, second, third = (begin + 4.0 * rng.random() for begin in (1.0, 8.0, 15.0))
    stuck = {**partition, "seconds": 30.0, "choice": rng.randrange(2), "in_sync": False, "deposed": True}
    events = (
        Event("stick_follower", at=round(first, 3), args=stuck),
        Event("elect_unclean_leader", at=round(second, 3), args={**partition, "choice": 0, "shortest": True}),
        Event("elect_unclean_leader", at=round(third, 3), args={**partition, "choice": rng.randrange(2)}),
    )
    phases = ((0.0, first), (first, second), (second, third), (second, third), (third, 30.0))
    return events, [rng.uniform(begin, end) for begin, end in phases for _ in range(rng.randint(0, 2))]


def _draw_slow_responses(rng: random.Random, counts: dict[str, int]) -> tuple[tuple[Event, ...], list[float]]:
    """Draw a moment in which a log returns no records, and a response that arrives late; and times of appends."""
    partition, at = _draw_partition(rng, counts), 5.0 * rng.random()
    withheld = Event("withhold_records", at=round(at, 3), args={**partition, "seconds": 4.0})
    args = {"api": "Fetch", "occurrence": rng.randrange(12), "repeats": 1}
    slow = Event("delay_response", args={**args, "seconds": round(rng.uniform(4.0, 8.0), 3)})
    return (withheld, slow), [at + rng.uniform(0.0, 2.0) for _ in range(rng.randint(1, 3))]


def _draw_slow_checks(rng: random.Random, counts: dict[str, int]) -> tuple[tuple[Event, ...], list[float]]:
    """Draw a log that loses its first records or has gaps, and slow requests that find this out."""
    partition, at = _draw_partition(rng, counts), 3.0 * rng.random()
    kind = rng.choice(("delete_records", "expire_records", "compact_log", "compact_log"))
    args = draw_event(rng, kind, counts, 30.0) | partition | ({"fraction": 1.0} if kind == "compact_log" else {})
    change = Event(kind, at=round(at, 3), args=args)
    delayed = {"api": "ListOffsets", "occurrence": rng.randrange(3), "repeats": 10}
    slow = Event("delay_response", args={**delayed, "seconds": round(rng.uniform(0.1, 0.9), 3)})
    return (change, slow), [at * rng.random() for _ in range(rng.randint(1, 4))]


def _draw_leader_again(rng: random.Random, counts: dict[str, int]) -> tuple[tuple[Event, ...], list[float]]:
    """Draw a leader that is deposed and elected again, with a shorter log, before its response arrives."""
    partition, at = _draw_partition(rng, counts), round(1.0 + 2.0 * rng.random(), 3)
    stuck = {**partition, "seconds": 30.0, "choice": rng.randrange(2), "in_sync": False, "deposed": False}
    first = at + 0.2 + rng.random()
    second = first + 1.2 + 1.5 * rng.random()
    args = {"api": "Fetch", "occurrence": rng.randrange(14), "repeats": 1}
    events = (
        Event("stick_follower", at=round(0.9 * at, 3), args=stuck),
        Event("elect_unclean_leader", at=round(first, 3), args={**partition, "choice": 0, "shortest": True}),
        Event("elect_unclean_leader", at=round(second, 3), args={**partition, "choice": rng.randrange(2)}),
        Event("delay_response", args={**args, "seconds": round(second - at + 1.0 + 4.0 * rng.random(), 3)}),
    )
    return events, [at, *(at + 6.0 * rng.random() for _ in range(rng.randint(0, 2)))]


def _draw_lacking_metadata(rng: random.Random, counts: dict[str, int]) -> tuple[tuple[Event, ...], list[float]]:
    """Draw slow checks of a lost log start or a gap, and a broker whose metadata lacks the topic for one request."""
    events, times = _draw_slow_checks(rng, counts)
    failed = {"api": "ListOffsets", "occurrence": rng.randrange(4), "repeats": rng.choice((1, 2))}
    lacking = {"api": "Metadata", "occurrence": rng.randrange(14), "repeats": 1, "lacks_topics": True}
    return (*events, Event("error", args={**failed, "draw": rng.randrange(7)}), Event("error", args=lacking)), times


# OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID,
# INCONSISTENT_TOPIC_ID
_FETCH_CODES: Final = (1, 1, 2, 3, 29, 100, 103)
_SLOW: Final = ("slow responses", "leader again")
_CALM_KINDS: Final = ("delete_records", "expire_records")
_DRAWS: Final = {
    "leader again": _draw_leader_again,
    "lacking metadata": _draw_lacking_metadata,
    "returning log": _draw_returning_log,
    "slow responses": _draw_slow_responses,
    "slow checks": _draw_slow_checks,
}


def _draw_rare_errors(rng: random.Random) -> tuple[Event, ...]:
    """Draw a response that brokers seldom give: to one request, or to some in a row."""
    args: dict[str, Any] = {"occurrence": rng.choice((0, 1, 2, rng.randrange(20))), "repeats": 1, "draw": 0}
    match rng.choice(("lacking", "no topics", "fetch", "fetch", "offsets")):
        case "lacking":
            args |= {"api": "Metadata", "lacks_topics": True}
        case "no topics":
            args |= {"api": "Metadata", "of_topics": True, "repeats": rng.choice((1, 3))}
        case "fetch":
            args |= {"api": "Fetch", "code": rng.choice(_FETCH_CODES), "repeats": rng.choice((1, 1, 3))}
        case "offsets":
            args |= {"api": "ListOffsets", "code": rng.choice((3, 78, 5)), "repeats": rng.choice((1, 3))}
    return (Event("error", args=args),)


def _draw_recreation(rng: random.Random, counts: dict[str, int], seconds: float) -> Event:
    """Draw a topic that is recreated with the same number of partitions, at once or later."""
    topic = rng.choice(tuple(counts))
    args = {"topic": topic, "partitions": counts[topic], "seconds": rng.choice((0.0, 0.5, 8.0))}
    return Event("recreate_topic", at=round(seconds * rng.random(), 3), args=args)


def _draw_partition(rng: random.Random, counts: dict[str, int]) -> dict[str, Any]:
    topic, partition = partition_at(counts, rng.choice(all_places(counts)))
    return {"topic": topic, "partition": partition}
