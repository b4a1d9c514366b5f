"""What PySpark tells of an error of this package: its sentence, and not the way to it.

PySpark sends what was raised in a Python worker to the JVM as text, with the stack trace and those of all errors that
led to it. That is how a bug is told. An error of this package has said in its sentence what happened, where and what to
do, and under a hundred lines nobody finds it. The stack trace is logged at DEBUG.
"""

from __future__ import annotations

import functools
import logging
import sys
import traceback
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from pyspark_kafka_direct.errors import KafkaDirectError, RunFailedError, is_ours

if TYPE_CHECKING:
    from collections.abc import Callable

_P = ParamSpec("_P")
_R = TypeVar("_R")

_log = logging.getLogger("pyspark_kafka_direct.errors")

_WORKERS: Final = "pyspark.util"
_STREAMS: Final = "pyspark.streaming.util"
_NEXT: Final = "the stack trace of the error that is told next"


def tell_plainly() -> None:
    """Let PySpark tell the errors of this package without their stack traces; those of others as ever.

    It concerns what PySpark itself makes a text of: what ends a Python worker, and what ends a function of a DStream on
    the driver.
    """
    for name in (_WORKERS, _STREAMS):
        module: Any = sys.modules.get(name)
        if module is not None and not isinstance(getattr(module, "traceback", None), _Plainly):
            module.traceback = _Plainly()


def plain_errors(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a function that users call on the driver raise errors of this package as if they began there.

    What led to one stays in ``__context__``, for debuggers. ``RunFailedError`` keeps its cause, which may be a bug.
    """

    @functools.wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except KafkaDirectError as error:
            if not is_ours(error):
                raise
            _log.debug(_NEXT, exc_info=error)
            if not isinstance(error, RunFailedError):
                error.__context__ = error.__cause__ or error.__context__
                error.__cause__ = None  # and so the context is not printed
            raise error.with_traceback(None)  # noqa: B904 (as above)

    return called


class _Plainly:
    """The module ``traceback`` as PySpark sees it."""

    def __init__(self) -> None:
        self._logged = False

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def extract_tb(self, *args: Any, **kwargs: Any) -> traceback.StackSummary:
        error = sys.exception()
        if is_ours(error):
            _log.debug(_NEXT, exc_info=error)  # now: PySpark is about to drop what led to it
            self._logged = True
        return traceback.extract_tb(*args, **kwargs)

    def format_exc(self, *args: Any, **kwargs: Any) -> str:
        error = sys.exception()
        return self._told(error) if is_ours(error) else traceback.format_exc(*args, **kwargs)

    def format_exception(self, kind: Any, *args: Any, **kwargs: Any) -> list[str]:
        error = args[0] if args else kind
        if is_ours(error):
            return [self._told(error)]
        return traceback.format_exception(kind, *args, **kwargs)

    def _told(self, error: KafkaDirectError) -> str:
        if not self._logged:
            _log.debug(_NEXT, exc_info=error)
        self._logged = False
        return "".join(traceback.format_exception_only(error))
