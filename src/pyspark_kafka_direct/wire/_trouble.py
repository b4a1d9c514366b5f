"""What to say when a connection breaks, stays silent or talks nonsense: the likely cause, and what to change."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.errors import (
    BrokerError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ProtocolError,
    TlsError,
)

if TYPE_CHECKING:
    from pyspark_kafka_direct.wire._deadline import Deadline
    from pyspark_kafka_direct.wire.settings import SecuritySettings


class Circumstances(NamedTuple):
    """When the trouble came.

    Attributes:
        broker: ``host:port``.
        security: How the connection was to be secured.
        doing: Name of the request under way.
        answered: Names of the requests that this connection answered before.
    """

    broker: str
    security: SecuritySettings
    doing: str
    answered: frozenset[str]


def too_late(when: Circumstances, deadline: Deadline, throttled: float) -> BrokerTimeoutError:
    """The error for an answer that did not come in time.

    Args:
        when: The circumstances.
        deadline: The whole operation's; if it has not expired, the limit of one request was reached.
        throttled: Seconds for which a quota held this client back.
    """
    if throttled:
        advice = "The broker throttles this client (a quota of the cluster): raise the quota or the timeout"
    elif not when.answered:
        advice = "Something listens there but does not speak Kafka, or the listener wants another security protocol"
    else:
        advice = "The broker is overloaded or stuck, or the network drops packets"
    setting = "kafka.default.api.timeout.ms" if deadline.expired else "kafka.request.timeout.ms"
    return BrokerTimeoutError(
        f"No answer to {when.doing} in time. {advice}; the limit is {setting}.", broker=when.broker
    )


def broken(when: Circumstances, error: OSError) -> BrokerError:
    """The error for a connection that broke.

    Args:
        when: The circumstances.
        error: What the socket said.
    """
    if when.security.tls is not None:
        import ssl

        if isinstance(error, ssl.SSLError):
            # With TLS 1.3 a broker that dislikes the client's certificate says so only after the handshake.
            reason = error.reason or error.strerror or "unknown reason"
            return TlsError(
                f"TLS failed during {when.doing}: {reason}. If the listener wants a client certificate, check "
                "kafka.ssl.keystore.* and that the broker trusts its issuer.",
                broker=when.broker,
            )
    reason = error.strerror or "the broker closed it"
    message = f"The connection broke during {when.doing}: {reason}.{_hint(when)}"
    return BrokerUnreachableError(message, broker=when.broker)


def not_kafka(when: Circumstances, start: bytes) -> ProtocolError:
    """The error for an answer whose claimed length cannot be.

    Args:
        when: The circumstances.
        start: First bytes of the answer, at least four.
    """
    if speaks_tls(start) and when.security.tls is None:
        message = "The listener speaks TLS: set kafka.security.protocol to SSL or SASL_SSL."
    elif start.startswith(b"HTTP"):
        message = "An HTTP server answered: check the port in kafka.bootstrap.servers."
    else:
        (size,) = struct.unpack_from(">i", start)
        message = (
            f"An answer claims to be {size} bytes long: this is no Kafka broker, or the connection is out of step."
        )
    return ProtocolError(message, broker=when.broker)


def speaks_tls(start: bytes | bytearray) -> bool:
    """Whether bytes begin like a TLS record: type (0x15 alert, 0x16 handshake), then version (0x0300 to 0x0304)."""
    return start[0] in (0x15, 0x16) and start[1] == 0x03 and start[2] <= 0x04


def _hint(when: Circumstances) -> str:
    if not when.answered:
        if when.security.tls is None:
            return (
                " No request was answered yet: is this a TLS listener (then set kafka.security.protocol to SSL or "
                "SASL_SSL), or no Kafka broker?"
            )
        return " No request was answered yet: is this a Kafka broker?"
    if when.answered == {"ApiVersions"} and when.security.sasl is None:
        return (
            " Only the versions were answered: does the listener want a login (then set kafka.security.protocol to "
            "SASL_PLAINTEXT or SASL_SSL)?"
        )
    return ""
