"""Where the record is stored, and which differences from it are allowed."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Final

DATA: Final = Path(__file__).parent / "data"
ALLOWED: Final = Path(__file__).parent / "allowed.txt"

Differences = dict[str, str]
"""One-line names of differences to descriptions."""

_ADVICE: Final = (
    "If these changes are intended, update the record with `python -m tests.behaviour --write` and review its diff. "
    "To keep the record, allow the differences in tests/behaviour/allowed.txt and give a reason."
)
_MAX_SHOWN: Final = 40


def report(part: str, differences: Differences) -> str:
    """The message about the differences that are not allowed, or an empty string."""
    patterns = _allowed_patterns(part)
    reported = {
        name: description
        for name, description in differences.items()
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
    if not reported:
        return ""
    lines = [f"  {name}: {description}" for name, description in list(reported.items())[:_MAX_SHOWN]]
    return "\n".join([f"{len(reported)} differences from the record of {part}:", *lines, _ADVICE])


def _allowed_patterns(part: str) -> list[str]:
    patterns = []
    for line in ALLOWED.read_text("utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            entry, _, reason = line.partition(" -- ")
            assert reason.strip(), f"allowed.txt: no reason for {entry!r}"
            name, _, pattern = entry.partition(": ")
            if name == part:
                patterns.append(pattern.strip())
    return patterns
