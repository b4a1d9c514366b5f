"""Hide the stack traces of errors of this package, whose messages name the cause and the fix.

PySpark sends an error in a Python worker to the JVM as text, with the stack traces of the error and of its causes. A
user would have to find the message among a hundred lines. The stack trace is logged at DEBUG.
"""

from __future__ import annotations

import functools
import logging
import sys
import traceback
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from pyspark_kafka_direct.errors import KafkaDirectError, QueryRunError, is_package_error

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_P = ParamSpec("_P")
_R = TypeVar("_R")

_log = logging.getLogger("pyspark_kafka_direct.errors")

_WORKER_MODULE: Final = "pyspark.util"  # of handle_worker_exception
_DSTREAM_MODULE: Final = "pyspark.streaming.util"
_DEBUG_MESSAGE: Final = "stack trace of the following error"


def hide_stack_traces() -> None:
    """Make PySpark report errors of this package without stack traces, in workers and functions of DStreams."""
    for name in (_WORKER_MODULE, _DSTREAM_MODULE):
        module: Any = sys.modules.get(name)
        if module is not None and not isinstance(getattr(module, "traceback", None), _ShortTraceback):
            module.traceback = _ShortTraceback()


def without_stack_trace(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a public function raise errors of this package without internal frames and causes."""

    @functools.wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except KafkaDirectError as error:
            if not is_package_error(error):
                raise
            _log.debug(_DEBUG_MESSAGE, exc_info=error)
            # The cause of a QueryRunError is the error of a task, which may be a bug in the user's code: it is printed.
            if not isinstance(error, QueryRunError):
                # Other causes stay in ``__context__`` for debuggers. Assigning ``__cause__``, even None, also sets
                # ``__suppress_context__``: Python keeps the context but does not print it.
                error.__context__ = error.__cause__ or error.__context__
                error.__cause__ = None
            raise error.with_traceback(None)  # noqa: B904 (``from`` would replace the cause)

    return wrapper


class _ShortTraceback:
    """Replaces the module ``traceback`` in PySpark, and omits the stack traces of errors of this package."""

    def __init__(self) -> None:
        self._trace_is_logged = False  # by extract_tb, so that the call that formats the error does not log it again

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def extract_tb(self, *args: Any, **kwargs: Any) -> traceback.StackSummary:
        error = _package_error(sys.exception())
        if error is not None:
            _log.debug(_DEBUG_MESSAGE, exc_info=error)  # now, because PySpark drops the causes next
            self._trace_is_logged = True
        return traceback.extract_tb(*args, **kwargs)

    def format_exc(self, *args: Any, **kwargs: Any) -> str:
        error = _package_error(sys.exception())
        return traceback.format_exc(*args, **kwargs) if error is None else self._format_message(error)

    def format_exception(self, kind: Any, *args: Any, **kwargs: Any) -> list[str]:
        error = _package_error(args[0] if args else kind)
        return traceback.format_exception(kind, *args, **kwargs) if error is None else [self._format_message(error)]

    def TracebackException(  # noqa: N802 (PySpark calls it since 4.3)
        self, kind: type[BaseException], error: BaseException, *args: Any, **kwargs: Any
    ) -> traceback.TracebackException:
        if (package_error := _package_error(error)) is not None:
            self._log_stack_trace(package_error)
            return _Message(type(package_error), package_error, None)
        return traceback.TracebackException(kind, error, *args, **kwargs)

    def _format_message(self, error: KafkaDirectError) -> str:
        self._log_stack_trace(error)
        return "".join(traceback.format_exception_only(error))

    def _log_stack_trace(self, error: KafkaDirectError) -> None:
        if not self._trace_is_logged:
            _log.debug(_DEBUG_MESSAGE, exc_info=error)
        self._trace_is_logged = False


def _package_error(error: BaseException | None) -> KafkaDirectError | None:
    """Return an error of this package, also if PySpark's cleanup has replaced it."""
    if isinstance(error, UnboundLocalError):  # of `finally: reader.stop()`, if streamReader() has raised an error
        error = error.__context__
    return error if is_package_error(error) else None


class _Message(traceback.TracebackException):
    """Formats an error as its message, without stack trace and causes."""

    def format(self, *args: Any, **kwargs: Any) -> Generator[str]:
        return self.format_exception_only()
