"""The table of common mistakes in ``docs/command-line.md``."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).parents[3] / "docs" / "command-line.md"
_SECTION = re.compile(r"### Common mistakes\n(.*?)\n## ", re.DOTALL)
_ROW = re.compile(r"^\| (?P<mistake>[^|`]+) \| `(?P<command>[^`]+)` \| `(?P<text>[^`]+)` \|$", re.MULTILINE)


def common_mistakes() -> dict[str, tuple[str, str]]:
    """Return command and text of each row by its mistake."""
    section = _SECTION.search(_PAGE.read_text())
    assert section is not None
    return {row["mistake"]: (row["command"], row["text"]) for row in _ROW.finditer(section[1])}
