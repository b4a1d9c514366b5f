"""Jars from Maven Central, downloaded once per user.

The cache is ``$XDG_CACHE_HOME/pyspark-kafka-direct`` (``~/.cache`` if unset), one folder per set of jars. A folder gets
its name when it is complete, so it is never partial. A lock file ensures that only one process downloads it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from pyspark_kafka_direct.broker.jar_checksums import check_version, verify_jars
from pyspark_kafka_direct.broker.java import find_java
from pyspark_kafka_direct.errors import BrokerError, BrokerTimeoutError, SparkVersionError

Progress = Callable[[str], None]

DOWNLOAD_TIMEOUT_S = 600.0  # the broker's 90 jars usually take 30 s
REPORT_INTERVAL_S = 5.0
WAITING = "waiting for the first response"  # the line of progress then begins with this
_LOG4J = "2.25.4"


def jars(coordinates: Sequence[str], *, transitive: bool = True, progress: Progress | None = None) -> list[Path]:
    """Return the paths of the jars that Maven coordinates name; jars that are not in the cache are downloaded first.

    Args:
        coordinates: Maven coordinates, such as ``org.slf4j:slf4j-api:2.0.17``.
        transitive: Whether to include the jars of all dependencies.
        progress: Called with lines about the progress; prints to standard error by default.

    Raises:
        BrokerError: The download failed.
        BrokerTimeoutError: The download took longer than ten minutes.
    """
    key = hashlib.sha256("\n".join([str(transitive), *coordinates]).encode()).hexdigest()[:16]
    return _cached(
        f"jars-{key}", ", ".join(coordinates), coordinates, transitive=transitive, progress=progress or _to_stderr
    )


def kafka_jars(version: str, progress: Progress | None = None, *, verify: bool = True) -> list[Path]:
    """Return the jars of an Apache Kafka broker of that version (about 90 jars, 50 MB), with verified checksums."""
    coordinates = [f"org.apache.kafka:kafka_2.13:{version}", f"org.apache.kafka:kafka-tools:{version}"]
    if not version.startswith("3."):
        # Without a logging back end the log is empty. Kafka 3 depends on one, and Kafka 4 does not.
        coordinates.append(f"org.apache.logging.log4j:log4j-slf4j-impl:{_LOG4J}")
    name = f"Apache Kafka {version} (about 90 jars, 50 MB, only once)"
    cached = partial(_cached, f"kafka-{version}", name, coordinates, transitive=True, progress=progress or _to_stderr)
    if not verify:
        return cached()
    check_version(version)
    verify_version = partial(verify_jars, version=version)
    found = cached(verify=verify_version)
    verify_version(found[0].parent)  # each time, because the cache may have changed; it takes 0.1 s
    return found


def cache_folder() -> Path:
    """Return the folder with all jars of this user; create it if missing."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "pyspark-kafka-direct"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(folder, error) from None
    return folder


def _cached(
    folder: str,
    name: str,
    coordinates: Sequence[str],
    *,
    transitive: bool,
    progress: Progress,
    verify: Callable[[Path], None] = lambda folder: None,
) -> list[Path]:
    """Return the jars in a folder of the cache, which is downloaded if it is missing; ``name`` is for messages."""
    target = cache_folder() / folder
    if not target.is_dir():
        with _locked(target.with_suffix(target.suffix + ".lock"), name):
            if not target.is_dir():  # another process may have created the folder in the meantime
                _download(target, name, coordinates, transitive=transitive, progress=progress, verify=verify)
    return sorted(target.glob("*.jar"))


def _download(
    target: Path,
    name: str,
    coordinates: Sequence[str],
    *,
    transitive: bool,
    progress: Progress,
    verify: Callable[[Path], None],
) -> None:
    """Download jars into a temporary folder, and rename it to ``target`` when it is complete and verified."""
    started = time.monotonic()
    java = find_java()
    if find_spec("pyspark") is None:
        raise SparkVersionError(
            f"{name} is downloaded with the Ivy in PySpark, and this Python has no PySpark: "
            'pip install "pyspark-kafka-direct[spark]"'
        )
    progress(f"Downloading {name} into {target}")
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        arguments = ["transitive" if transitive else "alone", *coordinates]
        exit_code = _run_ivy(
            work, java, arguments, wait=lambda child: _report_progress(child, work / "ivy", name, started, progress)
        )
        downloaded = work / "ivy" / "jars"
        if exit_code != 0 or not any(downloaded.glob("*.jar")):
            raise BrokerError(_failure_message(name, (work / "log").read_text(errors="replace")))
        verify(downloaded)
        downloaded.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    progress(f"Downloaded {len(list(target.glob('*.jar')))} jars in {time.monotonic() - started:.0f} s")


def _run_ivy(
    work: Path, java: Path, arguments: Sequence[str], *, wait: Callable[[subprocess.Popen[bytes]], None]
) -> int:
    """Run ``ivy.py``, which downloads into ``work/ivy``; return its exit code. It is killed if ``wait`` fails."""
    (work / "home").mkdir()
    with (work / "log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("ivy.py")), str(work), *arguments],
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYSPARK_KAFKA_DIRECT_JAVA": str(java)},
        )
        try:
            wait(child)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
    return child.returncode


def _report_progress(child: subprocess.Popen[bytes], ivy: Path, name: str, started: float, progress: Progress) -> None:
    """Report the progress of a download until it ends; raise an error if it takes too long."""
    reported_at = started
    while child.poll() is None:
        now = time.monotonic()
        if now - started > DOWNLOAD_TIMEOUT_S:
            raise BrokerTimeoutError(
                f"Downloading {name} took longer than {DOWNLOAD_TIMEOUT_S:.0f} s: is the network slow?"
            )
        if now - reported_at >= REPORT_INTERVAL_S:
            sizes = [jar.stat().st_size for jar in ivy.glob("cache/**/*.jar")]
            resolved = sum(1 for _ in ivy.glob("cache/**/ivy-*.xml"))
            progress(f"  {_describe_progress(resolved, sizes, now - started)}")
            reported_at = now
        time.sleep(0.1)


def _describe_progress(resolved: int, sizes: Sequence[int], seconds: float) -> str:
    if sizes:
        return f"{len(sizes)} jars, {sum(sizes) / 1e6:.0f} MB so far"
    if resolved:
        return f"the dependencies of {resolved} modules resolved so far"
    return f"{WAITING} for {seconds:.0f} s"


def _failure_message(name: str, log: str) -> str:
    if missing := _missing_modules(log):
        return f"The repositories of Maven have no {' and no '.join(missing)}: choose a version that was published."
    markers = ("unresolved dependency", "not found", "FAILED", "Exception", "Error", "Caused by")
    lines = [line.strip() for line in log.splitlines() if any(word in line for word in markers)]
    shown = "\n  ".join((lines or log.splitlines())[-8:])
    return (
        f"Could not download {name} from Maven Central:\n  {shown}\n"
        "Check the network. Behind a proxy set JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'; "
        "for a mirror set PYSPARK_KAFKA_DIRECT_IVY_SETTINGS to the path of an ivysettings.xml."
    )


def _missing_modules(log: str) -> list[str]:
    """Return the modules that a repository does not have; empty if no repository responded."""
    unreachable = set(re.findall(r"(?:Host |Server access error at url \w+://)([^/\s]+)", log))
    # After the caches of this machine, Ivy lists the repositories that it has tried, each with the URLs of the files.
    tried = re.findall(r"==== (?!local-)\S+: tried\s+\w+://?([^/\s]*)/", log)
    if set(tried) <= unreachable:
        return []
    return [":".join(module) for module in re.findall(r":: ([^#\s]+)#([^;\s]+);(\S+): not found", log)]


@contextmanager
def _locked(path: Path, name: str) -> Iterator[None]:
    """Hold a lock file; while another process holds it, wait for at most the timeout of a download."""
    import fcntl

    deadline = time.monotonic() + DOWNLOAD_TIMEOUT_S
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
                    raise BrokerTimeoutError(
                        f"Another process has been downloading {name} for more than {DOWNLOAD_TIMEOUT_S:.0f} s "
                        f"({path})."
                    ) from None
                time.sleep(0.2)
        yield


def _not_writable(folder: Path, error: OSError) -> BrokerError:
    return BrokerError(
        f"Kafka's jars cannot be stored in {folder}: {error.strerror}. Set XDG_CACHE_HOME to a writable folder"
    )


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
