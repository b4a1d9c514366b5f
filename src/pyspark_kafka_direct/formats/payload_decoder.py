"""Decodes the keys and values of a task's record batches."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.config.payload_settings import ERROR_COLUMN
from pyspark_kafka_direct.formats.malformed_records import error_column, first_error, is_malformed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_kafka_direct.config.payload_settings import PayloadSettings
    from pyspark_kafka_direct.formats.payload_column import PayloadColumn
    from pyspark_kafka_direct.formats.protobuf.registry_messages import WriterMessages
    from pyspark_kafka_direct.formats.user_decoder import UserDecoder
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.records import MalformedValues

_log = logging.getLogger("pyspark_kafka_direct.formats")

_OFFSET = "offset"
_HEADERS = "headers"


class DecodedColumns(NamedTuple):
    """What tasks decode. Pickled into them."""

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
        self._malformed: Counter[TopicPartition] = Counter()
        record_columns = [column for column in columns if column != ERROR_COLUMN]
        if settings.mode == "FAILFAST" and _OFFSET not in columns:
            record_columns.append(_OFFSET)  # error messages contain it
        self._string_columns: list[str] = []
        self._user_decoders: dict[str, UserDecoder] = {}
        self._typed_columns: dict[str, PayloadColumn] = {}
        for index, column in enumerate(columns):
            data_type = schema.field(index).type
            match settings.format_of(column):
                case "binary":
                    pass
                case "string":
                    self._string_columns.append(column)
                case "json" | "avro" | "protobuf":
                    self._typed_columns[column] = _typed_column(column, data_type, settings, time_zone)
                case factory_name:
                    from pyspark_kafka_direct.formats.user_decoder import UserDecoder

                    self._user_decoders[column] = UserDecoder(column, factory_name, data_type)
        self._shows_malformed = ERROR_COLUMN in columns or all(
            typed_column.shows_malformed for typed_column in self._typed_columns.values()
        )
        needs_headers = any(typed_column.needs_headers for typed_column in self._typed_columns.values())
        if needs_headers and _HEADERS not in columns:
            record_columns.append(_HEADERS)
        self.record_columns = tuple(record_columns)

    def decode(self, batches: Iterator[pa.RecordBatch], topic_partition: TopicPartition) -> Iterator[pa.RecordBatch]:
        """Yield the decoded batches, without those of which all records are dropped."""
        for batch in batches:
            decoded = self.decode_batch(batch, topic_partition)
            if decoded.num_rows:
                yield decoded

    def take_malformed(self) -> Counter[TopicPartition]:
        """Return how many records were malformed since the last call, and log it unless a column shows them."""
        malformed, self._malformed = self._malformed, Counter()
        if self._settings.mode == "DROPMALFORMED":
            effect = "were dropped (mode=DROPMALFORMED)"
        else:
            effect = f"were read as null (mode=PERMISSIVE); the column {ERROR_COLUMN} would say why"
            if self._shows_malformed:
                return malformed
        for topic_partition, count in malformed.items():
            _log.warning("%s: %d malformed records %s", topic_partition, count, effect)
        return malformed

    def decode_batch(self, batch: pa.RecordBatch, topic_partition: TopicPartition) -> pa.RecordBatch:
        """Decode a batch that begins with ``record_columns``."""
        arrays: dict[str, pa.Array] = dict(zip(self.record_columns, batch.columns, strict=False))
        for column in self._string_columns:
            arrays[column] = _as_string(arrays[column])
        for column, decoder in self._user_decoders.items():
            arrays[column] = decoder.decode(arrays[column])
        malformed: dict[str, MalformedValues] = {}
        originals = {column: arrays[column] for column in self._typed_columns}
        for column, typed_column in self._typed_columns.items():
            decoded = typed_column.decode(originals[column], arrays.get(_HEADERS))
            arrays[column] = decoded.values
            if decoded.malformed is not None:
                malformed[column] = decoded.malformed
        if malformed and self._settings.mode == "FAILFAST":
            format_names = {column: typed_column.format_name for column, typed_column in self._typed_columns.items()}
            raise first_error(malformed, format_names, arrays[_OFFSET], topic_partition)
        malformed_rows = is_malformed(malformed) if malformed else None
        for column, typed_column in self._typed_columns.items():
            arrays[column] = typed_column.with_original_bytes(arrays[column], originals[column], malformed_rows)
        if ERROR_COLUMN in self._columns:
            error_type = self._schema.field(self._columns.index(ERROR_COLUMN)).type
            arrays[ERROR_COLUMN] = error_column(malformed, batch.num_rows, error_type)
        result = pa.RecordBatch.from_arrays([arrays[column] for column in self._columns], schema=self._schema)
        if malformed_rows is None:
            return result
        self._malformed[topic_partition] += malformed_rows.true_count
        return result.filter(pc.invert(malformed_rows)) if self._settings.mode == "DROPMALFORMED" else result


def _typed_column(column: str, data_type: pa.StructType, settings: PayloadSettings, time_zone: str) -> PayloadColumn:
    # Only the modules of the format are imported.
    if settings.format_of(column) == "json":
        from pyspark_kafka_direct.formats.json_column import JsonColumn

        return JsonColumn(data_type, settings.corrupt_record, time_zone)
    if settings.format_of(column) == "protobuf":
        from pyspark_kafka_direct.formats.protobuf.protobuf_column import ProtobufColumn

        return ProtobufColumn(
            data_type, settings.protobuf_of(column), settings.corrupt_record, writers=_writer_messages(column, settings)
        )
    from pyspark_kafka_direct.formats.avro.avro_column import AvroColumn, given_schema
    from pyspark_kafka_direct.formats.avro.schema import parse_avro_schema

    text, references = settings.avro_schema_of(column) or "", settings.references_of(column)
    if column in settings.single_object:
        from pyspark_kafka_direct.formats.avro.single_object import single_object

        return AvroColumn(data_type, single_object(parse_avro_schema(text, references)), settings.corrupt_record)
    if settings.registry is None or settings.registry.side(column).framing == "none":
        return AvroColumn(data_type, given_schema(parse_avro_schema(text, references)), settings.corrupt_record)
    from pyspark_kafka_direct.formats.avro.registry_schemas import ReaderSchema, registry_avro_settings

    reader = ReaderSchema(text, references, settings.registry.side(column).source)
    return AvroColumn(data_type, registry_avro_settings(settings.registry, column, reader), settings.corrupt_record)


def _writer_messages(column: str, settings: PayloadSettings) -> WriterMessages | None:
    if settings.registry is None or settings.registry.side(column).framing == "none":
        return None
    from pyspark_kafka_direct.formats.protobuf.registry_messages import WriterMessages

    compares = settings.registry.evolution == "restart"
    source = settings.registry.side(column).source
    return WriterMessages(
        settings.registry.settings, settings.protobuf_of(column), source, fails_at_new_fields=compares
    )


def _as_string(column: pa.BinaryArray) -> pa.StringArray:
    """Return bytes as strings without a copy or a check: as in Spark, a cast accepts invalid UTF-8."""
    validity, offsets, data = column.buffers()
    return pa.StringArray.from_buffers(len(column), offsets, data, validity, column.null_count, column.offset)
