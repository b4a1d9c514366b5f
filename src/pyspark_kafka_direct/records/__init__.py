"""Kafka record batches to Arrow and back: an interface for each direction, with a native and a Python implementation.

A decoder reads one offset range of one partition. It is fed the record bytes of fetch responses and returns Arrow
record batches with exactly the wanted columns::

    decoder = create_decoder(topic="flights", partition=0, from_offset=0, until_offset=1000, columns=("key", "value"))
    while not decoder.done:
        decoder.feed(fetch(decoder.next_offset))
        while (batch := decoder.read()) is not None:
            ...

An encoder writes rows of one topic, and returns Kafka record batches as they fill. The producer's id, epoch and
sequence number are written into a batch just before it is sent::

    encoder = create_encoder(topic="flights", partitions=6, codec="lz4")
    for batch in (*encoder.add(rows), *encoder.flush()):
        set_producer_state(batch.data, producer_id, epoch, sequence, transactional=False)
        send(batch.partition, batch.data)

A JSON decoder turns a column of values into a column of structs with the wanted fields::

    decoder = create_json_decoder(pa.schema({"origin": pa.string(), "delay": pa.float64()}))
    structs, malformed = decoder.decode(batch.column("value"))

An Avro decoder does the same for datums, by a program for each writer schema (records/avro_values.py), and a Protobuf
decoder for messages, by the program of their type (records/protobuf_values.py). Encoders write a column as datums
(records/avro_encoding.py) or messages (records/protobuf_encoding.py).

The native implementation (``rust/``) is used if it was built. The Python one does the same, much more slowly: it
replaces a missing native one, and is the reference in its tests. The environment variable
``PYSPARK_KAFKA_DIRECT_DECODER`` (``native`` or ``python``) selects one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pyspark_kafka_direct.config.client_settings import DEFAULT_MAX_RECORD_BATCH_BYTES
from pyspark_kafka_direct.records.columns import COLUMNS, arrow_schema
from pyspark_kafka_direct.records.implementation import select_implementation
from pyspark_kafka_direct.records.interfaces import (
    AbortedTransaction,
    DecodeCounts,
    DecodeRequest,
    EncodedBatch,
    EncodeRequest,
    RecordDecoder,
    RecordEncoder,
    WritableBytes,
)
from pyspark_kafka_direct.records.json_values import (
    DEFAULT_TIME_ZONE,
    MAX_DECODED_BYTES,
    DecodedValues,
    JsonDecoder,
    JsonRequest,
    MalformedValues,
)
from pyspark_kafka_direct.records.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.config.client_settings import CompressionType
    from pyspark_kafka_direct.records.avro_values import AvroDecoder
    from pyspark_kafka_direct.records.encoded_values import PayloadEncoder, PayloadEncoding
    from pyspark_kafka_direct.records.protobuf_values import ProtobufDecoder, ProtobufProgram

__all__ = [
    "COLUMNS",
    "IMPLEMENTATION",
    "NATIVE_MISSING_REASON",
    "AbortedTransaction",
    "DecodeCounts",
    "DecodedValues",
    "EncodedBatch",
    "JsonDecoder",
    "MalformedValues",
    "RecordDecoder",
    "RecordEncoder",
    "WritableBytes",
    "arrow_schema",
    "create_avro_decoder",
    "create_avro_encoder",
    "create_decoder",
    "create_encoder",
    "create_json_decoder",
    "create_protobuf_decoder",
    "create_protobuf_encoder",
    "encode_json",
    "is_abort_marker",
    "is_valid_batch",
    "partition_for_key",
    "scan_batches",
    "scan_leader_epoch",
    "set_producer_state",
    "split_batch",
]

_selected = select_implementation()

IMPLEMENTATION: Final[Literal["native", "python"]] = _selected.name
"""The implementation that this process uses."""

NATIVE_MISSING_REASON: Final[str] = _selected.native_missing_reason
"""Why the Python implementation is used without having been selected; else empty."""

scan_batches = _selected.scan_batches
scan_leader_epoch = _selected.scan_leader_epoch
is_abort_marker = _selected.is_abort_marker
set_producer_state = _selected.set_producer_state
is_valid_batch = _selected.is_valid_batch
split_batch = _selected.split_batch
encode_json = _selected.encode_json


def create_decoder(
    *,
    topic: str,
    partition: int,
    from_offset: int,
    until_offset: int,
    columns: Sequence[str],
    check_crcs: bool = True,
    max_rows: int = 65536,  # of an Arrow batch
    # Of an Arrow batch: its records' decompressed size, and the additional size of wanted headers as columns. A single
    # larger record is returned alone.
    max_bytes: int = 4 << 20,
    max_batch_bytes: int = DEFAULT_MAX_RECORD_BATCH_BYTES,  # of a decompressed record batch, and of a record
    # Whether record batches that are wholly in the range are counted by their headers: their records are not returned,
    # and their checksums not verified. Formats 0 and 1 have no counts, and are decoded.
    count_only: bool = False,
) -> RecordDecoder:
    """Create a decoder of one offset range; an argument out of its range is a ValueError."""
    return _selected.create_decoder(
        DecodeRequest(
            topic,
            partition,
            from_offset,
            until_offset,
            tuple(columns),
            check_crcs,
            max_rows,
            max_bytes,
            max_batch_bytes,
            count_only,
        )
    )


def create_encoder(
    *,
    topic: str,
    partitions: int,
    codec: CompressionType = "none",
    level: int | None = None,  # the codec's default
    batch_bytes: int = 524_288,  # of a batch's uncompressed records; a single larger record gets its own batch
    max_record_bytes: int = 1_048_576,  # uncompressed
    ignore_keys: bool = False,  # when a partition is chosen
    first_sticky_partition: int = 0,  # of rows without a key; any number, of which the modulo is used
) -> RecordEncoder:
    """Create an encoder of one topic's records; an argument out of its range is a ValueError."""
    return _selected.create_encoder(
        EncodeRequest(
            topic,
            partitions,
            codec,
            level,
            batch_bytes,
            max_record_bytes,
            ignore_keys,
            first_sticky_partition,
        )
    )


def create_json_decoder(
    fields: pa.Schema | None,
    corrupt_record: str = "",
    time_zone: str = DEFAULT_TIME_ZONE,
    max_bytes: int = MAX_DECODED_BYTES,
) -> JsonDecoder:
    """Create a decoder of the wanted fields, or of VARIANTs; a type that JSON cannot be decoded to is a ValueError."""
    return _selected.create_json_decoder(JsonRequest(fields, corrupt_record, time_zone, max_bytes))


def create_avro_decoder(fields: pa.Schema, max_bytes: int = MAX_DECODED_BYTES) -> AvroDecoder:
    """Create a decoder of the wanted fields; a type that Avro cannot be decoded to is a ValueError."""
    from pyspark_kafka_direct.records.avro_values import AvroRequest  # most tasks do not need it

    return _selected.create_avro_decoder(AvroRequest(fields, max_bytes))


def create_avro_encoder(encoding: PayloadEncoding) -> PayloadEncoder:
    """Create an encoder of Avro for one Arrow type, whose columns have the types that ``encodable`` returns."""
    return _selected.create_avro_encoder(encoding)


def create_protobuf_decoder(
    fields: pa.Schema, program: ProtobufProgram, max_bytes: int = MAX_DECODED_BYTES
) -> ProtobufDecoder:
    """Create a decoder of the wanted fields; a program that does not fit them is a ValueError."""
    from pyspark_kafka_direct.records.protobuf_values import ProtobufRequest  # most tasks do not need it

    return _selected.create_protobuf_decoder(ProtobufRequest(fields, program, max_bytes))


def create_protobuf_encoder(encoding: PayloadEncoding) -> PayloadEncoder:
    """Create an encoder of Protobuf for one Arrow type, whose columns have the types that ``encodable`` returns."""
    return _selected.create_protobuf_encoder(encoding)
