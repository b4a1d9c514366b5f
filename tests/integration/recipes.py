"""Runs the steps of a recipe of docs/runbook.md: its Python, and the commands of its shell."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.documentation import Block, fenced, text_of

from pyspark_kafka_direct.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

PAGE = "docs/runbook.md"
INTRODUCTION = "Runbook"

_PATH = re.compile(r"(?<![\w./-])((?:flights|orders)(?:-[a-z]+)?\.(?:checkpoint|parquet)|client\.properties)")


class Done(NamedTuple):
    """The result of a command."""

    code: int
    output: str
    messages: str

    def table(self, first: str) -> list[dict[str, str]]:
        """Return the rows of the table whose first column is this one."""
        lines = self.output.splitlines()
        start = next(number for number, line in enumerate(lines) if re.split(r"\s{2,}", line.strip())[0] == first)
        rows = []
        for line in lines[start + 1 :]:
            names, cells = (re.split(r"\s{2,}", text.strip()) for text in (lines[start], line))
            if len(cells) < 2:
                break
            rows.append(dict(zip(names, cells, strict=False)))
        return rows


class Recipe:
    """The steps of a section, for a broker, topics and a folder of a test.

    Attributes:
        names: The variables of the Python blocks.
    """

    def __init__(self, title: str, spark: SparkSession, folder: Path, replaced: Mapping[str, str]) -> None:
        """Take the blocks of the section; ``replaced`` are the servers and the topics."""
        self.names: dict[str, Any] = {"spark": spark}
        self._folder = folder
        self._servers = {name: to for name, to in replaced.items() if ":" in name}
        self._topics = {name: to for name, to in replaced.items() if ":" not in name}
        sections = _sections()
        definitions, self._start = sections[INTRODUCTION]
        self._steps = sections[title]
        self._execute(definitions)

    def start_query(self) -> None:
        """Start the query of the page."""
        self._execute(self._start)

    def run(self) -> list[Done]:
        """Run the next block; return the results of its commands."""
        block = self._steps.pop(0)
        if block.language == "python":
            self._execute(block)
            return []
        assert block.language == "sh"
        return [self._call(line) for line in block.text.splitlines()]

    def command(self) -> Done:
        """Run the next block, which is one command."""
        (done,) = self.run()
        return done

    def wait_for_a_minute(self) -> None:
        """Let the commits be a minute older."""
        past = time.time() - 61
        for file in self._folder.glob("*.checkpoint/commits/[0-9]*"):
            os.utime(file, (past, past))

    def close(self) -> None:
        """Stop the query, and check that all steps were run."""
        if (query := self.names.get("query")) is not None:
            query.stop()
        assert self._steps == []

    def _execute(self, block: Block) -> None:
        text = self._with_places(block.text)
        for topic, to in self._topics.items():
            text = text.replace(f'"{topic}"', f'"{to}"')
        exec(compile("\n" * (block.line - 1) + text, PAGE, "exec"), self.names)

    def _call(self, line: str) -> Done:
        line = self._with_places(line)
        for topic, to in self._topics.items():
            line = re.sub(rf"(?<![\w./-]){topic}(?![\w.])", to, line)
        program, *arguments = shlex.split(line)
        if program != "kafka-direct":
            done = subprocess.run(line, shell=True, cwd=self._folder, check=True, capture_output=True, text=True)
            return Done(done.returncode, done.stdout, done.stderr)
        with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()) as messages:
            code = main(arguments)
        return Done(code, output.getvalue(), messages.getvalue())

    def _with_places(self, text: str) -> str:
        for name, to in self._servers.items():
            text = text.replace(name, to)
        return _PATH.sub(rf"{self._folder}/\1", text)


def _sections() -> dict[str, list[Block]]:
    lines = re.sub(r"(?ms)^```.*?^```", lambda code: "\n" * code[0].count("\n"), text_of(PAGE)).splitlines()
    found: dict[str, list[Block]] = {}
    starts = [(number, line.lstrip("# ")) for number, line in enumerate(lines, 1) if line.startswith("#")]
    for (start, title), (end, _) in zip(starts, [*starts[1:], (len(lines) + 1, "")], strict=True):
        found[title] = [block for block in fenced(PAGE) if start < block.line < end]
    return found
