"""Client settings about connections, requests, fetching and consumer groups: the first half of the table.

Names, defaults and ranges are those of Kafka 4.3's ``ConsumerConfig``, ``ProducerConfig`` and ``AdminClientConfig``;
aliases are librdkafka's (its CONFIGURATION.md). Refusals and their reasons follow Spark's ``KafkaSourceProvider``.
"""

from __future__ import annotations

from typing import Final

from pyspark_kafka_direct.wire._setting import Kind, Setting, Use, ignored, refused

_INT32: Final = 2**31 - 1
_INT64: Final = 2**63 - 1


def _number(
    name: str, default: int, about: str, *aliases: str, low: int = 0, high: int = _INT32, kind: Kind = Kind.INT
) -> Setting:
    return Setting(name, Use.APPLIED, about, kind, default, low=low, high=high, aliases=aliases)


CONNECTION: Final = (
    Setting(
        "bootstrap.servers",
        Use.APPLIED,
        "brokers to ask first, host:port separated by commas",
        Kind.LIST,
        aliases=("metadata.broker.list",),
    ),
    Setting("client.id", Use.APPLIED, "name shown in the broker's logs and quotas", default="pyspark-kafka-direct"),
    Setting("client.rack", Use.APPLIED, "rack of the reader, for fetching from a near replica (KIP-392)", default=""),
    Setting(
        "broker.address.family",
        Use.APPLIED,
        "IP versions to connect over",
        default="any",
        allowed=("any", "v4", "v6"),
    ),
    _number(
        "request.timeout.ms",
        30_000,
        "longest wait for one answer of a broker, in ms",
        "socket.timeout.ms",
        low=1,
    ),
    _number("default.api.timeout.ms", 60_000, "longest time for one operation with all its retries, in ms", low=1),
    _number(
        "socket.connection.setup.timeout.ms",
        10_000,
        "longest wait for one connection, TLS and SASL included, in ms; doubles with each failure",
        low=1,
        high=_INT64,
    ),
    _number(
        "socket.connection.setup.timeout.max.ms",
        30_000,
        "what the wait for a connection may grow to, in ms",
        low=1,
        high=_INT64,
    ),
    _number("retry.backoff.ms", 100, "pause before the first retry, in ms", high=_INT64),
    _number("retry.backoff.max.ms", 1_000, "what the pause between retries may grow to, in ms", high=_INT64),
    _number("reconnect.backoff.ms", 50, "pause before connecting again to a broker, in ms", high=_INT64),
    _number("reconnect.backoff.max.ms", 1_000, "what the pause between connections may grow to, in ms", high=_INT64),
    _number(
        "connections.max.idle.ms",
        540_000,
        "close a connection unused for so long, in ms; negative means never",
        low=-_INT64,
        high=_INT64,
    ),
    _number(
        "metadata.max.age.ms",
        300_000,
        "look up topics and leaders again after so long, in ms",
        "topic.metadata.refresh.interval.ms",
        high=_INT64,
    ),
    # Java's defaults are 64 and 128 KiB. A fixed size switches the kernel's own tuning off, which is the faster one.
    _number(
        "receive.buffer.bytes",
        -1,
        "size of the socket's receive buffer; -1 lets the operating system choose",
        "socket.receive.buffer.bytes",
        low=-1,
    ),
    _number(
        "send.buffer.bytes",
        -1,
        "size of the socket's send buffer; -1 lets the operating system choose",
        "socket.send.buffer.bytes",
        low=-1,
    ),
    refused(
        "client.dns.lookup",
        "all addresses of a name are tried (use_all_dns_ips); in place of an alias that stands for several hosts, name "
        "those hosts in kafka.bootstrap.servers",
        harmless=("use_all_dns_ips",),
    ),
    *ignored(
        "the bootstrap servers are asked again whenever no known broker answers",
        "metadata.recovery.strategy",
        "metadata.recovery.rebootstrap.trigger.ms",
    ),
    refused("bootstrap.controllers", "name the brokers in kafka.bootstrap.servers; controllers serve no records"),
)

FETCH: Final = (
    Setting(
        "isolation.level",
        Use.APPLIED,
        "read_committed hides records of aborted and open transactions",
        default="read_uncommitted",
        allowed=("read_uncommitted", "read_committed"),
    ),
    _number("fetch.min.bytes", 1, "the broker waits until it has so many bytes, or for fetch.max.wait.ms"),
    _number("fetch.max.wait.ms", 500, "longest wait of the broker for fetch.min.bytes, in ms", "fetch.wait.max.ms"),
    _number("fetch.max.bytes", 52_428_800, "most bytes in one answer; a single larger batch still arrives"),
    _number(
        "max.partition.fetch.bytes",
        4_194_304,  # by measurement: 5 to 10 % faster than the Java client's 1 MiB, at 100 B as at 1 KiB
        "most bytes of one partition in one answer (1 MiB in the Java client); a single larger batch still arrives",
        "fetch.message.max.bytes",
    ),
    Setting("check.crcs", Use.APPLIED, "verify the CRC-32C of each record batch", Kind.FLAG, default=True),
    Setting(
        "allow.auto.create.topics",
        Use.IGNORED,
        "reading never creates a topic",
        aliases=("allow.auto.create.topic",),
        harmless=("false",),
    ),
    Setting(
        "exclude.internal.topics",
        Use.IGNORED,
        "subscribePattern never matches internal topics; name one with subscribe or assign to read it",
        harmless=("true",),
    ),
)

REFUSED: Final = (
    refused(
        "auto.offset.reset",
        "set startingOffsets to earliest or latest instead; positions are planned and kept by Spark, never reset by "
        "the client",
        "topic.auto.offset.reset",
    ),
    refused(
        "enable.auto.commit",
        "reading commits nothing to Kafka: Spark keeps the offsets; leave the option out",
        "auto.commit.enable",
    ),
    refused(
        "key.deserializer",
        "keys arrive as binary; deserialize them with DataFrame operations, for example key.cast('string')",
    ),
    refused(
        "value.deserializer",
        "values arrive as binary; deserialize them with DataFrame operations, for example value.cast('string')",
    ),
    refused(
        "interceptor.classes",
        "Java interceptors cannot run here and could break the query; use DataFrame operations instead",
    ),
    refused("plugin.library.paths", "librdkafka plug-ins cannot run here; leave the option out"),
    refused("config.providers", "Java config providers cannot run here; resolve the values before giving options"),
)

IGNORED: Final = (
    *ignored(
        "records are read by partition and offset, without a consumer group",
        "group.id",
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
        "there is no poll loop: each task fetches exactly its offset range, in Arrow batches",
        "max.poll.records",
        "max.poll.interval.ms",
        "queued.min.messages",
        "queued.max.messages.kbytes",
        "fetch.queue.backoff.ms",
        "fetch.error.backoff.ms",
        "consume.callback.max.messages",
        "enable.partition.eof",
    ),
    *ignored(
        "offsets are kept by Spark, not by a client",
        "auto.commit.interval.ms",
        "enable.auto.offset.store",
        "offset.store.method",
        "offset.store.path",
        "offset.store.sync.interval.ms",
    ),
    *ignored(
        "there are no Java client metrics here; Spark's metrics and this package's log serve instead",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "enable.metrics.push",
        "auto.include.jmx.reporter",
        "statistics.interval.ms",
        "client.software.name",
        "client.software.version",
    ),
    *ignored("versions are negotiated with each broker", "api.version.request", "broker.version.fallback"),
    *ignored("versions are negotiated with each broker", "api.version.request.timeout.ms", "api.version.fallback.ms"),
    *ignored(
        "it tunes a client that is not used here",
        "debug",
        "log_level",
        "log.queue",
        "log.thread.name",
        "log.connection.close",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "internal.termination.signal",
        "message.copy.max.bytes",
        "receive.message.max.bytes",
        "max.in.flight",
        "socket.blocking.max.ms",
        "socket.keepalive.enable",
        "socket.nagle.disable",
        "socket.max.fails",
        "broker.address.ttl",
        "topic.metadata.refresh.fast.interval.ms",
        "topic.metadata.refresh.sparse",
        "topic.metadata.propagation.max.ms",
        "topic.blacklist",
        "enable.random.seed",
    ),
    *ignored(
        "it is a setting for writing and changes nothing in a read",
        "acks",
        "request.required.acks",
        "batch.size",
        "batch.num.messages",
        "buffer.memory",
        "compression.type",
        "compression.codec",
        "compression.level",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "delivery.timeout.ms",
        "enable.idempotence",
        "enable.gapless.guarantee",
        "key.serializer",
        "value.serializer",
        "linger.ms",
        "queue.buffering.max.ms",
        "queue.buffering.max.messages",
        "queue.buffering.max.kbytes",
        "message.max.bytes",
        "message.send.max.retries",
        "message.timeout.ms",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "metadata.max.idle.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "partitioner.ignore.keys",
        "retries",
        "sticky.partitioning.linger.ms",
        "transaction.timeout.ms",
        "transaction.two.phase.commit.enable",
        "transactional.id",
    ),
)

NETWORK_SETTINGS: Final = (*CONNECTION, *FETCH, *REFUSED, *IGNORED)
