"""Decodes the keys and values of a task's record batches."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.options.payload_settings import ERROR_COLUMN
from pyspark_kafka_direct.payloads.malformed_records import (
    error_column,
    first_error,
    has_schema_error,
    is_malformed,
    memory_error,
)
from pyspark_kafka_direct.payloads.payload_format import payload_format
from pyspark_kafka_direct.payloads.schema_errors import SchemaErrors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.payload_settings import PayloadSettings
    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues, MalformedValues
    from pyspark_kafka_direct.payloads.payload_column import PayloadColumn

_log = logging.getLogger("pyspark_kafka_direct.payloads")

_NULL = "were read as null (mode=PERMISSIVE)"
_DROPPED = "were dropped (mode=DROPMALFORMED)"
_OFFSET = "offset"
_HEADERS = "headers"


class DecodedColumns(NamedTuple):
    """The columns that tasks decode. Pickled into them."""

    settings: PayloadSettings
    columns: tuple[str, ...]  # the names in Kafka records, and perhaps _error
    schema: pa.Schema  # of the decoded batches: these columns, perhaps with other names
    time_zone: str = "UTC"  # of timestamps without an offset

    def decoder(self) -> PayloadDecoder:
        """Create a decoder, which a task uses for all its batches."""
        return PayloadDecoder(*self)


class PayloadDecoder:
    """Replaces the columns ``key`` and ``value`` by decoded ones, and applies ``mode`` to malformed records."""

    def __init__(
        self,
        settings: PayloadSettings,
        columns: Sequence[str],  # the names in Kafka records, and perhaps _error
        schema: pa.Schema,  # of the decoded batches: these columns, perhaps with other names
        time_zone: str = "UTC",
    ) -> None:
        self._settings = settings
        self._columns = columns
        self._schema = schema
        self._decoded: Counter[TopicPartition] = Counter()  # records, the malformed ones included
        self._malformed: Counter[TopicPartition] = Counter()  # without those whose schema is at fault
        self._with_schema_error: Counter[TopicPartition] = Counter()
        self._schema_errors = SchemaErrors()
        self._decoders: dict[str, PayloadColumn] = {}
        for index, column in enumerate(columns):
            payload = settings.side(column)
            if payload is not None:
                data_type = schema.field(index).type
                self._decoders[column] = payload_format(payload.format).column(payload, settings, data_type, time_zone)
        self._shows_malformed = ERROR_COLUMN in columns or all(
            decoder.shows_malformed for decoder in self._decoders.values()
        )
        self.record_columns = self._find_record_columns()  # of Kafka records, which the task has to read

    def decode(self, batches: Iterable[pa.RecordBatch], topic_partition: TopicPartition) -> Iterator[pa.RecordBatch]:
        """Decode batches that begin with ``record_columns``.

        It yields several batches for one if the decoded keys or values would need too much memory together, and none if
        all records are dropped.
        """
        for batch in batches:
            try:
                yield from self._decode_batch(batch, topic_partition)
            except MemoryError:
                columns = [f"{column}s as {decoder.format_name}" for column, decoder in self._decoders.items()]
                raise memory_error(columns, topic_partition) from None

    def take_malformed(self) -> Counter[TopicPartition]:
        """Return how many records were malformed since the last call, and log it unless a column shows some of them.

        Those of ``take_schema_errors`` are not among them.
        """
        decoded, self._decoded = self._decoded, Counter()
        malformed, self._malformed = self._malformed, Counter()
        if self._settings.mode == "DROPMALFORMED":
            effect = _DROPPED
        else:
            effect = _NULL if self._shows_malformed else f"{_NULL}; the column {ERROR_COLUMN} would say why"
        for topic_partition, count in malformed.items():
            are_all = 1 < count == decoded[topic_partition]  # one record alone does not show that the format is wrong
            suffix = " (all that were read: check whether the format fits the topic)" if are_all else ""
            if suffix or not self._shows_malformed:
                _log.warning("%s: %d malformed records %s%s", topic_partition, count, effect, suffix)
        return malformed

    def take_schema_errors(self) -> Counter[TopicPartition]:
        """Return how many records could not be decoded because of a schema since the last call, and log each schema."""
        self._schema_errors.log(_DROPPED if self._settings.mode == "DROPMALFORMED" else _NULL)
        counts, self._with_schema_error = self._with_schema_error, Counter()
        return counts

    def _find_record_columns(self) -> tuple[str, ...]:
        """Return the columns of the query, and behind them others that decoders and errors need."""
        columns = [column for column in self._columns if column != ERROR_COLUMN]
        if self._settings.mode == "FAILFAST" and _OFFSET not in columns:
            columns.append(_OFFSET)  # error messages contain it
        needs_headers = any(decoder.needs_headers for decoder in self._decoders.values())
        if needs_headers and _HEADERS not in columns:
            columns.append(_HEADERS)
        return tuple(columns)

    def _decode_batch(self, batch: pa.RecordBatch, topic_partition: TopicPartition) -> Iterator[pa.RecordBatch]:
        arrays: dict[str, pa.Array] = dict(zip(self.record_columns, batch.columns, strict=False))
        for start, decoded in self._decode_columns(tuple(self._decoders), arrays, start=0, end=batch.num_rows):
            for column, decoder in self._decoders.items():
                decoder.log_hints(f"{topic_partition.topic}, {column}s")
            rows = len(next(iter(decoded.values())).values) if decoded else batch.num_rows
            records = {column: array.slice(start, rows) for column, array in arrays.items()}
            result = self._apply_mode(records, decoded, rows, topic_partition)
            if result.num_rows:
                yield result

    def _decode_columns(
        self, columns: Sequence[str], arrays: Mapping[str, pa.Array], start: int, end: int
    ) -> Iterator[tuple[int, dict[str, DecodedValues]]]:
        """Yield the decoded columns of consecutive rows from ``start`` to ``end``, with the number of the first row.

        A decoder may end before the last row (see ``DecodedValues``). Then the rows are those of the column that ends
        first, and the other ones are sliced, not decoded again.
        """
        if not columns:
            yield start, {}
            return
        column, *others = columns
        headers = arrays.get(_HEADERS)
        while start < end:
            values = arrays[column].slice(start, end - start)
            decoded = self._decoders[column].decode(
                values, None if headers is None else headers.slice(start, end - start)
            )
            decoded_end = start + len(decoded.values)
            if not others:
                yield start, {column: decoded}
            else:
                for inner_start, inner in self._decode_columns(others, arrays, start, decoded_end):
                    rows = len(next(iter(inner.values())).values)
                    yield inner_start, {column: decoded.slice(inner_start - start, rows), **inner}
            start = decoded_end

    def _apply_mode(
        self,
        arrays: dict[str, pa.Array],
        decoded: Mapping[str, DecodedValues],
        rows: int,
        topic_partition: TopicPartition,
    ) -> pa.RecordBatch:
        """Return the wanted columns of some records, in which malformed ones are treated as ``mode`` says."""
        malformed: dict[str, MalformedValues] = {}
        originals = {column: arrays[column] for column in decoded}
        for column, (values, malformed_values) in decoded.items():
            arrays[column] = values
            if malformed_values is not None:
                malformed[column] = malformed_values
        if malformed and self._settings.mode == "FAILFAST":
            raise first_error(malformed, originals, self._decoders, arrays[_OFFSET], topic_partition)
        self._decoded[topic_partition] += rows
        malformed_rows = is_malformed(malformed) if malformed else None
        # Both sides of a malformed record can have a field for original bytes, even if only one of them is malformed.
        for column, decoder in self._decoders.items():
            arrays[column] = decoder.with_original_bytes(arrays[column], originals[column], malformed_rows)
        if ERROR_COLUMN in self._columns:
            error_type = self._schema.field(self._columns.index(ERROR_COLUMN)).type
            arrays[ERROR_COLUMN] = error_column(malformed, self._decoders, rows, error_type)
        result = pa.RecordBatch.from_arrays([arrays[column] for column in self._columns], schema=self._schema)
        if malformed_rows is None:
            return result
        self._count(malformed, malformed_rows, topic_partition)
        return result.filter(pc.invert(malformed_rows)) if self._settings.mode == "DROPMALFORMED" else result

    def _count(
        self, malformed: Mapping[str, MalformedValues], malformed_rows: pa.BooleanArray, topic_partition: TopicPartition
    ) -> None:
        """Count malformed records; one with a schema error does not count as malformed, because it may be valid."""
        count = malformed_rows.true_count
        schema_rows = has_schema_error(malformed)
        if schema_rows is not None and (with_schema_error := schema_rows.true_count):
            self._with_schema_error[topic_partition] += with_schema_error
            count -= with_schema_error
            for column, values in malformed.items():
                self._schema_errors.add(f"{topic_partition.topic}, {column}s", values)
        if count:
            self._malformed[topic_partition] += count
