"""``subscribePattern``: topics by a Java regular expression."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pyspark_kafka_direct.errors import OffsetPlanError
from pyspark_kafka_direct.planning.java_patterns import translate

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


@dataclass(frozen=True)
class TopicPattern:
    """A Java regular expression that matches topic names as ``java.util.regex`` does.

    Args:
        text: The Java regular expression.
        option: The option it comes from, for messages.

    Raises:
        OptionError: The pattern is malformed, or cannot be translated exactly.
    """

    text: str
    option: str = field(default="subscribePattern", compare=False)
    _whole: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _part: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        translated = translate(self.text, self.option)
        object.__setattr__(self, "_whole", re.compile(f"(?:{translated})\\Z", re.ASCII))
        object.__setattr__(self, "_part", re.compile(translated, re.ASCII))

    def matches(self, topic: str) -> bool:
        """Tell whether the whole name matches (Java's ``matches``, as Kafka's own consumers do).

        Raises:
            OffsetPlanError: The name has characters that no topic's name can have.
        """
        return self._whole.match(_legal(topic)) is not None

    def occurs_in(self, topic: str) -> bool:
        """Tell whether some part of the name matches (Java's ``find``, as Spark's own source does).

        Raises:
            OffsetPlanError: The name has characters that no topic's name can have.
        """
        return self._part.search(_legal(topic)) is not None


def _legal(topic: str) -> str:
    # The translation holds for legal names only.
    if not _LEGAL_NAME.fullmatch(topic):
        raise OffsetPlanError(f"{topic!r} is not a legal topic name, so a pattern cannot be applied to it")
    return topic
