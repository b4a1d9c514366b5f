"""The JAAS texts of logins to test brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.broker.node_config import DEFAULT_USERS

if TYPE_CHECKING:
    from pyspark_kafka_direct.broker import Credentials

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MECHANISMS = {"PLAIN": PLAIN, "SCRAM-SHA-256": SCRAM, "SCRAM-SHA-512": SCRAM}

ALICE = next(user for user in DEFAULT_USERS if user.username == "alice")


def jaas_text(mechanism: str, user: Credentials = ALICE, *, password: str | None = None) -> str:
    """Return ``sasl.jaas.config`` of a user, with another password if one is given."""
    escaped = (user.password if password is None else password).replace("\\", "\\\\").replace('"', '\\"')
    return f'{MECHANISMS[mechanism]} required username="{user.username}" password="{escaped}";'
