"""Client settings of writing.

Names, defaults and ranges are those of Kafka 4.3's ``ProducerConfig``, but for the size of a record batch; aliases are
librdkafka's. Refusals follow Spark's ``KafkaSourceProvider``.
"""

from __future__ import annotations

from typing import Final

from pyspark_kafka_direct.settings._rows import FOR_WRITING, not_producing, producing
from pyspark_kafka_direct.settings.row import INT64, LOG, WRITING, Fate, Kind, Setting

_LARGEST_BATCH: Final = 1 << 30
_NO_TRANSACTIONS: Final = "a log writes without transactions, and an offset store makes its own"
_BYTES: Final = ("ByteArraySerializer", "*.ByteArraySerializer")

_APPLIED: Final = (
    producing(
        "acks",
        "all",
        "Whose acknowledgement counts: `all` (also `-1`) replicas in sync, `1` the leader's, `0` nobody's. With `1` "
        "and `0` there is no idempotence, and records can be lost.",
        "request.required.acks",
        kind=Kind.WORD,
        allowed=("all", "-1", "1", "0"),
    ),
    producing(
        "enable.idempotence",
        "true",
        "a request that is sent again writes nothing twice; needs acks=all",
        kind=Kind.FLAG,
    ),
    producing(
        "compression.type",
        "none",
        "how record batches are compressed",
        "compression.codec",
        field="codec",
        kind=Kind.WORD,
        allowed=("none", "gzip", "snappy", "lz4", "zstd"),
    ),
    producing("compression.gzip.level", None, "gzip's level; -1 is its own default", low=-1, high=9),
    producing("compression.lz4.level", None, "lz4's level", high=17),
    producing("compression.zstd.level", None, "zstd's level", low=-131_072, high=22),
    producing(
        "compression.level",
        None,
        "the level of the compression there is, unless the setting named after that has it; -1 is its own default",
        low=-131_072,
        high=22,
    ),
    producing(
        "batch.size",
        524_288,
        "about how many bytes of records a record batch holds before it is compressed (16 KiB in the Java client)",
        field="batch_bytes",
        high=_LARGEST_BATCH,
    ),
    producing(
        "buffer.memory",
        33_554_432,
        "most bytes of records, of a task or a log, that are not acknowledged",
        field="buffer_bytes",
        high=INT64,
    ),
    producing(
        "max.request.size",
        1_048_576,
        "most bytes of a request, and of a record before it is compressed; the topic's max.message.bytes limits them "
        "too",
        "message.max.bytes",
        field="max_request_bytes",
        high=_LARGEST_BATCH,
    ),
    producing(
        "delivery.timeout.ms",
        120_000,
        "a record batch that was not acknowledged for so long fails, and with it the task, in ms",
        "message.timeout.ms",
        field="delivery_timeout_ms",
    ),
    producing(
        "max.in.flight.requests.per.connection",
        5,
        "most requests under way to one broker; at most 5 with idempotence. The order of a partition is kept either "
        "way",
        field="max_in_flight",
    ),
    producing(
        "partitioner.ignore.keys",
        "false",
        "spread records with a key as if they had none",
        field="ignore_keys",
        kind=Kind.FLAG,
    ),
    producing(
        "transaction.timeout.ms",
        60_000,
        "with `delivery=exactly-once`: the broker aborts a transaction that is open for so long, in ms",
        field="transaction_timeout_ms",
        log=Fate(why=_NO_TRANSACTIONS),
    ),
)

PRODUCE_ROWS: Final = (
    *_APPLIED,
    *(
        Setting(
            name=f"{part}.serializer",
            role="produce",
            doors={},
            client=True,
            elsewhere={
                **dict.fromkeys(
                    WRITING,
                    Fate(
                        why="keys and values are written as they are, string or binary; serialize them with DataFrame "
                        "operations, for example to_json(struct('*'))",
                        refuse=True,
                    ),
                ),
                **dict.fromkeys(LOG, Fate(why=f"{part}s of a log are bytes", refuse=True, harmless=_BYTES)),
                "*": FOR_WRITING,
            },
        )
        for part in ("key", "value")
    ),
    *not_producing(
        "set delivery to exactly-once and give a transactionalIdPrefix",
        "transactional.id",
        refuse=True,
        log=_NO_TRANSACTIONS,
    ),
    *not_producing(
        "a Java class cannot run here. Keys are spread as Java's own partitioner does; give any other choice in the "
        "column partition, or set kafka.partitioner.ignore.keys in place of UniformStickyPartitioner",
        "partitioner.class",
        refuse=True,
        harmless=("org.apache.kafka.clients.producer.internals.DefaultPartitioner",),
        log="a Java class cannot run here. Keys are spread as Java's own partitioner does",
    ),
    *not_producing(
        "a transaction ends with its batch",
        "transaction.two.phase.commit.enable",
        refuse=True,
        harmless=("false",),
        log=_NO_TRANSACTIONS,
    ),
    *not_producing(
        "a record batch is sent when it is full or its task's rows have ended; waiting for more would gain nothing",
        "linger.ms",
        "queue.buffering.max.ms",
        "sticky.partitioning.linger.ms",
        log="records are sent at once; those that come while requests are under way share record batches",
    ),
    *not_producing(
        "what can be tried again is, until kafka.delivery.timeout.ms has passed",
        "retries",
        "message.send.max.retries",
        harmless=("2147483647",),
    ),
    *not_producing(
        "kafka.batch.size and kafka.buffer.memory limit what waits, in bytes",
        "batch.num.messages",
        "queue.buffering.max.messages",
        "queue.buffering.max.kbytes",
    ),
    *not_producing(
        "kafka.default.api.timeout.ms limits look-ups and kafka.delivery.timeout.ms the rest",
        "max.block.ms",
    ),
    *not_producing(
        "a topic is looked up by the task that writes to it",
        "metadata.max.idle.ms",
        log="a log has one topic, which is never idle",
    ),
    *not_producing(
        "a record without a key goes where the one before it went until that record batch is full",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
    ),
    *not_producing(
        "a task that fails leaves no gaps in what it has to write again",
        "enable.gapless.guarantee",
        log="each record's receipt tells whether it was written",
    ),
)
