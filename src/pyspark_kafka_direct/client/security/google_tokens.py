"""Tokens of Google Cloud's Managed Service for Apache Kafka: an access token in the form of a JSON Web Token.

    base64url({"typ":"JWT","alg":"GOOG_OAUTH2_TOKEN"}) "." base64url({"sub":"ACCOUNT","exp":...}) "." base64url(token)

Google's ``GcpLoginCallbackHandler`` and its local server for other clients create the same tokens.
"""

from __future__ import annotations

import base64
import json
import os
import socket
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.client.security.oauth_tokens import OAuthBearerToken
from pyspark_kafka_direct.client.security.optional_library import missing_library
from pyspark_kafka_direct.errors import AuthenticationError
from pyspark_kafka_direct.options.security_settings import Secret

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.security.oauth_tokens import TokenRetriever
    from pyspark_kafka_direct.client.system import System

_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"  # the only one that the service accepts
_PRINCIPAL_VARIABLE: Final = "GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL"  # as in Google's local server


def google_token_retriever(system: System) -> TokenRetriever:
    """Return a function that requests an access token with the application default credentials."""
    created: list[Any] = []  # with the first token, in the process that requests it

    def retrieve(_: object) -> OAuthBearerToken:
        try:
            import google.auth
            from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
            from google.auth.transport.requests import Request
        except ImportError as error:
            purpose = "the login to Google Cloud's Kafka service"
            raise missing_library("google-auth[requests]", extra="gcp", purpose=purpose) from error
        try:
            if not created:
                created.append(google.auth.default(scopes=[_SCOPE])[0])
            credentials = created[0]
            credentials.refresh(Request())
        except DefaultCredentialsError:
            raise AuthenticationError(
                f"No token: there are no application default credentials on {socket.gethostname()}. Set "
                "GOOGLE_APPLICATION_CREDENTIALS, or use the service account of the machine; each process that connects "
                "has its own environment."
            ) from None
        except GoogleAuthError as error:
            raise AuthenticationError(
                f"No token: Google rejected the application default credentials of {socket.gethostname()}, or cannot "
                f"be reached ({type(error).__name__}). Set PYSPARK_KAFKA_DIRECT_LOG_LEVEL=DEBUG in the environment to "
                "log its message."
            ) from error
        return _kafka_token(credentials, system.wall_time())

    return retrieve


def _kafka_token(credentials: Any, now: float) -> OAuthBearerToken:
    account = getattr(credentials, "service_account_email", None) or os.environ.get(_PRINCIPAL_VARIABLE)
    if not account:  # credentials of a person, for example
        raise AuthenticationError(
            f"No token: the application default credentials of {socket.gethostname()} have no service account. Use "
            f"those of one, or set {_PRINCIPAL_VARIABLE} to the account's e-mail address in the environment."
        )
    expires_at = int(credentials.expiry.replace(tzinfo=UTC).timestamp())  # its times are in UTC without a zone
    header = json.dumps({"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"})
    claims = json.dumps({"exp": expires_at, "iat": int(now), "iss": "Google", "scope": "kafka", "sub": account})
    parts = (header, claims, credentials.token)
    return OAuthBearerToken(Secret(".".join(_base64url(part) for part in parts)), expires_at)


def _base64url(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
