"""The pages of the documentation, and the blocks of code in them.

A fenced block names its language. A test runs the ``python`` blocks of a page in order and in one namespace. A
``python fragment`` uses names that no test can provide; it must compile. An indented block contains shell commands or
shows output.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "RELEASING.md",
    "SECURITY.md",
    "bench/README.md",
    "tests/README.md",
    *(
        f"{folder}/{file.name}"
        for folder in ("docs", "bench/results", "tests/evidence")
        for file in sorted((ROOT / folder).glob("*.md"))
    ),
]


class Block(NamedTuple):
    """A block of code."""

    page: str
    line: int
    """The number of its first line, from 1."""
    language: str
    """``python``, ``python fragment`` and so on; empty for an indented block."""
    text: str


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def fenced(page: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    found: list[Block] = []
    lines = text_of(page).splitlines()
    start: int | None = None
    for number, line in enumerate(lines):
        if line.startswith("```"):
            if start is None:
                start = number
            else:
                text = "\n".join(lines[start + 1 : number])
                found.append(Block(page, start + 2, lines[start].removeprefix("```").strip(), text))
                start = None
    assert start is None, f"{page}:{start}: no end of a block"
    return found


def indented(page: str) -> list[Block]:
    """Return the blocks that are indented by four spaces, outside of fences."""
    text = re.sub(
        r"^```.*?^```", lambda found: "\n" * found[0].count("\n"), text_of(page), flags=re.DOTALL | re.MULTILINE
    )
    found: list[Block] = []
    for match in re.finditer(r"(?<=\n\n)(?: {4}.*\n(?:\n(?= {4}))?)+", text):
        body = re.sub(r"^ {4}", "", match[0], flags=re.MULTILINE)
        found.append(Block(page, text[: match.start()].count("\n") + 1, "", body))
    return found
