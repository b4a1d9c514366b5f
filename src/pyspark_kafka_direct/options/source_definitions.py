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
        doc='Topic-partitions to read: `{"topicA":[0,1],"topicB":[2]}`. Exactly one of `assign`, `subscribe` and '
            "`subscribePattern` must be given."),
    _select("subscribe", doc="Topics to read, separated by commas."),
    _select("subscribePattern", verbatim=True,
        doc="Java regular expression for the topics to read. It matches any part of a name; use `^` and `$` for the "
            "whole name. Internal topics are never read."),
    _start("startingOffsets", POSITION, "latest", api_defaults={"batch": "earliest"}, apis=SOURCE_APIS,
        doc="First offsets: `earliest`, or `latest` or `committed` (not in a batch), or JSON with every assigned "
            'partition, `{"topicA":{"0":23,"1":-2}}` (-2 is earliest, -1 is latest), or with a whole topic, '
            '`{"topicA":"earliest"}`. Also a time, `-1h` or `2026-11-28T06:00Z`, `last 1000` or `now`, and `"*"` for '
            "the rest in JSON: see [positions](positions.md). A stream uses it only for the first start of a query, "
            "and a planned first batch keeps its start if the option changes. It reads new partitions from their "
            "start. `committed` starts at the offsets that the group in `commitGroupId` or `kafka.group.id` has "
            "committed."),
    _end("endingOffsets", POSITION, "latest",
        doc="Offsets to stop before: `latest`, or JSON as in `startingOffsets` (-1 is latest). Also a time or `now`: "
            "see [positions](positions.md)."),
    _start("startingTimestamp", TIMESTAMP, field="",
        doc="Milliseconds since 1970, or a time such as `2026-11-28T06:00Z` or `-1h`. Each partition starts at its "
            "first record with this timestamp or a later one. Takes precedence over the next two options and "
            "`startingOffsets`."),
    _start("startingOffsetsByTimestamp", JSON,
        doc='The same for each partition: `{"topicA":{"0":1700000000000}}`, with `"*"` for the rest. Takes precedence '
            "over `startingOffsets`."),
    _start("startingOffsetsByTimestampStrategy", Enum(("error", "latest")), "error",
        doc="What to do if all records of a partition are older than the starting time: `error`, or `latest` to start "
            "at its end. The default of a time before now, such as `-1h`, and of a time in `startingOffsets` is "
            "`latest`."),
    _end("endingTimestamp", TIMESTAMP, unsupported=_NO_END_IGNORED,
        doc="Milliseconds since 1970, or a time such as `2026-11-28T06:00Z` or `-1h`. Each partition stops before its "
            "first record with this timestamp or a later one, or at its latest offset if there is none. Takes "
            "precedence over the next option and `endingOffsets`."),
    _end("endingOffsetsByTimestamp", JSON, doc="The same for each partition. Takes precedence over `endingOffsets`."),
    _end("offsetRanges", JSON, defined_by_spark=False, field="",
        doc='The exact ranges to read: `[{"topic":"t","partition":0,"fromOffset":5,"untilOffset":9}]`. A partition can '
            'have several ranges. With `"topicId"`, reading from a topic with another id is data loss. Cannot be '
            "combined with other options that select topics or offsets."),
    _spark("failOnDataLoss", BOOLEAN, "true", role="fetch", apis=READ_APIS, unsupported=_LOG_RESUMES,
        doc="Whether to fail if requested records are lost (expired, or the topic was deleted or recreated). `false` "
            "logs a warning and reads the remaining records."),
    _group("commitGroupId", _GROUP_NAME,
        unsupported={**_NO_BATCHES, **_in_params("commitAsync and commitSync commit offsets for group.id")},
        doc="Consumer group to commit the next offsets for after each completed micro-batch or epoch, so that lag "
            "monitoring tools show the query. A failed commit only causes a warning. Use a separate group for each "
            "query."),
    _group("committedOffsetsFallback", Enum(("error", "earliest", "latest")), "error",
        unsupported={
            **_NO_BATCHES,
            **_in_params("set auto.offset.reset instead"),
            "direct": UnsupportedPolicy("set auto.offset.reset instead", reject=True),
        },
        doc="With `startingOffsets=committed`: where partitions without a committed offset start: `earliest`, `latest` "
            "or `error`."),
    _spark("minPartitions", POSITIVE_INT32, apis=RANGE_APIS, unsupported=_ONE_TASK,
        doc="Approximate minimum number of tasks. Large offset ranges are split accordingly."),
    _spark("maxRecordsPerPartition", POSITIVE_INT64, apis=RANGE_APIS, unsupported=_ONE_TASK,
        doc="Maximum number of offsets of a task."),
    _fetch("maxRecordBatchBytes", POSITIVE_INT32, "134217728", apis=FETCH_APIS,
        doc="Maximum size in bytes of a decompressed record batch, and of a record; a larger one fails the query. If "
            "headers are read, their bytes count three times, plus 12 bytes for each header. The default, 128 MiB, is "
            "128 times the default of a topic's `max.message.bytes`, which limits the compressed batch, and fits into "
            "Spark's smallest memory overhead of an executor (384 MiB). Raise it for topics with larger records. Lower "
            "it if Python workers have little memory: beside its fetch responses, a task needs a few MiB and the size "
            "of its largest record."),
    _spark("includeHeaders", BOOLEAN, "false", unsupported=_in_params("records always have their headers"),
        doc="Whether to add the column `headers`."),
    _written_payload("keyFormat", _FORMAT, "binary", doc="The same as `valueFormat`, for keys."),
    _written_payload("valueFormat", _FORMAT, "binary",
        doc="What values contain; see docs/formats.md. Strings are not checked for UTF-8, as in a cast. "
            "`module:factory` is a decoder of your own. For batches and streams, it must be listed in "
            "`PYSPARK_KAFKA_DIRECT_PAYLOAD_DECODERS` in the environment of the driver. A write encodes values as Avro "
            "with `avro`, as Protobuf with `protobuf`, and as JSON with schema ids with `json` and `valueFraming`; "
            "otherwise, the type of the column says how they are written."),
    _written_payload("keySchema", doc="The same as `valueSchema`, for keys."),
    _written_payload("valueSchema",
        doc="With `valueFormat=json`: the fields to decode, as DDL (`origin string, dep_delay double`), or `variant` "
            "for any JSON; in a write with schema ids, the JSON Schema. With `module:factory`: fields, or any type. "
            "Not needed if `.schema()` is called, which then defines all columns, or if a registry has the JSON "
            "Schema. With `valueFormat=avro`: the Avro schema of the values, which is JSON. With "
            "`valueFormat=protobuf`: the text of a `.proto` file, or a set of descriptors in base64. `.schema()` may "
            "select fields of both. A write as Avro or Protobuf needs it unless a registry has the schema."),
    _written_payload("keyMessage", doc="The same as `valueMessage`, for keys."),
    _written_payload("valueMessage",
        doc="With `valueFormat=protobuf`: the full name of the message type, such as `flights.Flight`. The default is "
            "the first message type of the schema."),
    _written_payload("keyCharset", Enum(CHARSETS), doc="The same as `valueCharset`, for keys."),
    _written_payload("valueCharset", Enum(CHARSETS),
        doc="With `valueFormat=string`: the charset of the values, which is one of those of Spark's `decode` and "
            "`encode`. Values that are not valid in it are malformed. By default, a read does not check the bytes, "
            "and a write is in UTF-8."),
    _payload("mode", Enum(("PERMISSIVE", "DROPMALFORMED", "FAILFAST")),
        doc="What to do with malformed JSON, Avro, Protobuf, or strings in a charset: `PERMISSIVE` reads the fields "
            "that cannot be decoded as null, as Spark's `from_json`. `DROPMALFORMED` drops the record and logs the "
            "number of dropped records. `FAILFAST` fails the query, and names topic, partition, offset and reason. "
            "The default is `FAILFAST` if a format is `avro` or `protobuf`, as in Spark's `from_avro`, or if a "
            "charset is given, and `PERMISSIVE` otherwise."),
    _payload("columnNameOfCorruptRecord", Text(pattern=re.compile(r".+", re.DOTALL), expected="the name of a field"),
        DEFAULT_CORRUPT_RECORD, verbatim=True,
        doc="Name of the field of the struct that contains malformed JSON, Avro or Protobuf, if the schema has such a "
            "field: the text of JSON if the field is a `string`, or the bytes if it is `binary`. Requires "
            "`mode=PERMISSIVE`."),
    _payload("emit.default.values", BOOLEAN, "false",
        doc="With `keyFormat` or `valueFormat=protobuf`, as in Spark's `from_protobuf`: whether a field of `proto3` "
            "without presence that is missing is 0, `false`, empty, or the first value of its enum, and not null. It "
            "does not change messages, and fields of a `oneof` or with the label `optional`."),
    _source("pushDownFilters", BOOLEAN, "false", apis=("batch",), unsupported=_FILTER_IN_FUNCTION,
        doc="Whether filters on `partition`, `offset` and `timestamp` restrict the offsets that are read. Requires "
            "`spark.sql.python.filterPushdown.enabled=true`. Call `load()` for each query: Spark plans each `load()` "
            "once, so another filter on the same DataFrame would silently return the rows of the first filter."),
    _fetch("kafkaConsumer.pollTimeoutMs", POSITIVE_INT64, "120000", field="poll_timeout_ms",
        apis=(*RANGE_APIS, *PARAMS_APIS), api_defaults=dict.fromkeys(PARAMS_APIS), unsupported=_WAITS_UNTIL_STOP,
        defined_by_spark=True,
        doc="How long a task waits for records that must exist. It does not limit the time in which brokers confirm a "
            "data loss, at least 5 s."),
    _spark("fetchOffset.numRetries", POSITIVE_INT32, field="offset_fetch_attempts", unsupported=_USE_API_TIMEOUT,
        doc="Maximum attempts to fetch offsets. By default, attempts are limited by `kafka.default.api.timeout.ms` "
            "(60 s), which covers the restart of a broker; Spark's own source fails after 3 attempts. In a stream, "
            "also the number of responses (3 by default) that must confirm that a partition was deleted or that its "
            "end offset decreased. Attempts that end with evidence of a data loss are not counted until brokers have "
            "confirmed it, at least 5 s."),
    _spark("fetchOffset.retryIntervalMs", INT64, field="offset_fetch_retry_interval_ms", unsupported=_USE_API_TIMEOUT,
        doc="Delay between two attempts. By default, it grows from `kafka.retry.backoff.ms`, and is one second while a "
            "loss is being confirmed. While brokers contradict each other, it is at least 0.3 s."),
    _source("oauthTokenProvider", Enum(get_args(TokenVendor), FACTORY), role="connect", apis=APIS,
        doc="Source of OAUTHBEARER tokens: `msk` (Amazon MSK with IAM), `azure` (Event Hubs), `gcp` (Google Cloud), or "
            "`module:factory` that returns a provider. A factory is imported on the driver and the executors, and must "
            "be listed in `PYSPARK_KAFKA_DIRECT_TOKEN_PROVIDERS` in the environment of the driver."),
    _fetch("rackEnvironmentVariable", _RACK_VARIABLE, apis=(*RANGE_APIS, *PARAMS_APIS), unsupported=_FROM_LEADERS,
        doc="Environment variable with the rack of an executor, to fetch from the closest replica (KIP-392). The value "
            "is sent to the brokers, so it must be at most 64 letters, digits and `._-`, and the name must not look "
            "like that of a secret."),
    _group("groupIdPrefix", apis=(), defined_by_spark=True,
        unsupported=dict.fromkeys(READ_APIS, UnsupportedPolicy(NO_GROUP_REASON)),
    ),
)

BATCH_LIMIT_OPTIONS: Final = (
    _limit("maxOffsetsPerTrigger", POSITIVE_INT64, defined_by_spark=True,
        doc="Approximate maximum number of offsets in a micro-batch, divided over the partitions in proportion to "
            "their backlog; a partition with a very small backlog gets one more."),
    _limit("maxBytesPerTrigger", POSITIVE_INT64,
        doc="Approximate maximum size of a micro-batch in bytes as stored by the brokers, that is, compressed. It is "
            "estimated before each micro-batch from a sample of the partitions with the largest backlog."),
    _limit("minOffsetsPerTrigger", POSITIVE_INT64, defined_by_spark=True,
        doc="Minimum number of offsets before a micro-batch starts. Not applied with `Trigger.AvailableNow`, which "
            "reads all remaining records."),
    _limit("maxTriggerDelay", DURATION, "15m", defined_by_spark=True,
        doc="Maximum time that `minOffsetsPerTrigger` delays a micro-batch after the last one: an integer and `ms`, "
            "`s`, `m`, `h` or `d`."),
    _limit("backpressure", BOOLEAN, "false", field="",
        doc="Whether to limit micro-batches to the offsets that can be processed within the trigger interval (1 s if "
            "there is none), according to the measured rate of previous batches; see docs/monitoring.md. Requires "
            "`pyspark_kafka_direct.enable(spark)`. `maxOffsetsPerTrigger` still applies."),
    _limit("backpressureInitialRate", POSITIVE_INT64,
        doc="Offsets per second until two micro-batches are measured. By default, these are not limited."),
    _limit("backpressureMinRate", POSITIVE_INT64, "100", doc="Minimum of the estimated rate, in offsets per second."),
    _limit("backpressureProportional", NUMBER, "1.0", apis=("stream", "direct"), source_keys=_gain("proportional"),
        doc="Weight of the difference between the last and the measured rate, as in Spark Streaming's PID controller."),
    _limit("backpressureIntegral", NUMBER, "0.2", apis=("stream", "direct"), source_keys=_gain("integral"),
        doc="Weight of the backlog that accumulates while micro-batches start late."),
    _limit("backpressureDerived", NUMBER, "0.0", apis=("stream", "direct"), source_keys=_gain("derived"),
        doc="Weight of the change of that difference."),
)
