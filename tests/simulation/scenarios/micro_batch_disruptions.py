"""How a streaming query dies, or looks at its topics, close to a change of these: rare coincidences, drawn often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.simulation.cluster.events import draw_event
from tests.simulation.history import Event
from tests.simulation.scenarios.micro_batch_options import LIMITS

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

DISRUPTIONS: Final = (
    "change after a crash",
    "crash after a change",
    "changed selection",
    "new partition at the start",
    "changed isolation level",
    "recreated topics",
    "losses while waiting",
)
RUNS: Final = 3
SECONDS: Final = 8.0  # of the history
_UNFINISHED: Final = ("after the offset log", "after planning", "while tasks run", "before the sink")
"""Steps at which a batch is planned, and runs again after a crash."""
_INTERVAL: Final = 0.3
_CHANGES: Final = ("expire_records", "delete_records", "recreate_topic", "expand_topic")
_SELECTIONS: Final = ("subscribe", "subscribePattern", "assign")
_STARTS: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestampStrategy")
_SKIP_LOSS: Final = {"failOnDataLoss": "false"}
_MANY: Final = 24
"""So many records of partition 0, or twice as many, belong to the first topic: see ``RecordWriter``."""
_FEW: Final = 5
"""So many records of partition 1 belong to the first topic, too."""


class Disruption(NamedTuple):
    """What is added to a history."""

    events: Sequence[Event] = ()
    appends: Sequence[dict[str, Any]] = ()
    crashes: Sequence[dict[str, Any]] = ()


def draw_disruption(
    rng: random.Random, kind: str, partitions: Mapping[str, int], runs: Sequence[dict[str, Any]]
) -> Disruption:
    """Draw a disruption, and change the runs so that it happens."""
    runs[0] |= {"trigger": "processing time", "triggers": 12, "interval": _INTERVAL}
    match kind:
        case "change after a crash":
            return _change_after_a_crash(rng, partitions, runs)
        case "crash after a change":
            return _crash_after_a_change(rng, partitions, runs)
        case "changed selection":
            return _change_selection(rng, partitions, runs)
        case "changed isolation level":
            return _change_isolation(rng, runs)
        case "recreated topics":
            return _recreate_topics(rng, partitions, runs)
        case "losses while waiting":
            return _lose_while_waiting(rng, partitions, runs)
    return _add_partition_at_the_start(rng, partitions, runs)


def _change_after_a_crash(
    rng: random.Random, partitions: Mapping[str, int], runs: Sequence[dict[str, Any]]
) -> Disruption:
    runs[0]["pause"] = 4.0
    crash = _crash(rng, run=0)
    crash["count"] = rng.choice((0, 0, 1))
    kinds = (rng.choice(_CHANGES), rng.choice(_CHANGES))[: rng.randint(1, 2)]
    events = [
        Event(kind, at=2.5 + number, args=draw_event(rng, kind, partitions, 0.0)) for number, kind in enumerate(kinds)
    ]
    return Disruption(events, [_append(rng, each, 0.1 + 0.4 * each) for each in range(3)], [crash])


def _crash_after_a_change(
    rng: random.Random, partitions: Mapping[str, int], runs: Sequence[dict[str, Any]]
) -> Disruption:
    """The driver dies in the batch that finds a recreated topic, or that batch could wait for more records."""
    at = round(2.0 + rng.random(), 3)
    runs[0]["triggers"] = 24
    is_delayed = rng.random() < 0.4
    topic = next(iter(partitions)) if is_delayed else rng.choice(tuple(partitions))
    event = Event("recreate_topic", at=at, args={"topic": topic, "partitions": partitions[topic], "seconds": 0.0})
    if rng.random() < 0.7:
        _set_options(runs, _SKIP_LOSS)
    if not is_delayed:
        appends = [_append(rng, number, at + 0.1, records=40) for number in range(4)]
        return Disruption([event], appends, [_crash(rng, run=0, after=at)])
    delay = rng.choice(("5s", "20s"))
    _set_options(runs, {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "50", "maxTriggerDelay": delay})
    # Some records of other partitions, with an empty position, are not enough for a batch.
    few = [_append(rng, number, at + 0.02, records=2) for number in (1, 2)]
    return Disruption([event], [_append(rng, 0, 0.0, records=20), *few, _append(rng, 0, at + 0.4, records=40)])


def _change_selection(rng: random.Random, partitions: Mapping[str, int], runs: Sequence[dict[str, Any]]) -> Disruption:
    """The second run, which dies in its first batch, selects fewer topics than the others."""
    topics = list(partitions)
    for run, selected in zip(runs, (topics, topics[:1], topics), strict=True):
        options = {name: value for name, value in run["options"].items() if name not in ("subscribePattern", "assign")}
        if "{" in options.get("startingOffsets", ""):  # it names the partitions of the former selection
            options["startingOffsets"] = "earliest"
        run["options"] = {**options, "subscribe": ",".join(selected)}
    runs[1] |= {"trigger": "processing time", "triggers": 3, "interval": _INTERVAL}
    _set_options(runs, _SKIP_LOSS)
    return Disruption(appends=[_append(rng, number, 0.1) for number in range(4)], crashes=[_crash(rng, run=1)])


def _change_isolation(rng: random.Random, runs: Sequence[dict[str, Any]]) -> Disruption:
    """The second run reads committed records only, and the first one has read those of open transactions."""
    runs[0] |= {"triggers": 6, "pause": 0.0}
    runs[1] |= {"trigger": "processing time", "triggers": 12, "interval": _INTERVAL}
    for run, level in zip(runs, ("read_uncommitted", "read_committed", "read_committed"), strict=True):
        options = {name: value for name, value in run["options"].items() if name not in LIMITS}
        run["options"] = {**options, "kafka.isolation.level": level}
    transactions = [{**_append(rng, each, 0.3), "producer": 1, "transaction": "open"} for each in range(3)]
    return Disruption(appends=transactions + [_append(rng, each % 3, 0.2 * each + 2.0) for each in range(12)])


def _recreate_topics(rng: random.Random, partitions: Mapping[str, int], runs: Sequence[dict[str, Any]]) -> Disruption:
    """Topics are recreated between two batches of a query that continues after losses, or lose records otherwise."""
    runs[0]["triggers"] = 24
    _set_options(runs, _SKIP_LOSS)
    at = round(1.0 + rng.random(), 3)
    kinds = rng.choice((("recreate_topic",), ("recreate_topic",), (*_CHANGES, "recreate_topic", "delete_topic")))
    events = []
    for topic, count in partitions.items():
        kind = rng.choice(kinds)
        args = draw_event(rng, kind, {topic: count}, 0.0)
        if kind == "recreate_topic":
            args = {"topic": topic, "partitions": rng.choice((count, rng.randint(1, count))), "seconds": 0.0}
        events.append(Event(kind, at=at, args=args))
    appends = [_append(rng, number, 0.1 * number) for number in range(6)]
    return Disruption(events, appends + [_append(rng, number, at + 0.2) for number in range(6)])


def _lose_while_waiting(
    rng: random.Random, partitions: Mapping[str, int], runs: Sequence[dict[str, Any]]
) -> Disruption:
    """Records expire while a query that has read some waits for more."""
    runs[0]["triggers"] = 24
    for run in runs:
        options = {name: value for name, value in run["options"].items() if name not in LIMITS}
        run["options"] = {**options, **_SKIP_LOSS, "minOffsetsPerTrigger": "20", "maxTriggerDelay": "20s"}
    events = [
        Event(rng.choice(("delete_records", "expire_records")), at=round(2.0 + 0.5 * number, 3), args=arguments)
        for number, topic in enumerate(partitions)
        for arguments in [{"topic": topic, "partition": index, "fraction": 1.0} for index in range(partitions[topic])]
    ]
    early = [_append(rng, number, 0.1 * number, records=each) for number in range(3) for each in (1, 2, 3)]
    waiting = [_append(rng, number, 1.7, records=each) for number in range(3) for each in (1, 2, 3)]
    later = [_append(rng, number, at, records=each) for number in range(3) for each in (4, 5) for at in (4.0, 5.5)]
    return Disruption(events, [*early, *waiting, *later])


def draw_truncation(rng: random.Random, partitions: Mapping[str, int], runs: Sequence[dict[str, Any]]) -> Disruption:
    """A log is truncated that a query with a minimum has read, and grows again behind the old offset."""
    runs[0] |= {"trigger": "processing time", "triggers": 30, "interval": _INTERVAL}
    topic = next(iter(partitions))
    for run in runs:
        options = {name: value for name, value in run["options"].items() if name not in (*LIMITS, *_SELECTIONS)}
        if "{" in options.get("startingOffsets", ""):
            options["startingOffsets"] = "earliest"
        limits = {"minOffsetsPerTrigger": "20", "maxTriggerDelay": "20s"}
        run["options"] = {**options, **_SKIP_LOSS, **limits, "subscribe": topic}
    target = {"topic": topic, "partition": 0}
    at = round(2.0 + 0.5 * rng.random(), 3)
    events = [
        Event("stick_follower", at=0.5, args={**target, "seconds": 60.0, "choice": rng.randrange(3)}),
        Event("elect_unclean_leader", at=at, args={**target, "choice": 0, "shortest": True}),
    ]
    grows_at = at + rng.choice((4.0, 5.5))  # a loss is confirmed for some seconds
    few = _append(rng, 1, at - 0.2, records=_FEW)  # they wait for the minimum
    return Disruption(events, [_append(rng, 0, 0.8, records=_MANY), few, _append(rng, 0, grows_at, records=2 * _MANY)])


def draw_deposed_retention(
    rng: random.Random, partitions: Mapping[str, int], runs: Sequence[dict[str, Any]]
) -> tuple[tuple[Event, ...], list[dict[str, Any]]]:
    """Draw a deposed leader that deletes records before a query starts at "earliest"; return events and the log."""
    topic = next(iter(partitions))
    for run in runs:
        options = {name: value for name, value in run["options"].items() if name not in (*_STARTS, *_SELECTIONS)}
        run["options"] = {**options, "startingOffsets": "earliest", "subscribe": ",".join(partitions)}
    isolated = Event("isolate_broker", at=0.1, args={"broker": rng.randrange(3), "seconds": 20.0})
    fraction = round(0.4 + 0.6 * rng.random(), 2)
    expired = [
        Event(
            "expire_records",
            at=2.5,
            args={"topic": topic, "partition": index, "fraction": fraction, "deposed": True},
        )
        for index in range(partitions[topic])
    ]
    log = [_append(rng, number, 0.0, records=each) for number in range(3) for each in (1, 2, 3, 1, 2, 3)]
    return (isolated, *expired), log


def _add_partition_at_the_start(
    rng: random.Random, partitions: Mapping[str, int], runs: Sequence[dict[str, Any]]
) -> Disruption:
    """A partition is added while a new query with Trigger.AvailableNow waits for the ends of the others."""
    runs[0] |= {"trigger": "available now", "triggers": 40}
    topic = rng.choice(tuple(partitions))
    events = [
        Event("expand_topic", at=round(0.2 * rng.random(), 3), args={"topic": topic, "count": 1}),
        Event("delay_response", args={"seconds": 5.0, "api": "ListOffsets", "occurrence": 0, "repeats": 1}),
    ]
    return Disruption(events, [_append(rng, number, 0.3) for number in range(4)])


def _set_options(runs: Sequence[dict[str, Any]], options: Mapping[str, str]) -> None:
    for run in runs:
        run["options"] = {**run["options"], **options}


def _crash(rng: random.Random, *, run: int, after: float = 0.0) -> dict[str, Any]:
    return {"run": run, "step": rng.choice(_UNFINISHED), "count": 0, "after": after}


def _append(rng: random.Random, partition: int, at: float, records: int = 0) -> dict[str, Any]:
    return {
        "partition": partition,
        "records": records or rng.choice((1, 2, 5)),
        "keys": 0,
        "producer": 0,
        "transaction": None,
        "at": round(at, 3),
    }
