"""The messages between the driver of a continuous query and its tasks, and how both prove who they are.

A message is one line of JSON with its ``type`` and its fields, such as ``{"type":"mark","epoch":7,"stop":false}``. Both
sides are of one version of this package, so a field that is missing or unknown is an error, not something to pass over.

How a task comes in:

    driver   challenge   a nonce, and the version of the channel
    task     hello       who it is, a nonce of its own, and an HMAC of all that and of both nonces
    driver   welcome     an HMAC of the same, under another label; or refused, with the reason

The key is the secret of the run, which travels in Spark's task and never here. Each side has chosen a nonce, so nothing
that was recorded earlier serves again, and the labels differ, so neither side's proof can be handed back to it. What
follows is neither encrypted nor signed: offsets and names of topics can be read, and changed, by who controls the
network between driver and executors.

Then ``start``, and for each epoch ``mark`` and ``report``. A task that fails says so by ``failure``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import traceback
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from pyspark_kafka_direct.errors import KafkaDirectError, is_ours
from pyspark_kafka_direct.offsets import TopicPartition, partition_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.settings.secret import Secret

VERSION: Final = 1
"""Of the channel. The first message tells it, and keeps its form in all versions."""

MOST_TEXT: Final = 16_384
"""Most characters of what a failure tells."""

_LARGEST = (1 << 63) - 1

Offsets: TypeAlias = "Mapping[TopicPartition, int]"
TopicIds: TypeAlias = "Mapping[TopicPartition, UUID]"


@dataclass(frozen=True, slots=True)
class Challenge:
    """What the driver says first.

    Attributes:
        nonce: A text that was never used before.
        version: Of the channel.
    """

    nonce: str
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Hello:
    """What a task says first.

    Attributes:
        run: The id of the run that the task belongs to.
        task: Its number.
        attempt: Spark's number of the attempt; above 0 where Spark has tried again.
        host: Where it runs.
        pid: Its process there.
        nonce: A text that was never used before.
        proof: What ``task_proof`` gives for all this.
    """

    run: str
    task: int
    attempt: int
    host: str
    pid: int
    nonce: str
    proof: str = ""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The driver believes the task.

    Attributes:
        proof: What ``driver_proof`` gives for the hello.
    """

    proof: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The driver does not take the task.

    Attributes:
        reason: Why.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Start:
    """All tasks are there: read.

    Attributes:
        epoch: The number of the first epoch.
        offsets: The first offset to read of each of the task's partitions.
    """

    epoch: int
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of an epoch: flush, and report.

    Attributes:
        epoch: Its number.
        stop: Whether the task is to end then.
    """

    epoch: int
    stop: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The task has flushed: all that it has read is where its sink brings it.

    Attributes:
        epoch: The number of the mark.
        offsets: The next offset to read of each of the task's partitions.
        rows: How many rows it has written since the last report.
        bytes: How many bytes of records it has read since then.
        flush_ms: How long the flush took, in milliseconds.
        rows_read: How many rows it has read since the last report.
        sought: Where it went on since then in partitions whose logs no longer hold what was read before. Only there may
            an offset be lower than the last one.
        anew: The ids of the topics that it has found created anew since then, by the partitions in which it reads
            these now.
    """

    epoch: int
    offsets: Offsets
    rows: int
    bytes: int
    flush_ms: float
    rows_read: int = 0
    sought: Offsets = field(default_factory=dict)
    anew: TopicIds = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """The task has failed, and ends.

    Attributes:
        cause: Name of the error's class; with that of its module unless it is one of Python's or of this package.
        message: What the error says.
    """

    cause: str
    message: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the message that tells an error; that of a user's code tells where it was raised, too."""
        text = _said(error)
        if error.__traceback__ is not None and not is_ours(error):
            where = "".join(traceback.format_exception(error))
            text = f"{text[: MOST_TEXT // 2]}\n\n{where[2 - MOST_TEXT // 2 :]}"
        return cls(_class_of(error), text[:MOST_TEXT])


Message: TypeAlias = Challenge | Hello | Welcome | Refused | Start | Mark | Report | Failure


def to_line(message: Message) -> bytes:
    """Write a message as a line, with its line feed."""
    values: dict[str, Any] = {"type": type(message).__name__.lower()}
    for each in fields(message):
        value = getattr(message, each.name)
        values[each.name] = _WRITERS[str(each.type)](value) if str(each.type) in _WRITERS else value
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def from_line(line: bytes) -> Message:
    """Read what ``to_line`` wrote; the line feed may be missing.

    Raises:
        ValueError: It is something else; says what is wrong.
    """
    try:
        values = json.loads(line.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    kind = values.pop("type", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"unknown type of message {str(kind)[:50]!r}")
    wanted = {each.name: _READERS[str(each.type)] for each in fields(_KINDS[kind])}
    if values.keys() != wanted.keys():
        differing = ", ".join(sorted(str(name)[:50] for name in values.keys() ^ wanted.keys())[:5])
        raise ValueError(f"{kind}: missing or unknown fields: {differing}")
    read: dict[str, Any] = {}
    for name, reader in wanted.items():
        try:
            read[name] = reader(values[name])
        except ValueError as error:
            raise ValueError(f"{kind}, {name}: {error}") from None
    return _KINDS[kind](**read)


def task_proof(secret: Secret, challenge: str, hello: Hello) -> str:
    """Return what shows that a task knows the secret.

    Args:
        secret: Of the run.
        challenge: The driver's nonce.
        hello: What the task says; its ``proof`` does not matter.
    """
    return _proof(secret, "task", challenge, hello)


def driver_proof(secret: Secret, challenge: str, hello: Hello) -> str:
    """Return what shows the task of ``hello`` that the driver knows the secret."""
    return _proof(secret, "driver", challenge, hello)


def same_proof(one: str, other: str) -> bool:
    """Tell whether two proofs are equal, in a time that tells nothing about where they differ."""
    return hmac.compare_digest(one.encode(errors="replace"), other.encode(errors="replace"))


def _proof(secret: Secret, label: str, challenge: str, hello: Hello) -> str:
    who = (hello.run, hello.task, hello.attempt, hello.host, hello.pid, hello.nonce)
    text = json.dumps(["pyspark-kafka-direct", VERSION, label, challenge, *who])
    return hmac.new(secret.reveal().encode(), text.encode(), hashlib.sha256).hexdigest()


def _class_of(error: BaseException) -> str:
    """Name an error's class. One of a user's code is never taken for one of ours: some of these end a query."""
    kind = type(error)
    if kind.__module__ in ("builtins", KafkaDirectError.__module__):
        return kind.__name__
    return f"{kind.__module__}.{kind.__qualname__}"


def _said(error: BaseException) -> str:
    try:
        return str(error) or repr(error)
    except Exception:  # what a user's code raises may not even tell what it is
        return "its message cannot be told"


def _nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def _nested_ids(ids: TopicIds) -> dict[str, dict[str, str]]:
    topics: dict[str, dict[str, str]] = {}
    for (topic, partition), topic_id in ids.items():
        topics.setdefault(topic, {})[str(partition)] = topic_id.hex
    return topics


def _topic_ids(value: object) -> TopicIds:
    if not isinstance(value, dict) or not all(isinstance(ids, dict) for ids in value.values()):
        raise ValueError("not ids by topic and partition")
    partitions = _offsets({topic: dict.fromkeys(ids, 0) for topic, ids in value.items()})
    by_number = {topic: {int(key): topic_id for key, topic_id in ids.items()} for topic, ids in value.items()}
    return {each: UUID(hex=_text(by_number[each.topic][each.partition])) for each in partitions}


def _offsets(value: object) -> Offsets:
    if not isinstance(value, dict):
        raise ValueError("not offsets by topic and partition")
    found: dict[TopicPartition, int] = {}
    for topic, numbers in value.items():
        if not topic:
            raise ValueError("a topic's name is empty")
        for partition, offset in partition_numbers(topic, numbers).items():
            found[TopicPartition(topic, partition)] = _count(offset)
    return found


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
        raise ValueError("not a whole number from 0 to 2^63-1")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _duration(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
        raise ValueError("not a duration")
    return float(value)


_KINDS: Final[dict[str, type[Message]]] = {
    kind.__name__.lower(): kind for kind in (Challenge, Hello, Welcome, Refused, Start, Mark, Report, Failure)
}

_READERS: Final[dict[str, Callable[[object], Any]]] = {
    "str": _text,
    "int": _count,
    "bool": _switch,
    "float": _duration,
    "Offsets": _offsets,
    "TopicIds": _topic_ids,
}
"""By the type that a field is written with."""

_WRITERS: Final[dict[str, Callable[[Any], Any]]] = {"Offsets": _nested, "TopicIds": _nested_ids}
"""Likewise, of what is not JSON as it is."""
