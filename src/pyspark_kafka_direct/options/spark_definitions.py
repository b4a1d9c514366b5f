"""The Spark configuration properties and environment variables that the package reads."""

from __future__ import annotations

from typing import Final

from pyspark_kafka_direct.options.config_option import (
    APIS,
    PARAMS_APIS,
    Api,
    ConfigOption,
    ConfigSource,
    Role,
    SourceKey,
)
from pyspark_kafka_direct.options.value_types import BOOLEAN, INTEGER, LIST, NUMBER, Duration, Enum, ValueType

TOKEN_URLS_VARIABLE: Final = "PYSPARK_KAFKA_DIRECT_TOKEN_URLS"  # noqa: S105 - a variable's name
TOKEN_PROVIDERS_VARIABLE: Final = "PYSPARK_KAFKA_DIRECT_TOKEN_PROVIDERS"  # noqa: S105 - a variable's name
TOKEN_HOSTS_VARIABLE: Final = "PYSPARK_KAFKA_DIRECT_TOKEN_HOSTS"  # noqa: S105 - a variable's name
AWS_IDENTITIES_VARIABLE: Final = "PYSPARK_KAFKA_DIRECT_AWS_IDENTITIES"
PAYLOAD_DECODERS_VARIABLE: Final = "PYSPARK_KAFKA_DIRECT_PAYLOAD_DECODERS"

_KAFKA: Final = "spark.streaming.kafka."
_BACKPRESSURE: Final = "spark.streaming.backpressure."
_POLL_KEYS: Final = (
    SourceKey(ConfigSource.SPARK, f"{_KAFKA}consumer.poll.ms", default_unit="ms"),
    SourceKey(ConfigSource.SPARK, "spark.network.timeout", default_unit="s"),
)


def _property(
    name: str, value_type: ValueType, default: str, *, doc: str, apis: tuple[Api, ...] = ("direct",)
) -> ConfigOption:
    key = SourceKey(ConfigSource.SPARK, name)
    return ConfigOption(name, value_type, default, doc=doc, role="plan", apis=apis, source_keys=(key,))


def _variable(name: str, value_type: ValueType, *, role: Role, doc: str) -> ConfigOption:
    key = SourceKey(ConfigSource.ENVIRONMENT, name)
    return ConfigOption(name, value_type, doc=doc, role=role, apis=APIS, source_keys=(key,))


# A table, formatted by hand: a line for each option, and its documentation.
# fmt: off
SPARK_OPTIONS: Final = (
    _property(f"{_KAFKA}maxRatePerPartition", INTEGER, "0",
        doc="Maximum records per second of each partition. 0 means no limit."),
    _property(f"{_KAFKA}minRatePerPartition", INTEGER, "1",
        doc="Minimum number of records of each partition in a limited batch."),
    _property(f"{_BACKPRESSURE}enabled", BOOLEAN, "false",
        doc="Whether to limit batches to the records that can be processed within the batch interval."),
    _property(f"{_BACKPRESSURE}initialRate", INTEGER, "0",
        doc="Records per second of the whole stream until the rate of batches is measured. 0 means no limit until "
            "then."),
    _property(f"{_BACKPRESSURE}rateEstimator", Enum(("pid",)), "pid", doc="The rate estimator; `pid` is the only one."),
    _property(f"{_BACKPRESSURE}pid.minRate", NUMBER, "100",
        doc="Minimum of the estimated rate, in records per second; greater than 0."),
    _property(f"{_KAFKA}assumeConsecutiveOffsets", BOOLEAN, "false", apis=PARAMS_APIS,
        doc="Whether every offset is a record, so that `count` and similar methods can use offsets."),
    ConfigOption(f"{_KAFKA}consumer.poll.ms", Duration(1), "120s", role="fetch", apis=PARAMS_APIS,
        source_keys=_POLL_KEYS,
        doc="How long a task waits for records, unless the parameter `kafkaConsumer.pollTimeoutMs` is given."),
    _variable("PYSPARK_KAFKA_DIRECT_LOG_LEVEL", Enum(("DEBUG", "INFO", "WARNING", "ERROR")), role="fetch",
        doc="The lowest level that planners and tasks log, `WARNING` by default."),
    _variable(TOKEN_URLS_VARIABLE, LIST, role="connect",
        doc="The only URLs that `sasl.oauthbearer.token.endpoint.url` may have. `file:` URLs, `http:` URLs of another "
            "host, and the files of `sasl.oauthbearer.assertion.*` as `file:` URLs must be listed: see "
            "[tokens](security.md#tokens-from-an-endpoint)."),
    _variable(TOKEN_PROVIDERS_VARIABLE, LIST, role="connect",
        doc="Functions that `oauthTokenProvider` may name, as [`module:factory`](security.md#tokens-from-python)."),
    _variable(TOKEN_HOSTS_VARIABLE, LIST, role="connect",
        doc="Further hosts that may receive the tokens of `msk` and `gcp`. `*.example.com` allows [all hosts of a "
            "domain](security.md#hosts-that-receive-tokens-of-amazon-and-google)."),
    _variable(AWS_IDENTITIES_VARIABLE, LIST, role="connect",
        doc="The only roles and profiles that `awsRoleArn` and `awsProfileName` may have. By default, all: see "
            "[Amazon MSK](security.md#amazon-msk-with-iam)."),
    _variable(PAYLOAD_DECODERS_VARIABLE, LIST, role="plan",
        doc="Decoders that `keyFormat` and `valueFormat` of batches and streams may name, as "
            "[`module:factory`](formats.md#your-own-decoder)."),
)
