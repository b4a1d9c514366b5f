"""Downloading jars with the real Ivy from a Maven repository in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyspark_kafka_direct.broker import jars
from pyspark_kafka_direct.broker.maven import cache_folder
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


def test_jars_are_returned_with_or_without_dependencies(repository: Path) -> None:
    progress_lines: list[str] = []
    with_dependencies = names(jars(["org.example:above:1.0"], progress=progress_lines.append))
    assert {"org.example_above-1.0.jar", "org.example_below-1.0.jar"} <= with_dependencies
    # Spark never resolves Scala's library, so it is added.
    assert [name for name in with_dependencies if name.startswith("scala-library-2.13")]
    assert progress_lines[0].startswith("Downloading org.example:above:1.0 into ")
    assert progress_lines[-1].startswith("Downloaded 3 jars in ")
    alone = jars(["org.example:above:1.0"], transitive=False, progress=progress_lines.append)
    assert names(alone) == {"org.example_above-1.0.jar"}
    # The second time nothing is downloaded or resolved.
    (repository / "org").rename(repository / "moved")
    assert jars(["org.example:above:1.0"], transitive=False, progress=pytest.fail) == alone


def test_a_failed_download_is_reported_and_leaves_no_files(repository: Path) -> None:
    with pytest.raises(BrokerError, match=r"(?s)Could not download org\.example:none:1\.0 .*none;1\.0: not found"):
        jars(["org.example:none:1.0"], progress=lambda line: None)
    assert [path.suffix for path in cache_folder().iterdir()] == [".lock"]


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


def test_a_download_without_pyspark_is_an_error(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", cast("Any", None))
    with pytest.raises(SparkVersionError, match=r"the Ivy in PySpark.*pyspark-kafka-direct\[spark\]"):
        jars(["org.example:above:1.0"], progress=lambda line: None)
