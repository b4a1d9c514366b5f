"""Tokens of Microsoft Entra ID for Azure Event Hubs, from azure-identity."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.client.security.oauth_tokens import OAuthBearerToken
from pyspark_kafka_direct.client.security.optional_library import missing_library
from pyspark_kafka_direct.errors import AuthenticationError, printable
from pyspark_kafka_direct.options.security_settings import Secret

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.security.oauth_tokens import TokenRetriever

_HOST: Final = re.compile(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
_ENTRA_CODE: Final = re.compile(r"AADSTS[0-9]{1,10}")


def azure_token_retriever(host: str) -> TokenRetriever:
    """Return a function that requests tokens whose audience is ``host``: no other host accepts them."""
    credential: list[Any] = []  # created with the first token, in the process that requests it; it has a cache

    def retrieve(_: object) -> OAuthBearerToken:
        if _HOST.fullmatch(host) is None:  # it may come from a broker, and must not add a path to the scope
            raise AuthenticationError(f"No token: {printable(host)!r} is not the host name of an Event Hubs namespace.")
        if not credential:
            credential.append(_default_credential())
        from azure.core.exceptions import ClientAuthenticationError

        try:
            token = credential[0].get_token(f"https://{host}/.default")
        except ClientAuthenticationError as error:
            raise AuthenticationError(_failure(str(error), host)) from error
        return OAuthBearerToken(Secret(token.token), float(token.expires_on))

    return retrieve


def _failure(message: str, host: str) -> str:
    """Return the error for a message of azure-identity, which is long and may repeat parts of requests."""
    codes = ", ".join(dict.fromkeys(_ENTRA_CODE.findall(message)))
    if codes:
        problem = f"Microsoft Entra ID rejected the credentials for {host} with {codes}; check identity and host"
    else:
        problem = (
            f"azure-identity found no valid credentials on {socket.gethostname()}; assign a managed identity, or set "
            "the variables of a workload identity or service principal (AZURE_CLIENT_ID and others) in the environment "
            "of each process that connects"
        )
    return f"No token: {problem}. Set PYSPARK_KAFKA_DIRECT_LOG_LEVEL=DEBUG in the environment to log its message."


def _default_credential() -> Any:
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError as error:
        raise missing_library("azure-identity", extra="azure", purpose="the login to Azure Event Hubs") from error
    return DefaultAzureCredential()
