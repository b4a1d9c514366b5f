"""When to try again, and how long to wait before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.wire.system import jittered

if TYPE_CHECKING:
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.wire.deadline import Deadline

DENIALS_TO_BELIEVE: Final = 5
"""How often in a row brokers must deny a topic or partition: one that was just made, not every broker knows yet.

With the default back-off that takes about 1.5 s.
"""


def growing(first: float, tries: int, longest: float) -> float:
    """Return a pause that doubles with each try.

    Args:
        first: The first one.
        tries: How many tries came before.
        longest: The longest.
    """
    return min(first * 2.0 ** min(tries, 16), longest)


class Retry:
    """Counts the tries of one operation and pauses between them.

    The pause doubles from ``retry.backoff.ms`` to ``retry.backoff.max.ms`` with a jitter of a fifth (KIP-580), or stays
    the same where the user set it (``fetchOffset.retryIntervalMs``).

    Args:
        deadline: End of the operation.
        retries: Tries after the first; ``None``: as many as fit before the deadline.
        first_pause: Seconds.
        longest_pause: Seconds.

    Attributes:
        deadline: End of the operation; may be moved.
        tries: Tries so far, the present one included.
    """

    def __init__(self, deadline: Deadline, retries: int | None, first_pause: float, longest_pause: float) -> None:
        self.deadline = deadline
        self._retries = retries
        self._pause = first_pause
        self._telling: KafkaDirectError | None = None
        self._longest_pause = longest_pause
        self.tries = 1

    @property
    def last(self) -> bool:
        """Whether the present try is the last one that may be made."""
        return self._retries is not None and self.tries > self._retries

    def after(self, error: KafkaDirectError) -> None:
        """Pause before the next try, or raise if there is none.

        Raises:
            KafkaDirectError: ``error``; but where that only says that time is up, the error before it that says why.
        """
        if self._telling is None or not isinstance(error, BrokerTimeoutError):
            self._telling = error
        system = self.deadline.system
        pause = jittered(min(self._pause, self._longest_pause), system)
        if self.last or pause >= self.deadline.remaining():
            if self.tries > 1:
                self._telling.add_note(f"Tried {self.tries} times.")
            raise self._telling
        self.tries += 1
        self._pause *= 2
        system.sleep(pause)
