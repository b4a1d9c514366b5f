"""The programs of Avro encoders, which are lists of numbers.

A program writes the values of one Arrow type by one writer schema. It is a tree of nodes, each of which writes the
values of an array: the column itself, a child of a struct, the elements of a list, or the items of a map. A node is the
number of an ``Op``, the branch of null, the branch of the value, and the arguments of the operation. A branch is -1 if
there is none: null is then an error, and a value is not in a union. Nodes are counted in this order.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

NO_BRANCH: Final = -1

NO_COLUMN: Final = -1
"""In place of a child of a struct: a constant follows, which is the default of a field."""


class Op(IntEnum):
    """Operations, with their arguments."""

    NULL = 0
    BOOLEAN = 1
    INTEGER = 2  # int and long; also dates, and timestamps in microseconds
    MICROS_TO_MILLIS = 3
    FLOAT = 4
    DOUBLE = 5  # also of floats
    BYTES = 6  # also strings
    FIXED = 7  # size
    DECIMAL = 8  # as bytes
    FIXED_DECIMAL = 9  # size
    ENUM = 10  # number of symbols, for each one its constant
    ARRAY = 11  # node of the elements
    MAP = 12  # node of the items
    RECORD = 13  # number of fields, for each one a child and its node, or NO_COLUMN and a constant
    UNION = 14  # of several types: number of members, for each one a child and its node


def zigzag(number: int) -> bytes:
    """Return an integer as Avro writes it."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
