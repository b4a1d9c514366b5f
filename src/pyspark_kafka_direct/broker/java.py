"""Finds Java, and runs its tools."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import ExternalToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_JAVA_VERSION = 17  # Kafka 4 brokers and Spark 4.2 require it


@functools.cache
def find_java() -> Path:
    """Return the ``java`` of ``JAVA_HOME`` or, if unset, of ``PATH``."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)  # None: PATH
    if java is None:
        reason = f"JAVA_HOME is {home}, which has no bin/java" if home else "JAVA_HOME is not set and PATH has no java"
        raise ExternalToolError(
            f"No Java found for the embedded Kafka: {reason}. Install Java {MIN_JAVA_VERSION} or newer."
        )
    result = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    version = java_major_version(result.stderr + result.stdout)
    if version is None or version < MIN_JAVA_VERSION:
        actual_version = (
            f"Java {version}" if version is not None else f"of an unknown version: {result.stderr.strip()[:200]}"
        )
        raise ExternalToolError(
            f"The embedded Kafka needs Java {MIN_JAVA_VERSION} or newer; {java} is {actual_version}. Set JAVA_HOME to "
            "a newer one."
        )
    return Path(java)


def java_major_version(version_output: str) -> int | None:
    """Return the major version in the output of ``java -version``, or ``None``.

    >>> java_major_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> java_major_version('java version "1.8.0_401"')
    8
    """
    match = re.search(r'version "(?:1\.)?(\d+)', version_output)
    return int(match[1]) if match else None


def run_tool(command: Sequence[str], seconds: float) -> tuple[int, str]:
    """Run a program, which is killed if it takes longer than ``seconds``; return its exit code and its output."""
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=seconds,
        )
    except OSError as error:
        raise ExternalToolError(
            f"{command[0]} cannot be run: {error.strerror}. Set JAVA_HOME to a complete Java installation."
        ) from error
    except subprocess.TimeoutExpired:
        raise ExternalToolError(f"{command[0]} took longer than {seconds:g} s. Is this machine overloaded?") from None
    return result.returncode, result.stdout
