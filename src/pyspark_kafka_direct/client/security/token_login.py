"""Logins with a delegation token that the application's driver obtains."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import AuthenticationError, BrokerTimeoutError
from pyspark_kafka_direct.options.security_settings import TOKENS

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.options.security_settings import (
        DelegationToken,
        DelegationTokenLogin,
        SaslSettings,
        TokenState,
    )

_POLL_SECONDS: Final = 0.1


def with_token(sasl: SaslSettings, login: DelegationTokenLogin, deadline: Deadline, broker: str) -> SaslSettings:
    """Return the settings with the newest token; on the driver, wait until there is one that has not expired."""
    token = wait_for_token(login, deadline, broker)
    return dataclasses.replace(sasl, username=token.id.reveal(), password=token.hmac, is_delegation_token=True)


def wait_for_token(login: DelegationTokenLogin, deadline: Deadline, broker: str | None = None) -> DelegationToken:
    """Return the newest token; on the driver, wait until there is one that has not expired.

    Call it before tasks are pickled on the driver, unless it has just logged in with the token: tasks cannot wait.
    """
    while True:
        state = TOKENS.state(login)
        # The clock of an executor may differ, so there the broker decides whether the token has expired.
        is_valid = state.token is not None and (
            not state.is_driver or deadline.system.wall_time() < state.token.expires_at
        )
        if state.token is not None and is_valid:
            return state.token
        if state.is_final or not state.is_driver:
            raise AuthenticationError(_missing_token(login.cluster, state), broker=broker)
        if deadline.remaining() <= _POLL_SECONDS:
            raise BrokerTimeoutError(_missing_token(login.cluster, state), broker=broker)
        deadline.system.sleep(_POLL_SECONDS)


def rejected_token_advice(cluster: str) -> str:
    """Return what to do if a broker rejects a token."""
    return (
        f"It may have expired: the process that called enable(spark) renews the token of "
        f"spark.kafka.clusters.{cluster}, and each batch has the newest one. If the DataFrame or RDD is older than the "
        "token, create it again."
    )


def _missing_token(cluster: str, state: TokenState) -> str:
    missing = "The application has no delegation token" if state.token is None else "The delegation token has expired"
    reason = "the process that called enable(spark) has not created one in time" if state.error is None else state.error
    return f"{missing} for spark.kafka.clusters.{cluster}: {reason.rstrip('.')}."
