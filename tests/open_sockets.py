"""Warns about unclosed sockets, with their openers.

Python reports such a socket when it collects it, which may be minutes later, in another test, and fails that one. So
the opener of each socket is recorded. A socket that the package or a test opened is reported with its opener. Sockets
of other packages are closed silently: kafka-python leaves them open if a connection fails, PySpark before 4.2 in
other places.
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
_SITE_PACKAGES = "site-packages"
_PACKAGE = "pyspark_kafka_direct"
_MAX_CALLS = 12


class _Opener(NamedTuple):
    test: str
    calls: list[str]  # innermost first
    is_own: bool


_openers: dict[int, _Opener] = {}


def watch() -> None:
    """Watch all sockets that this process opens from now on."""
    plain_init = socket.socket.__init__

    def init(self: socket.socket, *args: Any, **named: Any) -> None:
        plain_init(self, *args, **named)
        _openers[id(self)] = _opener(sys._getframe(1))

    def warn_if_open(self: socket.socket) -> None:
        opener = _openers.pop(id(self), None)
        if self.fileno() == -1:
            return
        description = repr(self)
        self.close()
        if opener is not None and opener.is_own:
            calls = "\n  ".join(opener.calls)
            warnings.warn(
                f"unclosed {description}, opened in {opener.test} by\n  {calls}", ResourceWarning, stacklevel=1
            )

    socket.socket.__init__ = init  # type: ignore[method-assign]
    socket.socket.__del__ = warn_if_open  # type: ignore[attr-defined]


def _opener(frame: FrameType | None) -> _Opener:
    """Return the opener of a socket; the first call outside Python's standard library decides whose it is."""
    calls = list(_calls(frame))
    first_path = next((path for path, _ in calls if not path.startswith(_STANDARD) or _SITE_PACKAGES in path), "")
    call_lines = [call for _, call in calls[:_MAX_CALLS]]
    is_own = _SITE_PACKAGES not in first_path or _PACKAGE in first_path
    return _Opener(os.environ.get("PYTEST_CURRENT_TEST", "no test"), call_lines, is_own)


def _calls(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    while frame is not None:
        path = frame.f_code.co_filename
        yield path, f"{path}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
