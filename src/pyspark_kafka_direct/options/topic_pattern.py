"""Topics by a Java regular expression (``subscribePattern``), matched in bounded time.

Anyone who may create a topic chooses a name that the user's expression is matched with, and some expressions take
exponential time for some names. So all names of one planning share a limit of CPU time.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import InvalidOffsetsError, PatternTimeoutError
from pyspark_kafka_direct.options.java_regex import translate_java_regex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import regex

_MAX_SECONDS = 5.0  # 10,000 names usually take 0.05
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


@dataclass(frozen=True)
class TopicPattern:
    """A Java regular expression that matches topic names as ``java.util.regex`` does."""

    text: str
    option: str = field(default="subscribePattern", compare=False)

    def __post_init__(self) -> None:
        _compiled(self.text, self.option)  # rejects a malformed pattern

    def matches(self, topics: Iterable[str]) -> list[str]:
        """Return the names that match as a whole (Java's ``matches``, as Kafka's own consumers do)."""
        return self._select(topics, _compiled(self.text, self.option).fullmatch)

    def occurs_in(self, topics: Iterable[str]) -> list[str]:
        """Return the names of which a part matches (Java's ``find``, as Spark's own source does)."""
        return self._select(topics, _compiled(self.text, self.option).search)

    def _select(self, topics: Iterable[str], match: Callable[..., object]) -> list[str]:
        deadline = time.thread_time() + _MAX_SECONDS
        selected = []
        for topic in topics:
            if not _LEGAL_NAME.fullmatch(topic):
                raise InvalidOffsetsError(f"{topic!r} is not a legal topic name, so a pattern cannot be applied to it")
            try:
                # Not concurrent: to get the GIL back after each name takes long if another thread computes.
                found = match(topic, concurrent=False, timeout=_remaining(deadline))
            except TimeoutError:
                shown = topic if len(topic) <= 80 else f"{topic[:80]}..."
                raise PatternTimeoutError(
                    f"{self.option}={self.text!r}: matching all topic names took more than {_MAX_SECONDS:g} seconds, "
                    f"up to the topic {shown!r}. Nested repetitions such as (a+)+ take exponential time. Write a "
                    "pattern that matches each name in only one way, name the topics instead, or delete this topic"
                ) from None
            if found:
                selected.append(topic)
        return selected


@lru_cache(maxsize=64)
def _compiled(text: str, option: str) -> regex.Pattern[str]:
    import regex  # only queries with a pattern need it

    return regex.compile(translate_java_regex(text, option), regex.VERSION1 | regex.ASCII)


def _remaining(deadline: float) -> float:
    remaining = deadline - time.thread_time()
    if remaining <= 0:
        raise TimeoutError
    return remaining
