"""The programs of Protobuf encoders, which are lists of numbers.

A program writes the values of one Arrow type as messages of one type. It is a tree of nodes, each of which writes the
values of an array: the column itself, a child of a struct, the elements of a list, or the keys or items of a map. A
node is the number of an ``Op`` and the arguments of the operation. Nodes are counted in this order.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

NO_ONEOF: Final = -1
CLOSED: Final = -1
"""In place of the prefix of an enum: a value has one of its names."""
OPEN: Final = -1
"""In place of the numbers of an enum: a value may be any number."""


class Op(IntEnum):
    """Operations, with their arguments."""

    BOOL = 0
    VARINT = 1  # range
    ZIGZAG = 2  # range
    FIXED32 = 3  # range
    FIXED64 = 4  # range
    FLOAT = 5
    DOUBLE = 6
    STRING = 7  # checked for UTF-8
    BYTES = 8  # also strings that are not checked
    ENUM_NAME = 9  # prefix of unknown names or CLOSED, number of names, for each one: number, name
    ENUM_NUMBER = 10  # number of numbers, and these, or OPEN
    MESSAGE = 11  # number of fields, for each one: number, shape, oneof, child, node; MAP: nodes of keys and items
    WRAPPED = 12  # node of the value, which is in a message with this field
    MOMENT = 13  # 1 if nanoseconds have the sign of the seconds, else 0; of microseconds in Google's range


class Range(IntEnum):
    """The range of the integers of a field."""

    ALL = 0
    INT32 = 1
    UINT32 = 2  # the bits of an int32, or a number
    UINT64 = 3  # a decimal


class Shape(IntEnum):
    """The condition under which a field is written."""

    OPTIONAL = 0  # unless it is null
    IMPLICIT = 1  # unless it is null, 0 or empty
    REQUIRED = 2  # null is an error
    REPEATED = 3
    PACKED = 4
    MAP = 5
