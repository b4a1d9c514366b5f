"""The subjects of keys and values (Confluent's ``SubjectNameStrategy``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from pyspark_kafka_direct.config.registry_settings import SubjectNameStrategy

Side: TypeAlias = Literal["key", "value"]

SIDES: Final[tuple[Side, ...]] = ("key", "value")


def subject_name(strategy: SubjectNameStrategy, topic: str, side: Side, record_name: str) -> str:
    """Return the subject of the keys or values of a topic; ``record_name`` is the full name of their schema."""
    match strategy:
        case "topic":
            return f"{topic}-{side}"
        case "record":
            return record_name
        case "topic-record":
            return f"{topic}-{record_name}"
