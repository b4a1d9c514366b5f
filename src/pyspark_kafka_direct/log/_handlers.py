"""The user's functions that a log calls, and what happens when they raise."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.log.record import COLUMNS, records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.log.record import LogRecord
    from pyspark_kafka_direct.offsets import TopicPartition

_logger = logging.getLogger("pyspark_kafka_direct.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """What a log calls, all in its own thread; ``KafkaBasedLog`` says what each is for."""

    on_record: Callable[[LogRecord], None] | None = None
    on_batch: Callable[[TopicPartition, pa.RecordBatch], None] | None = None
    on_error: Callable[[KafkaDirectError], None] | None = None
    on_reset: Callable[[KafkaDirectError], bool | None] | None = None
    columns: Sequence[str] = COLUMNS

    def __post_init__(self) -> None:
        if self.on_record is not None and self.on_batch is not None:
            raise ValueError("a log hands out records (on_record) or batches (on_batch), not both")
        if self.on_record is not None and tuple(self.columns) != COLUMNS:
            raise ValueError("columns are those of the batches for on_batch; records have all fields")

    def apply(self, partition: TopicPartition, rows: pa.RecordBatch) -> BaseException | None:
        """Hand out rows, each once; return the first error of the function that takes them."""
        first: BaseException | None = None
        if self.on_batch is not None:
            try:
                self.on_batch(partition, rows)
            except BaseException as error:
                _logger.exception("on_batch raised an error for rows of %s; reading goes on", partition)
                first = error
        elif self.on_record is not None:
            for record in records_of(partition, rows):
                try:
                    self.on_record(record)
                except BaseException as error:
                    _logger.exception(
                        "on_record raised an error for %s, offset %d; reading goes on", partition, record.offset
                    )
                    first = first or error
        return first

    def failed(self, error: BaseException) -> None:
        """Tell of an error of reading."""
        known = isinstance(error, KafkaDirectError)
        _logger.warning("reading failed, and is tried again: %s", error, exc_info=None if known else error)
        if self.on_error is not None and isinstance(error, KafkaDirectError):
            try:
                self.on_error(error)
            except BaseException:
                _logger.exception("on_error raised an error")

    def reset(self, error: KafkaDirectError) -> bool:
        """Tell that records were taken back; return whether to read everything from the beginning."""
        _logger.warning("records were taken back: %s", error)
        if self.on_reset is None:
            return False
        try:
            return bool(self.on_reset(error))
        except BaseException:
            _logger.exception("on_reset raised an error; everything is read from the beginning")
            return True
