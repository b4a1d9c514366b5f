"""A TCP connection to the first address of a host that answers, within a deadline."""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.system import Address

_FAMILIES = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}

_WHAT_TO_CHECK = {
    errno.ECONNREFUSED: (
        "nothing listens there: check host and port in kafka.bootstrap.servers, and that the broker runs"
    ),
    errno.ENETUNREACH: "no route from this machine: check the network, VPN and firewall",
    errno.EHOSTUNREACH: "no route from this machine: check the network, VPN and firewall",
    errno.ECONNRESET: "the other side hung up: check that a Kafka broker, and not a proxy, listens there",
    errno.EMFILE: "this process has no file descriptors left: raise its limit (ulimit -n)",
}


def connect(settings: ConnectionSettings, host: str, port: int, deadline: Deadline) -> socket.socket:
    """Connect over TCP, trying every address the name resolves to (IPv6 and IPv4) in the resolver's order.

    Args:
        settings: Address family and buffer sizes.
        host: Name or address.
        port: Port.
        deadline: End of the wait; each address gets an equal share of what is left.

    Raises:
        BrokerUnreachableError: The name does not resolve, or no address accepts; says what each one answered.
        BrokerTimeoutError: The deadline passed.
    """
    broker = address_text(host, port)
    addresses = _resolve(settings, host, port, broker, deadline)
    failures: list[tuple[str, OSError]] = []
    for index, address in enumerate(addresses):
        share = max(deadline.remaining() / (len(addresses) - index), 0.001)
        try:
            return deadline.system.dial(address, share, settings.receive_buffer_bytes, settings.send_buffer_bytes)
        except OSError as error:
            failures.append((str(address.address[0]), error))
    if all(isinstance(error, TimeoutError) for _, error in failures):
        raise BrokerTimeoutError(
            f"No connection in time ({', '.join(address for address, _ in failures)} did not answer): check host, port "
            "and firewall, or raise kafka.socket.connection.setup.timeout.ms.",
            broker=broker,
        )
    raise BrokerUnreachableError(f"Cannot connect: {_explain(failures)}.", broker=broker) from failures[-1][1]


def address_text(host: str, port: int) -> str:
    """Return ``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _resolve(settings: ConnectionSettings, host: str, port: int, broker: str, deadline: Deadline) -> list[Address]:
    system, family = deadline.system, _FAMILIES[settings.address_family]
    with contextlib.suppress(socket.gaierror):
        return system.look_up(host, port, family, socket.AI_NUMERICHOST)
    # The resolver knows no deadline of ours, so it runs in a thread that is left behind if it takes too long.
    answer: list[list[Address] | OSError] = []

    def look_up() -> None:
        try:
            answer.append(system.look_up(host, port, family, 0))
        except OSError as error:
            answer.append(error)

    system.run(look_up, "pyspark-kafka-direct-resolver", deadline.remaining())
    if not answer:
        raise BrokerTimeoutError(
            f"The name {host!r} was not resolved in time: check the name server, "
            "or raise kafka.socket.connection.setup.timeout.ms.",
            broker=broker,
        )
    if isinstance(answer[0], OSError):
        raise BrokerUnreachableError(
            f"The name {host!r} does not resolve ({answer[0].strerror or answer[0]}): check it for typing errors, and "
            "that this machine's name server knows it.",
            broker=broker,
        ) from answer[0]
    return answer[0]


def _explain(failures: list[tuple[str, OSError]]) -> str:
    texts = []
    for address, error in failures:
        reason = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        advice = _WHAT_TO_CHECK.get(error.errno or 0)
        texts.append(f"{address}: {reason}" + (f" ({advice})" if advice else ""))
    return "; ".join(texts)
