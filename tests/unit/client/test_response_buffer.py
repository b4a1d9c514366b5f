"""The memory of responses, without a connection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.client.response_buffer import ResponseBuffer

MIB = 1 << 20


def receive(buffer: ResponseBuffer, data: bytes) -> None:
    """Fill the buffer with as much of the data as belongs to the response."""
    rest = memoryview(data)
    while rest and (space := buffer.free_space()):
        count = min(len(space), len(rest))
        space[:count] = rest[:count]
        buffer.received_size += count
        rest = rest[count:]


def received(buffer: ResponseBuffer, body: bytes, chunk_size: int = MIB) -> memoryview:
    receive(buffer, b"12345678")
    assert (bytes(buffer.prefix), len(buffer.free_space())) == (b"12345678", 0)
    buffer.begin_body(len(body))
    for start in range(0, len(body), chunk_size):
        assert buffer.free_space()
        receive(buffer, body[start : start + chunk_size])
    assert not buffer.free_space()
    return buffer.take_body()


@given(st.lists(st.tuples(st.integers(0, 3 * MIB), st.integers(1000, 2 * MIB)), max_size=4))
def test_responses_of_any_size_are_complete(sizes: list[tuple[int, int]]) -> None:
    buffer = ResponseBuffer()
    for number, (size, chunk_size) in enumerate(sizes):
        body = received(buffer, bytes([number]) * size, chunk_size)
        assert (len(body), bytes(body[:1]), bytes(body[-1:])) == (size, *[bytes([number])[: min(size, 1)]] * 2)
        assert body.readonly


def test_memory_grows_with_received_bytes_and_not_with_the_declared_size() -> None:
    buffer = ResponseBuffer()
    receive(buffer, bytes(8))
    buffer.begin_body(500 * MIB)
    receive(buffer, bytes(100_000))
    assert buffer.capacity <= MIB
    receive(buffer, bytes(3 * MIB))
    assert buffer.capacity <= 5 * MIB


@pytest.mark.parametrize(
    ("reserved", "released", "capacity"), [(0, False, 4 * MIB), (9 * MIB, False, 9 * MIB), (9 * MIB, True, 64 << 10)]
)
def test_memory_of_a_large_response_is_retained_if_it_is_reserved(reserved: int, released: bool, capacity: int) -> None:
    buffer = ResponseBuffer()
    buffer.reserve(reserved)
    received(buffer, bytes(9 * MIB))
    if released:
        buffer.release()
    assert bytes(received(buffer, b"y")) == b"y"
    assert buffer.capacity == capacity


def test_a_reservation_ends_with_the_release() -> None:
    """Another user of the connection reads one large response, and then small ones."""
    buffer = ResponseBuffer()
    for reserved in (9 * MIB, 30 * MIB):
        buffer.reserve(reserved)
        received(buffer, bytes(9 * MIB))
        buffer.release()
        received(buffer, bytes(9 * MIB))
        received(buffer, b"y")
        assert buffer.capacity == 4 * MIB


def test_a_response_stays_valid_when_its_memory_is_released() -> None:
    buffer = ResponseBuffer()
    large = received(buffer, b"x" * MIB)
    buffer.release()
    received(buffer, b"y")
    assert bytes(large) == b"x" * MIB
