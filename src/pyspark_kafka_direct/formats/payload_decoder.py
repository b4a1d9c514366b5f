"""Decodes the keys and values of one task's record batches."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.errors import MalformedPayloadError
from pyspark_kafka_direct.records import create_json_decoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_kafka_direct.config.payload_settings import PayloadSettings
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.records import JsonDecoder, MalformedValue

_log = logging.getLogger("pyspark_kafka_direct.formats")

_OFFSET = "offset"


class PayloadDecoder:
    """Replaces the columns ``key`` and ``value`` by decoded ones, and applies ``mode`` to malformed records."""

    def __init__(
        self,
        settings: PayloadSettings,
        columns: Sequence[str],  # the names in Kafka records
        schema: pa.Schema,  # of the decoded batches: these columns, perhaps with other names
        topic_partition: TopicPartition,
    ) -> None:
        self._settings = settings
        self._schema = schema
        self._topic_partition = topic_partition
        self._dropped = 0
        # An error of FAILFAST names the offset.
        self.record_columns = (*columns, *([_OFFSET] if settings.mode == "FAILFAST" and _OFFSET not in columns else []))
        self._string_columns: list[int] = []
        self._json_decoders: dict[int, JsonDecoder] = {}
        for index, column in enumerate(columns):
            match settings.format_of(column):
                case "string":
                    self._string_columns.append(index)
                case "json":
                    fields = pa.schema(list(schema.field(index).type))
                    self._json_decoders[index] = create_json_decoder(fields, settings.corrupt_record)

    def decode(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the decoded batches, without those of which all records are dropped."""
        for batch in batches:
            decoded = self._decode_batch(batch)
            if decoded.num_rows:
                yield decoded
        if self._dropped:
            _log.warning(
                "%s: %d malformed records were dropped (mode=DROPMALFORMED)", self._topic_partition, self._dropped
            )

    def _decode_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = batch.columns[: len(self._schema)]
        for index in self._string_columns:
            arrays[index] = _as_string(arrays[index])
        malformed: pa.BooleanArray | None = None
        for index, decoder in self._json_decoders.items():
            decoded = decoder.decode(arrays[index])
            arrays[index] = decoded.structs
            if decoded.first_malformed is not None:
                if self._settings.mode == "FAILFAST":
                    raise self._malformed(batch, index, decoded.first_malformed)
                malformed = decoded.malformed if malformed is None else pc.or_(malformed, decoded.malformed)
        result = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if malformed is None or self._settings.mode != "DROPMALFORMED":
            return result
        result = result.filter(pc.invert(malformed))
        self._dropped += batch.num_rows - result.num_rows
        return result

    def _malformed(self, batch: pa.RecordBatch, index: int, first: MalformedValue) -> MalformedPayloadError:
        column = self.record_columns[index]
        offset = batch.column(self.record_columns.index(_OFFSET))[first.row].as_py()
        return MalformedPayloadError(
            f"The {column} cannot be decoded as JSON: {first.reason}, at byte {first.position}. Set mode=PERMISSIVE to "
            "read what cannot be decoded as null, or mode=DROPMALFORMED to drop the record.",
            topic=self._topic_partition.topic,
            partition=self._topic_partition.partition,
            offset=offset,
        )


def _as_string(column: pa.BinaryArray) -> pa.StringArray:
    """Return bytes as strings without a copy or a check: as in Spark, a cast accepts invalid UTF-8."""
    validity, offsets, data = column.buffers()
    return pa.StringArray.from_buffers(len(column), offsets, data, validity, column.null_count, column.offset)
