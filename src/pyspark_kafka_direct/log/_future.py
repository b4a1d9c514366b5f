"""The end of a wait for a log."""

from __future__ import annotations

import logging
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import LogStateError

if TYPE_CHECKING:
    from collections.abc import Callable

_logger = logging.getLogger("pyspark_kafka_direct.log")


class LogFuture(Future[None]):
    """The end of a wait for a log. Callbacks run in the log's thread, which also does what is waited for.

    It cannot be cancelled.

    Args:
        own_thread: Tells whether the caller is that thread, or another one that what is waited for needs.
    """

    def __init__(self, own_thread: Callable[[], bool]) -> None:
        super().__init__()
        self._own_thread = own_thread
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> None:
        """Wait for it.

        Raises:
            LogStateError: This is a callback of the same log, which cannot go on before the callback returns.
            TimeoutError: It took longer than so many seconds.
            Exception: What went wrong.
        """
        self._refuse_own_thread()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for it, as ``result`` does, and return what went wrong, if anything."""
        self._refuse_own_thread()
        return super().exception(timeout)

    def settle(self, error: BaseException | None) -> None:
        """Say how it ended, unless somebody did."""
        try:
            if error is None:
                self.set_result(None)
            else:
                self.set_exception(error)
        except InvalidStateError:
            return
        except BaseException:  # the future itself logs an Exception; sys.exit() in a callback must not end the log
            _logger.exception("A callback of a log's future has failed.")

    def _refuse_own_thread(self) -> None:
        if not self.done() and self._own_thread():
            raise LogStateError(
                "A callback of a log waits for the same log, which cannot go on before the callback returns. Use "
                "add_done_callback, or wait in another thread."
            )
