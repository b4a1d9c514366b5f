"""Client settings of fetching and of consumer groups (sources: see ``connection_definitions``)."""

from __future__ import annotations

from typing import Final

from pyspark_kafka_direct.config.config_option import (
    CONTINUOUS_API,
    LOG_API,
    PARAMS_APIS,
    RANGE_APIS,
    READS_ONLY,
    SOURCE_APIS,
    Api,
    ConfigOption,
    UnsupportedPolicy,
    ValueType,
    fetch_option,
    ignored_options,
    rejected_option,
    same_default,
)

NO_GROUP_REASON: Final = "records are read by partition and offset, without a consumer group"

READS_FROM_LEADERS: Final = UnsupportedPolicy(
    reason="a continuous query reads from partition leaders, because followers receive new records later"
)

_NO_COMMITTED_OFFSETS: Final = "a log is always read from its start, so it commits no offsets"
_NO_APIS: Final[dict[Api, str | None]] = {}
_BYTE_ARRAY_DESERIALIZERS: Final = ("ByteArrayDeserializer", "*.ByteArrayDeserializer")

_FETCH: Final = (
    fetch_option(
        "isolation.level",
        "read_uncommitted",
        "`read_uncommitted`, or `read_committed` to skip records of aborted and open transactions.",
        field="isolation_level",
        value_type=ValueType.ENUM,
        allowed=("read_uncommitted", "read_committed"),
    ),
    fetch_option(
        "client.rack",
        "",
        "Rack of the reader, to fetch from the closest replica (KIP-392).",
        field="client_rack",
        value_type=ValueType.STRING,
        unsupported={
            "continuous": READS_FROM_LEADERS,
            "log": UnsupportedPolicy(reason="a log reads from partition leaders"),
        },
    ),
    fetch_option(
        "fetch.min.bytes",
        1,
        "Minimum size of a fetch response in bytes, unless fetch.max.wait.ms expires first.",
        field="fetch_min_bytes",
    ),
    fetch_option(
        "fetch.max.wait.ms",
        500,
        "Maximum time that a broker waits for fetch.min.bytes, in ms.",
        "fetch.wait.max.ms",
        field="fetch_max_wait_ms",
    ),
    fetch_option(
        "fetch.max.bytes",
        52_428_800,
        "Maximum size of a fetch response in bytes. A single record batch that is larger is still returned.",
        field="fetch_max_bytes",
    ),
    fetch_option(
        "max.partition.fetch.bytes",
        4_194_304,  # measured: 5 to 10 % faster than the Java client's 1 MiB, for records of 100 B and of 1 KiB
        "Maximum bytes of one partition in a fetch response (1 MiB in the Java client). A single record batch that is "
        "larger is still returned.",
        "fetch.message.max.bytes",
        field="max_partition_fetch_bytes",
    ),
    fetch_option(
        "check.crcs",
        "true",
        "Whether to verify the CRC-32C checksum of each record batch.",
        field="check_crcs",
        value_type=ValueType.BOOLEAN,
    ),
    ConfigOption(
        name="allow.auto.create.topics",
        role="fetch",
        apis=_NO_APIS,
        client=True,
        aliases=("allow.auto.create.topic",),
        unsupported={
            "*": UnsupportedPolicy(reason="reads never create topics", accepted_values=("false",)),
            "sink": UnsupportedPolicy(reason="writes never create topics", accepted_values=("false",)),
            "log": UnsupportedPolicy(
                reason="pass create=... to the log to create a compacted topic", accepted_values=("false",)
            ),
        },
    ),
    *ignored_options(
        "fetch",
        "subscribePattern never matches internal topics; to read one, name it in subscribe or assign",
        "exclude.internal.topics",
        accepted_values=("true",),
        log_reason="a log reads one topic, which can be internal",
    ),
    *ignored_options(
        "fetch",
        "there is no poll loop; each task fetches its offset range in Arrow batches",
        "max.poll.records",
        "max.poll.interval.ms",
        "queued.min.messages",
        "queued.max.messages.kbytes",
        "fetch.queue.backoff.ms",
        "fetch.error.backoff.ms",
        "consume.callback.max.messages",
        "enable.partition.eof",
        log_reason="there is no poll loop; records arrive in Arrow batches as the brokers return them",
        continuous_reason="there is no poll loop; records arrive in Arrow batches as the brokers return them",
    ),
    rejected_option(
        "fetch",
        "interceptor.classes",
        "Java interceptors cannot run here; use DataFrame operations instead",
        log_reason="Java interceptors cannot run here; remove the parameter",
    ),
    *(
        ConfigOption(
            name=f"{part}.deserializer",
            role="fetch",
            apis=_NO_APIS,
            client=True,
            unsupported={
                "*": READS_ONLY,
                "continuous": UnsupportedPolicy(
                    reason=f"{part}s are binary; decode them in the function of the query", reject=True
                ),
                **dict.fromkeys(
                    RANGE_APIS,
                    UnsupportedPolicy(
                        reason=f"{part}s are binary; deserialize them with DataFrame operations, for example "
                        f"{part}.cast('string')",
                        reject=True,
                    ),
                ),
                **dict.fromkeys(
                    PARAMS_APIS,
                    UnsupportedPolicy(
                        reason="Java deserializers cannot run here. Keys and values are bytes unless you pass a Python "
                        f"function as {part}Decoder, for example {part}Decoder=bytes.decode for strings",
                        accepted_values=_BYTE_ARRAY_DESERIALIZERS,
                    ),
                ),
                **dict.fromkeys(
                    LOG_API,
                    UnsupportedPolicy(
                        reason=f"the {part}s of a log are bytes", reject=True, accepted_values=_BYTE_ARRAY_DESERIALIZERS
                    ),
                ),
            },
        )
        for part in ("key", "value")
    ),
)

_GROUP: Final = (
    ConfigOption(
        name="group.id",
        role="group",
        apis=same_default((*PARAMS_APIS, "stream", *CONTINUOUS_API)),
        doc="The consumer group whose committed offsets are read, and for which commitAsync and commitSync commit. A "
        "stream of the data source and a continuous query use it only with `startingOffsets=committed`. Readers do "
        "not join the group.",
        field="group_id",
        client=True,
        unsupported={
            "batch": UnsupportedPolicy(reason=NO_GROUP_REASON),
            "log": UnsupportedPolicy(reason=NO_GROUP_REASON),
            "*": READS_ONLY,
        },
    ),
    ConfigOption(
        name="auto.offset.reset",
        role="group",
        apis=same_default(PARAMS_APIS, "latest"),
        doc="Where a partition starts that has neither a given nor a committed offset: `earliest`, `latest` or `none`, "
        "which is an error. Tasks never reset offsets.",
        client=True,
        aliases=("topic.auto.offset.reset",),
        unsupported={
            "*": READS_ONLY,
            "log": UnsupportedPolicy(
                reason="a log is always read from its start", reject=True, accepted_values=("earliest",)
            ),
            **dict.fromkeys(
                SOURCE_APIS,
                UnsupportedPolicy(
                    reason="set startingOffsets to earliest or latest instead; the client never resets offsets because "
                    "Spark manages them",
                    reject=True,
                ),
            ),
        },
    ),
    ConfigOption(
        name="enable.auto.commit",
        role="group",
        apis=same_default(PARAMS_APIS, "false"),
        doc="Always false, as in Spark; `true` causes a warning. Only commitAsync and commitSync commit offsets.",
        value_type=ValueType.BOOLEAN,
        client=True,
        aliases=("auto.commit.enable",),
        unsupported={
            "*": READS_ONLY,
            "log": UnsupportedPolicy(reason=_NO_COMMITTED_OFFSETS, accepted_values=("false",)),
            **dict.fromkeys(
                SOURCE_APIS,
                UnsupportedPolicy(
                    reason="reads commit no offsets to Kafka because Spark manages them; remove the option",
                    reject=True,
                ),
            ),
        },
    ),
    *ignored_options(
        "group",
        NO_GROUP_REASON,
        "group.instance.id",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "partition.assignment.strategy",
        "internal.leave.group.on.close",
        "coordinator.query.interval.ms",
        "share.acknowledgement.mode",
        "share.acquire.mode",
    ),
    *ignored_options(
        "group",
        "Spark manages the offsets, not the client",
        "auto.commit.interval.ms",
        "enable.auto.offset.store",
        "offset.store.method",
        "offset.store.path",
        "offset.store.sync.interval.ms",
        log_reason=_NO_COMMITTED_OFFSETS,
    ),
)

CONSUMER_OPTIONS: Final = (*_FETCH, *_GROUP)
