"""Lag in seconds, from how the end of a partition moved: how long ago was the next offset to read the end?"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

_KEPT = 60


class _Point(NamedTuple):
    offset: int
    time: float


class EndHistory:
    """The ends one partition had, and when.

    The method is that of kafka-lag-exporter: interpolate between the two ends around an offset. Where the offset is
    older than all ends, go on along the line through the oldest and the newest.

    Args:
        kept: How many ends to remember.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._points: deque[_Point] = deque(maxlen=kept)

    def add(self, offset: int, time: float) -> None:
        """Remember an end.

        Args:
            offset: The end.
            time: When it was seen, in seconds.
        """
        points = self._points
        if points and (time <= points[-1].time or offset < points[-1].offset):
            if time <= points[-1].time:
                return
            points.clear()  # the topic was made anew: what was before says nothing
        if len(points) > 1 and points[-2].offset == points[-1].offset == offset:
            points.pop()  # a flat stretch needs its two ends only
        points.append(_Point(offset, time))

    def seconds_behind(self, offset: int, now: float) -> float | None:
        """Return how long ago ``offset`` was the end.

        Args:
            offset: Next offset to read.
            now: Seconds, on the clock of ``add``.

        Returns:
            Seconds; 0 when there is nothing to read. ``None`` while too little was seen to tell.
        """
        points = self._points
        if not points:
            return None
        if offset >= points[-1].offset:
            return 0.0
        later = points[-1]
        for earlier in reversed(points):
            # The last moment at which the offset was the end: up to then, nothing was waiting.
            if earlier.offset <= offset:
                return max(now - _on_line(earlier, later, offset), 0.0)
            later = earlier
        first, last = points[0], points[-1]
        return None if first.offset == last.offset else max(now - _on_line(first, last, offset), 0.0)


def _on_line(first: _Point, second: _Point, offset: int) -> float:
    return first.time + (offset - first.offset) * (second.time - first.time) / (second.offset - first.offset)
