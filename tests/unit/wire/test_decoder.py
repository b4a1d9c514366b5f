"""Decoders of answers: what the library's own give, and an end where those would go on for hours."""

from __future__ import annotations

import struct
import time
import tracemalloc
from typing import Any

import pytest
from kafka.protocol.consumer import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from pyspark_kafka_direct.errors import ProtocolError
from pyspark_kafka_direct.wire import _protocol
from pyspark_kafka_direct.wire._cursor import unsigned_varint
from pyspark_kafka_direct.wire._decoder import bounded_decoder
from pyspark_kafka_direct.wire.connection import largest_answer

# Requests that are sent, their answers, and the versions in use.
USED = [
    (MetadataRequest, MetadataResponse, 4, 13),
    (ListOffsetsRequest, ListOffsetsResponse, 2, ListOffsetsResponse.max_version),
    (FindCoordinatorRequest, FindCoordinatorResponse, 1, 3),
    (OffsetFetchRequest, OffsetFetchResponse, 2, 7),
    (OffsetCommitRequest, OffsetCommitResponse, 2, 9),
    (SaslHandshakeRequest, SaslHandshakeResponse, 0, 1),
    (SaslAuthenticateRequest, SaslAuthenticateResponse, 0, 2),
]
EACH_VERSION = [
    pytest.param(request, response, version, id=f"{response.__name__}-{version}")
    for request, response, least, most in USED
    for version in range(least, most + 1)
]
ANSWERS = pytest.mark.parametrize(("request_class", "response_class", "version"), EACH_VERSION)

Topic = MetadataResponse.MetadataResponseTopic


def sample(kind: Any, version: int) -> Any:
    """An object with something in each of its fields."""
    made = {}
    for field in kind._struct._fields:
        if field.for_version_q(version) and "authorized_operations" not in field.name:  # a set of bits, never asked for
            made[field.name] = value(kind, field, version)
    return kind(version=version, **made)


def value(kind: Any, field: Any, version: int) -> Any:
    if field.is_struct_array():
        return [sample(getattr(kind, field.type_str), version) for _ in range(3)]
    text = field._json["type"]
    plain = {"string": "text", "bytes": b"bytes", "bool": True, "uuid": None}.get(text.removeprefix("[]"), 7)
    return [plain, plain] if text.startswith("[]") else plain


def as_told(answer: Any) -> Any:
    """Fields by name, all the way down."""
    if isinstance(answer, list):
        return [as_told(each) for each in answer]
    if not hasattr(answer, "_struct"):
        return answer
    return {field.name: as_told(getattr(answer, field.name)) for field in answer._struct._fields}


@ANSWERS
def test_they_give_what_the_librarys_give(request_class: Any, response_class: Any, version: int) -> None:
    response = sample(response_class, version)
    body = bytes(response.encode(version=version))
    ours = bounded_decoder(response_class, version)(memoryview(body))
    assert isinstance(ours, response_class)
    assert as_told(ours) == as_told(response_class.decode(body, version=version))
    assert len(body) > 10


@ANSWERS
def test_a_varint_without_end_ends(request_class: Any, response_class: Any, version: int) -> None:
    """Half a megabyte of 0xff behind a few zeros: the library's own decoders take ten seconds and more for one."""
    request = request_class()
    _protocol.encode(request, version, 1, "me")
    started = time.monotonic()
    refused = 0
    for zeros in range(24):
        try:
            _protocol.decode(request, memoryview(bytes(zeros) + b"\xff" * (1 << 19)), "b:1")
        except ProtocolError:
            refused += 1
        assert time.monotonic() - started < 60
    assert refused > 0


def tagged_brokers(count: int, tags: bytes) -> bytes:
    """A Metadata answer of version 12 with brokers that carry tagged fields."""
    broker = struct.pack(">i", 1) + b"\x02b" + struct.pack(">i", 9092) + b"\0" + tags
    return bytes(4) + unsigned_varint(count + 1) + broker * count + b"\0" + struct.pack(">i", 1) + b"\x01\0"


def test_unknown_tagged_fields_are_passed_over() -> None:
    decode = bounded_decoder(MetadataResponse, 12)
    found = decode(memoryview(tagged_brokers(3, b"\x02\x05\x01x\x06\x00")))
    assert [(broker.node_id, broker.host) for broker in found.brokers] == [(1, "b")] * 3
    assert found.brokers[2].unknown_tags == {"_5": b"x", "_6": b""}
    with pytest.raises(struct.error):
        decode(memoryview(tagged_brokers(3, b"\xff\xff\xff\xff\x07")))


@ANSWERS
def test_what_follows_a_tagged_field_is_not_copied(request_class: Any, response_class: Any, version: int) -> None:
    """Each struct with tagged fields would copy the rest of the answer: a million of them, 64 MiB each time."""
    names = bounded_decoder(response_class, version).__code__.co_names
    assert "_BytesIO" not in names
    assert ("_Tail" in names) == response_class.flexible_version_q(version)


@pytest.mark.parametrize(
    "body",
    [
        bytes(4) + b"\xff\xff\xff\xff\x0f" + bytes(1000),  # four thousand million brokers
        bytes(4) + b"\x02" + bytes(4) + b"\xff\xff\xff\xff\x0f",  # one, whose name is four gigabytes long
        tagged_brokers(1, b"\xff\xff\xff\xff\x0f" + bytes(1000)),  # as many tagged fields
        tagged_brokers(1, b"\x01\x05\xff\xff\xff\xff\x0f"),  # one of four gigabytes
    ],
)
def test_memory_follows_the_bytes_not_what_they_claim(body: bytes) -> None:
    decode = bounded_decoder(MetadataResponse, 12)
    tracemalloc.start()
    try:
        with pytest.raises((struct.error, IndexError, ValueError)):
            decode(memoryview(body))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_the_densest_answer_takes_memory_in_proportion() -> None:
    body = tagged_brokers(20_000, b"\x01\x05\x00")
    decode = bounded_decoder(MetadataResponse, 12)
    tracemalloc.start()
    try:
        found = decode(memoryview(body))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.brokers) == 20_000
    assert peak < 60 * len(body)


def test_200_000_topics_with_the_longest_names_may_be_told() -> None:
    three = [1, 2, 3]
    partition = Topic.MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=1, leader_epoch=1, replica_nodes=three, isr_nodes=three
    )
    topic = Topic(error_code=0, name="x" * 249, topic_id=None, is_internal=False, partitions=[partition])
    alone, none = (
        len(MetadataResponse(brokers=[], cluster_id="c", controller_id=1, topics=topics).encode(version=13))
        for topics in ([topic], [])
    )
    assert 200_000 * (alone - none) < largest_answer("Metadata")
