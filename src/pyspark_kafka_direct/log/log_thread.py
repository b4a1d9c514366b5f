"""The thread of a log, from its start to its end."""

from __future__ import annotations

import logging
import os
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, Literal

from pyspark_kafka_direct.errors import IllegalLogStateError

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.log.log_worker import LogWorker

_log = logging.getLogger("pyspark_kafka_direct.log")

_CALLBACK_SECONDS: Final = 0.2  # minimum seconds for callbacks of pending reads when the timeout of a stop has expired

_EXIT_SECONDS: Final = 2.0  # maximum seconds that the exit of the process waits for the callback of a log


class LogThread:
    """Runs the worker of a log once. Reads that are pending when it ends fail."""

    def __init__(self, topic: str, worker: LogWorker, system: System) -> None:
        self._topic = topic
        self._worker = worker
        self._system = system
        self._lock = system.lock()
        self._thread_id: int | None = None
        self._is_running = False
        self._end: Future[None] | None = None  # None: no thread was started
        self.state: Literal["new", "starting", "started", "stopped"] = "new"
        self.error: BaseException | None = None
        self.process_id = os.getpid()

    def begin_start(self) -> None:
        self.check_process()
        with self._lock:
            if self.state != "new":
                raise IllegalLogStateError("A log can be started only once; create another one.", topic=self._topic)
            self.state = "starting"

    def end_start(self) -> None:
        with self._lock:
            if self.state == "starting":  # a callback may have stopped the log meanwhile
                self.state = "started"

    def start_thread(self) -> None:
        self._is_running, self._end = True, Future()
        try:
            self._system.start_thread(self._run, f"pyspark-kafka-direct-log-{self._topic}")
        except BaseException:
            self._is_running, self._end = False, None
            raise

    def stop(self) -> None:
        """Let the thread end soon."""
        with self._lock:
            self.state = "stopped"
        self._worker.stop()

    def join(self, deadline: Deadline) -> None:
        """Wait for the end of the thread, and fail what is pending."""
        if self.is_current:  # it ends after the callback that called ``stop``
            return
        has_ended = self._end is None or self.wait_until_done(self._end, deadline)
        if self._worker.pending_reads.has_unfinished:  # in a thread of its own, because callbacks may hang
            callback_seconds = max(deadline.remaining(), _CALLBACK_SECONDS)
            self._system.run_with_timeout(
                self._fail_pending, f"pyspark-kafka-direct-log-{self._topic}-end", callback_seconds
            )
        if not has_ended:
            _log.warning(
                "the thread of log %s did not stop within the timeout; it ends when its current call returns",
                self._topic,
            )

    def wait_for_callback(self) -> None:
        """Wait shortly for the end of the thread.

        Python may abort a process that ends while another thread writes to a stream.
        """
        if self._end is not None and not self.is_current:
            self._system.wait_for_future(self._end, _EXIT_SECONDS)

    @property
    def is_current(self) -> bool:
        """Whether this is called in the thread."""
        return self._system.thread_id() == self._thread_id

    def wake(self) -> None:
        """Let the worker handle a read that was added."""
        if not self._is_running:  # the thread has ended meanwhile, and may not have seen the read
            self._fail_pending()
        self._worker.wake()

    def wait_until_done(self, future: Future[None], deadline: Deadline | None) -> bool:
        """Wait for a future; return whether it is done."""
        self._system.wait_for_future(future, None if deadline is None else deadline.remaining())
        return future.done()

    def check_error(self) -> None:
        """Raise an error if the thread has failed: a bug of this package, or a lack of memory."""
        if self.error is not None:
            raise IllegalLogStateError(
                f"The thread that reads the log has failed ({self.error!r}), so the log is out of date. Stop it, and "
                "create another one.",
                topic=self._topic,
            ) from self.error

    def check_started(self, operation: str) -> None:
        """Raise an error unless the log runs in this process."""
        self.check_process()
        self.check_state(operation)

    def check_state(self, operation: str) -> None:
        """Raise an error unless the log runs, or ran when this process was forked."""
        self.check_error()
        if self.state == "started" or (self.state == "starting" and self.is_current):  # callbacks may read and write
            return
        state, advice = "not started", "Call start() first, or use it in a with statement."
        if self.state == "stopped":
            state, advice = "stopped", "Create another one."
        raise IllegalLogStateError(f"The log is {state}; {operation} needs a running log. {advice}", topic=self._topic)

    @property
    def status(self) -> str:
        """The state, for a ``repr``."""
        if self.error is not None:
            return "failed"
        return "not started" if self.state == "new" else self.state

    @property
    def runs_here(self) -> bool:
        """Whether the thread runs, and not only in the parent of a forked process."""
        return self._is_running and self.process_id == os.getpid()

    def check_process(self) -> None:
        if self.process_id != os.getpid():
            raise IllegalLogStateError(
                "The log belongs to the parent process; its thread does not run here. Create a log in this process.",
                topic=self._topic,
            )

    def _run(self) -> None:
        self._thread_id = self._system.thread_id()
        try:
            self._worker.run()
        except BaseException as error:
            _log.exception("the thread of log %s failed", self._topic)
            self.error = error
        finally:
            self._is_running = False  # later reads fail at once
            self._fail_pending()
            self._thread_id = None
            assert self._end is not None
            self._end.set_result(None)

    def _fail_pending(self) -> None:
        self._worker.pending_reads.fail_all(IllegalLogStateError("The log was stopped.", topic=self._topic))
