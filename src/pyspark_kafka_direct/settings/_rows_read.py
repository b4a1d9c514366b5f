"""Client settings of fetching and of consumer groups."""

from __future__ import annotations

from typing import Final

from pyspark_kafka_direct.settings._rows import FOR_READING, fetching, ignored, refused
from pyspark_kafka_direct.settings.row import CONTINUOUS, LOG, PARAMETERS, RANGES, SOURCE, Door, Fate, Kind, Setting, at

NO_GROUP: Final = "records are read by partition and offset, without a consumer group"

FROM_LEADERS: Final = Fate(why="a continuous query reads from the leaders: followers learn late what is new")

_NO_OFFSETS: Final = "a log is always read from its beginning, so no offsets are kept"
_NOWHERE: Final[dict[Door, str | None]] = {}
_BYTES: Final = ("ByteArrayDeserializer", "*.ByteArrayDeserializer")

_FETCH: Final = (
    fetching(
        "isolation.level",
        "read_uncommitted",
        "read_committed hides records of aborted and open transactions",
        field="isolation_level",
        kind=Kind.WORD,
        allowed=("read_uncommitted", "read_committed"),
    ),
    fetching(
        "client.rack",
        "",
        "rack of the reader, for fetching from a near replica (KIP-392)",
        field="client_rack",
        kind=Kind.TEXT,
        elsewhere={
            "continuous": FROM_LEADERS,
            "log": Fate(why="a log is read from the leaders of its partitions"),
        },
    ),
    fetching(
        "fetch.min.bytes",
        1,
        "the broker waits until it has so many bytes, or for fetch.max.wait.ms",
        field="fetch_min_bytes",
    ),
    fetching(
        "fetch.max.wait.ms",
        500,
        "longest wait of the broker for fetch.min.bytes, in ms",
        "fetch.wait.max.ms",
        field="fetch_max_wait_ms",
    ),
    fetching(
        "fetch.max.bytes",
        52_428_800,
        "most bytes in one answer; a single larger batch still arrives",
        field="fetch_max_bytes",
    ),
    fetching(
        "max.partition.fetch.bytes",
        4_194_304,  # by measurement: 5 to 10 % faster than the Java client's 1 MiB, at 100 B as at 1 KiB
        "most bytes of one partition in one answer (1 MiB in the Java client); a single larger batch still arrives",
        "fetch.message.max.bytes",
        field="max_partition_fetch_bytes",
    ),
    fetching("check.crcs", "true", "verify the CRC-32C of each record batch", field="check_crcs", kind=Kind.FLAG),
    Setting(
        name="allow.auto.create.topics",
        role="fetch",
        doors=_NOWHERE,
        client=True,
        aliases=("allow.auto.create.topic",),
        elsewhere={
            "*": Fate(why="reading never creates a topic", harmless=("false",)),
            "sink": Fate(why="writing never creates a topic", harmless=("false",)),
            "log": Fate(why="give create=... to the log, which makes a compacted topic", harmless=("false",)),
        },
    ),
    *ignored(
        "fetch",
        "subscribePattern never matches internal topics; name one with subscribe or assign to read it",
        "exclude.internal.topics",
        harmless=("true",),
        log="a log has one topic, internal or not",
    ),
    *ignored(
        "fetch",
        "there is no poll loop: each task fetches exactly its offset range, in Arrow batches",
        "max.poll.records",
        "max.poll.interval.ms",
        "queued.min.messages",
        "queued.max.messages.kbytes",
        "fetch.queue.backoff.ms",
        "fetch.error.backoff.ms",
        "consume.callback.max.messages",
        "enable.partition.eof",
        log="a log's records come in Arrow batches, as the brokers answer",
        continuous="there is no poll loop: records come in Arrow batches, as the brokers answer",
    ),
    refused(
        "fetch",
        "interceptor.classes",
        "Java interceptors cannot run here and could break the query; use DataFrame operations instead",
        log="Java interceptors cannot run here; leave the parameter out",
    ),
    *(
        Setting(
            name=f"{part}.deserializer",
            role="fetch",
            doors=_NOWHERE,
            client=True,
            elsewhere={
                "*": FOR_READING,
                "continuous": Fate(why=f"{part}s arrive as binary; decode them in the query's function", refuse=True),
                **dict.fromkeys(
                    RANGES,
                    Fate(
                        why=f"{part}s arrive as binary; deserialize them with DataFrame operations, for example "
                        f"{part}.cast('string')",
                        refuse=True,
                    ),
                ),
                **dict.fromkeys(
                    PARAMETERS,
                    Fate(
                        why="there is no Java here. Keys and values are bytes, or what a Python function makes of "
                        f"them: give {part}Decoder=..., for example {part}Decoder=bytes.decode for texts",
                        harmless=_BYTES,
                    ),
                ),
                **dict.fromkeys(LOG, Fate(why=f"{part}s of a log are bytes", refuse=True, harmless=_BYTES)),
            },
        )
        for part in ("key", "value")
    ),
)

_GROUP: Final = (
    Setting(
        name="group.id",
        role="group",
        doors=at((*PARAMETERS, "stream", *CONTINUOUS)),
        about="The group whose committed offsets are looked up and for which commitAsync and commitSync commit. In a "
        "stream of the data source, and in a continuous query, only with `startingOffsets=committed`. Reading takes "
        "part in no group.",
        field="group_id",
        client=True,
        elsewhere={"batch": Fate(why=NO_GROUP), "log": Fate(why=NO_GROUP), "*": FOR_READING},
    ),
    Setting(
        name="auto.offset.reset",
        role="group",
        doors=at(PARAMETERS, "latest"),
        about="Where a partition begins that has neither a given nor a committed offset: `earliest`, `latest` or "
        "`none`, which refuses to start. A task never resets.",
        client=True,
        aliases=("topic.auto.offset.reset",),
        elsewhere={
            "*": FOR_READING,
            "log": Fate(why="a log is always read from its beginning", refuse=True, harmless=("earliest",)),
            **dict.fromkeys(
                SOURCE,
                Fate(
                    why="set startingOffsets to earliest or latest instead; positions are planned and kept by Spark, "
                    "never reset by the client",
                    refuse=True,
                ),
            ),
        },
    ),
    Setting(
        name="enable.auto.commit",
        role="group",
        doors=at(PARAMETERS, "false"),
        about="Always off, as in Spark; `true` brings a warning. Only commitAsync and commitSync commit.",
        kind=Kind.FLAG,
        client=True,
        aliases=("auto.commit.enable",),
        elsewhere={
            "*": FOR_READING,
            "log": Fate(why=_NO_OFFSETS, harmless=("false",)),
            **dict.fromkeys(
                SOURCE,
                Fate(
                    why="reading commits nothing to Kafka: Spark keeps the offsets; leave the option out", refuse=True
                ),
            ),
        },
    ),
    *ignored(
        "group",
        NO_GROUP,
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
    *ignored(
        "group",
        "offsets are kept by Spark, not by a client",
        "auto.commit.interval.ms",
        "enable.auto.offset.store",
        "offset.store.method",
        "offset.store.path",
        "offset.store.sync.interval.ms",
        log=_NO_OFFSETS,
    ),
)

READ_ROWS: Final = (*_FETCH, *_GROUP)
