"""The producers under faults: acknowledged records once and in order, transactions as a whole, and fencing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.coordinator_events import draw_coordinator_event
from tests.simulation.cluster.events import draw_event
from tests.simulation.drawing import (
    MAX_REPEATS,
    READ_APIS,
    draw_aimed_crash,
    draw_events,
    draw_late_request,
    draw_spread_faults,
    draw_transactional_cluster,
)
from tests.simulation.environment import Environment
from tests.simulation.faults import CRASHES, PAUSES
from tests.simulation.history import Event, Plan
from tests.simulation.scenarios.idempotent_producers import IdempotentRun
from tests.simulation.scenarios.producer_checks import (
    PASSING_TOPIC,
    TOPICS,
    topic_configs,
)
from tests.simulation.scenarios.several_topics import (
    draw_place,
    draw_topics,
    partition_counts,
)
from tests.simulation.scenarios.transactional_producers import TransactionalRun

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from tests.simulation.history import Size
    from tests.simulation.scheduler import World


NAME = "producers"
_LAST_EPOCH = 32_767
SHRINKABLE = {
    "sends": 1,
    "transactions": 1,
    "topics": 1,
    "missing": (),
    "reopened": (),
    "passing": (),
    "next_sequence": 0,
    "large": (),
    "large_transactions": (),
}
_SAFE_EVENTS = (
    "expand_topic",
    "elect_leader",
    "lose_leader",
    "stick_follower",
    "stop_broker",
    "isolate_broker",
    "stick_image",
    "pause_broker",
)
_CLOSE_SECONDS = 10.0
# Errors that end the tries of a request: MESSAGE_TOO_LARGE, TOPIC_AUTHORIZATION_FAILED, INVALID_RECORD,
# CONCURRENT_TRANSACTIONS (which is retried) and TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
_REJECTIONS = {"Produce": (10, 10, 29, 87), "EndTxn": (51, 53)}


def draw(rng: random.Random, size: Size) -> Plan:
    long = size == "long"
    scale = 15 if long else 1
    topics = draw_topics(rng)
    counts = partition_counts(TOPICS, topics)
    seconds = rng.choice((0.3, 3.0, 20.0)) * (30 if long else 1)
    mode = rng.choice(("idempotent", "idempotent", "transactional", "transactional", "fencing"))
    sends = rng.randint(3, 20) * scale
    transactions = rng.randint(1, 5) * scale
    cluster = draw_transactional_cluster(rng)
    if rng.random() < 0.3:
        cluster["cluster"]["transaction_version"] = 0  # has more requests
    missing_share = rng.choice((0.0, 0.0, 0.1, 0.5)) if mode == "idempotent" else 0.0
    offsets_share = rng.choice((0.0, 0.7, 1.0)) if mode != "idempotent" else 0.0
    threads = rng.randint(1, 2)
    reopened_share = rng.choice((0.0, 0.3)) if mode == "idempotent" and threads == 1 else 0.0
    is_burst = rng.random() < 0.3  # many records of one partition share a batch, which the topic's limit splits
    unassigned_share = rng.choice((0.0, 0.3, 1.0)) if mode == "idempotent" else 0.0
    flush_share = rng.choice((0.0, 0.0, 0.2))
    large_share = rng.choice((0.0, 0.0, 0.1))
    parameters = {
        **cluster,
        "mode": mode,
        **topics,
        "attributes": rng.random() < 0.5,
        "max_request_bytes": rng.choice((400, 900, 1 << 20, 1 << 20)),
        "threads": threads,
        "sends": sends,
        "send_list": [
            [draw_place(rng, counts), round(rng.choice((0.0, 0.0, seconds / sends, 1.0)) * rng.random(), 3)]
            for _ in range(sends)
        ],
        "missing": [number for number in range(sends) if rng.random() < missing_share],
        "reopened": [number for number in range(1, sends) if rng.random() < reopened_share],
        "unassigned": [number for number in range(sends) if rng.random() < unassigned_share],
        "flushes": [number for number in range(sends) if rng.random() < flush_share],
        "buffer_bytes": rng.choice((3_000, 32 << 20, 32 << 20)),  # of a few records, or of all
        "next_sequence": rng.choice((0, 0, (1 << 31) - rng.randint(1, 20))) if mode == "idempotent" else 0,
        "next_epoch": rng.choice((0, 0, _LAST_EPOCH - 1, _LAST_EPOCH)),  # with a drawn sequence number
        "transactions": transactions,
        "transaction_list": [
            [
                [draw_place(rng, counts) for _ in range(rng.randint(1, 3))],
                rng.random() < 0.75,
                round(rng.choice((0.0, 0.0, 0.01, seconds / transactions)) * rng.random(), 3),
            ]
            for _ in range(transactions)
        ],
        "with_offsets": [number for number in range(transactions + 2) if rng.random() < offsets_share],
        "producers": 2 if mode == "fencing" else 1,
        "restart_seconds": rng.choice((0.01, 0.5, 5.0)),
        "second_at": round(seconds * rng.random() * rng.choice((0.02, 1.0)), 3),
        "linger": rng.choice((0.0, 0.0, 0.02)),
        "batch_bytes": 16_384 if is_burst else rng.choice((150, 16_384)),
        "max_message_bytes": rng.choice((120, 150, 250)) if is_burst or rng.random() < 0.2 else None,
        "large": [number for number in range(sends) if rng.random() < large_share],
        "large_transactions": [number for number in range(transactions) if rng.random() < large_share],
        "append_time": rng.random() < 0.15,
        "codec": rng.choice(("none", "none", "none", "lz4", "zstd")),
        "close_seconds": rng.choice((0.0, 0.05, 0.5, _CLOSE_SECONDS)),
        "max_in_flight": rng.choice((1, 5, 5)),
        "request_timeout_ms": rng.choice((1_000, 30_000)),
        "api_timeout_ms": rng.choice((2_000, 10_000, 60_000)),
        "delivery_timeout_ms": rng.choice((2_000, 10_000, 120_000)),
        "transaction_timeout_ms": rng.choice((20_000, 60_000)),
    }
    if is_burst:
        for send in parameters["send_list"]:
            send[:] = [
                parameters["send_list"][0][0] if rng.random() < 0.8 else send[0],
                rng.choice((0.0, 0.0, send[1])),
            ]
        for rows, *_ in parameters["transaction_list"]:
            rows += [rows[0]] * rng.randint(1, 6)
    requests = 300 if long else 30
    apis = _requests(mode, cluster["cluster"]["transaction_version"], has_offsets=bool(parameters["with_offsets"]))
    events = draw_events(rng, counts, seconds=seconds, requests=requests, long=long, kinds=_SAFE_EVENTS, apis=apis)
    count, occurrences = (rng.randint(40, 120), 60) if long else (rng.choice((0, 4, 8, 12)), 4)
    own_apis = [each for each in apis if each not in READ_APIS]
    # More at requests that fewer histories have.
    own_apis += 2 * [each for each in apis if "Offset" in each] + [each for each in apis if each.startswith("Add")]
    events += tuple(draw_spread_faults(rng, own_apis, count=count, occurrences=occurrences))
    if mode != "idempotent" and rng.random() < 0.4:
        # Requests of one transaction that arrive in the next one.
        late_apis = [each for each in own_apis if each in ("EndTxn", "TxnOffsetCommit")]
        before = [*own_apis, "EndTxn", "EndTxn", "EndTxn"]
        late = [
            draw_late_request(rng, late_apis, before, occurrences=4 * scale) for _ in range(rng.randint(1, 3) * scale)
        ]
        events += tuple(late)
    events += tuple(_draw_open_outcome(rng, mode) for _ in range(rng.choice((0, 0, 1, 2)) * scale))
    for _ in range(1 if is_burst and not long else rng.choice((0, 0, 1)) * scale):
        events += tuple(_draw_rejection(rng, mode, long=long, splits=is_burst))
    if is_burst and not long:
        seconds = max(seconds, 30.0)  # until the faults end: longer than a delivery timeout and its repetition
        parameters |= {"delivery_timeout_ms": rng.choice((10_000, 10_000, 120_000)), "request_timeout_ms": 1_000}
    if rng.random() < 0.25:
        kind = "move_transaction_coordinators"
        events += (Event(kind, rng.random() * seconds, args=draw_coordinator_event(rng, kind, "", seconds)),)
    for _ in range(rng.choice((0, 0, 1, 1)) * scale):
        if rng.random() < 0.7:
            events += (draw_aimed_crash(rng, own_apis, long=long),)
        else:
            events += (Event(rng.choice(CRASHES), request=rng.randrange(requests)),)
    for _ in range(rng.choice((0, 0, 1)) * scale):
        events += (Event(PAUSES[0], request=rng.randrange(requests), args={"seconds": rng.choice((0.02, 1.0, 30.0))}),)
    if mode == "idempotent" and not long and rng.random() < 0.06:
        events, seconds = _draw_metadata_errors(rng, parameters), 20.0
    elif mode == "idempotent" and rng.random() < 0.3:
        events, seconds = _draw_mild_faults(rng, parameters, counts), 10.0 * scale
    elif mode == "transactional" and rng.random() < 0.3:
        events, seconds = _draw_mild_transaction_faults(rng, parameters, own_apis), 10.0 * scale
    elif mode == "idempotent" and not long and rng.random() < 0.15:
        events, seconds = _draw_replacement(rng, parameters), 40.0
    elif mode == "idempotent" and rng.random() < 0.2:
        events += tuple(_draw_forgetting(rng, parameters, counts) for _ in range(rng.randint(1, 3) * scale))
    if mode == "idempotent" and rng.random() < 0.25:
        parameters["passing"] = [number for number in range(sends) if rng.random() < rng.choice((0.3, 1.0))]
        kind = rng.choice(("delete_topic", "recreate_topic", "recreate_topic", "deny_topic"))
        args: dict[str, Any] = {"topic": PASSING_TOPIC}
        if kind == "recreate_topic":
            args |= {"partitions": rng.choice((1, 2, 2)), "seconds": rng.choice((0.0, 0.0, 0.3, 4.0))}
        if kind == "deny_topic":
            args["seconds"] = rng.choice((0.3, 5.0, seconds))
        events += (Event(kind, at=round(rng.choice((0.0, 0.05, 1.0, seconds)) * rng.random(), 3), args=args),)
    # Many faults take time, and the last ones happen too.
    return Plan(NAME, parameters, events, quiet_after=max(seconds, 5.0 * count))


def _draw_metadata_errors(rng: random.Random, parameters: dict[str, Any]) -> tuple[Event, ...]:
    """Draw a topic without metadata for a while, beside another one whose records expire one after the other.

    Each of these records limits the time for a request, so that the records of the first topic are tried again.
    """
    sends = 45
    parameters |= {
        "brokers": 3,
        "topics": 2,
        "partitions": 1,
        "threads": 1,
        "sends": sends,
        # The first topic has records before and between those of the second one.
        "send_list": [[0 if number < 20 or number % 3 == 0 else 3, 0.15] for number in range(sends)],
        "missing": [],
        "reopened": [],
        "flushes": [],
        "large": [],
        "buffer_bytes": 32 << 20,
        "linger": 0.0,
        "max_message_bytes": None,
        "delivery_timeout_ms": 5_000,
        "api_timeout_ms": 10_000,
        "request_timeout_ms": 30_000,
        "max_in_flight": 5,
    }
    stalled = {"api": "Produce", "occurrence": 1, "repeats": 1}
    metadata = {"api": "Metadata", "occurrence": 1, "repeats": rng.randint(8, 40), "draw": 0, "of_topics": True}
    return Event("stall_request", args=stalled), Event("error", args=metadata)


def _draw_mild_faults(rng: random.Random, parameters: dict[str, Any], counts: Mapping[str, int]) -> tuple[Event, ...]:
    """Draw no faults, or a few short ones, which no record may notice but by a delay."""
    parameters |= {
        "mild": True,
        "missing": [],
        "reopened": [],
        "large": [],
        "buffer_bytes": 32 << 20,
        "request_timeout_ms": 1_000,
        "delivery_timeout_ms": 120_000,
    }
    events = []
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        at = round(0.1 + rng.choice((0.0, 0.5, 3.0)) * rng.random(), 3)
        aim: dict[str, Any] = {"api": "Produce", "occurrence": rng.randrange(6), "repeats": rng.choice((1, 1, 2))}
        kind = rng.choice(("error", "error", "handled", "forget", "lose", "elect", "throttle"))
        match kind:
            case "error":
                code = rng.choice((6, 7, 19, 20, 56, 3, 5, 13, 45))
                events.append(Event("error", args={**aim, "draw": 0, "code": code}))
            case "handled":  # DUPLICATE_SEQUENCE_NUMBER
                events.append(Event("error", args={**aim, "draw": 0, "code": 46, "is_handled": True}))
            case "forget":
                events.append(_draw_forgetting(rng, parameters, counts))
            case "lose":
                name = rng.choice(("lose_request", "lose_response", "truncate_response"))
                events.append(Event(name, args={**aim, "fraction": 0.5}))
            case "elect":
                name = rng.choice(("elect_leader", "lose_leader"))
                args = draw_event(rng, name, counts, 0.6)
                events.append(Event(name, at=at, args={**args, "seconds": 0.6} if "seconds" in args else args))
            case "throttle":
                events.append(Event("throttle", args={**aim, "ms": rng.choice((50, 1_000))}))
    # A leader that has responded too early may lose the records, or not have written them.
    changes = any(event.at is not None or "change" in event.args for event in events)
    if changes or parameters["max_message_bytes"] is not None:
        events = [event for event in events if "is_handled" not in event.args]
    return tuple(events)


def _draw_mild_transaction_faults(
    rng: random.Random, parameters: dict[str, Any], apis: Sequence[str]
) -> tuple[Event, ...]:
    """Draw no faults, or a few short ones, which no transaction may notice but by a delay."""
    parameters |= {
        "mild": True,
        "large_transactions": [],
        "request_timeout_ms": 1_000,
        "api_timeout_ms": 60_000,
        "delivery_timeout_ms": 120_000,
        "transaction_timeout_ms": 60_000,
    }
    events = []
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        aim = {"api": rng.choice(tuple(apis)), "occurrence": rng.randrange(5), "repeats": rng.choice((1, 1, 2))}
        kind = rng.choice(("error", "lose_request", "lose_response", "truncate_response", "throttle"))
        own: dict[str, dict[str, Any]] = {
            "error": {"draw": rng.randrange(1_000)},
            "truncate_response": {"fraction": 0.5},
            "throttle": {"ms": 50},
        }
        events.append(Event(kind, args={**aim, **own.get(kind, {})}))
    return tuple(events)


def _draw_forgetting(rng: random.Random, parameters: dict[str, Any], counts: Mapping[str, int]) -> Event:
    """Draw a leader that forgets its producers just before a request, which older brokers reject then."""
    parameters["cluster"]["rejects_unknown_producers"] = True
    topic = rng.choice(tuple(counts))
    args = {
        "api": "Produce",
        "occurrence": rng.randint(1, 8),
        "repeats": 1,
        "change": "forget_producers",
        "args": {"topic": topic, "partition": rng.randrange(counts[topic])},
    }
    return Event("change_before_request", args=args)


def _draw_replacement(rng: random.Random, parameters: dict[str, Any]) -> tuple[Event, ...]:
    """Draw a malformed response, which fails all records, while a request to another broker is late."""
    sends = 14
    parameters |= {
        "brokers": 3,
        "topics": 1,
        "partitions": 3,
        "threads": 1,
        "sends": sends,
        "send_list": [[rng.randrange(3), round(rng.choice((0.01, 0.2)) * rng.random(), 3)] for _ in range(sends)],
        "missing": [],
        "reopened": [],
        "flushes": [],
        "unassigned": [],
        "linger": 0.0,
        "buffer_bytes": 32 << 20,
        "request_timeout_ms": 30_000,
        "delivery_timeout_ms": 120_000,
        "next_sequence": 0,
    }
    late = rng.randrange(8)
    aim = {"api": "Produce", "repeats": 1}
    seconds = round(rng.choice((0.5, 3.0)) * (0.5 + rng.random()), 3)
    return (
        Event("late_stalled_request", args={**aim, "occurrence": late, "seconds": seconds}),
        Event("garble_response", args={**aim, "occurrence": late + rng.randint(1, 3)}),
    )


def _requests(mode: str, transaction_version: int, *, has_offsets: bool) -> list[str]:
    """Return the requests that the producers send, at which faults are aimed."""
    apis = ["ApiVersions", "Metadata", "InitProducerId", "Produce"]
    if mode != "idempotent":
        apis += ["FindCoordinator", "EndTxn"]
        apis += ["AddPartitionsToTxn"] if transaction_version < 2 else []
    if has_offsets:
        apis += ["TxnOffsetCommit"] + (["AddOffsetsToTxn"] if transaction_version < 2 else [])
    return apis


def _draw_open_outcome(rng: random.Random, mode: str) -> Event:
    """Draw requests that are handled, although the broker responds with an error that leaves this open."""
    args = {
        "draw": rng.randrange(1_000_000),
        "is_handled": True,
        "api": "Produce" if mode == "idempotent" else rng.choice(("Produce", "EndTxn")),
        "occurrence": rng.choice((0, 1, 2, rng.randrange(20))),
        "repeats": rng.choice((1, 3, MAX_REPEATS)),
    }
    return Event("error", args=args)


def _draw_rejection(rng: random.Random, mode: str, *, long: bool, splits: bool) -> list[Event]:
    """Draw a request whose tries have no response, or errors, before a try is rejected, and later ones fail.

    So a rejection follows a try that may have been handled, or comes shortly before ``delivery.timeout.ms``.
    """
    api = "Produce" if mode == "idempotent" or splits else rng.choice(("Produce", "EndTxn", "EndTxn"))
    place = rng.choice((1, 1, 2)) if splits else rng.choice((0, 0, 1, 2, rng.randrange(200 if long else 12)))
    codes = (10,) if splits else rng.sample(_REJECTIONS[api], rng.randint(1, len(_REJECTIONS[api])))
    kinds = ("lose_response", "lose_response", "stall_response", "late_request", "error", "error", "error")
    steps: list[tuple[str, int, dict[str, Any]]] = []
    match rng.choice(kinds):
        case "error":
            tries = rng.choice((1, 10, 11, 12) if splits else (1, 2, 8, 12))
            steps.append(("error", tries, {"draw": rng.randrange(1_000_000), "is_handled": rng.random() < 0.5}))
        case kind:
            steps.append((kind, 1, {"seconds": round(20 * rng.random(), 3)} if kind == "late_request" else {}))
    steps += [("error", 1, {"draw": 0, "code": code}) for code in codes]
    if rng.random() < 0.6:
        steps.append(("error", rng.choice((1, MAX_REPEATS, MAX_REPEATS)), {"draw": rng.randrange(1_000_000)}))
    events = []
    for kind, repeats, args in steps:
        events.append(Event(kind, args={**args, "api": api, "occurrence": place, "repeats": repeats}))
        place += repeats
    return events


def run(world: World, plan: Plan) -> None:
    environment = Environment(world, plan)
    for topic, partitions in partition_counts(TOPICS, plan.parameters).items():
        environment.cluster.create_topic(topic, partitions, configs=topic_configs(plan.parameters))
    if plan.parameters.get("passing"):
        environment.cluster.create_topic(PASSING_TOPIC, 2)
    for broker in environment.cluster.brokers.values():
        broker.apply_image(environment.cluster.image)  # a broker that lacked a topic would say that it does not exist
    if plan.parameters["mode"] == "idempotent":
        IdempotentRun(environment).run()
    else:
        TransactionalRun(environment).run()
