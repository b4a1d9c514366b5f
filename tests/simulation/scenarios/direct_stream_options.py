"""How applications with direct streams are drawn: streams, outputs, where offsets are kept, and lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.drawing import (
    MAX_REPEATS,
    draw_appends,
    draw_cluster,
    draw_log,
    draw_outdated_broker,
    draw_reader_events,
)
from tests.simulation.faults import CRASHES
from tests.simulation.history import Event
from tests.simulation.scenarios.streaming_stand_in import STEPS

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

_TOPICS = ("flights", "trains", "ships")
_COORDINATOR_EVENTS = ("move_group_coordinators", "join_group")  # others delete offsets
_KAFKA = "spark.streaming.kafka."
_BACKPRESSURE = "spark.streaming.backpressure."
_ORDERS = ("one range", "one range", "oldest first", "newest first", "calls", "newer calls first")
"""How the user commits: one range for each partition, all ranges that are finished in some order, or two calls for what
is new."""


def draw_plan(rng: random.Random, *, long: bool) -> tuple[dict[str, Any], tuple[Event, ...], float]:
    """Draw parameters and events of a history, and when its faults stop."""
    cluster = draw_cluster(rng)
    partitions = {topic: rng.randint(1, 3) for topic in _TOPICS[: rng.choice((1, 1, 2, 3))]}
    application = _draw_application(rng, partitions)
    has_outdated_broker = cluster["brokers"] > 1 and rng.random() < 0.15
    life_count = rng.randint(4, 12) if long else rng.choice((0, 1, 1, 1, 2))
    if has_outdated_broker and not long:
        life_count, application["interval_ms"] = 4, 1000  # each life may begin with another broker
    has_new_partition = has_outdated_broker and not long and rng.random() < 0.3
    if has_new_partition:  # which one of two brokers never knows, but the checkpoint does
        cluster["brokers"] = 2
        cluster["cluster"] |= {"replication_factor": min(2, cluster["cluster"]["replication_factor"])}
        application |= {"mode": "checkpoint"}
        for stream in application["streams"]:
            stream |= {"kind": "subscribe", "partitions": []}
    lives = [_draw_life(rng, application["interval_ms"], long=long) for _ in range(life_count)]
    delays = _draw_delays(rng, application["interval_ms"], life_count, long=long)
    if lives and rng.random() < 0.08:
        delays = _make_busy(rng, application, lives)
    seconds = max(1.0, sum(each["seconds"] + each["pause"] for each in lives) * rng.choice((0.5, 1.0, 1.5)))
    log = draw_log(rng, batches=rng.randint(5, 60) if long else rng.randint(0, 6))
    if application["conf"].get(_BACKPRESSURE + "enabled"):
        log += [_batch(number % 4, 0.0) | {"records": 20} for number in range(4)]
    appends = draw_appends(rng, batches=rng.randint(20, 100) if long else rng.randint(0, 6), seconds=seconds)
    late = draw_appends(rng, batches=rng.choice((0, 0, 1, 2)), seconds=2.0)  # while the lag reaches zero
    records = sum(batch["records"] for batch in log)
    crash_count = rng.randint(2, 8) if long else rng.choice((0, 0, 0, 1, 1, 2))
    failure_count = rng.randint(0, 8) if long else rng.choice((0, 0, 1, 1, 2))
    commits = any(output["commits"] for output in application["outputs"])
    groups = [stream["group"] for stream in application["streams"]] if commits else []
    events = draw_reader_events(
        rng, partitions, groups, seconds=seconds, long=long, coordinator_kinds=_COORDINATOR_EVENTS
    )
    if groups and rng.random() < 0.1:  # no commit succeeds while another application uses the group
        joined = {"group": rng.choice(groups), "seconds": seconds}
        events = (Event("join_group", at=round(0.5 * seconds * rng.random(), 3), args=joined),)
    if has_outdated_broker:
        if rng.random() < 0.5:
            events = ()  # no other fault explains what an outdated broker has caused
        appends += [_batch(number % 4, seconds * (0.4 if number < 4 else 0.6)) for number in range(8)]
        events = (*events, *draw_outdated_broker(rng, partitions, seconds))
    if rng.random() < 0.2:
        kills = [
            Event(rng.choice(CRASHES), request=rng.randrange(1500 if long else 60)) for _ in range(rng.randint(1, 3))
        ]
        events = (*events, *kills)
    if has_new_partition:
        at = round(0.05 * seconds, 3)
        stuck = {"broker": rng.randrange(2), "seconds": seconds}
        expanded = {"topic": next(iter(partitions)), "count": 1}
        events = (Event("stick_image", at=at, args=stuck), Event("expand_topic", at=round(3 * at, 3), args=expanded))
    elif rng.random() < 0.2:
        events = ()  # nothing excuses a request, a wait or a warning
    crashes = [
        {"life": rng.randrange(life_count + 1), "step": rng.choice(STEPS), "count": rng.choice((0, 0, 0, 1, 2, 4))}
        for _ in range(crash_count)
    ]
    checkpoint_seconds = 0.2
    if lives and not long and not has_outdated_broker and rng.random() < 0.12:
        # The driver dies after results and commits of a new partition, and before the checkpoint that has it.
        checkpoint_seconds, seconds = rng.choice((2.0, 6.0)), 12.0
        added, crash = _add_partition_before_a_checkpoint(rng, application, lives, partitions)
        events, crashes = (*(each for each in events if each.at is None), added), [crash]
        appends += [_batch(number, 0.7 * number) for number in range(12)]
    parameters = {
        **cluster,
        **application,
        "checkpoint_seconds": checkpoint_seconds,
        "partitions": partitions,
        "log": log,
        "append_list": appends,
        "appends": len(appends),
        "late_list": late,
        "late": len(late),
        "life_list": lives,
        "lives": life_count,
        "crash_list": crashes,
        "crashes": len(crashes),
        "failure_list": [
            {
                "life": rng.randrange(life_count + 1),
                "generation": rng.choice((0, 0, 1, 1, 2, 3)),
                "place": rng.randint(0, len(application["outputs"])),
            }
            for _ in range(failure_count)
        ],
        "failures": failure_count,
        "delay_list": delays,
        "delays": len(delays),
        "job_failure_list": [],
        "job_failures": 0,
        "executors": rng.choice((1, 2)),
        "speculation": 0.0,
        "committed": [rng.randrange(records + 1) if rng.random() < 0.4 else -1 for _ in range(3)],
    }
    if any(output["commits"] for output in parameters["outputs"]) and rng.random() < 0.3:
        parameters["mixes_commits"] = True
        for output in parameters["outputs"]:
            output |= {"order": "calls"} if output["commits"] else {}
    if rng.random() < 0.2:
        parameters["look"] = rng.choice(("count", "isEmpty", "take"))
    parameters["silent_calls"] = rng.random() < 0.2
    parameters["callback_raises"] = rng.choice((None, None, None, "error", "exit"))
    if all(output["window"] == output["slide"] == 1 for output in parameters["outputs"]):
        parameters["asks_early"] = rng.random() < 0.2  # a thread requests them before the first output
    if parameters.get("asks_early"):
        for failure in parameters["failure_list"]:
            failure["place"] = 0  # while the ranges are planned
    parameters["asks_twice"] = rng.random() < 0.2  # two threads request the ranges of a batch at the same time
    if lives and not long and not has_outdated_broker and parameters["mode"] != "store" and rng.random() < 0.03:
        events = (_stop_during_a_commit(rng, parameters),)
        seconds = max(seconds, 20.0)
    elif lives and not long and parameters["mode"] == "checkpoint" and rng.random() < 0.1:
        events, seconds = (), 18.0
        _keep_a_batch_pending(rng, parameters)
    elif len(lives) > 1 and not long and parameters["mode"] == "checkpoint" and rng.random() < 0.2:
        events, seconds = (), 12.0
        _fail_a_generation_again(rng, parameters)
    return parameters, events, seconds


def _draw_application(rng: random.Random, partitions: Mapping[str, int]) -> dict[str, Any]:
    """Draw the parameters of an application."""
    mode = rng.choice(("checkpoint", "checkpoint", "checkpoint", "group", "store"))
    stream_count = rng.choice((1, 1, 2))
    streams = [_draw_stream(rng, number, partitions, mode) for number in range(stream_count)]
    if stream_count == 2:
        streams[1]["committed"] = streams[0]["committed"]  # a union of both has one rule
    return {
        "mode": mode,
        "interval_ms": rng.choice((1000, 1000, 2000, 2000, 700, 10_000)),
        "concurrent_jobs": rng.choice((1, 1, 2)),
        "streams": streams,
        "outputs": _draw_outputs(rng, stream_count, mode),
        "conf": _draw_conf(rng),
        "params": _draw_params(rng),
    }


def _draw_life(rng: random.Random, interval_ms: int, *, long: bool) -> dict[str, Any]:
    """Draw how long a life is, and how it ends."""
    interval = interval_ms / 1000
    return {
        "seconds": round(interval * (rng.randint(6, 25) if long else rng.choice((0.5, 1.5, 2.5, 4.0))), 3),
        "end": rng.choice(("stop", "stop", "graceful", "exit", "kill", "kill")),
        "patient": rng.random() < 0.6,
        "pause": round(interval * rng.choice((0.0, 0.3, 2.5)) * rng.random(), 3),
        "rejects_stop": rng.random() < 0.1,
        "reset": rng.random() < 0.5,  # whether the user starts afresh after a data loss
    }


def _draw_delays(rng: random.Random, interval_ms: int, lives: int, *, long: bool) -> list[dict[str, Any]]:
    """Draw how often functions of the user take long, so that the driver falls behind."""
    interval = interval_ms / 1000
    delays = []
    for _ in range(rng.randint(2, 8) if long else rng.choice((0, 0, 1, 1, 2, 3))):
        place = rng.choice(("transform", "foreachRDD"))
        seconds = interval * rng.choice((0.5, 1.5, 3.0, 6.0))
        delays.append(
            {
                "life": rng.randrange(lives + 1),
                "place": place,
                "count": rng.choice((0, 0, 1, 2, 3)),
                # A stop waits for a batch that is being generated, but not for jobs.
                "seconds": round(min(seconds, 3.0) if place == "transform" else seconds, 3),
            }
        )
    return delays


def describe_plan(parameters: Mapping[str, Any]) -> list[str]:
    """Return sentences about the parameters."""
    return [
        f"The topics have {dict(parameters['partitions'])} partitions; offsets are kept in: {parameters['mode']}.",
        *(f"Stream {number}: {dict(stream)}." for number, stream in enumerate(parameters["streams"])),
        *(f"Output {number}: {dict(output)}." for number, output in enumerate(parameters["outputs"])),
        *(
            f"Life {number}: {each['seconds']} s, then {each['end']}, then a pause of {each['pause']} s."
            for number, each in enumerate(parameters["life_list"][: parameters["lives"]])
        ),
        *(
            f"The driver of life {each['life']} dies {each['step']}, the {each['count'] + 1}. time."
            for each in parameters["crash_list"][: parameters["crashes"]]
        ),
        *(
            f"In life {each['life']} generation {each['generation']} fails before output {each['place']}."
            for each in parameters["failure_list"][: parameters["failures"]]
        ),
        *(
            f"In life {each['life']} the function of {each['place']} takes {each['seconds']} s, the "
            f"{each['count'] + 1}. time."
            for each in parameters["delay_list"][: parameters["delays"]]
        ),
    ]


def kafka_params(parameters: Mapping[str, Any], stream: int, *, skip_loss: bool) -> dict[str, str]:
    """Return the parameters of a stream, as a user gives them."""
    shape = parameters["streams"][stream]
    servers = ",".join(f"broker-{number}:9092" for number in range(1, parameters["brokers"] + 1))
    params: dict[str, str] = {
        "bootstrap.servers": servers,
        "auto.offset.reset": shape["reset"],
        "isolation.level": "read_committed" if shape["committed"] else "read_uncommitted",
        "group.id": shape["group"],
        **parameters["params"],
    }
    if skip_loss:
        params["failOnDataLoss"] = "false"
    return params


def _make_busy(
    rng: random.Random, application: dict[str, Any], lives: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Make a life so long and its functions so slow that its driver falls behind by several batches."""
    application["interval_ms"] = 1000
    life = rng.randrange(len(lives))
    lives[life] |= {"seconds": round(rng.uniform(6.0, 16.0), 3), "patient": True}
    seconds = rng.choice((1.4, 2.4))
    if rng.random() < 0.6:
        application["conf"] |= {_BACKPRESSURE + "enabled": "true", _BACKPRESSURE + "pid.minRate": "1"}
        application["conf"] |= {_BACKPRESSURE + "initialRate": "3"} if rng.random() < 0.5 else {}
        seconds = 0.7
    return [
        {"life": life, "place": place, "count": count, "seconds": seconds}
        for place in ("transform", "foreachRDD")
        for count in range(8)
    ]


def _add_partition_before_a_checkpoint(
    rng: random.Random,
    application: dict[str, Any],
    lives: Sequence[dict[str, Any]],
    partitions: Mapping[str, int],
) -> tuple[Event, dict[str, Any]]:
    """Let a stream with slow checkpoints find a new partition; return that event, and the crash after it."""
    application |= {"mode": "checkpoint", "interval_ms": 1000}
    for output in application["outputs"]:
        if output["window"] == 1 and output["slide"] == 1:
            output |= {"commits": True, "sync": rng.random() < 0.6, "order": "one range"}
    lives[0] |= {"seconds": 9.0, "end": "kill", "patient": True}
    topic = next(iter(partitions))
    added = Event("expand_topic", at=round(1.0 + 2.0 * rng.random(), 3), args={"topic": topic, "count": 1})
    step = rng.choice(("after the results", "after the commit", "after the commit"))
    return added, {"life": 0, "step": step, "count": rng.randint(2, 7)}


def _stop_during_a_commit(rng: random.Random, parameters: dict[str, Any]) -> Event:
    """Let the first life stop while it waits for a slow commitSync; return the delay of the coordinator."""
    parameters |= {"interval_ms": 1000, "crashes": 0, "crash_list": [], "delays": 0, "delay_list": []}
    for output in parameters["outputs"]:
        if output["window"] == 1 and output["slide"] == 1:
            output |= {"commits": True, "sync": True, "order": "one range"}
    parameters["life_list"][0] |= {"seconds": round(2.0 + 3.0 * rng.random(), 3), "end": "stop", "patient": True}
    # A stop waits for 2 seconds for jobs, and then for 5 seconds for commits.
    slow = {"api": "OffsetCommit", "occurrence": 0, "repeats": MAX_REPEATS, "seconds": rng.choice((4.0, 6.0, 9.0))}
    return Event("delay_response", args=slow)


def _keep_a_batch_pending(rng: random.Random, parameters: dict[str, Any]) -> None:
    """Let a life generate many batches while the job of an early one fails or takes long, and a restart repeat it."""
    parameters |= {
        "interval_ms": 1000,
        "concurrent_jobs": rng.choice((1, 2, 2)),
        "crashes": 0,
        "crash_list": [],
        "delays": 0,
        "delay_list": [],
        "appends": 16,
        "append_list": [_batch(number % 4, 0.9 * number) for number in range(16)],
        "checkpoint_seconds": rng.choice((0.05, 0.05, 3.0)),
    }
    windows = [output for output in parameters["outputs"] if output["window"] > 1]
    if not windows:
        windows = [{"streams": [0], "commits": False, "sync": False}]
        parameters["outputs"] += windows
    for output in windows:
        output |= {"window": 3, "slide": 1}
    life = parameters["life_list"][0]
    life |= {"seconds": round(rng.uniform(6.0, 14.0), 3), "end": rng.choice(("kill", "stop", "exit"))}
    life |= {"patient": True, "pause": 0.0, "rejects_stop": False}
    if rng.random() < 0.5:
        output, count = rng.randrange(len(parameters["outputs"])), rng.choice((1, 2, 3))
        parameters |= {"job_failures": 1, "job_failure_list": [{"life": 0, "output": output, "count": count}]}
    else:
        count, seconds = rng.choice((2, 3, 4, 5)), rng.choice((5.0, 8.0))
        slow = {"life": 0, "place": "foreachRDD", "count": count, "seconds": seconds}
        # It is killed shortly after the slow job has ended, whose checkpoint is then the last one.
        life |= {"seconds": round(1.0 + count / 2 + seconds + 1.5 * rng.random(), 3), "end": "kill"}
        parameters |= {"delays": 1, "delay_list": [slow]}


def _fail_a_generation_again(rng: random.Random, parameters: dict[str, Any]) -> None:
    """Let a restart generate several batches of its checkpoint again, and fail at one while an earlier one is done."""
    parameters |= {
        "interval_ms": 1000,
        "concurrent_jobs": 1,
        "crashes": 0,
        "crash_list": [],
        "appends": 12,
        "append_list": [_batch(number % 4, 0.5 * number) for number in range(12)],
        "checkpoint_seconds": 0.05,
    }
    first, second = parameters["life_list"][:2]
    first |= {"seconds": round(3.0 + 2.0 * rng.random(), 3), "end": "kill", "patient": True, "pause": 0.0}
    second |= {"end": rng.choice(("stop", "exit", "kill")), "reset": False}
    number = rng.choice((1, 1, 2))
    slow = {"life": 0, "place": "foreachRDD", "seconds": 6.0}
    delays = [{**slow, "count": 1}, {"life": 1, "place": "transform", "count": number, "seconds": 2.0}]
    failure = {"life": 1, "generation": number, "place": rng.randint(0, len(parameters["outputs"]))}
    parameters |= {"delays": 2, "delay_list": delays, "failures": 1, "failure_list": [failure]}


def _batch(partition: int, at: float) -> dict[str, Any]:
    return {"partition": partition, "records": 2, "keys": 0, "producer": 0, "transaction": None, "at": round(at, 3)}


def _draw_stream(rng: random.Random, number: int, partitions: Mapping[str, int], mode: str) -> dict[str, Any]:
    kind = rng.choice(("subscribe", "subscribe", "pattern", "assign"))
    topics = list(partitions)[: rng.randint(1, len(partitions))]
    assigned = [(topic, each) for topic in topics for each in range(rng.randint(1, partitions[topic]))]
    selected = (
        assigned if kind == "assign" else [(topic, each) for topic in topics for each in range(partitions[topic])]
    )
    offsets = [(topic, each, 0) for topic, each in selected if mode == "checkpoint" and rng.random() < 0.2]
    return {
        "kind": kind,
        "topics": topics,
        "partitions": assigned if kind == "assign" else [],
        "offsets": offsets,
        "reset": rng.choice(("earliest", "earliest", "earliest", "latest")),
        "committed": rng.random() < 0.4,
        "group": f"group-{number}",
    }


def _draw_outputs(rng: random.Random, streams: int, mode: str) -> list[dict[str, Any]]:
    """Draw outputs; with offsets outside of Spark's checkpoint each stream has one."""
    commits = mode == "group" or (mode == "checkpoint" and rng.random() < 0.4)
    sync = rng.random() < 0.2
    plain = {"window": 1, "slide": 1, "commits": commits, "sync": sync, "order": rng.choice(_ORDERS)}
    outputs = [{"streams": [each], **plain} for each in range(streams)]
    if streams == 2 and rng.random() < 0.4:
        outputs = [{"streams": [0, 1], **plain}]
    if mode == "checkpoint" and rng.random() < 0.35:
        window, slide = rng.choice(((2, 1), (2, 2), (3, 2), (1, 2), (3, 3)))
        extra = {"streams": [rng.randrange(streams)], "window": window, "slide": slide, "commits": False, "sync": False}
        outputs = [extra] if streams == 1 and rng.random() < 0.3 else [*outputs, extra]
        rng.shuffle(outputs)
    return outputs


def _draw_conf(rng: random.Random) -> dict[str, str]:
    conf: dict[str, str] = {}
    if rng.random() < 0.3:
        conf[_KAFKA + "maxRatePerPartition"] = str(rng.choice((2, 5, 10, 50)))
        if rng.random() < 0.3:
            conf[_KAFKA + "minRatePerPartition"] = "3"
    if rng.random() < 0.25:
        conf[_BACKPRESSURE + "enabled"] = "true"
        if rng.random() < 0.5:
            conf[_BACKPRESSURE + "initialRate"] = str(rng.choice((2, 10, 100)))
        if rng.random() < 0.7:
            conf[_BACKPRESSURE + "pid.minRate"] = str(rng.choice((2, 10)))
    return conf


def _draw_params(rng: random.Random) -> dict[str, str]:
    params = {"failOnDataLoss": rng.choice(("true", "false"))}
    if rng.random() < 0.3:
        params["kafkaConsumer.pollTimeoutMs"] = str(rng.choice((8_000, 30_000)))
    if rng.random() < 0.3:
        params["max.partition.fetch.bytes"] = str(rng.choice((150, 1000)))
    if rng.random() < 0.3:
        params["default.api.timeout.ms"] = str(rng.choice((15_000, 30_000)))
    return params
