"""Operations that a principal may perform, as brokers return them (Kafka's ``AclOperation``)."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.cli.doctor.findings import Finding

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.settings import ConnectionSettings

UNKNOWN_OPERATIONS: Final = -(1 << 31)  # the broker is too old, or returned an error

_CODES: Final = {
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "Alter": 7,
    "Describe": 8,
    "DescribeConfigs": 10,
    "AlterConfigs": 11,
}


def check_permission(
    subject: str, operations: int, needed: str, resource: str, settings: ConnectionSettings
) -> Finding:
    """Return whether the principal may perform an operation; ``resource`` is ``--topic flights``, for the advice."""
    if operations == UNKNOWN_OPERATIONS:
        return Finding(
            subject, "acls", "unknown", "The broker does not return permissions (Kafka before 2.3): see its ACLs."
        )
    allowed = [name for name, code in _CODES.items() if operations >> code & 1]
    if needed in allowed:
        return Finding(subject, "acls", "ok", f"allowed: {', '.join(allowed)}")
    lacks = f"The principal lacks {needed} (allowed: {', '.join(allowed) or 'nothing'})."
    return Finding(subject, "acls", "problem", f"{lacks} {grant(needed, resource, settings)}")


def grant(operation: str, resource: str, settings: ConnectionSettings) -> str:
    """Return the sentence that says how to allow an operation."""
    kind, _, name = resource.partition(" ")
    return (
        f"Allow it: kafka-acls.sh --bootstrap-server {settings.bootstrap_string} --add --allow-principal "
        f"{_principal(settings)} --operation {operation} {kind} {shlex.quote(name)}"
    )


def _principal(settings: ConnectionSettings) -> str:
    sasl = settings.security.sasl
    is_user = sasl is not None and sasl.username and sasl.token_login is None and not sasl.is_delegation_token
    return shlex.quote(f"User:{sasl.username}") if sasl is not None and is_user else "User:NAME"
