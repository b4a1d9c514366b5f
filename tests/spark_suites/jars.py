"""Spark's published tests and what they need: jars of Maven, jars of PySpark, and the compiled shim.

PySpark's own resolver (``--packages``) cannot name jars with a classifier. All test jars have one, so Maven is needed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pyspark

HERE = Path(__file__).parent
PYSPARK = Path(pyspark.__file__).parent
BUILD = HERE.parents[1] / "build" / "spark-suites"

# PySpark contains them under another name, or they are for logging and native TLS only.
_NOT_NEEDED = {"reload4j", "slf4j-reload4j", "netty-tcnative-boringssl-static", "listenablefuture"}
_CONNECTOR = "spark-sql-kafka-0-10_2.13"


@dataclass(frozen=True)
class Prepared:
    """A folder with everything that the suites of one version of Spark need."""

    folder: Path
    version: str
    """The version of the jars on Maven."""

    @property
    def tests(self) -> Path:
        """The jar with the suites."""
        return self.folder / "lib" / f"{_CONNECTOR}-{self.version}-tests.jar"

    @property
    def connector(self) -> Path:
        return self.folder / "lib" / f"{_CONNECTOR}-{self.version}.jar"

    @property
    def unregistered(self) -> Path:
        """The connector without its registration for the name ``kafka``; the tests use some of its other classes."""
        return self.folder / "unregistered" / self.connector.name

    def classes(self, part: str) -> Path:
        """Return the folder of the compiled classes of a folder of ``java``; other sources have another folder."""
        files = [file for file in sorted((HERE / "java" / part).rglob("*")) if file.is_file()]
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
        return self.folder / f"{part}-{digest[:12]}"

    def class_path(self, *, ours: bool) -> str:
        """Return the class path, with the JVM connector or with this package as ``kafka``."""
        own = [self.folder / "resources", self.classes("recorder"), *([self.classes("shim")] if ours else [])]
        jars = [self.unregistered if ours and jar == self.connector else jar for jar in self._jars_that_pyspark_lacks()]
        return os.pathsep.join([*map(str, [*own, *jars]), f"{PYSPARK / 'jars'}/*"])

    def _jars_that_pyspark_lacks(self) -> list[Path]:
        present = {_name_of(jar) for jar in (PYSPARK / "jars").glob("*.jar")} | _NOT_NEEDED
        # Kafka's broker needs the old metrics-core 2, beside PySpark's version 4.
        return [
            jar
            for jar in sorted((self.folder / "lib").glob("*.jar"))
            if jar.name.startswith("metrics-core-2.") or _name_of(jar) not in present
        ]


def prepare(version: str) -> Prepared:
    """Download and compile what is missing in the folder of this version."""
    prepared = Prepared(BUILD / pyspark.__version__, version)
    prepared.folder.mkdir(parents=True, exist_ok=True)
    if not prepared.tests.exists():
        pom = (HERE / "pom.xml").read_text("utf-8").replace("@SPARK@", version)
        (prepared.folder / "pom.xml").write_text(pom, "utf-8")
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=lib"]
        subprocess.run(command, cwd=prepared.folder, check=True)
    if not prepared.unregistered.exists():
        _copy_without_registration(prepared.connector, prepared.unregistered)
    if not (prepared.folder / "resources").exists():
        _extract_resources(prepared.tests, prepared.folder / "resources")
    _compile(prepared, "recorder", ours=False)
    _compile(prepared, "shim", ours=True)
    return prepared


def _name_of(jar: Path) -> str:
    """Return a jar's name without its version, but with the classifier ``tests``."""
    return re.sub(r"-\d[^-]*(-jre|-tests)?\.jar$", lambda found: "-tests" if found[1] == "-tests" else "", jar.name)


def _copy_without_registration(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            if not entry.filename.endswith("DataSourceRegister"):
                new.writestr(entry, old.read(entry))


def _extract_resources(jar: Path, folder: Path) -> None:
    """Extract the checkpoints and other files that tests open as files."""
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if not name.endswith((".class", "/")) and not name.startswith("META-INF"):
                archive.extract(name, folder)


def _compile(prepared: Prepared, part: str, *, ours: bool) -> None:
    """Compile a folder of ``java``, unless it is compiled already; runs at the same time do not disturb one another."""
    classes = prepared.classes(part)
    if classes.exists():
        return
    sources = HERE / "java" / part
    with tempfile.TemporaryDirectory(dir=prepared.folder) as temporary:
        target = Path(temporary) / "classes"
        shutil.copytree(sources, target, ignore=shutil.ignore_patterns("*.java"))
        files = [str(file) for file in sorted(sources.rglob("*.java"))]
        subprocess.run(
            ["javac", "-nowarn", "-cp", prepared.class_path(ours=ours), "-d", str(target), *files], check=True
        )
        if not classes.exists():
            target.rename(classes)
