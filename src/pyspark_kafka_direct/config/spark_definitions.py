"""The Spark configuration properties and environment variables that the package reads."""

from __future__ import annotations

from typing import Final

from pyspark_kafka_direct.config.config_option import (
    APIS,
    PARAMS_APIS,
    Api,
    ConfigOption,
    ConfigSource,
    SourceKey,
    UnsupportedPolicy,
    ValueType,
    same_default,
)

TOKEN_URLS_VARIABLE: Final = "PYSPARK_KAFKA_DIRECT_TOKEN_URLS"  # noqa: S105 - a variable's name
TOKEN_PROVIDERS_VARIABLE: Final = "PYSPARK_KAFKA_DIRECT_TOKEN_PROVIDERS"  # noqa: S105 - a variable's name

_KAFKA: Final = "spark.streaming.kafka."
_BACKPRESSURE: Final = "spark.streaming.backpressure."
_DIRECT_STREAM_ONLY: Final = UnsupportedPolicy(reason="it applies to direct streams only")
_USE_POLL_TIMEOUT_OPTION: Final = UnsupportedPolicy(reason="the data source has the option kafkaConsumer.pollTimeoutMs")


def _stream_conf(
    name: str,
    doc: str,
    value_type: ValueType,
    default: str,
    *,
    allowed: tuple[str, ...] = (),
    apis: tuple[Api, ...] = ("direct",),
) -> ConfigOption:
    return ConfigOption(
        name=name,
        role="plan",
        apis=same_default(apis, default),
        doc=doc,
        value_type=value_type,
        allowed=allowed,
        unsupported={"*": _DIRECT_STREAM_ONLY},
        source_keys=(SourceKey(ConfigSource.SPARK, name),),
    )


SPARK_OPTIONS: Final = (
    _stream_conf(
        f"{_KAFKA}maxRatePerPartition",
        "Maximum records per second of each partition. 0 means no limit.",
        ValueType.INTEGER,
        "0",
    ),
    _stream_conf(
        f"{_KAFKA}minRatePerPartition",
        "Minimum number of records of each partition in a limited batch.",
        ValueType.INTEGER,
        "1",
    ),
    _stream_conf(
        f"{_BACKPRESSURE}enabled",
        "Whether to limit batches to the records that can be processed within the batch interval.",
        ValueType.BOOLEAN,
        "false",
    ),
    _stream_conf(
        f"{_BACKPRESSURE}initialRate",
        "Records per second of the whole stream until the rate of batches is measured. 0 means no limit until then.",
        ValueType.INTEGER,
        "0",
    ),
    _stream_conf(
        f"{_BACKPRESSURE}rateEstimator",
        "The rate estimator; `pid` is the only one.",
        ValueType.ENUM,
        "pid",
        allowed=("pid",),
    ),
    _stream_conf(
        f"{_BACKPRESSURE}pid.minRate",
        "Minimum of the estimated rate, in records per second; greater than 0.",
        ValueType.DOUBLE,
        "100",
    ),
    _stream_conf(
        f"{_KAFKA}assumeConsecutiveOffsets",
        "Whether every offset is a record, so that `count` and similar methods can use offsets.",
        ValueType.BOOLEAN,
        "false",
        apis=PARAMS_APIS,
    ),
    ConfigOption(
        name=f"{_KAFKA}consumer.poll.ms",
        role="fetch",
        apis=same_default(PARAMS_APIS, "120s"),
        doc="How long a task waits for records, unless the parameter `kafkaConsumer.pollTimeoutMs` is given.",
        value_type=ValueType.DURATION,
        low=1,
        unsupported={"*": _USE_POLL_TIMEOUT_OPTION},
        source_keys=(
            SourceKey(ConfigSource.SPARK, f"{_KAFKA}consumer.poll.ms", default_unit="ms"),
            SourceKey(ConfigSource.SPARK, "spark.network.timeout", default_unit="s"),
        ),
    ),
    ConfigOption(
        name="PYSPARK_KAFKA_DIRECT_DECODER",
        role="fetch",
        apis=same_default(APIS),
        doc="The implementation that decodes and encodes record batches. By default, the native one if it can be "
        "loaded.",
        value_type=ValueType.ENUM,
        allowed=("native", "python"),
        unsupported={},
        source_keys=(SourceKey(ConfigSource.ENVIRONMENT, "PYSPARK_KAFKA_DIRECT_DECODER"),),
    ),
    ConfigOption(
        name="PYSPARK_KAFKA_DIRECT_LOG_LEVEL",
        role="fetch",
        apis=same_default(APIS),
        doc="The lowest level that planners and tasks log, `WARNING` by default.",
        value_type=ValueType.ENUM,
        allowed=("DEBUG", "INFO", "WARNING", "ERROR"),
        unsupported={},
        source_keys=(SourceKey(ConfigSource.ENVIRONMENT, "PYSPARK_KAFKA_DIRECT_LOG_LEVEL"),),
    ),
    ConfigOption(
        name=TOKEN_URLS_VARIABLE,
        role="connect",
        apis=same_default(APIS),
        doc="On the driver: the only URLs that `sasl.oauthbearer.token.endpoint.url` may have, separated by commas. A "
        "`file:` URL, or an `http:` URL of another host, must be listed; see docs/security.md.",
        value_type=ValueType.LIST,
        unsupported={},
        source_keys=(SourceKey(ConfigSource.ENVIRONMENT, TOKEN_URLS_VARIABLE),),
    ),
    ConfigOption(
        name=TOKEN_PROVIDERS_VARIABLE,
        role="connect",
        apis=same_default(APIS),
        doc="On the driver: the values that `oauthTokenProvider` may have, each `module:factory`, separated by commas. "
        "Without it, the option is rejected; see docs/security.md.",
        value_type=ValueType.LIST,
        unsupported={},
        source_keys=(SourceKey(ConfigSource.ENVIRONMENT, TOKEN_PROVIDERS_VARIABLE),),
    ),
)
