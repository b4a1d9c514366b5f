"""The subjects of keys and values (Confluent's ``SubjectNameStrategy``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.payload_settings import Side, SidePayload
    from pyspark_kafka_direct.options.registry_settings import SubjectNameStrategy


def subject_name(strategy: SubjectNameStrategy, topic: str, side: Side, record_name: str) -> str:
    """Return the subject of the keys or values of a topic; ``record_name`` is the full name of their schema."""
    match strategy:
        case "topic":
            return f"{topic}-{side}"
        case "record":
            return record_name
        case "topic-record":
            return f"{topic}-{record_name}"


def is_short_subject(side: SidePayload) -> bool:
    """Return whether the subject has the name of a Protobuf message that may lack its package."""
    return side.strategy != "topic" and side.subject is None and side.message is not None and "." not in side.message


def short_subject_advice(side: SidePayload) -> str:
    """Return what to do if the registry does not have such a subject."""
    return (
        f"With {side.side}SubjectNameStrategy={side.strategy}, {side.side}Message must be the full name of the "
        f"message, such as flights.Flight. Or set {side.side}Subject."
    )
