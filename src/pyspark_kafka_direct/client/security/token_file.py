"""Tokens from a file, which Kubernetes or another program renews."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.client.security.oauth_tokens import OAuthBearerToken
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.security_settings import Secret

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.security.oauth_tokens import TokenRetriever
    from pyspark_kafka_direct.options.security_settings import FileTokens

_MAX_TOKEN_CHARS: Final = 1 << 20


def file_token_retriever(source: FileTokens) -> TokenRetriever:
    """Return a function that reads the token in a file, each time because the file can change."""
    return lambda _: _read_token(source)


def _read_token(source: FileTokens) -> OAuthBearerToken:
    option = f"option {source.url_option}"
    try:
        with open(source.path, encoding="ascii") as file:
            token = file.read(_MAX_TOKEN_CHARS).strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not ASCII text"
        raise OptionError(f"{option}: the token file {source.path!r} cannot be read ({reason})") from None
    if not token or not token.isprintable():
        raise OptionError(f"{option}: the token file {source.path!r} has no token")
    return OAuthBearerToken(Secret(token))
