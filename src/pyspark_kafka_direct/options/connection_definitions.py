"""Client settings of connections and requests that are not about security.

Names, defaults and ranges are those of Kafka 4.4's ``ConsumerConfig``, ``ProducerConfig`` and ``AdminClientConfig``.
Aliases come from librdkafka's CONFIGURATION.md. Spark's ``KafkaSourceProvider`` rejects the same settings.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.config_option import APIS, ConfigOption
from pyspark_kafka_direct.options.value_types import (
    BOOLEAN,
    INT64,
    MAX_INT32,
    MAX_INT64,
    POSITIVE_INT32,
    POSITIVE_INT64,
    STRING,
    Enum,
    Integer,
    ListOf,
    Text,
    invalid_value,
)

# Java's Utils.HOST_PORT_PATTERN: an optional scheme, a host (IPv6 in brackets), a port.
HOST_PORT: Final = re.compile(r"(?:[0-9A-Za-z\-%._]*://)?\[?([0-9A-Za-z\-%._:]+)\]?:([0-9]{1,5})")
LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


class _ServerList(ListOf):
    __slots__ = ()

    def parse(self, value: str, name: str) -> tuple[str, ...]:
        if "@" in value:  # the comma may be part of a password
            raise OptionError(
                f"{name} must be {self.entry.expected}, without a user name and a password, so its value is not shown; "
                "set them in kafka.sasl.jaas.config, or in kafka.sasl.username and kafka.sasl.password"
            )
        for address in map(str.strip, value.split(",")):
            if _is_ipv6_without_port(address):
                raise invalid_value(
                    name, address, f"host:port, with an IPv6 address in brackets, such as [{address}]:9092"
                )
        return super().parse(value, name)


def _is_ipv6_without_port(address: str) -> bool:
    """Return whether it is an IPv6 address, and a host before the last colon, as in ``2001:db8::1:9092``, is none."""
    return address.count(":") > 1 and _is_ipv6(address) and not _is_ipv6(address.rpartition(":")[0])


def _is_ipv6(host: str) -> bool:
    from ipaddress import AddressValueError, IPv6Address

    try:
        IPv6Address(host)
    except AddressValueError:
        return False
    return True


connection: Final = partial(ConfigOption, role="connect", apis=APIS, is_client=True)
_SERVERS: Final = _ServerList(Text(pattern=HOST_PORT, expected="host:port of one or more brokers, separated by commas"))
_BUFFER_SIZE: Final = Integer(-1, MAX_INT32)

# Java's default sizes of socket buffers are 64 and 128 KiB. A fixed size disables the tuning of the operating system,
# which is faster.

# A table, formatted by hand: a line for each option, and its documentation.
# fmt: off
CONNECTION_OPTIONS: Final = (
    connection("bootstrap.servers", _SERVERS, field="", aliases=("metadata.broker.list",),
        required=True, defined_by_spark=True,
        doc="Required. The brokers to connect to first, as `host:port` separated by commas."),
    connection("client.id", STRING, "pyspark-kafka-direct",
        doc="Name of the client in the logs and quotas of brokers."),
    connection("broker.address.family", Enum(("any", "v4", "v6")), "any", field="address_family",
        doc="IP version of connections."),
    connection("request.timeout.ms", POSITIVE_INT32, "30000", aliases=("socket.timeout.ms",),
        doc="Timeout of one request, in ms."),
    connection("default.api.timeout.ms", POSITIVE_INT32, "60000",
        doc="Timeout of one operation including its retries, in ms."),
    connection("socket.connection.setup.timeout.ms", POSITIVE_INT64, "10000", field="connect_timeout_ms",
        doc="Timeout of one connection attempt with TLS and SASL, in ms. It doubles with each failed attempt."),
    connection("socket.connection.setup.timeout.max.ms", POSITIVE_INT64, "30000", field="connect_timeout_max_ms",
        doc="Upper limit of the growing connection timeout, in ms."),
    connection("retry.backoff.ms", INT64, "100", doc="Delay before the first retry of a request, in ms."),
    connection("retry.backoff.max.ms", INT64, "1000", doc="Upper limit of the growing delay between retries of a "
            "request, in ms."),
    connection("reconnect.backoff.ms", INT64, "50", doc="Delay before reconnecting to a broker, in ms."),
    connection("reconnect.backoff.max.ms", INT64, "1000",
        doc="Upper limit of the growing delay between connection attempts, in ms."),
    connection("connections.max.idle.ms", Integer(-MAX_INT64, MAX_INT64), "540000",
        doc="Idle time after which a connection is closed, in ms. A negative value disables this."),
    connection("metadata.max.age.ms", INT64, "300000", aliases=("topic.metadata.refresh.interval.ms",),
        doc="Maximum age of metadata (topics and leaders) before a refresh, in ms."),
    connection("metadata.cluster.check.enable", BOOLEAN, "true",
        doc="Whether brokers must belong to the [cluster](troubleshooting.md#the-broker-belongs-to-the-cluster) "
            "that the client reached first (KIP-1242). Set it to false if a proxy changes cluster ids or broker ids."),
    connection("receive.buffer.bytes", _BUFFER_SIZE, "-1", aliases=("socket.receive.buffer.bytes",),
        doc="Receive buffer size of sockets. With -1, the operating system chooses it."),
    connection("send.buffer.bytes", _BUFFER_SIZE, "-1", aliases=("socket.send.buffer.bytes",),
        doc="Send buffer size of sockets. With -1, the operating system chooses it."),
)
