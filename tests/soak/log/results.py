"""Whether tables have what they must have, and whether memory stays flat."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from tests.soak.log.ledger import Place, deletes, is_aborted, key_of, number_of, place_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tests.soak.log.ledger import Numbers

    Contents = Mapping[bytes, bytes]

_SHOWN = 3
_FACTOR, _SLACK = 1.1, 16 << 20  # memory may grow by so much: allocators keep pages
_ENOUGH: Final = 10  # samples


def early(
    acknowledged: Numbers, contents: Contents, sent: Numbers, transactional: Collection[int], *, committed: bool = True
) -> list[str]:
    """Compare a table with what it must have at least.

    Args:
        acknowledged: Of each key the newest record that was acknowledged before reading to the end was asked for.
        contents: The table after that.
        sent: Of each key the newest record that may have been in the log by then.
        transactional: The writers that use transactions.
        committed: Whether the table leaves aborted records out.
    """
    faults: list[str] = []
    for writer, numbers in enumerate(acknowledged):
        for key, number in enumerate(numbers):
            if number and key_of(Place(writer, key)) not in contents:
                later = range(number, sent[writer][key] + 1)
                aborts = committed and writer in transactional
                if not any(deletes(each) and not (aborts and is_aborted(each)) for each in later):
                    faults.append(f"{Place(writer, key)} is missing, {number} was acknowledged")
    for name, value in contents.items():
        place, found = place_of(name), number_of(value)
        least, most = acknowledged[place.writer][place.key], sent[place.writer][place.key]
        if not least <= found <= most:
            faults.append(f"{place} is {found}, not {least} to {most}")
        if committed and place.writer in transactional and is_aborted(found):
            faults.append(f"{place} is {found}, which was aborted")
    return faults


def differences(tables: Mapping[str, Contents], truth: Contents, what: str) -> list[str]:
    """Compare tables with what the log holds.

    Args:
        tables: By name.
        truth: What another client has read.
        what: Which records these are, for the messages.
    """
    faults = []
    for name, contents in tables.items():
        if contents != truth:
            odd = sorted(key for key in {*contents, *truth} if contents.get(key) != truth.get(key))
            shown = [(key, contents.get(key, b"")[:20], truth.get(key, b"")[:20]) for key in odd[:_SHOWN]]
            faults.append(f"{name} has {len(odd)} keys of {what} that differ (key, here, in the log): {shown}")
    return faults


def latest(records: Iterable[tuple[bytes, bytes | None]]) -> dict[bytes, bytes]:
    """Return the table that records make, in their order."""
    table: dict[bytes, bytes] = {}
    for key, value in records:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table


def without(contents: Contents, writers: Collection[int]) -> dict[bytes, bytes]:
    """Return a table without the keys of some writers."""
    return {key: value for key, value in contents.items() if place_of(key).writer not in writers}


def memory_faults(samples: Sequence[int]) -> list[str]:
    """Compare the memory of a process in the last fifth of its time with the second fifth; the first one warms up."""
    if len(samples) < _ENOUGH:
        return []
    fifth = len(samples) // 5
    before, after = max(islice(samples, fifth, 2 * fifth)), max(samples[-fifth:])
    if after <= before * _FACTOR + _SLACK:
        return []
    return [f"memory has grown from {before >> 20} to {after >> 20} MiB"]
