"""``write_arrow``: Arrow data into topics, without Spark."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pyspark_kafka_direct.arrow.arguments import merged_arguments
from pyspark_kafka_direct.arrow.arrow_input import open_input, plain_schema, with_plain_types
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.errors import ColumnError, KafkaDirectError, OptionError
from pyspark_kafka_direct.options.option_messages import warn_once
from pyspark_kafka_direct.options.sink_options import parse_write_arguments
from pyspark_kafka_direct.payloads.payload_encoders import PayloadEncoders
from pyspark_kafka_direct.payloads.write_rows import HEADERS, split_rows, to_producer_rows
from pyspark_kafka_direct.payloads.write_schema import column_positions, resolve_write_schema
from pyspark_kafka_direct.payloads.written_schemas import resolve_writer_schemas
from pyspark_kafka_direct.producer.batch_producer import BatchProducer
from pyspark_kafka_direct.producer.row_writer import RowWriter, with_half_buffer
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark_kafka_direct.arrow.arrow_input import ArrowInput
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import WriteSettings
    from pyspark_kafka_direct.producer.batch_producer import WrittenRange
    from pyspark_kafka_direct.records import EncodedBatch

_ABORT_SECONDS: Final = 30.0

_NULLS: Final = {
    "topic": pa.string(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
"""The types of columns that have only nulls, which pandas and polars give no type."""


@dataclass(frozen=True, slots=True)
class WrittenPartition:
    """The records that were written to a partition; those of other producers may lie between the two offsets."""

    records: int
    first_offset: int | None  # None if the broker does not return offsets (acks=0)
    last_offset: int | None
    bytes: int  # as sent, after compression


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The records that ``write_arrow`` has written, all of which the brokers have acknowledged as ``acks`` says."""

    records: int
    bytes: int  # as sent, after compression
    partitions: Mapping[TopicPartition, WrittenPartition]


def write_arrow(
    topic: str | None, data: Any, params: Mapping[str, object], *, transactional_id: str | None = None, **options: Any
) -> WriteResult:
    """Write Arrow data to a topic, and return when the brokers have acknowledged all records.

    The data is a stream: only some MiB of it are in memory, and at most ``buffer.memory`` bytes that are not
    acknowledged yet. An idempotent producer writes with ``acks=all``, so that retries of requests make no duplicates.
    If a call fails, some records may have been written; the error says how many are confirmed.

    With ``transactional_id``, the records are written in one transaction, which is aborted after any error, also after
    Ctrl+C: consumers with ``isolation.level=read_committed`` see all records or none. It is not exactly-once over a
    retry by the caller: a call after an ``OutcomeUnknownError``, or after a crash of this process, may write the
    records again.

    Args:
        topic: The name of the topic, which must exist; None if the column ``topic`` names it in each row.
        data: A pyarrow Table, RecordBatch or RecordBatchReader, the result of ``read_arrow``, an object with
            ``__arrow_c_stream__`` or ``__arrow_c_array__`` (a DataFrame of polars or pandas, a relation of DuckDB), or
            an iterable of RecordBatches. Its columns are those of the sink: ``value``, and perhaps ``key``, ``topic``,
            ``partition``, ``headers`` and ``timestamp``. Other columns are ignored.
        params: Settings of Kafka's clients by their names, such as ``bootstrap.servers`` and ``compression.type``.
        transactional_id: The id of a transactional producer, which fences earlier ones with the same id.
        options: Options of the sink, such as ``valueFormat`` and ``valueSchema``.

    Returns:
        The number of records and bytes, and the offsets by partition.

    Raises:
        OptionError: An argument is invalid.
        ColumnError: A column or a value cannot be written.
        RecordTooLargeError: A record is larger than ``max.request.size`` or the topic allows.
        TopicNotFoundError: A topic does not exist.
        ProducerFencedError: Another producer has the same transactional id.
        OutcomeUnknownError: The transaction may have been committed or not.
        BrokerError: A request to the brokers failed.
    """
    if not (topic is None or isinstance(topic, str)) or not (
        transactional_id is None or (isinstance(transactional_id, str) and transactional_id)
    ):
        raise OptionError(f"topic and transactional_id are names or None, got {topic!r} and {transactional_id!r}")
    settings = parse_write_arguments(
        merged_arguments(params, options), topic, in_transaction=transactional_id is not None
    )
    for warning in settings.warnings:
        warn_once(warning)
    opened = open_input(data)
    rows = None if opened is None else _Rows(opened, settings)
    cluster = ClusterClient(settings.connection, pool=POOL)
    if transactional_id is None:
        written = _write(cluster, settings, rows)
    else:
        written = _write_in_transaction(cluster, settings, rows, transactional_id)
    return _result(written)


class _Rows:
    """The rows of the data, as producers take them."""

    def __init__(self, opened: ArrowInput, settings: WriteSettings) -> None:
        topic, payloads = settings.topic, settings.payloads
        positions = column_positions(opened.schema.names, topic)
        encoded = payloads.sides_with_types  # their encoders take nulls without a type
        written = {position: pa.null() if name in encoded else _NULLS[name] for name, position in positions.items()}
        self._types = plain_schema(opened.schema, written)
        self._schema = resolve_write_schema(self._types, topic, encoded)
        self._encoders = PayloadEncoders(resolve_writer_schemas(payloads, self._types, topic), topic)
        self._batches = opened.batches

    def convert(self, wall_time: Callable[[], float]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in parts of some MiB."""
        first_row = 0
        for batch in self._batches:
            now_ms = int(wall_time() * 1000)
            convert = functools.partial(to_producer_rows, schema=self._schema, now_ms=now_ms, encoders=self._encoders)
            for rows in split_rows(with_plain_types(batch, self._types)):
                try:
                    converted = convert(rows)
                except ColumnError as error:
                    raise _with_row(error, convert, rows, first_row) from error
                yield converted
                first_row += rows.num_rows


def _with_row(
    error: ColumnError, convert: Callable[[pa.RecordBatch], object], rows: pa.RecordBatch, first_row: int
) -> ColumnError:
    """Return the error with the first row that cannot be converted, unless the type of a column is the reason."""

    def fails(count: int) -> bool:
        try:
            convert(rows.slice(0, count))
        except ColumnError:
            return True
        return False

    good, bad = 0, rows.num_rows  # how many of the first rows can be converted, and how many cannot
    if fails(good):
        return error
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if fails(middle) else (middle, bad)
    return ColumnError(f"{error.message.rstrip('.')}. The first such row is {first_row + good}, counted from 0.")


def _write(
    cluster: ClusterClient, settings: WriteSettings, rows: _Rows | None
) -> Mapping[TopicPartition, WrittenRange]:
    """Write all rows with an idempotent producer; an error says how many of them are written."""
    producer = BatchProducer(cluster, with_half_buffer(settings.produce))
    sent = 0

    def send(topic: str, batch: EncodedBatch) -> None:
        nonlocal sent
        sent += batch.records
        producer.send(topic, batch, more_follows=True)

    try:
        _send_rows(cluster, settings, rows, send)
        return producer.flush()
    except BaseException as error:
        written = producer.written_ranges.values() if settings.produce.acks else ()  # acks=0: brokers confirm nothing
        confirmed = sum(each.records for each in written)
        others = f", and {sent - confirmed} more may have been written" if sent > confirmed else ""
        _add_outcome(error, f"{confirmed} records are confirmed to be written{others}.")
        raise
    finally:
        producer.close()


def _write_in_transaction(
    cluster: ClusterClient, settings: WriteSettings, rows: _Rows | None, transactional_id: str
) -> Mapping[TopicPartition, WrittenRange]:
    """Write all rows in a transaction, which is aborted after any error."""
    with TransactionalProducer(
        cluster, transactional_id, settings.transaction_timeout_ms, with_half_buffer(settings.produce)
    ) as producer:
        producer.init_transactions()
        try:
            _send_rows(cluster, settings, rows, functools.partial(producer.send, more_follows=True))
            return producer.commit()
        except BaseException as error:
            if producer.in_transaction:
                _abort(cluster, producer, error)
            elif producer.open_seconds and not isinstance(error, KafkaDirectError):
                _add_outcome(error, "The transaction may have been committed or not.")  # interrupted while it ended
            raise


def _send_rows(
    cluster: ClusterClient, settings: WriteSettings, rows: _Rows | None, send: Callable[[str, EncodedBatch], None]
) -> None:
    """Encode all rows, and pass each record batch with its topic to ``send``."""
    system = cluster.pool.system
    writer = RowWriter(
        cluster,
        settings.produce,
        send,
        topic=settings.topic,
        first_sticky_partition=int(system.random() * (1 << 31)),  # so that small writes fill all partitions
    )
    if rows is not None:
        for part in rows.convert(system.wall_time):
            writer.write(part)
    writer.flush()


def _abort(cluster: ClusterClient, producer: TransactionalProducer, error: BaseException) -> None:
    """Abort the transaction after an error, which says what became of the records."""
    try:
        producer.abort(cluster.deadline(_ABORT_SECONDS))
    except KafkaDirectError as abort_error:
        _add_outcome(
            error,
            f"The abort of the transaction failed ({abort_error}); the brokers abort it after transaction.timeout.ms, "
            "or when the transactional id is used again.",
        )
    else:
        _add_outcome(error, "The transaction was aborted, so no record is committed.")


def _add_outcome(error: BaseException, outcome: str) -> None:
    """Let an error say what became of the records."""
    if isinstance(error, KafkaDirectError):
        error.message = f"{error.message.rstrip('.')}. {outcome}"
    else:  # of the data, or an interrupt: others' messages are not changed
        error.add_note(outcome)


def _result(written: Mapping[TopicPartition, WrittenRange]) -> WriteResult:
    partitions = {
        topic_partition: WrittenPartition(
            records=each.records,
            first_offset=each.first_offset if each.first_offset >= 0 else None,
            last_offset=each.next_offset - 1 if each.next_offset >= 0 else None,
            bytes=each.bytes,
        )
        for topic_partition, each in sorted(written.items())
    }
    return WriteResult(
        records=sum(each.records for each in partitions.values()),
        bytes=sum(each.bytes for each in partitions.values()),
        partitions=partitions,
    )
