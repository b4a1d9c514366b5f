"""Everything that can go wrong, as one tree.

    KafkaDirectError
    ├── OptionError (ValueError)              an option's name or value cannot be used
    ├── OffsetPlanError (ValueError)          positions that do not fit the partitions, or start after end
    ├── TopicNotFoundError (LookupError)      a topic or partition that does not exist
    │   └── TopicRecreatedError               it was deleted, and created again under its name
    ├── DataLossError (RuntimeError)          records that were asked for are no longer there
    │   └── TruncatedError                    the log was cut back under its reader
    ├── ColumnError (ValueError)              rows to be written lack a column, or one has the wrong type
    ├── DeliveryRefusedError (RuntimeError)   an exactly-once write that would lose or repeat records
    ├── BrokerError (ConnectionError)         a broker did not do what it was asked
    │   ├── TransientBrokerError              trouble that another try, or another broker, may cure
    │   │   ├── BrokerUnreachableError        no connection, or it broke and retries were used up
    │   │   └── BrokerTimeoutError (TimeoutError)  a deadline passed
    │   ├── TlsError                          the TLS handshake or a certificate failed
    │   ├── AuthenticationError               the broker refused the credentials
    │   ├── AuthorizationError (PermissionError)  the principal may not do this (ACL)
    │   ├── FencedError                       another writer has taken over the transactional id; final
    │   ├── OutcomeUnknownError               a transaction may have been committed, or not
    │   ├── UnsupportedBrokerError            the broker is too old, or lacks a feature
    │   └── ProtocolError                     an answer that cannot be understood, or an unexpected error code
    ├── CheckpointTakenError (RuntimeError)   another query writes to the same checkpoint; final
    ├── LogStateError (RuntimeError)          a log is asked for what it cannot do: not started, stopped, only read
    ├── RunFailedError (RuntimeError)         a run of a continuous query ended: a task failed, was lost, or silent
    │   └── TaskStartError (TimeoutError)     not all tasks of a run have started in time
    ├── SparkVersionError (ImportError)       there is no PySpark, or it is too old
    ├── ToolError (RuntimeError)              a program that the embedded Kafka needs is missing, too old, or failed
    └── RecordError (ValueError)              records that cannot be used
        ├── CorruptRecordError                malformed bytes or a wrong CRC
        ├── UnsupportedRecordError            a record format or codec that is not supported
        ├── RecordTooLargeError               records larger than is allowed, or than there is memory for
        ├── RecordRefusedError                a broker does not take a record: its timestamp, its missing key
        └── TimestampError (ArithmeticError)  a timestamp that does not fit Spark's microseconds

Each message says what happened, where, and what to do. The place is also kept in attributes: ``topic``,
``partition``, ``offset``, ``broker`` (``host:port``); ``None`` where it does not apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeGuard
    from uuid import UUID


class KafkaDirectError(Exception):
    """Base of all errors of this package.

    Args:
        message: What happened and what to do.
        topic: Topic the error is about.
        partition: Partition number.
        offset: Offset within the partition.
        broker: ``host:port`` of the broker.
    """

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
        return self.message + _place(self.topic, self.partition, self.offset, self.broker)

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only arguments do not survive Exception's own pickling; Spark sends errors between processes.
        place = (self.topic, self.partition, self.offset, self.broker)
        return (_rebuild, (type(self), self.message, *place, self.__dict__))


class OptionError(KafkaDirectError, ValueError):
    """An option's name or value cannot be used."""


class OffsetPlanError(KafkaDirectError, ValueError):
    """Starting or ending positions do not fit the partitions, or a start lies after its end."""


class TopicNotFoundError(KafkaDirectError, LookupError):
    """A topic or partition does not exist (or may not be seen)."""


class DataLossError(KafkaDirectError, RuntimeError):
    """Records that were asked for are no longer there; ``failOnDataLoss=false`` skips them instead."""


class TopicRecreatedError(TopicNotFoundError):
    """A topic was deleted, and another one created under its name, while it was read.

    Attributes:
        topic_id: The id of the new topic.
    """

    topic_id: UUID | None = None


class TruncatedError(DataLossError):
    """A log was cut back under its reader, by an unclean leader election: what was read may not be in it any more.

    Attributes:
        cut_at: Where what was read and what is there part.
    """

    cut_at: int | None = None


class ColumnError(KafkaDirectError, ValueError):
    """Rows that are to be written lack a column, or one has the wrong type or value."""


class DeliveryRefusedError(KafkaDirectError, RuntimeError):
    """An exactly-once write that does not follow the one before it, and so would lose or repeat records."""


class BrokerError(KafkaDirectError, ConnectionError):
    """A broker did not do what it was asked."""


class TransientBrokerError(BrokerError):
    """Trouble that another try, or another broker, may cure; it reaches users when all tries were used up."""


class BrokerUnreachableError(TransientBrokerError):
    """No connection could be made, or it broke and the retries were used up."""


class BrokerTimeoutError(TransientBrokerError, TimeoutError):
    """A deadline passed before the broker answered."""


class TlsError(BrokerError):
    """The TLS handshake failed for good, or a certificate cannot be used."""


class AuthenticationError(BrokerError):
    """The broker refused the credentials."""


class AuthorizationError(BrokerError, PermissionError):
    """The authenticated principal may not do this (an ACL is missing)."""


class FencedError(BrokerError):
    """Another writer has taken over the transactional id, or the broker has ended its transaction; final.

    Attributes:
        forgotten: Whether the brokers may just have forgotten the id, as they do of one that was not used for a week.
    """

    forgotten: bool = False


class OutcomeUnknownError(BrokerError):
    """The end of a transaction was not confirmed: it may have been committed, or not."""


class UnsupportedBrokerError(BrokerError):
    """The broker is too old or lacks a feature this package needs."""


class ProtocolError(BrokerError):
    """A broker's answer could not be understood, or carried an error code nothing can be done about."""


class CheckpointTakenError(KafkaDirectError, RuntimeError):
    """Another query writes to the same checkpoint, and this one has to end; final."""


class LogStateError(KafkaDirectError, RuntimeError):
    """A log cannot do this now: it is not started, stopped, only read, or would wait for itself."""


class RunFailedError(KafkaDirectError, RuntimeError):
    """A run of a continuous query cannot go on: a task failed, was lost, was silent, or reported what cannot be.

    Attributes:
        task: The task's number; ``None`` where several are concerned, or none.
        cause: Name of the class of the error that a task has told; ``None`` where it told none.
    """

    task: int | None = None
    cause: str | None = None


class TaskStartError(RunFailedError, TimeoutError):
    """Not all tasks of a continuous query's run have started in time: most often there are fewer cores than tasks."""


class SparkVersionError(KafkaDirectError, ImportError):
    """There is no PySpark, or it is too old."""


class ToolError(KafkaDirectError, RuntimeError):
    """A program that the embedded Kafka needs (Java, its keytool) is missing, too old, or failed."""


class RecordError(KafkaDirectError, ValueError):
    """Records cannot be used."""


class CorruptRecordError(RecordError):
    """Record bytes are malformed, or their CRC is wrong."""


class UnsupportedRecordError(RecordError):
    """A message format or compression codec is not supported."""


class RecordTooLargeError(RecordError):
    """A record is larger than a setting or the topic allows, or than the process has memory for."""


class RecordRefusedError(RecordError):
    """A broker does not take a record, such as one with a timestamp out of range, or without a key for compaction."""


class TimestampError(RecordError, ArithmeticError):
    """A record's timestamp does not fit Spark's microseconds (KAFKA_MALFORMED_RECORD_TIMESTAMP in Spark)."""


def is_ours(error: object) -> TypeGuard[KafkaDirectError]:
    """Tell whether an error is of a class of this package; users may derive classes of their own from these."""
    return isinstance(error, KafkaDirectError) and type(error).__module__ == __name__


def _place(topic: str | None, partition: int | None, offset: int | None, broker: str | None) -> str:
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


def _rebuild(
    kind: type[KafkaDirectError],
    message: str,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    broker: str | None,
    state: dict[str, Any],
) -> KafkaDirectError:
    error = kind(message, topic=topic, partition=partition, offset=offset, broker=broker)
    error.__dict__.update(state)
    return error
