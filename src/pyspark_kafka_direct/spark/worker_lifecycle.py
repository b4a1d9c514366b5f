"""Setup and cleanup of the Python processes that Spark starts, in particular of workers that PySpark's daemon forks.

Most functions have no effect in other processes. Nothing here imports Spark at module level.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import socket
import sys
import traceback
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.spark.stack_traces import hide_stack_traces

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["begin_process", "begin_task", "end_task", "freeze_gc"]

LOG_LEVEL_VARIABLE: Final = "PYSPARK_KAFKA_DIRECT_LOG_LEVEL"

_DAEMON_MODULES = {"pyspark.daemon": "__main__", "pyspark_kafka_direct.daemon": "pyspark.daemon"}
"""The module as which a daemon was started (``spark.python.daemon.module``), and the name of PySpark's daemon in it."""

_FULL_COLLECTION = 2  # the generation of a full garbage collection

_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LOG_TIME_FORMAT: Final = "%y/%m/%d %H:%M:%S"  # as in Spark's log

_package_logger = logging.getLogger("pyspark_kafka_direct")


def begin_process() -> None:
    """Prepare a process of Spark; every object that Spark creates or unpickles there calls this."""
    hide_stack_traces()
    configure_logging()


def begin_task() -> None:
    """Prepare a worker for a task; the main thread of each task calls this before it reads or writes."""
    begin_process()
    hide_broken_pipe_traces()
    disable_tcp_delays()
    drop_connections_on_retry()


def end_task() -> None:
    """Clean up after a task that has read its range to the end, or written its rows."""
    freeze_gc()


def is_daemon_worker() -> bool:
    """Return whether PySpark's daemon forked this process, which it reuses for later tasks."""
    return daemon_module() is not None


def daemon_module() -> ModuleType | None:
    """Return the module of PySpark's daemon that forked this process, if any."""
    # A forked worker has the main module of the daemon.
    main_module = getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None)
    return sys.modules[_DAEMON_MODULES[main_module]] if main_module in _DAEMON_MODULES else None


def jvm_socket() -> socket.socket | None:
    """Return the socket of a daemon worker, if its main thread calls this."""
    if not is_daemon_worker():
        return None
    # The daemon passes the socket to its function ``worker`` and stores it nowhere else.
    frame = sys._getframe()
    while (caller := frame.f_back) is not None:
        frame = caller
        candidate = frame.f_locals.get("sock") if frame.f_code.co_name == "worker" else None
        if isinstance(candidate, socket.socket):
            return candidate
    return None


def hide_broken_pipe_traces() -> None:
    """Keep PySpark's daemon from printing a stack trace when Spark ends a task early (``show``, ``limit``)."""
    # Spark then closes its side of the socket. The worker notices when it next writes, and the daemon would print the
    # broken pipe although nothing is wrong and the process is about to end.
    daemon = daemon_module()
    if daemon is not None and not isinstance(getattr(daemon, "traceback", None), _TracebackWithoutBrokenPipes):
        daemon.traceback = _TracebackWithoutBrokenPipes()  # type: ignore[attr-defined]


def freeze_gc() -> None:
    """Exclude all existing objects from later garbage collections; once per process, in daemon workers only."""
    # PySpark's daemon collects garbage in the worker after every task. Each collection would visit some 50,000 modules,
    # classes and functions: 20 ms of CPU time after a task of 130 ms. Reference counts still free objects; only cycles
    # of objects that exist now are never freed. Tasks call this when their work is finished, so after all imports.
    if is_daemon_worker():
        _freeze_once()


@functools.cache
def disable_tcp_delays() -> None:
    """Disable delays of TCP between a worker and the JVM; once per process."""
    # Both ends write several short messages in a row. Nagle's algorithm holds back each message until the one before is
    # acknowledged, and acknowledgements are delayed by 40 ms. So tasks started and ended 40 ms late.
    #
    # TCP_NODELAY sends the worker's messages at once. The messages of the JVM need quick acknowledgements
    # (TCP_QUICKACK, Linux only). The kernel returns to delayed ones with the next message sent, so they have to be
    # requested between the last message of a task and the first one of the next task, where PySpark's daemon collects
    # garbage.
    jvm = jvm_socket()
    if jvm is not None and jvm.family in (socket.AF_INET, socket.AF_INET6):
        jvm.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_QUICKACK"):
            gc.callbacks.append(functools.partial(_request_quick_ack, jvm))


def configure_logging() -> None:
    """Log to standard error in the format of Spark's log, unless the process configures ``logging`` itself."""
    # Otherwise Python writes only the text of warnings, without time, level and logger. Spark forwards standard error:
    # that of a planner to the driver's, that of a task to the executor's. Spark's own logging of Python workers
    # (spark.sql.pyspark.worker.logging.enabled) counts as a configuration.
    if any(isinstance(handler, _StderrHandler) for handler in _package_logger.handlers):
        return
    _package_logger.addHandler(_StderrHandler())
    if os.environ.get(LOG_LEVEL_VARIABLE):
        # Imported only if needed, because it loads the table of options.
        from pyspark_kafka_direct.options.option_parser import environment_variable

        _package_logger.setLevel(environment_variable(os.environ, LOG_LEVEL_VARIABLE) or logging.NOTSET)


def drop_connections_on_retry() -> None:
    """Drop all connections when a task is retried, as ``KafkaDataConsumer.acquire`` does."""
    from pyspark import TaskContext

    from pyspark_kafka_direct.client.connection_pool import POOL

    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        POOL.clear()


class _TracebackWithoutBrokenPipes:
    """Replaces the module ``traceback`` in PySpark's daemon, and does not print broken pipes."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self) -> None:
        if not isinstance(sys.exception(), (BrokenPipeError, ConnectionResetError)):
            traceback.print_exc()


@functools.cache
def _freeze_once() -> None:
    gc.freeze()


def _request_quick_ack(jvm: socket.socket, phase: str, info: dict[str, int]) -> None:
    """Request quick acknowledgements after a full collection, such as the daemon's between two tasks."""
    if phase == "stop" and info["generation"] == _FULL_COLLECTION and jvm.fileno() >= 0:
        jvm.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


class _StderrHandler(logging.Handler):
    """Writes to the current ``sys.stderr``, unless the user has configured a handler."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(_LOG_FORMAT, _LOG_TIME_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        stream = sys.stderr
        if stream is None or _has_other_handler(record.name):
            return
        try:
            stream.write(self.format(record) + "\n")  # in one write: several processes share the stream
        except (OSError, ValueError):
            pass  # closed, or not read any more: no reason for a task to fail
        except Exception:
            self.handleError(record)


def _has_other_handler(name: str) -> bool:
    """Return whether the logger or one above it has a handler that is not this package's."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(not isinstance(handler, _StderrHandler) for handler in logger.handlers):
            return True
        logger = logger.parent
    return False
