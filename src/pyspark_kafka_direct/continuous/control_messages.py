"""The messages between the driver of a continuous query and its tasks.

A message is one line of JSON with its type and fields, such as ``{"type":"EpochRequest","epoch":7,"stop":false}``.
Both sides run the same version of this package, so a missing or unknown field is an error.

After the handshake (see ``message_authentication``), the driver sends ``StartTask``, and one ``EpochRequest`` for each
epoch, and the task sends an ``EpochReport``. A task that fails sends ``TaskFailure``. Meanwhile the task sends
heartbeats, which the driver returns (``task_lease``).
"""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, get_args
from uuid import UUID

from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.continuous.continuous_epochs import EpochReport
from pyspark_kafka_direct.errors import KafkaDirectError, is_package_error, printable
from pyspark_kafka_direct.offsets import TopicPartition, partition_values_from_json
from pyspark_kafka_direct.planning.loss_errors import DataLossCause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONTROL_PROTOCOL_VERSION: Final = 4  # HandshakeChallenge carries it, and has the same form in all versions
MAX_FAILURE_CHARS: Final = 16_384

_MAX_INT64 = (1 << 63) - 1

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class HandshakeChallenge:
    nonce: str
    version: int = CONTROL_PROTOCOL_VERSION


@dataclass(frozen=True, slots=True)
class TaskHandshake:
    run: str  # id of the run
    task: int
    attempt: int  # Spark's attempt number
    host: str
    pid: int
    nonce: str
    proof: str = ""  # see task_proof


@dataclass(frozen=True, slots=True)
class DriverHandshake:
    proof: str  # see driver_proof


@dataclass(frozen=True, slots=True)
class HandshakeRejected:
    reason: str


@dataclass(frozen=True, slots=True)
class TaskReady:
    """The setup of the task is done."""


@dataclass(frozen=True, slots=True)
class StartTask:
    """All tasks have connected and the run is prepared, so the task may start to read."""

    epoch: int  # the first epoch
    offsets: Mapping[TopicPartition, int]  # the first offset to read of each partition

    # Where to stop reading: the end of a planned epoch. Empty if there is none. Until the task is there, it reports its
    # progress without a flush.
    end_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    topic_ids: Mapping[TopicPartition, UUID] = field(default_factory=dict)  # that the offsets refer to, if known
    producer: ProducerIdAndEpoch | None = None  # of the task's transactions


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A task sends it, and the driver returns it."""

    number: int


@dataclass(frozen=True, slots=True)
class EpochRequest:
    """Requests the end of an epoch: the task flushes and reports."""

    epoch: int
    stop: bool  # whether the task ends after this epoch


@dataclass(frozen=True, slots=True)
class TaskFailure:
    cause_class: str  # with its module, unless it is a built-in error or one of this package
    message: str

    @classmethod
    def of(cls, error: BaseException) -> TaskFailure:
        """Return the message for an error; an error in user code includes its stack trace."""
        message = _error_message(error)
        if error.__traceback__ is not None and not is_package_error(error):
            stack_trace = "".join(traceback.format_exception(error))
            # Half of the space for the beginning of the message, half for the end of the trace, where the error is.
            message = f"{message[: MAX_FAILURE_CHARS // 2]}\n\n{stack_trace[2 - MAX_FAILURE_CHARS // 2 :]}"
        return cls(_error_class(error), message[:MAX_FAILURE_CHARS])


ControlMessage: TypeAlias = (
    HandshakeChallenge
    | TaskHandshake
    | DriverHandshake
    | HandshakeRejected
    | TaskReady
    | StartTask
    | Heartbeat
    | EpochRequest
    | EpochReport
    | TaskFailure
)


def encode_message(message: ControlMessage) -> bytes:
    """Return the message as a line that ends with a line feed."""
    values: dict[str, Any] = {"type": type(message).__name__}
    for message_field in fields(message):
        value = getattr(message, message_field.name)
        write = _FIELD_WRITERS.get(str(message_field.type))
        values[message_field.name] = value if write is None else write(value)
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode_message(line: bytes) -> ControlMessage:
    """Decode a line with or without its line feed; raise a printable ``ValueError`` if it is not a valid message."""
    try:
        return _decode_values(json.loads(line.decode()))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(printable(str(error))) from None


def _decode_values(values: object) -> ControlMessage:
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    message_type = values.pop("type", None)
    if not isinstance(message_type, str) or message_type not in _MESSAGE_TYPES:
        raise ValueError(f"unknown message type {str(message_type)[:50]!r}")
    readers = {
        message_field.name: _FIELD_READERS[str(message_field.type)]
        for message_field in fields(_MESSAGE_TYPES[message_type])
    }
    if values.keys() != readers.keys():
        differing = ", ".join(sorted(str(name)[:50] for name in values.keys() ^ readers.keys())[:5])
        raise ValueError(f"{message_type}: missing or unknown fields: {differing}")
    decoded: dict[str, Any] = {}
    for name, reader in readers.items():
        try:
            decoded[name] = reader(values[name])
        except ValueError as error:
            raise ValueError(f"{message_type}, {name}: {error}") from None
    return _MESSAGE_TYPES[message_type](**decoded)


def _error_class(error: BaseException) -> str:
    """Return the class name of an error; a user's is qualified, so that the driver does not take it for one of ours."""
    kind = type(error)
    if kind.__module__ in ("builtins", KafkaDirectError.__module__):
        return kind.__name__
    return f"{kind.__module__}.{kind.__qualname__}"


def _error_message(error: BaseException) -> str:
    try:
        return str(error) or repr(error)
    except Exception:  # __str__ of a user's error may fail
        return "its message is not available"


def _write_by_topic(
    values: Mapping[TopicPartition, _T], to_json: Callable[[_T], object]
) -> dict[str, dict[str, object]]:
    """Return ``{"topic":{"0":value}}``; ``_read_by_topic`` is the inverse."""
    topics: dict[str, dict[str, object]] = {}
    for (topic, partition), value in values.items():
        topics.setdefault(topic, {})[str(partition)] = to_json(value)
    return topics


def _offsets_to_json(offsets: Mapping[TopicPartition, int]) -> object:
    return _write_by_topic(offsets, int)


def _topic_ids_to_json(topic_ids: Mapping[TopicPartition, UUID]) -> object:
    return _write_by_topic(topic_ids, lambda topic_id: topic_id.hex)


def _skipped_offsets_to_json(skipped: Mapping[DataLossCause, Mapping[TopicPartition, int]]) -> object:
    return {cause.name: _offsets_to_json(offsets) for cause, offsets in skipped.items()}


def _read_skipped_offsets(value: object) -> dict[DataLossCause, dict[TopicPartition, int]]:
    if not isinstance(value, dict) or not value.keys() <= DataLossCause.__members__.keys():
        raise ValueError("not offsets by cause")
    return {DataLossCause[cause]: _read_offsets(offsets) for cause, offsets in value.items()}


def _read_topic_ids(value: object) -> dict[TopicPartition, UUID]:
    return _read_by_topic(value, "topic ids", lambda topic_id: UUID(hex=_read_string(topic_id)))


def _read_offsets(value: object) -> dict[TopicPartition, int]:
    return _read_by_topic(value, "offsets", _read_int64)


def _read_by_topic(value: object, what: str, read: Callable[[object], _T]) -> dict[TopicPartition, _T]:
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        raise ValueError(f"not {what} by topic and partition")
    values: dict[TopicPartition, _T] = {}
    for topic, partitions in value.items():
        if not topic:
            raise ValueError("a topic name is empty")
        partition_values_from_json(topic, dict.fromkeys(partitions, 0))  # checks the partition numbers
        values |= {TopicPartition(topic, int(partition)): read(each) for partition, each in partitions.items()}
    return values


def _read_producer(value: object) -> ProducerIdAndEpoch | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("not a producer id and epoch")
    return ProducerIdAndEpoch(*map(_read_int64, value))


def _read_int64(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_INT64:
        raise ValueError("not an integer from 0 to 2^63-1")
    return value


def _read_string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a string")
    return value


def _read_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _read_seconds(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _MAX_INT64:
        raise ValueError("not a duration")
    return float(value)


_MESSAGE_TYPES: Final[dict[str, type[ControlMessage]]] = {kind.__name__: kind for kind in get_args(ControlMessage)}

# By the annotated type of a field. Types without a writer are valid JSON values.
_FIELD_READERS: Final[dict[str, Callable[[object], Any]]] = {
    "str": _read_string,
    "int": _read_int64,
    "bool": _read_bool,
    "float": _read_seconds,
    "Mapping[TopicPartition, int]": _read_offsets,
    "Mapping[TopicPartition, UUID]": _read_topic_ids,
    "Mapping[DataLossCause, Mapping[TopicPartition, int]]": _read_skipped_offsets,
    "ProducerIdAndEpoch | None": _read_producer,
}
_FIELD_WRITERS: Final[dict[str, Callable[[Any], object]]] = {
    "Mapping[TopicPartition, int]": _offsets_to_json,
    "Mapping[TopicPartition, UUID]": _topic_ids_to_json,
    "Mapping[DataLossCause, Mapping[TopicPartition, int]]": _skipped_offsets_to_json,
}
