"""ApiVersions by hand: the first question on every connection, which requests the broker speaks and in which versions.

By hand because importing the protocol library takes a tenth of a second, and a Python worker that only fetches records
needs it for nothing else. Layout, after ``ApiVersionsRequest.json`` and ``ApiVersionsResponse.json`` of Kafka 4.3:

    request 3    COMPACT_STRING client software name, COMPACT_STRING client software version, TAG_BUFFER     (KIP-511)
    request 0    nothing
    response 3   INT16 error code, COMPACT_ARRAY of (INT16 api key, INT16 lowest, INT16 highest, TAG_BUFFER),
                 INT32 throttle time ms, TAG_BUFFER (features)
    response 0   INT16 error code, ARRAY of (INT16 api key, INT16 lowest, INT16 highest)

A broker that does not know the version asked for answers UNSUPPORTED_VERSION in version 0, whatever was asked.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark_kafka_direct.wire._cursor import Cursor, unsigned_varint

API_KEY = 18
NEWEST_VERSION = 3
_FLEXIBLE_FROM = 3


class ApiVersions(NamedTuple):
    """A broker's answer.

    Attributes:
        error_code: See ``codes``.
        versions: API key to lowest and highest version.
    """

    error_code: int
    versions: dict[int, tuple[int, int]]


def is_flexible(version: int) -> bool:
    """Whether the request's header ends with a tag buffer."""
    return version >= _FLEXIBLE_FROM


def encode_request(version: int, software: str, software_version: str) -> bytes:
    """Body of the request, layout above."""
    if not is_flexible(version):
        return b""
    return _compact_string(software) + _compact_string(software_version) + b"\0"


def parse_response(body: memoryview, version: int, unsupported: int) -> ApiVersions:
    """Parse the answer, layout above.

    Args:
        body: What follows the correlation id (this response's header never has tags).
        version: Version of the request.
        unsupported: The error code UNSUPPORTED_VERSION, after which the rest is in version 0.

    Raises:
        MalformedError: The bytes end early.
    """
    cursor = Cursor(body)
    error_code = cursor.int16()
    flexible = is_flexible(version) and error_code != unsupported
    versions = {}
    for _ in range(cursor.count(flexible, least=6)):
        key, lowest, highest = cursor.int16(), cursor.int16(), cursor.int16()
        versions[key] = (lowest, highest)
        if flexible:
            cursor.tags()
    return ApiVersions(error_code, versions)


def _compact_string(text: str) -> bytes:
    encoded = text.encode()
    return unsigned_varint(len(encoded) + 1) + encoded
