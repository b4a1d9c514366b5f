"""Kafka's protocol messages: tables of their fields, and one codec for all of them.

    request frame     INT32 size, then INT16 api key, INT16 api version, INT32 correlation id, STRING client id
                      (a plain one in every version), [flexible: TAG_BUFFER], then the body
    response header   INT32 correlation id, [flexible, but never for ApiVersions: TAG_BUFFER], then the body

Kafka's protocol guide has the primitive types; ``wire/_cursor.py`` lists them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.wire._cursor import MalformedError, read_unsigned_varint
from pyspark_kafka_direct.wire.messages._fields import Api
from pyspark_kafka_direct.wire.messages._reading import reader
from pyspark_kafka_direct.wire.messages._tables import (
    API_VERSIONS,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from pyspark_kafka_direct.wire.messages._tables_produce import INIT_PRODUCER_ID, PRODUCE
from pyspark_kafka_direct.wire.messages._tables_topics import CREATE_TOPICS, DESCRIBE_CONFIGS
from pyspark_kafka_direct.wire.messages._tables_transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
)
from pyspark_kafka_direct.wire.messages._writing import Parts, writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.wire.messages._writing import Writer

__all__ = [
    "ADD_OFFSETS_TO_TXN",
    "ADD_PARTITIONS_TO_TXN",
    "API_VERSIONS",
    "CREATE_TOPICS",
    "DESCRIBE_CONFIGS",
    "END_TXN",
    "FIND_COORDINATOR",
    "INIT_PRODUCER_ID",
    "LIST_OFFSETS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "PRODUCE",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "TXN_OFFSET_COMMIT",
    "Api",
    "decode",
    "encode",
    "encode_body",
    "encode_parts",
]

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")
_UNSUPPORTED_VERSION = struct.pack(">h", 35)


def encode(api: Api, version: int, correlation_id: int, client_id: bytes, values: Mapping[str, Any]) -> bytes:
    """Encode one framed request, header included.

    Raises:
        ValueError: A value that this version of the request cannot say.
    """
    return b"".join(encode_parts(api, version, correlation_id, client_id, values))


def encode_parts(
    api: Api, version: int, correlation_id: int, client_id: bytes, values: Mapping[str, Any]
) -> list[bytes | bytearray]:
    """Encode one framed request, as parts that follow one another; records are parts as they were given.

    Raises:
        ValueError: A value that this version of the request cannot say.
    """
    header = _HEADER.pack(api.key, version, correlation_id, len(client_id)) + client_id
    if api.is_flexible(version):
        header += b"\0"
    body = Parts()
    _writer(api, version)(body, values)
    parts = body.in_order()
    size = len(header) + sum(map(len, parts))
    return [_SIZE.pack(size) + header + parts[0], *parts[1:]]


def encode_body(api: Api, version: int, values: Mapping[str, Any]) -> bytes:
    """Encode what follows a request's header.

    Raises:
        ValueError: A value that this version of the request cannot say.
    """
    out = bytearray()
    _writer(api, version)(out, values)
    return bytes(out)


def decode(api: Api, version: int, body: bytes | memoryview) -> Any:
    """Decode a response to named tuples with the fields of all versions.

    Args:
        api: The request that was sent.
        version: Its version.
        body: What followed the correlation id.

    Raises:
        MalformedError: The bytes are not a response of that version.
    """
    data = bytes(body)
    if api.opens and data[:2] == _UNSUPPORTED_VERSION:
        version = 0
    flexible = api.is_flexible(version)
    read = api._compiled.get(("response", version))
    if read is None:
        read = api._compiled["response", version] = reader(api.response, version, flexible=flexible)
    found: list[Any] = []
    try:
        position = _skip_tags(data) if flexible and not api.opens else 0
        end = read(data, position, found)
    except (IndexError, struct.error):
        raise MalformedError(f"{len(data)} bytes end early") from None
    except UnicodeDecodeError:
        raise MalformedError("a string is not UTF-8") from None
    if end != len(data):
        raise MalformedError(f"{len(data) - end} bytes are left over")
    return found[0]


def _writer(api: Api, version: int) -> Writer:
    write: Writer | None = api._compiled.get(("request", version))
    if write is None:  # two threads may compile the same: the second one's is as good
        write = api._compiled["request", version] = writer(api.request, version, flexible=api.is_flexible(version))
    return write


def _skip_tags(data: bytes) -> int:
    """Skip the tags of a response's header: none are known."""
    count, position = read_unsigned_varint(data, 0)
    for _ in range(count):
        _, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        position += size
        if position > len(data):
            raise IndexError
    return position
