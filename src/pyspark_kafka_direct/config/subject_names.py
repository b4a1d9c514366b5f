"""The subjects of keys and values (Confluent's ``SubjectNameStrategy``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from pyspark_kafka_direct.config.registry_settings import SubjectNameStrategy, SubjectSettings

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


def is_short_subject(settings: SubjectSettings, message: str | None) -> bool:
    """Return whether a subject has the name of a Protobuf message that may lack its package."""
    is_name = settings.strategy != "topic" and settings.subject is None
    return is_name and message is not None and "." not in message


def short_subject_advice(side: Side, settings: SubjectSettings) -> str:
    """Return what to do if the registry does not have such a subject."""
    return (
        f"With {side}SubjectNameStrategy={settings.strategy}, {side}Message must be the full name of the message, such "
        f"as flights.Flight. Or set {side}Subject."
    )
