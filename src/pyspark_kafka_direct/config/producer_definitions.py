"""Client settings of producers, and the data source options for writing.

Names, defaults and ranges are those of Kafka 4.3's ``ProducerConfig``, except the size of a record batch. Aliases are
librdkafka's. Spark's ``KafkaSourceProvider`` rejects the same settings.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark_kafka_direct.config.config_option import (
    DATA_SOURCE_ONLY,
    LOG_API,
    MAX_INT64,
    SINK_API,
    WRITES_ONLY,
    ConfigOption,
    UnsupportedPolicy,
    ValueFormat,
    ValueType,
    producer_option,
    same_default,
    unsupported_producer_options,
)

_MAX_BATCH_BYTES: Final = 1 << 30
_NO_TRANSACTIONS: Final = "a log writes without transactions, and an offset store configures its own"
_BYTE_ARRAY_SERIALIZERS: Final = ("ByteArraySerializer", "*.ByteArraySerializer")

_APPLIED: Final = (
    producer_option(
        "acks",
        "all",
        "Which acknowledgements a write requires: `all` (or `-1`) in-sync replicas, the leader (`1`) or none (`0`). "
        "`1` and `0` disable idempotence, and records can be lost.",
        "request.required.acks",
        value_type=ValueType.ENUM,
        allowed=("all", "-1", "1", "0"),
    ),
    producer_option(
        "enable.idempotence",
        "true",
        "Whether a retried request writes no duplicates. Requires acks=all.",
        value_type=ValueType.BOOLEAN,
    ),
    producer_option(
        "compression.type",
        "none",
        "Compression of record batches: `none`, `gzip`, `snappy`, `lz4` or `zstd`.",
        "compression.codec",
        field="codec",
        value_type=ValueType.ENUM,
        allowed=("none", "gzip", "snappy", "lz4", "zstd"),
    ),
    producer_option("compression.gzip.level", None, "Level of gzip. -1 is the default of gzip.", low=-1, high=9),
    producer_option("compression.lz4.level", None, "Level of lz4.", high=17),
    producer_option("compression.zstd.level", 1, "Level of zstd (3 in the Java client).", low=-131_072, high=22),
    producer_option(
        "compression.level",
        None,
        "Level of the compression in use, unless its own setting is given. -1 is the default of the compression.",
        low=-131_072,
        high=22,
    ),
    producer_option(
        "batch.size",
        524_288,
        "Approximate size of a record batch before compression, in bytes (16 KiB in the Java client).",
        field="batch_bytes",
        high=_MAX_BATCH_BYTES,
    ),
    producer_option(
        "buffer.memory",
        33_554_432,
        "Maximum bytes of unacknowledged records of a task or a log.",
        field="buffer_bytes",
        high=MAX_INT64,
    ),
    producer_option(
        "max.request.size",
        1_048_576,
        "Maximum bytes of a request, and of a record before compression. The topic's max.message.bytes is a further "
        "limit.",
        "message.max.bytes",
        field="max_request_bytes",
        high=_MAX_BATCH_BYTES,
    ),
    producer_option(
        "delivery.timeout.ms",
        120_000,
        "Time in ms after which an unacknowledged record batch fails, and with it its task.",
        "message.timeout.ms",
        field="delivery_timeout_ms",
    ),
    producer_option(
        "max.in.flight.requests.per.connection",
        5,
        "Maximum requests in flight to one broker, at most 5 with idempotence. The order of records in a partition is "
        "always kept.",
        field="max_in_flight",
    ),
    producer_option(
        "partitioner.ignore.keys",
        "false",
        "Whether the choice of a partition ignores the key.",
        field="ignore_keys",
        value_type=ValueType.BOOLEAN,
    ),
    producer_option(
        "transaction.timeout.ms",
        60_000,
        "With `deliveryGuarantee=exactly-once`: brokers abort transactions that stay open for longer, in ms.",
        field="transaction_timeout_ms",
        log_policy=UnsupportedPolicy(reason=_NO_TRANSACTIONS),
    ),
)

PRODUCER_OPTIONS: Final = (
    *_APPLIED,
    *(
        ConfigOption(
            name=f"{part}.serializer",
            role="produce",
            apis={},
            client=True,
            unsupported={
                **dict.fromkeys(
                    SINK_API,
                    UnsupportedPolicy(
                        reason="keys and values are written as string or binary; serialize them with DataFrame "
                        "operations, for example to_json(struct('*'))",
                        reject=True,
                    ),
                ),
                **dict.fromkeys(
                    LOG_API,
                    UnsupportedPolicy(
                        reason=f"the {part}s of a log are bytes", reject=True, accepted_values=_BYTE_ARRAY_SERIALIZERS
                    ),
                ),
                "*": WRITES_ONLY,
            },
        )
        for part in ("key", "value")
    ),
    *unsupported_producer_options(
        "set deliveryGuarantee to exactly-once, and transactionalIdPrefix",
        "transactional.id",
        reject=True,
        log_reason=_NO_TRANSACTIONS,
    ),
    *unsupported_producer_options(
        "Java classes cannot run here. Partitions are chosen like in Java's default partitioner; for any other choice, "
        "add the column partition, or replace UniformStickyPartitioner by kafka.partitioner.ignore.keys",
        "partitioner.class",
        reject=True,
        accepted_values=("org.apache.kafka.clients.producer.internals.DefaultPartitioner",),
        log_reason="Java classes cannot run here. Partitions are chosen like in Java's default partitioner",
    ),
    *unsupported_producer_options(
        "each transaction ends with its batch",
        "transaction.two.phase.commit.enable",
        reject=True,
        accepted_values=("false",),
        log_reason=_NO_TRANSACTIONS,
    ),
    *unsupported_producer_options(
        "a record batch is sent when it is full or at the end of the task, so lingering has no use",
        "linger.ms",
        "queue.buffering.max.ms",
        "sticky.partitioning.linger.ms",
        log_reason="records are sent immediately; records that arrive while requests are in flight share record "
        "batches",
    ),
    *unsupported_producer_options(
        "transient errors are retried until kafka.delivery.timeout.ms expires",
        "retries",
        "message.send.max.retries",
        accepted_values=("2147483647",),
    ),
    *unsupported_producer_options(
        "kafka.batch.size and kafka.buffer.memory limit the buffered bytes",
        "batch.num.messages",
        "queue.buffering.max.messages",
        "queue.buffering.max.kbytes",
    ),
    *unsupported_producer_options(
        "kafka.default.api.timeout.ms limits metadata requests, and kafka.delivery.timeout.ms limits writes",
        "max.block.ms",
    ),
    *unsupported_producer_options(
        "each task fetches the metadata of the topics that it writes to",
        "metadata.max.idle.ms",
        log_reason="a log writes to one topic, which is never idle",
    ),
    *unsupported_producer_options(
        "rows without a key go to one partition for 16 KiB, or for a smaller batch.size",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        log_reason="records without a key go to one partition until its record batch is full",
    ),
    *unsupported_producer_options(
        "a failed task is rerun with all of its rows",
        "enable.gapless.guarantee",
        log_reason="the future of each record reports whether it was written",
    ),
)

_TOPIC: Final = ValueFormat(
    re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}"), "a topic name: letters, digits, `.`, `_` and `-`"
)
_NON_EMPTY: Final = ValueFormat(re.compile(r".*\S.*", re.DOTALL), "a non-empty string")
_USE_SUBSCRIBE: Final = UnsupportedPolicy(reason="it names the topic to write to; to read a topic, set subscribe")


def _sink_option(
    name: str,
    doc: str,
    field: str,
    default: str | None = None,
    *,
    value_type: ValueType = ValueType.STRING,
    value_format: ValueFormat | None = None,
    allowed: tuple[str, ...] = (),
    defined_by_spark: bool = False,
    unsupported: UnsupportedPolicy = WRITES_ONLY,
) -> ConfigOption:
    is_integer = value_type is ValueType.INTEGER
    return ConfigOption(
        name=name,
        role="produce",
        apis=same_default(SINK_API, default),
        doc=doc,
        value_type=value_type,
        field=field,
        low=0 if is_integer else None,
        high=MAX_INT64 if is_integer else None,
        value_format=value_format,
        allowed=allowed,
        defined_by_spark=defined_by_spark,
        unsupported={"log": DATA_SOURCE_ONLY, "*": unsupported},
    )


SINK_OPTIONS: Final = (
    _sink_option(
        "topic",
        "The topic to write to. It takes precedence over the column `topic`, which is required otherwise.",
        "topic",
        value_format=_TOPIC,
        defined_by_spark=True,
        unsupported=_USE_SUBSCRIBE,
    ),
    _sink_option(
        "deliveryGuarantee",
        "`at-least-once`: rerun tasks write their rows again. `exactly-once`: each batch is written in one "
        "transaction, and never twice; in a continuous query, each task writes one transaction per epoch.",
        "delivery_guarantee",
        "at-least-once",
        value_type=ValueType.ENUM,
        allowed=("at-least-once", "exactly-once"),
    ),
    _sink_option(
        "transactionalIdPrefix",
        "Required with `deliveryGuarantee=exactly-once`. A name for this query, which stays the same at every start "
        "and is unique in the cluster. The transactional id is the prefix followed by `.sink`. A continuous query uses "
        "the prefix, `.cont.` and the number of the task.",
        "transactional_id_prefix",
        value_format=_NON_EMPTY,
    ),
    _sink_option(
        "sinkStateTopic",
        "With `deliveryGuarantee=exactly-once`: the compacted topic that stores the last committed batch of each "
        "`transactionalIdPrefix`. It is created if it does not exist.",
        "sink_state_topic",
        "pyspark-kafka-direct-sink-state",
        value_format=_TOPIC,
    ),
    _sink_option(
        "resetTransactionState",
        "With `deliveryGuarantee=exactly-once`: the token from an error message, to continue in spite of that error. "
        "It is valid for that error only.",
        "reset_transaction_state",
        value_format=_NON_EMPTY,
    ),
    _sink_option(
        "jobId",
        "With `deliveryGuarantee=exactly-once`, in a batch query: an id of this write. If the write is submitted "
        "again, it writes nothing twice. By default, each write has a new "
        "id.",
        "job_id",
        value_format=_NON_EMPTY,
    ),
    _sink_option(
        "stagingLocation",
        "With `deliveryGuarantee=exactly-once`: where a task stores its output if it is larger than "
        "`stagingThreshold`: the path or URI of a folder that the driver and the executors share and that pyarrow can "
        "open. By default, the folder `kafka-direct-staging` in the checkpoint, or else a temporary folder of the "
        "driver's host, which the executors must share, too.",
        "staging_location",
        value_format=_NON_EMPTY,
    ),
    _sink_option(
        "stagingThreshold",
        "With `deliveryGuarantee=exactly-once`: up to this size in bytes, the output of a task is sent through the "
        "driver; see `spark.driver.maxResultSize`.",
        "staging_threshold",
        "262144",
        value_type=ValueType.INTEGER,
    ),
    _sink_option(
        "stampBatch",
        "Whether to add headers with the query, batch, partition and attempt that wrote a record. They cannot be used "
        "to remove duplicates, because a rerun may distribute rows differently.",
        "stamp_batch",
        "false",
        value_type=ValueType.BOOLEAN,
    ),
)
