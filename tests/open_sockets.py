"""Sockets that nobody closes: who opened them.

Python notices such a socket when it collects it, which may be in another test, minutes later, and fails that one. So
each socket's opener is kept. One that the package or a test opened is warned of with its opener's name; others' are
closed without a word: kafka-python leaves them open where a connection fails, PySpark before 4.2 in other places.
"""

from __future__ import annotations

import os
import socket
import sys
import sysconfig
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_STANDARD = sysconfig.get_path("stdlib") + os.sep
_OTHERS = "site-packages"
_PACKAGE = "pyspark_kafka_direct"
_SHOWN = 12


class _Opener(NamedTuple):
    test: str
    calls: list[str]  # innermost first
    ours: bool


_openers: dict[int, _Opener] = {}


def watch() -> None:
    """Watch all sockets that this process opens from now on."""
    plain_init = socket.socket.__init__

    def init(self: socket.socket, *args: Any, **named: Any) -> None:
        plain_init(self, *args, **named)
        _openers[id(self)] = _opener(sys._getframe(1))

    def tell(self: socket.socket) -> None:
        opener = _openers.pop(id(self), None)
        if self.fileno() == -1:
            return
        shown = repr(self)
        self.close()
        if opener is not None and opener.ours:
            calls = "\n  ".join(opener.calls)
            warnings.warn(f"unclosed {shown}, opened in {opener.test} by\n  {calls}", ResourceWarning, stacklevel=1)

    socket.socket.__init__ = init  # type: ignore[method-assign]
    socket.socket.__del__ = tell  # type: ignore[attr-defined]


def _opener(frame: FrameType | None) -> _Opener:
    """Look who opens a socket; the first call outside Python's own library decides whose it is."""
    calls = list(_calls(frame))
    first = next((path for path, _ in calls if not path.startswith(_STANDARD) or _OTHERS in path), "")
    shown = [call for _, call in calls[:_SHOWN]]
    return _Opener(os.environ.get("PYTEST_CURRENT_TEST", "no test"), shown, _OTHERS not in first or _PACKAGE in first)


def _calls(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    while frame is not None:
        path = frame.f_code.co_filename
        yield path, f"{path}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
