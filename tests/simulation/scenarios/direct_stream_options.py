"""How applications with direct streams are drawn: streams, outputs, where offsets are kept, and lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

_KAFKA = "spark.streaming.kafka."
_BACKPRESSURE = "spark.streaming.backpressure."


def draw_application(rng: random.Random, partitions: Mapping[str, int]) -> dict[str, Any]:
    """Draw the parameters of an application."""
    mode = rng.choice(("checkpoint", "checkpoint", "checkpoint", "group", "store"))
    stream_count = rng.choice((1, 1, 2))
    streams = [_draw_stream(rng, number, partitions, mode) for number in range(stream_count)]
    if stream_count == 2:
        streams[1]["committed"] = streams[0]["committed"]  # a union of both has one rule
    return {
        "mode": mode,
        "interval_ms": rng.choice((1000, 2000, 10_000)),
        "concurrent_jobs": rng.choice((1, 1, 2)),
        "streams": streams,
        "outputs": _draw_outputs(rng, stream_count, mode),
        "conf": _draw_conf(rng),
        "params": _draw_params(rng),
    }


def draw_life(rng: random.Random, interval_ms: int, *, long: bool) -> dict[str, Any]:
    """Draw how long a life is, and how it ends."""
    interval = interval_ms / 1000
    return {
        "seconds": round(interval * (rng.randint(6, 25) if long else rng.choice((0.5, 1.5, 2.5, 4.0))), 3),
        "end": rng.choice(("stop", "stop", "graceful", "exit", "kill", "kill")),
        "patient": rng.random() < 0.6,
        "pause": round(interval * rng.choice((0.0, 0.3, 2.5)) * rng.random(), 3),
        "reset": rng.random() < 0.5,  # whether the user starts afresh after a data loss
    }


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
    plain = {"window": 1, "slide": 1, "commits": commits, "sync": sync}
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
        conf[_KAFKA + "maxRatePerPartition"] = str(rng.choice((5, 10, 50)))
    if rng.random() < 0.25:
        conf[_BACKPRESSURE + "enabled"] = "true"
        if rng.random() < 0.5:
            conf[_BACKPRESSURE + "initialRate"] = str(rng.choice((10, 100)))
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
