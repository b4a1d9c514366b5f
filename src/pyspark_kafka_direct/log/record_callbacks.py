"""The records of a log, and the user's callbacks that receive them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.options.option_messages import warn_once
from pyspark_kafka_direct.records.columns import binary_values, integer_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.log.log_topic import LogTopic
    from pyspark_kafka_direct.log.table_state import TableState
    from pyspark_kafka_direct.offsets import TopicPartition

_log = logging.getLogger("pyspark_kafka_direct.log")

LogHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]

LOG_COLUMNS: Final = ("key", "value", "offset", "timestamp", "headers")
"""The columns that ``to_log_records`` needs, in this order."""


class LogRecord(NamedTuple):
    """A record of a log.

    Attributes:
        key: The key; ``None`` if there is none.
        value: The value; ``None`` deletes the key (a tombstone).
        partition: The partition number.
        offset: The offset in the partition.
        timestamp: Milliseconds since 1970-01-01 UTC; -1 if there is none.
        headers: Pairs of name and value in record order; names may repeat.
        topic: The topic.
    """

    key: bytes | None
    value: bytes | None
    partition: int
    offset: int
    timestamp: int
    headers: LogHeaders
    topic: str


# The class's own __new__ is a Python function, which takes twice as long.
_new_record: Callable[[Iterable[Any]], LogRecord] = partial(tuple.__new__, LogRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCallbacks:
    """The user's callbacks of a log, which all run in the log's thread."""

    on_record: Callable[[LogRecord], None] | None = None
    on_batch: Callable[[TopicPartition, pa.RecordBatch], None] | None = None
    on_error: Callable[[KafkaDirectError], None] | None = None
    on_reset: Callable[[KafkaDirectError], bool | None] | None = None
    columns: Sequence[str] = LOG_COLUMNS
    view: TableState | None = None  # of a ``KafkaTable``

    def __post_init__(self) -> None:
        if self.on_record is not None and self.on_batch is not None:
            raise ValueError("a log takes on_record or on_batch, not both")
        if self.on_record is not None and tuple(self.columns) != LOG_COLUMNS:
            raise ValueError(
                "columns selects the columns of batches for on_batch; records of on_record have all fields"
            )

    def check_topic(self, topic: LogTopic, cleanup_policy: str | None) -> None:
        """Check a topic before it is read; ``None`` is a policy that the principal may not read."""
        if cleanup_policy is not None and cleanup_policy != "compact":
            if self.view is not None:
                raise self.view.cleanup_policy_error(cleanup_policy)
            warn_once(
                f"topic {topic.partitions[0].topic} has cleanup.policy={cleanup_policy}, so records expire that a log "
                "may need when it starts again. Set cleanup.policy=compact on the topic."
            )
        self.check_partition_count(topic)

    def check_partition_count(self, topic: LogTopic) -> None:
        """Check a topic that has got more partitions."""
        if self.view is not None:
            self.view.check_partition_count(topic)

    def deliver(self, partition: TopicPartition, rows: pa.RecordBatch) -> BaseException | None:
        """Pass each row to its callback once; return the first error that it raised.

        An error that is raised means that no row was passed: the memory did not suffice to convert them.
        """
        first_error: BaseException | None = None
        if self.on_batch is not None:
            try:
                self.on_batch(partition, rows)
            except BaseException as error:
                if self.view is None:  # else the caller reports the error, because it reads the log again
                    _log.exception("on_batch raised an error for rows of %s; reading continues", partition)
                first_error = error
        elif self.on_record is not None:
            for record in list(to_log_records(partition, rows)):  # all are converted before the first is passed
                try:
                    self.on_record(record)
                except BaseException as error:
                    _log.exception(
                        "on_record raised an error for %s, offset %d; reading continues", partition, record.offset
                    )
                    first_error = first_error or error
        return first_error

    def report_error(self, error: BaseException) -> None:
        """Log an error of reading, and pass errors of this package to ``on_error``."""
        is_known = isinstance(error, KafkaDirectError)
        _log.warning("reading failed and will be retried: %s", error, exc_info=None if is_known else error)
        if self.on_error is not None and isinstance(error, KafkaDirectError):
            try:
                self.on_error(error)
            except BaseException:
                _log.exception("on_error raised an error")

    def report_reset(self, error: KafkaDirectError) -> bool:
        """Report that records which were read are lost; return whether to read from the beginning."""
        _log.warning("records that were read are lost: %s", error)
        if self.view is not None:  # it cannot remove the lost records by itself
            return True
        if self.on_reset is None:
            return False
        try:
            return bool(self.on_reset(error))
        except BaseException:
            _log.exception("on_reset raised an error; the log is read from the beginning")
            return True


def to_log_records(partition: TopicPartition, rows: pa.RecordBatch) -> Iterator[LogRecord]:
    """Convert an Arrow batch with exactly the columns ``LOG_COLUMNS``."""
    topic, partition_number = partition
    keys, values, offsets, times, headers = rows.columns
    times_ms = [micros // 1000 for micros in integer_values(times, "q")]
    header_tuples = repeat(()) if headers.null_count == rows.num_rows else map(_header_tuples, headers.to_pylist())
    fields = zip(
        binary_values(keys),
        binary_values(values),
        repeat(partition_number),
        integer_values(offsets, "q"),
        times_ms,
        header_tuples,
        repeat(topic),
    )
    return map(_new_record, fields)


def _header_tuples(headers: list[dict[str, Any]] | None) -> LogHeaders:
    return tuple((header["key"], header["value"]) for header in headers) if headers else ()
