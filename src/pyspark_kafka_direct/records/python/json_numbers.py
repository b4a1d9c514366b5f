"""Decimals and base64, as Spark's ``from_json`` reads them."""

from __future__ import annotations

import base64
import re
from decimal import Decimal
from typing import Final

_DECIMAL: Final = re.compile(rb"([+-]?)(?:([0-9]+)\.?([0-9]*)|\.([0-9]+))(?:[eE]([+-]?[0-9]+))?")
_INT32: Final = range(-(1 << 31), 1 << 31)
_MAX_EXPONENT_DIGITS: Final = 10

_BASE64: Final = re.compile(rb"(?:[\x00- ]*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==))*[\x00- ]*")
_BASE64_GROUP: Final = re.compile(rb"[A-Za-z0-9+/=]{4}")


def rounded_decimal(text: bytes, precision: int, scale: int) -> Decimal:
    """Return a number of Java's ``BigDecimal``, rounded half up. Commas are ignored, as in Spark.

    Raises:
        ValueError: The string is no number.
        OverflowError: The number has too many digits.
    """
    found = _DECIMAL.fullmatch(text.replace(b",", b""))
    if found is None:
        raise ValueError
    fraction = found[3] or found[4] or b""
    digits = ((found[2] or b"") + fraction).lstrip(b"0")
    digits_scale = len(fraction) - _exponent(found[5] or b"0")
    if digits_scale not in _INT32:
        raise OverflowError
    kept = len(digits) - digits_scale + scale  # of the digits, and of zeros after them
    unscaled = 0
    if digits and kept >= 0:
        if kept > precision:
            raise OverflowError
        unscaled = int(digits[:kept].ljust(kept, b"0") or b"0") + (digits[kept : kept + 1] >= b"5")
    if unscaled >= 10**precision:
        raise OverflowError
    return Decimal((found[1] == b"-" and unscaled != 0, tuple(map(int, str(unscaled))), -scale))


def decode_base64(text: bytes) -> bytes | None:
    """Return the bytes of groups of four characters, between which blanks are ignored; None if a group is none."""
    if _BASE64.fullmatch(text) is None:
        return None
    return b"".join(base64.b64decode(group) for group in _BASE64_GROUP.findall(text))


def _exponent(text: bytes) -> int:
    digits = text.lstrip(b"+-").lstrip(b"0")
    exponent = int(digits or b"0") if len(digits) <= _MAX_EXPONENT_DIGITS else 1 << 40
    exponent = -exponent if text.startswith(b"-") else exponent
    if exponent not in _INT32:
        raise OverflowError
    return exponent
