"""Programs in ``tests/java`` that do what tests tell them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.broker.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterable

_DEADLINE = 600.0


class JavaProcess:
    """The process that runs a program in one file; the format of orders and answers stands there.

    Args:
        source: Its file in ``tests/java``.
        jars: What it needs; all other jars in their folders are on its class path too.
    """

    def __init__(self, source: str, jars: Iterable[Path]) -> None:
        folders = dict.fromkeys(f"{jar.parent}/*" for jar in jars)
        program = Path(__file__).parents[1] / "java" / source
        command = [find_java(), "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", ":".join(folders), program]
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def order(self, **order: object) -> dict[str, Any]:
        # pytest's time limit ends a wait for a process that is stuck.
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline() or '{"error": "the process has ended"}')
        assert "error" not in answer, answer
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=_DEADLINE)
