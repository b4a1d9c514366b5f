"""The data source options for reading; some are also parameters of the direct stream, ``createRDD`` and logs.

Options of Spark's Kafka source keep their names and defaults (``org.apache.spark.sql.kafka010.KafkaSourceProvider``),
and are rejected where Spark rejects them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias, get_args

from pyspark_kafka_direct.options.config_option import (
    APIS,
    FETCH_APIS,
    PARAMS_APIS,
    RANGE_APIS,
    READ_APIS,
    SINK_API,
    SOURCE_APIS,
    STREAM_APIS,
    Api,
    ConfigOption,
    ConfigSource,
    SourceKey,
    UnsupportedPolicy,
)
from pyspark_kafka_direct.options.consumer_definitions import NO_GROUP_REASON, READS_FROM_LEADERS
from pyspark_kafka_direct.options.payload_formats import CHARSETS, FORMATS
from pyspark_kafka_direct.options.payload_settings import DEFAULT_CORRUPT_RECORD
from pyspark_kafka_direct.options.registry_definitions import DECODED_BY_ARROW
from pyspark_kafka_direct.options.security_settings import TokenVendor
from pyspark_kafka_direct.options.value_types import (
    BOOLEAN,
    DURATION,
    FACTORY,
    INT64,
    JSON,
    NUMBER,
    POSITION,
    POSITIVE_INT32,
    POSITIVE_INT64,
    TIMESTAMP,
    Enum,
    Text,
)

# The variable's value is sent to the broker, so it must not be a secret of the executor.
_RACK_VARIABLE: Final = Text(
    pattern=re.compile(
        r"(?!.*(?i:auth|cookie|cred|jaas|key|pass|private|pwd|salt|secret|session|signature|token)"
        r"|.*(?i:(?:^|_)(?:otp|pat|pin|sas|seed|sig)(?:_|$)))"
        r"[A-Za-z_][A-Za-z0-9_]*",
        re.ASCII,
    ),
    expected="the name of an environment variable that has a rack (names with SECRET, TOKEN, PASSWORD, KEY and the "
    "like are rejected)",
)
_GROUP_NAME: Final = Text(pattern=re.compile(r"\S(?:.*\S)?", re.DOTALL), expected="the name of a consumer group")

_Policies: TypeAlias = dict[Api, UnsupportedPolicy]


def _in_params(reason: str) -> _Policies:
    return dict.fromkeys(PARAMS_APIS, UnsupportedPolicy(reason))


MICRO_BATCH_ONLY: Final = UnsupportedPolicy("it applies to micro-batches, and a batch query has none")
_NO_BATCHES: Final[_Policies] = {"batch": MICRO_BATCH_ONLY}
_USE_STRATEGY: Final[_Policies] = {
    "direct": UnsupportedPolicy(
        "the consumer strategy defines what is read: it starts at its offsets, at startingTimestamp, at committed "
        "offsets, or as auto.offset.reset says",
        reject=True,
    ),
    "rdd": UnsupportedPolicy("the list of offset ranges defines what is read"),
}
_USE_API_TIMEOUT: Final = _in_params("kafka.default.api.timeout.ms limits requests for offsets")
_ONE_TASK: Final[_Policies] = {
    "continuous": UnsupportedPolicy("a continuous query has one task per topic-partition, up to tasksMax"),
    **_in_params("one task reads each offset range"),
}
_FILTER_IN_FUNCTION: Final[_Policies] = {
    "stream": UnsupportedPolicy("Spark does not push filters down into streams"),
    "continuous": UnsupportedPolicy("filter records in the function of the query"),
    **_in_params("filter records with a Python function"),
}
_NO_END: Final[_Policies] = {
    "stream": UnsupportedPolicy(
        "a stream has no end; limit its micro-batches with maxOffsetsPerTrigger, or stop it with Trigger.AvailableNow",
        reject=True,
    ),
    "continuous": UnsupportedPolicy("a continuous query has no end; call its stop()", reject=True),
    **_USE_STRATEGY,
}
_FROM_LEADERS: Final[_Policies] = {"continuous": READS_FROM_LEADERS}
_WAITS_UNTIL_STOP: Final[_Policies] = {
    "continuous": UnsupportedPolicy("a continuous query waits for records until it stops")
}
_LOG_RESUMES: Final[_Policies] = {
    "log": UnsupportedPolicy(
        "a log resumes at the next available record after lost records", reject=True, accepted_values=("false",)
    )
}
# Spark does not reject endingTimestamp in a stream either.
_NO_END_IGNORED: Final[_Policies] = {**_NO_END, "stream": replace(_NO_END["stream"], reject=False)}
_NO_MICRO_BATCHES: Final[_Policies] = {
    **_NO_BATCHES,
    "continuous": UnsupportedPolicy(
        "a continuous query has no micro-batches; it reads as fast as its function and its sink process records"
    ),
    **_in_params(
        "to limit batches, set spark.streaming.kafka.maxRatePerPartition or spark.streaming.backpressure.enabled in "
        "the Spark configuration"
    ),
}

_source: Final = partial(ConfigOption, role="plan", apis=SOURCE_APIS)
_spark: Final = partial(_source, defined_by_spark=True)
_select: Final = partial(_spark, unsupported=_USE_STRATEGY)
_start: Final = partial(_select, apis=(*SOURCE_APIS, "direct"))
_end: Final = partial(_spark, apis=("batch",), unsupported=_NO_END)
_group: Final = partial(ConfigOption, role="group", apis=STREAM_APIS)
_fetch: Final = partial(ConfigOption, role="fetch")
_payload: Final = partial(_source, field="", unsupported=DECODED_BY_ARROW)
_written_payload: Final = partial(_payload, apis=(*SOURCE_APIS, *SINK_API))
_FORMAT: Final = Enum(tuple(FORMATS), FACTORY)
_limit: Final = partial(ConfigOption, role="plan", apis=("stream",), unsupported=_NO_MICRO_BATCHES)


def _gain(name: str) -> tuple[SourceKey, ...]:
    return SourceKey(ConfigSource.OPTION), SourceKey(ConfigSource.SPARK, f"spark.streaming.backpressure.pid.{name}")


# A table, formatted by hand: a line for each option, and its documentation.
# fmt: off
SOURCE_OPTIONS: Final = (
    _select("assign", JSON,
        doc='Topic-partitions to read: `{"topicA":[0,1],"topicB":[2]}`. Give exactly one of `assign`, `subscribe` '
            "and `subscribePattern`."),
    _select("subscribe", doc="Topics to read, separated by commas."),
    _select("subscribePattern", verbatim=True,
        doc="Java regular expression for the topics to read. It matches any part of a name: use `^` and `$` for the "
            "whole name. Internal topics are never read."),
    _start("startingOffsets", POSITION, "latest", api_defaults={"batch": "earliest"}, apis=SOURCE_APIS,
        doc="Where to start: a [position](positions.md) such as `earliest`, `latest`, `-1h` or `last 1000`, or "
            "JSON. A batch cannot start at `latest`. A stream can also start at `committed`: the offsets of the group "
            "in `commitGroupId` or `kafka.group.id`. It uses the option only for its first start, and reads new "
            "partitions from their start."),
    _end("endingOffsets", POSITION, "latest",
        doc="Where to stop: a [position](positions.md) such as `latest`, or JSON."),
    _start("startingTimestamp", TIMESTAMP, field="",
        doc="A time such as `2026-11-28T06:00Z` or `-1h`, or milliseconds since 1970. Each partition starts at its "
            "first record with this or a later timestamp. Takes precedence over the other options for the start."),
    _start("startingOffsetsByTimestamp", JSON,
        doc='Starting times by partition: `{"topicA":{"0":1700000000000,"*":"-1h"}}`. Takes precedence over '
            "`startingOffsets`."),
    _start("startingOffsetsByTimestampStrategy", Enum(("error", "latest")), "error",
        doc="What to do if all records of a partition are older than the starting time: `error` fails, `latest` "
            "starts at its end. For a time before now, such as `-1h`, and a time in `startingOffsets`, the default is "
            "`latest`."),
    _end("endingTimestamp", TIMESTAMP, unsupported=_NO_END_IGNORED,
        doc="A time, as in `startingTimestamp`. Each partition stops before its first record with this or a later "
            "timestamp, or at its end. Takes precedence over the other options for the end."),
    _end("endingOffsetsByTimestamp", JSON, doc="Ending times by partition. Takes precedence over `endingOffsets`."),
    _end("offsetRanges", JSON, defined_by_spark=False, field="",
        doc='The exact ranges to read: `[{"topic":"t","partition":0,"fromOffset":5,"untilOffset":9}]`. A partition '
            'can have several ranges. With `"topicId"` in a range, it is data loss if the topic was recreated.'),
    _spark("failOnDataLoss", BOOLEAN, "true", role="fetch", apis=READ_APIS, unsupported=_LOG_RESUMES,
        doc="Whether to fail if requested records are [lost](structured-streaming.md#when-records-are-gone). "
            "`false` logs a warning and reads the remaining records."),
    _group("commitGroupId", _GROUP_NAME,
        unsupported={**_NO_BATCHES, **_in_params("commitAsync and commitSync commit offsets for group.id")},
        doc="Consumer group for which each completed micro-batch or epoch commits its offsets, so that [lag "
            "tools](monitoring.md#lag-for-other-tools-commitgroupid) show the query. Use a separate group for each "
            "query."),
    _group("committedOffsetsFallback", Enum(("error", "earliest", "latest")), "error",
        unsupported={
            **_NO_BATCHES,
            **_in_params("set auto.offset.reset instead"),
            "direct": UnsupportedPolicy("set auto.offset.reset instead", reject=True),
        },
        doc="With `startingOffsets=committed`: where a partition without a committed offset starts. `error` fails."),
    _spark("minPartitions", POSITIVE_INT32, apis=RANGE_APIS, unsupported=_ONE_TASK,
        doc="Approximate minimum number of tasks. Large offset ranges are divided."),
    _spark("maxRecordsPerPartition", POSITIVE_INT64, apis=RANGE_APIS, unsupported=_ONE_TASK,
        doc="Maximum number of offsets of a task."),
    # Bytes of headers count three times, plus 12 bytes each. The default is 128 times the default of a topic's
    # max.message.bytes, and fits into Spark's smallest memory overhead of an executor (384 MiB).
    _fetch("maxRecordBatchBytes", POSITIVE_INT32, "134217728", apis=FETCH_APIS,
        doc="Maximum size in bytes of a decompressed record batch, and of a record (128 MiB). A larger one fails "
            "the query. Raise it for larger records, or lower it if Python workers have little memory."),
    _spark("includeHeaders", BOOLEAN, "false", unsupported=_in_params("records always have their headers"),
        doc="Whether to add the column `headers`."),
    _written_payload("keyFormat", _FORMAT, "binary", doc="The same as `valueFormat`, for keys."),
    _written_payload("valueFormat", _FORMAT, "binary",
        doc="What values contain: see [formats](formats.md). `module:factory` is [your own "
            "decoder](formats.md#your-own-decoder). A write encodes values in this format, or by the type of the "
            "column."),
    _written_payload("keySchema", doc="The same as `valueSchema`, for keys."),
    _written_payload("valueSchema",
        doc="The schema of the values: fields as DDL for JSON (`origin string, dep_delay double`) or `variant`, an "
            "Avro schema, or the text of a `.proto` file. A [registry](schema-registry.md) can have it instead. "
            "`.schema()` selects fields of it, and replaces it for JSON. See [JSON](typed-json.md), [Avro](avro.md) "
            "and [Protobuf](protobuf.md)."),
    _written_payload("keyMessage", doc="The same as `valueMessage`, for keys."),
    _written_payload("valueMessage",
        doc="With `valueFormat=protobuf`: the full name of the message, such as `flights.Flight`. By default, the "
            "first message of the schema."),
    _written_payload("keyCharset", Enum(CHARSETS), doc="The same as `valueCharset`, for keys."),
    _written_payload("valueCharset", Enum(CHARSETS),
        doc="With `valueFormat=string`: the [charset](formats.md#strings-in-a-charset) of the values. By default, a "
            "read does not check the bytes, and a write is in UTF-8."),
    _payload("mode", Enum(("PERMISSIVE", "DROPMALFORMED", "FAILFAST")),
        doc="What to do with [malformed](formats.md#malformed-records) keys and values: `PERMISSIVE` reads null, "
            "`DROPMALFORMED` drops the record, and `FAILFAST` fails the query. The default is `FAILFAST` with Avro, "
            "Protobuf and charsets, and `PERMISSIVE` otherwise."),
    _payload("columnNameOfCorruptRecord", Text(pattern=re.compile(r".+", re.DOTALL), expected="the name of a field"),
        DEFAULT_CORRUPT_RECORD, verbatim=True,
        doc="With `mode=PERMISSIVE`: name of the field for [malformed](formats.md#malformed-records) bytes, if the "
            "schema has this field."),
    _payload("emit.default.values", BOOLEAN, "false",
        doc="With `valueFormat=protobuf`: whether a missing field without presence has its default value (0, "
            "`false`, empty), instead of null."),
    _source("pushDownFilters", BOOLEAN, "false", apis=("batch",), unsupported=_FILTER_IN_FUNCTION,
        doc="Whether filters on `partition`, `offset` and `timestamp` restrict the offsets that are read. Requires "
            "`spark.sql.python.filterPushdown.enabled=true`. Call `load()` for each query: another filter on the same "
            "DataFrame would return the rows of the first filter."),
    _fetch("kafkaConsumer.pollTimeoutMs", POSITIVE_INT64, "120000", field="poll_timeout_ms",
        apis=(*RANGE_APIS, *PARAMS_APIS), api_defaults=dict.fromkeys(PARAMS_APIS), unsupported=_WAITS_UNTIL_STOP,
        defined_by_spark=True,
        doc="How long a task waits for records that must exist."),
    _spark("fetchOffset.numRetries", POSITIVE_INT32, field="offset_fetch_attempts", unsupported=_USE_API_TIMEOUT,
        doc="Maximum attempts to fetch offsets. By default, `kafka.default.api.timeout.ms` limits them. In a "
            "stream, also the number of responses (3 by default) that must confirm that a partition was deleted or "
            "that its end became lower."),
    _spark("fetchOffset.retryIntervalMs", INT64, field="offset_fetch_retry_interval_ms", unsupported=_USE_API_TIMEOUT,
        doc="Delay between two attempts. By default, it grows from `kafka.retry.backoff.ms`."),
    _source("oauthTokenProvider", Enum(get_args(TokenVendor), FACTORY), role="connect", apis=APIS,
        doc="Source of OAUTHBEARER tokens: `msk` (Amazon MSK with IAM), `azure` (Event Hubs), `gcp` (Google Cloud), "
            "or [your own](security.md#tokens-from-python)."),
    _fetch("rackEnvironmentVariable", _RACK_VARIABLE, apis=(*RANGE_APIS, *PARAMS_APIS), unsupported=_FROM_LEADERS,
        doc="Environment variable with the rack of an executor, to fetch from the closest replica (KIP-392). The "
            "brokers receive its value."),
    _group("groupIdPrefix", apis=(), defined_by_spark=True,
        unsupported=dict.fromkeys(READ_APIS, UnsupportedPolicy(NO_GROUP_REASON)),
    ),
)

BATCH_LIMIT_OPTIONS: Final = (
    _limit("maxOffsetsPerTrigger", POSITIVE_INT64, defined_by_spark=True,
        doc="Approximate maximum number of offsets in a micro-batch. Partitions with a larger backlog get more of "
            "them."),
    _limit("maxBytesPerTrigger", POSITIVE_INT64,
        doc="Approximate maximum size of a micro-batch in bytes, as compressed by the brokers. It is estimated from "
            "a sample."),
    _limit("minOffsetsPerTrigger", POSITIVE_INT64, defined_by_spark=True,
        doc="Minimum number of offsets before a micro-batch starts. `Trigger.AvailableNow` ignores it."),
    _limit("maxTriggerDelay", DURATION, "15m", defined_by_spark=True,
        doc="Maximum time that `minOffsetsPerTrigger` delays a micro-batch: an integer and `ms`, `s`, `m`, `h` or "
            "`d`."),
    _limit("backpressure", BOOLEAN, "false", field="",
        doc="Whether to limit micro-batches to what the query can process in a trigger interval: see "
            "[backpressure](monitoring.md#backpressure). Requires `pyspark_kafka_direct.enable(spark)`."),
    _limit("backpressureInitialRate", POSITIVE_INT64,
        doc="Offsets per second until two micro-batches are measured. By default, there is no limit until then."),
    _limit("backpressureMinRate", POSITIVE_INT64, "100", doc="Minimum of the estimated rate, in offsets per second."),
    _limit("backpressureProportional", NUMBER, "1.0", apis=("stream", "direct"), source_keys=_gain("proportional"),
        doc="Weight of the difference between the last rate and the measured one."),
    _limit("backpressureIntegral", NUMBER, "0.2", apis=("stream", "direct"), source_keys=_gain("integral"),
        doc="Weight of the backlog that accumulates while micro-batches start late."),
    _limit("backpressureDerived", NUMBER, "0.0", apis=("stream", "direct"), source_keys=_gain("derived"),
        doc="Weight of the change of the difference between the last rate and the measured one."),
)
