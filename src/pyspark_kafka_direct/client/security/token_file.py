"""Tokens from a file, which Kubernetes or another program renews."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.client.security.jwt import read_claims, read_expiry
from pyspark_kafka_direct.client.security.oauth_tokens import OAuthBearerToken
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.security_settings import Secret

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.security.oauth_tokens import TokenRetriever
    from pyspark_kafka_direct.options.security_settings import FileTokens

_MAX_FILE_BYTES: Final = 1 << 20


def file_token_retriever(source: FileTokens) -> TokenRetriever:
    """Return a function that reads the token in a file."""

    def retrieve(_: object) -> OAuthBearerToken:
        token = read_jwt_file(source.path, source.url_option)
        return OAuthBearerToken(Secret(token), read_expiry(token))

    return retrieve


def read_jwt_file(path: str, option: str) -> str:
    """Return the JWT in a file; ``option`` is the name of the option that names the file."""
    token = read_text_file(path, option).strip()
    # As Java's CachedFile, so that another file, or one that is being written, is not sent.
    if read_claims(token) is None:
        raise OptionError(
            f"option {option}: {path!r} on {socket.gethostname()} does not contain a complete JWT (three parts in "
            "base64url, joined by dots); wait until it is written, or write a token into it"
        )
    return token


def read_text_file(path: str, option: str) -> str:
    """Return the text in a file; ``option`` is the name of the option that names the file."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        text = data.decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path, or not UTF-8"
        raise OptionError(
            f"option {option}: {path!r} cannot be read on {socket.gethostname()} ({reason}); the file must exist on "
            "the driver and on every executor"
        ) from None
    if len(data) > _MAX_FILE_BYTES:
        raise OptionError(f"option {option}: {path!r} is larger than {_MAX_FILE_BYTES >> 20} MiB")
    return text
