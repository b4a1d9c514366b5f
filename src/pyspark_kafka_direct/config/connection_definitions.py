"""Client settings of connections and requests.

Names, defaults and ranges are those of Kafka 4.3's ``ConsumerConfig``, ``ProducerConfig`` and ``AdminClientConfig``.
Aliases come from librdkafka's CONFIGURATION.md. Spark's ``KafkaSourceProvider`` rejects the same settings.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark_kafka_direct.config.config_option import (
    CONNECTION_APIS,
    MAX_INT32,
    ConfigOption,
    ValueFormat,
    ValueType,
    connection_option,
    ignored_options,
    millis_option,
    rejected_option,
    same_default,
)

# Java's Utils.HOST_PORT_PATTERN: an optional scheme, a host (IPv6 in brackets), a port.
HOST_PORT: Final = re.compile(r"(?:[0-9A-Za-z\-%._]*://)?\[?([0-9A-Za-z\-%._:]+)\]?:([0-9]{1,5})")

CONNECTION_OPTIONS: Final = (
    ConfigOption(
        name="bootstrap.servers",
        role="connect",
        apis=same_default(CONNECTION_APIS),
        doc="Required. The brokers to connect to first, as `host:port` separated by commas.",
        value_type=ValueType.LIST,
        client=True,
        aliases=("metadata.broker.list",),
        value_format=ValueFormat(HOST_PORT, "host:port of one or more brokers, separated by commas"),
        required=True,
        defined_by_spark=True,
        unsupported={},
    ),
    connection_option(
        "client.id",
        "Name of the client in the logs and quotas of brokers.",
        default="pyspark-kafka-direct",
        field="client_id",
    ),
    connection_option(
        "broker.address.family",
        "IP version of connections: `any`, `v4` or `v6`.",
        default="any",
        value_type=ValueType.ENUM,
        field="address_family",
        allowed=("any", "v4", "v6"),
    ),
    connection_option(
        "request.timeout.ms",
        "Timeout of one request, in ms.",
        "socket.timeout.ms",
        default="30000",
        value_type=ValueType.INTEGER,
        field="request_timeout_ms",
        low=1,
        high=MAX_INT32,
    ),
    connection_option(
        "default.api.timeout.ms",
        "Timeout of one operation including its retries, in ms.",
        default="60000",
        value_type=ValueType.INTEGER,
        field="default_api_timeout_ms",
        low=1,
        high=MAX_INT32,
    ),
    millis_option(
        "socket.connection.setup.timeout.ms",
        10_000,
        "Timeout of one connection attempt including TLS and SASL, in ms. It doubles with each failed attempt.",
        field="connect_timeout_ms",
        low=1,
    ),
    millis_option(
        "socket.connection.setup.timeout.max.ms",
        30_000,
        "Upper limit of the growing connection timeout, in ms.",
        field="connect_timeout_max_ms",
        low=1,
    ),
    millis_option("retry.backoff.ms", 100, "Delay before the first retry, in ms.", field="retry_backoff_ms"),
    millis_option(
        "retry.backoff.max.ms",
        1_000,
        "Upper limit of the growing delay between retries, in ms.",
        field="retry_backoff_max_ms",
    ),
    millis_option(
        "reconnect.backoff.ms", 50, "Delay before reconnecting to a broker, in ms.", field="reconnect_backoff_ms"
    ),
    millis_option(
        "reconnect.backoff.max.ms",
        1_000,
        "Upper limit of the growing delay between connection attempts, in ms.",
        field="reconnect_backoff_max_ms",
    ),
    millis_option(
        "connections.max.idle.ms",
        540_000,
        "Connections that are idle for this time are closed, in ms. A negative value disables this.",
        field="connections_max_idle_ms",
        low=-(2**63 - 1),
    ),
    millis_option(
        "metadata.max.age.ms",
        300_000,
        "Maximum age of metadata (topics and leaders) before a refresh, in ms.",
        "topic.metadata.refresh.interval.ms",
        field="metadata_max_age_ms",
    ),
    # Java's defaults are 64 and 128 KiB. A fixed size disables the tuning of the operating system, which is faster.
    connection_option(
        "receive.buffer.bytes",
        "Receive buffer size of sockets. With -1, the operating system chooses it.",
        "socket.receive.buffer.bytes",
        default="-1",
        value_type=ValueType.INTEGER,
        field="receive_buffer_bytes",
        low=-1,
        high=MAX_INT32,
    ),
    connection_option(
        "send.buffer.bytes",
        "Send buffer size of sockets. With -1, the operating system chooses it.",
        "socket.send.buffer.bytes",
        default="-1",
        value_type=ValueType.INTEGER,
        field="send_buffer_bytes",
        low=-1,
        high=MAX_INT32,
    ),
    rejected_option(
        "connect",
        "client.dns.lookup",
        "all addresses of a host are tried (use_all_dns_ips); instead of an alias for several hosts, list these hosts "
        "in kafka.bootstrap.servers",
        accepted_values=("use_all_dns_ips",),
    ),
    rejected_option(
        "connect", "bootstrap.controllers", "controllers serve no records; list brokers in kafka.bootstrap.servers"
    ),
    *ignored_options(
        "connect",
        "if no known broker responds, the bootstrap servers are always tried again",
        "metadata.recovery.strategy",
        "metadata.recovery.rebootstrap.trigger.ms",
    ),
    *ignored_options(
        "connect",
        "there are no Java client metrics; use Spark's metrics and the log messages of this package",
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
    *ignored_options(
        "connect",
        "API versions are negotiated with each broker",
        "api.version.request",
        "broker.version.fallback",
        "api.version.request.timeout.ms",
        "api.version.fallback.ms",
    ),
    *ignored_options(
        "connect",
        "it configures a Kafka client that this package does not use",
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
    rejected_option("connect", "plugin.library.paths", "librdkafka plug-ins cannot be loaded; remove the setting"),
    rejected_option(
        "connect",
        "config.providers",
        "Java config providers cannot run here; resolve the values before you set the options",
    ),
)
