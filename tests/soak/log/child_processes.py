"""The processes of a soak run: writers, which are killed and restarted, and processes with tables."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT = Path(__file__).parents[3]
_DEADLINE = 180.0


class ChildProcess:
    """A process that runs a module with one JSON argument."""

    def __init__(self, module: str, arguments: Mapping[str, Any], log: Path) -> None:
        self.log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(arguments)],
                cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        self.last: dict[str, Any] = {}  # the last printed line
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def memory(self) -> int:
        """Return the resident bytes."""
        return int(psutil.Process(self._process.pid).memory_info().rss)

    def files(self) -> int:
        """Return the number of open files and sockets."""
        return int(psutil.Process(self._process.pid).num_fds())

    def send_line(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._wait()

    def request_stop(self) -> None:
        """Close its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> int:
        """Request its end, wait for it, and return the exit code."""
        self.request_stop()
        return self._wait()

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def _listen(self) -> None:
        """Store the last line of JSON that it prints."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.last = json.loads(line)

    def _wait(self) -> int:
        code = self._process.wait(_DEADLINE)
        self._listener.join(_DEADLINE)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        return code
