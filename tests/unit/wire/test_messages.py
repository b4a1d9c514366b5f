"""Our messages against two other libraries, byte for byte, in every version that both know; and against damage."""

from __future__ import annotations

import contextlib
import io
import struct
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from tests.unit.wire.message_values import as_kafka_python, as_kio, complete, kafka_python, kio, plain, values

from pyspark_kafka_direct.wire import messages
from pyspark_kafka_direct.wire._cursor import MalformedError, read_unsigned_varint, unsigned_varint
from pyspark_kafka_direct.wire.connection import largest_answer
from pyspark_kafka_direct.wire.messages import Api
from pyspark_kafka_direct.wire.messages._fields import Versions
from pyspark_kafka_direct.wire.messages._writing import writer

if TYPE_CHECKING:
    import random

APIS = [each for each in vars(messages).values() if isinstance(each, Api)]


def spoken(api: Api) -> range:
    return range(api.versions.lowest, api.versions.highest + 1)


EVERY = [pytest.param(api, version, id=f"{api.name}-{version}") for api in APIS for version in spoken(api)]
EXAMPLES = settings(max_examples=8)


def response_bytes(api: Api, version: int, given: dict[str, Any]) -> bytes:
    """What a broker would send after the correlation id."""
    out = bytearray()
    flexible = api.is_flexible(version)
    writer(api.response, version, flexible=flexible)(out, given)
    return (b"\0" if flexible and api is not messages.API_VERSIONS else b"") + bytes(out)


def test_all_messages_are_here() -> None:
    assert {api.name: api.versions for api in APIS} == {
        "Metadata": Versions(4, 13),
        "ListOffsets": Versions(2, 11),
        "FindCoordinator": Versions(1, 3),
        "OffsetFetch": Versions(2, 7),
        "OffsetCommit": Versions(2, 9),
        "SaslHandshake": Versions(1, 1),
        "SaslAuthenticate": Versions(0, 2),
        "ApiVersions": Versions(0, 3),
        "Produce": Versions(3, 12),
        "InitProducerId": Versions(0, 5),
        "AddPartitionsToTxn": Versions(0, 3),
        "AddOffsetsToTxn": Versions(0, 3),
        "TxnOffsetCommit": Versions(0, 5),
        "EndTxn": Versions(0, 5),
        "CreateTopics": Versions(4, 7),
        "DescribeConfigs": Versions(1, 4),
    }


def test_newer_versions_can_be_left_out() -> None:
    older = messages.END_TXN.up_to(4)
    assert older.versions == Versions(0, 4)
    assert older.up_to(5) == older
    values = {"transactional_id": "t", "producer_id": 5, "producer_epoch": 1, "committed": True}
    assert messages.encode_body(older, 4, values) == messages.encode_body(messages.END_TXN, 4, values)


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_requests_are_kafka_pythons(api: Api, version: int) -> None:
    @EXAMPLES
    @given(values(api.request, version))
    def check(wanted: dict[str, Any]) -> None:
        theirs = as_kafka_python(kafka_python(api, "Request"), api.request, wanted, version)
        theirs.with_header(correlation_id=77, client_id="me")
        ours = messages.encode(api, version, 77, b"me", wanted)
        assert ours == bytes(theirs.encode(header=True, framed=True))

    check()


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_responses_of_kafka_python_are_understood(api: Api, version: int) -> None:
    @EXAMPLES
    @given(values(api.response, version))
    def check(told: dict[str, Any]) -> None:
        theirs = as_kafka_python(kafka_python(api, "Response"), api.response, told, version)
        theirs.with_header(correlation_id=77)
        body = bytes(theirs.encode(header=True))[4:]
        assert plain(messages.decode(api, version, body)) == complete(api.response, told)
        assert response_bytes(api, version, told) == body

    check()


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_bodies_are_kios(api: Api, version: int) -> None:
    """Both ways, requests and responses."""
    request_class, response_class = kio(api, "Request", version), kio(api, "Response", version)
    assert request_class is not None, "the second oracle knows all that is spoken here"

    @EXAMPLES
    @given(values(api.request, version), values(api.response, version))
    def check(asked: dict[str, Any], told: dict[str, Any]) -> None:
        theirs = io.BytesIO()
        entity_writer(request_class)(theirs, as_kio(request_class, asked))
        assert messages.encode_body(api, version, asked) == theirs.getvalue()
        theirs = io.BytesIO()
        entity_writer(response_class)(theirs, as_kio(response_class, told))
        header = b"\0" if api.is_flexible(version) and api is not messages.API_VERSIONS else b""
        assert plain(messages.decode(api, version, header + theirs.getvalue())) == complete(api.response, told)
        read, _ = entity_reader(response_class)(response_bytes(api, version, told)[len(header) :], 0)
        assert read == as_kio(response_class, told)

    check()


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_a_response_that_is_cut_or_goes_on_is_malformed(api: Api, version: int) -> None:
    @EXAMPLES
    @given(values(api.response, version), st.data())
    def check(told: dict[str, Any], data: st.DataObject) -> None:
        body = response_bytes(api, version, told)
        with pytest.raises(MalformedError):
            messages.decode(api, version, body[: data.draw(st.integers(0, len(body) - 1))])
        with pytest.raises(MalformedError, match="left over"):
            messages.decode(api, version, body + b"\0")

    check()


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_damage_is_malformed_or_read_but_nothing_else(api: Api, version: int) -> None:
    @EXAMPLES
    @given(values(api.response, version), st.randoms(use_true_random=False))
    def check(told: dict[str, Any], chance: random.Random) -> None:
        body = bytearray(response_bytes(api, version, told))
        for _ in range(chance.randint(1, 4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        with contextlib.suppress(MalformedError):
            messages.decode(api, version, bytes(body))

    check()


@pytest.mark.parametrize("filler", [b"\xff", b"\x80", b"\x7f", b"\x00"])
@pytest.mark.parametrize(("api", "version"), EVERY)
def test_a_megabyte_of_nonsense_is_refused_at_once(api: Api, version: int, filler: bytes) -> None:
    """Varints without end and counts of billions: few bytes are looked at, nothing is made as large as they say."""
    began = time.monotonic()
    with pytest.raises(MalformedError):
        messages.decode(api, version, filler * 1_000_000)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_a_varint_without_end_ends(api: Api, version: int) -> None:
    """Behind a few zeros, so that each field in its turn meets it."""
    for zeros in range(24):
        with pytest.raises(MalformedError):
            messages.decode(api, version, bytes(zeros) + b"\xff" * (1 << 19))


def tagged_brokers(count: int, tags: bytes) -> bytes:
    """A Metadata answer of version 12 with brokers that carry tagged fields."""
    broker = struct.pack(">i", 1) + b"\x02b" + struct.pack(">i", 9092) + b"\0" + tags
    return bytes(5) + unsigned_varint(count + 1) + broker * count + b"\0" + struct.pack(">i", 1) + b"\x01\0"


def memory_of(body: bytes) -> tuple[Any, int]:
    """What is decoded, ``None`` if nothing can be, and the most bytes that this took."""
    tracemalloc.start()
    try:
        try:
            found = messages.decode(messages.METADATA, 12, body)
        except MalformedError:
            found = None
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_unknown_tagged_fields_are_passed_over() -> None:
    found = messages.decode(messages.METADATA, 12, tagged_brokers(3, b"\x02\x05\x01x\x06\x00"))
    assert [(broker.node_id, broker.host) for broker in found.brokers] == [(1, "b")] * 3
    with pytest.raises(MalformedError):
        messages.decode(messages.METADATA, 12, tagged_brokers(3, b"\xff\xff\xff\xff\x07"))


@pytest.mark.parametrize(
    "body",
    [
        bytes(5) + b"\xff\xff\xff\xff\x0f" + bytes(1000),  # four thousand million brokers
        bytes(5) + b"\x02" + bytes(4) + b"\xff\xff\xff\xff\x0f",  # one, whose name is four gigabytes long
        tagged_brokers(1, b"\xff\xff\xff\xff\x0f" + bytes(1000)),  # as many tagged fields
        tagged_brokers(1, b"\x01\x05\xff\xff\xff\xff\x0f"),  # one of four gigabytes
    ],
)
def test_memory_follows_the_bytes_not_what_they_claim(body: bytes) -> None:
    found, peak = memory_of(body)
    assert found is None
    assert peak < 1 << 20


def test_the_densest_answer_takes_memory_in_proportion() -> None:
    body = tagged_brokers(20_000, b"\x01\x05\x00")
    found, peak = memory_of(body)
    assert len(found.brokers) == 20_000
    assert peak < 60 * len(body)


def test_200_000_topics_with_the_longest_names_may_be_told() -> None:
    three = [1, 2, 3]
    topic = {"name": "x" * 249, "partitions": [{"replica_nodes": three, "isr_nodes": three}]}
    alone, none = (
        len(response_bytes(messages.METADATA, 13, {"cluster_id": "c", "topics": topics})) for topics in ([topic], [])
    )
    assert 200_000 * (alone - none) < largest_answer("Metadata")


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 300])
def test_a_partition_may_have_any_number_of_replicas(count: int) -> None:
    replicas = tuple(range(count))
    told = response_bytes(messages.METADATA, 13, {"topics": [{"name": "t", "partitions": [{"isr_nodes": replicas}]}]})
    (topic,) = messages.decode(messages.METADATA, 13, told).topics
    assert topic.partitions[0].isr_nodes == replicas


def test_an_error_names_the_array_that_claims_too_much() -> None:
    told = response_bytes(messages.METADATA, 13, {"topics": [{"partitions": [{"offline_replicas": range(200)}]}]})
    with pytest.raises(MalformedError, match=r"offline_replicas at byte \d+ claims 800 bytes, 799 are left"):
        messages.decode(messages.METADATA, 13, told[: told.rindex(bytes([0, 0, 0, 199])) + 3])


def test_null_is_no_array() -> None:
    told = response_bytes(messages.METADATA, 13, {"topics": [{"name": "t", "partitions": [{}]}]})
    assert messages.decode(messages.METADATA, 13, told)
    assert told.count(b"\1\1\1\0") == 1, "three empty arrays, and no tags"
    with pytest.raises(MalformedError, match="replica_nodes at byte"):
        messages.decode(messages.METADATA, 13, told.replace(b"\1\1\1\0", b"\0\1\1\0"))
    with pytest.raises(MalformedError, match="brokers at byte 6 is null"):
        messages.decode(messages.METADATA, 13, told[:5] + b"\0" + told[6:])


def test_no_element_of_an_array_is_null() -> None:
    assert messages.decode(messages.SASL_HANDSHAKE, 1, struct.pack(">hih", 0, 1, 0)).mechanisms == ("",)
    with pytest.raises(MalformedError, match="mechanisms at byte 8 is null"):
        messages.decode(messages.SASL_HANDSHAKE, 1, struct.pack(">hih", 0, 1, -1))


@pytest.mark.parametrize(
    ("varint", "value"),
    [(b"\x00", 0), (b"\x7f", 127), (b"\x80\x01", 128), (b"\xff\xff\xff\xff\x0f", 2**32 - 1)],
)
def test_varints_of_32_bits_are_read(varint: bytes, value: int) -> None:
    assert read_unsigned_varint(varint, 0) == (value, len(varint))


@pytest.mark.parametrize("varint", [b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x01"])
def test_longer_varints_are_malformed(varint: bytes) -> None:
    with pytest.raises(MalformedError, match="32 bits"):
        read_unsigned_varint(varint, 0)


def test_a_known_tag_must_fill_its_size() -> None:
    body = response_bytes(messages.API_VERSIONS, 3, {"finalized_features_epoch": 5})
    assert messages.decode(messages.API_VERSIONS, 3, body).finalized_features_epoch == 5
    assert body.endswith(b"\x01\x01\x08" + (5).to_bytes(8, "big"))
    longer = body[:-9] + b"\x09" + (5).to_bytes(8, "big") + b"\0"
    with pytest.raises(MalformedError, match="does not end"):
        messages.decode(messages.API_VERSIONS, 3, longer)


def test_defaults_are_not_sent_as_tags() -> None:
    assert response_bytes(messages.API_VERSIONS, 3, {"finalized_features_epoch": -1}).endswith(b"\0")
    plain_bytes = response_bytes(messages.API_VERSIONS, 3, {})
    assert (
        response_bytes(messages.API_VERSIONS, 3, {"zk_migration_ready": False, "supported_features": ()}) == plain_bytes
    )


def test_null_is_only_where_the_version_allows_it() -> None:
    topics = {"topics": [{"name": None}]}
    assert messages.encode_body(messages.METADATA, 10, topics)
    with pytest.raises(ValueError, match="name must not be null"):
        messages.encode_body(messages.METADATA, 9, topics)
    told = response_bytes(messages.METADATA, 12, {"topics": [{"name": None}]})
    assert messages.decode(messages.METADATA, 12, told).topics[0].name is None
    with pytest.raises(MalformedError, match="name at byte 15 is null"):
        messages.decode(messages.METADATA, 11, told[:-1] + b"\0\0\0\0\0")


def test_what_may_not_be_ignored_is_never_dropped() -> None:
    with pytest.raises(ValueError, match="version 7 has no field include_topic_authorized_operations"):
        messages.encode_body(messages.METADATA, 7, {"include_topic_authorized_operations": True})
    with pytest.raises(ValueError, match="version 6 has no field require_stable"):
        messages.encode_body(messages.OFFSET_FETCH, 6, {"require_stable": True})
    # The leader's epoch is only a check more, and may be left out.
    question = {"topics": [{"name": "t", "partitions": [{"current_leader_epoch": 3}]}]}
    assert messages.encode_body(messages.LIST_OFFSETS, 2, question)


def test_names_that_a_message_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="Topic has no field nam"):
        messages.encode_body(messages.METADATA, 9, {"topics": [{"nam": "t"}]})


def test_a_string_longer_than_the_protocol_allows_is_refused() -> None:
    with pytest.raises(ValueError, match="32768 bytes long, the protocol's strings have at most 32767"):
        messages.encode_body(messages.FIND_COORDINATOR, 3, {"key": "x" * 32768})
