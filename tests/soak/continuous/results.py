"""Checks that a continuous query has repeated records only after the last committed epoch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.soak.writer import Logged

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ReplayWindow:
    """The records that a query may have read again after a fault, by partition of the source."""

    committed: Mapping[int, int]  # the next offsets to read of the last epoch before the fault
    ends: Mapping[int, int]  # of the log after the recovery
    times: int = 1  # unavailable brokers may fail several runs

    def has(self, record: Logged) -> bool:
        return self.committed.get(record.partition, 0) <= record.offset < self.ends.get(record.partition, 0)


def unexpected_duplicates(
    copied: Iterable[Logged], originals: Iterable[Logged], windows: Sequence[ReplayWindow]
) -> list[str]:
    """Return a message if records were repeated outside the windows. The values of the source are unique."""
    source = {each.value: each for each in originals}
    unexpected = []
    for value, times in Counter(each.value for each in copied).items():
        if times > 1 and value in source:
            allowed = sum(window.times for window in windows if window.has(source[value]))
            if times - 1 > allowed:
                unexpected.append((source[value].partition, source[value].offset, times, allowed + 1))
    if not unexpected:
        return []
    shown = ", ".join(
        f"partition {partition}, offset {offset}: {times}, not {most}"
        for partition, offset, times, most in unexpected[:_SHOWN]
    )
    return [f"{len(unexpected)} records were written again although their epoch was committed ({shown})"]
