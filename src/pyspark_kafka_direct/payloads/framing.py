"""Bytes in front of the data of a value: Confluent's schema ids, message indexes, and Avro's single-object encoding.

    Confluent       00, id (4 bytes, big-endian), data             in a value, or without data in a header
                    01, GUID (16 bytes), data
    Protobuf        ... id or GUID, message indexes, data          the indexes: zigzag varints, their number first;
                                                                   00 is short for [0]
    single object   C3 01, fingerprint (8 bytes, little-endian), data

Distinct ids are found by Arrow. Python sees each of them once for a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.options.registry_settings import ID_FRAMINGS
from pyspark_kafka_direct.payloads.avro.avro_encoding import zigzag
from pyspark_kafka_direct.payloads.decoded_values import MalformedValues
from pyspark_kafka_direct.payloads.writer_schemas import FramedValues

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.options.payload_settings import SidePayload

HEADER_NAMES: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}
"""Of the headers with schema ids."""

NO_MAGIC: Final = "the value does not begin with the magic byte of a schema id (0 or 1)"
NO_ID: Final = "the value ends within its schema id"
NO_HEADER_ID: Final = "the header with the schema id of the value has no valid id"
NO_MARKER: Final = "the value does not begin with the marker of Avro's single-object encoding (C3 01)"
NO_FINGERPRINT: Final = "the value ends within the fingerprint of its schema"
NO_FRAMING: Final = (NO_MAGIC, NO_MARKER)  # reasons of values that may have no framing
NO_INDEXES: Final = "the value has no valid message indexes behind its schema id"

_MAGIC_ID: Final = b"\0"
_MAGIC_GUID: Final = b"\1"
_ID_BYTES: Final = 5
_GUID_BYTES: Final = 17
_MARKER: Final = b"\xc3\x01"
_OBJECT_BYTES: Final = 10

FIRST_MESSAGE: Final = (0,)
NO_MESSAGE: Final[tuple[int, ...]] = ()
"""The indexes of a malformed value that has a schema id, but no valid message indexes."""

_MAX_INDEXES: Final = 100  # levels of messages within messages
_MAX_VARINT_BYTES: Final = 5

_EMPTY_CRC: Final = 0xC15D213AA4D7A795
"""The CRC-64-AVRO of no bytes, which is also its polynomial."""


class FramedMessages(NamedTuple):
    """As ``FramedValues``, with the message of each value."""

    starts: pa.Int32Array
    writers: pa.Int32Array  # of each value: an index of messages, or null
    messages: tuple[tuple[int | str, tuple[int, ...]], ...]  # schema ids and message indexes
    malformed: MalformedValues | None


@dataclass(frozen=True, slots=True)
class ConfluentFraming:
    """Ids in front of the data. Those of a header take precedence, as in Confluent's ``DualSchemaIdDeserializer``."""

    header: str | None = None  # the name of the header

    @property
    def needs_headers(self) -> bool:
        """Whether it reads the headers of records."""
        return self.header is not None

    def split(self, values: pa.BinaryArray, headers: pa.ListArray | None) -> FramedValues:
        """Find the ids of values."""
        if self.header is None or headers is None:
            return split_ids(values)
        header_values = _last_headers(headers, self.header)
        if header_values.null_count == len(values):
            return split_ids(values)
        # The ids of headers are framed as those of values, without data.
        has_header = header_values.is_valid()
        found = split_ids(pc.if_else(pc.and_(has_header, values.is_valid()), header_values, values))
        starts = pc.if_else(has_header, pa.scalar(0, pa.int32()), found.starts)
        malformed = found.malformed
        if malformed is not None:  # an error in a header has no position in the value
            reasons = pc.if_else(has_header, NO_HEADER_ID, malformed.reasons.dictionary_decode())
            malformed = _malformed(
                malformed.reasons.is_valid(), reasons, pc.if_else(has_header, 0, malformed.positions)
            )
        return FramedValues(values, starts, found.writers, found.schema_ids, malformed)


def id_framing(payload: SidePayload) -> ConfluentFraming:
    """Return the framing ``confluent`` or ``header`` of keys or values."""
    return ConfluentFraming(HEADER_NAMES[payload.side] if payload.framing == "header" else None)


class WrittenId(NamedTuple):
    """The id of a schema as a sink writes it: in front of values, in a header, or not at all."""

    prefix: bytes = b""  # of each value
    header: tuple[str, bytes] | None = None  # name and value of a header of each record


def written_id(payload: SidePayload) -> WrittenId:
    """Return where a sink writes the id of the schema: nowhere with the framings ``none`` and ``single-object``."""
    schema_id = payload.schema_id
    if schema_id is None or payload.framing not in ID_FRAMINGS:
        return WrittenId()
    framed_id = schema_id_prefix(schema_id if isinstance(schema_id, int) else UUID(schema_id))
    if payload.framing == "confluent":
        return WrittenId(prefix=framed_id)
    return WrittenId(header=(HEADER_NAMES[payload.side], framed_id))


@dataclass(frozen=True, slots=True)
class SingleObjectFraming:
    """Avro's single-object encoding: the ids are the fingerprints as hexadecimal numbers."""

    needs_headers: bool = False

    def split(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> FramedValues:
        """Find the fingerprints of values."""
        return split_fingerprints(values)


def split_ids(values: pa.BinaryArray) -> FramedValues:
    """Find the schema ids or GUIDs in front of the data."""
    starts: pa.Array = pa.repeat(pa.scalar(_ID_BYTES, pa.int32()), len(values))
    framed = _split_one_or_two_ids(values, starts)
    if framed is not None:
        return framed
    lengths = pc.binary_length(values)
    magic = pc.binary_slice(values, 0, 1)
    with_id = pc.and_(pc.equal(magic, _MAGIC_ID), pc.greater_equal(lengths, _ID_BYTES))
    prefixes = pc.binary_slice(values, 0, _ID_BYTES)
    malformed = None
    if not _is_true_or_null(with_id):
        with_guid = pc.and_(pc.equal(magic, _MAGIC_GUID), pc.greater_equal(lengths, _GUID_BYTES))
        guids = pc.binary_slice(values, 0, _GUID_BYTES)
        prefixes = pc.if_else(with_id, prefixes, pc.if_else(with_guid, guids, pa.scalar(None, pa.binary())))
        starts = pc.if_else(with_guid, pa.scalar(_GUID_BYTES, pa.int32()), starts)
        has_magic = pc.is_in(magic, pa.array([_MAGIC_ID, _MAGIC_GUID]))
        malformed = _malformed(
            pc.and_(values.is_valid(), prefixes.is_null()),
            pc.if_else(has_magic, NO_ID, NO_MAGIC),
            pc.if_else(has_magic, lengths, 0),
        )
    return _framed(values, starts, prefixes, _parse_id, malformed)


def _split_one_or_two_ids(values: pa.BinaryArray, starts: pa.Int32Array) -> FramedValues | None:
    """Find the ids of values that have at most two, or return None if the values may be different.

    Most batches have one schema, and most others two. For these, this is faster than to slice all values.
    """
    first = values[0].as_py() if len(values) else None
    if first is None or first[:1] != _MAGIC_ID or len(first) < _ID_BYTES or values.null_count:
        return None
    prefix = first[:_ID_BYTES]
    has_first = pc.starts_with(values, prefix)
    other_row = pc.index(has_first, False).as_py()
    if other_row < 0:
        return FramedValues(values, starts, writers=None, schema_ids=(_parse_id(prefix),), malformed=None)
    other_prefix = values[other_row].as_py()[:_ID_BYTES]
    has_other = pc.starts_with(values, other_prefix)
    is_id = other_prefix[:1] == _MAGIC_ID and len(other_prefix) == _ID_BYTES
    if not is_id or not pc.all(pc.or_(has_first, has_other)).as_py():
        return None
    ids = (_parse_id(prefix), _parse_id(other_prefix))
    return FramedValues(values, starts, writers=has_other.cast(pa.int32()), schema_ids=ids, malformed=None)


def split_fingerprints(values: pa.BinaryArray) -> FramedValues:
    """Find the fingerprints in front of the data."""
    lengths = pc.binary_length(values)
    has_marker = pc.equal(pc.binary_slice(values, 0, len(_MARKER)), _MARKER)
    with_fingerprint = pc.and_(has_marker, pc.greater_equal(lengths, _OBJECT_BYTES))
    prefixes = pc.binary_slice(values, 0, _OBJECT_BYTES)
    malformed = None
    if not _is_true_or_null(with_fingerprint):
        prefixes = pc.if_else(with_fingerprint, prefixes, pa.scalar(None, pa.binary()))
        malformed = _malformed(
            pc.and_(values.is_valid(), prefixes.is_null()),
            pc.if_else(has_marker, NO_FINGERPRINT, NO_MARKER),
            pc.if_else(has_marker, lengths, 0),
        )
    starts = pa.repeat(pa.scalar(_OBJECT_BYTES, pa.int32()), len(values))
    return _framed(values, starts, prefixes, lambda prefix: fingerprint_id(prefix[len(_MARKER) :]), malformed)


def begins_with_id(value: bytes) -> bool:
    """Return whether a value may begin with a schema id or GUID."""
    return value[:1] in (_MAGIC_ID, _MAGIC_GUID) and len(value) >= _ID_BYTES


def schema_id_prefix(schema_id: int | UUID) -> bytes:
    """Return the bytes in front of a value with a schema id or GUID."""
    if isinstance(schema_id, UUID):
        return _MAGIC_GUID + schema_id.bytes
    return _MAGIC_ID + schema_id.to_bytes(_ID_BYTES - 1, "big")


def message_indexes_prefix(indexes: tuple[int, ...]) -> bytes:
    """Return the bytes between the schema id and a Protobuf message."""
    return zigzag(0) if indexes == FIRST_MESSAGE else b"".join(map(zigzag, (len(indexes), *indexes)))


def single_object_prefix(fingerprint: bytes) -> bytes:
    """Return the bytes in front of a value in Avro's single-object encoding."""
    return _MARKER + fingerprint


def fingerprint_id(fingerprint: bytes) -> str:
    """Return the id of a schema by the eight bytes of its fingerprint."""
    return fingerprint[::-1].hex()


def crc64_avro(data: bytes) -> bytes:
    """Return the fingerprint of a schema in Parsing Canonical Form (Avro's specification, "Schema Fingerprints")."""
    table = _crc_table()
    crc = _EMPTY_CRC
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc.to_bytes(8, "little")


def split_message_indexes(framed: FramedValues) -> FramedMessages:
    """Find the message indexes behind the schema ids of Protobuf values."""
    values, writers = framed.values, framed.writer_indexes()
    starts = pa.repeat(pa.scalar(0, pa.int32()), len(values)) if framed.starts is None else framed.starts
    next_bytes: pa.Array = pa.nulls(len(values), pa.binary())
    # Arrow slices all values of an array at the same position. An id has one of few lengths.
    for start in pc.unique(starts).drop_null().to_pylist():
        next_bytes = pc.if_else(pc.equal(starts, start), pc.binary_slice(values, start, start + 1), next_bytes)
    is_first = pc.equal(next_bytes, b"\0")  # the index of most messages is [0], which is one byte
    if _is_true_or_null(pc.if_else(writers.is_valid(), is_first, None)):  # then no value has to be parsed in Python
        messages = tuple((schema_id, FIRST_MESSAGE) for schema_id in framed.schema_ids)
        return FramedMessages(pc.add(starts, 1), writers, messages, framed.malformed)
    return _parse_message_indexes(framed, starts, writers)


def _parse_message_indexes(framed: FramedValues, starts: pa.Int32Array, writers: pa.Int32Array) -> FramedMessages:
    messages: dict[tuple[int | str, tuple[int, ...]], int] = {}  # their indexes
    new_starts, new_writers = starts.to_pylist(), writers.to_pylist()
    failed = [False] * len(framed.values)
    for row, (value, start, writer) in enumerate(zip(framed.values.to_pylist(), new_starts, new_writers, strict=True)):
        if writer is None:  # the value is null, or malformed already
            continue
        parsed = parse_message_indexes(value, start)
        if parsed is None:
            failed[row], indexes = True, NO_MESSAGE
        else:
            indexes, new_starts[row] = parsed
        new_writers[row] = messages.setdefault((framed.schema_ids[writer], indexes), len(messages))
    malformed = _with_invalid_indexes(framed.malformed, pa.array(failed), starts) if any(failed) else framed.malformed
    return FramedMessages(
        pa.array(new_starts, pa.int32()), pa.array(new_writers, pa.int32()), tuple(messages), malformed
    )


def _with_invalid_indexes(
    malformed: MalformedValues | None, has_invalid_indexes: pa.BooleanArray, starts: pa.Int32Array
) -> MalformedValues | None:
    """Add the values whose message indexes, which begin at ``starts``, are not valid."""
    rows = len(starts)
    reasons = pa.nulls(rows, pa.string()) if malformed is None else malformed.reasons.dictionary_decode()
    positions = pa.nulls(rows, pa.int32()) if malformed is None else malformed.positions
    return _malformed(
        pc.or_(has_invalid_indexes, reasons.is_valid()),
        pc.if_else(has_invalid_indexes, NO_INDEXES, reasons),
        pc.if_else(has_invalid_indexes, starts, positions),
    )


def parse_message_indexes(value: bytes, start: int) -> tuple[tuple[int, ...], int] | None:
    """Return the indexes and the first byte behind them, or None if there are no valid ones."""
    count, position = _parse_varint(value, start)
    if count == 0:
        return FIRST_MESSAGE, position
    if not 0 < count <= _MAX_INDEXES:
        return None
    indexes = []
    for _ in range(count):
        index, position = _parse_varint(value, position)
        if index < 0:
            return None
        indexes.append(index)
    return tuple(indexes), position


def _parse_varint(value: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag varint and the next position, or -1 if it is not valid."""
    number = 0
    for index in range(_MAX_VARINT_BYTES):
        if position + index >= len(value):
            break
        byte = value[position + index]
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position + index + 1
    return -1, position


def _framed(
    values: pa.BinaryArray,
    starts: pa.Int32Array,
    prefixes: pa.BinaryArray,
    parse: Callable[[bytes], int | str],
    malformed: MalformedValues | None,
) -> FramedValues:
    """Return values with the ids of their prefixes, each of which is parsed once; null is the prefix of no id."""
    encoded = prefixes.dictionary_encode()
    ids = tuple(parse(prefix) for prefix in encoded.dictionary.to_pylist())
    writers = None if len(ids) == 1 and not encoded.indices.null_count else encoded.indices
    return FramedValues(values, starts, writers, ids, malformed)


def _parse_id(prefix: bytes) -> int | str:
    if len(prefix) == _ID_BYTES:
        return int.from_bytes(prefix[1:], "big")
    return str(UUID(bytes=prefix[1:]))


def _malformed(mask: pa.BooleanArray, reasons: pa.StringArray, positions: pa.Int32Array) -> MalformedValues | None:
    """Return the reasons of those values that are malformed."""
    if not pc.any(mask).as_py():
        return None
    none = pa.scalar(None, pa.string())
    return MalformedValues(
        pc.if_else(mask, reasons, none).dictionary_encode(),
        pc.if_else(mask, positions.cast(pa.int32()), pa.scalar(None, pa.int32())),
    )


def _is_true_or_null(mask: pa.BooleanArray) -> bool:
    return pc.all(mask).as_py() in (True, None)


def _last_headers(headers: pa.ListArray, name: str) -> pa.BinaryArray:
    """Return the value of the last header with a name of each record, null if there is none."""
    entries = headers.flatten()
    matches = pc.equal(entries.field("key"), name)
    # Reversed, because index_in finds the first one.
    rows = pc.list_parent_indices(headers).filter(matches)[::-1]
    values = entries.field("value").filter(matches)[::-1]
    found = pc.index_in(pa.array(range(len(headers)), rows.type), value_set=rows)
    return values.take(found)


@lru_cache(maxsize=1)
def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_EMPTY_CRC & -(crc & 1))
        table.append(crc)
    return tuple(table)
