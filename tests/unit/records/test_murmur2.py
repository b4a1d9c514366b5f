"""Keys choose the same partitions as in the Java client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as by_kafka_python

from pyspark_kafka_direct.records.murmur2 import murmur2, partition_for_key

JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""From ``UtilsTest.testMurmur2`` in Kafka."""


@pytest.mark.parametrize(("data", "expected"), JAVA.items())
def test_kafkas_test_vectors(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected & 0xFFFFFFFF


@given(st.binary(max_size=50))
def test_same_hash_as_kafka_python(data: bytes) -> None:
    assert murmur2(data) == by_kafka_python(data) & 0xFFFFFFFF
    assert partition_for_key(data, 7) == (by_kafka_python(data) & 0x7FFFFFFF) % 7
