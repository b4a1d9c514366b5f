"""JSON Web Tokens in their compact form (RFC 7515, RFC 7519), which this client writes, and reads without verification.

base64url(JSON header) "." base64url(JSON claims) "." base64url(signature)
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_PART: Final = re.compile(r"[A-Za-z0-9_-]+")
_SIGNATURE_BYTES: Final = {"HS256": 32, "HS384": 48, "HS512": 64, "ES256": 64, "ES384": 96, "ES512": 132, "EdDSA": 64}
_MAX_SECONDS: Final = 1e11  # since 1970; larger times are milliseconds, or cannot be meant
_MIN_RSA_BYTES: Final = 256  # RFC 7518, 3.3; other keys in use are multiples of half of it


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unsigned_jwt(header: Mapping[str, object], claims: Mapping[str, object]) -> str:
    """Return the first two parts of a token, which are signed."""
    return ".".join(base64url(json.dumps(content).encode()) for content in (header, claims))


def read_claims(token: str) -> dict[str, Any] | None:
    """Return the claims of a token, or None for another string, for example the first half of a token."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    header, claims = (json_object(_decode(part) or b"") for part in parts[:2])
    if header is None or claims is None or not _is_complete(parts[2], header.get("alg")):
        return None
    return claims


def read_expiry(token: str) -> float | None:
    """Return the expiry time of a token in seconds since 1970, or None if it has none."""
    expiry = (read_claims(token) or {}).get("exp")
    if not isinstance(expiry, int | float) or isinstance(expiry, bool) or not 0 <= expiry < _MAX_SECONDS:
        return None
    return float(expiry)


def json_object(text: bytes) -> dict[str, Any] | None:
    """Return a JSON object, or None for another text."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        return None
    return content if isinstance(content, dict) else None


def _is_complete(signature: str, algorithm: object) -> bool:
    """Return whether a signature has the length that its algorithm prescribes."""
    if algorithm == "none":
        return signature == ""
    data = _decode(signature)
    if data is None or not isinstance(algorithm, str):
        return False
    if algorithm[:2] in ("RS", "PS"):
        return len(data) >= _MIN_RSA_BYTES and len(data) % (_MIN_RSA_BYTES // 2) == 0
    return len(data) == _SIGNATURE_BYTES.get(algorithm, len(data))


def _decode(part: str) -> bytes | None:
    """Decode a part of a token, or return None if it is empty or is not base64url."""
    if _PART.fullmatch(part) is None:
        return None
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:  # one character too many
        return None
