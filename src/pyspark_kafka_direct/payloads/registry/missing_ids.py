"""A limit of the requests for schema ids that a registry does not have.

Records can contain any ids. Without a limit, each record of a harmful producer would cause a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import SchemaNotFoundError

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.system import System

MAX_MISSING: Final = 100
"""The number of missing ids that a process requests without a pause between them."""

_SECONDS_PER_ID: Final = 1.0  # after them


class MissingIds:
    """Counts missing ids as a token bucket does. Several threads may share one."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._lock = system.lock()
        self._free_at = system.monotonic()  # when all requests are available again

    def check(self, source: str) -> None:
        """Raise an error if no further id may be requested; ``source`` begins it."""
        with self._lock:
            used = (self._free_at - self._system.monotonic()) / _SECONDS_PER_ID  # each id is used for a second
        if used > MAX_MISSING - 1:
            raise SchemaNotFoundError(
                f"{source} was not requested: the registry did not have {MAX_MISSING} other ids, so this process "
                "requests one unknown id per second."
            )

    def add(self) -> None:
        """Count an id that the registry does not have."""
        with self._lock:
            self._free_at = max(self._free_at, self._system.monotonic()) + _SECONDS_PER_ID
