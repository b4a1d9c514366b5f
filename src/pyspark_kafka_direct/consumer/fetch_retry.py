"""Retry timeout and backoff of the fetches of one offset range.

Brokers have their own time to confirm or refute a data loss. It starts with the first evidence, and a shorter timeout
of the user does not end it: otherwise the read could neither skip lost records nor report them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.deadline import Backoff, ConfirmedDeadline, Deadline, LossConfirmation
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.planning.data_loss import confirmation_seconds

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ConnectionSettings, FetchSettings

_POLL_TIMEOUT_OPTION = "kafkaConsumer.pollTimeoutMs"


class FetchRetry(ConfirmedDeadline):
    """Backs off between the fetches of one range, and fails after ``kafkaConsumer.pollTimeoutMs`` without progress."""

    def __init__(
        self, connection: ConnectionSettings, fetch: FetchSettings, partition: TopicPartition, system: System = SYSTEM
    ) -> None:
        self._system = system
        self._backoff = Backoff.of(connection)
        self._timeout = fetch.poll_timeout_ms / 1000
        self._partition = partition
        self.reset()  # sets the deadline, the confirmation, the tries and the last error

    def reset(self) -> None:
        """Restart the timeout and the backoff, because records arrived or were passed to the caller."""
        self._user_deadline = Deadline.after(self._timeout, _POLL_TIMEOUT_OPTION, system=self._system)
        self._confirmation = LossConfirmation()
        self._tries = 0
        self._last_error: KafkaDirectError | None = None
        self._begin_wait(self._system.monotonic())

    def reserve_confirmation_time(self, seconds: float) -> None:
        """Extend the deadline if brokers need so much time to confirm a loss; 0: there is no evidence of one."""
        self._confirmation.reserve(seconds, self._system.monotonic())

    def end_confirmation(self) -> None:
        """Return to the user's deadline, because nothing is lost."""
        self._confirmation = LossConfirmation()

    def raise_if_expired(self, broker: str | None) -> None:
        """Raise BrokerTimeoutError, caused by the last error, if the timeout has passed."""
        if not self.deadline.expired:
            return
        last_error = self._last_error
        raise BrokerTimeoutError(
            f"No records arrived for {self._timeout:g} s (option {_POLL_TIMEOUT_OPTION})"
            + ("." if last_error is None else f"; the last error: {last_error.message}")
            + (f" {self._confirmation.note}" if self._confirmation.is_running else ""),
            topic=self._partition.topic,
            partition=self._partition.partition,
            offset=None if last_error is None else last_error.offset,
            broker=broker if last_error is None else last_error.broker or broker,
        ) from last_error

    def set_last_error(self, error: KafkaDirectError) -> None:
        # After the deadline, an earlier error is the reason; this one may only be a consequence of the deadline.
        if self._last_error is None or not self.deadline.expired:
            self._last_error = error
        self.reserve_confirmation_time(confirmation_seconds(error))

    def back_off(self) -> None:
        """Sleep before the next fetch; the delay doubles with each call until ``reset``."""
        if self._last_error is not None:
            self._warn_of_long_wait(self._last_error)
        pause = self._backoff.pause(self._tries, self._system)
        self._tries += 1
        self._system.sleep(min(self._confirmation.limit_pause(pause), self.deadline.remaining()))
