"""How a simulated history ends badly."""

from __future__ import annotations

from typing import Final

from pyspark_kafka_direct.errors import AuthorizationError, TransientBrokerError

TRANSIENT_ERRORS: Final = (TransientBrokerError, AuthorizationError)
"""With these an operation may fail while there are faults; the others mean that the package is confused."""


class ViolationError(AssertionError):
    """A promise of the package is broken."""


class DeadlockError(ViolationError):
    """Every task waits, and nothing is scheduled that could wake one."""


class LivelockError(ViolationError):
    """A history took far more calls, or simulated time, than it needs."""


class ProcessKilled(BaseException):
    """The simulated process is dead: its calls have no effect."""
