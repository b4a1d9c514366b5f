"""Errors for connections that break, time out or carry no Kafka responses: the likely cause, and what to change."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.errors import BrokerError, BrokerTimeoutError, BrokerUnreachableError, ProtocolError

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.options.settings import ConnectionSettings


class RequestContext(NamedTuple):
    """The state of a connection when a request failed."""

    broker: str  # host:port
    settings: ConnectionSettings
    host: str  # as written in the settings or the metadata
    operation: str  # name of the request
    answered_requests: frozenset[str]  # names of the requests with a response on this connection
    is_connecting: bool  # whether the connection is still being set up


def another_cluster_error(found_cluster_id: str, expected_cluster_id: str, broker: str) -> BrokerUnreachableError:
    """Return the error for a broker of another cluster than the one that the client has reached first."""
    error = BrokerUnreachableError(
        f"The broker belongs to the cluster {found_cluster_id}, and this client to {expected_cluster_id}. "
        "If the cluster was replaced, offsets and transactions of the old one do not apply: restart with a new "
        "checkpoint or group. Otherwise check kafka.bootstrap.servers: all of them have to be of one cluster.",
        broker=broker,
    )
    error.connected = False  # so that `Witnesses` do not wait for it: the broker of this cluster is not there
    return error


def request_timeout_error(context: RequestContext, deadline: Deadline, throttle_seconds: float) -> BrokerTimeoutError:
    """Return the error for a late response; ``throttle_seconds`` were added to its timeout because of a quota."""
    if throttle_seconds:
        likely_cause = "The broker throttles this client (a quota of the cluster): raise the quota or the timeout"
    elif not context.answered_requests:
        likely_cause = "The listener is probably not a Kafka broker, or it requires another security protocol"
    else:
        likely_cause = "The broker is overloaded or stuck, or the network drops packets"
    if not deadline.expired:  # the limit of a single request came first
        setting = "kafka.request.timeout.ms"
    elif context.is_connecting:
        setting = "kafka.socket.connection.setup.timeout.ms"
    else:
        setting = deadline.setting
    return BrokerTimeoutError(
        f"No response to {context.operation} in time. {likely_cause}; the limit is {setting}.", broker=context.broker
    )


def connection_broken_error(context: RequestContext, error: OSError) -> BrokerError:
    """Return the error for a connection that failed while a request was sent or its response was read."""
    reason = error.strerror or "the broker closed it"
    if context.settings.security.tls is not None:
        import ssl

        from pyspark_kafka_direct.client.security.tls_handshake import explain_tls_failure, is_connection_closed

        if isinstance(error, ssl.SSLError):
            # After the first response the broker has accepted this client: a TLS failure ends this connection only.
            if not context.answered_requests and not is_connection_closed(error):
                return explain_tls_failure(error, context.settings, context.host, context.broker)
            reason = "the broker closed it" if is_connection_closed(error) else f"TLS failed ({error.reason})"
    message = f"The connection broke during {context.operation}: {reason}.{_hint(context)}"
    return BrokerUnreachableError(message, broker=context.broker)


def not_kafka_error(context: RequestContext, first_bytes: bytes) -> ProtocolError:
    """Return the error for a response whose size field is impossible."""
    if looks_like_tls(first_bytes) and context.settings.security.tls is None:
        message = "The listener uses TLS: set kafka.security.protocol to SSL or SASL_SSL."
    elif first_bytes.startswith(b"HTTP"):
        message = "An HTTP server responded: check the port in kafka.bootstrap.servers."
    else:
        (size,) = struct.unpack_from(">i", first_bytes)
        message = (
            f"The response to {context.operation} declares a size of {size} bytes: the listener is not a Kafka broker, "
            "or requests and responses no longer match."
        )
    return ProtocolError(message, broker=context.broker)


def looks_like_tls(first_bytes: bytes | bytearray) -> bool:
    """Return whether bytes begin like a TLS record: type (0x15 alert, 0x16 handshake), version (0x0300 to 0x0304)."""
    return first_bytes[0] in (0x15, 0x16) and first_bytes[1] == 0x03 and first_bytes[2] <= 0x04


def _hint(context: RequestContext) -> str:
    if context.operation.startswith("Sasl"):
        # Java reports "terminated during authentication" here and retries too (NetworkClient).
        return (
            " The broker closed the connection during authentication without a reason (a rejected login has one): the "
            "broker may be stopping, or a firewall or proxy may interfere. If this persists, check the broker's log."
        )
    if not context.answered_requests:
        if context.settings.security.tls is None:
            return (
                " The broker has not responded to any request: if this is a TLS listener, set kafka.security.protocol "
                "to SSL or SASL_SSL; otherwise check that a Kafka broker listens there."
            )
        return (
            " The broker has not responded to any request: if it requires a client certificate, set "
            "kafka.ssl.keystore.*; otherwise check that a Kafka broker listens there."
        )
    # A broker responds to ApiVersions before the login, and closes the connection after any other request.
    if context.answered_requests == {"ApiVersions"} and context.settings.security.sasl is None:
        return (
            " The broker responded to ApiVersions only: if the listener requires a login, set kafka.security.protocol "
            "to SASL_PLAINTEXT or SASL_SSL."
        )
    return ""
