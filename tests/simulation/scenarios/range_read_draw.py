"""Draws the histories of range reads and counts."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.drawing import draw_appends, draw_change_between_requests, draw_cluster, draw_events, draw_log
from tests.simulation.history import Event, Plan
from tests.simulation.scenarios.range_read_queries import draw_queries
from tests.simulation.scenarios.several_topics import draw_topics, partition_counts

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from tests.simulation.history import Size

TOPICS: Final = ("flights", "trains", "ships")
SHORT_POLL_TIMEOUT: Final = 0.512  # seconds: it ends before most confirmations of a loss, and before an election
_ALL_COLUMNS = ("headers", "key", "value", "topic", "partition", "offset", "timestamp")


def draw(rng: random.Random, size: Size) -> Plan:
    long = size == "long"
    # A focused history has one partition with several replicas, and appends, plans and reads between its events.
    focused = not long and rng.random() < 0.6
    cluster = draw_cluster(rng, brokers=3 if focused and rng.random() < 0.8 else None)
    if focused and rng.random() < 0.8:
        cluster["cluster"]["replication_factor"] = cluster["brokers"]
    topics = {"partitions": 1, "topics": 1} if focused else draw_topics(rng)
    counts = partition_counts(TOPICS, topics)
    seconds = rng.choice((1.0, 5.0, 30.0)) * (4 if long else 1)
    if rng.random() < 0.3:  # racks (KIP-392)
        cluster["cluster"]["read_from_followers"] = True
        cluster["cluster"]["replication_factor"] = cluster["brokers"]
    has_racks = "read_from_followers" in cluster["cluster"]
    requests = 1500 if long else 50
    themed = 0.9 if focused else 0.5
    events = draw_events(rng, counts, seconds=seconds, requests=requests, long=long, themed=themed)
    frozen = focused and rng.random() < 0.1
    if frozen:
        seconds = 60.0
        cluster |= {"brokers": 3}
        events = _draw_frozen_broker(rng, counts)
    elif rng.random() < 0.15:
        # Between the requests of one decision about a loss.
        kind = rng.choice(("recreate_topic", "recreate_topic", "delete_topic", "elect_unclean_leader"))
        apis = ("executor:ListOffsets", "executor:Metadata")
        change = draw_change_between_requests(rng, kind, counts, apis, occurrences=4, seconds=seconds)
        # A leader that lags may say that the position is beyond its log.
        beyond = {"code": 1, "draw": 0, "api": "Fetch", "occurrence": rng.randrange(3), "repeats": 1}
        events = (*events, change, Event("error", args=beyond))
    elif focused and rng.random() < 0.08:
        events = ()  # so that each request and each second counts
    times = [event.at for event in events if event.at is not None]
    count = rng.randint(40, 80) if long else rng.randint(2, 4) if focused else rng.randint(1, 3)
    reads = [_draw_read(rng, counts, has_racks=has_racks) for _ in range(count)]
    appends = draw_appends(rng, batches=rng.choice((0, 3, 40 if long else 5)), seconds=seconds)
    if focused:
        phases = list(pairwise((0.0, *sorted(times), max((seconds, *times)) + 5.0)))
        appends = _draw_phased_appends(rng, phases)
        schedules = [_draw_phased_schedule(rng, phases) for _ in reads]
    else:
        schedules = [_draw_schedule(rng, seconds, times) for _ in reads]
    if any(event.kind in ("expand_topic", "recreate_topic") for event in events):
        for read in reads:
            read["partition"] = rng.choice((read["partition"], rng.randrange(counts[TOPICS[read["topic"]]] + 2)))
    if any(event.kind == "reuse_address" for event in events):
        for read in reads:
            read["has_leader"] = True  # otherwise a task does not know its cluster
    fetch_bytes = rng.choice((150, 400, 4_194_304))
    batches = rng.randint(5, 200 if fetch_bytes > 1000 else 40) if long else rng.randint(1, 12)
    if focused and not frozen and rng.random() < 0.06:
        events, fetch_bytes, batches = _draw_expiry_in_a_read(rng, counts, reads, schedules), 150, 12
    elif focused and not frozen and rng.random() < 0.07:
        events, fetch_bytes, batches = _draw_loss_between_fetches(rng, counts, reads, schedules), 150, 12
    elif focused and not frozen and rng.random() < 0.06:
        events, appends = _draw_gap_below_transaction(rng, counts, reads, schedules)
    parameters = {
        **cluster,
        **topics,
        "log": draw_log(rng, batches=batches),
        "append_list": appends,
        "seconds": seconds,
        "reads": len(reads),
        "read_list": [{**read, **schedule} for read, schedule in zip(reads, schedules, strict=True)],
        "query_list": draw_queries(rng, seconds),
        "processes": rng.randint(1, 2),
        "has_driver": rng.random() < 0.7,  # a process that plans; otherwise each plans what it reads
        "api_timeout_ms": rng.choice((2_000, 10_000, 60_000)),
        "request_timeout_ms": 1_000 if frozen else rng.choice((1_000, 30_000)),
        "fetch_bytes": fetch_bytes,
    }
    return Plan("range_reads", parameters, events, quiet_after=seconds)


def _draw_read(rng: random.Random, counts: Mapping[str, int], *, has_racks: bool) -> dict[str, Any]:
    topic = rng.randrange(len(counts))
    return {
        "topic": topic,
        "plans_all": rng.random() < 0.4,  # the driver requests the offsets of all partitions of all topics
        "pause_after": rng.choice((0, 1, 1, 2)),  # Arrow batches; 0: no pause
        "partition": rng.randrange(counts[TOPICS[topic]]),
        "from": rng.choice((0.0, 0.0, rng.random())),
        "until": rng.choice((1.0, 1.0, rng.random())),
        "committed": rng.random() < 0.5,
        "fail_on_data_loss": rng.random() < 0.5,
        "from_earliest": rng.random() < 0.3,
        "has_leader": rng.random() < 0.5,
        # Bootstrap servers that are asked first: an address may stand for several brokers.
        "planned_by": rng.randrange(3),
        "read_by": rng.randrange(3),
        "has_topic_id": rng.random() < 0.8,
        "count": rng.random() < 0.25,
        "stop_after": rng.choice((0, 0, 0, 1, 3)),  # Arrow batches, as LIMIT does; 0: read all
        "poll_timeout": rng.choice((SHORT_POLL_TIMEOUT, 12.0, 12.0, 30.0, 120.0)),
        "columns": rng.choice((("offset", "value"), ("value", "offset", "timestamp", "key"), _ALL_COLUMNS)),
        "max_rows": rng.choice((1, 3, 32_768)),
        "limit": rng.choice((None, None, 1, 4)),  # the caller may stop, but does not have to
        "plans_uncommitted": rng.random() < 0.25,
        "rack": rng.choice(("rack-0", "rack-1")) if has_racks else "",
    }


def _draw_frozen_broker(rng: random.Random, counts: Mapping[str, int]) -> tuple[Event, ...]:
    """Draw a broker that accepts connections, but does not respond, while a topic is deleted."""
    topic = rng.choice(tuple(counts))
    at = round(1.0 + 5.0 * rng.random(), 3)
    deleted = Event("delete_topic", at=at, args={"topic": topic})
    frozen = Event(
        "pause_broker", at=round(at + rng.uniform(-0.5, 0.5), 3), args={"broker": rng.randrange(3), "seconds": 50.0}
    )
    return (deleted, frozen)


def _draw_expiry_in_a_read(
    rng: random.Random,
    counts: Mapping[str, int],
    reads: Sequence[dict[str, Any]],
    schedules: Sequence[dict[str, Any]],
) -> tuple[Event, ...]:
    """Draw records that expire while reads from "earliest" have returned the first ones."""
    for read, schedule in zip(reads, schedules, strict=True):
        read |= {"from": 0.0, "until": 1.0, "from_earliest": True, "count": False, "stop_after": 0, "pause_after": 1}
        read["max_rows"] = 1
        schedule |= {"at": 0.1, "wait": 0.0, "pause": 3.0}
    kind = rng.choice(("delete_records", "expire_records"))
    topic = next(iter(counts))
    args = {"topic": topic, "partition": 0, "fraction": round(0.5 + 0.5 * rng.random(), 2)}
    return (Event(kind, at=round(0.5 + rng.random(), 3), args=args),)


def _draw_loss_between_fetches(
    rng: random.Random,
    counts: Mapping[str, int],
    reads: Sequence[dict[str, Any]],
    schedules: Sequence[dict[str, Any]],
) -> tuple[Event, ...]:
    """Draw records that are lost while a range is counted or read that has fetched a part of it."""
    for read, schedule in zip(reads, schedules, strict=True):
        read |= {"from": 0.0, "until": 1.0, "from_earliest": False, "count": rng.random() < 0.8, "stop_after": 0}
        read |= {"fail_on_data_loss": rng.random() < 0.2, "poll_timeout": 30.0}
        schedule |= {"at": 0.1, "wait": 0.0, "pause": 0.0}
    kind = rng.choice(("delete_records", "delete_records", "expire_records", "elect_unclean_leader"))
    role = rng.choice(("driver", "executor", "executor"))
    change = draw_change_between_requests(rng, kind, counts, (f"{role}:Fetch",), occurrences=6, seconds=5.0)
    if "fraction" in change.args["args"]:
        change.args["args"]["fraction"] = round(0.3 + 0.6 * rng.random(), 2)
    return (change,)


def _draw_gap_below_transaction(
    rng: random.Random,
    counts: Mapping[str, int],
    reads: Sequence[dict[str, Any]],
    schedules: Sequence[dict[str, Any]],
) -> tuple[tuple[Event, ...], list[dict[str, Any]]]:
    """Draw a range whose last records are compacted away, before the records of an open transaction."""
    for read, schedule in zip(reads, schedules, strict=True):
        read |= {
            "from": rng.choice((0.0, 0.9)),
            "until": 1.0,
            "committed": True,
            "stop_after": 0,
            "plans_uncommitted": False,
        }
        read |= {"count": False, "poll_timeout": rng.choice((12.0, 120.0))}
        schedule |= {"at": 0.2, "wait": 0.5, "pause": 0.0}
    topic = next(iter(counts))
    args = {"topic": topic, "partition": 0, "fraction": 1.0, "draw": rng.randrange(1000)}
    transaction = {"records": 9, "keys": 0, "producer": 1, "transaction": "open", "partition": 0, "at": 0.1}
    return (Event("compact_log", at=0.4, args=args),), [transaction]


def _draw_schedule(rng: random.Random, seconds: float, times: Sequence[float]) -> dict[str, float]:
    at = rng.random() * seconds
    wait = rng.choice((0.0, 0.01, 1.0, 20.0)) * rng.random()
    pause = rng.choice((0.0, 1.0, 20.0)) * rng.random()
    if times and rng.random() < 0.5:  # planned, and perhaps begun, before an event of the cluster
        event = rng.choice(times)
        at = max(0.0, event - rng.choice((0.01, 0.1, 1.0)) * rng.random())
        passed = event - at + rng.choice((0.01, 0.1, 1.0, 10.0)) * rng.random()
        wait, pause = rng.choice(((passed, 0.0), (0.0, passed)))
    return _schedule(at, wait, pause)


def _draw_phased_schedule(rng: random.Random, phases: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Plan in a phase between two events; read, or continue to read, in the same phase, in the next or a later one."""
    first = rng.randrange(len(phases))
    last = min(first + rng.choice((0, 1, 1, 2)), len(phases) - 1)
    at = _draw_time(rng, phases[first])
    passed = max(0.0, _draw_time(rng, phases[last]) - at)
    if rng.random() < 0.5:
        return _schedule(at, passed, 0.0)
    return _schedule(at, 0.0, passed) | {"pause_after": rng.randint(1, 2), "max_rows": rng.choice((1, 3))}


def _draw_phased_appends(rng: random.Random, phases: Sequence[tuple[float, float]]) -> list[dict[str, Any]]:
    """Draw batches that are appended in most phases."""
    share, most = rng.choice((0.3, 0.9)), rng.choice((1, 5))
    times = sorted(
        _draw_time(rng, phase) for phase in phases if rng.random() < share for _ in range(rng.randint(1, most))
    )
    return [{**batch, "at": round(at, 3)} for batch, at in zip(draw_log(rng, batches=len(times)), times, strict=True)]


def _draw_time(rng: random.Random, phase: tuple[float, float]) -> float:
    first, end = phase
    return first + min(end - first, rng.choice((0.05, 1.0, end - first))) * rng.random()


def _schedule(at: float, wait: float, pause: float) -> dict[str, float]:
    """``wait`` is between plan and read, ``pause`` after a batch, as of a query that is slower than the broker."""
    return {"at": round(at, 3), "wait": round(wait, 3), "pause": round(pause, 3)}
