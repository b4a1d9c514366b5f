"""The origin and the error of dead letters of Kafka Connect, Kafka Streams and Spring."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.cli.dead_letter import REPLAYS_HEADER, DeadLetter

CONNECT = [
    (b"__connect.errors.topic", b"flights"),
    (b"__connect.errors.partition", b"3"),
    (b"__connect.errors.offset", b"47"),
    (b"__connect.errors.exception.class.name", b"org.example.Bad"),
    (b"__connect.errors.exception.message", b"no JSON"),
    (b"__connect.errors.stage", b"VALUE_CONVERTER"),
]
STREAMS = [
    (b"__streams.errors.exception", b"org.example.Bad"),
    (b"__streams.errors.message", b"no JSON"),
    (b"__streams.errors.topic", b"flights"),
    (b"__streams.errors.partition", b"3"),
    (b"__streams.errors.offset", b"47"),
]
SPRING = [
    (b"kafka_dlt-original-topic", b"flights"),
    (b"kafka_dlt-original-partition", struct.pack(">i", 3)),
    (b"kafka_dlt-original-offset", struct.pack(">q", 47)),
    (b"kafka_dlt-exception-fqcn", b"org.example.Bad"),
    (b"kafka_dlt-exception-message", b"no JSON"),
]


def letter(headers: list[tuple[bytes, bytes | None]]) -> DeadLetter:
    return DeadLetter("dlq", 0, 0, None, False, None, None, headers)


@pytest.mark.parametrize("headers", [CONNECT, STREAMS, SPRING], ids=["connect", "streams", "spring"])
def test_the_origin_and_the_error(headers: list[tuple[bytes, bytes | None]]) -> None:
    found = letter([(b"trace", b"1"), (b"trace", None), *headers])
    assert (found.original_topic, found.original_partition, found.original_offset) == ("flights", 3, 47)
    assert (found.error, found.message, found.replays) == ("org.example.Bad", "no JSON", 0)
    assert found.replayed_headers() == [(b"trace", b"1"), (b"trace", None), (REPLAYS_HEADER, b"1")]
    assert found.size == sum(letter([header]).size for header in found.headers) > 100


def test_the_newest_error_counts_and_the_counter_grows() -> None:
    earlier = [(b"__connect.errors.topic", b"trains"), (REPLAYS_HEADER, b"2")]
    found = letter([*earlier, (b"trace", b"1"), *CONNECT])
    assert (found.original_topic, found.replays) == ("flights", 2)
    assert found.replayed_headers() == [(b"trace", b"1"), (REPLAYS_HEADER, b"3")]


@given(headers=st.lists(st.tuples(st.sampled_from([name for name, _ in CONNECT + SPRING]), st.none() | st.binary())))
def test_no_header_makes_it_fail(headers: Any) -> None:
    found = letter(headers)
    for value in (found.original_partition, found.original_offset):
        assert value is None or -(2**63) <= value < 10**19
    assert found.original_topic is None or isinstance(found.original_topic, str)
    assert found.replayed_headers() == [(REPLAYS_HEADER, b"1")]


@given(
    st.integers(0, 10**9) | st.sampled_from([0, 7, 1234, 9999, 12345678, 2**63 - 1]), st.sampled_from(["", "q", "i"])
)
def test_numbers_of_each_form(number: int, form: str) -> None:
    """Connect and Streams write digits, of which four or eight are as long as the binary numbers of Spring."""
    if form:
        number = number % 0x20000000 - 3  # the bytes of a larger number may all be digits
        value = struct.pack(f">{form}", number)
        assert letter([(b"kafka_dlt-original-offset", value)]).original_offset == number
        return
    for name in (b"__connect.errors.offset", b"__streams.errors.offset"):
        assert letter([(name, b"%d" % number)]).original_offset == number


def test_the_size_has_each_part() -> None:
    small = DeadLetter("dlq", 0, 0, None, False, b"k", b"v", [(b"h", b"1")])
    larger = [
        small._replace(key=b"k" * 101),
        small._replace(value=b"v" * 101),
        small._replace(headers=[(b"h", b"1" * 101)]),
    ]
    assert [each.size - small.size for each in larger] == [100] * 3
    assert small._replace(key=None, value=None, headers=[(b"h", None)]).size == small.size - 3


def test_a_number_with_too_many_digits_is_unknown() -> None:
    assert letter([(b"__connect.errors.offset", b"9" * 5000)]).original_offset is None
