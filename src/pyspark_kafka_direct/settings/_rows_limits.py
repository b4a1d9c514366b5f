"""Options of the data source that limit the micro-batches of a stream: fixed limits, and backpressure."""

from __future__ import annotations

from typing import Final

from pyspark_kafka_direct.offsets import MAX_OFFSET
from pyspark_kafka_direct.settings._rows import as_parameter
from pyspark_kafka_direct.settings.row import BY_NAME, Fate, Kind, Origin, Setting, Written, at

STREAM_ONLY: Final = Fate(why="it shapes micro-batches, and a batch query is one batch")

_NO_BATCHES: Final = Fate(
    why="a continuous query has no micro-batches: it reads as fast as its function and its sink take the records"
)

_PID: Final = "spark.streaming.backpressure.pid."
_IN_SPARK: Final = Fate(
    why="limit batches with spark.streaming.kafka.maxRatePerPartition or spark.streaming.backpressure.enabled in the "
    "Spark configuration"
)


def _batching(
    name: str,
    about: str,
    kind: Kind = Kind.NUMBER,
    default: str | None = None,
    *,
    spark: bool = False,
    gain: str = "",
) -> Setting:
    doors = at(("stream", "direct") if gain else ("stream",), default)
    return Setting(
        name=name,
        role="plan",
        doors=doors,
        about=about,
        kind=kind,
        low=1 if kind is Kind.NUMBER else None,
        high=MAX_OFFSET if kind is Kind.NUMBER else None,
        spark=spark,
        elsewhere={"batch": STREAM_ONLY, "continuous": _NO_BATCHES, **as_parameter(_IN_SPARK)},
        origins=(Written(Origin.OPTION), Written(Origin.SPARK, _PID + gain)) if gain else BY_NAME,
    )


LIMIT_ROWS: Final = (
    _batching(
        "maxOffsetsPerTrigger",
        "A micro-batch has at most about this many offsets, divided over the partitions in proportion to what they "
        "have; a partition with very little gets one more.",
        spark=True,
    ),
    _batching(
        "maxBytesPerTrigger",
        "A micro-batch has about this many bytes at most, as the brokers keep them (compressed). Estimated from a "
        "sample of the partitions with the most to read, taken before each micro-batch.",
    ),
    _batching(
        "minOffsetsPerTrigger",
        "A micro-batch waits until there are this many offsets. Not with Trigger.AvailableNow, which would never end.",
        spark=True,
    ),
    _batching(
        "maxTriggerDelay",
        "How long after the last micro-batch `minOffsetsPerTrigger` may hold the next one back: a whole number and "
        "`ms`, `s`, `m`, `h` or `d`.",
        Kind.DURATION,
        "15m",
        spark=True,
    ),
    _batching(
        "backpressure",
        "Limit micro-batches to as many offsets as can be processed within the trigger's interval (1 s where it has "
        "none), measured from batch to batch; see docs/monitoring.md. Needs "
        "`pyspark_kafka_direct.enable(spark)`. `maxOffsetsPerTrigger` still holds.",
        Kind.FLAG,
        "false",
    ),
    _batching(
        "backpressureInitialRate",
        "Offsets per second until two micro-batches were measured; without it, those are not limited.",
    ),
    _batching(
        "backpressureMinRate",
        "The measured rate never goes below this, in offsets per second.",
        default="100",
    ),
    _batching(
        "backpressureProportional",
        "Weight of the difference between the last rate and the measured one, as in Spark Streaming's PID controller.",
        Kind.DECIMAL,
        "1.0",
        gain="proportional",
    ),
    _batching(
        "backpressureIntegral",
        "Weight of what piles up while micro-batches start late.",
        Kind.DECIMAL,
        "0.2",
        gain="integral",
    ),
    _batching("backpressureDerived", "Weight of how fast the difference changes.", Kind.DECIMAL, "0.0", gain="derived"),
)
