"""CRC-32C with and without google-crc32c."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, cast

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.records.python import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def fresh() -> Iterator[None]:
    crc32c._implementation.cache_clear()
    yield
    crc32c._implementation.cache_clear()


def test_standard_check_value() -> None:
    """RFC 3720, B.4: 32 bytes of zero; and the check value of the algorithm's catalogue entry."""
    assert crc32c.crc32c_by_table(bytes(32)) == 0x8A9136AA
    assert crc32c.crc32c_by_table(b"123456789") == 0xE3069283


@given(st.binary(max_size=300))
def test_both_implementations_agree(data: bytes) -> None:
    assert crc32c.crc32c_by_table(data) == google_crc32c.value(data)


@pytest.mark.usefixtures("fresh")
def test_google_crc32c_is_used_if_installed() -> None:
    assert crc32c._implementation() is google_crc32c.value


@pytest.mark.usefixtures("fresh")
def test_fallback_warns_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "google_crc32c", cast("Any", None))
    with caplog.at_level(logging.WARNING):
        assert [crc32c.crc32c(b"123456789") for _ in range(2)] == [0xE3069283] * 2
    assert [record.getMessage().count("pip install google-crc32c") for record in caplog.records] == [1]
