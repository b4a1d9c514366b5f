"""A progress bar on a terminal or in a notebook."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.system import System

_WIDTH: Final = 30  # characters
_SECONDS: Final = 0.2  # between two updates


class Progress:
    """The number of offsets that were read, of those planned; it is shown if ``enabled`` and if a person can see it."""

    def __init__(self, offsets: int, system: System, *, enabled: bool) -> None:
        self._total = offsets
        self._system = system
        self._done = 0
        self._shown_at = self._started = system.monotonic()
        self._is_shown = enabled and offsets > 0 and _is_visible()

    def add(self, offsets: int) -> None:
        """Count offsets that were read."""
        self._done = min(self._done + offsets, self._total)  # more than a limit may be read
        if self._is_shown and self._system.monotonic() - self._shown_at >= _SECONDS:
            self._show()

    def close(self) -> None:
        """Show the last state."""
        if self._is_shown:
            self._show(end="\n")

    def _show(self, end: str = "") -> None:
        self._shown_at = self._system.monotonic()
        share = self._done / self._total
        bar = "#" * round(share * _WIDTH)
        rate = self._done / max(self._shown_at - self._started, 1e-3)
        sys.stderr.write(
            f"\r{share:4.0%} [{bar:<{_WIDTH}}] {self._done:,} of {self._total:,} offsets, {rate:,.0f} per second{end}"
        )
        sys.stderr.flush()


def _is_visible() -> bool:
    """Return whether the standard error is a terminal, or the output of a notebook's cell."""
    stream = sys.stderr
    return stream is not None and (stream.isatty() or type(stream).__module__.startswith("ipykernel."))
