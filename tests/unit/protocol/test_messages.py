"""Messages against two libraries, byte for byte, in every version that both support; and damaged messages."""

from __future__ import annotations

import contextlib
import io
import random
import struct
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.schemas.fields.codecs.types import UnsignedVarInt32
from kio.serial import entity_reader, entity_writer
from tests.examples import seeds
from tests.unit.protocol.message_values import (
    NEWER_THAN_LIBRARIES,
    ONLY_IN_KIO,
    as_kafka_python,
    as_kio,
    complete,
    kafka_python,
    kio,
    plain,
    random_values,
)

from pyspark_kafka_direct.client.connection import max_response_size
from pyspark_kafka_direct.protocol import description_messages, messages
from pyspark_kafka_direct.protocol.codec import compile_writer
from pyspark_kafka_direct.protocol.messages import ApiMessageType
from pyspark_kafka_direct.protocol.primitives import MalformedError, encode_unsigned_varint, read_unsigned_varint
from pyspark_kafka_direct.protocol.schema import Versions, message_type

if TYPE_CHECKING:
    from collections.abc import Iterable

APIS = [
    each
    for each in (*vars(messages).values(), *vars(description_messages).values())
    if isinstance(each, ApiMessageType)
]


def supported_versions(api: ApiMessageType) -> range:
    return range(api.versions.lowest, api.versions.highest + 1)


def with_ids(versions: Iterable[tuple[ApiMessageType, int]]) -> list[Any]:
    return [pytest.param(api, version, id=f"{api.name}-{version}") for api, version in versions]


SUPPORTED = [(api, version) for api in APIS for version in supported_versions(api)]
EVERY = with_ids(SUPPORTED)
OF_LIBRARIES = with_ids((api, version) for api, version in SUPPORTED if (api.name, version) not in NEWER_THAN_LIBRARIES)
OF_KAFKA_PYTHON = [each for each in OF_LIBRARIES if each.values[0].name not in ONLY_IN_KIO]
EXAMPLES = seeds(10)


def response_bytes(api: ApiMessageType, version: int, given: dict[str, Any]) -> bytes:
    """Return what a broker sends after the correlation id."""
    out = bytearray()
    flexible = api.is_flexible(version)
    compile_writer(api.response, version, flexible=flexible)(out, given)
    return (b"\0" if flexible and api is not messages.API_VERSIONS else b"") + bytes(out)


def test_supported_versions_of_all_messages() -> None:
    assert {api.name: api.versions for api in APIS} == {
        "Metadata": Versions(4, 13),
        "Fetch": Versions(4, 18),
        "ListOffsets": Versions(2, 11),
        "FindCoordinator": Versions(1, 3),
        "OffsetFetch": Versions(2, 7),
        "OffsetCommit": Versions(2, 9),
        "SaslHandshake": Versions(1, 1),
        "SaslAuthenticate": Versions(0, 2),
        "ApiVersions": Versions(0, 5),
        "Produce": Versions(3, 12),
        "InitProducerId": Versions(0, 5),
        "AddPartitionsToTxn": Versions(0, 3),
        "AddOffsetsToTxn": Versions(0, 3),
        "TxnOffsetCommit": Versions(0, 5),
        "EndTxn": Versions(0, 5),
        "CreateTopics": Versions(4, 7),
        "DescribeConfigs": Versions(1, 4),
        "DescribeProducers": Versions(0, 0),
        "CreateDelegationToken": Versions(1, 3),
        "RenewDelegationToken": Versions(1, 2),
        "DescribeDelegationToken": Versions(1, 3),
        "ListTransactions": Versions(0, 2),
        "DescribeTransactions": Versions(0, 0),
        "WriteTxnMarkers": Versions(1, 2),
        "DescribeCluster": Versions(0, 2),
        "DescribeGroups": Versions(0, 5),
        "ListGroups": Versions(0, 5),
        "DescribeQuorum": Versions(1, 1),
    }


def test_with_max_version() -> None:
    older = messages.END_TXN.with_max_version(4)
    assert older.versions == Versions(0, 4)
    assert older.with_max_version(5) == older
    values = {"transactional_id": "t", "producer_id": 5, "producer_epoch": 1, "committed": True}
    assert messages.encode_body(older, 4, values) == messages.encode_body(messages.END_TXN, 4, values)


@pytest.mark.parametrize(("api", "version"), OF_KAFKA_PYTHON)
def test_two_messages_of_each_version_equal_kafka_python(api: ApiMessageType, version: int) -> None:
    for source in (random.Random(version), random.Random()):
        check_request(api, version, source)
        check_response(api, version, source)


@pytest.mark.slow
@pytest.mark.parametrize(("api", "version"), OF_KAFKA_PYTHON)
def test_requests_equal_kafka_python(api: ApiMessageType, version: int) -> None:
    EXAMPLES(lambda source: check_request(api, version, source))()


@pytest.mark.slow
@pytest.mark.parametrize(("api", "version"), OF_KAFKA_PYTHON)
def test_responses_of_kafka_python_are_decoded(api: ApiMessageType, version: int) -> None:
    EXAMPLES(lambda source: check_response(api, version, source))()


def check_request(api: ApiMessageType, version: int, source: random.Random) -> None:
    request_values = random_values(api.request, version, source)
    expected = as_kafka_python(kafka_python(api, "Request"), api.request, request_values, version)
    expected.with_header(correlation_id=77, client_id="me")
    encoded = messages.encode(api, version, 77, b"me", request_values)
    assert encoded == bytes(expected.encode(header=True, framed=True))


def check_response(api: ApiMessageType, version: int, source: random.Random) -> None:
    response_values = random_values(api.response, version, source)
    expected = as_kafka_python(kafka_python(api, "Response"), api.response, response_values, version)
    expected.with_header(correlation_id=77)
    body = bytes(expected.encode(header=True))[4:]
    assert plain(messages.decode(api, version, body)) == complete(api.response, response_values)
    assert response_bytes(api, version, response_values) == body


@pytest.mark.slow
@pytest.mark.parametrize(("api", "version"), OF_LIBRARIES)
def test_bodies_equal_kio(api: ApiMessageType, version: int) -> None:
    """Requests and responses, encoded and decoded."""
    request_class, response_class = kio(api, "Request", version), kio(api, "Response", version)
    assert request_class is not None, "kio has all supported versions"

    @EXAMPLES
    def check(source: random.Random) -> None:
        request_values = random_values(api.request, version, source)
        response_values = random_values(api.response, version, source)
        expected = io.BytesIO()
        entity_writer(request_class)(expected, as_kio(request_class, request_values))
        assert messages.encode_body(api, version, request_values) == expected.getvalue()
        expected = io.BytesIO()
        entity_writer(response_class)(expected, as_kio(response_class, response_values))
        header = b"\0" if api.is_flexible(version) and api is not messages.API_VERSIONS else b""
        assert plain(messages.decode(api, version, header + expected.getvalue())) == complete(
            api.response, response_values
        )
        read, _ = entity_reader(response_class)(response_bytes(api, version, response_values)[len(header) :], 0)
        assert read == as_kio(response_class, response_values)

    check()


def test_the_expected_broker_is_encoded_as_in_kafka_4_4() -> None:
    values = {"client_software_name": "x", "client_software_version": "1", "cluster_id": "c", "node_id": 2}
    assert messages.encode_body(messages.API_VERSIONS, 5, values).hex() == "0278023102630000000200"
    assert messages.encode_body(messages.API_VERSIONS, 4, values).hex() == "0278023100"


@pytest.mark.slow
@pytest.mark.parametrize(("api", "version"), EVERY)
def test_truncated_or_extended_response_is_malformed(api: ApiMessageType, version: int) -> None:
    @EXAMPLES
    def check(source: random.Random) -> None:
        body = response_bytes(api, version, random_values(api.response, version, source))
        with pytest.raises(MalformedError):
            messages.decode(api, version, body[: source.randrange(len(body))])
        with pytest.raises(MalformedError, match="remain at the end"):
            messages.decode(api, version, body + b"\0")

    check()


@pytest.mark.slow
@pytest.mark.parametrize(("api", "version"), EVERY)
def test_damaged_messages_are_malformed_or_decoded(api: ApiMessageType, version: int) -> None:
    @EXAMPLES
    def check(source: random.Random) -> None:
        body = bytearray(response_bytes(api, version, random_values(api.response, version, source)))
        for _ in range(source.randint(1, 4)):
            body[source.randrange(len(body))] = source.randrange(256)
        with contextlib.suppress(MalformedError):
            messages.decode(api, version, bytes(body))

    check()


@pytest.mark.slow
@pytest.mark.parametrize("filler", [b"\xff", b"\x80", b"\x7f", b"\x00"])
@pytest.mark.parametrize(("api", "version"), EVERY)
def test_megabyte_of_invalid_bytes_is_rejected_quickly(api: ApiMessageType, version: int, filler: bytes) -> None:
    """Endless varints and counts of billions: few bytes are read, and nothing is allocated by their values."""
    started = time.monotonic()
    with pytest.raises(MalformedError):
        messages.decode(api, version, filler * 1_000_000)
    assert time.monotonic() - started < 120


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_endless_varint_is_rejected(api: ApiMessageType, version: int) -> None:
    """After a few zeros, so that each field in turn reads it."""
    for zeros in range(24):
        with pytest.raises(MalformedError):
            messages.decode(api, version, bytes(zeros) + b"\xff" * (1 << 19))


def tagged_brokers(count: int, tags: bytes) -> bytes:
    """Return a Metadata response of version 12 whose brokers have tagged fields."""
    broker = struct.pack(">i", 1) + b"\x02b" + struct.pack(">i", 9092) + b"\0" + tags
    return bytes(5) + encode_unsigned_varint(count + 1) + broker * count + b"\0" + struct.pack(">i", 1) + b"\x01\0"


def memory_of(body: bytes) -> tuple[Any, int]:
    """Return the decoded message, ``None`` if it is malformed, and the peak memory."""
    tracemalloc.start()
    try:
        try:
            decoded = messages.decode(messages.METADATA, 12, body)
        except MalformedError:
            decoded = None
        return decoded, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("tags", [b"\0", b"\x01\x05\x01x", b"\x02\x05\x01x\x06\x00"])
def test_structs_of_numbers_may_have_unknown_tags(tags: bytes) -> None:
    """An array of ApiVersions: each element has three numbers and a tag buffer."""
    ranges = [(1, 4, 17), (3, 0, 13)]
    body = (
        b"\0\0" + bytes([len(ranges) + 1]) + b"".join(struct.pack(">hhh", *each) + tags for each in ranges) + bytes(5)
    )
    decoded = messages.decode(messages.API_VERSIONS, 3, body)
    assert [(each.api_key, each.min_version, each.max_version) for each in decoded.api_keys] == ranges
    assert decoded.throttle_time_ms == 0


def test_unknown_tagged_fields_are_skipped() -> None:
    decoded = messages.decode(messages.METADATA, 12, tagged_brokers(3, b"\x02\x05\x01x\x06\x00"))
    assert [(broker.node_id, broker.host) for broker in decoded.brokers] == [(1, "b")] * 3
    in_header = b"\x02\x05\x01x\x06\x00" + tagged_brokers(1, b"\0")[1:]
    assert messages.decode(messages.METADATA, 12, in_header).brokers[0].host == "b"
    with pytest.raises(MalformedError):
        messages.decode(messages.METADATA, 12, tagged_brokers(3, b"\xff\xff\xff\xff\x07"))


@pytest.mark.parametrize(
    "body",
    [
        bytes(5) + b"\xff\xff\xff\xff\x0f" + bytes(1000),  # four billion brokers
        bytes(5) + b"\x02" + bytes(4) + b"\xff\xff\xff\xff\x0f",  # one, whose name is four gigabytes long
        tagged_brokers(1, b"\xff\xff\xff\xff\x0f" + bytes(1000)),  # as many tagged fields
        tagged_brokers(1, b"\x01\x05\xff\xff\xff\xff\x0f"),  # one of four gigabytes
        # Twice as many brokers as there are: each field of a broker counts for its smallest size.
        bytes(5) + encode_unsigned_varint(50_001) + (struct.pack(">i", 1) + b"\x02b" + bytes(6)) * 22_000,
    ],
)
def test_memory_depends_on_bytes_not_declared_sizes(body: bytes) -> None:
    decoded, peak = memory_of(body)
    assert decoded is None
    assert peak < 1 << 20


def test_memory_of_dense_response_is_proportional() -> None:
    body = tagged_brokers(20_000, b"\x01\x05\x00")
    decoded, peak = memory_of(body)
    assert len(decoded.brokers) == 20_000
    assert peak < 60 * len(body)


def test_metadata_of_200_000_topics_fits_the_limit() -> None:
    three = [1, 2, 3]
    topic = {"name": "x" * 249, "partitions": [{"replica_nodes": three, "isr_nodes": three}]}
    with_topic, without_topic = (
        len(response_bytes(messages.METADATA, 13, {"cluster_id": "c", "topics": topics})) for topics in ([topic], [])
    )
    assert 200_000 * (with_topic - without_topic) < max_response_size("Metadata")


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 300])
def test_a_partition_may_have_any_number_of_replicas(count: int) -> None:
    replicas = tuple(range(count))
    body = response_bytes(messages.METADATA, 13, {"topics": [{"name": "t", "partitions": [{"isr_nodes": replicas}]}]})
    (topic,) = messages.decode(messages.METADATA, 13, body).topics
    assert topic.partitions[0].isr_nodes == replicas


@pytest.mark.parametrize("version", [4, 12])
def test_a_request_may_have_any_number_of_topics(version: int) -> None:
    names = [f"topic {number}" for number in range(3000)]
    body = messages.encode_body(messages.METADATA, version, {"topics": [{"name": name} for name in names]})
    assert [body.count(name.encode()) for name in names[-3:]] == [1, 1, 1]
    assert body.count(b"topic ") == 3000


def test_error_names_the_array_with_impossible_size() -> None:
    body = response_bytes(messages.METADATA, 13, {"topics": [{"partitions": [{"offline_replicas": range(200)}]}]})
    with pytest.raises(MalformedError, match=r"offline_replicas at byte \d+ declares 800 bytes, but 799 remain"):
        messages.decode(messages.METADATA, 13, body[: body.rindex(bytes([0, 0, 0, 199])) + 3])


def test_null_array_is_malformed() -> None:
    body = response_bytes(messages.METADATA, 13, {"topics": [{"name": "t", "partitions": [{}]}]})
    assert messages.decode(messages.METADATA, 13, body)
    assert body.count(b"\1\1\1\0") == 1, "three empty arrays, and no tags"
    with pytest.raises(MalformedError, match="replica_nodes at byte"):
        messages.decode(messages.METADATA, 13, body.replace(b"\1\1\1\0", b"\0\1\1\0"))
    with pytest.raises(MalformedError, match="brokers at byte 6 is null"):
        messages.decode(messages.METADATA, 13, body[:5] + b"\0" + body[6:])


@pytest.mark.parametrize("size", [-2, -(1 << 15)])
def test_a_negative_size_other_than_that_of_null_is_malformed(size: int) -> None:
    """Here of a string, a list and records that may be null."""
    authenticated = struct.pack(">hh", 58, -1) + struct.pack(">i", 0)
    assert messages.decode(messages.SASL_AUTHENTICATE, 0, authenticated).error_message is None
    with pytest.raises(MalformedError, match="error_message at byte 4 is null"):
        messages.decode(messages.SASL_AUTHENTICATE, 0, struct.pack(">hh", 58, size) + struct.pack(">i", 0))
    fields = struct.pack(">iihqq", 0, 0, 0, 5, 5)
    for aborted, records in ((-1, -1), (size, -1), (-1, size)):
        partition = fields + struct.pack(">ii", aborted, records)
        body = struct.pack(">iih", 0, 1, 1) + b"t" + struct.pack(">i", 1) + partition[4:]
        if size in (aborted, records):
            with pytest.raises(MalformedError, match=r"(aborted_transactions|records) at byte \d+ is null"):
                messages.decode(messages.FETCH, 4, body)
        else:
            assert messages.decode(messages.FETCH, 4, body).responses[0].partitions[0].records is None


def test_null_array_element_is_malformed() -> None:
    assert messages.decode(messages.SASL_HANDSHAKE, 1, struct.pack(">hih", 0, 1, 0)).mechanisms == ("",)
    with pytest.raises(MalformedError, match="mechanisms at byte 8 is null"):
        messages.decode(messages.SASL_HANDSHAKE, 1, struct.pack(">hih", 0, 1, -1))


@given(st.integers(0, 2**32 - 1))
def test_varints_equal_kafka_python(value: int) -> None:
    encoded = UnsignedVarInt32.encode(value)
    assert encode_unsigned_varint(value) == encoded
    assert read_unsigned_varint(encoded + b"rest", 0) == (value, len(encoded))


@pytest.mark.parametrize(
    ("varint", "value"),
    [(b"\x00", 0), (b"\x7f", 127), (b"\x80\x01", 128), (b"\xff\xff\xff\xff\x0f", 2**32 - 1)],
)
def test_varints_of_32_bits_are_read(varint: bytes, value: int) -> None:
    assert read_unsigned_varint(varint, 0) == (value, len(varint))


@pytest.mark.parametrize("varint", [b"\xff\xff\xff\xff\x1f", b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x01"])
def test_varints_above_32_bits_are_malformed(varint: bytes) -> None:
    with pytest.raises(MalformedError, match="32 bits"):
        read_unsigned_varint(varint, 0)


def test_known_tagged_field_must_fill_its_size() -> None:
    body = response_bytes(messages.API_VERSIONS, 3, {"finalized_features_epoch": 5})
    assert messages.decode(messages.API_VERSIONS, 3, body).finalized_features_epoch == 5
    assert body.endswith(b"\x01\x01\x08" + (5).to_bytes(8, "big"))
    longer = body[:-9] + b"\x09" + (5).to_bytes(8, "big") + b"\0"
    with pytest.raises(MalformedError, match="does not have the declared size"):
        messages.decode(messages.API_VERSIONS, 3, longer)


def test_each_known_tagged_field_is_read_among_unknown_ones() -> None:
    fields = {
        "supported_features": [{"name": "a", "min_version": 1, "max_version": 2}],
        "finalized_features_epoch": 5,
        "finalized_features": [{"name": "b", "max_version_level": 3, "min_version_level": 1}],
        "zk_migration_ready": True,
    }
    body = response_bytes(messages.API_VERSIONS, 3, fields)
    prefix = response_bytes(messages.API_VERSIONS, 3, {})[:-1]
    assert body[: len(prefix) + 1] == prefix + b"\x04"
    with_unknown = prefix + b"\x06" + body[len(prefix) + 1 :] + b"\x07\x02xy" + b"\x09\x00"
    for encoded in (body, with_unknown):
        decoded = plain(messages.decode(messages.API_VERSIONS, 3, encoded))
        assert {name: decoded[name] for name in fields} == fields


def test_defaults_are_not_sent_as_tags() -> None:
    assert response_bytes(messages.API_VERSIONS, 3, {"finalized_features_epoch": -1}).endswith(b"\0")
    plain_bytes = response_bytes(messages.API_VERSIONS, 3, {})
    assert (
        response_bytes(messages.API_VERSIONS, 3, {"zk_migration_ready": False, "supported_features": ()}) == plain_bytes
    )


def test_null_requires_a_nullable_version() -> None:
    topics = {"topics": [{"name": None}]}
    assert messages.encode_body(messages.METADATA, 10, topics)
    with pytest.raises(ValueError, match="name must not be null"):
        messages.encode_body(messages.METADATA, 9, topics)
    body = response_bytes(messages.METADATA, 12, {"topics": [{"name": None}]})
    assert messages.decode(messages.METADATA, 12, body).topics[0].name is None
    with pytest.raises(MalformedError, match="name at byte 15 is null"):
        messages.decode(messages.METADATA, 11, body[:-1] + b"\0\0\0\0\0")


def test_only_ignorable_fields_are_dropped() -> None:
    with pytest.raises(ValueError, match="version 7 has no field include_topic_authorized_operations"):
        messages.encode_body(messages.METADATA, 7, {"include_topic_authorized_operations": True})
    with pytest.raises(ValueError, match="version 7 has no field include_cluster_authorized_operations"):
        messages.encode_body(messages.METADATA, 7, {"include_cluster_authorized_operations": True})
    with pytest.raises(ValueError, match="version 6 has no field require_stable"):
        messages.encode_body(messages.OFFSET_FETCH, 6, {"require_stable": True})
    defaults = {"transactional_id": "t", "transaction_timeout_ms": 1, "producer_id": -1, "producer_epoch": -1}
    assert messages.encode_body(messages.INIT_PRODUCER_ID, 2, defaults), "they mean the same as their absence"
    with pytest.raises(ValueError, match="version 2 has no field producer_id"):
        messages.encode_body(messages.INIT_PRODUCER_ID, 2, {**defaults, "producer_id": 0})
    # The leader epoch is an additional check, so it is ignorable.
    request_values = {"topics": [{"name": "t", "partitions": [{"current_leader_epoch": 3}]}]}
    assert messages.encode_body(messages.LIST_OFFSETS, 2, request_values)


def test_unknown_field_names_are_rejected() -> None:
    with pytest.raises(ValueError, match="Topic has no field nam"):
        messages.encode_body(messages.METADATA, 9, {"topics": [{"nam": "t"}]})


def test_too_long_string_is_rejected() -> None:
    with pytest.raises(ValueError, match="32768 bytes, more than the protocol's maximum of 32767"):
        messages.encode_body(messages.FIND_COORDINATOR, 3, {"key": "x" * 32768})


@pytest.mark.parametrize("type_name", ["int32?", "uuid?", "Inner?4+"])
def test_a_type_that_cannot_be_null_is_rejected(type_name: str) -> None:
    lines = (
        "Example: key 1, versions 0-5, flexible none",
        " request",
        f"  value: {type_name}",
        "   inner: int32",
        " response",
        "  error: int16",
    )
    with pytest.raises(ValueError, match="only arrays, strings, bytes and records can be null"):
        _ = message_type("\n".join(lines)).request
