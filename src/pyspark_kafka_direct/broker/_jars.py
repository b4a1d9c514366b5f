"""Jars from Maven Central, fetched once per user and kept.

The cache is ``$XDG_CACHE_HOME/pyspark-kafka-direct`` (``~/.cache`` where unset), one folder per set of jars. A folder
is made under another name and renamed when it is complete, so that it is there as a whole or not at all. There is a
lock beside it, so that several processes that start at once fetch it once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from pyspark_kafka_direct.broker._java import find_java
from pyspark_kafka_direct.errors import BrokerError, BrokerTimeoutError, SparkVersionError

Progress = Callable[[str], None]

FETCH_DEADLINE = 600.0  # seconds; 30 is usual for the broker's 90 jars
_LOG4J = "2.25.4"


def jars(coordinates: Sequence[str], *, transitive: bool = True, progress: Progress | None = None) -> list[Path]:
    """Return the jars of some Maven coordinates, fetched first where they are not in the cache.

    Args:
        coordinates: ``group:artifact:version`` each.
        transitive: With everything they depend on.
        progress: Is told, a line at a time, what is going on; standard error by default.

    Raises:
        BrokerError: They could not be fetched.
        BrokerTimeoutError: It took longer than ten minutes.
    """
    key = hashlib.sha256("\n".join([str(transitive), *coordinates]).encode()).hexdigest()[:16]
    return _cached(f"jars-{key}", ", ".join(coordinates), coordinates, transitive, progress or _to_stderr)


def kafka_jars(version: str, progress: Progress | None = None) -> list[Path]:
    """Return the jars that make up an Apache Kafka broker of that version (about 90 jars, 50 MB).

    Raises:
        BrokerError: They could not be fetched.
        BrokerTimeoutError: It took longer than ten minutes.
    """
    coordinates = [f"org.apache.kafka:kafka_2.13:{version}", f"org.apache.kafka:kafka-tools:{version}"]
    if not version.startswith("3."):
        # Kafka 4 names no logging back end among its dependencies, and without one the log is empty. Kafka 3 has one.
        coordinates.append(f"org.apache.logging.log4j:log4j-slf4j-impl:{_LOG4J}")
    name = f"Apache Kafka {version} (about 90 jars, 50 MB, only once)"
    return _cached(f"kafka-{version}", name, coordinates, True, progress or _to_stderr)


def cache_folder() -> Path:
    """Return the folder, made where missing, that holds all jars of this user.

    Raises:
        BrokerError: It cannot be made.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "pyspark-kafka-direct"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(folder, error) from None
    return folder


def _cached(folder: str, name: str, coordinates: Sequence[str], transitive: bool, progress: Progress) -> list[Path]:
    target = cache_folder() / folder
    if not target.is_dir():
        with _locked(target.with_suffix(target.suffix + ".lock"), name):
            if not target.is_dir():  # another process may have made it while this one waited
                _fetch(target, name, coordinates, transitive, progress)
    return sorted(target.glob("*.jar"))


def _fetch(target: Path, name: str, coordinates: Sequence[str], transitive: bool, progress: Progress) -> None:
    started = time.monotonic()
    java = find_java()
    if find_spec("pyspark") is None:
        raise SparkVersionError(
            f"{name} is fetched with the Ivy that PySpark brings, and this Python has no PySpark: "
            'pip install "pyspark-kafka-direct[spark]"'
        )
    progress(f"Fetching {name} into {target}")
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        (work / "home").mkdir()
        command = [sys.executable, "-P", str(Path(__file__).with_name("_ivy.py")), str(work)]
        command += ["transitive" if transitive else "alone", *coordinates]
        with (work / "log").open("wb") as log:
            child = subprocess.Popen(
                command,
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYSPARK_KAFKA_DIRECT_JAVA": str(java)},
            )
            try:
                _watch(child, work / "ivy", name, started, progress)
            finally:
                if child.poll() is None:
                    child.kill()
                child.wait()
        if child.returncode != 0 or not any((work / "ivy" / "jars").glob("*.jar")):
            raise BrokerError(_failure(name, (work / "log").read_text(errors="replace")))
        (work / "ivy" / "jars").rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    progress(f"Fetched {len(list(target.glob('*.jar')))} jars in {time.monotonic() - started:.0f} s")


def _watch(child: subprocess.Popen[bytes], ivy: Path, name: str, started: float, progress: Progress) -> None:
    told = started
    while child.poll() is None:
        now = time.monotonic()
        if now - started > FETCH_DEADLINE:
            raise BrokerTimeoutError(f"Fetching {name} took longer than {FETCH_DEADLINE:.0f} s: is the network slow?")
        if now - told >= 5:
            sizes = [jar.stat().st_size for jar in ivy.glob("cache/**/*.jar")]
            described = sum(1 for _ in ivy.glob("cache/**/ivy-*.xml"))
            progress(f"  {described} modules looked up, {len(sizes)} jars, {sum(sizes) / 1e6:.0f} MB so far")
            told = now
        time.sleep(0.1)


def _failure(name: str, log: str) -> str:
    telling = ("unresolved dependency", "not found", "FAILED", "Exception", "Error", "Caused by")
    lines = [line.strip() for line in log.splitlines() if any(word in line for word in telling)]
    shown = "\n  ".join((lines or log.splitlines())[-8:])
    return (
        f"Could not fetch {name} from Maven Central:\n  {shown}\n"
        "Check the network. Behind a proxy set JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'; "
        "with a mirror let PYSPARK_KAFKA_DIRECT_IVY_SETTINGS name an ivysettings.xml."
    )


@contextmanager
def _locked(path: Path, name: str) -> Iterator[None]:
    import fcntl

    deadline = time.monotonic() + FETCH_DEADLINE
    try:
        handle = path.open("w")
    except OSError as error:
        raise _not_writable(path.parent, error) from None
    with handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    told = f"Another process has been fetching {name} for more than {FETCH_DEADLINE:.0f} s ({path})."
                    raise BrokerTimeoutError(told) from None
                time.sleep(0.2)
        yield


def _not_writable(folder: Path, error: OSError) -> BrokerError:
    return BrokerError(
        f"Kafka's jars cannot be kept in {folder}: {error.strerror}. "
        "Let XDG_CACHE_HOME name a folder that can be written"
    )


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
