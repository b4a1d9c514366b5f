"""The newest sent and acknowledged record of each key of a writer, in a memory-mapped file that survives a kill.

The number of a record determines its content, so tables can be checked by the numbers alone.
"""

from __future__ import annotations

import mmap
import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Numbers: TypeAlias = tuple[tuple[int, ...], ...]  # the newest number of each key, by writer; 0: none

KEYS: Final = 40  # of each writer

_DELETING, _ABORTED, _LINGERING = 7, 5, 11
_WIDTH = 8
_KEY = re.compile(rb"w(\d+)-k(\d+)")


class KeyId(NamedTuple):
    writer: int
    key: int


class SentRecords:
    """Two rows of numbers in a file, which one process writes and others read."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(2 * KEYS * _WIDTH))
        with path.open("r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")

    @property
    def sent(self) -> tuple[int, ...]:
        """The newest number of each key that may be in the topic."""
        return tuple(self._numbers[:KEYS])

    @property
    def acknowledged(self) -> tuple[int, ...]:
        """The newest number of each key that is in the topic."""
        return tuple(self._numbers[KEYS:])

    def send(self, key: int, number: int) -> None:
        """Record that a number is about to be sent."""
        self._numbers[key] = number

    def acknowledge(self, key: int, number: int) -> None:
        """Record that a number was acknowledged, or its transaction committed."""
        self._numbers[KEYS + key] = number


def format_key(key_id: KeyId) -> bytes:
    return b"w%d-k%d" % key_id


def parse_key(key: bytes) -> KeyId:
    match = _KEY.fullmatch(key)
    assert match is not None, key
    return KeyId(int(match[1]), int(match[2]))


def format_value(number: int, size: int) -> bytes | None:
    return None if deletes(number) else b"%d:" % number + b"x" * size


def parse_number(value: bytes) -> int:
    return int(value.partition(b":")[0])


def deletes(number: int) -> bool:
    """Return whether a record deletes its key."""
    return number % _DELETING == 0


def is_aborted(transaction: int) -> bool:
    """Return whether a transaction is aborted. Its records have the number of the transaction."""
    return transaction % _ABORTED == 0


def lingers(transaction: int) -> bool:
    """Return whether a transaction stays open for seconds."""
    return transaction % _LINGERING == 0


def newest(sent_records: Sequence[SentRecords]) -> tuple[Numbers, Numbers]:
    """Return the acknowledged and the sent numbers."""
    return tuple(each.acknowledged for each in sent_records), tuple(each.sent for each in sent_records)
