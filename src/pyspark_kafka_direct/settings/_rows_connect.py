"""Client settings of connections and requests.

Names, defaults and ranges are those of Kafka 4.3's ``ConsumerConfig``, ``ProducerConfig`` and ``AdminClientConfig``;
aliases are librdkafka's (its CONFIGURATION.md). Refusals and their reasons follow Spark's ``KafkaSourceProvider``.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark_kafka_direct.settings._rows import connecting, ignored, milliseconds, refused
from pyspark_kafka_direct.settings.row import CONNECTING, INT32, Form, Kind, Setting, at

# Java's Utils.HOST_PORT_PATTERN: an optional scheme, a host (IPv6 in brackets), a port.
HOST_PORT: Final = re.compile(r"(?:[0-9A-Za-z\-%._]*://)?\[?([0-9A-Za-z\-%._:]+)\]?:([0-9]{1,5})")

CONNECT_ROWS: Final = (
    Setting(
        name="bootstrap.servers",
        role="connect",
        doors=at(CONNECTING),
        about="Required: brokers to ask first, `host:port` separated by commas.",
        kind=Kind.LIST,
        client=True,
        aliases=("metadata.broker.list",),
        form=Form(HOST_PORT, "host:port of one or more brokers, separated by commas"),
        required=True,
        spark=True,
        elsewhere={},
    ),
    connecting(
        "client.id",
        "name shown in the broker's logs and quotas",
        default="pyspark-kafka-direct",
        field="client_id",
    ),
    connecting(
        "broker.address.family",
        "IP versions to connect over",
        default="any",
        kind=Kind.WORD,
        field="address_family",
        allowed=("any", "v4", "v6"),
    ),
    connecting(
        "request.timeout.ms",
        "longest wait for one answer of a broker, in ms",
        "socket.timeout.ms",
        default="30000",
        kind=Kind.NUMBER,
        field="request_timeout_ms",
        low=1,
        high=INT32,
    ),
    connecting(
        "default.api.timeout.ms",
        "longest time for one operation with all its retries, in ms",
        default="60000",
        kind=Kind.NUMBER,
        field="default_api_timeout_ms",
        low=1,
        high=INT32,
    ),
    milliseconds(
        "socket.connection.setup.timeout.ms",
        10_000,
        "longest wait for one connection, TLS and SASL included, in ms; doubles with each failure",
        field="connect_timeout_ms",
        low=1,
    ),
    milliseconds(
        "socket.connection.setup.timeout.max.ms",
        30_000,
        "what the wait for a connection may grow to, in ms",
        field="connect_timeout_max_ms",
        low=1,
    ),
    milliseconds("retry.backoff.ms", 100, "pause before the first retry, in ms", field="retry_backoff_ms"),
    milliseconds(
        "retry.backoff.max.ms", 1_000, "what the pause between retries may grow to, in ms", field="retry_backoff_max_ms"
    ),
    milliseconds(
        "reconnect.backoff.ms", 50, "pause before connecting again to a broker, in ms", field="reconnect_backoff_ms"
    ),
    milliseconds(
        "reconnect.backoff.max.ms",
        1_000,
        "what the pause between connections may grow to, in ms",
        field="reconnect_backoff_max_ms",
    ),
    milliseconds(
        "connections.max.idle.ms",
        540_000,
        "close a connection unused for so long, in ms; negative means never",
        field="connections_max_idle_ms",
        low=-(2**63 - 1),
    ),
    milliseconds(
        "metadata.max.age.ms",
        300_000,
        "look up topics and leaders again after so long, in ms",
        "topic.metadata.refresh.interval.ms",
        field="metadata_max_age_ms",
    ),
    # Java's defaults are 64 and 128 KiB. A fixed size switches the kernel's own tuning off, which is the faster one.
    connecting(
        "receive.buffer.bytes",
        "size of the socket's receive buffer; -1 lets the operating system choose",
        "socket.receive.buffer.bytes",
        default="-1",
        kind=Kind.NUMBER,
        field="receive_buffer_bytes",
        low=-1,
        high=INT32,
    ),
    connecting(
        "send.buffer.bytes",
        "size of the socket's send buffer; -1 lets the operating system choose",
        "socket.send.buffer.bytes",
        default="-1",
        kind=Kind.NUMBER,
        field="send_buffer_bytes",
        low=-1,
        high=INT32,
    ),
    refused(
        "connect",
        "client.dns.lookup",
        "all addresses of a name are tried (use_all_dns_ips); in place of an alias that stands for several hosts, name "
        "those hosts in kafka.bootstrap.servers",
        harmless=("use_all_dns_ips",),
    ),
    refused(
        "connect", "bootstrap.controllers", "name the brokers in kafka.bootstrap.servers; controllers serve no records"
    ),
    *ignored(
        "connect",
        "the bootstrap servers are asked again whenever no known broker answers",
        "metadata.recovery.strategy",
        "metadata.recovery.rebootstrap.trigger.ms",
    ),
    *ignored(
        "connect",
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
    *ignored(
        "connect",
        "versions are negotiated with each broker",
        "api.version.request",
        "broker.version.fallback",
        "api.version.request.timeout.ms",
        "api.version.fallback.ms",
    ),
    *ignored(
        "connect",
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
    refused("connect", "plugin.library.paths", "librdkafka plug-ins cannot run here; leave the option out"),
    refused(
        "connect",
        "config.providers",
        "Java config providers cannot run here; resolve the values before giving options",
    ),
)
