"""The error of this package behind an exception of Spark's, so that it can be told by its class."""

from __future__ import annotations

import re

from pyspark_kafka_direct import errors
from pyspark_kafka_direct.errors import KafkaDirectError

# Spark's own words come before it in the same line, and after it in lines of their own. Where others are told as well,
# Python writes the error that was raised last at the end.
_TOLD = re.compile(
    r"(?:^|: )pyspark_kafka_direct\.errors\.(\w+): "
    r"(.*?)(?=\n\s*\n|\n\tat |\n===|\n SQLSTATE: |\nJVM stacktrace|\Z)",
    re.M | re.S,
)
# It ends the sentence. Notes ("Tried 5 times.") come in lines of their own behind it.
_PLACE = re.compile(
    r" \[(?=\w)(?:topic (?P<topic>.+?))?(?:(?:, |(?<=\[))partition (?P<partition>-?\d+))?"
    r"(?:(?:, |(?<=\[))offset (?P<offset>-?\d+))?(?:(?:, |(?<=\[))broker (?P<broker>\S+))?\]$",
    re.M,
)


def error_of(exception: BaseException | None) -> KafkaDirectError | None:
    """Return the error of this package that an exception of Spark's tells of.

    Tasks and planners run in other processes, and Spark hands on what they raised as text within an exception of its
    own. Here it becomes an error again::

        match error_of(query.exception()):
            case DataLossError() as error:
                alert(error.topic, error.partition, error.offset)

    Args:
        exception: What was raised, or ``query.exception()``.

    Returns:
        The error, with its message and its place; ``None`` if the exception tells of none.
    """
    seen: set[int] = set()
    while exception is not None and id(exception) not in seen:
        seen.add(id(exception))
        if isinstance(exception, KafkaDirectError):
            return exception
        if (found := _parsed(str(exception))) is not None:
            return found
        exception = exception.__cause__ or exception.__context__
    return None


def _parsed(text: str) -> KafkaDirectError | None:
    for told in reversed(list(_TOLD.finditer(text))):
        kind = getattr(errors, told[1], None)
        if isinstance(kind, type) and issubclass(kind, KafkaDirectError):
            return _made(kind, told[2].rstrip())
    return None


def _made(kind: type[KafkaDirectError], text: str) -> KafkaDirectError:
    *_, found = None, *_PLACE.finditer(text)
    if found is None:
        return kind(text)
    partition, offset = found["partition"], found["offset"]
    error = kind(
        text[: found.start()],
        topic=found["topic"],
        partition=None if partition is None else int(partition),
        offset=None if offset is None else int(offset),
        broker=found["broker"],
    )
    for note in text[found.end() :].splitlines()[1:]:
        error.add_note(note)
    return error
