"""The hash by which the Java client chooses a key's partition (``Utils.murmur2`` in Kafka)."""

from __future__ import annotations

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition that the Java client would choose for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit MurmurHash2, with Kafka's seed."""
    value = _SEED ^ len(data)
    words_end = len(data) & ~3  # words have four bytes
    for start in range(0, words_end, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _MASK
        value = value * _MULTIPLIER & _MASK ^ word
    if words_end < len(data):
        value = (value ^ int.from_bytes(data[words_end:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15
