"""What the numbers were taken on: the machine and the versions, without names that identify it."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = ("pyspark-kafka-direct", "pyspark", "pyarrow", "confluent-kafka", "kafka-python")
_ROOT = Path(__file__).resolve().parent.parent


def describe(*, java: str, kafka: str, jars: tuple[str, ...]) -> dict[str, Any]:
    """Return the machine and the versions as JSON has them.

    Args:
        java: Version of the Java that ran Spark.
        kafka: Version of the broker.
        jars: Maven coordinates of the JVM connector.
    """
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "versions": {
            "python": platform.python_version(),
            "java": java,
            "kafka broker": kafka,
            "librdkafka": _librdkafka(),
            "JVM connector": list(jars),
            **{name: _version(name) for name in _PACKAGES},
        },
        "decoder": _decoder(),
        "commit": _commit(),
    }


def cpu_model() -> str:
    """Return the processor's name, and the platform's word for it where there is no ``/proc``."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _librdkafka() -> str:
    import confluent_kafka

    return str(confluent_kafka.libversion()[0])


def _decoder() -> str:
    try:
        from pyspark_kafka_direct.records.native_kernel import native
    except ImportError as error:
        return f"none: {error}"
    return "native, built for development" if native.DEBUG_ASSERTIONS else "native"


def _commit() -> str:
    """Return the commit measured, and whether anything in it was changed."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "rust")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{head} with changes" if changed else head


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.strip()
