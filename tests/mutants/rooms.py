"""What is changed, and by which unit tests it must be noticed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pyspark_kafka_direct"
TESTS = ROOT / "tests" / "unit"


class Room(NamedTuple):
    """A part of the package.

    Attributes:
        sources: Files and folders of the package.
        tests: Files and folders below tests/unit.
        goal: The least share of changes that must be noticed.
    """

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    goal: float = 0.9

    def files(self) -> list[Path]:
        """Return the files that are changed."""
        return [file for source in self.sources for file in _python_files(PACKAGE / source)]

    def test_files(self) -> list[Path]:
        """Return the files of tests, and what helps them."""
        return [file for test in self.tests for file in _python_files(TESTS / test)]

    def arguments(self) -> list[str]:
        """Return the tests as pytest takes them."""
        return [str((TESTS / test).relative_to(ROOT)) for test in self.tests]


ROOMS = {
    "planning": Room(("planning",), ("planning",)),
    "records": Room(("records/_python",), ("records",)),
    "settings": Room(
        ("settings",),
        (
            "settings",
            "test_options.py",
            "test_stream_options.py",
            "test_sink_options.py",
            "test_backpressure_options.py",
            "wire/test_settings.py",
            "wire/test_settings_security.py",
            "wire/test_jaas.py",
            "wire/test_security_page.py",
            "direct/test_parameters.py",
            "direct/test_conf.py",
        ),
    ),
    "codecs": Room(
        ("wire/messages", "wire/_cursor.py", "wire/_fetch_format.py"),
        (
            "wire/test_messages.py",
            "wire/test_definitions.py",
            "wire/test_cursor.py",
            "wire/test_versions.py",
            "wire/test_fetch.py",
            "wire/test_fetch_many.py",
            "wire/test_produce.py",
        ),
    ),
    "transactions": Room(
        ("writing/session.py", "wire/transactions.py", "continuous/_transactions.py"),
        ("writing", "wire/test_transactions.py", "wire/test_group_transactions.py", "continuous"),
    ),
}


def _python_files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]
