"""The help of commands: paragraphs are wrapped to the width of the terminal, and examples are not."""

from __future__ import annotations

import argparse


class HelpFormatter(argparse.HelpFormatter):
    """Wraps the paragraphs of descriptions and epilogs. Lines that begin with a blank are shown as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        paragraph: list[str] = []
        for line in [*text.splitlines(), ""]:
            if line and not line.startswith(" "):
                paragraph.append(line)
                continue
            if paragraph:
                lines.append(super()._fill_text(" ".join(paragraph), width, indent))
                paragraph = []
            lines.append(indent + line)
        return "\n".join(lines).rstrip("\n")
