"""Which Java runs the broker."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from pyspark_kafka_direct.errors import ToolError

OLDEST_JAVA = 17  # Kafka 4 brokers and Spark 4.2 both ask for it


@functools.cache
def find_java() -> Path:
    """Return the ``java`` of ``JAVA_HOME`` or, without one, of ``PATH``.

    Raises:
        ToolError: There is none, or it is older than Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if found is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "JAVA_HOME is not set and PATH has no java"
        raise ToolError(f"No Java found for the embedded Kafka: {where}. Install Java {OLDEST_JAVA} or newer.")
    answer = subprocess.run([found, "-version"], capture_output=True, text=True, check=False, timeout=60)
    version = java_major_version(answer.stderr + answer.stdout)
    if version is None or version < OLDEST_JAVA:
        told = f"Java {version}" if version is not None else f"of an unknown version: {answer.stderr.strip()[:200]}"
        raise ToolError(
            f"The embedded Kafka needs Java {OLDEST_JAVA} or newer; {found} is {told}. Point JAVA_HOME at a newer one."
        )
    return Path(found)


def java_major_version(text: str) -> int | None:
    """Read the major version from what ``java -version`` prints, ``None`` where it says nothing known.

    >>> java_major_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> java_major_version('java version "1.8.0_401"')
    8
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None
