"""Draws the histories of continuous queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cluster.coordinator_events import draw_coordinator_event
from tests.simulation.cluster.events import draw_event
from tests.simulation.drawing import (
    READ_APIS,
    draw_appends,
    draw_events,
    draw_log,
    draw_transactional_cluster,
)
from tests.simulation.faults import CHANGES, CRASHES, PAUSES
from tests.simulation.history import Event, Plan
from tests.simulation.scenarios.checkpoint_store import FILE_FAULTS
from tests.simulation.scenarios.continuous_checks import OUTPUTS
from tests.simulation.scenarios.continuous_strangers import STRANGERS
from tests.simulation.scenarios.exactly_once import SAFE_EVENTS
from tests.simulation.scenarios.spark_stand_in import STEPS

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from tests.simulation.history import Size

MAX_PAUSE: Final = 6.0
PREFIXES: Final = ("p", "q")
"""Values of ``transactionalIdPrefix``."""

_TOPICS = ("flights", "trains", "ships")
_LOSSY_EVENTS = ("expand_topic", "expand_topic", "delete_records", "expire_records", "recreate_topic", "deny_topic")
_MAX_EXPANSIONS: Final = 4  # without a limit, each partition has a task
_UNCLEAN: Final = "elect_unclean_leader"
_SOURCE_EVENTS: Final = ("compact_log", _UNCLEAN)  # the output is compared with all that brokers acknowledged
_APIS: Final = (
    *READ_APIS,
    "FindCoordinator",
    "OffsetFetch",
    "Produce",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
)

_CHANGE_SECONDS: Final = 8.0
_LAST_OFFSET_FETCH: Final = 7  # of the second run, each of which sends four
_DRIVER_APIS: Final = ("driver:TxnOffsetCommit", "driver:TxnOffsetCommit", "driver:EndTxn")
_WITHOUT_FAULTS: Final[Mapping[str, Any]] = {
    "starting": "earliest",
    "log": [],
    "tasks": [],
    "task_delay": 0.05,
    "pauses": [],
    "stops": [],
    "cuts": [],
    "extra_drivers": [],
    "file_faults": [],
    "micro_batches": [],
    "recoveries": [],
    "cores": None,
    "other_jobs": [],
    "sink_failures": [],
}
"""Parameters of histories that have other faults only."""


def draw(rng: random.Random, size: Size) -> Plan:
    long = size == "long"
    scale = 6 if long else 1
    cluster = draw_transactional_cluster(rng)
    partitions = {topic: rng.randint(1, 2) for topic in _TOPICS[: rng.choice((1, 1, 2, 3))]}
    seconds = rng.choice((0.4, 1.0, 1.0, 3.0)) * (15 if long else 1)
    guarantee = rng.choice(("exactly-once", "exactly-once", "at-least-once", "function", "database"))
    epoch_timeout = rng.choice((2.0, 5.0))
    requests = 1000 if long else 60
    micro_batches = [] if guarantee == "database" else _draw_micro_batches(rng, scale)
    shares_checkpoint = guarantee == "exactly-once" and bool(micro_batches)
    cores = rng.choice((1, 2, 3)) if rng.random() < 0.3 else None

    def at() -> float:
        return round(rng.random() * seconds, 3)

    delay = rng.choice((0.05, 0.5, 1.5))
    if rng.random() < 0.15 and cluster["cluster"].get("leader_epochs", True):
        cluster["cluster"]["offsets_delay"] = delay  # without leader epochs, OffsetFetch hides what is pending

    parameters: dict[str, Any] = {
        **cluster,
        "partitions": partitions,
        "output_partitions": rng.randint(1, 2),
        "output_topics": rng.choice((1, 1, 2)) if guarantee in ("exactly-once", "at-least-once") else 1,
        "guarantee": guarantee,
        "isolation": rng.choice(("read_uncommitted", "read_committed")),
        "fail_on_data_loss": rng.random() < 0.5,
        "starting": rng.choice(("earliest", "earliest", "earliest", "latest")),
        "drops_rows": rng.random() < 0.2,
        "function_seconds": rng.choice((0.0, 0.0, 0.0, 0.02, 0.3)),
        "selections": [list(partitions)] if shares_checkpoint else _draw_selections(rng, list(partitions)),
        "log": draw_log(rng, batches=rng.randint(5, 40) if long else rng.randint(0, 4)),
        "appends": draw_appends(rng, batches=rng.randint(10, 80) if long else rng.randint(0, 4), seconds=seconds),
        "late": [
            {**batch, "transaction": None} for batch in draw_appends(rng, batches=rng.choice((0, 0, 1)), seconds=0.5)
        ],
        "start": {
            "checkpointLocation": "memory:/checkpoint",
            "epochInterval": rng.choice((0.1, 0.3, 0.5)),
            "tasksMax": rng.choice((None, 1, 2)),
            "taskStartTimeout": rng.choice((3.0, 10.0)),
            "epochTimeout": epoch_timeout,
            "heartbeatTimeout": epoch_timeout,
            "maxRestarts": rng.choice((0, 1, 3)),
            "discoveryInterval": rng.choice((0.3, 2.0)),
        },
        "tasks": [rng.choice((None, 1, 2)) for _ in range(3)] if rng.random() < 0.3 else [],
        "request_timeout_ms": rng.choice((1_000, 5_000)),
        "api_timeout_ms": rng.choice((3_000, 10_000)),
        "restart_seconds": rng.choice((0.01, 0.5, 2.0)),
        "task_delay": rng.choice((0.005, 0.05, 0.5)),
        "task_attempts": rng.choice((1, 4)),
        "kill_seconds": rng.choice((0.0, 2.0)),
        "linger_seconds": rng.choice((0.0, 0.1, 5.0)),  # how long workers outlive their driver
        "retain": rng.choice((1, 2, 100)),
        "flush_seconds": rng.choice((0.0, 0.0, 0.2)),
        "kills": [
            [at(), rng.choice(("driver", "worker")), rng.randrange(4)] for _ in range(rng.choice((0, 0, 1, 2)) * scale)
        ],
        "pauses": [
            [at(), rng.choice(("driver", "driver", "worker")), rng.randrange(4), rng.choice((0.3, 3.0, MAX_PAUSE))]
            for _ in range(rng.choice((0, 0, 0, 1, 2)) * scale)
        ],
        "stops": [at() for _ in range(rng.choice((0, 0, 1)) * scale)],
        "cuts": [[at(), rng.randrange(4)] for _ in range(rng.choice((0, 0, 0, 1)) * scale)],
        "extra_drivers": [at()] if rng.random() < 0.15 else [],
        "file_faults": [
            [rng.randrange(60 * scale), rng.choice(FILE_FAULTS), rng.choice((0.5, 2.0, MAX_PAUSE))]
            for _ in range(rng.choice((0, 0, 1, 2)) * scale)
        ],
        "micro_batches": micro_batches,
        "recoveries": [[rng.randint(1, 3), rng.random() < 0.6] for _ in range(rng.choice((0, 0, 1, 2)))]
        if guarantee == "exactly-once"
        else [],
        "cores": cores,
        "other_jobs": []
        if cores is None
        else [[at(), rng.randint(1, 3), rng.choice((0.5, 4.0, 15.0))] for _ in range(rng.choice((1, 2)) * scale)],
        "executors": 2,
        "speculation": 0.0,
        "grows_after_report": rng.random() < 0.5,  # a truncated log, as soon as a run has reported it
        "commits_to_group": rng.random() < 0.3,
        "stamps": rng.random() < 0.3,
        "expands_at_end": rng.random() < 0.15 and cores is None,  # others may use the cores of the new task
        "sink_failures": [rng.randrange(8 * scale) for _ in range(rng.choice((0, 0, 1)))],  # flushes that fail
    }
    outputs = dict.fromkeys(OUTPUTS[: parameters["output_topics"]], parameters["output_partitions"])
    topics = {**partitions, **outputs}
    # A micro-batch query reads a topic that returns from its start, and has no transactions to compare with.
    lossy = ("expand_topic", "delete_records", "expire_records") if shares_checkpoint else _LOSSY_EVENTS
    is_unclean = not shares_checkpoint and rng.random() < 0.3
    kinds = (*SAFE_EVENTS, _UNCLEAN) if is_unclean else SAFE_EVENTS
    events = draw_events(rng, topics, seconds=seconds, requests=requests, long=long, kinds=kinds, apis=_APIS)
    events = tuple(each for each in events if each.args.get("topic") not in outputs or each.kind not in _SOURCE_EVENTS)
    events += tuple(_draw_more_events(rng, partitions, seconds, requests, scale, lossy))
    if guarantee == "exactly-once" and not long and rng.random() < 0.25:
        seconds = _CHANGE_SECONDS
        events += _draw_crash_in_a_change(rng, parameters)
    if guarantee == "exactly-once" and not shares_checkpoint and not long and rng.random() < 0.15:
        # Tasks notice that, and continue with the id of the new topic.
        parameters |= {"fail_on_data_loss": False, "selections": [list(partitions)]}
        topic = rng.choice(tuple(partitions))
        recreated = {"topic": topic, "partitions": partitions[topic], "seconds": 0.0}
        if rng.random() < 0.5:
            events += (Event("recreate_topic", round(seconds * (0.5 + 0.5 * rng.random()), 3), args=recreated),)
        else:
            seconds = 2 * _CHANGE_SECONDS
            events, is_unclean = _draw_restart_with_a_recreated_topic(rng, parameters, topic), False
    if guarantee == "exactly-once" and not shares_checkpoint and not long and rng.random() < 0.06:
        events, is_unclean = _draw_restart_before_the_first_offsets(rng, parameters), False
    if guarantee == "exactly-once" and not long and rng.random() < 0.05:
        seconds = _CHANGE_SECONDS
        events, is_unclean = _draw_topics_that_are_selected_again(rng, parameters), False
    if guarantee in ("at-least-once", "function") and not long and rng.random() < 0.08:
        seconds = 2 * _CHANGE_SECONDS
        events, is_unclean = _draw_failed_commit_of_a_recreated_topic(rng, parameters), False
    if guarantee == "exactly-once" and not parameters["micro_batches"] and not long and rng.random() < 0.12:
        parameters |= {"reuses_prefix": rng.choice(("none", "0123456789abcdef")), "stamps": False}
    if is_unclean:
        events += tuple(_draw_unclean_elections(rng, partitions, seconds, scale))
    if guarantee != "database" and not shares_checkpoint and not long and rng.random() < 0.03:
        seconds = _CHANGE_SECONDS
        events = _draw_growth_after_a_truncation(rng, parameters)
    if not long and rng.random() < 0.1:
        seconds = 12.0
        events = _draw_without_faults(rng, parameters)
    expansions = [each for each in events if each.kind == "expand_topic"][_MAX_EXPANSIONS:]
    events = tuple(each for each in events if each not in expansions)
    return Plan("continuous", parameters, events, quiet_after=seconds)


def _draw_crash_in_a_change(rng: random.Random, parameters: dict[str, Any]) -> tuple[Event, ...]:
    """Draw a change of partitions that a new driver finds, and its crash between a request and a file of that epoch."""
    partitions = parameters["partitions"]
    topic = rng.choice(tuple(partitions))
    parameters |= {
        "fail_on_data_loss": False,
        "selections": [list(partitions)],
        "kills": [[2.5, "driver", 0]],
        "restart_seconds": 2.0,
        "micro_batches": [],
        "recoveries": [],
    }
    for at in (0.5, 0.8, 1.2, 1.4, 1.6, 2.6, 2.8):
        parameters["appends"] += _appends_to(partitions, topic, at)
    change = rng.choice(("expand_topic", "delete_records", _UNCLEAN))
    each_partition = [{"topic": topic, "partition": number} for number in range(partitions[topic])]
    if change == "expand_topic":
        changes = [Event(change, 3.0, args={"topic": topic, "count": 1})]
    elif change == "delete_records":
        changes = [Event(change, 3.0, args={**each, "fraction": 1.0}) for each in each_partition]
    else:  # the logs become shorter than what was committed
        parameters |= {"brokers": 2, "cluster": {**parameters["cluster"], "replication_factor": 2}}
        stuck = {"seconds": 2.2, "in_sync": False}
        changes = [Event("stick_follower", 0.9, args={**each, **stuck}) for each in each_partition]
        changes += [Event(change, 3.0, args={**each, "shortest": True}) for each in each_partition]
    crash = {"api": rng.choice(_DRIVER_APIS), "occurrence": 0, "repeats": 1}
    return (*changes, Event(rng.choice(CRASHES), args=crash))


def _draw_restart_with_a_recreated_topic(
    rng: random.Random, parameters: dict[str, Any], topic: str
) -> tuple[Event, ...]:
    """Draw a topic that is recreated while a commit takes long, and a worker that dies before or after that.

    In the first case the transactions of a run have committed offsets that the checkpoint lacks, and the topic is
    recreated when the next run has read them. In the second case a task has noticed the new topic.
    """
    is_noticed = rng.random() < 0.5
    if is_noticed:
        topic, parameters["partitions"] = "flights", {"flights": rng.randint(1, 2), "trains": 1}
    partitions = parameters["partitions"]
    parameters |= {
        **_WITHOUT_FAULTS,
        "brokers": 3,
        "selections": [list(partitions)],
        "kills": [[12.0 if is_noticed else 2.7, "worker", rng.randrange(4)]],
        "slow_files": [2.0, 10.0, 0.2] if is_noticed else [2.0, 3.2, 0.2],
        "start": {
            **parameters["start"],
            "epochInterval": 0.1,
            "epochTimeout": 5.0,
            "heartbeatTimeout": 5.0,
            "maxRestarts": 3,
        },
    }
    times = [number / 10 for number in range(5, 100 if is_noticed else 27)]
    parameters["appends"] = [each for at in times for name in partitions for each in _appends_to(partitions, name, at)]
    recreated = {"topic": topic, "partitions": partitions[topic], "seconds": 0.0}
    if is_noticed:
        return (Event("recreate_topic", 2.0, args=recreated),)
    restart = {"api": "driver:OffsetFetch", "occurrence": _LAST_OFFSET_FETCH, "repeats": 1}
    change = {"change": "recreate_topic", "args": recreated, "new_records": rng.choice((3, 30))}
    return (Event(CHANGES[0], args={**restart, **change}),)


def _draw_restart_before_the_first_offsets(rng: random.Random, parameters: dict[str, Any]) -> tuple[Event, ...]:
    """Draw a driver that dies after the first commits of a group, before its logs have them.

    The coordinator of the group shows their offsets later than the next driver fetches them.
    """
    partitions = parameters["partitions"]
    parameters |= {
        **_WITHOUT_FAULTS,
        "cluster": {**parameters["cluster"], "topic_ids": True, "leader_epochs": True, "offsets_delay": 1.5},
        "selections": [list(partitions)],
        "kills": [[round(0.6 + 0.4 * rng.random(), 3), "driver", 0]],
        "slow_files": [0.4, 1.5, 0.5],
        "start": {**parameters["start"], "epochInterval": 0.1, "maxRestarts": 3},
        "restart_seconds": 0.01,
    }
    parameters["appends"] = [
        each for at in (0.2, 0.4, 0.6, 0.8, 1.0) for topic in partitions for each in _appends_to(partitions, topic, at)
    ]
    return ()


def _draw_without_faults(rng: random.Random, parameters: dict[str, Any]) -> tuple[Event, ...]:
    """Draw a history in which nothing fails, so a query does not restart, and has nothing to warn of.

    Other programs may connect to the driver, a rate may be limited, and a user may cancel the job.
    """
    partitions = parameters["partitions"]
    parameters |= {
        **_WITHOUT_FAULTS,
        "is_calm": True,
        "cluster": {**parameters["cluster"], "metadata_lag": 0.0},  # all brokers know the topics
        "failed_offsets_file": None,
        "slow_files": [0.0, 0.0, 0.0],
        "selections": [list(partitions)],
        "kills": [],
        "strangers": [
            [rng.choice(tuple(STRANGERS)), rng.choice((0.0, 0.05, 5.0))] for _ in range(rng.choice((0, 1, 3)))
        ],
    }
    if rng.random() < 0.4:
        parameters["start"] = {**parameters["start"], "maxRecordsPerSecond": rng.choice((8, 15))}
        parameters["function_seconds"] = 0.0
        for topic in partitions:
            for at in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2):
                parameters["appends"] += _appends_to(partitions, topic, at)
    if rng.random() < 0.3:
        parameters["cancelled_at"] = round(0.5 + 2.0 * rng.random(), 3)
    return ()


def _draw_topics_that_are_selected_again(rng: random.Random, parameters: dict[str, Any]) -> tuple[Event, ...]:
    """Draw topics that a driver does not read for some epochs, and the next one reads again."""
    partitions = parameters["partitions"] = {"flights": rng.randint(1, 2), "trains": rng.randint(1, 2)}
    selected = rng.choice(tuple(partitions))
    parameters |= {
        **_WITHOUT_FAULTS,
        "fail_on_data_loss": False,
        "selections": [list(partitions), [selected], list(partitions)],
        "kills": [[2.0, "driver", 0], [4.5, "driver", 0]],
        "restart_seconds": 0.01,
        "start": {**parameters["start"], "epochInterval": 0.1, "maxRestarts": 3},
    }
    times = [number / 5 for number in range(2, 30)]
    parameters["appends"] = [
        each for at in times for topic in partitions for each in _appends_to(partitions, topic, at)
    ]
    return ()


def _draw_failed_commit_of_a_recreated_topic(rng: random.Random, parameters: dict[str, Any]) -> tuple[Event, ...]:
    """Draw a topic that is recreated while tasks read it, and whose first epoch cannot be committed.

    Meanwhile its log becomes longer than the old one, so the offsets of the old topic would be valid in the new one.
    """
    partitions = parameters["partitions"] = {"flights": 1}
    parameters |= {
        **_WITHOUT_FAULTS,
        # Otherwise a new topic that is shorter than the old one is taken for a truncated log.
        "cluster": {**parameters["cluster"], "topic_ids": True, "leader_epochs": True},
        "fail_on_data_loss": False,
        "selections": [list(partitions)],
        "kills": [],
        "start": {**parameters["start"], "epochInterval": 0.1, "maxRestarts": 3},
        "failed_offsets_file": [2.1, "flights", rng.randint(20, 40)],  # and how many records are appended then
    }
    records = rng.randint(5, 15)
    parameters["appends"] = [
        {"partition": 0, "records": count, "keys": 0, "producer": 0, "transaction": None, "at": at}
        for at, count in ((0.5, records), (2.2, 1))
    ]
    return (Event("recreate_topic", 2.0, args={"topic": "flights", "partitions": 1, "seconds": 0.0}),)


def _draw_growth_after_a_truncation(rng: random.Random, parameters: dict[str, Any]) -> tuple[Event, ...]:
    """Draw a log that is truncated while no driver runs, and is as long as before when tasks begin to read."""
    partitions = parameters["partitions"]
    topic = rng.choice(tuple(partitions))
    parameters |= {
        **_WITHOUT_FAULTS,
        "brokers": 2,
        "cluster": {**parameters["cluster"], "replication_factor": 2},
        "fail_on_data_loss": False,
        "selections": [list(partitions)],
        "kills": [[2.5, "driver", 0]],
        "restart_seconds": 1.0,
        "grows_after_report": True,
    }
    parameters["appends"] = [each for at in (0.5, 0.8, 1.2, 1.4) for each in _appends_to(partitions, topic, at)]
    events = []
    for number in range(partitions[topic]):
        partition = {"topic": topic, "partition": number}
        events.append(Event("stick_follower", 0.9, args={**partition, "seconds": 2.2, "in_sync": False}))
        events.append(Event(_UNCLEAN, 3.0, args={**partition, "shortest": True}))
    return tuple(events)


def _appends_to(partitions: dict[str, int], topic: str, at: float) -> list[dict[str, Any]]:
    """Return a batch for each partition of a topic."""
    index, count = tuple(partitions).index(topic), len(partitions)
    return [
        {
            "partition": number,
            "records": (index - number - 1) % count + 1,  # so that `RecordWriter` appends to the topic
            "keys": 0,
            "producer": 0,
            "transaction": None,
            "at": at,
        }
        for number in range(partitions[topic])
    ]


def _draw_selections(rng: random.Random, topics: list[str]) -> list[list[str]]:
    """Draw the topics that each driver subscribes to in turn; the last one has all."""
    if len(topics) == 1 or rng.random() < 0.6:
        return [topics]
    return [topics, topics[:1], topics]


def _draw_micro_batches(rng: random.Random, scale: int) -> list[list[Any]]:
    """Draw before which drivers a micro-batch query runs, and at which step it dies."""
    if rng.random() < 0.5:
        return []
    return [[rng.randint(1, 3), rng.choice(("", "after the offset log", *STEPS[2:]))] for _ in range(scale)]


def _draw_more_events(
    rng: random.Random, partitions: dict[str, int], seconds: float, requests: int, scale: int, lossy: Sequence[str]
) -> list[Event]:
    """Draw changes of the source topics, moves of coordinators, and crashes and pauses at requests."""
    events = []
    for _ in range(rng.choice((0, 0, 1, 2)) * scale):
        kind = rng.choice(lossy)
        events.append(Event(kind, round(rng.random() * seconds, 3), args=draw_event(rng, kind, partitions, seconds)))
    for _ in range(rng.choice((0, 0, 0, 1)) * scale):
        kind = rng.choice(("move_transaction_coordinators", "move_group_coordinators"))
        args = draw_coordinator_event(rng, kind, "", seconds)
        events.append(Event(kind, round(rng.random() * seconds, 3), args=args))
    crashes = rng.choice((0, 0, 1, 2)) * scale
    events += [Event(rng.choice(CRASHES), request=rng.randrange(requests)) for _ in range(crashes)]
    for _ in range(rng.choice((0, 0, 0, 1)) * scale):
        pause = {"seconds": rng.choice((0.02, 1.0, MAX_PAUSE))}
        events.append(Event(PAUSES[0], request=rng.randrange(requests), args=pause))
    return events


def _draw_unclean_elections(rng: random.Random, partitions: dict[str, int], seconds: float, scale: int) -> list[Event]:
    """Draw followers that lag behind, and become leaders."""
    events = []
    for _ in range(rng.choice((1, 1, 2)) * scale):
        topic = rng.choice(tuple(partitions))
        partition = {"topic": topic, "partition": rng.randrange(partitions[topic]), "choice": rng.randrange(3)}
        at = rng.random() * seconds
        lag = rng.choice((0.1, 0.5, 2.0))
        events.append(Event("stick_follower", round(at, 3), args={**partition, "seconds": lag + 0.1, "in_sync": False}))
        events.append(Event(_UNCLEAN, round(at + lag, 3), args={**partition, "shortest": True}))
    return events
