"""The numbers and strings of ``.proto`` files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_ESCAPE: Final = re.compile(
    rb"\\(?:u(?P<pair>[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?P<octal>[0-7]{1,3})|[xX](?P<hex>[0-9a-fA-F]{1,2})|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})"
    rb"""|(?P<simple>[abfnrtv\\'"?]))"""
)
_PREFIXED_INTEGER: Final = re.compile(r"0(?:[xX][0-9a-fA-F]+|[0-7]+)")
_ASCII: Final = {byte: chr(byte) for byte in range(32, 127) if byte not in b"\\\"'"}  # which need no escape
_SIMPLE: Final = dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v", strict=True))


def parse_integer(text: str) -> int:
    """Parse a decimal, hexadecimal or octal number; a ValueError if it is none."""
    digits = text.lstrip("-")
    is_octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()  # in Python, octal numbers begin with 0o
    return int(text, 8 if is_octal else 0)


def parse_number(text: str) -> float:
    """Parse a number that may have a fraction; integers may be hexadecimal or octal."""
    digits = text.removeprefix("-")
    number = float(parse_integer(digits) if _PREFIXED_INTEGER.fullmatch(digits) else digits)
    return -number if text.startswith("-") else number


def unescape(text: str) -> bytes:
    """Return the bytes of a string without its quotes; what is no escape stays as it is."""
    return _ESCAPE.sub(_replacement, text.encode(errors="replace"))


def joined(literals: Iterable[str]) -> str:
    """Return adjacent strings, without their quotes, as one: an escape ends with its string."""
    return "".join(_ASCII.get(byte) or f"\\{byte:03o}" for literal in literals for byte in unescape(literal))


def _replacement(found: re.Match[bytes]) -> bytes:
    kind = found.lastgroup or ""
    digits = found[kind]
    match kind:
        case "pair":  # of surrogates in UTF-16
            return bytes.fromhex(digits.decode().replace("\\u", "")).decode("utf-16-be").encode()
        case "octal":
            return bytes([int(digits, 8) % 256])
        case "hex":
            return bytes([int(digits, 16)])
        case "short" | "long":
            number = int(digits, 16)
            return chr(number).encode(errors="replace") if number <= 0x10FFFF else found[0]
    return bytes([_SIMPLE.get(digits[0], digits[0])])
