"""A process of its own for each kind of peer, so that what it and its children cost can be told from everything else.

The process keeps one context (a Spark session, say) and runs functions of this package on it, one after another.
Its output goes to a file: Spark's JVM inherits it, so a stack trace on the console is seen by who looks there.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from bench.errors import BenchError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from multiprocessing.connection import Connection
    from pathlib import Path
    from types import TracebackType

P = ParamSpec("P")
T = TypeVar("T")
Context = TypeVar("Context")

_CALL_DEADLINE = 900.0  # seconds for one run; the largest takes about ten
_STOP_DEADLINE = 30.0


class Host(Generic[Context]):
    """A process that holds what ``make`` gives.

    Args:
        make: Called and entered once in the new process; what it gives is the first argument of everything called
            later, and it is left when the process ends.
        output: File that gets the process's standard output and error.

    Raises:
        BenchError: The process or a function in it failed; the message has the traceback.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[Context]], output: Path) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.output = output
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, make, output), daemon=False)
        self._process.start()
        theirs.close()
        self._answer("start")

    def call(self, function: Callable[Concatenate[Context, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function(context, *args, **kwargs)`` in the process and return its result."""
        try:
            self._pipe.send((function, args, kwargs))
        except OSError:
            raise BenchError(f"The process of {function.__name__} had ended before") from None
        answer: T = self._answer(function.__name__)
        return answer

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):  # it has ended by itself
            self._pipe.send(None)
        self._process.join(_STOP_DEADLINE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(_STOP_DEADLINE)
        self._pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, what: str) -> Any:
        try:
            if not self._pipe.poll(_CALL_DEADLINE):
                self._process.kill()  # a late answer would be taken for the answer to the next request
                raise BenchError(f"{what} took longer than {_CALL_DEADLINE:.0f} s")
            answer = self._pipe.recv()
        except (EOFError, OSError):
            said = self.output.read_text(errors="replace")[-2000:]
            raise BenchError(f"The process died in {what}; it last said:\n{said}") from None
        if isinstance(answer, _Failure):
            raise BenchError(f"{what} failed:\n{answer.trace}")
        return answer


@dataclass(frozen=True, slots=True)
class _Failure:
    trace: str


def _serve(pipe: Connection, make: Callable[[], AbstractContextManager[Any]], output: Path) -> None:
    with output.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        with make() as context:
            pipe.send(None)
            while (work := pipe.recv()) is not None:
                function, args, kwargs = work
                try:
                    answer = function(context, *args, **kwargs)
                except Exception:
                    answer = _Failure(traceback.format_exc())
                pipe.send(answer)
    except EOFError:  # the benchmark was stopped
        pass
    except Exception:
        pipe.send(_Failure(traceback.format_exc()))
