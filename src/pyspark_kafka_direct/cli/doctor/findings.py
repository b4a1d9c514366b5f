"""Findings of the doctor, and their output."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Result = Literal["ok", "unknown", "warning", "problem"]

_MIN_TEXT_WIDTH: Final = 40
_MAX_TEXT_CHARS: Final = 4_000  # parts of it may come from a broker


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. The text of a warning or problem also says what to do."""

    subject: str  # such as "broker 1 at localhost:9092"
    check: str  # such as "tls"
    result: Result
    text: str


class Examined(NamedTuple):
    """The findings of one host."""

    host: str  # "driver", or an executor
    findings: Sequence[Finding]


def print_findings(examined: Sequence[Examined], *, as_json: bool) -> None:
    """Print findings as JSON, or in groups for people. Of executors, people see only what is not ok."""
    if as_json:
        for host, findings in examined:
            for finding in findings:
                print(json.dumps({"host": host, **asdict(finding), "text": _shown(finding.text)}))
        return
    driver, *executors = examined
    _print_groups(driver.findings)
    for host, findings in executors:
        others = [finding for finding in findings if finding.result != "ok"]
        print(f"\n{_shown(host)}: {len(findings) - len(others)} of {len(findings)} checks are ok")
        _print_groups(others)
    print()
    print(_summary([finding for _, findings in examined for finding in findings]))


def has_problem(examined: Sequence[Examined]) -> bool:
    """Return whether a check has found a problem."""
    return any(finding.result == "problem" for _, findings in examined for finding in findings)


def _print_groups(findings: Iterable[Finding]) -> None:
    shown = list(findings)
    width = max((len(finding.check) for finding in shown), default=0)
    for subject, group in groupby(shown, key=lambda finding: finding.subject):
        print(_shown(subject))
        for finding in group:
            mark = finding.result.upper() if finding.result == "problem" else finding.result
            head = f"  {mark:7}  {finding.check:{width}}  "
            print(_wrapped(head, _shown(finding.text)))


def _wrapped(head: str, text: str) -> str:
    """Return a line, which is wrapped to the width of a terminal, but not in a file or for another program."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return head + text
    width = max(shutil.get_terminal_size().columns, len(head) + _MIN_TEXT_WIDTH)
    return textwrap.fill(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _summary(findings: Sequence[Finding]) -> str:
    counts = {result: sum(finding.result == result for finding in findings) for result in ("problem", "warning")}
    parts = [f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count]
    return f"{', '.join(parts) or 'No problem'} found in {len(findings)} checks."


def _shown(text: str) -> str:
    from pyspark_kafka_direct.errors import printable

    return printable(text, _MAX_TEXT_CHARS)
