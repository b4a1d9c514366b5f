"""Kerberos authentication: a GSS-API context with the broker, then the message about security layers (RFC 4752).

SaslAuthenticate bytes of the mechanism GSSAPI:

    client  ->  context token: AP-REQ with the ticket for service/host                      (RFC 4121, 4.1)
    broker  ->  context token: AP-REP, which proves that the broker has the service's key
    client  ->  no bytes
    broker  ->  wrap(UINT8 offered layers, UINT24 maximum size of wrapped messages)         1: no layer
    client  ->  wrap(UINT8 1, UINT24 0, UTF-8 authorization id)                             the principal, as in Java

Kafka has no security layers: TLS encrypts the connection. ``wrap`` only signs.

The broker's principal is that of Java's client: the host name that the client connects to, in lower case. A name from
a name server replaces it only if it extends a short name (``broker1`` to ``broker1.example.com``), or an address.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark_kafka_direct.client.security.kerberos_login import (
    KerberosCredentials,
    gss_reason,
    kerberos_credentials,
    load_gssapi,
    login_outcome,
    open_tickets,
    ticket_error,
)
from pyspark_kafka_direct.client.unbounded_call import UnboundedCalls
from pyspark_kafka_direct.errors import AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.options.security_settings import KerberosSettings

_NO_LAYER: Final = 1
_LAYER_MESSAGE_SIZE: Final = 4
_MAX_ROUNDS: Final = 8  # Kerberos needs two; a malicious broker must not continue forever
_HOST: Final = re.compile(r"[\w.:%\-]+", re.ASCII)  # brokers report hosts in metadata
_TOO_LONG_LABEL: Final = 64  # characters (RFC 1035, 2.3.4)
_ADDRESS: Final = re.compile(r"[0-9.]+|.*:.*")


class _GssContext(Protocol):
    """The part of ``gssapi.SecurityContext`` that the exchange uses."""

    complete: bool

    def step(self, token: bytes | None = None) -> bytes | None: ...

    def wrap(self, message: bytes, encrypt: bool) -> Any: ...

    def unwrap(self, message: bytes) -> Any: ...


@dataclass(frozen=True)
class KerberosExchange:
    """A login at one broker, for which the KDC has issued a ticket."""

    context: _GssContext
    first_token: bytes
    principal: str  # of the client
    service: str  # the principal of the broker

    def run(self, send: Callable[[bytes], bytes]) -> None:
        """Authenticate both sides; ``send`` sends a message and returns the broker's response."""
        response = send(self.first_token)
        for _ in range(_MAX_ROUNDS):
            if self.context.complete:
                break
            response = send(self._call(self.context.step, response) or b"")
        else:
            raise AuthenticationError(f"The broker with the Kerberos principal {self.service} did not end the login.")
        offer = self._call(self.context.unwrap, response).message
        if len(offer) != _LAYER_MESSAGE_SIZE or not offer[0] & _NO_LAYER:
            raise AuthenticationError(
                f"The broker with the Kerberos principal {self.service} requires a security layer of SASL, which Kafka "
                "does not have."
            )
        reply = bytes([_NO_LAYER, 0, 0, 0]) + self.principal.encode()
        send(self._call(self.context.wrap, reply, False).message)

    def _call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call the library, which fails if it cannot verify a message of the broker."""
        try:
            return function(*arguments)
        except load_gssapi().exceptions.GSSError as error:
            raise AuthenticationError(
                f"The broker does not prove that it is {self.service} ({gss_reason(error)}): it may be an impostor, or "
                "its keytab has another key than the KDC."
            ) from error


def start_exchange(kerberos: KerberosSettings, host: str, deadline: Deadline, broker: str) -> KerberosExchange:
    """Log in, if necessary, and get a ticket for the broker."""
    credentials = kerberos_credentials(kerberos, deadline, broker)
    # The KDC and name servers have no deadline. MIT Kerberos ends an abandoned call when the KDC has not responded to
    # several requests, which takes up to a minute.
    calls: UnboundedCalls[KerberosExchange] = UnboundedCalls(deadline.system, "pyspark-kafka-direct-kerberos")
    result = calls.call(lambda: _open_context(credentials, kerberos.service_name, host), deadline)
    return login_outcome(result, f"The Kerberos ticket for {kerberos.service_name}/{host} was not issued", broker)


def _open_context(credentials: KerberosCredentials, service_name: str, host: str) -> KerberosExchange:
    gssapi = load_gssapi()
    service = f"{service_name}/{host}"
    if _HOST.fullmatch(host) is None:
        raise AuthenticationError(f"The host name {host!r} of a broker cannot be a part of a Kerberos principal.")
    try:
        name = _service_principal(service_name, host)
        service = str(name)
        flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
        context = gssapi.SecurityContext(
            name=name, creds=open_tickets(credentials), usage="initiate", mech=gssapi.MechType.kerberos, flags=flags
        )
        return KerberosExchange(context, context.step(), credentials.principal, service.removesuffix("@"))
    except gssapi.exceptions.GSSError as error:
        raise ticket_error(error, credentials.principal, service.removesuffix("@")) from error


def _service_principal(service_name: str, host: str) -> Any:
    """Return the name of the principal that Java would use, with the realm of ``domain_realm`` in ``krb5.conf``."""
    gssapi = load_gssapi()
    # The library canonicalizes the host as krb5.conf says, by default with the reverse lookup of its address.
    name = gssapi.Name(f"{service_name}@{host}", gssapi.NameType.hostbased_service)
    canonical_name = name.canonicalize(gssapi.MechType.kerberos)
    canonical_host = str(canonical_name).rpartition("@")[0].partition("/")[2].lower()
    lower_host = host.lower()
    if canonical_host == lower_host or canonical_host.startswith(f"{lower_host}.") or _ADDRESS.fullmatch(host):
        return canonical_name
    # The realm of the canonical name may be another one. The library looks for a realm of the host or of its domains,
    # and canonicalizes no name with so long a label, which no name server has.
    unknown_host = f"{'x' * _TOO_LONG_LABEL}.{lower_host}"
    name = gssapi.Name(f"{service_name}@{unknown_host}", gssapi.NameType.hostbased_service)
    realm = str(name.canonicalize(gssapi.MechType.kerberos)).rpartition("@")[2]
    return gssapi.Name(f"{service_name}/{lower_host}@{realm}", gssapi.NameType.kerberos_principal)
