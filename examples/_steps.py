"""Prints the steps of a demo and their durations."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOLD, _DIM, _OFF = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


class Steps:
    """Numbered steps with durations."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._finished: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Print the name of a step, and at its end its duration."""
        print(f"\n{_BOLD}[{len(self._finished) + 1}/{self._count}] {name}{_OFF}", flush=True)
        started = time.monotonic()
        yield
        seconds = time.monotonic() - started
        self._finished.append((name, seconds))
        print(f"{_DIM}      {seconds:.1f} s{_OFF}", flush=True)

    def say(self, text: str) -> None:
        """Print text below the name of the step."""
        for line in text.splitlines():
            print(f"      {line}", flush=True)

    def summary(self) -> str:
        """Return all steps with their durations, and the total."""
        total = sum(seconds for _, seconds in self._finished)
        lines = [f"{seconds:7.1f} s  {name}" for name, seconds in self._finished]
        return "\n".join([*lines, f"{total:7.1f} s  in total"])


class Progress:
    """Prints a growing count: on one line of a terminal, otherwise a line for each quarter."""

    def __init__(self, total: int, unit: str) -> None:
        self._total = total
        self._unit = unit
        self._interval = total // (50 if sys.stdout.isatty() else 4)
        self._printed = 0

    def at(self, count: int) -> None:
        """Print the count, if it is due."""
        if count < self._printed + self._interval and count != self._total:
            return
        self._printed = count
        text = f"      {count:>9,} of {self._total:,} {self._unit} ({count / self._total:4.0%})"
        if sys.stdout.isatty():
            print(f"\r{text}", end="\n" if count == self._total else "", flush=True)
        else:
            print(text, flush=True)
