"""Connects a TCP socket to the first address of a host that accepts, within a deadline."""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import BrokerError, BrokerTimeoutError, BrokerUnreachableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.system import Address
    from pyspark_kafka_direct.options.settings import ConnectionSettings

_ADDRESS_FAMILIES = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}

_ADVICE = {
    errno.ECONNREFUSED: (
        "nothing listens there: check host and port in kafka.bootstrap.servers, and that the broker runs"
    ),
    errno.ENETUNREACH: "no route from this machine: check the network, VPN and firewall",
    errno.EHOSTUNREACH: "no route from this machine: check the network, VPN and firewall",
    errno.ECONNRESET: "the other side closed the connection: check that a Kafka broker, and not a proxy, listens there",
    errno.EMFILE: "this process has no file descriptors left: raise its limit (ulimit -n)",
}


def connect_socket(settings: ConnectionSettings, host: str, port: int, deadline: Deadline) -> socket.socket:
    """Connect over TCP, trying every address of the host (IPv6 and IPv4) in the resolver's order."""
    try:
        addresses = resolve_broker(settings, host, port, deadline)
        return connect_addresses(settings, addresses, format_address(host, port), deadline)
    except BrokerError as error:
        error.connected = False  # so that `Witnesses` do not wait for this broker
        raise


def resolve_broker(settings: ConnectionSettings, host: str, port: int, deadline: Deadline) -> list[Address]:
    """Return the addresses of a host, in the resolver's order."""
    broker = format_address(host, port)
    system, family = deadline.system, _ADDRESS_FAMILIES[settings.address_family]
    with contextlib.suppress(socket.gaierror):
        return system.resolve_host(host, port, family, socket.AI_NUMERICHOST)
    # The resolver has no timeout, so it runs in a thread that is abandoned after the deadline.
    resolved: list[list[Address] | OSError] = []  # empty until the thread has appended its result

    def resolve_host() -> None:
        try:
            resolved.append(system.resolve_host(host, port, family, 0))
        except OSError as error:
            resolved.append(error)

    system.run_with_timeout(resolve_host, "pyspark-kafka-direct-resolver", deadline.remaining())
    if not resolved:
        raise BrokerTimeoutError(
            f"The host name {host!r} was not resolved in time: check the name server, "
            "or raise kafka.socket.connection.setup.timeout.ms.",
            broker=broker,
        )
    if isinstance(resolved[0], OSError):
        raise BrokerUnreachableError(
            f"The host name {host!r} does not resolve ({resolved[0].strerror or resolved[0]}): check its spelling, and "
            "that this machine's name server resolves it.",
            broker=broker,
        ) from resolved[0]
    return resolved[0]


def connect_addresses(
    settings: ConnectionSettings, addresses: Sequence[Address], broker: str, deadline: Deadline
) -> socket.socket:
    """Connect to the first of a broker's addresses that accepts."""
    failures: list[tuple[str, OSError]] = []
    for index, address in enumerate(addresses):
        seconds = max(deadline.remaining() / (len(addresses) - index), 0.001)  # an equal share for each address
        try:
            return deadline.system.connect_tcp(
                address, seconds, settings.receive_buffer_bytes, settings.send_buffer_bytes
            )
        except OSError as error:
            failures.append((str(address.address[0]), error))
    if all(isinstance(error, TimeoutError) for _, error in failures):
        raise BrokerTimeoutError(
            f"The connection timed out ({', '.join(address for address, _ in failures)} did not respond): check host, "
            "port and firewall, or raise kafka.socket.connection.setup.timeout.ms.",
            broker=broker,
        )
    raise BrokerUnreachableError(f"Cannot connect: {_describe_failures(failures)}.", broker=broker) from failures[-1][1]


def format_address(host: str, port: int) -> str:
    """Return ``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _describe_failures(failures: list[tuple[str, OSError]]) -> str:
    descriptions = []
    for address, error in failures:
        reason = "no response in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        advice = _ADVICE.get(error.errno or 0)
        descriptions.append(f"{address}: {reason}" + (f" ({advice})" if advice else ""))
    return "; ".join(descriptions)
