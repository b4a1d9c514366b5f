from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.broker.java import find_java, java_major_version, run_tool
from pyspark_kafka_direct.errors import ExternalToolError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _clear_cache() -> Iterator[None]:
    find_java.cache_clear()
    yield
    find_java.cache_clear()


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25-ea"', 25),
        ("no such thing", None),
    ],
)
def test_versions_are_parsed(text: str, version: int | None) -> None:
    assert java_major_version(text) == version


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == java


def test_an_old_java_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ExternalToolError, match=f"needs Java 17 or newer; {java} is Java 11"):
        find_java()


def test_a_missing_java_is_reported_with_the_search_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ExternalToolError, match="has no bin/java"):
        find_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ExternalToolError, match="PATH has no java"):
        find_java()


def test_a_missing_program_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ExternalToolError, match=f"{tmp_path}/keytool cannot be run: No such file.*JAVA_HOME"):
        run_tool([str(tmp_path / "keytool")], 60.0)


def test_a_program_that_takes_too_long_is_killed() -> None:
    with pytest.raises(ExternalToolError, match=r"sleep took longer than 0\.1 s"):
        run_tool(["sleep", "600"], 0.1)
