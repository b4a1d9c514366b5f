"""Creates and renews delegation tokens (KIP-48)."""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.client.deadline import Backoff, Retry
from pyspark_kafka_direct.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ProtocolError,
    TransientBrokerError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.options.security_settings import Secret
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_for
from pyspark_kafka_direct.protocol.messages import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.protocol.messages import ApiMessageType

_log = logging.getLogger("pyspark_kafka_direct.client")

_PROPAGATION_SECONDS: Final = 10.0  # how long a new token waits for brokers that lag behind
_PROPAGATION_PAUSE: Final = 0.05  # seconds between the requests to a broker that does not have a new token yet
_BROKERS_DEFAULT: Final = -1  # of the lifetime, and of the period of a renewal
_MIN_PERIOD_MS: Final = 1000
_MAX_TOKEN_LENGTH: Final = 1024  # of the id and of the HMAC, which have 22 characters and 64 bytes


class LostTokenError(BrokerError):
    """A token cannot be renewed any more, so a new one has to replace it."""


_REASONS: Final[Mapping[int, tuple[type[BrokerError], str]]] = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        UnsupportedBrokerError,
        "Delegation tokens are disabled in the cluster: set delegation.token.secret.key on its brokers and controllers",
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        AuthenticationError,
        "The login cannot create a delegation token: log in with SASL or a client certificate, but not with another "
        "delegation token",
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (
        AuthorizationError,
        "The principal may not create a delegation token for its owner",
    ),
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: (LostTokenError, "The brokers do not have the delegation token any more"),
    ErrorCode.DELEGATION_TOKEN_EXPIRED: (LostTokenError, "The delegation token has expired"),
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: (LostTokenError, "The principal may not renew the delegation token"),
}


class CreatedToken(NamedTuple):
    """A new token; the times are milliseconds since 1970 on the broker's clock."""

    owner: tuple[str, str]  # type and name of the principal
    id: Secret
    hmac: Secret  # in base64, as SCRAM and renewals have it
    issued_ms: int
    expires_ms: int
    ends_ms: int  # no renewal prolongs the token beyond it


def create_delegation_token(cluster: ClusterClient, deadline: Deadline) -> CreatedToken:
    """Create a token for the principal of the login, with the cluster's lifetimes; wait until its brokers have it."""
    request = {"renewers": [], "max_lifetime_ms": _BROKERS_DEFAULT}
    response = _call(cluster, CREATE_DELEGATION_TOKEN, request, "creating a delegation token", deadline)
    times = (response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms)
    is_valid = all(0 < len(value) <= _MAX_TOKEN_LENGTH for value in (response.token_id, response.hmac))
    if not is_valid or not times[0] + _MIN_PERIOD_MS <= times[1] <= times[2]:
        raise ProtocolError("The response to CreateDelegationToken has no token that is valid for a second.")
    owner = (response.principal_type, response.principal_name)
    token = CreatedToken(owner, Secret(response.token_id), Secret(base64.b64encode(response.hmac).decode()), *times)
    _wait_until_brokers_have(token, cluster, deadline.limited_to(_PROPAGATION_SECONDS))
    return token


def renew_delegation_token(cluster: ClusterClient, hmac: Secret, deadline: Deadline) -> int:
    """Renew a token for the cluster's period; return its new expiry time, in milliseconds on the broker's clock."""
    request = {"hmac": base64.b64decode(hmac.reveal()), "renew_period_ms": _BROKERS_DEFAULT}
    response = _call(cluster, RENEW_DELEGATION_TOKEN, request, "renewing a delegation token", deadline)
    expiry: int = response.expiry_timestamp_ms
    return expiry


def _wait_until_brokers_have(token: CreatedToken, cluster: ClusterClient, deadline: Deadline) -> None:
    """Wait until all brokers that can be reached accept a new token, which reaches them with their metadata."""
    try:
        cluster.refresh_brokers(deadline=deadline)
    except BrokerError as error:
        _log.info("the brokers may not have the new delegation token yet: %s", error)
    owner_type, owner_name = token.owner
    request = {"owners": [{"principal_type": owner_type, "principal_name": owner_name}]}
    for node in cluster.nodes.values():
        try:
            while True:
                connection = cluster.connect(node, deadline)
                try:
                    response = connection.call(DESCRIBE_DELEGATION_TOKEN, request, deadline)
                finally:
                    cluster.release(connection)
                if any(each.token_id == token.id.reveal() for each in response.tokens):
                    break
                if response.error_code != ErrorCode.NONE or deadline.remaining() <= _PROPAGATION_PAUSE:
                    break  # the broker does not list tokens, or lags behind for long
                deadline.system.sleep(_PROPAGATION_PAUSE)
        except BrokerError as error:
            _log.info("the broker %d may not have the new delegation token yet: %s", node.id, error)


def _call(
    cluster: ClusterClient, api: ApiMessageType, request: Mapping[str, Any], operation: str, deadline: Deadline
) -> Any:
    def call(connection: Connection, limit: Deadline) -> Any:
        response = connection.call(api, request, limit)
        if response.error_code != ErrorCode.NONE:
            raise _response_error(response.error_code, operation, connection.broker)
        return response

    retry = Retry(deadline, None, Backoff.of(cluster.settings))
    while True:
        try:
            return cluster.call_any_broker(call, deadline, retry.tries)
        except TransientBrokerError as error:
            retry.wait_or_raise(error)


def _response_error(code: int, operation: str, broker: str) -> KafkaDirectError:
    if code not in _REASONS:
        error = error_for(code, operation, broker=broker)
        return BrokerError(error.message, broker=broker) if isinstance(error, ProtocolError) else error
    error_class, reason = _REASONS[code]
    return error_class(f"{reason}.", broker=broker)
