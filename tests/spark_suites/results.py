"""The stored results of Spark's suites, one file for each version of Spark: tests/evidence/spark-suites-4.2.0.jsonl."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark_suites.recording import Recorded
from tests.spark_suites.suites import SUITES, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FOLDER = Path(__file__).parents[1] / "evidence"


@dataclass
class Row:
    """A test, and its result with each source that it was run with."""

    suite: str
    test: str
    results: dict[Source, Recorded] = field(default_factory=dict)

    @property
    def differs(self) -> bool:
        """Whether this package does not pass a test that the JVM connector passes, or the other way round."""
        return self.passed("jvm") != self.passed("ours")

    @property
    def passed_with_both(self) -> bool:
        return self.passed("jvm") and self.passed("ours")

    def passed(self, source: Source) -> bool:
        return source in self.results and self.results[source].outcome == "passed"


def path_of(version: str) -> Path:
    return FOLDER / f"spark-suites-{version}.jsonl"


def versions() -> list[str]:
    """Return the versions of Spark with stored results, oldest first."""
    return sorted(path.stem.removeprefix("spark-suites-") for path in FOLDER.glob("spark-suites-*.jsonl"))


def load(version: str) -> list[Row]:
    """Return the stored results; none if there is no file."""
    if not path_of(version).exists():
        return []
    rows = []
    for line in path_of(version).read_text("utf-8").splitlines():
        content = json.loads(line)
        results = {
            source: Recorded(**{**each, "intercepted": tuple(each["intercepted"])})
            for source, each in content["results"].items()
        }
        rows.append(Row(content["suite"], content["test"], results))
    return rows


def merge(rows: Iterable[Row], suite: str, source: Source, recorded: Mapping[str, Recorded]) -> list[Row]:
    """Return the rows with the results of a run in place of earlier ones."""
    merged = {(row.suite, row.test): row for row in rows}
    for test, result in recorded.items():
        merged.setdefault((suite, test), Row(suite, test)).results[source] = result
    return sorted(merged.values(), key=lambda row: SUITES.index(row.suite))  # stable: within a suite, as they ran


def save(version: str, rows: Iterable[Row]) -> None:
    """Write the rows; exceptions that a test intercepted only where the sources differ."""
    lines = []
    for row in rows:
        results = {source: asdict(result) for source, result in row.results.items()}
        if row.passed_with_both:
            for each in results.values():
                each["intercepted"] = ()
        lines.append(json.dumps({"suite": row.suite, "test": row.test, "results": results}))
    path_of(version).write_text("\n".join(lines) + "\n", "utf-8")
