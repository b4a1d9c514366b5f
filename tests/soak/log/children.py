"""The processes of a soak run: writers, which are killed and started again, and those that keep tables."""

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


class Child:
    """A process that runs a module.

    Args:
        module: The module.
        told: Its argument.
        log: What it says on standard error goes there.
    """

    def __init__(self, module: str, told: Mapping[str, Any], log: Path) -> None:
        self.log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(told)],
                cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        self.last: dict[str, Any] = {}
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def memory(self) -> int:
        """Bytes that are resident."""
        return int(psutil.Process(self._process.pid).memory_info().rss)

    def files(self) -> int:
        """How many files and sockets it has open."""
        return int(psutil.Process(self._process.pid).num_fds())

    def tell(self, line: str) -> None:
        """Give it an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """``kill -9``."""
        self._process.kill()
        self._ended()

    def ask_to_end(self) -> None:
        """End its input."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> int:
        """Ask it to end, wait until it has ended, and return its exit code.

        Raises:
            subprocess.TimeoutExpired: It did not end.
        """
        self.ask_to_end()
        return self._ended()

    def last_words(self) -> str:
        """The end of what it said on standard error."""
        return self.log.read_text(errors="replace")[-4000:]

    def _listen(self) -> None:
        """Keep the last line of JSON that it prints."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.last = json.loads(line)

    def _ended(self) -> int:
        code = self._process.wait(_DEADLINE)
        self._listener.join(_DEADLINE)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        return code
