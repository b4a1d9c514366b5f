"""The decoders of Avro and Protobuf alone, on one core, without Kafka and Spark."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.errors import BenchError
from bench.schema_flights import (
    FEW_FIELDS,
    FIELDS,
    HOSTILE,
    HOSTILE_SCHEMA,
    NEWER_SCHEMA_ID,
    PREFIX,
    arrow_fields,
    avro_datums,
    avro_schema,
    damaged,
    flights,
    proto_schema,
    protobuf_messages,
    protobuf_type,
)
from bench.typed import DECODER_BATCH, DecoderCase, decoder_rates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.payloads.avro.schema import AvroSchema

AVRO_ALL, AVRO_FEW, PROTOBUF_ALL, ONE_WRITER, TWO_WRITERS, ONE_PERCENT, NO_DATUM, UPB, HOSTILE_US = (
    "Avro, 14 fields",
    "Avro, 3 of 14 fields",
    "Protobuf, 14 fields",
    "Avro, 14 fields, one writer schema, with the search for schema ids",
    "Avro, 14 fields, two writer schemas in turn, with the search for schema ids",
    "Avro, 14 fields, 1 % malformed",
    "Avro, 14 fields, all malformed",
    "Protobuf, Google's library (upb): a Python object for each record",
    "12 hostile bytes",
)

_DECODED = 300_000
_UPB_SHARE = 10  # of the records, one of so many is decoded to Python objects
_HOSTILE_BATCHES = 20


class _Writers:
    """The writer schemas of the records."""

    def __init__(self, schemas: dict[int | str, AvroSchema]) -> None:
        self._schemas = schemas

    def writer_schema(self, schema_id: int | str) -> AvroSchema:
        return self._schemas[schema_id]


def measure_decoders() -> dict[str, float]:
    """Return the records per second of each case, and the microseconds in which hostile bytes are rejected."""
    from pyspark_kafka_direct.payloads.avro.avro_column import AvroColumn, AvroSettings
    from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
    from pyspark_kafka_direct.payloads.framing import ConfluentFraming
    from pyspark_kafka_direct.payloads.protobuf.protobuf_column import ProtobufColumn
    from pyspark_kafka_direct.payloads.protobuf.schema import ProtobufSource

    rows = list(flights(_DECODED))
    clean = [PREFIX + datum for datum in avro_datums(rows, avro_schema())]
    newer_prefix = b"\0" + NEWER_SCHEMA_ID.to_bytes(4, "big")
    newer = [newer_prefix + datum for datum in avro_datums(rows, avro_schema(newer=True))]
    in_turn = [(clean, newer)[number % 2][number] for number in range(len(rows))]
    all_fields = _avro_decoder(tuple(FIELDS))
    cases = {
        AVRO_ALL: DecoderCase(all_fields, clean),
        AVRO_FEW: DecoderCase(_avro_decoder(FEW_FIELDS), clean),
        ONE_PERCENT: DecoderCase(all_fields, [damaged(value, n, 0.01) for n, value in enumerate(clean)]),
        NO_DATUM: DecoderCase(all_fields, [damaged(value, n, 1.0) for n, value in enumerate(clean)]),
    }
    reader = parse_avro_schema(avro_schema())
    writers = _Writers({1: reader, NEWER_SCHEMA_ID: parse_avro_schema(avro_schema(newer=True))})
    for name, values in ((ONE_WRITER, clean), (TWO_WRITERS, in_turn)):
        column = AvroColumn(_struct(tuple(FIELDS)), AvroSettings(reader, ConfluentFraming(), writers))
        cases[name] = DecoderCase(column.decode, values)
    messages = protobuf_messages(rows)
    cases[PROTOBUF_ALL] = DecoderCase(
        ProtobufColumn(_struct(tuple(FIELDS)), ProtobufSource(proto_schema())).decode, messages
    )
    cases[UPB] = DecoderCase(_upb_decoder(), messages[::_UPB_SHARE])
    return decoder_rates(cases) | {HOSTILE_US: _hostile_microseconds()}


def _avro_decoder(names: Sequence[str]) -> Callable[[pa.Array], object]:
    import pyarrow as pa

    from pyspark_kafka_direct.payloads.avro.avro_values import AvroDecoder
    from pyspark_kafka_direct.payloads.avro.resolution import resolve
    from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema

    fields, root = arrow_fields(names), parse_avro_schema(avro_schema()).root
    decoder = AvroDecoder(fields)
    decoder.add_program(resolve(root, root, fields))
    starts = pa.array([len(PREFIX)] * DECODER_BATCH, pa.int32())
    return lambda batch: decoder.decode(batch, starts.slice(0, len(batch)))


def _upb_decoder() -> Callable[[pa.Array], object]:
    kind = protobuf_type()

    def decode(batch: pa.Array) -> None:
        for value in batch.to_pylist():
            kind.FromString(value)

    return decode


def _hostile_microseconds() -> float:
    """Return the median processor time for a value, of batches of such values."""
    import pyarrow as pa

    from pyspark_kafka_direct.payloads.avro.avro_column import AvroColumn, AvroSettings
    from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
    from pyspark_kafka_direct.payloads.framing import ConfluentFraming

    schema = parse_avro_schema(HOSTILE_SCHEMA)
    writers = _Writers({1: schema})
    column = AvroColumn(pa.struct([("items", pa.list_(pa.null()))]), AvroSettings(schema, ConfluentFraming(), writers))
    values, times = pa.array([HOSTILE] * DECODER_BATCH), []
    for _ in range(_HOSTILE_BATCHES):
        started = time.process_time()
        _, malformed = column.decode(values)
        times.append(time.process_time() - started)
        if malformed is None or malformed.reasons.null_count or "more items" not in malformed.reasons[0].as_py():
            raise BenchError("the hostile values were decoded")
    return sorted(times)[_HOSTILE_BATCHES // 2] / DECODER_BATCH * 1e6


def _struct(names: Sequence[str]) -> pa.StructType:
    import pyarrow as pa

    return pa.struct(list(arrow_fields(names)))
