"""The number of rows that a task passes to the user's function at once, and the time when it does."""

from __future__ import annotations

from typing import Final

_FIRST_ROWS: Final = 16  # a slow function may take seconds for each row
_MAX_GROWTH: Final = 2
_TARGET_SECONDS: Final = 1.0
_RATE_INTERVAL: Final = 0.1  # seconds of the rate in a batch
_MIN_THROUGHPUT_SHARE: Final = 0.6  # of a larger batch; below it, most of a call's time does not depend on its rows


class BatchSize:
    """Adapts the size to the measured time of a call, because epoch requests wait until the call returns.

    A call should take at most ``_TARGET_SECONDS``. If smaller batches take as long as larger ones, the time of a call
    hardly depends on its rows, so it may take longer.
    """

    def __init__(self, max_rows: int, max_rows_per_second: float | None = None) -> None:
        self._max_rows_per_second = max_rows_per_second
        if max_rows_per_second is not None:
            max_rows = max(1, min(max_rows, int(max_rows_per_second * _RATE_INTERVAL)))
        self._max_rows = max_rows
        self._target = _TARGET_SECONDS  # of a call; grows if fewer rows take as long
        self._reduced_after: tuple[int, float] | None = None  # rows and seconds of a call that was too long
        self.rows = min(_FIRST_ROWS, max_rows)
        self.next_at = 0.0  # when the rate allows the next call

    def adapt(self, rows: int, started_at: float, ended_at: float) -> None:
        """Adapt the size after a call. Times are those of the monotonic clock."""
        seconds = ended_at - started_at
        if self._max_rows_per_second is not None:
            self.next_at = max(self.next_at, started_at) + rows / self._max_rows_per_second
        if seconds > self._target and self._is_reduction_useless(rows, seconds):
            self._target = max(self._target, 2 * seconds)
        self._reduced_after = None
        if seconds > self._target:
            self._reduced_after = (rows, seconds)
            # A single row cannot be reduced; two rows show whether the time depends on the rows.
            self.rows = max(1, int(rows * self._target / seconds)) if rows > 1 else 2
        elif rows >= self.rows:  # fewer rows, because no more had arrived, are no reason to grow
            fitting = self._max_rows if seconds <= 0 else int(rows * self._target / seconds)
            self.rows = min(fitting, self.rows * _MAX_GROWTH, self._max_rows)

    def _is_reduction_useless(self, rows: int, seconds: float) -> bool:
        """Return whether a call processed much fewer rows per second than the larger one before."""
        if self._reduced_after is None or self._reduced_after[0] <= rows:
            return False
        larger_rows, larger_seconds = self._reduced_after
        return rows / seconds < _MIN_THROUGHPUT_SHARE * larger_rows / larger_seconds
