"""Checks the contents of tables and the memory of processes."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from tests.soak.log.sent_records import (
    KeyId,
    deletes,
    format_key,
    is_aborted,
    parse_key,
    parse_number,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tests.soak.log.sent_records import Numbers

    Contents = Mapping[bytes, bytes]

_SHOWN = 3
_FACTOR, _SLACK = 1.1, 16 << 20  # allowed growth of memory: allocators retain pages
_MIN_SAMPLES: Final = 10  # samples


def stale_keys(
    acknowledged: Numbers, contents: Contents, sent: Numbers, transactional: Collection[int], *, committed: bool = True
) -> list[str]:
    """Return what a table lacks or has in excess after it was read to the end.

    ``acknowledged`` has the newest record of each key that was acknowledged before the read started; ``sent`` the
    newest one that may have been in the topic when it ended. ``committed`` tables skip aborted records.
    """
    faults: list[str] = []
    for writer, numbers in enumerate(acknowledged):
        for key, number in enumerate(numbers):
            if number and format_key(KeyId(writer, key)) not in contents:
                later = range(number, sent[writer][key] + 1)
                aborts = committed and writer in transactional
                if not any(deletes(each) and not (aborts and is_aborted(each)) for each in later):
                    faults.append(f"{KeyId(writer, key)} is missing, {number} was acknowledged")
    for name, value in contents.items():
        key_id, found = parse_key(name), parse_number(value)
        least, most = acknowledged[key_id.writer][key_id.key], sent[key_id.writer][key_id.key]
        if not least <= found <= most:
            faults.append(f"{key_id} is {found}, not {least} to {most}")
        if committed and key_id.writer in transactional and is_aborted(found):
            faults.append(f"{key_id} is {found}, which was aborted")
    return faults


def differences(tables: Mapping[str, Contents], truth: Contents, what: str) -> list[str]:
    """Compare tables with the contents of the topic, as another client has read it."""
    faults = []
    for name, contents in tables.items():
        if contents != truth:
            differing = sorted(key for key in {*contents, *truth} if contents.get(key) != truth.get(key))
            shown = [(key, contents.get(key, b"")[:20], truth.get(key, b"")[:20]) for key in differing[:_SHOWN]]
            faults.append(
                f"{name} has {len(differing)} keys of {what} that differ (key, in the table, in the topic): {shown}"
            )
    return faults


def latest(records: Iterable[tuple[bytes, bytes | None]]) -> dict[bytes, bytes]:
    """Return the table for records in this order."""
    table: dict[bytes, bytes] = {}
    for key, value in records:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table


def without_writers(contents: Contents, writers: Collection[int]) -> dict[bytes, bytes]:
    """Return a table without the keys of some writers."""
    return {key: value for key, value in contents.items() if parse_key(key).writer not in writers}


def memory_faults(samples: Sequence[int]) -> list[str]:
    """Compare the memory of a process in the last fifth of its time with the second fifth, after the warm-up."""
    if len(samples) < _MIN_SAMPLES:
        return []
    fifth = len(samples) // 5
    before, after = max(islice(samples, fifth, 2 * fifth)), max(samples[-fifth:])
    if after <= before * _FACTOR + _SLACK:
        return []
    return [f"memory has grown from {before >> 20} to {after >> 20} MiB"]
