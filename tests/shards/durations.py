"""Durations of test modules, by which the parts of a shard are packed.

``make test`` and ``make check`` write a report of each part. This reads the reports and records the durations::

    python -m tests.shards.durations
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]

_REPORTS = ROOT / "build" / "tests"
_FILE = Path(__file__).with_name("durations.json")
_UNIT = "unit"  # the unit tests, which have parts as a shard has
_CHECK = "check"  # those that are not marked as slow


def all_durations() -> dict[str, dict[str, float]]:
    """Return the recorded seconds of each module, by shard."""
    recorded: dict[str, dict[str, float]] = json.loads(_FILE.read_text("utf-8"))
    return recorded


def durations_of(shard: str | None, *, without_slow: bool = False) -> Mapping[str, float]:
    """Return the recorded seconds of each module of a shard, or of the unit tests, by its path in the repository."""
    return all_durations().get(shard or (_CHECK if without_slow else _UNIT), {})


def read_reports(folder: Path) -> dict[str, dict[str, float]]:
    """Return the seconds of each module in the reports ``shard-SHARD.xml`` and ``shard-SHARD-1-2.xml``, by shard.

    If a shard has reports with different numbers of parts, the newest counts.
    """
    reports: defaultdict[str, defaultdict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
    for report in sorted(folder.glob("shard-*.xml")):
        shard, _, part = report.stem.removeprefix("shard-").partition("-")
        reports[shard][part.rpartition("-")[2]].append(report)
    return {shard: _seconds(max(by_parts.values(), key=_written_at)) for shard, by_parts in reports.items()}


def _written_at(reports: Sequence[Path]) -> float:
    return max(report.stat().st_mtime for report in reports)


def _seconds(reports: Sequence[Path]) -> dict[str, float]:
    seconds: Counter[str] = Counter()
    for report in reports:
        for test in ElementTree.parse(report).iter("testcase"):
            seconds[_module(test.attrib["classname"])] += float(test.attrib["time"])  # type: ignore[assignment]
    return {module: round(total, 1) for module, total in seconds.items()}


def _module(class_name: str) -> str:
    """Return the path of a module, of which pytest reports the name, followed by names of classes."""
    path = ROOT.joinpath(*class_name.split("."))
    while not path.with_suffix(".py").exists():
        path = path.parent
    return path.with_suffix(".py").relative_to(ROOT).as_posix()


if __name__ == "__main__":
    durations = all_durations() | read_reports(_REPORTS)
    _FILE.write_text(json.dumps(durations, indent=1, sort_keys=True) + "\n", "utf-8")
