"""Downloading jars with the real Ivy from a Maven repository in a folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyspark_kafka_direct.broker import jars
from pyspark_kafka_direct.broker.embedded_kafka import DEFAULT_VERSION
from pyspark_kafka_direct.broker.maven import cache_folder, kafka_jars
from pyspark_kafka_direct.errors import BrokerError, SparkVersionError

if TYPE_CHECKING:
    from pathlib import Path

POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>org.example</groupId><artifactId>{name}</artifactId><version>1.0</version>
<dependencies>{dependencies}</dependencies></project>"""
DEPENDENCY = (
    "<dependency><groupId>org.example</groupId><artifactId>below</artifactId><version>1.0</version></dependency>"
)
IVY = """<ivysettings><settings defaultResolver="folder"/><resolvers>
<ibiblio name="folder" m2compatible="true" root="{root}"/></resolvers></ivysettings>"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven repository with `above`, which depends on `below`, and an empty cache."""
    root = tmp_path / "maven"
    for name, dependencies in (("above", DEPENDENCY), ("below", "")):
        folder = root / "org" / "example" / name / "1.0"
        folder.mkdir(parents=True)
        (folder / f"{name}-1.0.pom").write_text(POM.format(name=name, dependencies=dependencies))
        with zipfile.ZipFile(folder / f"{name}-1.0.jar", "w") as jar:
            jar.writestr("content", name)
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(IVY.format(root=root.as_uri()))
    monkeypatch.setenv("PYSPARK_KAFKA_DIRECT_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root


def names(paths: list[Path]) -> set[str]:
    return {jar.name for jar in paths}


def test_jars_are_returned_with_or_without_dependencies(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_kafka_direct.broker.maven.REPORT_INTERVAL_S", 0)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseParallelGC")  # users may choose a collector
    progress_lines: list[str] = []
    with_dependencies = names(jars(["org.example:above:1.0"], progress=progress_lines.append))
    assert {"org.example_above-1.0.jar", "org.example_below-1.0.jar"} <= with_dependencies
    # Spark never resolves Scala's library, so it is added.
    assert [name for name in with_dependencies if name.startswith("scala-library-2.13")]
    assert progress_lines[0].startswith("Downloading org.example:above:1.0 into ")
    assert re.fullmatch(r"  waiting for the first response for \d+ s", progress_lines[1])
    assert not [line for line in progress_lines if re.search(r"\b0 (modules|jars)\b", line)]
    assert progress_lines[-1].startswith("Downloaded 3 jars in ")
    alone = jars(["org.example:above:1.0"], transitive=False, progress=progress_lines.append)
    assert names(alone) == {"org.example_above-1.0.jar"}
    # The second time nothing is downloaded or resolved.
    (repository / "org").rename(repository / "moved")
    assert jars(["org.example:above:1.0"], transitive=False, progress=pytest.fail) == alone


def test_a_missing_version_is_one_sentence_and_leaves_no_files(repository: Path) -> None:
    with pytest.raises(
        BrokerError, match=r"^The repositories of Maven have no org\.example:none:1\.0: choose a [^.]+\.$"
    ):
        jars(["org.example:none:1.0"], progress=lambda line: None)
    assert [path.suffix for path in cache_folder().iterdir()] == [".lock"]


def test_without_a_response_no_version_is_called_missing(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = repository.parent / "unreachable.xml"
    settings.write_text(IVY.format(root="http://localhost:1/maven"))
    monkeypatch.setenv("PYSPARK_KAFKA_DIRECT_IVY_SETTINGS", str(settings))
    with pytest.raises(BrokerError, match=r"(?s)Could not download org\.example:above:1\.0 .*Check the network"):
        jars(["org.example:above:1.0"], progress=lambda line: None)


def test_concurrent_processes_download_once(repository: Path) -> None:
    program = (
        "from pyspark_kafka_direct.broker import jars; print(len(jars(['org.example:below:1.0'], transitive=False)))"
    )
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdout=pipe, stderr=pipe, text=True, env=dict(os.environ))
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [out for out, _ in outputs] == ["1\n", "1\n"]
    assert sum("Downloaded 1 jars" in stderr for _, stderr in outputs) == 1


KAFKA_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>org.apache.kafka</groupId><artifactId>{name}</artifactId><version>3.9.2</version></project>"""


@pytest.fixture
def kafka_repository(repository: Path) -> Path:
    """A mirror whose jars of Kafka 3.9.2 have other content."""
    for name in ("kafka_2.13", "kafka-tools"):
        folder = repository / "org" / "apache" / "kafka" / name / "3.9.2"
        folder.mkdir(parents=True)
        (folder / f"{name}-3.9.2.pom").write_text(KAFKA_POM.format(name=name))
        with zipfile.ZipFile(folder / f"{name}-3.9.2.jar", "w") as jar:
            jar.writestr("content", "other")
    return repository


def test_downloaded_jars_with_other_checksums_are_rejected(kafka_repository: Path) -> None:
    with pytest.raises(BrokerError, match=r"kafka-tools-3\.9\.2\.jar, org\.apache\.kafka_kafka_2\.13-3\.9\.2\.jar"):
        kafka_jars("3.9.2", lambda line: None)
    assert not (cache_folder() / "kafka-3.9.2").exists()
    assert len(kafka_jars("3.9.2", lambda line: None, verify=False)) == 3  # with Scala's library
    with pytest.raises(BrokerError, match="Delete the folder to download them again"):  # as they are in the cache now
        kafka_jars("3.9.2", lambda line: None)


def test_changed_and_added_jars_in_the_cache_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars_of_the_default = kafka_jars(DEFAULT_VERSION)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache_folder() / f"kafka-{DEFAULT_VERSION}"
    folder.mkdir()
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    for jar in jars_of_the_default:
        (folder / jar.name).symlink_to(jar)
    assert names(kafka_jars(DEFAULT_VERSION)) == names(jars_of_the_default)
    for name in ("a_scala-library-2.13.1.jar", "added.JAR", ".added.jar"):
        added = folder / name
        added.touch()
        with pytest.raises(BrokerError, match=f"expects: {re.escape(name)}\\."):
            kafka_jars(DEFAULT_VERSION)
        added.unlink()
    (folder / jars_of_the_default[0].name).unlink()
    (folder / jars_of_the_default[0].name).write_bytes(jars_of_the_default[0].read_bytes() + b"x")
    with pytest.raises(BrokerError, match=f"expects: {jars_of_the_default[0].name}"):
        kafka_jars(DEFAULT_VERSION)


def test_a_download_without_pyspark_is_an_error(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", cast("Any", None))
    with pytest.raises(SparkVersionError, match=r"the Ivy in PySpark.*pyspark-kafka-direct\[spark\]"):
        jars(["org.example:above:1.0"], progress=lambda line: None)
