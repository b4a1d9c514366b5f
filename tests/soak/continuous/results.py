"""Whether a continuous query has written a record again only where it may: since the last epoch that was committed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.soak.writer import Logged

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Window:
    """What may have been read again after a deed, by partition of the source.

    Attributes:
        committed: The next offset to read of the last epoch that was committed before it.
        ends: Where the log ended once the query worked again.
        times: How often it may have been read again; brokers that are away may fail several runs.
    """

    committed: Mapping[int, int]
    ends: Mapping[int, int]
    times: int = 1

    def has(self, record: Logged) -> bool:
        """Tell whether a record of the source may have been read again."""
        return self.committed.get(record.partition, 0) <= record.offset < self.ends.get(record.partition, 0)


def unexpected_doubles(copied: Iterable[Logged], originals: Iterable[Logged], windows: Sequence[Window]) -> list[str]:
    """Return what is wrong with the records that were written more than once; nothing where all of them may be.

    Args:
        copied: The records of the target.
        originals: The records of the source; no two have the same value.
        windows: One for each deed.
    """
    source = {each.value: each for each in originals}
    odd = []
    for value, times in Counter(each.value for each in copied).items():
        if times > 1 and value in source:
            allowed = sum(window.times for window in windows if window.has(source[value]))
            if times - 1 > allowed:
                odd.append((source[value].partition, source[value].offset, times, allowed + 1))
    if not odd:
        return []
    shown = ", ".join(f"partition {place}, offset {at}: {times}, not {most}" for place, at, times, most in odd[:_SHOWN])
    return [f"{len(odd)} records were written again though their epoch was committed ({shown})"]
