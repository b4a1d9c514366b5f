"""Who may come in, and how: listeners, users and the broker's side of each SASL mechanism."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_kafka_direct.broker._properties import PLAINTEXT, Listener
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_kafka_direct.broker._certificates import Certificates

# Listener name -> Kafka's security protocol. MTLS is ours: SSL that wants a certificate of the client.
_PROTOCOLS = {"SSL": "SSL", "MTLS": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SASL_SSL"}
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS = ("PLAIN", *_SCRAM, "OAUTHBEARER")

_COMMON = "org.apache.kafka.common.security"
_PLAIN_MODULE = f"{_COMMON}.plain.PlainLoginModule"
_SCRAM_MODULE = f"{_COMMON}.scram.ScramLoginModule"
_OAUTH_MODULE = f"{_COMMON}.oauthbearer.OAuthBearerLoginModule"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user of the embedded cluster, known to PLAIN and to both SCRAM mechanisms."""

    username: str
    password: str = field(repr=False)


DEFAULT_USERS = (Credentials("alice", "alice-secret"), Credentials("bob", "bob-secret"))


def check_security(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the wanted listeners, each once.

    Raises:
        OptionError: One of them is none of ours.
    """
    found = tuple(dict.fromkeys(names))
    for name in found:
        if name not in _PROTOCOLS:
            raise OptionError(f"security names {name!r}: an embedded Kafka has {', '.join(_PROTOCOLS)}")
    return found


def wants_certificates(names: Sequence[str]) -> bool:
    """Tell whether one of the listeners uses TLS."""
    return any(_PROTOCOLS[name].endswith("SSL") for name in names)


def listeners(
    names: Sequence[str], certificates: Certificates | None, users: Sequence[Credentials]
) -> tuple[Listener, ...]:
    """Return the PLAINTEXT listener, which is always there, and those asked for."""
    found = [Listener(PLAINTEXT, "PLAINTEXT")]
    for name in names:
        protocol = _PROTOCOLS[name]
        prefix = f"listener.name.{name.lower()}"
        properties: dict[str, str] = {}
        if certificates is not None and protocol.endswith("SSL"):
            properties |= _tls(prefix, certificates, ask_client=name == "MTLS")
        if protocol.startswith("SASL"):
            properties |= _sasl(prefix, users)
        found.append(Listener(name, protocol, properties))
    return tuple(found)


def scram_users(names: Sequence[str], users: Sequence[Credentials]) -> tuple[str, ...]:
    """Return the users as ``StorageTool format --add-scram`` takes them (KIP-900)."""
    if not any(_PROTOCOLS[name].startswith("SASL") for name in names):
        return ()
    return tuple(
        f"{mechanism}=[name={user.username},password={user.password}]" for user in users for mechanism in _SCRAM
    )


def authorizer_properties() -> dict[str, str]:
    """Return what makes ACLs count. The PLAINTEXT listener stays all-powerful, so that a test can set them up."""
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "false",
    }


def unsecured_token(username: str, seconds: float = 3600.0) -> str:
    """Make an unsigned JSON Web Token, which the embedded broker takes for OAUTHBEARER (never a real one's way).

    Args:
        username: Becomes the principal ``User:username``.
        seconds: How long it is valid from now on.
    """
    now = time.time()
    claims = {"sub": username, "iat": now - 1, "exp": now + seconds}
    return ".".join([_base64(json.dumps({"alg": "none"})), _base64(json.dumps(claims)), ""])


def _tls(prefix: str, certificates: Certificates, *, ask_client: bool) -> dict[str, str]:
    return {
        f"{prefix}.ssl.keystore.type": "PKCS12",
        f"{prefix}.ssl.keystore.location": str(certificates.broker_p12),
        f"{prefix}.ssl.keystore.password": certificates.password,
        f"{prefix}.ssl.key.password": certificates.password,
        f"{prefix}.ssl.truststore.type": "PEM",
        f"{prefix}.ssl.truststore.location": str(certificates.ca),
        f"{prefix}.ssl.client.auth": "required" if ask_client else "none",
    }


def _sasl(prefix: str, users: Sequence[Credentials]) -> dict[str, str]:
    known = " ".join(f"user_{user.username}={_quoted(user.password)}" for user in users)
    return {
        f"{prefix}.sasl.enabled.mechanisms": ",".join(_MECHANISMS),
        f"{prefix}.plain.sasl.jaas.config": f"{_PLAIN_MODULE} required {known};",
        **{f"{prefix}.{mechanism.lower()}.sasl.jaas.config": f"{_SCRAM_MODULE} required;" for mechanism in _SCRAM},
        # The subject is for the broker's own login, which nothing uses; the module insists on one.
        f"{prefix}.oauthbearer.sasl.jaas.config": f'{_OAUTH_MODULE} required unsecuredLoginStringClaim_sub="broker";',
    }


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
