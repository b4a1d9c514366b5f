"""The data source options for reading; some are also parameters of the direct stream, ``createRDD`` and logs.

Options of Spark's Kafka source keep their names and defaults (``org.apache.spark.sql.kafka010.KafkaSourceProvider``),
and are rejected where Spark rejects them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from pyspark_kafka_direct.config.client_settings import DEFAULT_MAX_RECORD_BATCH_BYTES
from pyspark_kafka_direct.config.config_option import (
    CONNECTION_APIS,
    CONTINUOUS_API,
    DATA_SOURCE_ONLY,
    FETCH_APIS,
    MAX_INT32,
    OPTION_OR_PARAMETER,
    PARAMS_APIS,
    RANGE_APIS,
    READ_APIS,
    READS_ONLY,
    SOURCE_APIS,
    ConfigOption,
    ConfigSource,
    SourceKey,
    UnsupportedPolicy,
    ValueFormat,
    ValueType,
    same_default,
    unsupported_in_params,
)
from pyspark_kafka_direct.config.consumer_definitions import READS_FROM_LEADERS
from pyspark_kafka_direct.offsets import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.config.config_option import Api, Role

MICRO_BATCH_ONLY: Final = UnsupportedPolicy(reason="it applies to micro-batches, and a batch query has none")

_NO_MICRO_BATCHES: Final = UnsupportedPolicy(
    reason="a continuous query has no micro-batches; it reads as fast as its function and its sink process records"
)

_PID: Final = "spark.streaming.backpressure.pid."
_USE_SPARK_CONF: Final = UnsupportedPolicy(
    reason="to limit batches, set spark.streaming.kafka.maxRatePerPartition or spark.streaming.backpressure.enabled in "
    "the Spark configuration"
)


def _batch_limit_option(
    name: str,
    doc: str,
    value_type: ValueType = ValueType.INTEGER,
    default: str | None = None,
    *,
    defined_by_spark: bool = False,
    gain: str = "",
) -> ConfigOption:
    apis = same_default(("stream", "direct") if gain else ("stream",), default)
    return ConfigOption(
        name=name,
        role="plan",
        apis=apis,
        doc=doc,
        value_type=value_type,
        low=1 if value_type is ValueType.INTEGER else None,
        high=MAX_OFFSET if value_type is ValueType.INTEGER else None,
        defined_by_spark=defined_by_spark,
        unsupported={
            "batch": MICRO_BATCH_ONLY,
            "continuous": _NO_MICRO_BATCHES,
            **unsupported_in_params(_USE_SPARK_CONF),
        },
        source_keys=(SourceKey(ConfigSource.OPTION), SourceKey(ConfigSource.SPARK, _PID + gain))
        if gain
        else OPTION_OR_PARAMETER,
    )


BATCH_LIMIT_OPTIONS: Final = (
    _batch_limit_option(
        "maxOffsetsPerTrigger",
        "Approximate maximum number of offsets in a micro-batch, divided over the partitions in proportion to their "
        "backlog; a partition with a very small backlog gets one more.",
        defined_by_spark=True,
    ),
    _batch_limit_option(
        "maxBytesPerTrigger",
        "Approximate maximum size of a micro-batch in bytes as stored by the brokers, that is, compressed. It is "
        "estimated before each micro-batch from a sample of the partitions with the largest backlog.",
    ),
    _batch_limit_option(
        "minOffsetsPerTrigger",
        "Minimum number of offsets before a micro-batch starts. Not applied with `Trigger.AvailableNow`, which reads "
        "all remaining records.",
        defined_by_spark=True,
    ),
    _batch_limit_option(
        "maxTriggerDelay",
        "Maximum time that `minOffsetsPerTrigger` delays a micro-batch after the last one: an integer and `ms`, `s`, "
        "`m`, `h` or `d`.",
        ValueType.DURATION,
        "15m",
        defined_by_spark=True,
    ),
    _batch_limit_option(
        "backpressure",
        "Whether to limit micro-batches to the offsets that can be processed within the trigger interval (1 s if there "
        "is none), according to the measured rate of previous batches; see docs/monitoring.md. Requires "
        "`pyspark_kafka_direct.enable(spark)`. `maxOffsetsPerTrigger` still applies.",
        ValueType.BOOLEAN,
        "false",
    ),
    _batch_limit_option(
        "backpressureInitialRate",
        "Offsets per second until two micro-batches are measured. By default, these are not limited.",
    ),
    _batch_limit_option(
        "backpressureMinRate",
        "Minimum of the estimated rate, in offsets per second.",
        default="100",
    ),
    _batch_limit_option(
        "backpressureProportional",
        "Weight of the difference between the last and the measured rate, as in Spark Streaming's PID controller.",
        ValueType.DOUBLE,
        "1.0",
        gain="proportional",
    ),
    _batch_limit_option(
        "backpressureIntegral",
        "Weight of the backlog that accumulates while micro-batches start late.",
        ValueType.DOUBLE,
        "0.2",
        gain="integral",
    ),
    _batch_limit_option(
        "backpressureDerived", "Weight of the change of that difference.", ValueType.DOUBLE, "0.0", gain="derived"
    ),
)

_PROVIDER: Final = ValueFormat(re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*"), "module:factory")
# The variable's value is sent to the broker, so it must not be a secret of the executor.
_RACK_VARIABLE: Final = ValueFormat(
    re.compile(
        r"(?!.*(?i:auth|cookie|cred|jaas|key|pass|private|pwd|salt|secret|session|signature|token)"
        r"|.*(?i:(?:^|_)(?:otp|pat|pin|sas|seed|sig)(?:_|$)))"
        r"[A-Za-z_][A-Za-z0-9_]*",
        re.ASCII,
    ),
    "the name of an environment variable that has a rack (names with SECRET, TOKEN, PASSWORD, KEY and the like are "
    "rejected)",
)
_GROUP_NAME: Final = ValueFormat(re.compile(r"\S(?:.*\S)?", re.DOTALL), "the name of a consumer group")

_NO_END: Final = UnsupportedPolicy(
    reason="a stream has no end; limit its micro-batches with maxOffsetsPerTrigger, or stop it with "
    "Trigger.AvailableNow"
)
_REJECTED_NO_END: Final = UnsupportedPolicy(reason=_NO_END.reason, reject=True)
_NO_END_CONTINUOUS: Final = "a continuous query has no end; call its stop()"
_USE_STRATEGY: Final = UnsupportedPolicy(
    reason="the consumer strategy or the list of offset ranges defines what is read"
)
_TASKS_MAX: Final = UnsupportedPolicy(reason="a continuous query has one task per topic-partition, up to tasksMax")
_ONE_TASK: Final = UnsupportedPolicy(reason="one task reads each offset range")
_USE_API_TIMEOUT: Final = UnsupportedPolicy(reason="kafka.default.api.timeout.ms limits requests for offsets")
_LOG_RESUMES: Final = UnsupportedPolicy(reason="a log resumes at the next available record after lost records")
_USE_COMMIT_ASYNC: Final = UnsupportedPolicy(reason="commitAsync and commitSync commit offsets for group.id")


def _selection_option(
    name: str, doc: str, value_type: ValueType = ValueType.STRING, *, verbatim: bool = False
) -> ConfigOption:
    return ConfigOption(
        name=name,
        role="plan",
        apis=same_default(SOURCE_APIS),
        doc=doc,
        value_type=value_type,
        verbatim=verbatim,
        defined_by_spark=True,
        unsupported=unsupported_in_params(_USE_STRATEGY),
    )


def _start_option(
    name: str,
    doc: str,
    value_type: ValueType,
    default: str | None = None,
    stream_default: str | None = None,
    *,
    direct: bool = True,
) -> ConfigOption:
    stream_apis: tuple[Api, ...] = ("stream", *CONTINUOUS_API, *(("direct",) if direct else ()))
    return ConfigOption(
        name=name,
        role="plan",
        apis={"batch": default, **dict.fromkeys(stream_apis, stream_default or default)},
        doc=doc,
        value_type=value_type,
        allowed=("error", "latest") if value_type is ValueType.ENUM else (),
        defined_by_spark=True,
        unsupported=unsupported_in_params(_USE_STRATEGY),
    )


def _end_option(
    name: str,
    doc: str,
    value_type: ValueType,
    default: str | None = None,
    *,
    stream_policy: UnsupportedPolicy,
    defined_by_spark: bool = True,
) -> ConfigOption:
    return ConfigOption(
        name=name,
        role="plan",
        apis=same_default(("batch",), default),
        doc=doc,
        value_type=value_type,
        defined_by_spark=defined_by_spark,
        unsupported={
            "stream": stream_policy,
            "continuous": UnsupportedPolicy(reason=_NO_END_CONTINUOUS, reject=stream_policy.reject),
            **unsupported_in_params(_USE_STRATEGY),
        },
    )


def _source_option(
    name: str,
    field: str,
    doc: str,
    default: str | None = None,
    *,
    value_type: ValueType = ValueType.INTEGER,
    role: Role = "plan",
    low: int = 1,
    high: int = MAX_INT32,
    apis: tuple[Api, ...] = SOURCE_APIS,
    value_format: ValueFormat | None = None,
    defined_by_spark: bool = True,
    unsupported: Mapping[Api | Literal["*"], UnsupportedPolicy],
) -> ConfigOption:
    """Define an option of the source; ``low`` and ``high`` apply to integers only."""
    is_integer = value_type is ValueType.INTEGER
    return ConfigOption(
        name=name,
        role=role,
        apis=same_default(apis, default),
        doc=doc,
        value_type=value_type,
        field=field,
        low=low if is_integer else None,
        high=high if is_integer else None,
        value_format=value_format,
        defined_by_spark=defined_by_spark,
        unsupported=unsupported,
    )


SOURCE_OPTIONS: Final = (
    _selection_option(
        "assign",
        'Topic-partitions to read: `{"topicA":[0,1],"topicB":[2]}`. Exactly one of `assign`, `subscribe` and '
        "`subscribePattern` must be given.",
        ValueType.JSON,
    ),
    _selection_option("subscribe", "Topics to read, separated by commas."),
    _selection_option(
        "subscribePattern",
        "Java regular expression for the topics to read. It matches any part of a name; use `^` and `$` for the whole "
        "name. Internal topics are never read.",
        verbatim=True,
    ),
    _start_option(
        "startingOffsets",
        "First offsets: `earliest`, or `latest` or `committed` (not in a batch), or JSON with every assigned "
        "partition, "
        '`{"topicA":{"0":23,"1":-2}}` (-2 is earliest, -1 is latest), or with a whole topic, `{"topicA":"earliest"}`. '
        "A stream uses it only for the first start of a query, and a planned first batch keeps its start if the option "
        "changes. It reads new partitions from their start. `committed` "
        "starts at the offsets that the group in `commitGroupId` or `kafka.group.id` has committed.",
        ValueType.JSON,
        "earliest",
        "latest",
        direct=False,
    ),
    _end_option(
        "endingOffsets",
        "Offsets to stop before: `latest`, or JSON as in `startingOffsets` (-1 is latest).",
        ValueType.JSON,
        "latest",
        stream_policy=_REJECTED_NO_END,
    ),
    _start_option(
        "startingTimestamp",
        "Milliseconds since 1970. Each partition starts at its first record with this timestamp or a later one. Takes "
        "precedence over the next two options and `startingOffsets`.",
        ValueType.TIMESTAMP,
    ),
    _start_option(
        "startingOffsetsByTimestamp",
        'The same for each partition: `{"topicA":{"0":1700000000000}}`. Takes precedence over `startingOffsets`.',
        ValueType.JSON,
    ),
    _start_option(
        "startingOffsetsByTimestampStrategy",
        "What to do if all records of a partition are older than the starting timestamp: `error`, or `latest` to start "
        "at its end.",
        ValueType.ENUM,
        "error",
    ),
    _end_option(
        "endingTimestamp",
        "Milliseconds since 1970. Each partition stops before its first record with this timestamp or a later one, or "
        "at its latest offset if there is none. Takes precedence over the next option and `endingOffsets`.",
        ValueType.TIMESTAMP,
        stream_policy=_NO_END,  # Spark does not reject it either
    ),
    _end_option(
        "endingOffsetsByTimestamp",
        "The same for each partition. Takes precedence over `endingOffsets`.",
        ValueType.JSON,
        stream_policy=_REJECTED_NO_END,
    ),
    _end_option(
        "offsetRanges",
        'The exact ranges to read: `[{"topic":"t","partition":0,"fromOffset":5,"untilOffset":9}]`. A partition can '
        'have several ranges. With `"topicId"`, reading from a topic with another id is data loss. Cannot be combined '
        "with other options that select topics or offsets.",
        ValueType.JSON,
        stream_policy=_REJECTED_NO_END,
        defined_by_spark=False,
    ),
    _source_option(
        "failOnDataLoss",
        "fail_on_data_loss",
        "Whether to fail if requested records are lost (expired, or the topic was deleted or recreated). `false` logs "
        "a warning and reads the remaining records.",
        "true",
        value_type=ValueType.BOOLEAN,
        apis=READ_APIS,
        unsupported={"log": _LOG_RESUMES, "*": READS_ONLY},
    ),
    _source_option(
        "commitGroupId",
        "commit_group_id",
        "Consumer group to commit the next offsets for after each completed micro-batch or epoch, so that lag "
        "monitoring tools show the query. A failed commit only causes a warning. Use a separate group for each query.",
        value_type=ValueType.STRING,
        role="group",
        apis=("stream", *CONTINUOUS_API),
        value_format=_GROUP_NAME,
        defined_by_spark=False,
        unsupported={"batch": MICRO_BATCH_ONLY, **unsupported_in_params(_USE_COMMIT_ASYNC)},
    ),
    ConfigOption(
        name="committedOffsetsFallback",
        role="group",
        apis=same_default(("stream", *CONTINUOUS_API), "error"),
        doc="With `startingOffsets=committed`: where partitions without a committed offset start: `earliest`, `latest` "
        "or `error`.",
        value_type=ValueType.ENUM,
        allowed=("error", "earliest", "latest"),
        unsupported={
            "batch": MICRO_BATCH_ONLY,
            **unsupported_in_params(UnsupportedPolicy(reason="set auto.offset.reset instead")),
        },
    ),
    _source_option(
        "minPartitions",
        "min_partitions",
        "Approximate minimum number of tasks. Large offset ranges are split accordingly.",
        apis=RANGE_APIS,
        unsupported={"continuous": _TASKS_MAX, **unsupported_in_params(_ONE_TASK)},
    ),
    _source_option(
        "maxRecordsPerPartition",
        "max_records_per_partition",
        "Maximum number of offsets of a task.",
        high=MAX_OFFSET,
        apis=RANGE_APIS,
        unsupported={"continuous": _TASKS_MAX, **unsupported_in_params(_ONE_TASK)},
    ),
    _source_option(
        "maxRecordBatchBytes",
        "max_record_batch_bytes",
        "Maximum size in bytes of a decompressed record batch, and of a record; a larger one fails the query. If "
        "headers are read, their bytes count three times, plus 12 bytes for each header. The default, 128 MiB, is 128 "
        "times the default of a topic's `max.message.bytes`, which limits the compressed batch, and fits into Spark's "
        "smallest memory overhead of an executor (384 MiB). Raise it for topics with larger records. Lower it if "
        "Python workers have little memory: beside its fetch responses, a task needs a few MiB and the size of its "
        "largest record.",
        str(DEFAULT_MAX_RECORD_BATCH_BYTES),
        role="fetch",
        apis=FETCH_APIS,
        defined_by_spark=False,
        unsupported={"*": READS_ONLY},
    ),
    _source_option(
        "includeHeaders",
        "include_headers",
        "Whether to add the column `headers`.",
        "false",
        value_type=ValueType.BOOLEAN,
        unsupported=unsupported_in_params(UnsupportedPolicy(reason="records always have their headers")),
    ),
    _source_option(
        "pushDownFilters",
        "push_down_filters",
        "Whether filters on `partition`, `offset` and `timestamp` restrict the offsets that are read. Requires "
        "`spark.sql.python.filterPushdown.enabled=true`. Call `load()` for each query: Spark plans each `load()` once, "
        "so another filter on the same DataFrame would silently return the rows of the first filter.",
        "false",
        value_type=ValueType.BOOLEAN,
        apis=("batch",),
        defined_by_spark=False,
        unsupported={
            "stream": UnsupportedPolicy(reason="Spark does not push filters down into streams"),
            "continuous": UnsupportedPolicy(reason="filter records in the function of the query"),
            **unsupported_in_params(UnsupportedPolicy(reason="filter records with a Python function")),
        },
    ),
    ConfigOption(
        name="kafkaConsumer.pollTimeoutMs",
        role="fetch",
        apis={**same_default(RANGE_APIS, "120000"), **same_default(PARAMS_APIS)},
        doc="How long a task waits for records that must exist.",
        value_type=ValueType.INTEGER,
        field="poll_timeout_ms",
        low=1,
        high=MAX_OFFSET,
        defined_by_spark=True,
        unsupported={
            "continuous": UnsupportedPolicy(reason="a continuous query waits for records until it stops"),
            "log": DATA_SOURCE_ONLY,
            "*": READS_ONLY,
        },
    ),
    _source_option(
        "fetchOffset.numRetries",
        "offset_fetch_attempts",
        "Maximum attempts to fetch offsets. By default, attempts are limited by `kafka.default.api.timeout.ms` (60 s), "
        "which covers the restart of a broker; Spark's own source fails after 3 attempts. In a stream, also the number "
        "of responses (3 by default) that must confirm that a partition was deleted or that its end offset decreased.",
        unsupported=unsupported_in_params(_USE_API_TIMEOUT),
    ),
    _source_option(
        "fetchOffset.retryIntervalMs",
        "offset_fetch_retry_interval_ms",
        "Delay between two attempts. By default, it grows from `kafka.retry.backoff.ms`, and is one second while a "
        "loss is being confirmed.",
        low=0,
        high=MAX_OFFSET,
        unsupported=unsupported_in_params(_USE_API_TIMEOUT),
    ),
    _source_option(
        "oauthTokenProvider",
        "oauth_token_provider",
        "`module:factory` that returns a provider of OAUTHBEARER tokens. It is imported on the driver and the "
        "executors, and must be listed in `PYSPARK_KAFKA_DIRECT_TOKEN_PROVIDERS` in the environment of the driver.",
        value_type=ValueType.STRING,
        role="connect",
        apis=CONNECTION_APIS,
        value_format=_PROVIDER,
        defined_by_spark=False,
        unsupported={},
    ),
    _source_option(
        "rackEnvironmentVariable",
        "rack_environment_variable",
        "Environment variable with the rack of an executor, to fetch from the closest replica (KIP-392). The value is "
        "sent to the brokers, so it must be at most 64 letters, digits and `._-`, and the name must not look like that "
        "of a secret.",
        value_type=ValueType.STRING,
        role="fetch",
        apis=(*RANGE_APIS, *PARAMS_APIS),
        value_format=_RACK_VARIABLE,
        defined_by_spark=False,
        unsupported={"continuous": READS_FROM_LEADERS, "log": DATA_SOURCE_ONLY, "*": READS_ONLY},
    ),
    ConfigOption(
        name="groupIdPrefix",
        role="group",
        apis={},
        defined_by_spark=True,
        unsupported={
            **dict.fromkeys(
                READ_APIS, UnsupportedPolicy(reason="reads by partition and offset need no consumer group")
            ),
            "log": DATA_SOURCE_ONLY,
            "*": READS_ONLY,
        },
    ),
)
