"""The versions of Kafka, Spark and Python that are documented are those that the tests run."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.documentation import text_of
from tests.shards.brokers import KINDS

from pyspark_kafka_direct import __version__
from pyspark_kafka_direct.broker.embedded_kafka import DEFAULT_VERSION

ROOT = Path(__file__).parents[2]
PAGE = text_of("tests/evidence/versions.md")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def first_column(header: str) -> list[str]:
    """Return the first column of the table whose header begins with this cell."""
    rows = PAGE.partition(f"| {header} |")[2].split("\n\n", 1)[0].splitlines()[2:]
    return [row.split("|")[1].strip() for row in rows]


def test_the_versions_of_kafka_are_those_of_the_shared_brokers() -> None:
    tested = {arguments.get("version", DEFAULT_VERSION) for arguments in KINDS.values()}
    assert first_column("Kafka") == sorted(tested, reverse=True)


def test_each_line_of_spark_is_run_by_make() -> None:
    lines = re.search(r"^SPARKS := (.+)$", MAKEFILE, re.MULTILINE)
    assert lines is not None
    rows = [".".join(version.split(".")[:2]) for version in first_column("Spark")]
    documented = list(dict.fromkeys(rows))  # a line may have been run with two versions of Python
    *older, newest = lines[1].split()
    assert newest == "4"
    assert documented[: len(older)] == older
    assert len(documented) == len(older) + 1


def test_the_changelog_begins_with_this_version() -> None:
    sections = re.findall(r"^## (\S+) \((\S+)\)$", text_of("CHANGELOG.md"), re.MULTILINE)
    assert sections[0][0] == __version__
    assert len(sections) == len(set(sections)) == text_of("CHANGELOG.md").count("\n## ")
    assert all(re.fullmatch(r"unreleased|20\d\d-\d\d-\d\d", date) for _, date in sections)


def test_each_version_of_python_is_tested_and_documented() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        classifiers = tomllib.load(file)["project"]["classifiers"]
    supported = [version for each in classifiers if (version := each.rpartition(" :: ")[2]).startswith("3.")]
    release = (ROOT / ".github/workflows/release.yml").read_text("utf-8")
    tried = re.search(r"^ +python: \[(.+)\]$", release, re.MULTILINE)
    assert tried is not None
    assert re.findall(r"[\d.]+", tried[1]) == supported
    installed = first_column("Python | what was run")
    assert [version for version in installed if re.fullmatch(r"[\d.]+", version)] == supported
    run = {version for line in re.findall(r"^PYTHONS_.+ := (.+)$", MAKEFILE, re.MULTILINE) for version in line.split()}
    assert run == {f"python{version}" for version in supported}
    assert f"on Python {supported[0]} to {supported[-1]}" in MAKEFILE
