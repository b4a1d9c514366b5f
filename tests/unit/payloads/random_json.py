"""Random JSON for the tests of decoders."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

SCALARS: Final = (
    *["null", "true", "false", "0", "-0", "1", "-128", "128", "255", "256", "32768", "2147483648", "12345678"],
    *["9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"],
    *["123456789012345678901234567890", "01", "1.", ".5", "+1", "-"],
    *["0.1", "-0.0", "1.50", "1e3", "1E-7", "1e400", "1e39", "1e-50", "16777217.0", "9007199254740993", "tru"],
    *["1.00000017881393432617187499", "1.00000017881393432617187500", "7.0385307e-26", "3.4028235677973366e38"],
    *["NaN", "Infinity", "+Infinity", "-INF", "INF", '"NaN"', "'-Infinity'", '"1"', '""', "'q'", "'a\"b\\''"],
    *['"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00\\ud83dx"', '"\\x"', '"\\u12"', '"\\u00e9\\n\\/"', '"é中"'],
    *['"0123456789abcdef"', '"0123456789abcdef0123456789abcdef!"', '"' + "long " * 20 + '"', '"\t"', '"\x7f"'],
)
INSERTED: Final = (b'"', b"'", b"\\", b"{", b"]", b",", b"\x00", b"\xff", b"\xe2\x82")


class RandomJson:
    """Random JSON, with much that is not quite JSON.

    Args:
        source: The random numbers.
        names: The names of fields with which columns are decoded.
    """

    def __init__(self, source: random.Random, names: Sequence[str]) -> None:
        self._source = source
        self._names = [*names, "unwanted", "a key of more than sixteen bytes", "é", "x", "t", "\\u0069"]

    def row(self) -> bytes | None:
        """Return a row of a column."""
        match self._source.randrange(10):
            case 0:
                return self._source.choice([None, b"", b" \n", b"null", b"[]", b"{}"])
            case 1 | 2 | 3:
                return self.damaged(self.value(4))
            case 4 | 5 | 6:  # in a row of several fields, one is likely to have another type
                return f'{{"{self._source.choice(self._names)}":{self.value(2)}}}'.encode()
        return self.damaged(self._object(3))

    def value(self, depth: int) -> str:
        """Return a value with at most this many levels."""
        if not depth or self._source.random() < 0.4:
            return self._scalar()
        if self._source.random() < 0.6:
            return self._object(depth - 1)
        return "[" + f",{self._blank()}".join(self._values(depth - 1, 3)) + "]"

    def damaged(self, text: str) -> bytes:
        """Return a string with at most two changes."""
        value = bytearray(text.encode())
        for _ in range(self._source.choice([0, 0, 1, 2])):
            at = self._source.randint(0, len(value))
            match self._source.randrange(3):
                case 0:
                    del value[at:]
                case 1:
                    value[at:at] = self._source.choice(INSERTED)
                case 2:
                    del value[at : at + 1]
        return bytes(value)

    def _object(self, depth: int) -> str:
        fields = [f'"{self._source.choice(self._names)}":{self._blank()}{value}' for value in self._values(depth, 6)]
        return "{" + f",{self._blank()}".join(fields) + "}"

    def _values(self, depth: int, most: int) -> list[str]:
        return [self.value(depth) for _ in range(self._source.randint(0, most))]

    def _scalar(self) -> str:
        if self._source.random() < 0.8:
            return self._source.choice(SCALARS)
        (number,) = struct.unpack("<d", self._source.randbytes(8))
        return repr(number if math.isfinite(number) else self._source.uniform(-1000, 1000))

    def _blank(self) -> str:
        return self._source.choice(["", "", "", " ", "\n\t\r "])
