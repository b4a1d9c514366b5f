"""A fake stream, for tests of stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.direct.commit_queue import CommitQueue
from pyspark_kafka_direct.direct.stop_hooks import StopSignal
from pyspark_kafka_direct.offsets import OffsetRange

if TYPE_CHECKING:
    from tests.unit.client.fake_groups import FakeGroup


def do_nothing() -> None:
    """The ``on_stopped`` callback of a test that needs none."""


class FakeStream:
    """A stream with a queued commit."""

    def __init__(self, group: FakeGroup) -> None:
        self.stop_signal = StopSignal()
        self.commit_queue = CommitQueue(group)
        self.commit_queue.add([OffsetRange("t", 0, 0, 5)])
