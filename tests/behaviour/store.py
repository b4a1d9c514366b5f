"""Where the record lies, and which differences from it were looked at and allowed."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Final

DATA: Final = Path(__file__).parent / "data"
ALLOWED: Final = Path(__file__).parent / "allowed.txt"

Differences = dict[str, str]
"""What is different, by a name of one line, to how."""

_ADVICE: Final = (
    "If that is meant, make the record anew with `python -m tests.behaviour --write` and look at what changed, or, "
    "where the record has to stand, allow it in tests/behaviour/allowed.txt with a reason."
)
_SHOWN: Final = 40


def complaint(part: str, differences: Differences) -> str:
    """A message about differences that are not allowed; empty when there are none.

    Args:
        part: Which part of the record, as in ``allowed.txt``.
        differences: What ``compare`` of the part found.
    """
    patterns = _allowed(part)
    left = {
        name: how
        for name, how in differences.items()
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
    if not left:
        return ""
    lines = [f"  {name}: {how}" for name, how in list(left.items())[:_SHOWN]]
    return "\n".join([f"{len(left)} differences from the record of {part}:", *lines, _ADVICE])


def _allowed(part: str) -> list[str]:
    patterns = []
    for line in ALLOWED.read_text("utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            entry, _, reason = line.partition(" -- ")
            assert reason.strip(), f"allowed.txt: no reason for {entry!r}"
            name, _, pattern = entry.partition(": ")
            if name == part:
                patterns.append(pattern.strip())
    return patterns
