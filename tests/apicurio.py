"""A real schema registry of another project: Apicurio, in another process. It needs Java 21 or newer."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
import zipfile
from pathlib import Path
from typing import Final, Self

import pyspark
import pytest
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.broker.java import java_major_version
from pyspark_kafka_direct.broker.maven import cache_folder

VERSION: Final = "3.3.3"
JAVA_VARIABLE: Final = "PYSPARK_KAFKA_DIRECT_TEST_JAVA_HOME"  # of a Java that is used for the registry only

_MIN_JAVA: Final = 21
# In Maven Central, 159 MB. Ivy cannot resolve it, because it is not a jar.
_ARCHIVE: Final = f"io/apicurio/apicurio-registry-app/{VERSION}/apicurio-registry-app-{VERSION}-all.tar.gz"
_SHA256: Final = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
_STARTED: Final = re.compile(r"Listening on: (http://127\.0\.0\.1:(\d+))")
_DEADLINE: Final = 600.0  # seconds for a start on a busy machine; it takes 3 to 5


class Apicurio:
    """A registry that can be stopped and started again with its schemas, at the same address.

    Args:
        java: The program.
        app: The folder of the registry.
        folder: Where its database and its log are.
    """

    def __init__(self, java: Path, app: Path, folder: Path) -> None:
        self._java, self._app, self._folder = java, app, folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0  # a free one

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Its implementation of Confluent's API."""
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def start(self) -> None:
        """Start it; starting it twice does nothing."""
        if self._process is not None:
            return
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self._port,
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": 0,
            "apicurio.datasource.url": f"jdbc:h2:file:{self._folder / 'registry'}",
        }
        options = [f"-D{name}={value}" for name, value in settings.items()]
        # A registry that runs for a minute takes half of the CPU time with one compiler and few threads.
        command = [str(self._java), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:ActiveProcessorCount=1", *options]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "-jar", "quarkus-run.jar"], cwd=self._app, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            wait_until(self._is_started, "the start of the registry", _DEADLINE)
        except AssertionError as error:
            self.stop()
            raise AssertionError(f"{error}\n{self.log()[-5000:]}") from None

    def stop(self) -> None:
        """Stop it as a service manager does; stopping it twice does nothing."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_DEADLINE)
            self._process = None

    def log(self) -> str:
        return (self._folder / "log").read_text("utf-8", "replace")

    def _is_started(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the registry has exited with {self._process.poll()}"
        found = _STARTED.search(self.log())
        if found is not None:
            self._port = int(found[2])
        return found is not None


def find_java() -> Path:
    """Return a Java that is new enough; skips the test if there is none."""
    homes = [os.environ.get(JAVA_VARIABLE)]
    homes += [home for name, home in sorted(os.environ.items()) if name.startswith("JAVA_HOME")]
    programs = [Path(home) / "bin" / "java" for home in homes if home]
    programs.append(Path(shutil.which("java") or "java"))
    programs += sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
    for java in programs:
        if java.is_file():
            output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=300)
            if (java_major_version(output.stderr + output.stdout) or 0) >= _MIN_JAVA:
                return java
    pytest.skip(f"Apicurio needs Java {_MIN_JAVA} or newer: install it, or set {JAVA_VARIABLE}")


def app_folder() -> Path:
    """Return the folder of the registry, which is downloaded once; skips the test if that is not possible."""
    target = cache_folder() / f"apicurio-registry-{VERSION}"
    if not target.is_dir():
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as work:
            archive, unpacked = Path(work) / "archive", Path(work) / "app"
            url = _maven_central() + _ARCHIVE
            try:
                with urllib.request.urlopen(url, timeout=60) as response, archive.open("wb") as file:
                    shutil.copyfileobj(response, file)
            except OSError as error:
                pytest.skip(f"Apicurio cannot be downloaded: {error}")
            with archive.open("rb") as file:
                assert hashlib.file_digest(file, "sha256").hexdigest() == _SHA256, f"{_ARCHIVE} is not the file it was"
            with tarfile.open(archive) as tar:
                tar.extractall(unpacked, filter="data")
            if not target.is_dir():  # another process may have unpacked it in the meantime
                unpacked.rename(target)
    return target


def _maven_central() -> str:
    """Return the address that Ivy, which PySpark includes, has of Maven Central."""
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    with zipfile.ZipFile(ivy) as jar:
        found = re.search(rb"https://[\w.]+/maven2/", jar.read("org/apache/ivy/plugins/resolver/IBiblioResolver.class"))
    assert found is not None
    return found[0].decode()
