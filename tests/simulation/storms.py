"""Requests that a process repeats without a pause although each response achieves nothing."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.errors import ViolationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_IN_VAIN: Final = 200
"""Responses to a process, from one broker, in a second: twice as many as retries after 10 ms, the shortest interval."""


class Storms:
    """Counts responses with errors, fetches without records, and refused connections."""

    def __init__(self) -> None:
        self._times: defaultdict[tuple[str, str, str], deque[float]] = defaultdict(deque)
        self._worst: tuple[int, tuple[str, str, str], float] = (0, ("", "", ""), 0.0)

    def note(self, process: str, broker: str, request: str, now: float) -> None:
        """Note that a request of a process, or a connect, was in vain."""
        times = self._times[process, broker, request]
        times.append(now)
        while times[0] < now - 1:
            times.popleft()
        self._worst = max(self._worst, (len(times), (process, broker, request), now))

    def check(self) -> None:
        """Raise an error if a process had too many of them in a second.

        Raises:
            ViolationError: The process asks again and again without a pause.
        """
        count, (process, broker, request), now = self._worst
        if count > _MOST_IN_VAIN:
            raise ViolationError(
                f"{request} was in vain too often: {count} times in a second, the last one at {now:.3f}, "
                f"of {process} at {broker}"
            )


def is_in_vain(api: str, response: Mapping[str, Any], codes: tuple[int, ...]) -> bool:
    """Return whether a response achieves nothing, and the broker has not delayed it because of a quota."""
    if response.get("throttle_time_ms"):
        return False
    return bool(codes) or (api == "Fetch" and not _has_records(response))


def _has_records(response: Mapping[str, Any]) -> bool:
    return any(
        partition.get("records") for topic in response.get("responses", ()) for partition in topic.get("partitions", ())
    )
