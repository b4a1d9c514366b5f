"""What a writer has sent and what was acknowledged, by key, in a file that outlives it: a kill takes nothing back.

Records are numbered. A number says what the record is: so whoever reads a table needs nothing but the numbers.
"""

from __future__ import annotations

import mmap
import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Numbers: TypeAlias = tuple[tuple[int, ...], ...]
"""The newest number of each key, by writer; 0 where there is none."""

KEYS: Final = 40
"""Keys of a writer."""

_DELETING, _ABORTED, _LINGERING = 7, 5, 11
_WIDTH = 8
_KEY = re.compile(rb"w(\d+)-k(\d+)")


class Place(NamedTuple):
    """Whose key, and which."""

    writer: int
    key: int


class Ledger:
    """Two rows of numbers, what was sent and what was acknowledged.

    Args:
        path: The file, made where missing. One process writes, others read.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(2 * KEYS * _WIDTH))
        with path.open("r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")

    @property
    def sent(self) -> tuple[int, ...]:
        """The newest number of each key that may be in the log."""
        return tuple(self._numbers[:KEYS])

    @property
    def acknowledged(self) -> tuple[int, ...]:
        """The newest number of each key that is in the log."""
        return tuple(self._numbers[KEYS:])

    def send(self, key: int, number: int) -> None:
        """Note a record that is about to be sent."""
        self._numbers[key] = number

    def acknowledge(self, key: int, number: int) -> None:
        """Note a record that was acknowledged; in a transaction: when it was committed."""
        self._numbers[KEYS + key] = number


def key_of(place: Place) -> bytes:
    """Return the key as the log has it."""
    return b"w%d-k%d" % place


def place_of(key: bytes) -> Place:
    """Return whose key it is."""
    found = _KEY.fullmatch(key)
    assert found is not None, key
    return Place(int(found[1]), int(found[2]))


def value_of(number: int, size: int) -> bytes | None:
    """Return the value of a record."""
    return None if deletes(number) else b"%d:" % number + b"x" * size


def number_of(value: bytes) -> int:
    """Return the number of a record with that value."""
    return int(value.partition(b":")[0])


def deletes(number: int) -> bool:
    """Whether a record deletes its key."""
    return number % _DELETING == 0


def is_aborted(transaction: int) -> bool:
    """Whether a transaction is aborted; in transactions, records have the number of the transaction."""
    return transaction % _ABORTED == 0


def lingers(transaction: int) -> bool:
    """Whether a transaction is left open for seconds."""
    return transaction % _LINGERING == 0


def newest(ledgers: Sequence[Ledger]) -> tuple[Numbers, Numbers]:
    """Return what was acknowledged, and then what was sent."""
    return tuple(each.acknowledged for each in ledgers), tuple(each.sent for each in ledgers)
