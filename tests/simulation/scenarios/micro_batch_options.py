"""How the options of a streaming query are drawn: for its first run, and changed for later ones."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.options.read_options import parse_stream_options

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.options.settings import ReadSettings

GROUP = "lag"
LIMITS = frozenset(
    (
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "maxBytesPerTrigger",
        "backpressure",
        "backpressureInitialRate",
        "backpressureMinRate",
    )
)
PATTERN = "flights|trains|ships"
_BASE_TIMESTAMP = 1_700_001_000_000  # in ms, when a history begins


def draw_options(
    rng: random.Random, partitions: Mapping[str, int], records: int, seconds: float, *, groups: bool
) -> dict[str, str]:
    """Draw the options of a new query, as a user gives them."""
    options = _draw_selection(rng, partitions)
    options |= _draw_start(rng, options, partitions, records, seconds, groups=groups)
    options["failOnDataLoss"] = rng.choice(("true", "false"))
    if rng.random() < 0.4:
        options["kafka.isolation.level"] = "read_committed"
    if groups and rng.random() < 0.25:
        options["commitGroupId"] = GROUP
    return options | draw_limits(rng) | _draw_client(rng)


def change_options(rng: random.Random, options: Mapping[str, str], partitions: Mapping[str, int]) -> dict[str, str]:
    """Draw what a user changes before a restart; the start options count for new queries only."""
    changed = dict(options)
    if rng.random() < 0.3:
        changed["failOnDataLoss"] = rng.choice(("true", "false"))
    if rng.random() < 0.3:
        changed = {name: value for name, value in changed.items() if name not in LIMITS}
        changed |= draw_limits(rng)
    if rng.random() < 0.15:
        for name in ("subscribe", "subscribePattern", "assign"):
            changed.pop(name, None)
        changed |= _draw_selection(rng, partitions)
    if rng.random() < 0.2:
        for name in ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestampStrategy"):
            changed.pop(name, None)
        changed["startingOffsets"] = rng.choice(("earliest", "latest"))
    return changed


def draw_limits(rng: random.Random) -> dict[str, str]:
    """Draw limits of batches and of tasks."""
    limits: dict[str, str] = {}
    if rng.random() < 0.4:
        limits["maxOffsetsPerTrigger"] = str(rng.choice((1, 3, 10, 50)))
    if rng.random() < 0.2:
        largest = int(limits.get("maxOffsetsPerTrigger", "20"))
        limits["minOffsetsPerTrigger"] = str(rng.randint(1, largest))
        limits["maxTriggerDelay"] = rng.choice(("1s", "5s", "20s"))
    if rng.random() < 0.2:
        limits["maxBytesPerTrigger"] = str(rng.choice((50, 500, 1000, 5000)))
    if rng.random() < 0.12:
        limits |= {"backpressure": "true", "backpressureMinRate": str(rng.choice((1, 5)))}
        if rng.random() < 0.5:
            limits["backpressureInitialRate"] = str(rng.choice((3, 20)))
    if rng.random() < 0.15:
        limits["minPartitions"] = str(rng.randint(2, 6))
    if rng.random() < 0.15:
        limits["maxRecordsPerPartition"] = str(rng.randint(1, 10))
    return limits


def parse_options(options: Mapping[str, str], brokers: int) -> ReadSettings:
    """Parse options as the data source does."""
    servers = ",".join(f"broker-{number}:9092" for number in range(1, brokers + 1))
    return _parse((("kafka.bootstrap.servers", servers), *sorted(options.items())))


def selected_topics(options: Mapping[str, str]) -> set[str]:
    """Return the topics that a query may read."""
    if "subscribe" in options:
        return set(options["subscribe"].split(","))
    pattern = options.get("subscribePattern")
    return set(json.loads(options["assign"])) if pattern is None else set(pattern.split("|"))


def is_selected(options: Mapping[str, str], topic: str, partition: int) -> bool:
    """Return whether a query reads a partition if it exists."""
    if "assign" in options:
        return partition in json.loads(options["assign"]).get(topic, ())
    return topic in selected_topics(options)


@lru_cache(maxsize=4096)
def _parse(options: Sequence[tuple[str, str]]) -> ReadSettings:
    return parse_stream_options(dict(options))


def _draw_selection(rng: random.Random, partitions: Mapping[str, int]) -> dict[str, str]:
    topics = list(partitions)
    match rng.choice(("subscribe", "subscribe", "subscribe", "pattern", "assign")):
        case "subscribe":
            return {"subscribe": ",".join(topics[: rng.randint(1, len(topics))])}
        case "pattern":
            return {"subscribePattern": PATTERN}
    return {"assign": json.dumps({topic: sorted(range(rng.randint(1, partitions[topic]))) for topic in topics})}


def _draw_start(
    rng: random.Random,
    selection: Mapping[str, str],
    partitions: Mapping[str, int],
    records: int,
    seconds: float,
    *,
    groups: bool,
) -> dict[str, str]:
    kinds = ("earliest", "earliest", "earliest", "latest", "latest", "offsets", "timestamp", "committed")
    match rng.choice(kinds[: len(kinds) - (not groups)]):
        case "offsets":
            offsets: dict[str, Any] = {}
            for topic, count in partitions.items():
                for partition in range(count):
                    if is_selected(selection, topic, partition):
                        offset = rng.choice((-2, -1, 0, rng.randint(0, max(records // 3, 1))))
                        offsets.setdefault(topic, {})[str(partition)] = offset
            return {"startingOffsets": json.dumps(offsets)}
        case "timestamp":
            return {
                "startingTimestamp": str(_BASE_TIMESTAMP + rng.randint(-10, int(seconds * 1000))),
                "startingOffsetsByTimestampStrategy": "latest",
            }
        case "committed":
            return {
                "startingOffsets": "committed",
                "commitGroupId": GROUP,
                "committedOffsetsFallback": rng.choice(("earliest", "latest")),
            }
        case kind:
            return {"startingOffsets": kind}


def _draw_client(rng: random.Random) -> dict[str, str]:
    options: dict[str, str] = {}
    if rng.random() < 0.3:
        options["kafkaConsumer.pollTimeoutMs"] = str(rng.choice((8_000, 30_000)))
    if rng.random() < 0.2:
        options["fetchOffset.numRetries"] = str(rng.randint(1, 5))
        options["fetchOffset.retryIntervalMs"] = str(rng.choice((10, 1000)))
    if rng.random() < 0.3:
        options["kafka.max.partition.fetch.bytes"] = str(rng.choice((150, 1000)))
    if rng.random() < 0.2:
        options["kafka.default.api.timeout.ms"] = str(rng.choice((15_000, 30_000)))
    return options
