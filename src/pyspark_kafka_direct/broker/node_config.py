"""The configuration of a node: ``server.properties``, listeners, users and logging."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_kafka_direct.broker.probe import HOST
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pyspark_kafka_direct.broker.certificate_authority import Certificates

CONTROLLER = "CONTROLLER"
PLAINTEXT = "PLAINTEXT"

# A cluster for demos and tests: small, quick to start and to react, and without time-based retention.
_BASE_PROPERTIES = {
    "process.roles": "broker,controller",
    "controller.listener.names": CONTROLLER,
    "inter.broker.listener.name": PLAINTEXT,
    "auto.create.topics.enable": "false",  # a mistyped topic fails
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    # By default a record is deleted when its timestamp is a week old, even minutes after it was produced. Old data,
    # such as the demo's flights of 2013, would disappear.
    "log.retention.ms": "-1",
    # With these intervals a test of retention or compaction does not wait half a minute or longer.
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),  # allocated from the heap at startup; 128 MB by default
    "num.recovery.threads.per.data.dir": "1",
    "broker.heartbeat.interval.ms": "500",
    "metadata.max.idle.interval.ms": "0",  # by default the controller writes an empty record twice a second
    "broker.session.timeout.ms": "6000",  # until a killed broker is detected; 9 s by default
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",  # KIP-392
}

# Listener name -> Kafka's security protocol. MTLS is our name for SSL that requires a client certificate.
_PROTOCOLS = {"SSL": "SSL", "MTLS": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SASL_SSL"}
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS = ("PLAIN", *_SCRAM, "OAUTHBEARER")

_SECURITY_PACKAGE = "org.apache.kafka.common.security"
_PLAIN_MODULE = f"{_SECURITY_PACKAGE}.plain.PlainLoginModule"
_SCRAM_MODULE = f"{_SECURITY_PACKAGE}.scram.ScramLoginModule"
_OAUTH_MODULE = f"{_SECURITY_PACKAGE}.oauthbearer.OAuthBearerLoginModule"

# The same logging for Kafka 4 (Log4j 2) and Kafka 3 (reload4j).
_LOG4J_2 = """\
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
"""

_RELOAD4J = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener with its security protocol and the broker properties of that protocol."""

    name: str
    protocol: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # contains passwords


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A node of the cluster: its id, and its ports by listener name, including the controller listener."""

    id: int
    ports: Mapping[str, int]


def server_properties(
    node: NodeConfig,
    nodes: tuple[NodeConfig, ...],
    listeners: tuple[Listener, ...],
    data: str,
    extra: Mapping[str, str],
) -> dict[str, str]:
    """Return the ``server.properties`` of ``node``.

    ``data`` is the node's folder for topic data; ``extra`` overrides all other properties.
    """
    replicas = str(min(3, len(nodes)))
    addresses = [f"{listener.name}://{HOST}:{node.ports[listener.name]}" for listener in listeners]
    protocols = [f"{listener.name}:{listener.protocol}" for listener in listeners]
    result = dict(_BASE_PROPERTIES)
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        result[f"{topic}.replication.factor"] = replicas
    for topic in ("transaction.state.log", "share.coordinator.state.topic"):
        result[f"{topic}.min.isr"] = "1"  # one live broker of three is enough
    for listener in listeners:
        result.update(listener.properties)
    return result | {
        "node.id": str(node.id),
        "broker.rack": f"rack-{node.id}",
        "controller.quorum.voters": ",".join(f"{peer.id}@{HOST}:{peer.ports[CONTROLLER]}" for peer in nodes),
        "listeners": ",".join([*addresses, f"{CONTROLLER}://{HOST}:{node.ports[CONTROLLER]}"]),
        "advertised.listeners": ",".join(addresses),
        "listener.security.protocol.map": ",".join([*protocols, f"{CONTROLLER}:PLAINTEXT"]),
        "log.dirs": data,
        **extra,
    }


def format_properties(properties: Mapping[str, str]) -> str:
    r"""Return the content of a Java properties file.

    >>> format_properties({"a.path": "C:\\data", "b": "two\nlines"})
    'a.path=C:\\\\data\nb=two\\nlines\n'
    """
    escaped = {name: value.replace("\\", "\\\\").replace("\n", "\\n") for name, value in properties.items()}
    return "".join(f"{name}={value}\n" for name, value in escaped.items())


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user of the embedded cluster, for PLAIN and both SCRAM mechanisms."""

    username: str
    password: str = field(repr=False)


DEFAULT_USERS = (Credentials("alice", "alice-secret"), Credentials("bob", "bob-secret"))


def check_listener_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the listener names without duplicates; raises OptionError for an unknown name."""
    unique = tuple(dict.fromkeys(names))
    for name in unique:
        if name not in _PROTOCOLS:
            raise OptionError(f"security contains {name!r}: an embedded Kafka supports {', '.join(_PROTOCOLS)}")
    return unique


def needs_certificates(names: Sequence[str]) -> bool:
    """Return whether one of the listeners uses TLS."""
    return any(_PROTOCOLS[name].endswith("SSL") for name in names)


def build_listeners(
    names: Sequence[str], certificates: Certificates | None, users: Sequence[Credentials]
) -> tuple[Listener, ...]:
    """Return the PLAINTEXT listener, which always exists, and the listeners with these names."""
    listeners = [Listener(PLAINTEXT, "PLAINTEXT")]
    for name in names:
        protocol = _PROTOCOLS[name]
        prefix = f"listener.name.{name.lower()}"
        properties: dict[str, str] = {}
        if certificates is not None and protocol.endswith("SSL"):
            properties |= _tls(prefix, certificates, require_client_certificate=name == "MTLS")
        if protocol.startswith("SASL"):
            properties |= _sasl(prefix, users)
        listeners.append(Listener(name, protocol, properties))
    return tuple(listeners)


def scram_users(listeners: Sequence[str], users: Sequence[Credentials]) -> tuple[str, ...]:
    """Return the users as values of ``StorageTool format --add-scram`` (KIP-900)."""
    if not any(_PROTOCOLS[listener].startswith("SASL") for listener in listeners):
        return ()
    return tuple(
        f"{mechanism}=[name={user.username},password={user.password}]" for user in users for mechanism in _SCRAM
    )


def authorizer_properties() -> dict[str, str]:
    """Return the properties that enforce ACLs; clients of PLAINTEXT stay super users, so that tests can set ACLs."""
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "false",
    }


def unsecured_token(username: str, seconds: float = 3600.0) -> str:
    """Return an unsigned JSON Web Token that the embedded broker accepts for OAUTHBEARER; production brokers never do.

    Args:
        username: Becomes the principal ``User:username``.
        seconds: The time until the token expires.
    """
    now = time.time()
    claims = {"sub": username, "iat": now - 1, "exp": now + seconds}
    no_signature = ""
    return ".".join([_base64(json.dumps({"alg": "none"})), _base64(json.dumps(claims)), no_signature])


def write_log4j_config(folder: Path, version: str) -> list[str]:
    """Write the logging configuration into ``folder`` and return the JVM options that select it."""
    path = folder / "log4j.properties"
    if version.startswith("3."):
        path.write_text(_RELOAD4J)
        return [f"-Dlog4j.configuration={path.as_uri()}"]
    path.write_text(_LOG4J_2)
    return [f"-Dlog4j2.configurationFile={path.as_uri()}"]


def _tls(prefix: str, certificates: Certificates, *, require_client_certificate: bool) -> dict[str, str]:
    return {
        f"{prefix}.ssl.keystore.type": "PKCS12",
        f"{prefix}.ssl.keystore.location": str(certificates.broker_p12),
        f"{prefix}.ssl.keystore.password": certificates.password,
        f"{prefix}.ssl.key.password": certificates.password,
        f"{prefix}.ssl.truststore.type": "PEM",
        f"{prefix}.ssl.truststore.location": str(certificates.ca),
        f"{prefix}.ssl.client.auth": "required" if require_client_certificate else "none",
    }


def _sasl(prefix: str, users: Sequence[Credentials]) -> dict[str, str]:
    passwords = " ".join(f"user_{user.username}={_quoted(user.password)}" for user in users)
    return {
        f"{prefix}.sasl.enabled.mechanisms": ",".join(_MECHANISMS),
        f"{prefix}.plain.sasl.jaas.config": f"{_PLAIN_MODULE} required {passwords};",
        **{f"{prefix}.{mechanism.lower()}.sasl.jaas.config": f"{_SCRAM_MODULE} required;" for mechanism in _SCRAM},
        # The subject is for the broker's own login, which is not used; the module requires one.
        f"{prefix}.oauthbearer.sasl.jaas.config": f'{_OAUTH_MODULE} required unsecuredLoginStringClaim_sub="broker";',
    }


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
