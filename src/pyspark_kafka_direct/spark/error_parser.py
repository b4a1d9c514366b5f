"""Find the error of this package behind an exception of Spark."""

from __future__ import annotations

import re

from pyspark_kafka_direct import errors
from pyspark_kafka_direct.errors import KafkaDirectError

# Spark adds text before the error in the same line, and lines after it. If there are several errors, the one that was
# raised last is at the end.
_ERROR_TEXT = re.compile(
    r"(?:^|: )pyspark_kafka_direct\.errors\.(\w+): "
    r"(.*?)(?=\n\s*\n|\n\tat |\n===|\n SQLSTATE: |\nJVM stacktrace|\Z)",
    re.M | re.S,
)
# At the end of the message. Notes ("Tried 5 times.") follow in separate lines.
_LOCATION = re.compile(
    r" \[(?=\w)(?:topic (?P<topic>[^\s,\]]+))?(?:(?:, |(?<=\[))partition (?P<partition>-?\d+))?"
    r"(?:(?:, |(?<=\[))offset (?P<offset>-?\d+))?(?:(?:, |(?<=\[))broker (?P<broker>\S+))?\]$",
    re.M,
)


def error_of(exception: BaseException | None) -> KafkaDirectError | None:
    """Return the error of this package that caused an exception of Spark.

    Tasks and planners run in other processes, and Spark reports their errors as text in its own exceptions. This
    function restores the error::

        match error_of(query.exception()):
            case DataLossError() as error:
                alert(error.topic, error.partition, error.offset)

    Args:
        exception: The exception, or ``query.exception()``.

    Returns:
        The error with its message and location, or ``None`` if the exception has another cause.
    """
    visited_ids: set[int] = set()  # because causes can form a cycle
    while exception is not None and id(exception) not in visited_ids:
        visited_ids.add(id(exception))
        if isinstance(exception, KafkaDirectError):
            return exception
        if (error := _parse_error(str(exception))) is not None:
            return error
        exception = exception.__cause__ or exception.__context__
    return None


def _parse_error(text: str) -> KafkaDirectError | None:
    for match in reversed(list(_ERROR_TEXT.finditer(text))):  # the error that was raised last comes first
        error_class = getattr(errors, match[1], None)
        if isinstance(error_class, type) and issubclass(error_class, KafkaDirectError):
            return _build_error(error_class, match[2].rstrip())
    return None


def _build_error(error_class: type[KafkaDirectError], text: str) -> KafkaDirectError:
    """Return the error with its message, location and notes, as ``KafkaDirectError`` formats them."""
    *_, location = None, *_LOCATION.finditer(text)  # the last match, or None
    if location is None:
        return error_class(text)
    partition, offset = location["partition"], location["offset"]
    error = error_class(
        text[: location.start()],
        topic=location["topic"],
        partition=None if partition is None else int(partition),
        offset=None if offset is None else int(offset),
        broker=location["broker"],
    )
    for note in text[location.end() :].splitlines()[1:]:  # nothing follows the location in its own line
        error.add_note(note)
    return error
