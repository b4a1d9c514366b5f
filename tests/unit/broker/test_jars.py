"""Fetching jars: the real Ivy, but out of a Maven repository in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyspark_kafka_direct.broker import jars
from pyspark_kafka_direct.broker._jars import cache_folder
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


def names(found: list[Path]) -> set[str]:
    return {jar.name for jar in found}


def test_jars_come_with_what_they_depend_on_or_alone(repository: Path) -> None:
    said: list[str] = []
    whole = names(jars(["org.example:above:1.0"], progress=said.append))
    assert {"org.example_above-1.0.jar", "org.example_below-1.0.jar"} <= whole
    # Spark never resolves Scala's own library, so it is added.
    assert [name for name in whole if name.startswith("scala-library-2.13")]
    assert said[0].startswith("Fetching org.example:above:1.0 into ")
    assert said[-1].startswith("Fetched 3 jars in ")
    alone = jars(["org.example:above:1.0"], transitive=False, progress=said.append)
    assert names(alone) == {"org.example_above-1.0.jar"}
    # The second time nothing is fetched, not even looked for.
    (repository / "org").rename(repository / "gone")
    assert jars(["org.example:above:1.0"], transitive=False, progress=pytest.fail) == alone


def test_what_cannot_be_fetched_is_named_and_leaves_nothing_behind(repository: Path) -> None:
    with pytest.raises(BrokerError, match=r"(?s)Could not fetch org\.example:none:1\.0 .*none;1\.0: not found"):
        jars(["org.example:none:1.0"], progress=lambda line: None)
    assert [path.suffix for path in cache_folder().iterdir()] == [".lock"]


def test_several_processes_at_once_fetch_once(repository: Path) -> None:
    program = (
        "from pyspark_kafka_direct.broker import jars; print(len(jars(['org.example:below:1.0'], transitive=False)))"
    )
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdout=pipe, stderr=pipe, text=True, env=dict(os.environ))
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120) for process in processes]
    assert [out for out, _ in said] == ["1\n", "1\n"]
    assert sum("Fetched 1 jars" in told for _, told in said) == 1


def test_without_pyspark_nothing_can_be_fetched_and_the_error_says_so(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", cast("Any", None))
    with pytest.raises(SparkVersionError, match=r"the Ivy that PySpark brings.*pyspark-kafka-direct\[spark\]"):
        jars(["org.example:above:1.0"], progress=lambda line: None)
