"""Tokens from Python code of the user's: the option ``oauthTokenProvider`` = ``module:factory``."""

from __future__ import annotations

import importlib
import re
import socket
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings.extensions import check_extensions
from pyspark_kafka_direct.settings.secret import Secret
from pyspark_kafka_direct.wire.security._token import Token, finite

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.wire.deadline import Deadline

# Times beyond this are milliseconds, as AWS's signer gives them: as seconds it is the year 5138.
_MOST_SECONDS: Final = 1e11
_BEARER: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750, 2.1


def from_provider(name: str, extensions: tuple[tuple[str, str], ...]) -> Callable[[Deadline], Token]:
    """Give a function that asks the provider for a token.

    The provider is imported and made at the first token, in the process that wants it: nothing of it is pickled.

    Args:
        name: ``module:factory``, checked already.
        extensions: SASL extensions from the settings; the provider's own win.
    """
    providers: list[Any] = []

    def fetch(_: Deadline) -> Token:
        if not providers:
            providers.append(_make(name))
        provider = providers[0]
        answer = provider.token() if hasattr(provider, "token") else provider()
        own = provider.extensions() if hasattr(provider, "extensions") else {}
        pairs = {**dict(extensions), **dict(own or {})}
        return _token(name, answer, check_extensions(pairs.items(), f"oauthTokenProvider {name}"))

    return fetch


def _make(name: str) -> Any:
    module_name, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise OptionError(
            f"option oauthTokenProvider: {name!r} cannot be imported on {socket.gethostname()} ({error}); the module "
            "must be importable on the driver and on every executor (installed there, or sent by spark.submit.pyFiles)"
        ) from error
    try:
        for part in path.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise OptionError(f"option oauthTokenProvider: the module {module_name} has no {path}") from None
    if not callable(found):
        raise OptionError(f"option oauthTokenProvider: {name!r} is not a function; it must return what gives tokens")
    provider = found()
    if not hasattr(provider, "token") and not callable(provider):
        raise OptionError(
            f"option oauthTokenProvider: {name}() must return a function that gives a token, or an object with a "
            f"method token(), not {type(provider).__name__}"
        )
    return provider


def _token(name: str, answer: Any, extensions: tuple[tuple[str, str], ...]) -> Token:
    match answer:
        case str(text):
            expires_at = None
        case (str(text), int() | float() as time):
            told = finite(time)
            expires_at = told / 1000 if told is not None and told > _MOST_SECONDS else told
        case (str(text), None):
            expires_at = None
        case _:
            raise OptionError(
                f"option oauthTokenProvider: {name} gave {type(answer).__name__}; it must give a token as text, or a "
                "pair of a token and the time it expires (seconds or milliseconds since 1970)"
            )
    if _BEARER.fullmatch(text) is None:
        raise OptionError(
            f"option oauthTokenProvider: {name} gave a text that is no bearer token (RFC 6750: letters, digits and "
            "-._~+/ with = at the end)"
        )
    return Token(Secret(text), expires_at, extensions)
