"""How long a read goes on without progress, and how it paces its tries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.system import SYSTEM, jittered

if TYPE_CHECKING:
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.reading.request import RangeRequest
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.wire.system import System

_PATIENCE = "kafkaConsumer.pollTimeoutMs"


class Patience:
    """Waits between the tries of one range, and gives up when nothing has come for ``poll_timeout``.

    Args:
        settings: Has the pauses.
        request: Has the time, and the place for the error.
        system: Has the clock.

    Attributes:
        deadline: When the read fails, unless something arrives before.
    """

    def __init__(self, settings: ConnectionSettings, request: RangeRequest, system: System = SYSTEM) -> None:
        self._system = system
        self._settings = settings
        self._request = request
        self.renew()

    def renew(self) -> None:
        """Begin the wait anew: records arrived, or were handed out."""
        self.deadline = Deadline.after(self._request.poll_timeout, _PATIENCE, system=self._system)
        self._pause = self._settings.retry_backoff_ms / 1000
        self._last: KafkaDirectError | None = None

    def check(self, broker: str | None) -> None:
        """Give up when nothing has come for too long.

        Args:
            broker: Who was asked last, for the error.

        Raises:
            BrokerTimeoutError: With the last trouble as its cause.
        """
        if not self.deadline.expired:
            return
        last = self._last
        raise BrokerTimeoutError(
            f"No record came for {self._request.poll_timeout:g} s (option {_PATIENCE})"
            + ("." if last is None else f"; the last try: {last.message}"),
            topic=self._request.offsets.topic,
            partition=self._request.offsets.partition,
            offset=None if last is None else last.offset,
            broker=broker if last is None else last.broker or broker,
        ) from last

    def note(self, error: KafkaDirectError) -> None:
        """Keep what is in the way, for the error at the end."""
        if self._last is None or not self.deadline.expired:  # that our time is up explains nothing
            self._last = error

    def pause(self) -> None:
        """Wait before the next try, a little longer each time."""
        self._system.sleep(min(jittered(self._pause, self._system), self.deadline.remaining()))
        self._pause = min(self._pause * 2, self._settings.retry_backoff_max_ms / 1000)
