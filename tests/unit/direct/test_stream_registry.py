"""The registry of direct streams: it holds running streams, and stopped ones while they are referenced."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from pyspark_kafka_direct.direct import checkpointed_stream
from pyspark_kafka_direct.errors import OptionError


class FakeStream:
    def __init__(self, stream_id: str) -> None:
        self.stream_id = stream_id


def test_a_stopped_stream_is_found_while_it_is_referenced() -> None:
    stream: Any = FakeStream("stopped")
    checkpointed_stream.register_stream(stream)
    checkpointed_stream.unregister_stream(stream)
    assert checkpointed_stream.find_stream("stopped") is stream
    assert stream in checkpointed_stream.registered_streams()
    del stream
    with pytest.raises(OptionError, match="only be used on the driver"):
        checkpointed_stream.find_stream("stopped")


def test_a_stream_that_replaced_another_stays_registered() -> None:
    old: Any = FakeStream("restored")
    new: Any = FakeStream("restored")
    checkpointed_stream.register_stream(old)
    checkpointed_stream.register_stream(new)
    try:
        checkpointed_stream.unregister_stream(old)
        assert checkpointed_stream.find_stream("restored") is new
        new = None  # the registry holds a stream that runs, although nothing else does
        gc.collect()
        new = checkpointed_stream.find_stream("restored")
    finally:
        checkpointed_stream.unregister_stream(new)
