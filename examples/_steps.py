"""Telling what a demo is doing, and how long each step took."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOLD, _DIM, _OFF = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


class Steps:
    """Numbered steps with a clock on each."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._taken: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Announce a step, and at its end print how long it took."""
        print(f"\n{_BOLD}[{len(self._taken) + 1}/{self._count}] {name}{_OFF}", flush=True)
        started = time.monotonic()
        yield
        seconds = time.monotonic() - started
        self._taken.append((name, seconds))
        print(f"{_DIM}      {seconds:.1f} s{_OFF}", flush=True)

    def say(self, text: str) -> None:
        """Print something that belongs to the step."""
        for line in text.splitlines():
            print(f"      {line}", flush=True)

    def summary(self) -> str:
        """All steps with their times, and the sum."""
        total = sum(seconds for _, seconds in self._taken)
        lines = [f"{seconds:7.1f} s  {name}" for name, seconds in self._taken]
        return "\n".join([*lines, f"{total:7.1f} s  in all"])


class Progress:
    """A count that grows: on one line of a terminal, otherwise a line now and then."""

    def __init__(self, total: int, unit: str) -> None:
        self._total = total
        self._unit = unit
        self._every = total // (50 if sys.stdout.isatty() else 4)

    def at(self, count: int) -> None:
        """Show it, if it is time to."""
        if count % self._every and count != self._total:
            return
        text = f"      {count:>9,} of {self._total:,} {self._unit} ({count / self._total:4.0%})"
        if sys.stdout.isatty():
            print(f"\r{text}", end="\n" if count == self._total else "", flush=True)
        else:
            print(text, flush=True)
