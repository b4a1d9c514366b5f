"""Settings and connections of clients that log in with Kerberos."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.settings import parse_client_params

from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.protocol.messages import METADATA

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.options.settings import ConnectionSettings

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
HANG = 120.0  # seconds


def with_keytab(principal: str, keytab: Path, options: str = "") -> str:
    """Return ``sasl.jaas.config``."""
    return f'{MODULE} required useKeyTab=true keyTab="{keytab}" principal="{principal}" {options};'


def client_params(kafka: EmbeddedKafka, jaas: str, listener: str = "SASL_PLAINTEXT") -> dict[str, str]:
    """Return client settings with Java's names."""
    params = {
        "bootstrap.servers": kafka.listener(listener),
        "security.protocol": listener,
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": jaas,
    }
    if listener == "SASL_SSL":
        params["ssl.truststore.location"] = str(kafka.certificates.ca)
    return params


def settings(kafka: EmbeddedKafka, jaas: str, listener: str = "SASL_PLAINTEXT", **more: str) -> ConnectionSettings:
    """Return parsed settings; ``request_timeout_ms`` means ``request.timeout.ms``."""
    named = {name.replace("_", "."): value for name, value in more.items()}
    params = client_params(kafka, jaas, listener) | named
    return parse_client_params({name: value for name, value in params.items() if value}).connection


def connect(settings: ConnectionSettings, seconds: float = HANG) -> None:
    """Log in at the broker, and send a request."""
    connection = Connection.open(settings, *settings.bootstrap_servers[0], Deadline.after(seconds))
    send_request(connection)
    connection.close()


def send_request(connection: Connection) -> None:
    values = {"topics": [], "allow_auto_topic_creation": False}
    assert connection.call(METADATA, values, Deadline.after(HANG)).brokers
