"""What the recorder (``java/recorder``) wrote: the result of each test, and the exceptions that it intercepted."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

LONGEST = 400
_FRAME = re.compile(r"^\s*[\w.$/]+\([\w.]+:\d+\)$", re.MULTILINE)
_OURS = re.compile(r"\bpyspark_kafka_direct\.errors\.(\w+: .*)")


@dataclass(frozen=True)
class Recorded:
    """The result of a test with one source."""

    outcome: str
    """``passed``, ``failed``, ``canceled`` or ``ignored``."""
    seconds: float
    error: str
    """Why the test failed, or empty."""
    intercepted: tuple[str, ...]
    """The exceptions that the test intercepted, expected or not, in order; equal ones in a row are one."""


def read_recording(path: Path) -> dict[str, Recorded]:
    """Return the results of the tests by their names."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    intercepted = [(line["time"], text_of(line["intercepted"])) for line in lines if "intercepted" in line]
    return {line["test"]: _recorded(line, intercepted) for line in lines if "test" in line}


def _recorded(line: dict[str, Any], intercepted: list[tuple[int, str]]) -> Recorded:
    ended = line["time"]
    during = [text for time, text in intercepted if ended - line["milliseconds"] <= time <= ended]
    distinct = [text for place, text in enumerate(during) if place == 0 or during[place - 1] != text]
    error = text_of(line["error"][:1]) if line["error"] else ""
    return Recorded(line["outcome"], round(line["milliseconds"] / 1000, 1), error, tuple(distinct))


def text_of(chain: list[list[str]]) -> str:
    """Return the class of an exception, and the message that explains it, without what each run changes."""
    outer = chain[0][0]
    if ours := [found[1] for _, message in chain for found in _OURS.finditer(message)]:
        return f"{_short(outer)}: {_stable(ours[-1])}"  # Spark's exception contains the stack trace of Python
    of_spark = [each for each in chain if each[0].startswith("org.apache.spark.")]
    name, message = (of_spark or chain)[-1]
    return f"{_short(outer)}: " + ("" if name == outer else f"{_short(name)}: ") + _stable(message)


def _short(name: str) -> str:
    return re.split(r"[.$]", name)[-1]


def _stable(message: str) -> str:
    text = re.sub(r"\s+", " ", _FRAME.sub("", message)).strip()
    text = re.sub(r"(127\.0\.0\.1|localhost):\d+", r"\1:9092", text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "...", text)
    text = re.sub(r"(?<!\w)/\S*/", ".../", text)
    return text if len(text) <= LONGEST else text[:LONGEST] + " ..."
