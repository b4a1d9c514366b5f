"""Kafka Connect's own ``KafkaBasedLog`` as a peer: a Java process that loads and writes topics on command.

It runs for all rounds, so that its code is compiled when it is measured. It has the default settings of Java's clients.
"""

from __future__ import annotations

import atexit
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import BenchError
from bench.session import KAFKA_VERSION

if TYPE_CHECKING:
    from bench.topics import Topic

JAVA_LOAD = "KafkaBasedLog in Java, into a map"
JAVA_SEND = "KafkaBasedLog in Java, send with a callback"

_PROGRAM = Path(__file__).parent / "java" / "SharedLog.java"
_CONNECT = tuple(f"org.apache.kafka:connect-{part}:{KAFKA_VERSION}" for part in ("runtime", "api"))
_STOP_SECONDS = 30.0


def java_load(bootstrap_servers: str, topic: Topic) -> int:
    """Load a topic; return the number of its keys."""
    return _order("load", bootstrap_servers, topic.name)


def java_send(bootstrap_servers: str, topic: Topic) -> int:
    """Write a topic; return the number of acknowledged records."""
    return _order("write", bootstrap_servers, topic.name, topic.records, topic.value_bytes)


def start_java() -> None:
    """Start the process, so that no run pays for it.

    Raises:
        BenchError: It does not start.
    """
    _process()


def _order(*words: object) -> int:
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(" ".join(map(str, words)) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline().strip()
    if not answer.isdigit():
        raise BenchError(f"KafkaBasedLog in Java, {words[0]}: {answer or 'the process has ended'}")
    return int(answer)


@cache
def _process() -> subprocess.Popen[str]:
    from pyspark_kafka_direct.broker import jars
    from pyspark_kafka_direct.broker.java import find_java
    from pyspark_kafka_direct.broker.maven import kafka_jars

    class_path = [*kafka_jars(KAFKA_VERSION), *jars(_CONNECT, transitive=False)]
    folders = dict.fromkeys(f"{jar.parent}/*" for jar in class_path)
    process = subprocess.Popen(
        [str(find_java()), "-Xmx1g", "-cp", ":".join(folders), str(_PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    )
    atexit.register(_stop, process)
    return process


def _stop(process: subprocess.Popen[str]) -> None:
    try:
        process.communicate(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
