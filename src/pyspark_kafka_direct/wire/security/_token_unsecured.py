"""Unsigned tokens, made here from claims: what Kafka does where no token endpoint is set, and fit for tests only.

base64url({"alg":"none"}) "." base64url({"sub":"alice","iat":...,"exp":...}) "."       (RFC 7519, 6)
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from pyspark_kafka_direct.settings.secret import Secret
from pyspark_kafka_direct.wire.security._token import Token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.settings.security import UnsecuredClaims


def unsecured_token(claims: UnsecuredClaims, extensions: tuple[tuple[str, str], ...], now: float) -> Token:
    """Make a token.

    Args:
        claims: What it says, and for how long.
        extensions: SASL extensions to send with it.
        now: Seconds since 1970.
    """
    expires_at = now + claims.lifetime_seconds
    content = {name: list(value) if isinstance(value, tuple) else value for name, value in claims.claims}
    content |= {"iat": now, "exp": expires_at}
    return Token(Secret(f"{_base64url({'alg': 'none'})}.{_base64url(content)}."), expires_at, extensions)


def _base64url(content: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
