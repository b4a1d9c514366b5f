"""Settings that do not come from options or parameters: the Spark configuration and the environment."""

from __future__ import annotations

from typing import Final

from pyspark_kafka_direct.settings.row import DOORS, PARAMETERS, Door, Fate, Kind, Origin, Setting, Written, at

_KAFKA: Final = "spark.streaming.kafka."
_BACKPRESSURE: Final = "spark.streaming.backpressure."
_OF_STREAMS: Final = Fate(why="it limits the batches of a direct stream")
_OF_OPTIONS: Final = Fate(why="the data source has the option kafkaConsumer.pollTimeoutMs")


def _of_stream(
    name: str,
    about: str,
    kind: Kind,
    default: str,
    *,
    allowed: tuple[str, ...] = (),
    doors: tuple[Door, ...] = ("direct",),
) -> Setting:
    return Setting(
        name=name,
        role="plan",
        doors=at(doors, default),
        about=about,
        kind=kind,
        allowed=allowed,
        elsewhere={"*": _OF_STREAMS},
        origins=(Written(Origin.SPARK, name),),
    )


SPARK_ROWS: Final = (
    _of_stream(
        f"{_KAFKA}maxRatePerPartition",
        "Most records per second of each partition; 0: no limit.",
        Kind.NUMBER,
        "0",
    ),
    _of_stream(
        f"{_KAFKA}minRatePerPartition",
        "Least number of records of each partition in a batch that is limited.",
        Kind.NUMBER,
        "1",
    ),
    _of_stream(
        f"{_BACKPRESSURE}enabled",
        "Limit batches to what can be processed within the batch interval.",
        Kind.FLAG,
        "false",
    ),
    _of_stream(
        f"{_BACKPRESSURE}initialRate",
        "Records per second of the whole stream until batches were measured; 0: no limit until then.",
        Kind.NUMBER,
        "0",
    ),
    _of_stream(
        f"{_BACKPRESSURE}rateEstimator",
        "The only rate estimator there is.",
        Kind.WORD,
        "pid",
        allowed=("pid",),
    ),
    _of_stream(
        f"{_BACKPRESSURE}pid.minRate",
        "The measured rate never goes below this, in records per second; above 0.",
        Kind.DECIMAL,
        "100",
    ),
    _of_stream(
        f"{_KAFKA}assumeConsecutiveOffsets",
        "Each offset is a record, so `count` and the like go by the offsets.",
        Kind.FLAG,
        "false",
        doors=PARAMETERS,
    ),
    Setting(
        name=f"{_KAFKA}consumer.poll.ms",
        role="fetch",
        doors=at(PARAMETERS, "120s"),
        about="How long a task waits for records, unless the parameter `kafkaConsumer.pollTimeoutMs` says it.",
        kind=Kind.DURATION,
        low=1,
        elsewhere={"*": _OF_OPTIONS},
        origins=(
            Written(Origin.SPARK, f"{_KAFKA}consumer.poll.ms", unit="ms"),
            Written(Origin.SPARK, "spark.network.timeout", unit="s"),
        ),
    ),
    Setting(
        name="PYSPARK_KAFKA_DIRECT_DECODER",
        role="fetch",
        doors=at(DOORS),
        about="Which decoder and encoder of record batches serve; else the native ones, where they can be loaded.",
        kind=Kind.WORD,
        allowed=("native", "python"),
        elsewhere={},
        origins=(Written(Origin.ENVIRONMENT, "PYSPARK_KAFKA_DIRECT_DECODER"),),
    ),
    Setting(
        name="PYSPARK_KAFKA_DIRECT_LOG_LEVEL",
        role="fetch",
        doors=at(DOORS),
        about="From which level on planners and tasks log; warnings and worse by default.",
        kind=Kind.WORD,
        allowed=("DEBUG", "INFO", "WARNING", "ERROR"),
        elsewhere={},
        origins=(Written(Origin.ENVIRONMENT, "PYSPARK_KAFKA_DIRECT_LOG_LEVEL"),),
    ),
)
