"""The registry of direct streams: it holds those that run, and knows the others for as long as somebody has them."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_kafka_direct.direct import _registry
from pyspark_kafka_direct.errors import OptionError


class Stream:
    def __init__(self, stream_id: str) -> None:
        self.stream_id = stream_id


def test_a_stopped_stream_is_known_for_as_long_as_somebody_has_it() -> None:
    stream: Any = Stream("stopped")
    _registry.enter(stream)
    _registry.leave(stream)
    assert _registry.stream_of("stopped") is stream
    assert stream in _registry.streams()
    del stream
    with pytest.raises(OptionError, match="only be used on the driver"):
        _registry.stream_of("stopped")


def test_one_that_has_taken_its_place_stays() -> None:
    old: Any = Stream("restored")
    new: Any = Stream("restored")
    _registry.enter(old)
    _registry.enter(new)
    try:
        _registry.leave(old)
        assert _registry.stream_of("restored") is new
    finally:
        _registry.leave(new)
