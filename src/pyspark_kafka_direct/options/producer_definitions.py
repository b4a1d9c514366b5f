"""Client settings of producers, and the data source options for writing.

Names, defaults and ranges are those of Kafka 4.4's ``ProducerConfig``, except the size of a record batch. Aliases are
librdkafka's. Spark's ``KafkaSourceProvider`` rejects the same settings.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from pyspark_kafka_direct.options.config_option import (
    PRODUCER_APIS,
    READ_APIS,
    SINK_API,
    Api,
    ConfigOption,
    UnsupportedPolicy,
)
from pyspark_kafka_direct.options.value_types import (
    BOOLEAN,
    INT64,
    POSITIVE_INT32,
    POSITIVE_INT64,
    Enum,
    Integer,
    Text,
)

NO_TRANSACTIONS_OF_LOG_REASON: Final = "a log writes without transactions, and an offset store configures its own"

_BATCH_BYTES: Final = Integer(1, 1 << 30)
_ZSTD_LEVEL: Final = Integer(-131_072, 22)
_TOPIC: Final = Text(
    pattern=re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}"),
    expected="a topic name: letters, digits, `.`, `_` and `-`",
)
_NON_EMPTY: Final = Text(pattern=re.compile(r".*\S.*", re.DOTALL), expected="a non-empty string")
_USE_SUBSCRIBE: Final = UnsupportedPolicy("it names the topic to write to; to read a topic, set subscribe")

_NO_GUARANTEE_OF_READS: Final = UnsupportedPolicy(
    "it applies to writes only; without it there, a write is at-least-once", rejected_values=("exactly-once",)
)

_NO_TRANSACTIONS_OF_LOG: Final[dict[Api, UnsupportedPolicy]] = {"log": UnsupportedPolicy(NO_TRANSACTIONS_OF_LOG_REASON)}

_producer: Final = partial(ConfigOption, role="produce", apis=PRODUCER_APIS, is_client=True)
_sink: Final = partial(ConfigOption, role="produce", apis=SINK_API)

# A table, formatted by hand: a line for each option, and its documentation.
# fmt: off
PRODUCER_OPTIONS: Final = (
    _producer("acks", Enum(("all", "-1", "1", "0")), "all", aliases=("request.required.acks",), field="",
        changes_results=True,
        doc="Required acknowledgements: `all` (or `-1`) in-sync replicas, the leader (`1`) or none (`0`). With `1` "
            "and `0`, records can be lost or written twice."),
    _producer("enable.idempotence", BOOLEAN, "true", changes_results=True,
        doc="Whether a retried request writes no duplicates. Requires acks=all."),
    _producer("compression.type", Enum(("none", "gzip", "snappy", "lz4", "zstd")), "none",
        aliases=("compression.codec",), field="codec",
        doc="Compression of record batches."),
    _producer("compression.gzip.level", Integer(-1, 9), doc="Level of gzip. -1 is the default of gzip."),
    _producer("compression.lz4.level", Integer(1, 17), doc="Level of lz4."),
    _producer("compression.zstd.level", _ZSTD_LEVEL, "1", doc="Level of zstd (3 in the Java client)."),
    _producer("compression.level", _ZSTD_LEVEL,
        doc="Level of the compression in use, unless its own setting is given. -1 is its default."),
    _producer("batch.size", _BATCH_BYTES, "524288", field="batch_bytes",
        doc="Approximate size of a record batch before compression, in bytes (16 KiB in the Java client)."),
    _producer("buffer.memory", POSITIVE_INT64, "33554432", field="buffer_bytes",
        doc="Maximum bytes of unacknowledged records of a task or a log."),
    _producer("max.request.size", _BATCH_BYTES, "1048576",
        aliases=("message.max.bytes",), field="max_request_bytes",
        doc="Maximum bytes of a request, and of a record before compression."),
    _producer("delivery.timeout.ms", POSITIVE_INT32, "120000", aliases=("message.timeout.ms",),
        doc="Time in ms after which an unacknowledged record batch fails its task."),
    _producer("max.in.flight.requests.per.connection", POSITIVE_INT32, "5", field="max_in_flight",
        doc="Maximum requests in flight to one broker, at most 5 with idempotence."),
    _producer("partitioner.ignore.keys", BOOLEAN, "false", field="ignore_keys", changes_results=True,
        doc="Whether the choice of a partition ignores the key."),
    _producer("transaction.timeout.ms", POSITIVE_INT32, "60000", apis=SINK_API, unsupported=_NO_TRANSACTIONS_OF_LOG,
        doc="With `exactly-once`: time in ms after which brokers abort an open transaction."),
)

SINK_OPTIONS: Final = (
    _sink("topic", _TOPIC, defined_by_spark=True, unsupported=dict.fromkeys(READ_APIS, _USE_SUBSCRIBE),
        doc="The topic to write to. It takes precedence over the column `topic`, which is required otherwise."),
    _sink("deliveryGuarantee", Enum(("at-least-once", "exactly-once")), "at-least-once",
        unsupported=dict.fromkeys(READ_APIS, _NO_GUARANTEE_OF_READS),
        doc="`exactly-once` writes each batch in one transaction, and never twice. In a continuous query, each task "
            "writes one transaction per epoch. With `at-least-once`, rerun tasks write their rows again."),
    _sink("transactionalIdPrefix", _NON_EMPTY,
        doc="Required with `exactly-once`: a name for this query, which stays the same at every start and is unique "
            "in the cluster. [Transactional ids](sink.md#permissions) begin with it."),
    _sink("sinkStateTopic", _TOPIC, "pyspark-kafka-direct-sink-state",
        doc="With `exactly-once`: compacted topic for the last committed batch of each `transactionalIdPrefix`. It "
            "is created if it does not exist."),
    _sink("resetTransactionState", _NON_EMPTY,
        doc="With `exactly-once`: the token from an error message, to continue in spite of this error."),
    _sink("jobId", _NON_EMPTY,
        doc="With `exactly-once`: an id of a batch write. If the write is submitted again, it writes nothing twice."),
    _sink("stagingLocation", _NON_EMPTY,
        doc="With `exactly-once`: folder for output of a task above `stagingThreshold`. It is a path or URI that "
            "the driver and the executors share. See [where rows wait](sink.md#where-rows-wait)."),
    _sink("stagingThreshold", INT64, "262144",
        doc="With `exactly-once`: size in bytes up to which the output of a task is sent through the driver."),
    _sink("stampBatch", BOOLEAN, "false",
        doc="Whether to add [headers](sink.md#what-was-written) with the query, batch, partition and attempt that "
            "wrote a record. They do not identify duplicates."),
)
