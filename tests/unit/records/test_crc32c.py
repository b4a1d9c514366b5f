"""The checksum of record batches, with google-crc32c and without."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, cast

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.records._python import _crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def fresh() -> Iterator[None]:
    _crc32c._implementation.cache_clear()
    yield
    _crc32c._implementation.cache_clear()


def test_the_value_of_the_standard() -> None:
    """RFC 3720, B.4: 32 bytes of zero; and the check value of the algorithm's catalogue entry."""
    assert _crc32c.by_table(bytes(32)) == 0x8A9136AA
    assert _crc32c.by_table(b"123456789") == 0xE3069283


@given(st.binary(max_size=300))
def test_both_give_the_same(data: bytes) -> None:
    assert _crc32c.by_table(data) == google_crc32c.value(data)


@pytest.mark.usefixtures("fresh")
def test_google_crc32c_is_used_where_it_is() -> None:
    assert _crc32c._implementation() is google_crc32c.value


@pytest.mark.usefixtures("fresh")
def test_without_it_a_process_says_once_that_it_is_slow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "google_crc32c", cast("Any", None))
    with caplog.at_level(logging.WARNING):
        assert [_crc32c.crc32c(b"123456789") for _ in range(2)] == [0xE3069283] * 2
    assert [record.getMessage().count("[crc32c]") for record in caplog.records] == [1]
