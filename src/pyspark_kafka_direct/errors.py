"""All errors of this package, as one tree.

    KafkaDirectError
    ├── OptionError (ValueError)                      an option's name or value is invalid
    │   └── PatternTimeoutError                       matching topic names with subscribePattern took too long
    ├── InvalidOffsetsError (ValueError)              offsets that do not match the partitions, or a start after its end
    ├── TopicNotFoundError (LookupError)              a topic or partition does not exist
    │   └── TopicRecreatedError                       the topic was deleted and recreated under the same name
    ├── DataLossError (RuntimeError)                  requested records are no longer available
    │   └── TruncatedError                            the log was truncated below the reader's position
    ├── ColumnError (ValueError)                      rows to be written lack a column, or one has the wrong type
    ├── TransactionStateError (RuntimeError)          an exactly-once write that could lose or duplicate records
    ├── BrokerError (ConnectionError)                 a request to a broker failed
    │   ├── TransientBrokerError                      an error that a retry, possibly on another broker, can resolve
    │   │   ├── BrokerUnreachableError                no connection, or it broke and all retries failed
    │   │   └── BrokerTimeoutError (TimeoutError)     a deadline passed
    │   ├── TlsError                                  the TLS handshake failed, or a certificate is invalid
    │   ├── AuthenticationError                       the broker rejected the credentials
    │   ├── AuthorizationError (PermissionError)      the principal lacks a permission (ACL)
    │   ├── ProducerFencedError                       another producer acquired the transactional id; final
    │   ├── OutcomeUnknownError                       a transaction may have been committed or not
    │   ├── UnsupportedBrokerError                    the broker is too old or lacks a feature
    │   └── ProtocolError                             an invalid response or an unexpected error code
    ├── SchemaRegistryError (ConnectionError)         a request to a schema registry failed
    │   ├── SchemaRegistryUnavailableError            no registry responded as it should until the deadline
    │   └── SchemaNotFoundError (LookupError)         the registry has no such schema, subject or version
    ├── SchemaError (ValueError)                      a schema is invalid, or needs something that is not supported
    ├── CheckpointFencedError (RuntimeError)          another query writes to the same checkpoint; final
    ├── IllegalLogStateError (RuntimeError)           a log cannot do this now: not started, stopped, or read-only
    ├── QueryRunError (RuntimeError)                  a run of a continuous query failed
    │   └── TaskStartTimeoutError (TimeoutError)      not all tasks of a run started in time
    ├── SparkVersionError (ImportError)               PySpark is missing, too old or too new
    ├── KernelMissingError (ImportError)              the native kernel is missing, or was built for something else
    ├── ExternalToolError (RuntimeError)              a program for the embedded Kafka is missing, too old, or failed
    └── RecordError (ValueError)                      records that cannot be used
        ├── CorruptRecordError                        malformed bytes or a wrong CRC
        ├── UnsupportedRecordError                    an unsupported record format or codec
        ├── RecordTooLargeError                       a record exceeds a limit or the available memory
        ├── MalformedPayloadError                     a key or value does not have the format that an option names
        │   └── PayloadSchemaError                    it cannot be decoded because of its schema; it may be valid
        ├── InvalidRecordError                        a broker rejected a record, such as for its timestamp or key
        └── TimestampOverflowError (ArithmeticError)  a timestamp that does not fit Spark's microseconds

Each message states what happened, where, and what to do. The location is also in the attributes ``topic``,
``partition``, ``offset`` and ``broker`` (``host:port``), which are ``None`` if they do not apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from typing import TypeGuard
    from uuid import UUID


_MAX_FOREIGN_CHARS: Final = 500


class KafkaDirectError(Exception):
    """Base class of all errors of this package.

    Args:
        message: What happened and what to do.
        topic: The topic.
        partition: The partition number.
        offset: The offset in the partition.
        broker: The broker as ``host:port``.
    """

    confirmation_seconds: float = 0.0  # that brokers need to confirm the data loss of which the error is evidence

    def __init__(
        self,
        message: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        broker: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.broker = broker

    def __str__(self) -> str:
        return self.message + _location(self.topic, self.partition, self.offset, self.broker)

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own pickling loses keyword-only arguments, and Spark sends errors between processes.
        location = {"topic": self.topic, "partition": self.partition, "offset": self.offset, "broker": self.broker}
        return (_unpickle, (type(self), self.message, location, self.__dict__))


class OptionError(KafkaDirectError, ValueError):
    """An option's name or value is invalid."""


class PatternTimeoutError(OptionError):
    """Matching topic names with a pattern takes too long, as some patterns do for some names."""


class InvalidOffsetsError(KafkaDirectError, ValueError):
    """Starting or ending offsets do not match the partitions, or a start is after its end."""


class TopicNotFoundError(KafkaDirectError, LookupError):
    """A topic or partition does not exist. If the principal may not describe it, ``AuthorizationError`` says so."""


class DataLossError(KafkaDirectError, RuntimeError):
    """Requested records are no longer available; ``failOnDataLoss=false`` skips them instead.

    Attributes:
        resume_offset: Where reading can resume, if that follows neither from the log nor from ``truncated_to``.
    """

    resume_offset: int | None = None


class TopicRecreatedError(TopicNotFoundError):
    """A topic was deleted and recreated under the same name while it was read.

    Attributes:
        topic_id: The id of the new topic.
    """

    topic_id: UUID | None = None


class TruncatedError(DataLossError):
    """A log was truncated below the reader's position by an unclean leader election, so records it has read are lost.

    Attributes:
        truncated_to: The first offset at which the records that were read and those in the log may differ; ``None`` if
            it is unknown, so that any of them may be lost.
    """

    truncated_to: int | None = None


class ColumnError(KafkaDirectError, ValueError):
    """Rows lack a column, or a column has the wrong type or an invalid value."""


class TransactionStateError(KafkaDirectError, RuntimeError):
    """An exactly-once write does not follow the previous one, and so could lose or duplicate records."""


class BrokerError(KafkaDirectError, ConnectionError):
    """A request to a broker failed.

    Attributes:
        error_code: The error code of the broker's response; ``None`` if there is none.
        connected: Whether the broker accepted a connection.
        before_login: Whether the client had no token or ticket in time, so that the broker is not at fault.
        may_be_expired: Whether the brokers may have deleted the state of a producer that was idle: its transactional
            id, by default after seven days (``transactional.id.expiration.ms``), or its sequence numbers.
    """

    error_code: int | None = None
    connected: bool = True
    before_login: bool = False
    may_be_expired: bool = False


class TransientBrokerError(BrokerError):
    """An error that a retry, possibly on another broker, can resolve; raised after all retries failed."""


class BrokerUnreachableError(TransientBrokerError):
    """No connection could be established, or it broke and all retries failed."""


class BrokerTimeoutError(TransientBrokerError, TimeoutError):
    """A deadline passed before the broker responded."""


class TlsError(BrokerError):
    """The TLS handshake failed, or a certificate is invalid; a retry does not help."""


class AuthenticationError(BrokerError):
    """The broker rejected the credentials."""


class AuthorizationError(BrokerError, PermissionError):
    """The authenticated principal lacks a permission (ACL)."""


class ProducerFencedError(BrokerError):
    """Another producer acquired the transactional id, or the broker aborted its transaction; final."""


class OutcomeUnknownError(BrokerError):
    """The end of a transaction was not confirmed: it may have been committed or not."""


class UnsupportedBrokerError(BrokerError):
    """The broker is too old or lacks a required feature."""


class ProtocolError(BrokerError):
    """A broker's response is invalid, or has an unexpected error code."""


class SchemaRegistryError(KafkaDirectError, ConnectionError):
    """A request to a schema registry failed."""


class SchemaRegistryUnavailableError(SchemaRegistryError):
    """No registry responded as it should until the deadline; a later request can succeed."""


class SchemaNotFoundError(SchemaRegistryError, LookupError):
    """The registry has no schema with this id, or no such subject or version."""


class SchemaError(KafkaDirectError, ValueError):
    """A schema is invalid, or needs something that is not supported, such as encrypted fields."""


class CheckpointFencedError(KafkaDirectError, RuntimeError):
    """Another query writes to the same checkpoint, so this query has to stop; final."""


class IllegalLogStateError(KafkaDirectError, RuntimeError):
    """A log's state rules out the operation: it is not started, stopped or read-only, or the call would deadlock."""


class QueryRunError(KafkaDirectError, RuntimeError):
    """A run of a continuous query failed: a task failed, was lost, was unresponsive, or sent an invalid report.

    Attributes:
        task_index: The index of the task; ``None`` if the error concerns no task or several.
        cause_class: The class name of the error that a task reported; ``None`` if no task reported one.
    """

    task_index: int | None = None
    cause_class: str | None = None


class TaskStartTimeoutError(QueryRunError, TimeoutError):
    """Not all tasks of a continuous query's run started in time, usually because there are fewer cores than tasks."""


class SparkVersionError(KafkaDirectError, ImportError):
    """PySpark is missing, too old, or so new that it lacks an internal name that this package uses."""


class KernelMissingError(KafkaDirectError, ImportError):
    """The native kernel of this package is missing, or was built for another Python, platform or release."""


class ExternalToolError(KafkaDirectError, RuntimeError):
    """A program that the embedded Kafka requires (Java) is missing, too old, or failed."""


class RecordError(KafkaDirectError, ValueError):
    """Records cannot be used."""


class CorruptRecordError(RecordError):
    """The bytes of records are malformed, or their CRC is wrong."""


class UnsupportedRecordError(RecordError):
    """A record format or compression codec is not supported."""


class RecordTooLargeError(RecordError):
    """A record is larger than an option, the topic or the available memory allows."""


class MalformedPayloadError(RecordError):
    """A key or value does not have the format that ``keyFormat`` or ``valueFormat`` names, and ``mode`` is FAILFAST."""


class PayloadSchemaError(MalformedPayloadError):
    """A key or value cannot be decoded because of its schema, so it may be valid: change the schema or the options."""


class InvalidRecordError(RecordError):
    """A broker rejected a record, such as one with a timestamp out of range, or without a key in a compacted topic."""


class TimestampOverflowError(RecordError, ArithmeticError):
    """A record's timestamp does not fit Spark's microseconds (KAFKA_MALFORMED_RECORD_TIMESTAMP in Spark)."""


def is_package_error(error: object) -> TypeGuard[KafkaDirectError]:
    """Return whether an error's class is defined in this package; users may derive their own classes from these."""
    return isinstance(error, KafkaDirectError) and type(error).__module__ == __name__


def with_advice(error: SchemaNotFoundError, advice: str) -> SchemaNotFoundError:
    """Return the error with a message that also says what to do."""
    return type(error)(f"{error.message.rstrip('.')}. {advice}")


def printable(text: str, max_chars: int = _MAX_FOREIGN_CHARS) -> str:
    """Return text from another host for a log or an error: not longer, and without controls or line breaks."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text[:max_chars])


def _location(topic: str | None, partition: int | None, offset: int | None, broker: str | None) -> str:
    parts = []
    if topic is not None:
        parts.append(f"topic {topic}")
    if partition is not None:
        parts.append(f"partition {partition}")
    if offset is not None:
        parts.append(f"offset {offset}")
    if broker is not None:
        parts.append(f"broker {broker}")
    return f" [{', '.join(parts)}]" if parts else ""


def _unpickle(
    error_type: type[KafkaDirectError], message: str, location: dict[str, Any], state: dict[str, Any]
) -> KafkaDirectError:
    error = error_type(message, **location)
    error.__dict__.update(state)
    return error
