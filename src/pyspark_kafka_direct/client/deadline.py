"""Deadlines, and retries with exponential backoff until a deadline."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.client.system import SYSTEM, System, with_jitter
from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.planning.data_loss import (
    CONFIRMATION_SECONDS,
    CONFIRMATION_STEP_SECONDS,
    confirmation_timeout,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.options.settings import ConnectionSettings


_log = logging.getLogger("pyspark_kafka_direct.client")

_MAX_TRIES_OPTION = "fetchOffset.numRetries"  # the only one that limits the number of retries
_QUIET_SECONDS = 5.0  # of retries before the log says why; most leader changes take less
_MIN_CONFIRMATION_PAUSE = 0.1  # seconds; fetchOffset.retryIntervalMs may be 0


class Cancellation:
    """Lets all deadlines that have it expire, and ends the waits of their requests; any thread may set it."""

    def __init__(self, system: System) -> None:
        self.is_set = False
        self._signal = system.wakeup_signal()

    def set(self) -> None:
        self.is_set = True
        self._signal.set()

    def fileno(self) -> int:
        """Return the descriptor that is readable once it is set."""
        return self._signal.fileno()

    def close(self) -> None:
        self._signal.close()


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in time on the monotonic clock, passed down unchanged through all layers of an operation."""

    at: float  # on the scale of system.monotonic()
    setting: str = "kafka.default.api.timeout.ms"  # the option that extends the deadline, named by errors
    system: System = field(default=SYSTEM, compare=False, repr=False)
    cancellation: Cancellation | None = field(default=None, compare=False, repr=False)

    @classmethod
    def after(cls, seconds: float, setting: str = "kafka.default.api.timeout.ms", system: System = SYSTEM) -> Deadline:
        return cls(system.monotonic() + seconds, setting, system)

    def remaining(self) -> float:
        """Return the remaining seconds, never negative."""
        return 0.0 if self.cancelled else max(0.0, self.at - self.system.monotonic())

    @property
    def expired(self) -> bool:
        return self.cancelled or self.system.monotonic() >= self.at

    @property
    def cancelled(self) -> bool:
        return self.cancellation is not None and self.cancellation.is_set

    @property
    def wakeup_fds(self) -> tuple[int, ...]:
        """The descriptors that are readable once the deadline is cancelled."""
        return () if self.cancellation is None else (self.cancellation.fileno(),)

    def limited_to(self, seconds: float, setting: str | None = None) -> Deadline:
        """Return this deadline or ``seconds`` from now, whichever comes first; ``setting`` extends only the latter."""
        limited_at = self.system.monotonic() + seconds
        if self.at <= limited_at:
            return self
        return Deadline(limited_at, setting or self.setting, self.system, self.cancellation)


class LossConfirmation:
    """The time in which brokers confirm or refute a data loss, from the first evidence on.

    A user's timeout that is shorter does not end it.
    """

    def __init__(self) -> None:
        self._since = 0.0  # of the first evidence, on the monotonic clock
        self._timeout = 0.0  # seconds; 0: there is no evidence

    @property
    def is_running(self) -> bool:
        return self._timeout > 0

    def is_over(self, now: float) -> bool:
        return now >= self._since + self._timeout

    def reserve(self, seconds: float, now: float) -> None:
        """Reserve so much time, from the first evidence on, to confirm a loss; 0: there is no evidence."""
        if seconds:
            self._since = self._since if self.is_running else now
            self._timeout = max(self._timeout, confirmation_timeout(seconds))

    def extend(self, deadline: Deadline) -> Deadline:
        """Return the user's deadline, or that of the confirmation if it is later."""
        if not self.is_running or self._since + self._timeout <= deadline.at:
            return deadline
        return replace(deadline, at=self._since + self._timeout)

    def limit_pause(self, seconds: float) -> float:
        """Return a backoff pause that leaves time for several requests while a confirmation is running."""
        return min(seconds, CONFIRMATION_STEP_SECONDS) if self.is_running else seconds

    @property
    def note(self) -> str:
        """The sentence that the error of an expired deadline adds."""
        return (
            f"The brokers had {self._timeout:g} s to confirm or refute a data loss, which takes at least "
            f"{CONFIRMATION_SECONDS:g} s."
        )


class Backoff(NamedTuple):
    """Pauses or timeouts that double with each earlier try, up to a maximum."""

    initial: float  # seconds
    maximum: float

    @classmethod
    def of(cls, settings: ConnectionSettings) -> Backoff:
        """Return the backoff from ``retry.backoff.ms`` to ``retry.backoff.max.ms``."""
        return cls(settings.retry_backoff_ms / 1000, settings.retry_backoff_max_ms / 1000)

    def without_jitter(self, tries: int) -> float:
        return min(self.initial * 2.0 ** min(tries, 16), self.maximum)

    def pause(self, tries: int, system: System) -> float:
        """Return a pause with a jitter of 20% (KIP-580)."""
        return with_jitter(self.without_jitter(tries), system)


NO_BACKOFF = Backoff(0.0, 0.0)


class ConfirmedDeadline:
    """A deadline of the user, which the confirmation of a loss extends."""

    _user_deadline: Deadline
    _confirmation: LossConfirmation
    _waits_since: float  # on the monotonic clock
    _has_warned: bool

    @property
    def deadline(self) -> Deadline:
        """The user's deadline, or that of the confirmation of a loss if it is later."""
        return self._confirmation.extend(self._user_deadline)

    @deadline.setter
    def deadline(self, deadline: Deadline) -> None:
        self._user_deadline = deadline

    def _begin_wait(self, now: float) -> None:
        self._waits_since = now
        self._has_warned = False

    def _warn_of_long_wait(self, error: KafkaDirectError) -> None:
        """Log once why an operation takes long, because its error follows only at the deadline."""
        deadline = self.deadline
        waited = deadline.system.monotonic() - self._waits_since
        if waited < _QUIET_SECONDS or self._has_warned:
            return
        self._has_warned = True
        _log.warning(
            "still retrying after %.0f s, for up to %.0f s more (%s): %s",
            waited,
            deadline.remaining(),
            deadline.setting,
            error,
        )


class Retry(ConfirmedDeadline):
    """Counts the tries of one operation and pauses between them.

    Errors that are evidence of a data loss neither count nor have to end before the deadline: brokers have their own
    time to confirm or refute a loss, and a user's shorter timeout must not end it.
    """

    def __init__(
        self,
        deadline: Deadline,
        retries: int | None,
        backoff: Backoff = NO_BACKOFF,
        *,
        # How long brokers may take to confirm the loss that an error is evidence of; 0: it is none, and counts as try.
        # None: all errors count, because the caller itself confirms losses.
        confirmation_seconds: Callable[[KafkaDirectError], float] | None = None,
    ) -> None:
        self._user_deadline = deadline
        self._confirmation = LossConfirmation()
        self._retries = retries  # None: as many as fit before the deadline
        self._backoff = backoff
        self._confirmation_seconds = confirmation_seconds
        # Raised when no try is left: the last error that is no mere timeout.
        self._error_to_raise: KafkaDirectError | None = None
        self.tries = 1  # including the current one
        self._begin_wait(deadline.system.monotonic())

    @property
    def is_last_try(self) -> bool:
        """Whether the current try is the last one allowed."""
        return self._retries is not None and self.tries > self._retries

    def wait_or_raise(self, error: KafkaDirectError) -> None:
        """Pause before the next try, or raise the error that explains the failure."""
        # If a timeout follows another error, raise the earlier error, because it explains the failure.
        if self._error_to_raise is None or not isinstance(error, BrokerTimeoutError):
            self._error_to_raise = error
        system = self.deadline.system
        confirmation_seconds = 0.0 if self._confirmation_seconds is None else self._confirmation_seconds(error)
        self._confirmation.reserve(confirmation_seconds, system.monotonic())
        pause = self._confirmation.limit_pause(self._backoff.pause(self.tries - 1, system))
        if confirmation_seconds:
            pause = max(pause, _MIN_CONFIRMATION_PAUSE)
            if self._retries is not None and not self._confirmation.is_over(system.monotonic()):
                self._retries += 1  # evidence of a loss does not use up the user's retries
        if self.is_last_try or pause >= self.deadline.remaining():
            if self.tries > 1:
                seconds = system.monotonic() - self._waits_since
                limit = _MAX_TRIES_OPTION if self.is_last_try else self.deadline.setting
                self._error_to_raise.add_note(f"Tried {self.tries} times in {seconds:.0f} s ({limit}).")
            if self._confirmation.is_running:
                self._error_to_raise.add_note(self._confirmation.note)
            try:
                raise self._error_to_raise
            finally:  # no cycle of the error and its traceback, which retains what the callers have
                del error
                self._error_to_raise = None
        self._warn_of_long_wait(self._error_to_raise)
        self.tries += 1
        system.sleep(pause)
