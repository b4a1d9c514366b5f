"""Brokers with delegation tokens that live for seconds, and Spark configurations that use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.logins import jaas_text
from tests.shards.brokers import FEW_THREADS, new_kafka

if TYPE_CHECKING:
    from pyspark_kafka_direct.broker import EmbeddedKafka

PERIOD, LIFETIME = 12.0, 60.0
"""Seconds after which a token expires, and until when it can be renewed. It is replaced after half of the lifetime."""


def token_kafka() -> EmbeddedKafka:
    properties = {
        **FEW_THREADS,
        "delegation.token.secret.key": "a-key-of-the-brokers",
        "delegation.token.expiry.time.ms": str(int(PERIOD * 1000)),
        "delegation.token.max.lifetime.ms": str(int(LIFETIME * 1000)),
        "delegation.token.expiry.check.interval.ms": "1000",
    }
    return new_kafka(security=["MTLS", "SASL_PLAINTEXT", "SASL_SSL"], properties=properties)


def password_login(kafka: EmbeddedKafka) -> dict[str, str]:
    """Return client settings that log in at SASL_PLAINTEXT without a token."""
    return {
        "bootstrap.servers": kafka.listener("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas_text("PLAIN"),
    }


def token_conf(kafka: EmbeddedKafka, cluster: str = "main", **more: str) -> dict[str, str]:
    """Return a Spark configuration whose token is obtained with a password; ``_`` in a name stands for a dot."""
    login = password_login(kafka)
    settings = {
        "auth.bootstrap.servers": login["bootstrap.servers"],
        "security.protocol": login["security.protocol"],
        "sasl.token.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.mechanism": login["sasl.mechanism"],
        "kafka.sasl.jaas.config": login["sasl.jaas.config"],
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return {f"spark.kafka.clusters.{cluster}.{name}": value for name, value in settings.items()}
