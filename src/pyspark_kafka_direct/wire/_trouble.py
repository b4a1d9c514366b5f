"""What to say when a connection breaks, stays silent or talks nonsense: the likely cause, and what to change."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.errors import BrokerError, BrokerTimeoutError, BrokerUnreachableError, ProtocolError

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.wire.deadline import Deadline


class Circumstances(NamedTuple):
    """When the trouble came.

    Attributes:
        broker: ``host:port``.
        settings: The connection's settings.
        host: Name or address of the broker as it was written.
        doing: Name of the request under way.
        answered: Names of the requests that this connection answered before.
        opening: Whether the connection was still being set up.
    """

    broker: str
    settings: ConnectionSettings
    host: str
    doing: str
    answered: frozenset[str]
    opening: bool


def too_late(when: Circumstances, deadline: Deadline, throttled: float) -> BrokerTimeoutError:
    """Return the error for an answer that did not come in time.

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
    if not deadline.expired:
        setting = "kafka.request.timeout.ms"
    elif when.opening:
        setting = "kafka.socket.connection.setup.timeout.ms"
    else:
        setting = deadline.setting
    return BrokerTimeoutError(
        f"No answer to {when.doing} in time. {advice}; the limit is {setting}.", broker=when.broker
    )


def broken(when: Circumstances, error: OSError) -> BrokerError:
    """Return the error for a connection that broke.

    Args:
        when: The circumstances.
        error: What the socket said.
    """
    reason = error.strerror or "the broker closed it"
    if when.settings.security.tls is not None:
        import ssl

        from pyspark_kafka_direct.wire.security.tls_failures import explain_tls_failure, has_ended

        if isinstance(error, ssl.SSLError):
            # Once the broker has answered it has accepted us: what TLS dislikes now ends this connection only.
            if not when.answered and not has_ended(error):
                return explain_tls_failure(error, when.settings, when.host, when.broker)
            reason = "the broker closed it" if has_ended(error) else f"TLS failed ({error.reason})"
    message = f"The connection broke during {when.doing}: {reason}.{_hint(when)}"
    return BrokerUnreachableError(message, broker=when.broker)


def not_kafka(when: Circumstances, start: bytes) -> ProtocolError:
    """Return the error for an answer whose claimed length cannot be.

    Args:
        when: The circumstances.
        start: First bytes of the answer, at least four.
    """
    if speaks_tls(start) and when.settings.security.tls is None:
        message = "The listener speaks TLS: set kafka.security.protocol to SSL or SASL_SSL."
    elif start.startswith(b"HTTP"):
        message = "An HTTP server answered: check the port in kafka.bootstrap.servers."
    else:
        (size,) = struct.unpack_from(">i", start)
        message = (
            f"The answer to {when.doing} claims to be {size} bytes long: this is no Kafka broker, or the connection is "
            "out of step."
        )
    return ProtocolError(message, broker=when.broker)


def speaks_tls(start: bytes | bytearray) -> bool:
    """Tell whether bytes begin like a TLS record: type (0x15 alert, 0x16 handshake), version (0x0300 to 0x0304)."""
    return start[0] in (0x15, 0x16) and start[1] == 0x03 and start[2] <= 0x04


def _hint(when: Circumstances) -> str:
    if when.doing.startswith("Sasl"):
        # Java reads an end here as "terminated during authentication" and tries again too (NetworkClient).
        return (
            " The log-in ended and the broker gave no reason, as it does when it refuses one: it may be stopping, or a "
            "firewall or proxy is in the way; if it lasts, the broker's log may say more."
        )
    if not when.answered:
        if when.settings.security.tls is None:
            return (
                " No request was answered yet: is this a TLS listener (then set kafka.security.protocol to SSL or "
                "SASL_SSL), or no Kafka broker?"
            )
        return (
            " No request was answered yet: does the broker want a client certificate (kafka.ssl.keystore.*), or is "
            "this no Kafka broker?"
        )
    if when.answered == {"ApiVersions"} and when.settings.security.sasl is None:
        return (
            " Only the versions were answered: does the listener want a login (then set kafka.security.protocol to "
            "SASL_PLAINTEXT or SASL_SSL)?"
        )
    return ""
