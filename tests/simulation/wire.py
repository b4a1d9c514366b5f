"""The bytes of requests and responses on the side of a broker, by the package's message tables or by ``kio``."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.simulation.cluster.replies import SharedElements

from pyspark_kafka_direct.protocol import messages
from pyspark_kafka_direct.protocol.codec import compile_reader, compile_writer
from pyspark_kafka_direct.protocol.description_messages import LIST_GROUPS
from pyspark_kafka_direct.protocol.schema import ApiMessageType, ArrayType, StructSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

APIS: Final[Mapping[int, ApiMessageType]] = {
    api.key: api for api in (*vars(messages).values(), LIST_GROUPS) if isinstance(api, ApiMessageType)
}
_HEADER = struct.Struct(">ihhih")  # size, API key, API version, correlation id, length of the client id
_UNSUPPORTED_VERSION = 35
_RESPONSE_HEADER = struct.Struct(">ii")


class ReceivedRequest(NamedTuple):
    """A request as a broker receives it."""

    api: str
    key: int
    version: int
    correlation_id: int
    client_id: str
    values: Any  # a named tuple with the fields of all versions


def api_of_frame(frame: bytes) -> str:
    """Return the name of a request from its bytes."""
    return APIS[struct.unpack_from(">h", frame, 4)[0]].name


def decode_request(frame: bytes, codec: str = "tables") -> ReceivedRequest:
    """Decode a whole frame, with its size."""
    _, key, version, correlation_id, length = _HEADER.unpack_from(frame)
    position = _HEADER.size + max(length, 0)
    client_id = frame[_HEADER.size : position].decode()
    api = APIS[key]
    if not api.versions.has(version):  # only ApiVersions is sent before the versions are negotiated
        return ReceivedRequest(api.name, key, version, correlation_id, client_id, None)
    if api.is_flexible(version):
        assert frame[position] == 0, "the package sends no tags in request headers"
        position += 1
    if codec == "kio":
        from tests.simulation.kio_codec import decode_body

        return ReceivedRequest(
            api.name, key, version, correlation_id, client_id, decode_body(api, version, frame[position:])
        )
    decoded: list[Any] = []
    end = _request_reader(key, version)(frame, position, decoded)
    assert end == len(frame), f"{len(frame) - end} bytes remain after a {api.name} request"
    return ReceivedRequest(api.name, key, version, correlation_id, client_id, decoded[0])


def encode_response(request: ReceivedRequest, values: Mapping[str, Any], codec: str = "tables") -> bytes:
    """Encode a response with its size and header."""
    api = APIS[request.key]
    version = request.version
    if api.is_version_request and values["error_code"] == _UNSUPPORTED_VERSION:
        version = 0  # the client has sent a version that the broker lacks (KIP-511)
    flexible = api.is_flexible(version)
    out = bytearray(b"\0" if flexible and not api.is_version_request else b"")
    if codec == "kio":
        from tests.simulation.kio_codec import encode_body

        out += encode_body(api, version, values)
    elif all(isinstance(values.get(name), SharedElements) for name in ("api_keys", "finalized_features")):
        out += _encode_shared(api.key, version, tuple(values.items()))
    else:
        _response_writer(api.key, version)(out, values)
    return _RESPONSE_HEADER.pack(len(out) + 4, request.correlation_id) + out


@lru_cache(maxsize=1024)
def _encode_shared(key: int, version: int, values: tuple[tuple[str, Any], ...]) -> bytes:
    """Encode a response of which the elements are shared: each connection begins with the versions of a broker."""
    out = bytearray()
    _response_writer(key, version)(out, dict(values))
    return bytes(out)


@cache
def _request_reader(key: int, version: int) -> Any:
    api = APIS[key]
    return compile_reader(api.request, version, flexible=api.is_flexible(version))


@cache
def _response_writer(key: int, version: int) -> Any:
    api = APIS[key]
    return compile_writer(_all_ignorable(api.response), version, flexible=api.is_flexible(version))


def _all_ignorable(spec: StructSpec) -> StructSpec:
    """Return a struct whose fields are dropped where a version lacks them: brokers fill the fields of all versions."""
    fields = (replace(each, ignorable=True, type=_ignorable_type(each.type)) for each in spec.fields)
    return replace(spec, fields=tuple(fields))


def _ignorable_type(field_type: Any) -> Any:
    if isinstance(field_type, StructSpec):
        return _all_ignorable(field_type)
    if isinstance(field_type, ArrayType) and isinstance(field_type.of, StructSpec):
        return ArrayType(_all_ignorable(field_type.of))
    return field_type
